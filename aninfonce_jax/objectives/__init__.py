"""What is minimised."""

from aninfonce_jax.objectives.augself import AugSelf
from aninfonce_jax.objectives.contrastive import AnInfoNCE, InfoNCE, LpLoss
from aninfonce_jax.objectives.diet import Diet
from aninfonce_jax.objectives.elbo import Elbo
from aninfonce_jax.objectives.ensemble import Ensemble
from aninfonce_jax.objectives.hard_negatives import HardNegatives
from aninfonce_jax.objectives.objective import Objective
from aninfonce_jax.objectives.sigreg import SIGReg
from aninfonce_jax.objectives.supervised import Supervised
from aninfonce_jax.objectives.tricl import TriCL
from aninfonce_jax.objectives.vicreg import VICReg

__all__ = [
    "AnInfoNCE",
    "AugSelf",
    "Diet",
    "Elbo",
    "Ensemble",
    "HardNegatives",
    "InfoNCE",
    "LpLoss",
    "Objective",
    "SIGReg",
    "Supervised",
    "TriCL",
    "VICReg",
]
