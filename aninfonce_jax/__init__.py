"""AnInfoNCE in JAX: contrastive learning that provably recovers latent factors.

    import aninfonce_jax as an

    out = an.aninfonce_loss(view1, view2, concentration)

Names are loaded when they are first used, so that importing the package costs nothing, and a
command can be stopped in a line almost as soon as Python runs.
"""

# As in `typing`, which takes longer to import than Python to start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from aninfonce_jax import objectives
    from aninfonce_jax.config.schema import CheckpointConfig, ConfigError, EvalConfig, LogConfig
    from aninfonce_jax.dgp import conditionals, marginals, products, spaces
    from aninfonce_jax.dgp.conditionals import concentration_values
    from aninfonce_jax.dgp.mixing import InvertibleMLP, draw_mixing
    from aninfonce_jax.dgp.spaces import Box, Product, Real, Sphere
    from aninfonce_jax.dgp.stream import LatentProcess, sample_pairs
    from aninfonce_jax.diagnosis.diagnose import diagnose
    from aninfonce_jax.estimator.estimator import AnInfoNCE
    from aninfonce_jax.estimator.loading import load
    from aninfonce_jax.estimator.model import TrainedModel
    from aninfonce_jax.estimator.saved import ModelError
    from aninfonce_jax.evaluation.worth import factor_worth
    from aninfonce_jax.losses.centring import centring_penalty
    from aninfonce_jax.losses.contrast import aninfonce_loss, infonce_loss, lp_loss
    from aninfonce_jax.losses.given import Bank, Factored, PerAnchor
    from aninfonce_jax.losses.keeping import keeping_penalty
    from aninfonce_jax.losses.own_negatives import own_negatives_loss
    from aninfonce_jax.losses.queue import Queue
    from aninfonce_jax.losses.sharded import over_mesh
    from aninfonce_jax.losses.sigmoid import sigmoid_loss
    from aninfonce_jax.losses.spreading import spreading_penalty
    from aninfonce_jax.models.encoder import FunctionEncoder, LinenEncoder, NNXEncoder, as_encoder
    from aninfonce_jax.objectives.objective import Objective
    from aninfonce_jax.placement import Placement
    from aninfonce_jax.report.diagnosis import write_diagnosis
    from aninfonce_jax.report.report import write_report
    from aninfonce_jax.runs import diagnose_run, evaluate, train
    from aninfonce_jax.scores.concentration import block_orthogonality, concentration_error
    from aninfonce_jax.scores.consistency import run_consistency
    from aninfonce_jax.scores.dci import dci
    from aninfonce_jax.scores.disentanglement import infomec, mig, sap
    from aninfonce_jax.scores.estimates import Estimate
    from aninfonce_jax.scores.explicitness import explicitness
    from aninfonce_jax.scores.factor_scores import factor_scores
    from aninfonce_jax.scores.identifiability import (
        linear_r2,
        linear_r2_per_factor,
        mcc,
        recovered_map,
    )
    from aninfonce_jax.scores.lost import LostTrace, lost_factor_traces
    from aninfonce_jax.scores.spectra import alpha_req, lidar, rankme
    from aninfonce_jax.sources import pairs
    from aninfonce_jax.sources.ensemble import EnsembleSource
    from aninfonce_jax.sources.process import ProcessSource
    from aninfonce_jax.sources.source import Examples, Known, Latents, Source
    from aninfonce_jax.training.experiment import Experiment
    from aninfonce_jax.training.microbatch import microbatched
    from aninfonce_jax.training.optimizer import make_optimizer
    from aninfonce_jax.types import LossOutput, Pairs

__version__ = "0.1.0"

