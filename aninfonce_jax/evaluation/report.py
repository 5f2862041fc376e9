"""One self-contained page from the files of one or several work directories.

Whatever is missing there is shown as missing; the same files always give the same page.
"""

import importlib.resources
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
import markupsafe
import numpy as np

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import warn
from aninfonce_jax.evaluation.charts import draw_charts
from aninfonce_jax.evaluation.figures import COLORS, RUN_COLORS, Run
from aninfonce_jax.evaluation.groups import (
    OBJECTIVE_NAMES,
    differing,
    group_runs,
    run_labels,
    setting,
    unequal_settings,
)
from aninfonce_jax.evaluation.image_charts import draw_image_charts, image_run
from aninfonce_jax.evaluation.image_report import image_context
from aninfonce_jax.evaluation.page_tables import Cell, Row, rows_of, score_column
from aninfonce_jax.evaluation.panels import Chart
from aninfonce_jax.evaluation.registry import MISSING, PLAIN, groups, scores_of
from aninfonce_jax.evaluation.summary import join_words, percent, summarize
from aninfonce_jax.evaluation.wording import format_duration, format_score, format_steps
from aninfonce_jax.evaluation.workdir import (
    RECOVERED_R2,
    ReportError,
    WorkDir,
    as_number,
    as_vector,
    read_workdir,
)
from aninfonce_jax.files import write_bytes

__all__ = ["ReportError", "write_report"]

_OBJECTIVE_COLORS = dict(zip(OBJECTIVE_NAMES, RUN_COLORS, strict=False))


def write_report(workdirs: Sequence[pathlib.Path], output: pathlib.Path) -> pathlib.Path:
    """Writes `report.html` and its figures as PNG and SVG.

    Args:
      workdirs: the runs to compare, in the order to show them; one given twice counts once.
      output: the folder to write to, made if need be.

    Returns:
      The path of the page, which needs no other file.

    Raises:
      ReportError: if a folder is no work directory or holds no evaluation yet, or if runs on
        images are mixed with runs on synthetic data.
      WorkdirError: if a folder is damaged, or another process writes a report to `output`.
      OSError: if `output` can't be written.
    """
    if not workdirs:
        raise ReportError("expected at least one work directory to report on, got none")
    unique = {path.resolve(): path for path in workdirs}
    runs = [read_workdir(path) for path in unique.values()]
    _check_one_kind(runs)
    workdir_lib.check_entries(output)
    with workdir_lib.hold_report(output):
        page = _write(runs, output)
    for problem in (problem for run in runs for problem in run.problems):
        warn(problem)
    return page


def _write(runs: Sequence[WorkDir], output: pathlib.Path) -> pathlib.Path:
    labels = run_labels(runs)
    folder = output / workdir_lib.FIGURES_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    colors = _colors(runs)
    if runs[0].dataset:
        drawn = list(map(image_run, runs, labels, colors))
        charts = draw_image_charts(drawn, folder)
        page = _render("image_report_template.html", runs, labels, charts, image_context)
    else:
        charts = draw_charts(list(map(_arrays, runs, labels, colors)), folder)
        page = _render("report_template.html", runs, labels, charts, _context)
    return write_bytes(output / workdir_lib.REPORT_FILE, page.encode())


def _check_one_kind(runs: Sequence[WorkDir]) -> None:
    images = [run.name for run in runs if run.dataset]
    synthetic = [run.name for run in runs if not run.dataset]
    if images and synthetic:
        raise ReportError(
            f"a report covers image runs or synthetic runs, not both: got {join_words(images)} on "
            f"images and {join_words(synthetic)} on synthetic data; report on them one by one"
        )


def _arrays(run: WorkDir, label: str, color: str) -> Run:
    """What the figures need of a work directory."""
    dim = run.dim
    rows = run.final.get("map")
    square = rows if isinstance(rows, list) and len(rows) == dim else [None] * dim
    floors = [as_number(row.get("loss_floor")) for row in (*run.evals, run.final)]
    contrastive = run.kind in ("aninfonce", "infonce")
    return Run(
        label=label,
        color=color,
        loss_family="contrastive" if contrastive else run.kind,
        train_steps=np.array([as_number(row.get("step")) for row in run.train]),
        train_loss=np.array([as_number(row.get("loss")) for row in run.train]),
        eval_steps=np.array([as_number(row.get("step")) for row in run.evals]),
        eval_loss=np.array([as_number(row.get("loss")) for row in run.evals]),
        floor=next((floor for floor in reversed(floors) if math.isfinite(floor)), math.nan),
        r2=np.stack([as_vector(row.get("r2_per_factor"), dim) for row in run.evals]),
        r2_final=run.r2_final,
        r2_intervals=run.factor_intervals,
        concentration=np.stack([as_vector(row.get("concentration"), dim) for row in run.evals]),
        concentration_true=as_vector(run.final.get("concentration_true"), dim),
        map=np.stack([as_vector(row, dim) for row in square]),
    )


