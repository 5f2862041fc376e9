"""Checkpoints restore exactly what was saved, or say why not and use the one before."""

import contextlib
import gc
import pathlib
import shutil
import subprocess
import sys
import textwrap

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from aninfonce_jax.training.checkpoint import CheckpointError, Checkpoints


def make_state(seed: int = 0):
    """A state with everything a training state may hold."""
    params = {
        "dense": {"kernel": jax.random.normal(jax.random.key(seed), (64, 40))},
        "half": jnp.linspace(-3, 3, 16).astype(jnp.bfloat16),
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    return {
        "params": params,
        "optimizer": optimizer.init(params),
        "step": jnp.int32(seed),
        "tuple": (jnp.arange(5, dtype=jnp.int8), jnp.array([True, False]), None, ()),
        "special": jnp.array([jnp.nan, -0.0, jnp.inf]),
        "key": jax.random.split(jax.random.key(seed), 8),
    }


def bits(tree):
    """Every leaf as (dtype, shape, bytes), so that NaN and -0.0 count."""

    def leaf_bits(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()

    return [leaf_bits(leaf) for leaf in jax.tree.leaves(tree)]


def assert_same(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    assert bits(actual) == bits(expected)


def write(directory, steps, *, keep=5, r2=lambda step: step / 100):
    with Checkpoints(directory, keep=keep) as checkpoints:
        for step in steps:
            checkpoints.save(
                step, make_state(step), extra={"position": step}, metrics={"r2": r2(step)}
            )


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory) -> pathlib.Path:
    """A folder with intact checkpoints of steps 1 and 2; tests damage copies of it."""
    directory = tmp_path_factory.mktemp("checkpoints") / "original"
    write(directory, [1, 2])
    return directory


@pytest.fixture
def copied(two_steps, tmp_path) -> pathlib.Path:
    return shutil.copytree(two_steps, tmp_path / "copy")


def files_of(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flip_bit(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0b100
    path.write_bytes(content)


def truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES = {"flip": flip_bit, "truncate": truncate, "delete": pathlib.Path.unlink}


def largest(folder: pathlib.Path) -> pathlib.Path:
    return max(files_of(folder), key=lambda path: path.stat().st_size)


def test_round_trip_is_bitwise(tmp_path):
    state = make_state(3)
    extra = {"position": 7, "config": "abc", "nested": [1, {"a": None}]}
    with Checkpoints(tmp_path / "new" / "folder", keep=1) as checkpoints:
        assert checkpoints.restore_latest(state) is None
        checkpoints.save(3, state, extra=extra, metrics={"r2": jnp.float32(0.5)})
        restored = checkpoints.restore_latest(jax.eval_shape(lambda: state))
    assert_same(restored.state, state)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(restored.state))
    assert (restored.step, restored.extra, restored.metrics) == (3, extra, {"r2": 0.5})
    assert restored.problems == ()


def test_restored_key_draws_what_the_saved_key_draws(two_steps):
    with Checkpoints(two_steps, keep=5) as checkpoints:
        key = checkpoints.restore_latest(make_state()).state["key"]
    expected = jax.random.normal(make_state(2)["key"][3], (4,))
    chex.assert_trees_all_equal(jax.random.normal(key[3], (4,)), expected)


def test_buffers_may_be_donated_right_after_save(tmp_path):
    step = jax.jit(lambda x: {"x": x["x"] * 2 + 1}, donate_argnums=0)
    state = {"x": jnp.arange(1_000_000, dtype=jnp.float32)}
    with Checkpoints(tmp_path, keep=9) as checkpoints:
        for i in range(4):
            checkpoints.save(i, state, extra={}, metrics={})
            before, state = state, step(state)
            assert before["x"].is_deleted()
    for i in reversed(range(4)):
        with Checkpoints(tmp_path, keep=9) as checkpoints:
            restored = checkpoints.restore_latest(state)
            expected = np.arange(1_000_000, dtype=np.float32) * 2**i + (2**i - 1)
            np.testing.assert_array_equal(restored.state["x"], expected)
        shutil.rmtree(tmp_path / str(i))


def test_keeps_the_latest_and_the_best_also_after_reopening(tmp_path):
    r2 = {1: 0.1, 2: 0.9, 3: 0.2, 4: 0.8, 5: 0.3, 6: 0.4}
    write(tmp_path, [1, 2, 3, 4], keep=2, r2=r2.get)
    write(tmp_path, [5, 6], keep=2, r2=r2.get)
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        assert checkpoints.all_steps() == (2, 5, 6)
        assert (checkpoints.latest_step, checkpoints.best_step) == (6, 2)


def test_nan_is_never_the_best(tmp_path):
    write(tmp_path, [1, 2], r2={1: float("nan"), 2: 0.9}.get)
    with Checkpoints(tmp_path, keep=5) as checkpoints:
        assert checkpoints.best_step == 2


def test_without_scores_nothing_is_best(tmp_path):
    with Checkpoints(tmp_path, keep=2, best_metric="accuracy") as checkpoints:
        assert checkpoints.best_step is None
        checkpoints.save(1, make_state(1), extra={}, metrics={"r2": 0.5})
        assert checkpoints.best_step is None


def test_saving_a_step_again_changes_nothing(tmp_path):
    write(tmp_path, [1])
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        checkpoints.save(1, make_state(7), extra={"position": 7}, metrics={"r2": 0.7})
        restored = checkpoints.restore_latest(make_state())
    assert_same(restored.state, make_state(1))
    assert restored.extra == {"position": 1}


def test_steps_must_grow(tmp_path):
    write(tmp_path, [5])
    with (
        Checkpoints(tmp_path, keep=2) as checkpoints,
        pytest.raises(ValueError, match=r"must go forward: step 4 comes after 5"),
    ):
        checkpoints.save(4, make_state(4), extra={}, metrics={})


@pytest.mark.parametrize("keep", [0, -1])
def test_keep_must_be_positive(tmp_path, keep):
    with pytest.raises(ValueError, match=rf"keep must be at least 1 checkpoint, got {keep}"):
        Checkpoints(tmp_path, keep=keep)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_is_found_and_the_checkpoint_before_is_used(two_steps, tmp_path, damage):
    names = [path.relative_to(two_steps / "2") for path in files_of(two_steps / "2")]
    assert len(names) > 8  # array data, trees, manifests, metadata, the record, the seal
    for i, name in enumerate(names):
        if damage == "delete" and name.name == "SHA256SUMS":
            continue  # as if killed before sealing: see the tests of unsealed checkpoints
        directory = shutil.copytree(two_steps, tmp_path / str(i))
        DAMAGES[damage](directory / "2" / name)
        with Checkpoints(directory, keep=5) as checkpoints:
            restored = checkpoints.restore_latest(make_state())
        assert restored.step == 1, name
        assert restored.problems[0].startswith("checkpoint 2: damaged, not used ("), name
        if name.name != "SHA256SUMS":
            assert f"file {name} " in restored.problems[0]
    assert_same(restored.state, make_state(1))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.filterwarnings(  # Orbax leaves coroutines behind when a read fails
    "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_without_a_seal_the_record_finds_all_damage_that_matters(copied, damage):
    """Kill -9 may hit before sealing. Then a file is either unused, or its damage is found."""
    (copied / "2" / "SHA256SUMS").unlink()
    found = []
    for path in [largest(copied / "2"), copied / "2/record/metadata", copied / "2/state/_METADATA"]:
        intact = path.read_bytes()
        DAMAGES[damage](path)
        with Checkpoints(copied, keep=5) as checkpoints:
            restored = checkpoints.restore_latest(make_state())
        path.write_bytes(intact)
        assert restored.step == 1, path
        found.append(restored.problems[0])
    gc.collect()  # while the warnings of those coroutines are ignored
    if damage == "flip":
        assert "array ['params']['dense']['kernel'] differs from what was saved" in found[0]
        assert "record does not match its own checksum" in found[1] or "Error" in found[1]
    with Checkpoints(copied, keep=5) as checkpoints:
        restored = checkpoints.restore_latest(make_state())
    assert restored.step == 2
    assert_same(restored.state, make_state(2))


def test_every_bit_of_a_record_counts(copied):
    """Scores and positions are JSON: one flipped bit may leave it valid but wrong."""
    (copied / "2" / "SHA256SUMS").unlink()
    record = copied / "2/record/metadata"
    intact = record.read_bytes()
    position = intact.index(b"0.02")  # the score of step 2
    record.write_bytes(intact[:position] + b"8.02" + intact[position + 4 :])
    with Checkpoints(copied, keep=5) as checkpoints:
        assert checkpoints.best_step == 1
        restored = checkpoints.restore_latest(make_state())
    assert restored.step == 1
    assert restored.problems == (
        "checkpoint 2: damaged, not used (its record does not match its own checksum)",
    )


def test_all_damaged_is_an_error_and_destroys_nothing(copied):
    for step in ("1", "2"):
        flip_bit(largest(copied / step))
    before = files_of(copied)
    with (
        Checkpoints(copied, keep=5) as checkpoints,
        pytest.raises(
            CheckpointError, match=r"can be restored: checkpoint 2: .*; checkpoint 1: .*anew"
        ),
    ):
        checkpoints.restore_latest(make_state())
    assert files_of(copied) == before


def test_what_is_damaged_is_not_the_best(copied):
    flip_bit(largest(copied / "2"))
    with Checkpoints(copied, keep=5) as checkpoints:
        assert checkpoints.best_step == 2
        restored = checkpoints.restore_latest(make_state())
        assert (restored.step, len(restored.problems)) == (1, 1)
        assert checkpoints.best_step == 1


def test_a_damaged_step_is_set_aside_and_saved_again(copied):
    for _ in range(2):
        flip_bit(largest(copied / "2"))
        with Checkpoints(copied, keep=5) as checkpoints:
            assert checkpoints.restore_latest(make_state()).step == 1
            checkpoints.save(2, make_state(2), extra={"again": True}, metrics={"r2": 0.5})
            restored = checkpoints.restore_latest(make_state())
        assert (restored.step, restored.extra, restored.problems) == (2, {"again": True}, ())
        assert_same(restored.state, make_state(2))
    assert {path.name for path in copied.iterdir()} == {"1", "2", "2.damaged", "2.damaged-2"}


def test_an_interrupted_save_is_said_and_removed_by_the_next(copied):
    half = copied / "3.orbax-checkpoint-tmp"
    shutil.copytree(copied / "2" / "state", half / "state")
    with Checkpoints(copied, keep=5) as checkpoints:
        restored = checkpoints.restore_latest(make_state())
        assert restored.step == 2
        assert restored.problems == (
            "3.orbax-checkpoint-tmp: a save that was interrupted, ignored",
        )
        assert half.exists()
        checkpoints.save(3, make_state(3), extra={}, metrics={})
        checkpoints.wait()
        assert not half.exists()
        assert_same(checkpoints.restore_latest(make_state()).state, make_state(3))


def test_another_layout_is_refused_not_taken_for_damage(copied):
    target = make_state()
    cases = [
        (
            target | {"step": jnp.float32(0)},
            r"^the checkpoint of step 2 holds int32\[\] at \['step'\], but float32",
        ),
        (
            target | {"new": jnp.zeros(3)},
            r"^the checkpoint of step 2 holds nothing at \['new'\], but float32\[3\] was",
        ),
        ({"step": target["step"]}, "but nothing was expected: was it written with another model"),
    ]
    with Checkpoints(copied, keep=5) as checkpoints:
        for other, message in cases:
            with pytest.raises(CheckpointError, match=message):
                checkpoints.restore_latest(other)
        assert checkpoints.restore_latest(target).problems == ()


def test_a_failed_write_is_raised(tmp_path):
    directory = tmp_path / "checkpoints"
    checkpoints = Checkpoints(directory, keep=2)
    directory.rmdir()
    directory.write_text("in the way")
    message = r"^checkpoint 1 can't be written to .*: the folder was removed; what was saved"
    with pytest.raises(CheckpointError, match=message):
        checkpoints.save(1, make_state(1), extra={}, metrics={})
    assert checkpoints.all_steps() == ()
    checkpoints.close()


def test_a_folder_that_is_removed_is_said_once(tmp_path, capfd):
    directory = tmp_path / "checkpoints"
    state = {"x": jnp.zeros(3)}
    with Checkpoints(directory, keep=2) as checkpoints:
        checkpoints.save(1, state, extra={}, metrics={})
        checkpoints.wait()
        shutil.rmtree(directory)
        with pytest.raises(CheckpointError, match=r"can't be .*: the folder was removed"):
            checkpoints.save(2, state, extra={}, metrics={})
    assert not directory.exists()
    assert capfd.readouterr().err == ""


@contextlib.contextmanager
def small_disk(folder, size):
    """Mounts a disk of few bytes, or skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_said_once_and_after_more_room_the_run_goes_on(tmp_path, capfd):
    # Noise, which no compression makes small.
    large = {"x": np.random.default_rng(0).standard_normal((400, 400)).astype(np.float32)}
    with small_disk(tmp_path / "disk", "1m") as disk:

        def fill():
            with Checkpoints(disk / "checkpoints", keep=5) as checkpoints:
                for step in (1, 2, 3):
                    checkpoints.save(step, large, extra={}, metrics={})

        with pytest.raises(CheckpointError, match=r"^checkpoint \d can't .*: No space left"):
            fill()
        assert capfd.readouterr().err == ""
        subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
        with Checkpoints(disk / "checkpoints", keep=5) as checkpoints:
            restored = checkpoints.restore_latest(large)
            assert_same(jax.device_get(restored.state), large)
            checkpoints.save(restored.step + 1, large, extra={}, metrics={})
            checkpoints.wait()
            assert checkpoints.restore_latest(large).step == restored.step + 1


def test_a_checkpoint_of_another_run_is_named_and_passed_over(tmp_path):
    state = {"x": jnp.arange(3.0)}
    for run, steps in (("mine", (1, 2)), ("other", (3,))):
        with Checkpoints(tmp_path / run, keep=5, run=run) as checkpoints:
            for step in steps:
                checkpoints.save(step, state, extra={}, metrics={"r2": step})
    shutil.copytree(tmp_path / "other" / "3", tmp_path / "mine" / "3")
    shutil.copytree(tmp_path / "mine" / "2", tmp_path / "mine" / "4")
    with Checkpoints(tmp_path / "mine", keep=5, run="mine") as checkpoints:
        assert checkpoints.best_step == 2
        restored = checkpoints.restore_latest(state)
        assert restored.step == 2
        assert restored.problems == (
            "checkpoint 4 holds step 2: not used",
            "checkpoint 3 belongs to another run (config hash other, this run has mine): not used",
        )
        checkpoints.save(3, state, extra={}, metrics={})
    names = {path.name for path in (tmp_path / "mine").iterdir()}
    assert names == {"1", "2", "3", "3.foreign", "4.foreign"}
    with (
        Checkpoints(tmp_path / "other", keep=5, run="third") as checkpoints,
        pytest.raises(CheckpointError, match=r"no checkpoint .* can be restored: checkpoint 3 bel"),
    ):
        checkpoints.restore_latest(state)


@pytest.mark.parametrize("name", ["a[x]1", "a*?", "{a} b", "é%20#", "line\nbreak", "a\\b"])
def test_any_folder_name_will_do(tmp_path, name):
    state = {"x": jnp.arange(3.0)}
    for expected in (None, 1):
        with Checkpoints(tmp_path / name / "checkpoints", keep=2) as checkpoints:
            restored = checkpoints.restore_latest(state)
            assert (restored and restored.step) == expected
            checkpoints.save(1, state, extra={}, metrics={})
    assert [path.name for path in (tmp_path / name / "checkpoints").iterdir()] == ["1"]


@pytest.mark.parametrize("part", ["manifest.ocdbt", "d"])
def test_tracebacks_of_background_threads_are_not_shown(copied, capfd, part):
    (copied / "2" / "SHA256SUMS").unlink()
    path = copied / "2" / "state" / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with Checkpoints(copied, keep=5) as checkpoints:
        restored = checkpoints.restore_latest(make_state())
    gc.collect()
    assert restored.step == 1
    assert capfd.readouterr().err == ""


def test_restores_onto_any_number_of_devices(tmp_path):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    state = make_state(1)

    def sharded(leaf):
        spec = PartitionSpec("data") if leaf.ndim and leaf.shape[0] % 8 == 0 else PartitionSpec()
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    targets = jax.tree.map(sharded, state)
    with Checkpoints(tmp_path, keep=5) as checkpoints:
        checkpoints.save(1, state, extra={}, metrics={})
        spread = checkpoints.restore_latest(targets).state
        checkpoints.save(2, spread, extra={}, metrics={})
        gathered = checkpoints.restore_latest(state).state
    assert_same(spread, state)
    assert_same(gathered, state)
    kernel, wanted = spread["params"]["dense"]["kernel"], targets["params"]["dense"]["kernel"]
    assert kernel.sharding == wanted.sharding
    assert len({str(shard.index) for shard in kernel.addressable_shards}) == 8
    assert len(spread["key"].sharding.device_set) == 8
    assert len(gathered["params"]["dense"]["kernel"].sharding.device_set) == 1


KILLED_WHILE_SAVING = """
    import os, pathlib, signal, sys, time, warnings
    import jax, jax.numpy as jnp, numpy as np
    from aninfonce_jax.training.checkpoint import Checkpoints

    warnings.simplefilter("ignore", RuntimeWarning)  # JAX is loaded, not started: fork is safe
    directory, log = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

    def state(step):
        return {"x": jnp.full((300, 300), step, jnp.float32), "step": jnp.int32(step)}

    def save_forever():
        checkpoints = Checkpoints(directory, keep=2)
        restored = checkpoints.restore_latest(state(0))
        step = restored.step if restored else 0
        if restored and not (np.asarray(restored.state["x"]) == step).all():
            log.write_text("wrong state")
            os._exit(1)
        with log.open("a", buffering=1) as out:
            out.write(f"start {step}\\n")
            while True:
                step += 1
                checkpoints.save(step, state(step), extra={}, metrics={"r2": -step})
                if step % 3 == 0:
                    checkpoints.wait()
                    out.write(f"saved {step}\\n")

    def unfinished():
        return {path.name for path in directory.glob("*tmp*")}

    for trial in range(6):
        # Every other child dies only after a completed save, however slow the machine.
        awaited = ("start", "saved")[trial % 2]
        before = log.read_text().count(awaited) if log.exists() else 0
        left_behind = unfinished()
        child = os.fork()
        if child == 0:
            save_forever()
        # It saves again and again: it is killed in the middle of one.
        while (
            not log.exists()
            or log.read_text().count(awaited) == before
            or not unfinished() - left_behind
        ):
            if os.waitpid(child, os.WNOHANG)[0]:
                sys.exit("a child died by itself")
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


def test_kill_9_while_saving_loses_no_completed_checkpoint(tmp_path):
    log = tmp_path / "log"
    code = textwrap.dedent(KILLED_WHILE_SAVING)
    directory = tmp_path / "checkpoints"
    process = subprocess.run(
        [sys.executable, "-c", code, str(directory), str(log)], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [word for word, _ in lines].count("start") == 6
    completed = 0
    for word, step in lines:
        if word == "saved":
            completed = int(step)
        else:
            assert int(step) >= completed
    target = {"x": jnp.zeros((300, 300)), "step": jnp.int32(0)}
    with Checkpoints(directory, keep=2) as checkpoints:
        restored = checkpoints.restore_latest(target)
    assert restored.step >= completed > 0
    chex.assert_trees_all_equal(restored.state["x"], jnp.full((300, 300), restored.step, float))
    assert not [problem for problem in restored.problems if "damaged" in problem]