_HOMES = {
    "aninfonce_jax": ("objectives",),
    "aninfonce_jax.config.schema": (
        "CheckpointConfig",
        "ConfigError",
        "EvalConfig",
        "LogConfig",
    ),
    "aninfonce_jax.dgp": (
        "conditionals",
        "marginals",
        "products",
        "spaces",
    ),
    "aninfonce_jax.dgp.conditionals": ("concentration_values",),
    "aninfonce_jax.dgp.mixing": (
        "InvertibleMLP",
        "draw_mixing",
    ),
    "aninfonce_jax.dgp.spaces": (
        "Box",
        "Product",
        "Real",
        "Sphere",
    ),
    "aninfonce_jax.dgp.stream": (
        "LatentProcess",
        "sample_pairs",
    ),
    "aninfonce_jax.estimator.estimator": ("AnInfoNCE",),
    "aninfonce_jax.estimator.loading": ("load",),
    "aninfonce_jax.estimator.model": ("TrainedModel",),
    "aninfonce_jax.estimator.saved": ("ModelError",),
    "aninfonce_jax.diagnosis.diagnose": ("diagnose",),
    "aninfonce_jax.evaluation.worth": ("factor_worth",),
    "aninfonce_jax.losses.centring": ("centring_penalty",),
    "aninfonce_jax.losses.keeping": ("keeping_penalty",),
    "aninfonce_jax.losses.own_negatives": ("own_negatives_loss",),
    "aninfonce_jax.losses.spreading": ("spreading_penalty",),
    "aninfonce_jax.losses.contrast": (
        "aninfonce_loss",
        "infonce_loss",
        "lp_loss",
    ),
    "aninfonce_jax.losses.given": (
        "Bank",
        "Factored",
        "PerAnchor",
    ),
    "aninfonce_jax.losses.queue": ("Queue",),
    "aninfonce_jax.losses.sharded": ("over_mesh",),
    "aninfonce_jax.losses.sigmoid": ("sigmoid_loss",),
    "aninfonce_jax.models.encoder": (
        "FunctionEncoder",
        "LinenEncoder",
        "NNXEncoder",
        "as_encoder",
    ),
    "aninfonce_jax.objectives.objective": ("Objective",),
    "aninfonce_jax.placement": ("Placement",),
    "aninfonce_jax.report.diagnosis": ("write_diagnosis",),
    "aninfonce_jax.report.report": ("write_report",),
    "aninfonce_jax.runs": (
        "diagnose_run",
        "evaluate",
        "train",
    ),
    "aninfonce_jax.scores.consistency": ("run_consistency",),
    "aninfonce_jax.scores.dci": ("dci",),
    "aninfonce_jax.scores.disentanglement": (
        "infomec",
        "mig",
        "sap",
    ),
    "aninfonce_jax.scores.estimates": ("Estimate",),
    "aninfonce_jax.scores.explicitness": ("explicitness",),
    "aninfonce_jax.scores.factor_scores": ("factor_scores",),
    "aninfonce_jax.scores.concentration": (
        "block_orthogonality",
        "concentration_error",
    ),
    "aninfonce_jax.scores.identifiability": (
        "linear_r2",
        "linear_r2_per_factor",
        "mcc",
        "recovered_map",
    ),
    "aninfonce_jax.scores.lost": (
        "LostTrace",
        "lost_factor_traces",
    ),
    "aninfonce_jax.scores.spectra": (
        "alpha_req",
        "lidar",
        "rankme",
    ),
    "aninfonce_jax.sources": ("pairs",),
    "aninfonce_jax.sources.ensemble": ("EnsembleSource",),
    "aninfonce_jax.sources.process": ("ProcessSource",),
    "aninfonce_jax.sources.source": (
        "Examples",
        "Known",
        "Latents",
        "Source",
    ),
    "aninfonce_jax.training.experiment": ("Experiment",),
    "aninfonce_jax.training.microbatch": ("microbatched",),
    "aninfonce_jax.training.optimizer": ("make_optimizer",),
    "aninfonce_jax.types": (
        "LossOutput",
        "Pairs",
    ),
}
# The names that these homes have are modules.
_PACKAGES = ("aninfonce_jax", "aninfonce_jax.dgp", "aninfonce_jax.sources")
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AnInfoNCE",
    "Bank",
    "Box",
    "CheckpointConfig",
    "ConfigError",
    "EnsembleSource",
    "Estimate",
    "EvalConfig",
    "Examples",
    "Experiment",
    "Factored",
    "FunctionEncoder",
    "InvertibleMLP",
    "Known",
    "LatentProcess",
    "Latents",
    "LinenEncoder",
    "LogConfig",
    "LossOutput",
    "LostTrace",
    "ModelError",
    "NNXEncoder",
    "Objective",
    "Pairs",
    "PerAnchor",
    "Placement",
    "ProcessSource",
    "Product",
    "Queue",
    "Real",
    "Source",
    "Sphere",
    "TrainedModel",
    "alpha_req",
    "aninfonce_loss",
    "as_encoder",
    "block_orthogonality",
    "centring_penalty",
    "concentration_error",
    "concentration_values",
    "conditionals",
    "dci",
    "diagnose",
    "diagnose_run",
    "draw_mixing",
    "evaluate",
    "explicitness",
    "factor_scores",
    "factor_worth",
    "infomec",
    "infonce_loss",
    "keeping_penalty",
    "lidar",
    "linear_r2",
    "linear_r2_per_factor",
    "load",
    "lost_factor_traces",
    "lp_loss",
    "make_optimizer",
    "marginals",
    "mcc",
    "microbatched",
    "mig",
    "objectives",
    "over_mesh",
    "own_negatives_loss",
    "pairs",
    "products",
    "rankme",
    "recovered_map",
    "run_consistency",
    "sample_pairs",
    "sap",
    "sigmoid_loss",
    "spaces",
    "spreading_penalty",
    "train",
    "write_diagnosis",
    "write_report",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    # A module of a package becomes its attribute only once it is imported.
    is_module = _HOME[name] in _PACKAGES
    try:
        home = importlib.import_module(f"{_HOME[name]}.{name}" if is_module else _HOME[name])
    except ModuleNotFoundError as error:
        if (error.name or __name__).partition(".")[0] == __name__:
            raise  # a mistake of ours
        raise ModuleNotFoundError(
            f"{__name__}.{name} needs {error.name}, which is not installed: the losses work with "
            "jax alone, this takes an installation without --no-deps",
            name=error.name,
        ) from error
    return home if is_module else getattr(home, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