def _colors(runs: Sequence[WorkDir]) -> list[str]:
    """An objective keeps its colour from report to report, unless it appears twice."""
    kinds = [run.kind for run in runs]
    if len(set(kinds)) == len(kinds) and all(kind in _OBJECTIVE_COLORS for kind in kinds):
        return [_OBJECTIVE_COLORS[kind] for kind in kinds]
    return [RUN_COLORS[index % len(RUN_COLORS)] for index in range(len(runs))]


def _table(runs: Sequence[WorkDir], labels: Sequence[str]) -> list[Row]:
    columns = [score_column(score) for score in scores_of("recovery")]
    return rows_of(
        runs,
        labels,
        columns,
        lambda run: [Cell(format_steps(run)), Cell(format_duration(run.number("seconds")))],
    )


def _notes(runs: Sequence[WorkDir]) -> dict[str, list[str]]:
    """For each chart, what each run's panel says in numbers."""
    notes = [_run_notes(run) for run in runs]
    return {name: [note[name] for note in notes] for name in notes[0]}


def _run_notes(run: WorkDir) -> dict[str, str]:
    energy, deviation = run.number("block_energy"), run.concentration_deviation
    by_group = f"content {_score_text(run, 'r2_content')}, style {_score_text(run, 'r2_style')}"
    parted = math.isfinite(run.number("r2_content") + run.number("r2_style"))
    return {
        "loss": f"final {_score_text(run, 'loss')}, floor {_score_text(run, 'loss_floor')}",
        "r2": by_group if parted else f"mean {_score_text(run, 'r2')}",
        "concentration": f"largest error {100 * deviation:.1f}%"
        if math.isfinite(deviation)
        else "",
        "map": f"{percent(energy)} inside the squares" if math.isfinite(energy) else "",
    }


def _score_text(run: WorkDir, key: str) -> str:
    return PLAIN.both(run.number(key), run.interval(key))


def _settings(runs: Sequence[WorkDir]) -> list[tuple[str, bool, list[str]]]:
    """Rows of the settings table: name, whether the runs differ in it, a value per run."""
    unequal = set(differing(runs))
    keys = dict.fromkeys(key for run in runs for key in run.config)
    rows = [(key, key in unequal, [setting(run, key) for run in runs]) for key in keys]
    parameters = [run.number("parameters") for run in runs]
    counts = [f"{count:,.0f}" if math.isfinite(count) else MISSING for count in parameters]
    return [
        ("work directory", False, [run.name for run in runs]),
        ("config hash", False, [run.config_hash or MISSING for run in runs]),
        ("trained parameters", False, counts),
        *rows,
    ]


def _environment() -> jinja2.Environment:
    folder = importlib.resources.files(__package__)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = markupsafe.Markup
    return environment


def _render(
    template: str,
    runs: Sequence[WorkDir],
    labels: Sequence[str],
    charts: Mapping[str, Chart],
    context: Callable[[Sequence[WorkDir], Sequence[str]], Mapping[str, Any]],
) -> str:
    names = list(dict.fromkeys(str(run.config.get("name", run.name)) for run in runs))
    return (
        _environment()
        .get_template(template)
        .render(
            title=join_words(names),
            kinds={run.kind for run in runs},
            labels=labels,
            warnings=[
                (label, run.warnings)
                for run, label in zip(runs, labels, strict=True)
                if run.warnings
            ],
            has_seeds=len(group_runs(runs)) < len(runs),
            unequal=unequal_settings(runs),
            problems=[problem for run in runs for problem in run.problems],
            charts=charts,
            settings=_settings(runs),
            runs=runs,
            colors=COLORS,
            **context(runs, labels),
        )
    )


def _context(runs: Sequence[WorkDir], labels: Sequence[str]) -> dict[str, Any]:
    """The variables of the template that only the page of synthetic runs has."""
    bars = "; ".join(
        f"{label}: {', '.join(format_score(value) for value in run.r2_final)}"
        for run, label in zip(runs, labels, strict=True)
    )
    columns = [(score.group, score.label) for score in scores_of("recovery")]
    columns += [("training", "steps"), ("training", "time")]
    return {
        "dims": " or ".join(str(dim) for dim in sorted({run.dim for run in runs})),
        "summary": summarize(runs),
        "recovered_r2": RECOVERED_R2,
        "groups": groups(columns),
        "columns": [label for _, label in columns],
        "table": _table(runs, labels),
        "notes": _notes(runs),
        "bars": bars,
    }
