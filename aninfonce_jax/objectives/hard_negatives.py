"""AnInfoNCE with negatives of each anchor's own, beside the ordinary ones or in their place."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from aninfonce_jax.losses.own_negatives import own_negatives_loss
from aninfonce_jax.objectives.contrastive import AnInfoNCE
from aninfonce_jax.objectives.objective import Encode, Metrics
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import Latents, PowerScore
from aninfonce_jax.types import Array, Pairs, Params


@dataclasses.dataclass(frozen=True)
class HardNegatives(AnInfoNCE):
    """AnInfoNCE with an anchor's own negatives, which its source draws near it (Cor. 3.1).

    Attributes:
      joined: whether they join the ordinary negatives; else they are alone, and the loss is
        smallest at the difference of the two concentrations, Λ⁺ - Λ⁻.
    """

    joined: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negatives != "anchors" or any(self._penalties().values()):
            raise ValueError(
                "negatives of an anchor's own join those from the anchors, and no penalty is added "
                f"to their loss; got negatives={self.negatives!r}, centring={self.centring}, "
                f"spreading={self.spreading}"
            )

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the loss; parts and scores are those of the ordinary negatives, where joined."""
        del key
        if pairs.own is None:
            raise ValueError(
                "this objective needs pairs with negatives of each anchor's own; set `own` of the "
                "source's Pairs"
            )
        # Interleaved, so that a batch that is split over devices stays where it is.
        views = jnp.concatenate([pairs.view1[:, None], pairs.view2[:, None], pairs.own], axis=1)
        embeddings = encode(views.reshape(-1, *views.shape[2:]))
        embeddings = embeddings.reshape(*views.shape[:2], -1)
        view1, view2, own = embeddings[:, 0], embeddings[:, 1], embeddings[:, 2:]
        ordinary, metrics = None, {}
        if self.joined:
            out = self.loss(params, view1, view2, placement)
            ordinary = out.per_anchor
            metrics = {"alignment": out.alignment, "ordinary_loss": out.loss, **out.metrics}
        loss = own_negatives_loss(
            view1,
            view2,
            own,
            self._positive(params),
            ordinary=ordinary,
            normalize=self.normalize,
        )
        return loss, metrics

    def keys(self, batch_size: int) -> int | None:  # type: ignore[override]
        """Returns None: how many negatives an anchor has of its own is for the source to say."""
        del batch_size
        return None

    def chance(self, batch_size: int) -> float | None:
        """Returns None, like `keys`."""
        del batch_size
        return None

    def largest_gain(self, batch_size: int) -> float:
        """Returns no bound, like `keys`."""
        del batch_size
        return math.inf

    def target(self, latents: Latents) -> np.ndarray | None:
        """Returns Λ⁺ - Λ⁻; None beside ordinary negatives, where no Λ̂ is the best by theory."""
        plus, minus = latents.concentration, latents.own_concentration
        return None if self.joined or plus is None or minus is None else plus - minus

    def floor(self, score: PowerScore | None) -> None:
        """Returns None: what negatives an anchor has is not known from its pair."""
        del score
