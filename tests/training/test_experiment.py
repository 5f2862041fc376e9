"""Experiments made in code: parts that the package has not seen, through the same loop."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.core import freeze
from stopped_runs import stopping_at_the_first_save
from toy_experiment import ShiftedWaves, make_experiment

import aninfonce_jax as an
from aninfonce_jax import rng
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.build import build_experiment
from aninfonce_jax.data.source import DataError
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import registry
from aninfonce_jax.stop import Preempted
from aninfonce_jax.training import loop
from aninfonce_jax.training.step import make_train_step, trace_train_step
from aninfonce_jax.workdir import config_file

TOY = Path(__file__).with_name("toy_experiment.py")
# A run that says when a checkpoint is whole, and then waits to be killed.
KILLED = """
import sys
from aninfonce_jax.training.session import Session

save = Session._save

def save_and_wait(session, step, state):
    save(session, step, state)
    if step == 15:
        session.tools.checkpoints.wait()
        print("saved", flush=True)
        sys.stdin.read()

Session._save = save_and_wait
import toy_experiment
toy_experiment.an.train(toy_experiment.make_experiment(), sys.argv[1], progress="off")
"""


def saved_state(experiment, workdir):
    with loop.open_checkpoints(workdir, experiment) as checkpoints:
        target = loop.abstract_state(experiment, Placement.local())
        return as_numbers(checkpoints.restore_latest(target).state)


def as_numbers(tree):
    def one(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    return jax.tree.map(one, tree)


def rows(workdir):
    return [
        {name: value for name, value in row.items() if name not in registry.TIMINGS}
        for row in workdir_lib.read_metrics(workdir / "metrics.jsonl")
    ]


def scores(workdir):
    found = json.loads((workdir / workdir_lib.EVAL_FILE).read_text())
    measured = registry.TIMINGS | {"digest", "metrics_sha256"}
    return {name: value for name, value in found.items() if name not in measured}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, an.train(make_experiment(), folder, progress="off")


def test_any_pairs_and_any_network_train_in_the_same_loop(whole):
    folder, result = whole
    assert int(result.state.step) == 40
    by_split = {
        split: [row for row in rows(folder) if row["split"] == split] for split in ("eval", "train")
    }
    assert [row["step"] for row in by_split["train"]] == list(range(5, 41, 5))
    assert [row["step"] for row in by_split["eval"]] == [0, 20, 40]
    first, last = by_split["eval"][0], by_split["eval"][-1]
    assert last["loss"] < first["loss"] - 0.1
    assert last["effective_rank_embedding"] > 1
    assert result.scores["loss"] == last["loss"]
    # Of pairs of which nothing is known, nothing else can be told.
    assert not {"r2", "knn_accuracy", "loss_floor", "unreadable_examples"} & set(last)
    saved = workdir_lib.read_saved(folder).values
    assert saved["source"] == {"kind": "ShiftedWaves"}
    assert (saved["name"], saved["made_by"]) == ("waves", workdir_lib.MADE_IN_CODE)


def test_a_killed_run_ends_like_the_uninterrupted(whole, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(TOY.parent)])}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as child:
        assert child.stdout.readline() == "saved\n"
        child.kill()
        assert child.wait() == -signal.SIGKILL
    assert rows(tmp_path)[-1]["step"] == 15
    done = subprocess.run(
        [sys.executable, TOY, tmp_path], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "going on from step 15 of 40" in done.stdout + done.stderr
    experiment = make_experiment()
    chex.assert_trees_all_equal(
        saved_state(experiment, tmp_path), saved_state(experiment, whole[0])
    )
    assert rows(tmp_path) == rows(whole[0])
    assert scores(tmp_path) == scores(whole[0])


def test_scores_are_computed_again_from_the_checkpoint(whole, tmp_path):
    before = scores(whole[0])
    path = whole[0] / workdir_lib.EVAL_FILE
    path.unlink()
    found = an.evaluate(make_experiment(), whole[0])
    assert scores(whole[0]) == before
    assert found["loss"] == before["loss"] == whole[1].scores["loss"]
    with pytest.raises(an.ConfigError, match="is not the work directory of a run"):
        an.evaluate(make_experiment(), tmp_path)


def test_without_a_work_directory_nothing_is_kept(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = an.train(make_experiment(), progress="off")
    assert list(tmp_path.iterdir()) == []
    chex.assert_trees_all_equal(as_numbers(result.state), as_numbers(whole[1].state))
    assert result.scores == whole[1].scores


class Unscored(ShiftedWaves):
    def held_out(self, batch_size):
        return None


def test_of_pairs_that_are_not_held_out_nothing_is_shown(tmp_path, capsys):
    experiment = dataclasses.replace(make_experiment(steps=5), source=Unscored())
    an.train(experiment, tmp_path, progress="plain")
    said = "".join(capsys.readouterr())
    assert "step 5/5" in said
    assert "held-out" not in said
    page = an.write_report(tmp_path, tmp_path).read_text()
    assert "AnInfoNCE: nothing was scored: no pairs were kept from training." in page


def test_one_and_eight_devices_end_alike():
    assert jax.local_device_count() == 8
    # Not Adam: a bias before BatchNorm has no gradient but what rounding makes, and Adam would
    # make whole steps of that.
    experiment = dataclasses.replace(make_experiment(steps=20), optimizer=optax.sgd(0.1))
    one, eight = (
        an.train(experiment, placement=placement, progress="off")
        for placement in (Placement.local(1), None)
    )
    assert len(eight.state.step.sharding.device_set) == 8
    chex.assert_trees_all_close(
        as_numbers(one.state.evaluated), as_numbers(eight.state.evaluated), rtol=1e-3, atol=1e-5
    )
    assert one.scores["loss"] == pytest.approx(eight.scores["loss"], rel=1e-5)


def test_a_batch_that_the_devices_do_not_divide_is_refused(tmp_path):
    for changes in ({"batch_size": 12}, {"batch_size": 24, "microbatches": 2}):
        with pytest.raises(an.ConfigError, match=r"must be a multiple of .* pass a placement"):
            an.train(make_experiment(**changes), tmp_path / "run", progress="off")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "^steps must be at least 1, got 0"),
        ({"batch_size": 0}, "^batch_size must be at least 2, got 0"),
        ({"steps_per_dispatch": 0}, "^steps_per_dispatch must be at least 1, got 0"),
        ({"microbatches": 0}, "^microbatches must be at least 1, got 0"),
        ({"ema_decay": 2.0}, "^ema_decay must be below 1, got 2.0"),
        ({"seed": 1.5}, "^seed must be of type int, got 1.5 of type float"),
        ({"patience": -1}, "^patience must be at least 0, got -1"),
        ({"hang_timeout": -1}, "^hang_timeout must be at least 0, got -1"),
        ({"name": "a\nb"}, "^name must be text without control characters"),
        ({"evaluation": an.EvalConfig(every=0)}, "^evaluation.every must be at least 1, got 0"),
        ({"evaluation": an.EvalConfig(batch_size=2.5)}, "^evaluation.batch_size must be of type"),
        (
            {"evaluation": an.EvalConfig(readout_context="clear")},
            "^evaluation.readout_context must be one of 'clean', 'augmented'; got 'clear'",
        ),
        ({"evaluation": {"every": 5}}, "^evaluation must be of type EvalConfig, got {'every': 5}"),
        ({"evaluation": an.EvalConfig(views=9)}, "^evaluation.views=9 has no use with a source"),
        ({"checkpoint": an.CheckpointConfig(keep=0)}, "^checkpoint.keep must be at least 1, got 0"),
        ({"checkpoint": 5}, "^checkpoint must be of type CheckpointConfig, got 5"),
        ({"log": an.LogConfig(every=-1)}, "^log.every must be at least 1, got -1"),
        ({"log": an.LogConfig(tensorboard=1)}, "^log.tensorboard must be of type bool, got 1"),
    ],
)
def test_numbers_have_the_ranges_that_a_config_has(changes, said):
    with pytest.raises(an.ConfigError, match=said):
        make_experiment(**changes)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"source": ShiftedWaves}, "source must be an an.Source, got the class ShiftedWaves; call"),
        ({"source": None}, "source must be an an.Source, got None"),
        ({"objective": an.objectives.AnInfoNCE}, "objective must be an an.Objective, got the cl"),
        ({"objective": an.aninfonce_loss}, "objective must be an an.Objective, got <function"),
        ({"optimizer": optax.adam}, "optimizer must be a transformation of gradients, as optax.a"),
        ({"optimizer": "adam"}, "optimizer must be a transformation of gradients, as optax.adam"),
    ],
)
def test_a_part_that_is_something_else_is_named(part, said):
    with pytest.raises(TypeError) as caught:
        dataclasses.replace(make_experiment(), **part)
    assert str(caught.value).startswith(said)


class HalfOfThem(ShiftedWaves):
    def pairs(self, key, fed, batch_size):
        return super().pairs(key, fed, batch_size // 2)


class NoPairs(ShiftedWaves):
    def pairs(self, key, fed, batch_size):
        return ()


class FedTooLittle(ShiftedWaves):
    def fed(self, batch_size):
        return jax.ShapeDtypeStruct((batch_size, 32), jnp.float32)

    def open_feed(self, rows, *, seed, step):
        while True:
            yield np.zeros((3, 32), np.float32)

    def pairs(self, key, fed, batch_size):
        return an.Pairs(fed, fed)


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        (HalfOfThem(), ValueError, "HalfOfThem must give 16 pairs, the batch size, got 8 first"),
        (NoPairs(), TypeError, r"NoPairs must give an.Pairs\(view1, view2\), got tuple"),
        (FedTooLittle(), ValueError, "FedTooLittle must give 16 pairs, the batch size, got 3 fir"),
    ],
)
def test_as_many_pairs_as_the_batch_has_must_come(source, error, said):
    """Fewer would be trained on without a word."""
    experiment = dataclasses.replace(make_experiment(), source=source)
    with pytest.raises(error, match=f"^{said}"):
        an.train(experiment, placement=Placement.local(1), progress="off")


class Returns(an.Objective):
    """An objective that returns what it was made with, of a loss of ones."""

    def __init__(self, make):
        self.make = make

    def __call__(self, params, encode, pairs, key, placement):
        return self.make(jnp.ones(len(pairs.view1)))


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda each: (each, {}), r"the loss of shape \(16,\)"),
        (lambda each: each.mean(), "one array"),
        (lambda each: (each.mean(), {"own": each}), r"own of shape \(16,\)"),
        (lambda each: (each.mean(), each.mean()), "tuple"),
    ],
)
def test_an_objective_returns_one_number_and_those_to_log(make, found):
    experiment = dataclasses.replace(make_experiment(), objective=Returns(make))
    said = f"^Returns must return its loss, one number, and a dict of numbers to log, got {found}"
    with pytest.raises(TypeError, match=said):
        an.train(experiment, placement=Placement.local(1), progress="off")


def test_too_few_samples_for_the_factors_are_refused(small_config):
    built = build_experiment(small_config())
    factors = built.source.known.latents.dim
    assert factors == built.config.source.dim
    changes = {"config": None, "evaluation": an.EvalConfig(samples=8 * factors - 1)}
    with pytest.raises(an.ConfigError, match=f"^evaluation.samples=.* to score {factors} factors"):
        dataclasses.replace(built, **changes)


def test_numbers_of_numpy_are_taken_as_plain_ones():
    given = make_experiment(
        steps=np.int64(20), ema_decay=np.float32(0.5), log=an.LogConfig(every=np.int32(5))
    )
    assert [type(x) for x in (given.steps, given.ema_decay, given.log.every)] == [int, float, int]
    plain = make_experiment(steps=20, ema_decay=0.5, log=an.LogConfig(every=5))
    assert given.fingerprint == plain.fingerprint


def test_another_experiment_is_refused_with_the_difference(whole):
    with pytest.raises(an.ConfigError, match=r"seed: 0 -> 7"):
        an.train(make_experiment(seed=7), whole[0], progress="off")


def test_another_network_in_the_same_folder_is_refused(whole):
    linear = (lambda key, x: jnp.eye(32, 4), lambda matrix, x: x @ matrix)
    other = dataclasses.replace(make_experiment(), encoder=linear)
    with pytest.raises(an.ConfigError, match=r"encoder.kind: 'NNXEncoder' -> 'FunctionEncoder'"):
        an.train(other, whole[0], progress="off")


def test_what_else_a_result_depends_on_can_be_told(whole):
    other = make_experiment(settings={"learning_rate": 0.1})
    with pytest.raises(an.ConfigError, match=r"settings.learning_rate: None -> 0.1"):
        an.train(other, whole[0], progress="off")


def test_a_changed_experiment_is_another_one(small_config, tmp_path):
    """Whatever is recorded follows what is there, or is refused."""
    assert dataclasses.replace(make_experiment(), seed=7).description["seed"] == 7
    built = build_experiment(small_config())
    with pytest.raises(ValueError, match=r"seed=7 but the experiment's config says 0, which its"):
        dataclasses.replace(built, seed=7)
    assert dataclasses.replace(built, seed=7, config=None).description["seed"] == 7


def test_only_the_experiment_that_was_trained_is_evaluated(whole):
    with pytest.raises(an.ConfigError, match=r"with another config \(seed: 0 -> 7\)"):
        an.evaluate(make_experiment(seed=7), whole[0])


def test_an_experiment_of_an_earlier_version_goes_on(whole, tmp_path, monkeypatch):
    """A field that its description lacks has its default."""
    older = tmp_path / "older"
    shutil.copytree(whole[0], older)
    values = json.loads(json.dumps(workdir_lib.read_saved(older).values))
    before = workdir_lib.read_saved(older).hash
    del values["microbatches"], values["settings"], values["eval"]["neighbours"]
    saved = dataclasses.replace(workdir_lib.read_saved(older), values=values)
    config_file._write_config(older, saved)
    result = an.train(make_experiment(), older, progress="off")
    assert result.scores == whole[1].scores
    assert workdir_lib.read_saved(older) == workdir_lib.read_saved(whole[0])
    assert workdir_lib.read_saved(older).hash == before
    config_file._write_config(older, saved)
    with pytest.raises(an.ConfigError, match=r"with another config \(microbatches: 1 -> 2\)"):
        an.train(make_experiment(microbatches=2), older, progress="off")


def test_the_step_can_be_lowered_for_devices_that_are_not_at_hand():
    experiment = make_experiment()
    lowered = trace_train_step(experiment, Placement.local(4)).lower()
    assert "num_partitions = 4" in lowered.as_text()


# --- What objectives and encoders may do ---


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.BatchNorm(use_running_average=not train, momentum=0.5)(nn.Dense(4)(x))


class ThreeViews(an.Objective):
    """Pulls both views together, and pushes a third one away."""

    def init(self, key, dim):
        return {"scale": jnp.ones(())}

    def __call__(self, params, encode, pairs, key, placement):
        first, second, third = (encode(view) for view in three_views(pairs))
        near, far = (jnp.mean(jnp.square(first - other)) for other in (second, third))
        return near - jnp.log1p(params["scale"] * far), {"far": far}


def three_views(pairs):
    return pairs.view1, pairs.view2, 3 - pairs.view1


@pytest.mark.parametrize("microbatches", [1, 2])
def test_an_objective_may_encode_three_views_and_state_is_carried_along(microbatches):
    experiment = make_experiment(microbatches=microbatches, ema_decay=0.0)
    experiment = dataclasses.replace(
        experiment, encoder=an.LinenEncoder(Normed()), objective=ThreeViews()
    )
    placement = Placement.local(1)
    start = jax.jit(experiment.init_state, out_shardings=placement.whole)()
    pairs = experiment.source.pairs(rng.at_step(start.key, 0), None, experiment.batch_size)
    params, expected = start.params["encoder"], start.model_state
    for view in three_views(pairs):
        # Each micro-batch starts from the same statistics, and theirs are averaged.
        parts = [
            experiment.encoder.apply(
                {"params": params, **expected}, view[part::microbatches], train=True
            )[1]
            for part in range(microbatches)
        ]
        expected = jax.tree.map(lambda *x: sum(x) / microbatches, *parts)
    expected, scale = as_numbers(expected), as_numbers(start.params["objective"]["scale"])
    state, metrics = make_train_step(experiment, placement)(start, None, 1)
    assert np.isfinite(metrics["far"][0])
    chex.assert_trees_all_close(as_numbers(state.model_state), expected, rtol=1e-4, atol=1e-5)
    assert as_numbers(state.params["objective"]["scale"]) != scale


class Given:
    """An encoder that gives the variables it was made with, whenever it is asked."""

    layers = ("embedding",)

    def __init__(self, make):
        self.variables = make({"params": {"matrix": jnp.eye(32, 4)}})

    def init(self, key, observations):
        return self.variables

    def apply(self, variables, observations, *, train, key=None):
        return {"embedding": observations @ variables["params"]["matrix"]}, {}


@pytest.mark.parametrize("make", [dict, freeze])
def test_the_variables_that_an_encoder_gives_stay_its_own(make):
    encoder = Given(make)
    experiment = dataclasses.replace(make_experiment(), encoder=encoder)
    for _ in range(2):
        state = experiment.init_state()
        assert state.params["encoder"]["matrix"].shape == (32, 4)
        assert state.model_state == {}
    assert list(encoder.variables) == ["params"]


class Dropped(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(32, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.norm(self.linear(x)))


def test_an_average_takes_keys_and_counters_as_they_are(tmp_path):
    experiment = dataclasses.replace(make_experiment(steps=10), encoder=an.NNXEncoder(Dropped))
    result = an.train(experiment, tmp_path, progress="off")
    state = as_numbers(result.state)
    leaves = jax.tree_util.tree_leaves_with_path(state.model_state)
    kinds = {leaf.dtype.kind for _, leaf in leaves}
    assert kinds >= {"f", "u"}, "the test needs numbers, counters and keys"
    averages = jax.tree.leaves(state.average.model_state)
    differ = [np.any(leaf != own) for (_, leaf), own in zip(leaves, averages, strict=True)]
    assert [leaf.dtype.kind == "f" for _, leaf in leaves] == differ
    chex.assert_trees_all_equal(saved_state(experiment, tmp_path), state)


class Masks(an.Objective):
    """Tells which outputs of equal rows are dropped."""

    def __call__(self, params, encode, pairs, key, placement):
        out = encode(jnp.ones_like(pairs.view1))
        dropped = (out == 0).reshape(-1)
        numbers = jnp.sin(jnp.arange(1.0, dropped.size + 1))
        return jnp.mean(jnp.square(out)), {
            "mask": jnp.sum(jnp.where(dropped, numbers, 0.0)),
            "neighbours": jnp.max(jnp.abs(out[::2] - out[1::2])),
        }


class LinenDropped(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dropout(0.5, deterministic=not train)(nn.Dense(4)(x))


def nnx_dropped(rngs):
    return nnx.Sequential(nnx.Linear(32, 4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs))


@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize(
    "encoder", [an.LinenEncoder(LinenDropped()), an.NNXEncoder(nnx_dropped)], ids=["linen", "nnx"]
)
def test_dropout_is_new_in_each_step_and_micro_batch(encoder, microbatches):
    experiment = make_experiment(microbatches=microbatches, ema_decay=0.0)
    experiment = dataclasses.replace(
        experiment, encoder=encoder, objective=Masks(), optimizer=optax.sgd(0.0)
    )
    placement = Placement.local(1)
    step = make_train_step(experiment, placement)

    def five_steps():
        state = jax.jit(experiment.init_state, out_shardings=placement.whole)()
        return step(state, None, 5)[1]

    metrics = five_steps()
    assert len(set(np.asarray(metrics["mask"]).tolist())) == 5
    # Micro-batch j takes the rows j, j + 2, ...: neighbours are in different ones.
    assert (np.asarray(metrics["neighbours"]) > 0).all()
    chex.assert_trees_all_equal(five_steps(), metrics)


# --- A feed of plain arrays ---


class Recordings(an.Source):
    """Pairs of neighbouring rows of an array on the host."""

    def __init__(self, recordings):
        self.recordings = np.float32(recordings)

    def example(self):
        return jnp.zeros((2, 32))

    def fed(self, batch_size):
        return jax.ShapeDtypeStruct((batch_size, 2, 32), jnp.float32)

    def open_feed(self, rows, *, seed, step):
        while True:
            first = (seed + rows.positions(step)) % (len(self.recordings) - 1)
            yield np.stack([self.recordings[first], self.recordings[first + 1]], axis=1)
            step += 1

    def pairs(self, key, fed, batch_size):
        return an.Pairs(fed[:, 0], fed[:, 1])


def recordings_experiment(source=None, **changes):
    waves = ShiftedWaves().pairs(jax.random.key(0), None, 200).view1
    source = source or Recordings(np.cumsum(waves, axis=0))
    changes = {"steps": 12, "checkpoint": an.CheckpointConfig(every=4)} | changes
    return dataclasses.replace(make_experiment(**changes), source=source)


def test_a_call_to_the_device_has_no_room_for_steps_that_it_is_never_asked_for():
    assert make_experiment(steps_per_dispatch=10**9, steps=3).dispatch_steps == 3


def test_plain_arrays_are_fed_and_a_stopped_run_goes_on_at_the_right_batch(tmp_path):
    experiment = recordings_experiment()
    assert experiment.dispatch_steps == 1
    an.train(experiment, tmp_path / "whole", progress="off")
    with (
        stopping_at_the_first_save() as stop,
        pytest.raises(Preempted, match="stopped at step 4 of 12"),
    ):
        an.train(experiment, tmp_path / "stopped", stop=stop, progress="off")
    an.train(experiment, tmp_path / "stopped", progress="off")
    chex.assert_trees_all_equal(
        *(saved_state(experiment, tmp_path / name) for name in ("whole", "stopped"))
    )
    assert rows(tmp_path / "stopped") == rows(tmp_path / "whole")
    last = scores(tmp_path / "stopped")
    assert last["unreadable_examples"] == 0
    assert last["loss"] is None  # nothing is held out


def test_a_feed_that_ends_early_is_a_clear_error(tmp_path):
    class Short(Recordings):
        def open_feed(self, rows, *, seed, step):
            feed = super().open_feed(rows, seed=seed, step=step)
            return (next(feed) for _ in range(step, 3))

    experiment = recordings_experiment(Short(np.ones((50, 32))))
    with pytest.raises(DataError, match="Short gave 3 batches and has no more; a feed must not"):
        an.train(experiment, tmp_path, progress="off")
