"""A run as plain objects: source, encoder, objective, optimiser, and how long and how often."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from aninfonce_jax import config as config_lib
from aninfonce_jax import rng
from aninfonce_jax.config.checks import check_samples
from aninfonce_jax.config.fields import count, field
from aninfonce_jax.config.parse import parse_section
from aninfonce_jax.config.schema import (
    CheckpointConfig,
    Config,
    ConfigError,
    EvalConfig,
    LogConfig,
)
from aninfonce_jax.config.unused import check_evaluation
from aninfonce_jax.config.values import parse_value, shown
from aninfonce_jax.models.encoder import (
    PARAMS,
    Encoder,
    EvaluationPass,
    Layers,
    as_encoder,
    embedding_dim,
)
from aninfonce_jax.objectives.objective import Objective, checked_loss
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import Source
from aninfonce_jax.training.described import describe_part
from aninfonce_jax.training.microbatch import microbatched
from aninfonce_jax.training.state import TrainState
from aninfonce_jax.types import Array, Pairs, PyTree, Weights
from aninfonce_jax.workdir import MADE_IN_CODE

# What a work directory records of an experiment that no config made.
_RECORDED = (
    *("name", "seed", "steps", "batch_size", "microbatches", "ema_decay", "patience"),
    "settings",
)
# What the parts of an experiment are called, and what they can do; `as_encoder` sees to encoders.
_PARTS = {
    "source": ("an an.Source", ("example", "pairs", "known")),
    "objective": ("an an.Objective", ("init", "for_run")),
    "optimizer": ("a transformation of gradients, as optax.adam(1e-3) is", ("init", "update")),
}
# Fields that mean what those of a config mean, and have their types and ranges.
_AS_IN_CONFIG = {
    "name": "name",
    "seed": "seed",
    "steps": "train.steps",
    "batch_size": "train.batch_size",
    "steps_per_dispatch": "train.steps_per_dispatch",
    "microbatches": "train.microbatches",
    "ema_decay": "train.ema_decay",
    "hang_timeout": "train.hang_timeout",
}
_SECTIONS: Mapping[str, type[EvalConfig | CheckpointConfig | LogConfig]] = {
    "evaluation": EvalConfig,
    "checkpoint": CheckpointConfig,
    "log": LogConfig,
}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The parts of a run. A config is one way to make one; this is the other.

        objective, optimizer = an.objectives.AnInfoNCE(), optax.adam(1e-3)
        experiment = an.Experiment(source, encoder, objective, optimizer, steps=500)
        result = an.train(experiment, workdir="runs/mine")

    Attributes:
      source: where pairs come from.
      encoder: an `Encoder`, or whatever `as_encoder` makes one of.
      objective: what is minimised.
      optimizer: of the parameters {"encoder": ..., "objective": ...}.
      name: what reports call the run.
      seed: of everything random.
      steps: optimiser steps.
      batch_size: positive pairs per step, over all devices.
      steps_per_dispatch: steps compiled into one call to the device, where nothing is fed.
      microbatches: parts in which the batch is encoded, for memory.
      ema_decay: of the averaged weights that are evaluated; 0: the latest are.
      patience: evaluations without a better one after which the run ends before its last step;
        0: it goes on to the end.
      evaluation: when and how to score.
      checkpoint: when to save, and how much to keep.
      log: where metrics go.
      hang_timeout: of several processes: seconds without progress until the run is given up;
        0: never.
      settings: what else the result depends on and the parts do not tell, such as a learning
        rate, or what is no field of a dataclass: nested plain values, by which the work
        directory tells runs apart.
      warm_start: (state, placement) -> state: what is done to the state before the first step,
        such as taking over the parameters of another run; None: nothing.
      config: what it was made from, if it was made from a config.

    Example:
      >>> positives = an.conditionals.Anisotropic([25.0, 25.0, 5.0])
      >>> process = an.LatentProcess(an.Sphere(3), an.marginals.Uniform(), positives, jnp.tanh)
      >>> import flax.linen as nn, optax
      >>> experiment = an.Experiment(
      ...     an.ProcessSource(process),
      ...     an.as_encoder(nn.Dense(3)),
      ...     an.objectives.AnInfoNCE(),
      ...     optax.adam(1e-3),
      ...     steps=2,
      ...     batch_size=16,
      ... )
    """

    source: Source
    encoder: Encoder
    objective: Objective
    optimizer: optax.GradientTransformation
    name: str = "experiment"
    seed: int = 0
    steps: int = 1000
    batch_size: int = 256
    steps_per_dispatch: int = 50
    microbatches: int = 1
    ema_decay: float = 0.0
    patience: int = field(0, "evaluations without a better one; 0: no end", count(0))
    evaluation: EvalConfig = dataclasses.field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = dataclasses.field(default_factory=CheckpointConfig)
    log: LogConfig = dataclasses.field(default_factory=LogConfig)
    hang_timeout: int = 3600
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    warm_start: Callable[[TrainState, Placement], TrainState] | None = None
    config: Config | None = None

    def __post_init__(self) -> None:
        self._check_parts()
        self._set(**self._checked_values())
        self._set(encoder=as_encoder(self.encoder))
        self._set(objective=self.objective.for_run(self.source, self.encoder))
        self._check_evaluation()
        self._check_agrees()

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)  # a frozen dataclass is set up this way

    @property
    def description(self) -> Mapping[str, Any]:
        """What the work directory records of the run: its config, or what the parts tell."""
        return self._describe() if self.config is None else config_lib.to_dict(self.config)

    @property
    def fingerprint(self) -> str:
        """A hash of all that the result depends on, as far as the description tells."""
        return config_lib.fingerprint_values(self.description)

    def complete(self, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns an earlier description with the fields that it did not know at their defaults.

        Raises:
          ConfigError: it was made from a config that this version can't read.
        """
        if recorded.get("made_by") != MADE_IN_CODE:
            return config_lib.complete(recorded)
        usual = {
            field.name: field.default
            for field in dataclasses.fields(self)
            if field.name in _RECORDED and field.default is not dataclasses.MISSING
        }
        sections = {name: own | recorded[name] for name, own in _usual_sections().items()}
        return {**usual, **recorded, **sections}

    @functools.cached_property
    def dispatch_steps(self) -> int:
        """How many steps at most go into one call to the device: one, where the host feeds.

        A call has room for the metrics of all of them, so the number is a part of the compiled
        program, and settings that may change between sessions must not change it.
        """
        if self.source.fed(self.batch_size) is not None:
            return 1
        return min(self.steps_per_dispatch, self.steps)

    @functools.cached_property
    def embedding_dim(self) -> int:
        """Dimension of the embeddings that the objective compares."""
        return embedding_dim(self.encoder, self.source.example())

    def layers(self, weights: Weights, observations: Array) -> Layers:
        """Maps observations [batch, ...] to every layer of the encoder, as in evaluation."""
        return self._evaluated(weights).layers(observations)

    def embed(self, weights: Weights, observations: Array) -> Array:
        """Maps observations [batch, ...] to embeddings [batch, dim], as in evaluation."""
        return self._evaluated(weights)(observations)

    def _evaluated(self, weights: Weights) -> EvaluationPass:
        return EvaluationPass(self.encoder, _variables(weights))

    def loss(self, weights: Weights, pairs: Pairs, key: Array, placement: Placement) -> Array:
        """Returns the loss of pairs that are spread over the devices, as in evaluation."""
        encode = self._evaluated(weights)
        params = weights.params["objective"]
        returned = self.objective(params, encode, pairs, key, placement)
        return checked_loss(self.objective, returned)[0]

    def training_loss(
        self, weights: Weights, pairs: Pairs, key: Array, placement: Placement, step: Array
    ) -> tuple[Array, tuple[PyTree, Mapping[str, Array]]]:
        """Returns what a training step minimises, the encoder's new state, and scalars to log."""
        noise_key, objective_key = jax.random.split(jax.random.fold_in(key, 1))
        encode = _TrainingPass(self, weights, noise_key)
        params = weights.params["objective"]
        with jax.named_scope("loss"):
            returned = self.objective.in_training(
                params, encode, pairs, objective_key, placement, progress=step / self.steps
            )
        loss, metrics = checked_loss(self.objective, returned)
        return loss, (encode.state, metrics)

    def init_state(self) -> TrainState:
        """Returns the state before the first step; may be traced."""
        example = self.source.example()
        variables = self.encoder.init(rng.stream(self.seed, "encoder"), example)
        model_state = {name: own for name, own in variables.items() if name != PARAMS}
        objective_key = rng.stream(self.seed, "objective")
        params = {
            "encoder": variables[PARAMS],
            "objective": self.objective.init(objective_key, self.embedding_dim),
        }
        # A copy: the state is donated, and one buffer can't be donated twice.
        average = jax.tree.map(jnp.copy, Weights(params, model_state))
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            key=rng.stream(self.seed, "data"),
            params=params,
            model_state=model_state,
            opt_state=self.optimizer.init(params),
            average=average if self.ema_decay else None,
        )

    def _describe(self) -> dict[str, Any]:
        parts = ("source", "encoder", "objective")
        return {
            "made_by": MADE_IN_CODE,
            **{name: getattr(self, name) for name in _RECORDED},
            **{name: describe_part(getattr(self, name)) for name in parts},
            "eval": dataclasses.asdict(self.evaluation),
            "checkpoint": dataclasses.asdict(self.checkpoint),
            "log": dataclasses.asdict(self.log),
        }

    def _checked_values(self) -> dict[str, Any]:
        """Returns numbers, texts and sections as a config would have them in their place.

        Raises:
          ConfigError: if one is not what a config would take.
        """
        theirs = {name: config_lib.leaves()[key].field for name, key in _AS_IN_CONFIG.items()}
        own = {field.name: field for field in dataclasses.fields(self)}
        fields = {**theirs, "patience": own["patience"]}
        try:
            values = {name: parse_value(name, x, getattr(self, name)) for name, x in fields.items()}
            sections = {name: self._checked_section(name) for name in _SECTIONS}
        except ConfigError as error:
            raise ConfigError(str(error).removeprefix("config.")) from None
        return values | sections

    def _checked_section(self, name: str) -> Any:
        section: Any = getattr(self, name)
        cls = _SECTIONS[name]
        if not isinstance(section, cls):
            raise ConfigError(f"{name} must be of type {cls.__name__}, got {shown(section)}")
        return parse_section(cls, dataclasses.asdict(section), f"{name}.")

    def _check_parts(self) -> None:
        """Raises TypeError if a part is something else, such as its class."""
        for name, (kind, methods) in _PARTS.items():
            part = getattr(self, name)
            if isinstance(part, type):
                raise TypeError(f"{name} must be {kind}, got the class {part.__name__}; call it")
            if not all(hasattr(part, method) for method in methods):
                raise TypeError(f"{name} must be {kind}, got {shown(part)}")

    def _check_evaluation(self) -> None:
        """Raises ConfigError if something is asked of evaluation that it has no use for."""
        if self.config is not None:
            return  # which was checked as a whole
        known, evaluation = self.source.known, self.evaluation
        if known.examples is not None:
            # Whether views can be made of these is asked where they are made.
            evaluation = dataclasses.replace(evaluation, views=EvalConfig().views)
        check_evaluation(evaluation, [x for x, own in vars(known).items() if own is not None])
        if known.latents is not None:
            check_samples("evaluation.samples", self.evaluation.samples, known.latents.dim)

    def _check_agrees(self) -> None:
        """Raises ValueError if a field was changed that the config still has as it was."""
        if self.config is None:
            return
        config, train = self.config, self.config.train
        theirs = {
            "name": config.name,
            "seed": config.seed,
            "steps": train.steps,
            "batch_size": train.batch_size,
            "microbatches": train.microbatches,
            "ema_decay": train.ema_decay,
            "evaluation": config.eval,
        }
        for name, value in theirs.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} but the experiment's config says {value!r}, "
                    "which its work directory would record; change the config and build it "
                    "again, or set config=None and tell what differs in settings"
                )


