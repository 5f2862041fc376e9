"""Cross views, joined negatives, weights, masks, labels and reductions, against enumeration."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from reference_variants import (
    Case,
    anisotropic,
    cubed,
    dot,
    factored,
    per_anchor,
    per_anchor_losses,
    relations,
    sigmoid_losses,
)

import aninfonce_jax as an
from aninfonce_jax.types import Array, LossOutput

BATCH, BANK, DIM, CHUNK = 40, 80, 3, 7
_RNG = np.random.default_rng(0)
LABELS = _RNG.integers(0, 6, BATCH)
BANK_LABELS = _RNG.integers(0, 9, BANK)
WEIGHTS = _RNG.uniform(0, 2, BATCH)
# A whole device of padding among 8, and of every number on others.
MASK = _RNG.uniform(size=BATCH) < 0.7
MASK[:5] = False
BANK_MASK = _RNG.uniform(size=BANK) < 0.6
LEFT_OUT = {"labels": LABELS, "same_label": "left out"}
IN_BANK = {"bank": True, "bank_labels": BANK_LABELS}

CASES = {
    "cross": Case("cross"),
    "cross, masked": Case("cross", mask=MASK, weights=WEIGHTS),
    "weighted": Case("both", weights=WEIGHTS),
    "masked": Case("both", mask=MASK),
    "anchors, masked, mean": Case("anchors", mask=MASK, reduction="logmeanexp"),
    "joined": Case("both", bank=True),
    "anchors, joined, mean": Case("anchors", bank=True, reduction="logmeanexp"),
    "cross, joined, masked": Case("cross", bank=True, mask=MASK, bank_mask=BANK_MASK),
    "bank, mean": Case(None, bank=True, reduction="logmeanexp"),
    "bank, masked": Case(None, bank=True, mask=MASK, bank_mask=BANK_MASK),
    "labels": Case("both", labels=LABELS),
    "labels, masked": Case("both", labels=LABELS, mask=MASK, weights=WEIGHTS),
    "cross, labels": Case("cross", labels=LABELS),
    "anchors, labels, joined": Case("anchors", labels=LABELS, **IN_BANK),
    "left out": Case("both", reduction="logmeanexp", mask=MASK, **LEFT_OUT),
    "left out of bank": Case(
        None, reduction="logmeanexp", bank_mask=BANK_MASK, **LEFT_OUT, **IN_BANK
    ),
    "left out, joined, hard": Case("both", hardness=0.7, **LEFT_OUT, **IN_BANK),
    "cross, hard, masked": Case("cross", hardness=0.7, mask=MASK),
}
PARAMETER = {
    "aninfonce": np.array([0.5, 3.0, 20.0]),
    "infonce": np.array(0.3),
    "lp": np.array(0.6),
    "per anchor": np.exp(_RNG.normal(size=(2 * BATCH, DIM))),
    "factored": _RNG.normal(size=(DIM, 2)),
    "sigmoid": np.array([0.3, -1.5]),
}
SCORES = {
    "aninfonce": anisotropic,
    "infonce": dot,
    "lp": cubed,
    "per anchor": per_anchor,
    "factored": factored,
    "sigmoid": lambda a, b, parameter: a @ b.T / parameter[0] + parameter[1],
}
ON_ONE_DEVICE = ("dense", "chunked", "pallas", "auto")


def arrays(case: Case) -> dict[str, np.ndarray]:
    """Returns what has gradients: views, negatives and weights."""
    rng = np.random.default_rng(1)
    view1 = rng.normal(size=(BATCH, DIM))
    found = {"view1": view1, "view2": view1 + 0.3 * rng.normal(size=view1.shape)}
    if case.bank:
        found["bank"] = rng.normal(size=(BANK, DIM))
    if case.weights is not None:
        found["weights"] = case.weights
    return {name: x.astype(np.float32) for name, x in found.items()}


@functools.cache
def reference(kind: str, name: str) -> Any:
    case = CASES[name]
    positive, negative, weight = relations(case, BATCH, BANK)
    if kind == "sigmoid":
        # A pair is asked about once, by the first view's row.
        positive, negative, weight = (x[:BATCH] for x in (positive, negative, weight))

    def mean(arrays: dict[str, Array], parameter: Array) -> tuple[Array, Array]:
        points = [arrays[x] for x in ("view1", "view2", "bank") if x in arrays]
        x = jnp.concatenate(points)
        x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
        anchors = x[: positive.shape[0]]
        if kind == "per anchor":
            parameter = parameter[: len(anchors)]
        scores = SCORES[kind](anchors, x, parameter)
        if kind == "sigmoid":
            losses = sigmoid_losses(scores, positive, negative)
        else:
            losses = per_anchor_losses(case, scores, positive, negative)
        counts = jnp.asarray(weight)
        if "weights" in arrays:
            real = weight != 0
            counts = jnp.where(real, jnp.tile(arrays["weights"], len(weight) // BATCH), 0)
        losses = jnp.where(weight == 0, 0, losses)
        return jnp.sum(counts * losses) / jnp.sum(counts), losses

    with jax.enable_x64(True):
        wide = {x: jnp.asarray(np.float64(y)) for x, y in arrays(case).items()}
        gradient = jax.jit(jax.value_and_grad(mean, argnums=(0, 1), has_aux=True))
        (loss, losses), grads = gradient(wide, jnp.asarray(PARAMETER[kind]))
        return jax.tree.map(np.asarray, (loss, losses, grads))


def call(kind: str, case: Case, settings: dict[str, Any], devices: int) -> Any:
    """Returns a function of arrays and a parameter."""
    losses = {"infonce": an.infonce_loss, "lp": an.lp_loss, "sigmoid": an.sigmoid_loss}
    loss: Any = losses.get(kind, an.aninfonce_loss)
    if settings["strategy"] in ("gather", "ring"):
        mesh = Mesh(np.array(jax.devices()[:devices]), ("data",), axis_types=(AxisType.Auto,))
        loss = an.over_mesh(loss, mesh, "data")
    told = {"mask": case.mask, "labels": case.labels, "same_label": case.same_label} | settings
    if kind != "sigmoid":
        told |= {"reduction": case.reduction, "normalize": True}
    if case.hardness:
        told["hardness"] = case.hardness
    both = case.name in ("both", "cross")

    def total(arrays: dict[str, Array], parameter: Array) -> tuple[Array, LossOutput]:
        negatives: Any = case.name
        if case.bank:
            bank = arrays["bank"]
            if case.bank_mask is not None:
                # Whatever is not real must reach nothing.
                bank = jnp.where(case.bank_mask[:, None], bank, jnp.nan)
            if case.bank_mask is not None or case.bank_labels is not None:
                bank = an.Bank(bank, case.bank_labels, case.bank_mask)
            negatives = bank if case.name is None else (case.name, bank)
        views = arrays["view1"], arrays["view2"]
        if case.mask is not None:
            views = tuple(jnp.where(case.mask[:, None], x, jnp.nan) for x in views)
        more = told | {"weights": arrays.get("weights")}
        if kind != "sigmoid":
            more["negatives"] = negatives
        if kind == "aninfonce":
            out = loss(*views, parameter, **more)
        elif kind == "per anchor":
            second = parameter[BATCH:] if both else None
            out = loss(*views, an.PerAnchor(parameter[:BATCH], second), **more)
        elif kind == "factored":
            out = loss(*views, concentration=an.Factored(parameter), **more)
        elif kind == "infonce":
            out = loss(*views, temperature=parameter, **more)
        elif kind == "lp":
            out = loss(*views, temperature=parameter, p=3, **more)
        else:
            out = loss(*views, temperature=parameter[0], bias=parameter[1], **more)
        return out.loss, out

    return jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))


def assert_right(kind: str, name: str, strategy: str, devices: int) -> None:
    case = CASES[name]
    run = call(kind, case, {"strategy": strategy, "chunk_size": CHUNK}, devices)
    parameter = jnp.asarray(PARAMETER[kind], jnp.float32)
    (loss, out), grads = run(jax.tree.map(jnp.asarray, arrays(case)), parameter)
    want_loss, want_losses, want_grads = reference(kind, name)
    np.testing.assert_allclose(loss, want_loss, rtol=1e-5)
    np.testing.assert_allclose(np.sort(out.per_anchor), np.sort(want_losses), rtol=1e-5, atol=1e-5)
    assert float(out.metrics["nonfinite"]) == 0
    for got, want in zip(jax.tree.leaves(grads), jax.tree.leaves(want_grads), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * np.max(np.abs(want)))


def every_combination() -> Iterator[Any]:
    quick = {
        ("aninfonce", "cross, joined, masked", "dense", 1),
        ("aninfonce", "labels, masked", "chunked", 1),
        ("aninfonce", "left out, joined, hard", "ring", 8),
        ("infonce", "cross", "pallas", 1),
        ("infonce", "anchors, labels, joined", "gather", 5),
        ("infonce", "left out of bank", "chunked", 1),
        ("lp", "masked", "ring", 2),
        ("lp", "bank, mean", "chunked", 1),
        ("per anchor", "cross, joined, masked", "ring", 5),
        ("per anchor", "bank, mean", "chunked", 1),
        ("factored", "labels, masked", "gather", 2),
        ("factored", "bank, masked", "chunked", 1),
        ("sigmoid", "cross, labels", "ring", 2),
        ("sigmoid", "cross, masked", "chunked", 1),
    }
    places = [(strategy, 1) for strategy in ON_ONE_DEVICE]
    places += list(itertools.product(("gather", "ring"), (2, 5, 8)))
    for kind, name, (strategy, devices) in itertools.product(SCORES, CASES, places):
        case = CASES[name]
        if kind in ("lp", "sigmoid") and (strategy == "pallas" or case.hardness):
            continue
        if kind == "sigmoid" and (case.name != "cross" or case.bank):
            continue
        values = (kind, name, strategy, devices)
        marks = () if values in quick else pytest.mark.slow
        yield pytest.param(*values, id="-".join(map(str, values)), marks=marks)


@pytest.mark.parametrize(("kind", "name", "strategy", "devices"), list(every_combination()))
def test_values_and_gradients(kind: str, name: str, strategy: str, devices: int) -> None:
    assert_right(kind, name, strategy, devices)


# --- Formulas as others write them ---


def _unit(seed: int, rows: int = 6) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(rows, DIM))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _cross_entropy(logits: np.ndarray) -> np.ndarray:
    """Of the class on the diagonal."""
    shifted = logits - logits.max(1, keepdims=True)
    return np.log(np.exp(shifted).sum(1)) - np.diagonal(shifted)


def test_cross_is_the_loss_of_clip() -> None:
    a, b, scale = _unit(0), _unit(1), 1 / 0.07
    # open_clip's ClipLoss: the mean of both cross-entropies with labels 0 .. n - 1.
    logits = scale * a @ b.T
    expected = (_cross_entropy(logits).mean() + _cross_entropy(logits.T).mean()) / 2
    out = an.infonce_loss(np.float32(a), np.float32(b), temperature=1 / scale, negatives="cross")
    np.testing.assert_allclose(out.loss, expected, rtol=1e-5)


def test_sigmoid_is_the_loss_of_siglip() -> None:
    a, b = _unit(0), _unit(1)
    # The paper's pseudo-code, with t = exp(log 10) and bias -10 at the start.
    logits = a @ b.T * 10 - 10
    signs = 2 * np.eye(6) - 1
    expected = np.log1p(np.exp(-signs * logits)).sum() / 6
    np.testing.assert_allclose(an.sigmoid_loss(np.float32(a), np.float32(b)).loss, expected, 1e-5)


def test_labels_give_the_loss_of_supcon() -> None:
    points, labels, tau = _unit(0, 12), np.tile([0, 1, 1, 2, 0, 3], 2), 0.1
    # pytorch-metric-learning's SupConLoss: the mean over positives of log-probabilities among
    # all other points.
    logits = points @ points.T / tau
    others = ~np.eye(12, dtype=bool)
    log_prob = logits - np.log((np.exp(logits) * others).sum(1, keepdims=True))
    same = (labels[:, None] == labels[None]) & others
    expected = -((same * log_prob).sum(1) / same.sum(1)).mean()
    views = np.float32(points[:6]), np.float32(points[6:])
    out = an.infonce_loss(*views, temperature=tau, labels=labels[:6])
    np.testing.assert_allclose(out.loss, expected, rtol=1e-5)


def test_a_queue_gives_the_loss_of_moco() -> None:
    query, key, rows, tau = _unit(0), _unit(1), _unit(2, 8), 0.07
    queue = an.Queue.empty(8, DIM)
    for part in (rows[:5], rows[5:]):
        queue = jax.jit(an.Queue.push)(queue, np.float32(part))
    # MoCo's logits: the positive, then the queue.
    logits = np.concatenate([(query * key).sum(1, keepdims=True), query @ rows.T], axis=1) / tau
    expected = (np.log(np.exp(logits).sum(1)) - logits[:, 0]).mean()
    out = an.infonce_loss(
        np.float32(query), np.float32(key), temperature=tau, negatives=queue.bank()
    )
    np.testing.assert_allclose(out.loss, expected, rtol=1e-5)


# --- Queues ---


def test_a_queue_forgets_the_oldest_and_counts_what_is_filled() -> None:
    queue = an.Queue.empty(5, 1, labelled=True)
    assert not np.any(queue.bank().mask)
    for start in (0, 3, 6):
        values = np.arange(start, start + 3)
        queue = queue.push(np.float32(values)[:, None], values)
        np.testing.assert_array_equal(queue.keys[:, 0], queue.labels)
    assert sorted(np.asarray(queue.labels)) == [4, 5, 6, 7, 8]
    assert np.all(queue.bank().mask)
    assert int(an.Queue.empty(5, 1).push(np.ones((2, 1), np.float32)).bank().mask.sum()) == 2


def test_padding_of_any_kind_changes_nothing() -> None:
    """A batch that is filled up is worth what it was, and its gradient too."""
    view1, view2 = np.float32(_unit(0)), np.float32(_unit(1))
    filled = [np.concatenate([x, np.full((3, DIM), np.inf, np.float32)]) for x in (view1, view2)]
    mask = np.arange(9) < 6

    def loss(x: Array, y: Array, **told: Any) -> Array:
        return an.aninfonce_loss(x, y, 3.0, **told).loss

    whole, gradient = jax.jit(jax.value_and_grad(loss))(view1, view2)
    padded, found = jax.jit(jax.value_and_grad(functools.partial(loss, mask=mask)))(*filled)
    np.testing.assert_allclose(padded, whole, rtol=1e-6)
    np.testing.assert_allclose(found[:6], gradient, atol=1e-6)
    np.testing.assert_array_equal(found[6:], 0)
    empty = jax.jit(functools.partial(loss, mask=np.zeros(6, bool)))(view1, view2)
    assert float(empty) == 0


@pytest.mark.parametrize("reduction", ["logsumexp", "logmeanexp"])
def test_an_anchor_without_negatives_is_worth_nothing(reduction: str) -> None:
    """As at the first step of a queue, and of rows whose label all others of a batch have."""
    view1, view2 = np.float32(_unit(0)), np.float32(_unit(1))
    nothing_yet = an.Queue.empty(8, DIM).bank()
    same = {"labels": np.zeros(6, int), "same_label": "left out"}
    lone = {"mask": np.arange(6) == 3, "weights": np.arange(6.0)}
    for told in (
        {"negatives": nothing_yet},
        {"negatives": "both", **same},
        {"negatives": "cross", **same},
        {"negatives": "cross", **lone},
        {"negatives": ("both", nothing_yet), **lone},
    ):

        def loss(x: Array, told: Any = told) -> Array:
            return an.aninfonce_loss(x, view2, 3.0, reduction=reduction, **told).loss

        value, gradient = jax.value_and_grad(loss)(view1)
        assert float(value) == 0
        np.testing.assert_array_equal(gradient, 0)


def test_keys_beside_a_set_that_leaves_none_are_all_there_is() -> None:
    view1, view2, rows = (np.float32(_unit(i)) for i in range(3))
    same = {"labels": np.zeros(6, int), "same_label": "left out"}

    def loss(x: Array, negatives: Any, told: Any) -> Array:
        return an.infonce_loss(x, view2, negatives=negatives, **told).loss

    whole, gradient = jax.value_and_grad(loss)(view1, rows, {})
    found, own = jax.value_and_grad(loss)(view1, ("anchors", rows), same)
    np.testing.assert_allclose(found, whole, rtol=1e-6)
    np.testing.assert_allclose(own, gradient, atol=1e-6)


# --- What is refused ---

VIEW = np.ones((4, 3), np.float32)
REFUSED = {
    "weights must have one entry for each of the 4 rows, got shape \\(3,\\)": {
        "weights": np.ones(3)
    },
    "weights must be finite and at least 0, got -1.0": {"weights": -np.ones(4)},
    "mask must be True where a row counts .* got dtype int32": {"mask": np.ones(4, np.int32)},
    "labels must be integers, got dtype float32": {"labels": np.ones(4, np.float32)},
    "labels must fit into 32 bits, got 0 to 1099511627776": {"labels": np.array([0, 1, 2, 2**40])},
    "same_label must be one of 'positive', 'left out', got 'no'": {"same_label": "no"},
    "reduction must be one of 'logsumexp', 'logmeanexp', got 'sum'": {"reduction": "sum"},
    "over negatives alone, and same_label='positive'": {
        "labels": np.arange(4),
        "reduction": "logmeanexp",
    },
    "negatives have labels, and the views have none": {"negatives": an.Bank(VIEW, np.arange(4))},
    "a pair of a name and an array or Bank, got": {"negatives": ("all", VIEW)},
    "concentration must have a row for each of the 8 anchors, got 4": {
        "concentration": an.PerAnchor(VIEW)
    },
    "factor must be L of .* shape \\[3, rank\\], got shape \\(4, 3\\)": {
        "concentration": an.Factored(VIEW)
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused_in_a_line(message: str) -> None:
    told = {"concentration": 1.0} | REFUSED[message]
    with pytest.raises((TypeError, ValueError), match=message) as error:
        an.aninfonce_loss(VIEW, VIEW, **told)
    assert "\n" not in str(error.value)


def test_kernels_are_refused_where_there_are_none() -> None:
    for loss in (an.sigmoid_loss, functools.partial(an.lp_loss, p=3)):
        with pytest.raises(ValueError, match="strategy='pallas' computes log-sum-exps of products"):
            loss(VIEW, VIEW, strategy="pallas")
