"""The probes against scikit-learn, cases with a known answer, and bad input."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import linear_model, metrics

from aninfonce_jax.scores import labelled, logistic, probes
from aninfonce_jax.scores.probes import Labelled

# One shape for most tests, which then share what is compiled.
CLASSES, DIM = 3, 8
SIZES = 240, 120, 300
PENALTIES = np.array(probes.CLASS_PENALTIES)[::-1]


def split(features, labels, sizes=SIZES):
    ends = np.cumsum(sizes)
    return [
        Labelled(features[end - size : end], labels[end - size : end])
        for size, end in zip(sizes, ends, strict=True)
    ]


def clusters(separation, seed=0, shares=None):
    """Classes around different means, correlated features, in balance unless told."""
    rng = np.random.default_rng(seed)
    count = sum(SIZES)
    labels = rng.choice(CLASSES, count, p=shares) if shares else np.arange(count) % CLASSES
    means = separation * rng.normal(size=(CLASSES, DIM))
    return (means[labels] + rng.normal(size=(count, DIM))) @ rng.normal(size=(DIM, DIM)), labels


def standardised(features, of):
    return (features - of.mean(axis=0)) / of.std(axis=0)


# --- Classes ---


@pytest.mark.parametrize("shares", [None, (0.7, 0.2, 0.1)], ids=["balanced", "unbalanced"])
def test_logistic_path_as_scikit_learn(shares):
    features, labels = clusters(0.5, shares=shares)
    x, y = standardised(features[: SIZES[0]], features[: SIZES[0]]), labels[: SIZES[0]]
    weights, offsets, converged = logistic.logistic_path(x, y, PENALTIES, classes=CLASSES)
    assert np.all(converged)
    for i, penalty in enumerate(PENALTIES):
        reference = linear_model.LogisticRegression(
            C=1 / (penalty * len(x)), class_weight="balanced", tol=1e-8, max_iter=10_000
        ).fit(x, y)
        np.testing.assert_allclose(weights[i], reference.coef_.T, atol=2e-3)
        # A constant added to all of them changes nothing.
        offset = offsets[i] - offsets[i].mean()
        np.testing.assert_allclose(offset, reference.intercept_, atol=2e-3)


def test_class_accuracy_as_scikit_learn():
    features, labels = clusters(0.5, shares=(0.7, 0.2, 0.1))
    train, validation, test = split(features, labels)
    probe = probes.class_accuracy(train, validation, test, CLASSES)
    scores = {}
    for penalty in PENALTIES:
        reference = linear_model.LogisticRegression(
            C=1 / (penalty * SIZES[0]), class_weight="balanced", tol=1e-8, max_iter=10_000
        ).fit(standardised(train.features, train.features), train.labels)
        scores[penalty] = [
            metrics.balanced_accuracy_score(
                part.labels, reference.predict(standardised(part.features, train.features))
            )
            for part in (validation, test)
        ]
    assert probe.validation_accuracy == pytest.approx(max(v for v, _ in scores.values()), abs=0.01)
    assert probe.accuracy == pytest.approx(scores[probe.penalty][1], abs=0.01)
    assert probe.converged


def test_separable_classes_are_read_without_error():
    probe = probes.class_accuracy(*split(*clusters(8.0)), CLASSES)
    assert probe.accuracy == 1.0
    assert probe.validation_accuracy == 1.0
    assert probe.penalty in probes.CLASS_PENALTIES


@pytest.mark.parametrize("shares", [None, (0.8, 0.1, 0.1)], ids=["balanced", "unbalanced"])
def test_noise_scores_chance(shares):
    features, _ = clusters(0.0, seed=1)
    _, labels = clusters(0.0, seed=2, shares=shares)
    probe = probes.class_accuracy(*split(features, labels), CLASSES)
    assert probe.accuracy == pytest.approx(1 / CLASSES, abs=0.1)


def test_accuracy_is_plain_where_classes_are_equally_frequent():
    features, labels = clusters(0.5)
    train, validation, test = split(features, labels)
    probe = probes.class_accuracy(train, validation, test, CLASSES)
    # Any number of correct ones of 300, and nothing between.
    assert probe.accuracy * SIZES[2] == pytest.approx(round(probe.accuracy * SIZES[2]))


def test_classes_missing_from_test_do_not_count():
    features, labels = clusters(8.0)
    labels[-SIZES[2] :][labels[-SIZES[2] :] == 2] = 1
    # A third of the test set is now wrong: half the answers of class 1, and class 2 is gone.
    probe = probes.class_accuracy(*split(features, labels), CLASSES)
    assert probe.accuracy == pytest.approx((1 + 0.5) / 2)


def test_features_scale_and_offset_play_no_part():
    features, labels = clusters(0.5)
    factors, offsets = np.geomspace(1e-3, 1e3, DIM), np.linspace(-5, 5, DIM)
    probe = probes.class_accuracy(*split(features, labels), CLASSES)
    other = probes.class_accuracy(*split(features * factors + offsets, labels), CLASSES)
    assert other.accuracy == pytest.approx(probe.accuracy, abs=0.01)
    assert other.penalty == probe.penalty


def test_constant_features_are_left_out_even_if_they_vary_later():
    features, labels = clusters(8.0)
    features[:, -1] = 3.1
    features[SIZES[0] :, -1] = 1e6 * np.arange(sum(SIZES[1:]))
    assert probes.class_accuracy(*split(features, labels), CLASSES).accuracy == 1.0


def test_arrays_of_jax_and_the_same_result_again():
    features, labels = clusters(0.5)
    given = split(jnp.asarray(features, jnp.bfloat16), jnp.asarray(labels))
    probe = probes.class_accuracy(*given, CLASSES)
    assert probe == probes.class_accuracy(*given, CLASSES)


def test_a_fit_cut_short_says_so():
    assert not probes.class_accuracy(*split(*clusters(0.5)), CLASSES, max_iterations=1).converged


@pytest.fixture(scope="module")
def more_features_than_samples():
    """Four features tell the class, nearly; 117 are noise, and there are 40 samples to fit."""
    rng = np.random.default_rng(0)
    labels = np.arange(640) % 2
    features = rng.normal(size=(640, 121))
    features[:, :4] += 1.2 * (2 * labels - 1)[:, None]
    return features, labels


def test_validation_chooses_a_strong_penalty_where_the_fit_would_be_perfect(
    more_features_than_samples,
):
    features, labels = more_features_than_samples
    sets = split(features, labels.astype(bool), (40, 200, 400))
    probe = probes.binary_accuracy(*sets)
    assert probe.penalty >= 0.1
    assert 0.75 < probe.accuracy < 1
    assert probe == probes.class_accuracy(*sets, 2)


# --- Strengths ---


def numbers(noise, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(sum(SIZES), DIM)) @ rng.normal(size=(DIM, DIM))
    targets = features @ rng.normal(size=DIM) + 4
    return features, targets + noise * targets.std() * rng.normal(size=len(targets))


@pytest.mark.parametrize("penalty", [1e-6, 1e-2, 1.0, 100.0])
def test_strength_r2_as_scikit_learn(penalty):
    train, validation, test = split(*numbers(0.5))
    probe = probes.strength_r2(train, validation, test, penalties=[penalty])
    reference = linear_model.Ridge(alpha=penalty * SIZES[0]).fit(
        standardised(train.features, train.features), train.labels
    )
    expected = reference.score(standardised(test.features, train.features), test.labels)
    assert probe.r2 == pytest.approx(expected, abs=1e-9)
    assert probe.penalty == penalty


def test_strength_r2_of_numbers_that_are_there_half_there_and_absent():
    assert probes.strength_r2(*split(*numbers(0.0))).r2 == pytest.approx(1, abs=1e-6)
    assert probes.strength_r2(*split(*numbers(1.0))).r2 == pytest.approx(0.5, abs=0.1)
    features, _ = numbers(0.0, seed=1)
    probe = probes.strength_r2(*split(features, numbers(0.0, seed=2)[1]))
    assert probe.r2 == pytest.approx(0, abs=0.05)


def test_strength_r2_with_more_features_than_samples(more_features_than_samples):
    features, labels = more_features_than_samples
    probe = probes.strength_r2(*split(features, labels, (40, 200, 400)))
    assert probe.penalty >= 0.1
    assert 0.1 < probe.r2 < 1
    weak = probes.strength_r2(*split(features, labels, (40, 200, 400)), penalties=[1e-6])
    assert weak.r2 < probe.r2


# --- Bad input ---


def changed(part, sets, **changes):
    return [dataclasses.replace(x, **changes) if i == part else x for i, x in enumerate(sets)]


def with_value(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


GOOD = split(*clusters(1.0))
X, Y = GOOD[0].features, GOOD[0].labels
CLASS_ERRORS = {
    "no label": ({"labels": with_value(Y, [3, 4], -1)}, r"2 of 240 without one \(-1\); leave"),
    "label": ({"labels": with_value(Y, 3, 7)}, "labels from 0 to 2, got 7"),
    "class": ({"labels": np.minimum(Y, 1)}, "all 3 classes, got none of 2; take more"),
    "fractions": ({"labels": Y / 2}, "integers as labels of classes, got dtype float64"),
    "nan": ({"features": with_value(X, (0, 0), np.nan)}, "got 1 NaN or infinite of 1920"),
    "rows": ({"labels": Y[1:]}, r"one label per row, \(240,\), got labels of shape \(239,\)"),
    "rank": ({"features": X[:, :, None]}, r"\[samples, feature_dim\], got \(240, 8, 1\)"),
    "width": ({"features": X[:, 1:]}, "train 7, validation 8, test 8; take them"),
    "empty": ({"features": X[:0], "labels": Y[:0]}, r"at least one sample .* got shape \(0, 8\)"),
}


@pytest.mark.parametrize(("changes", "message"), CLASS_ERRORS.values(), ids=CLASS_ERRORS)
def test_bad_classes_are_refused(changes, message):
    with pytest.raises(ValueError, match=rf"(train|sets) must have.*{message}"):
        probes.class_accuracy(*changed(0, GOOD, **changes), CLASSES)


def test_the_set_that_is_wrong_is_named():
    with pytest.raises(ValueError, match="validation must have labels from 0 to 2"):
        probes.class_accuracy(*changed(1, GOOD, labels=GOOD[1].labels + 1), CLASSES)


def test_many_missing_classes_are_not_all_listed():
    with pytest.raises(ValueError, match="none of 1, 2, 3, 4, 5 and 994 more"):
        labelled.check_every_class("train", np.zeros(2, np.int32), 1000)


NUMBER_ERRORS = {
    "equal": ({"labels": np.zeros(len(Y))}, "labels that differ, got 0 only"),
    "nan": ({"labels": with_value(Y * 1.0, 3, np.inf)}, "finite labels, got 1 NaN or infinite"),
    "few": ({"features": X[:1], "labels": Y[:1]}, "at least 2 samples for an R², got 1"),
    "width": ({"features": X[:, 1:]}, "train 7, validation 8, test 8"),
}


@pytest.mark.parametrize(("changes", "message"), NUMBER_ERRORS.values(), ids=NUMBER_ERRORS)
def test_bad_numbers_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        probes.strength_r2(*changed(0, GOOD, **changes))


@pytest.mark.parametrize("penalties", [[], [0.0], [1.0, np.inf], [[1.0]]])
def test_bad_penalties_are_refused(penalties):
    with pytest.raises(ValueError, match="penalties must be positive and finite numbers"):
        probes.strength_r2(*GOOD, penalties=penalties)


def test_a_single_class_is_refused():
    with pytest.raises(ValueError, match="classes must be at least 2, got 1"):
        probes.class_accuracy(*GOOD, 1)
