"""Every objective as reports speak of it: its names, what it is, and how its runs compare.

The one home of these for the report, the tables and the sweeps. It knows no class, so that a
report can be made from files alone; the files name a kind of the config, or the class of an
objective that was made in code.
"""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class ObjectiveWords:
    """What a report must know of an objective.

    Attributes:
      kind: what a config calls it.
      made_by: its class in `an.objectives`.
      label: what the page calls it.
      meaning: its entry under "How to read this page".
      meaning_for_latents: a sentence more for runs whose latents are known.
      exception: a sentence on what its encoder was shown or told, if not pairs of views alone.
      finds_positives: whether its loss tells how well a positive is found among as many others, so
        that losses of different objectives share an axis.
      has_one_concentration: whether one Λ̂, or temperature, holds for all outputs.
      is_told_latents: whether it learns from the true latents: an upper bound, no rival.
      is_usual: whether others are compared with it.
    """

    kind: str
    made_by: str
    label: str
    meaning: str = ""
    meaning_for_latents: str = ""
    exception: str = ""
    finds_positives: bool = False
    has_one_concentration: bool = False
    is_told_latents: bool = False
    is_usual: bool = False


# An objective's colour in figures goes by its place here.
OBJECTIVES = (
    ObjectiveWords(
        "aninfonce",
        "AnInfoNCE",
        "AnInfoNCE",
        "The objective that learns one Λ for every output, so that outputs may keep what changes "
        "between views.",
        "In theory it recovers every factor, and the learned Λ end at the true ones.",
        finds_positives=True,
    ),
    ObjectiveWords(
        "infonce",
        "InfoNCE",
        "InfoNCE",
        "The usual objective: one Λ for everything, as if all changed alike between views, so that "
        "whatever changes is best forgotten.",
        finds_positives=True,
        has_one_concentration=True,
        is_usual=True,
    ),
    ObjectiveWords(
        "supervised",
        "Supervised",
        "Supervised",
        "Training with the true factors as targets, which the others never see: an upper bound.",
        exception="A supervised encoder was told the true factors as well.",
        is_told_latents=True,
    ),
    ObjectiveWords(
        "lp",
        "LpLoss",
        "Lp contrast",
        "A contrastive objective that compares views by an Lp distance, the same for all outputs.",
    ),
    ObjectiveWords(
        "aninfonce_no_l2",
        "AnInfoNCE",
        "AnInfoNCE, no ℓ2 norm",
        "AnInfoNCE without scaling the output to length 1.",
        finds_positives=True,
    ),
    ObjectiveWords(
        "elbo",
        "Elbo",
        "VAE",
        "A variational autoencoder. Its loss is how surprised it is by an image, in nats: how "
        "badly it draws the image again, and how much it had to be told to do so.",
        exception="A VAE is another matter: it was shown single images, and learned to describe "
        "each by a few numbers from which it can be drawn again.",
    ),
    ObjectiveWords(
        "ensemble",
        "Ensemble",
        "Ensemble",
        "Several objectives that train one encoder together, each on pairs of its own. Its loss is "
        "their weighted sum.",
    ),
    ObjectiveWords(
        "tricl",
        "TriCL",
        "TriCL",
        "A contrastive objective that learns how important every output is, and keeps outputs "
        "uncorrelated.",
    ),
    ObjectiveWords(
        "vicreg",
        "VICReg",
        "VICReg",
        "An objective without negatives: it makes the views of an example alike, and keeps outputs "
        "spread and uncorrelated.",
    ),
    ObjectiveWords(
        "sigreg",
        "SIGReg",
        "LeJEPA",
        "An objective without negatives: it makes the views of an example alike, and keeps outputs "
        "normally distributed.",
    ),
    ObjectiveWords(
        "augself",
        "AugSelf",
        "AugSelf",
        "InfoNCE with a second task: to tell from the output how the views were altered.",
        exception="AugSelf was also told how each view had been altered.",
        has_one_concentration=True,
    ),
    ObjectiveWords(
        "diet",
        "Diet",
        "DIET",
        "Every example is a class of its own, and the encoder learns to tell them apart. Its loss "
        "has no meaning for examples that it was not trained on.",
        exception="DIET was shown single views, and learned to tell which example each of them "
        "shows.",
    ),
    ObjectiveWords(
        "hard_negatives",
        "HardNegatives",
        "AnInfoNCE, hard negatives",
        "AnInfoNCE with negatives that were drawn near each anchor.",
    ),
)
_UNKNOWN = "unknown objective"


def objective(name: Any) -> ObjectiveWords:
    """The objective that a run's files name by its kind or its class.

    One that is not listed, such as a user's own, goes by the name that it has. A class that
    several kinds have is the first of them.
    """
    for own in OBJECTIVES:
        if name == own.kind:
            return own
    for own in OBJECTIVES:
        if name == own.made_by:
            return own
    label = name if isinstance(name, str) else _UNKNOWN
    return ObjectiveWords(label, label, label)
