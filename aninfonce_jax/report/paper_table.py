"""The paper's own readouts (its Table 1), as context to those of a run."""

import dataclasses
import re

from aninfonce_jax.report.table import ReadoutRow
from aninfonce_jax.scores.objectives import objective
from aninfonce_jax.scores.registry import AVERAGE, AVERAGED, CLASSES

_COLUMNS = (CLASSES, *AVERAGED, AVERAGE)
_BACKBONE, _PROJECTOR = "backbone", "projector"


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """What the paper reports for one data set.

    Attributes:
      data: what the paper calls the data set.
      training: the network and how long it was trained.
      rows: like those of `table.table_rows`; crop and blur were not read out.
    """

    data: str
    training: str
    rows: list[ReadoutRow]


def _rows(*lines: tuple[str, str, tuple[float, ...]]) -> list[ReadoutRow]:
    return [
        ReadoutRow(objective(kind).label, layer, dict(zip(_COLUMNS, numbers, strict=True)))
        for layer, kind, numbers in lines
    ]


_CIFAR10 = PaperTable(
    "CIFAR-10",
    "a ResNet-18 for 1,000 epochs, 7 hours on an A100 GPU",
    _rows(
        (_BACKBONE, "infonce", (90.9, 56.1, 59.3, 62.6, 55.4, 55.1, 57.7)),
        (_BACKBONE, "aninfonce", (88.4, 80.1, 93.4, 91.1, 65.5, 72.3, 80.5)),
        (_BACKBONE, "aninfonce_no_l2", (83.2, 96.2, 98.0, 96.6, 76.8, 88.4, 91.2)),
        (_PROJECTOR, "infonce", (89.8, 52.0, 52.0, 52.0, 51.8, 51.0, 51.8)),
        (_PROJECTOR, "aninfonce", (85.4, 71.4, 71.4, 77.1, 59.7, 65.5, 69.0)),
        (_PROJECTOR, "aninfonce_no_l2", (79.1, 65.5, 65.5, 87.6, 70.5, 83.8, 74.6)),
    ),
)
_IMAGENET = PaperTable(
    "ImageNet",
    "a ResNet-50 for 100 epochs, 15 hours on eight A100 GPUs",
    _rows(
        (_BACKBONE, "infonce", (68.2, 98.7, 71.6, 72.5, 68.0, 61.2, 74.4)),
        (_BACKBONE, "aninfonce", (59.0, 98.8, 81.5, 82.3, 71.6, 62.5, 79.3)),
        (_PROJECTOR, "infonce", (57.7, 58.6, 51.9, 51.9, 51.5, 51.1, 53.0)),
        (_PROJECTOR, "aninfonce", (26.7, 71.0, 55.2, 54.1, 52.6, 52.7, 57.1)),
    ),
)
# Names as data sets are opened by, without "tfds:" and version. A subset such as Imagenette
# is another task and must not match.
_NAMES = {
    r"cifar[-_]?10": _CIFAR10,
    r"imagenet([-_]?(2012|1k|ilsvrc2012))?": _IMAGENET,
}


def paper_table(dataset: str) -> PaperTable | None:
    """The paper's numbers for a data set named as the config does; None if it has none."""
    name = dataset.strip().lower().removeprefix("tfds:").split(":")[0]
    matches = (table for pattern, table in _NAMES.items() if re.fullmatch(pattern, name))
    return next(matches, None)
