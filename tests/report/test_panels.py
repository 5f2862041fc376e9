"""What all figures of a page have in common."""

import pytest
from matplotlib.figure import Figure

from aninfonce_jax.report.figures import RUN_COLORS
from aninfonce_jax.report.panels import Key, _save


@pytest.mark.parametrize("length", [5, 30, 75])
def test_legends_fit_into_the_figure(tmp_path, length):
    figure = Figure(figsize=(11.7, 3.5), layout="constrained")
    figure.subplots()
    keys = [Key(f"{n}" * length, RUN_COLORS[0], "line") for n in range(5)]
    _save(figure, "A title", keys, tmp_path / "figure")
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert box.x0 >= whole.x0
    assert box.x1 <= whole.x1
    assert (tmp_path / "figure.png").exists()
