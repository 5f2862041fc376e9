"""The section of how the outputs are used: collapse, the learned Λ̂, how alike pairs are."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.feature_figures import (
    Profile,
    draw_concentrations,
    draw_rank,
    draw_similarities,
    draw_spread,
)
from aninfonce_jax.report.figures import curve_of
from aninfonce_jax.report.groups import Comparison
from aninfonce_jax.report.page_tables import make_table, score_columns
from aninfonce_jax.report.panels import (
    Chart,
    Drawing,
    Key,
    overview_chart,
    panel_chart,
    run_keys,
)
from aninfonce_jax.report.runs import WorkDir, as_number
from aninfonce_jax.report.section import Section
from aninfonce_jax.report.wording import format_of, list_runs
from aninfonce_jax.scores.registry import (
    CONCENTRATION,
    MISSING,
    OF_EMBEDDINGS,
    OF_LATENTS,
    OVERLAP,
    OVERLAP_TRUE,
    SIMILARITIES,
    SPREAD,
    effective_rank,
    ranked_layers,
    scores_of,
)


def features_section(page: Comparison, folder: AnyPath) -> Section | None:
    """The section of those runs that tell something of their outputs; None if there are none."""
    layers = _layers(page.runs)
    scores = [*map(effective_rank, layers), *scores_of("features")]
    own = page.where(
        lambda run: run.has(SPREAD, *(score.key for score in scores)) or run.has_profile
    )
    if not own.entries:
        return None
    columns = score_columns(scores, own.runs)
    watched = own.where(lambda run: run.has(*(score.key for score in scores)))
    profiled, spread = (
        own.where(lambda run: run.has_profile),
        own.where(lambda run: run.has(SPREAD)),
    )
    charts = []
    if profiled.entries:
        charts.append(_concentration_chart(profiled, folder))
    if layers:
        charts.append(_rank_chart(own, layers, folder))
    if spread.entries:
        charts.append(_spread_chart(spread, folder))
    alike = own.where(lambda run: _similarities(run, OF_EMBEDDINGS).size > 0)
    if alike.entries:
        charts.append(_overlap_chart(alike, folder))
    return Section(
        "features",
        own,
        make_table(watched, columns) if columns else None,
        {chart.name: chart for chart in charts},
        {"learns": not all(run.objective.has_one_concentration for run in profiled.runs)},
    )


def _layers(runs: Sequence[WorkDir]) -> list[str]:
    """The layers whose effective rank some run recorded."""
    keys = (key for run in runs for row in (run.final, *run.evals) for key in row)
    return list(dict.fromkeys(ranked_layers(keys)))


def _rank_chart(own: Comparison, layers: Sequence[str], folder: AnyPath) -> Chart:
    drawings = []
    for layer in layers:
        score = effective_rank(layer)
        watched = own.where(functools.partial(_has, key=score.key))
        curves = [curve_of(entry, score) for entry in watched.entries]
        drawings.append(
            Drawing(
                layer.capitalize(),
                list_runs(watched, functools.partial(format_of, score=score)),
                functools.partial(draw_rank, curves=curves),
            )
        )
    drawn = own.where(lambda run: run.has(*(effective_rank(layer).key for layer in layers)))
    keys = run_keys([curve_of(x, effective_rank(layers[0])) for x in drawn.entries], "line")
    return panel_chart("rank", "Effective rank of the features", keys, drawings, folder)


def _has(run: WorkDir, key: str) -> bool:
    return run.has(key)


def _spread_chart(own: Comparison, folder: AnyPath) -> Chart:
    profiles = [
        Profile(
            entry.label, entry.color, entry.place, np.zeros(0), _sorted(entry.run.final[SPREAD])
        )
        for entry in own.entries
        if SPREAD in entry.run.final
    ]
    return _sorted_chart(
        "spread", "Spread of every output", own, SPREAD, profiles, [], draw_spread, folder
    )


def _overlap_chart(own: Comparison, folder: AnyPath) -> Chart:
    keys = [Key("positives", "positive", "box"), Key("negatives", "negative", "box")]
    drawings = []
    for entry in own.entries:
        learned, true = (_similarities(entry.run, of) for of in (OF_EMBEDDINGS, OF_LATENTS))
        draw = functools.partial(draw_similarities, learned=learned, true=true)
        drawings.append(Drawing(entry.label, _overlap_note(entry.run), draw))
        if true.size and len(keys) == 2:
            keys.append(Key("true latents", "muted", "dash"))
    return panel_chart("overlap", "Similarity of positives and negatives", keys, drawings, folder)


def _similarities(run: WorkDir, of: str) -> np.ndarray:
    """[2, bins] shares of positives and of negatives; no bins where they are not known."""
    found = run.final.get(SIMILARITIES)
    rows = found.get(of) if isinstance(found, Mapping) else None
    if not isinstance(rows, list) or len(rows) != 2 or not all(isinstance(x, list) for x in rows):
        return np.zeros((2, 0))
    numbers = [np.array([as_number(value) for value in row]) for row in rows]
    whole = len(numbers[0]) == len(numbers[1]) and np.isfinite(np.concatenate(numbers)).all()
    return np.stack(numbers) if whole else np.zeros((2, 0))


def _overlap_note(run: WorkDir) -> str:
    note = f"overlap {format_of(run, OVERLAP)}"
    true = format_of(run, OVERLAP_TRUE)
    return note if true == MISSING else f"{note}, of the true latents {true}"


def _concentration_chart(own: Comparison, folder: AnyPath) -> Chart:
    profiles = []
    for entry in own.entries:
        rows = (*entry.run.evals, entry.run.final)
        known = [_sorted(row.get(CONCENTRATION)) for row in rows]
        known = [values for values in known if values.size] or [np.zeros(0)]
        profiles.append(Profile(entry.label, entry.color, entry.place, known[0], known[-1]))
    keys = [Key("at the first evaluation", "muted", "dash")]
    title = "Learned concentration Λ̂ of every output"
    return _sorted_chart(
        "profile", title, own, CONCENTRATION, profiles, keys, draw_concentrations, folder
    )


def _sorted(values: Any) -> np.ndarray:
    """[outputs] the known values from large to small; empty if there are none."""
    numbers = [as_number(value) for value in values] if isinstance(values, list) else []
    return np.array(sorted((value for value in numbers if value >= 0), reverse=True))


def _sorted_chart(
    name: str,
    title: str,
    own: Comparison,
    key: str,
    profiles: Sequence[Profile],
    keys: Sequence[Key],
    draw: Callable[..., None],
    folder: AnyPath,
) -> Chart:
    """One wide panel with a line through the sorted outputs of each run that has values."""
    bound = functools.partial(draw, profiles=profiles)
    lines = run_keys([profile for profile in profiles if profile.last.size], "line")
    note = list_runs(own, functools.partial(_range_note, key=key))
    wide, narrow = ((8.8, 3.2), bound), ((3.9, 3.0), bound)
    return overview_chart(name, title, [*lines, *keys], wide, narrow, folder, note)


def _range_note(run: WorkDir, key: str) -> str:
    values = run.final.get(key)
    known = [as_number(value) for value in values] if isinstance(values, list) else []
    known = [value for value in known if math.isfinite(value)]
    return f"from {max(known):.3g} down to {min(known):.3g}" if known else ""
