"""One self-contained page from the files of one or several work directories.

Whatever is missing there is shown as missing; the same files always give the same page.
"""

import math
import os
from collections.abc import Callable, Sequence

import matplotlib

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import warn
from aninfonce_jax.files import write_bytes
from aninfonce_jax.remote import AnyPath, RemotePath
from aninfonce_jax.report.ensemble import ensemble_section
from aninfonce_jax.report.features import features_section
from aninfonce_jax.report.figures import COLORS, RUN_COLORS
from aninfonce_jax.report.groups import (
    Comparison,
    compare,
    differing,
    repeated,
    setting,
    unequal_settings,
)
from aninfonce_jax.report.panels import STYLE
from aninfonce_jax.report.readouts import readouts_section
from aninfonce_jax.report.recovery import recovery_section
from aninfonce_jax.report.runs import ReportError, WorkDir, read_workdir
from aninfonce_jax.report.samples import samples_section
from aninfonce_jax.report.section import Section
from aninfonce_jax.report.summary import summarize
from aninfonce_jax.report.templates import templates
from aninfonce_jax.report.training import training_section
from aninfonce_jax.report.views import views_section
from aninfonce_jax.report.wording import join_words
from aninfonce_jax.scores.objectives import OBJECTIVES, ObjectiveWords
from aninfonce_jax.scores.registry import MISSING, PARAMETERS

__all__ = ["ReportError", "write_report"]

# In the order of the page.
_SECTIONS: Sequence[Callable[[Comparison, AnyPath], Section | None]] = (
    recovery_section,
    ensemble_section,
    readouts_section,
    views_section,
    samples_section,
    training_section,
    features_section,
)
Where = str | os.PathLike[str] | RemotePath

_OBJECTIVE_COLORS = {own.kind: color for own, color in zip(OBJECTIVES, RUN_COLORS, strict=False)}


def write_report(
    workdirs: Where | Sequence[Where],
    output: Where,
) -> AnyPath:
    """Writes `report.html` and its figures as PNG and SVG.

    Args:
      workdirs: the run, or those to compare, in the order to show them; one given twice counts
        once.
      output: the folder to write to, made if need be.

    Returns:
      The path of the page, which needs no other file.

    Raises:
      ReportError: if a folder is no work directory or holds no evaluation yet.
      WorkdirError: if a folder is damaged, or another process writes a report to `output`.

    Example:
      >>> positives = an.conditionals.Anisotropic([25.0, 25.0, 5.0])
      >>> process = an.LatentProcess(an.Sphere(3), an.marginals.Uniform(), positives, jnp.tanh)
      >>> import flax.linen as nn, optax
      >>> experiment = an.Experiment(
      ...     an.ProcessSource(process),
      ...     an.as_encoder(nn.Dense(3)),
      ...     an.objectives.AnInfoNCE(),
      ...     optax.adam(1e-3),
      ...     steps=2,
      ...     batch_size=16,
      ... )
      >>> result = an.train(experiment, "runs/one", progress="off")
      >>> an.write_report("runs/one", "runs/one").name
      'report.html'
    """
    if not workdirs:
        raise ReportError("expected at least one work directory to report on, got none")
    if isinstance(workdirs, (str, os.PathLike, RemotePath)):
        workdirs = [workdirs]
    output = workdir_lib.locate(output)
    unique = {path.resolve(): path for path in map(workdir_lib.locate, workdirs)}
    runs = [read_workdir(path) for path in unique.values()]
    workdir_lib.check_entries(output)
    with workdir_lib.hold_report(output):
        page = _write(runs, output)
    for problem in _problems(runs):
        warn(problem)
    return page


def _write(runs: Sequence[WorkDir], output: AnyPath) -> AnyPath:
    folder = output / workdir_lib.FIGURES_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    page = compare(runs, _colors(runs))
    with matplotlib.rc_context(STYLE):
        made = [make(page, folder) for make in _SECTIONS]
    sections = [section for section in made if section is not None]
    return write_bytes(output / workdir_lib.REPORT_FILE, _render(page, sections).encode())


def _problems(runs: Sequence[WorkDir]) -> list[str]:
    """What is wrong with the files of the runs, and with reporting them side by side."""
    return [*(problem for run in runs for problem in run.problems), *repeated(runs)]


def _colors(runs: Sequence[WorkDir]) -> list[str]:
    """An objective keeps its colour from report to report, unless it appears twice."""
    kinds = [run.objective.kind for run in runs]
    if len(set(kinds)) == len(kinds) and all(kind in _OBJECTIVE_COLORS for kind in kinds):
        return [_OBJECTIVE_COLORS[kind] for kind in kinds]
    return [RUN_COLORS[index % len(RUN_COLORS)] for index in range(len(runs))]


def _settings(runs: Sequence[WorkDir]) -> list[tuple[str, bool, list[str]]]:
    """Rows of the settings table: name, whether the runs differ in it, a value per run."""
    unequal = set(differing(runs))
    keys = dict.fromkeys(key for run in runs for key in run.config)
    rows = [(key, key in unequal, [setting(run, key) for run in runs]) for key in keys]
    parameters = [run.number(PARAMETERS) for run in runs]
    counts = [f"{count:,.0f}" if math.isfinite(count) else MISSING for count in parameters]
    return [
        ("work directory", False, [run.name for run in runs]),
        ("config hash", False, [run.config_hash or MISSING for run in runs]),
        ("trained parameters", False, counts),
        *rows,
    ]


def _render(page: Comparison, sections: Sequence[Section]) -> str:
    runs = page.runs
    names = list(dict.fromkeys(str(run.config.get("name", run.name)) for run in runs))
    charts = [name for section in sections for name in section.charts]
    return (
        templates()
        .get_template("report.html")
        .render(
            title=join_words(names),
            objectives=_objectives(runs),
            page=page,
            labels=page.labels,
            sources=list(dict.fromkeys(run.source for run in runs)),
            warnings=[
                (entry.label, entry.run.warnings) for entry in page.entries if entry.run.warnings
            ],
            summary=summarize(page),
            sections={section.name: section for section in sections},
            numbers={name: number for number, name in enumerate(charts, start=1)},
            has_seeds=len(page.groups) < len(runs),
            unequal=_unequal(page),
            problems=_problems(runs),
            settings=_settings(runs),
            runs=runs,
            colors=COLORS,
        )
    )


def _objectives(runs: Sequence[WorkDir]) -> list[ObjectiveWords]:
    """What some run minimised: what the page knows in its own order, then the others."""
    found = list(dict.fromkeys(run.objective for run in runs))
    known = [own for own in OBJECTIVES if own in found]
    return [*known, *(own for own in found if own not in known)]


def _unequal(page: Comparison) -> list[str]:
    """Settings in which comparable runs differ besides objective and seed."""
    found = (key for family in page.families for key in unequal_settings(family.runs))
    return list(dict.fromkeys(found))
