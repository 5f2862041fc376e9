"""Figures that are written and not drawn, for tests that need a thousand reports.

Rendering takes most of the time of a report. What stands in for an image here is a digest of
what would be in it: the same data still give the same files, and other data others.
"""

import contextlib
import hashlib
import io

import pytest
from matplotlib.figure import Figure


def _contents(figure):
    for axes in figure.axes:
        yield from (axes.get_title(), axes.get_xlim(), axes.get_ylim())
        for line in axes.lines:
            yield line.get_xydata().tolist()
        for patch in axes.patches:
            yield patch.get_path().transformed(patch.get_patch_transform()).vertices.tolist()
        for collection in axes.collections:
            yield collection.get_offsets().tolist()
        for text in axes.texts:
            yield text.get_text()


def _write_digest(figure, target, format, **_):
    digest = hashlib.sha256(repr(list(_contents(figure))).encode()).hexdigest()
    svg = f'<svg viewBox="0 0 1 1"><defs></defs><text>{digest}</text></svg>'
    target.write(svg if isinstance(target, io.StringIO) else svg.encode())


@contextlib.contextmanager
def sketched_figures():
    """Lets every figure of this process be written as a digest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", _write_digest)
        patch.setattr(Figure, "draw_without_rendering", lambda figure: None)
        yield