def _usual_sections() -> dict[str, dict[str, Any]]:
    return {
        "eval": dataclasses.asdict(EvalConfig()),
        "checkpoint": dataclasses.asdict(CheckpointConfig()),
        "log": dataclasses.asdict(LogConfig()),
    }


class _TrainingPass:
    """Encodes in training, and carries the encoder's state from one call to the next.

    Lives within a single trace, so that an objective may encode as often as it wants and
    need not know that encoders have state.
    """

    def __init__(self, experiment: Experiment, weights: Weights, key: Array) -> None:
        self.state = weights.model_state
        self._experiment = experiment
        self._params = weights.params
        self._key = key
        self._calls = 0

    def __call__(self, observations: Array) -> Array:
        """Returns embeddings [batch, dim]."""
        embedding = self._experiment.encoder.layers[-1]
        return self._encode(observations, (embedding,))[embedding]

    def layers(self, observations: Array) -> Layers:
        """Returns every layer by its name, [batch, features] each."""
        return self._encode(observations, self._experiment.encoder.layers)

    def _encode(self, observations: Array, names: Sequence[str]) -> Layers:
        """Returns some layers: what micro-batches compute besides them is not kept."""
        encoder, parts = self._experiment.encoder, self._experiment.microbatches

        def encode(weights: Weights, observations: Array, key: Array) -> tuple[Layers, PyTree]:
            layers, state = encoder.apply(_variables(weights), observations, train=True, key=key)
            return {name: layers[name] for name in names}, state

        call: Callable[..., Any] = encode
        if parts > 1:
            call = microbatched(encode, parts, has_aux=True)
        key = jax.random.fold_in(self._key, self._calls)
        self._calls += 1
        with jax.named_scope("encoder"):
            layers, self.state = call(Weights(self._params, self.state), observations, key)
        # In their order, which micro-batches do not keep.
        return {name: layers[name] for name in names}


def _variables(weights: Weights) -> dict[str, Any]:
    return {PARAMS: weights.params["encoder"], **weights.model_state}
