"""Writes gallery.md and its thumbnails, from figures that runs have drawn.

    python -m aninfonce_jax.main --config.train.steps=400 --config.eval.every=100 \
        --workdir=runs/gallery
    python -m aninfonce_jax.main --mode=report --workdir=runs/gallery/aninfonce
    python -m aninfonce_jax.main --mode=diagnose --workdir=runs/gallery/aninfonce
    python docs/make_gallery.py runs/gallery/aninfonce

Figures of longer runs are in docs/images already, each beside its command on another page.
"""

import sys
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).resolve().parent
WIDTH, COLOURS = 480, 128
HEAD = """# Gallery

Figures of reports and diagnoses. Each leads to the page that explains it, or has its command there.

````{container} gallery
"""
TAIL = """````

The other figures are of a quickstart of 400 steps, seed 0, which has not converged, and of its
diagnosis; `docs/make_gallery.py` has the commands, and makes this page.
"""
# Figure, the page that it leads to, caption. Those of docs/images first, then those of the run.
LONG = (
    ("factors", "synthetic", "R² of every factor: what AnInfoNCE keeps and InfoNCE loses"),
    ("cifar10_cpu_readouts", "results", "What a probe can tell of each augmentation, CIFAR-10"),
    ("cifar10_cpu_strengths", "results", "How strongly it was applied, CIFAR-10"),
    ("cifar10_cpu_accuracy", "results", "Class accuracy over training, CIFAR-10"),
)
SHORT = (
    ("loss", "learn/report", "Loss over training, and its floor"),
    ("concentration", "learn/concentration", "Λ̂ over training, and the true Λ"),
    ("map", "learn/report", "The map from true to recovered factors"),
    ("r2", "learn/report", "R² of every factor over training"),
    ("diagnosis-effects", "diagnose", "Every check's effect, beside what does no harm"),
    ("diagnosis-uniform", "diagnose", "Are anchors uniform on the sphere?"),
    ("diagnosis-negatives", "learn/negatives", "What negatives assure"),
    ("diagnosis-learned-lambda", "diagnose", "Is Λ̂ that of the pairs?"),
)


def thumbnail(figure: Path) -> str:
    """Writes a small copy of a figure; returns its path for the page."""
    folder = DOCS / "images" / "gallery"
    folder.mkdir(exist_ok=True)
    image = Image.open(figure).convert("RGB")
    image = image.resize(
        (WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS
    )
    image.quantize(COLOURS).save(folder / figure.name, optimize=True)
    return f"images/gallery/{figure.name}"


def entry(figure: Path, page: str, caption: str) -> str:
    """Returns a figure of the page."""
    target = f":target: {page}.html\n:alt: {caption}\n"
    return f"```{{figure}} {thumbnail(figure)}\n{target}\n{caption}\n```\n"


def main(workdir: Path) -> None:
    """Makes the page from a finished run's figures."""
    entries = [entry(DOCS / "images" / f"{name}.png", *rest) for name, *rest in LONG]
    entries += [entry(workdir / "figures" / f"{name}.png", *rest) for name, *rest in SHORT]
    (DOCS / "gallery.md").write_text(HEAD + "\n".join(entries) + TAIL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
