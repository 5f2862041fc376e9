"""AugSelf (Lee et al., NeurIPS 2021): features must also tell how two augmentations differ."""

import dataclasses
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from aninfonce_jax.models.encoder import Encoder, layer_widths
from aninfonce_jax.models.heads import HEAD, DifferenceHeads
from aninfonce_jax.objectives.contrastive import InfoNCE
from aninfonce_jax.objectives.objective import (
    Encode,
    Metrics,
    NeedsError,
    join_views,
    pair_shapes,
    split_views,
)
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import PowerScore, Source
from aninfonce_jax.types import Array, Pairs, Params


@dataclasses.dataclass(frozen=True)
class AugSelf(InfoNCE):
    """InfoNCE + weight · Σ over augmentations of what heads miss of the views' difference.

    A head of three layers for each augmentation is shown the features of both views, those of the
    encoder's first layer (of a ResNet the backbone's, which no loss makes invariant), and predicts
    the parameters of the first view minus those of the second. What it misses is the mean squared
    error or, of an augmentation that is only done or not, the cross-entropy of whether the views
    differ in it.

    Attributes:
      weight: λ.
      predicted: the augmentations, by the names that the source gives them.
      width: of the heads' two hidden layers.
      layer: of the encoder, that heads are shown; "": its first, which a run looks up.
      features: how many features that layer has; 0: a run looks it up.
      outputs: augmentation -> how many parameters it has; empty: a run looks it up.

    Example:
      >>> def scaled(key, rows):  # an augmentation that says what it did
      ...     scale = jax.random.uniform(key, (len(rows), 1))
      ...     return rows * scale, {"scale": scale}
      >>> source = an.pairs.augmented(np.ones((100, 3), np.float32), scaled)  # to be fitted on
      >>> model = an.AnInfoNCE(dim=2, objective=an.objectives.AugSelf(predicted=("scale",)))
    """

    weight: float = 1.0
    predicted: tuple[str, ...] = ("crop", "jitter")
    width: int = 512
    layer: str = ""
    features: int = 0
    outputs: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def for_run(self, source: Source, encoder: Encoder) -> "AugSelf":
        """Returns the objective with the sizes of its heads."""
        if self.features:
            return self
        self.check(source)
        widths = layer_widths(encoder, source.example())
        layer = self.layer or encoder.layers[0]
        if layer not in widths:
            raise NeedsError(f"AugSelf: there is no layer {layer!r}; choose {', '.join(widths)}")
        done = pair_shapes(source).done1 or {}
        outputs = {name: done[name].shape[1] for name in self.predicted}
        return dataclasses.replace(self, layer=layer, features=widths[layer], outputs=outputs)

    def check(self, source: Source) -> None:
        """Raises NeedsError if it is not known how views were augmented, or not so."""
        pairs = pair_shapes(source)
        if pairs.done1 is None or pairs.done2 is None:
            raise NeedsError(
                f"AugSelf needs to know what was done to each view, and its source ({source.name}) "
                "does not tell; use images, or an.pairs.augmented with a function that returns it"
            )
        known = pairs.done1.keys() & pairs.done2.keys()
        missing = [name for name in self.predicted if name not in known]
        if missing:
            raise NeedsError(
                f"AugSelf can't predict {missing[0]!r}, which its source ({source.name}) does not "
                f"do; predicted must be of: {', '.join(sorted(known)) or 'nothing'}"
            )
        if not self.predicted:
            raise NeedsError("AugSelf needs an augmentation to predict; name it in predicted")

    def init(self, key: Array, dim: int) -> Params:
        """Returns the parameters of the heads, and 1/τ where it is trained."""
        if not self.features:
            raise ValueError("AugSelf is not told the sizes of its heads; make it for a run")
        shown = jnp.zeros((1, self.features))
        return {**super().init(key, dim), HEAD: self._heads.init(key, shown, shown)}

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the sum, and both of its parts."""
        del key
        assert pairs.done1 is not None  # see `check`
        assert pairs.done2 is not None
        layers = encode.layers(join_views(pairs))
        *_, embeddings = layers.values()
        contrast, metrics = self._of_embeddings(params, embeddings, placement)
        features = layers[self.layer].astype(jnp.float32)
        shown = split_views(features.reshape(features.shape[0], -1))
        predictions = self._heads.apply(params[HEAD], *shown)
        assert isinstance(predictions, dict)
        missed = {
            name: _missed(predictions[name], pairs.done1[name], pairs.done2[name])
            for name in self.predicted
        }
        parts = {f"missed_{name}": value for name, value in missed.items()}
        loss = contrast + self.weight * sum(missed.values())
        return loss, {"contrast": contrast, **parts, **metrics}

    @property
    def _heads(self) -> DifferenceHeads:
        return DifferenceHeads(dict(self.outputs), self.width)

    def chance(self, batch_size: int) -> float | None:
        """Returns None: what heads miss at chance is for the source to say."""
        del batch_size
        return None

    def largest_gain(self, batch_size: int) -> float:
        """Returns no bound, like `chance`."""
        del batch_size
        return math.inf

    def floor(self, score: PowerScore | None) -> None:
        """Returns None, like `chance`."""
        del score


def _missed(predicted: Array, first: Array, second: Array) -> Array:
    """Returns the error of predicted differences [batch, k] of two parameters."""
    if first.dtype == bool:
        differ = (first != second).astype(jnp.float32)
        return jnp.mean(jax.nn.softplus(predicted) - differ * predicted)
    return jnp.mean(jnp.square(predicted - (first - second)))
