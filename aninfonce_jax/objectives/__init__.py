"""What is minimised."""

from aninfonce_jax.objectives.contrastive import AnInfoNCE, InfoNCE, LpLoss
from aninfonce_jax.objectives.objective import Objective
from aninfonce_jax.objectives.supervised import Supervised

__all__ = ["AnInfoNCE", "InfoNCE", "LpLoss", "Objective", "Supervised"]
