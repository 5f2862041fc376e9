"""From compiled steps to numbers, lines and a page; the compiler is a function of the test's."""

import dataclasses
import json
from pathlib import Path

import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.forecast.arithmetic import Flops
from aninfonce_jax.forecast.chips import parse_topologies
from aninfonce_jax.forecast.compiler import CompiledStep, Memory
from aninfonce_jax.forecast.forecast import MOST_COMPILES, examples_of, forecast
from aninfonce_jax.forecast.hlo import Collective, Traffic
from aninfonce_jax.forecast.lines import lines
from aninfonce_jax.report.forecast import write_forecast

GIB = 2**30
FIXED = 2 * GIB
LOSS = 64 * 2**20


class Compiler:
    """Answers as a compiler would whose programs take a megabyte a pair and device."""

    def __init__(self, usable=15.75, seconds=1.0, gives_up=True):
        self.usable, self.seconds, self.gives_up = int(usable * GIB), seconds, gives_up
        self.seen = []

    def __call__(self, config: Config, topology):
        values = config_lib.flatten(config)
        self.seen.append((topology.name, values))
        parts = values["train.microbatches"] * (2 if values.get("encoder.remat") else 1)
        rows = config.train.batch_size // topology.size
        total = FIXED + rows * 2**20 // parts
        fits = total <= self.usable
        rest = None if not fits and self.gives_up else total - FIXED
        memory = Memory(GIB, GIB, 0, rest, total, self.usable)
        nodes = topology.size // topology.per_node
        traffic = Traffic(
            memory=400 * GIB,
            memory_once=200 * GIB,
            collectives=(
                Collective("all-reduce", 3, GIB, ("data",), topology.size, nodes, is_async=False),
            ),
            kernels=0,
            open_loops=2,
        )
        return CompiledStep(
            memory,
            Flops({"bfloat16": int(1e14) * parts}),
            traffic if rest is not None else None,
            compiler_flops=1e12,
            compiler_bytes=100.0 * GIB,
            seconds=self.seconds,
            dispatch_steps=50,
        )


def make(compiler, name="v5e:4x4", compiles=None, **changes):
    values = config_lib.default_config()
    given = {key.replace("__", "."): value for key, value in changes.items()}
    (config,) = config_lib.resolve(values, {"train.batch_size": 4096} | given).runs.values()
    said = []
    (topology,) = parse_topologies(name)
    found = forecast(
        "mine", config, topology, compiler, lambda *_: LOSS, compiles=compiles, say=said.append
    )
    return found, said


def text(found):
    return "\n".join(lines(found))


def test_a_run_that_fits():
    found, said = make(Compiler(), compiles=0)
    assert found["fits"]
    assert found["memory"]["total"] == FIXED + 256 * 2**20
    # A loop's body that runs twice moves twice what the compiler counts.
    assert found["moved"] == 200 * GIB
    memory = 200 * GIB / 819e9
    assert found["bounds"]["by"] == "memory"
    assert found["step_seconds"] == pytest.approx([memory, memory / 0.4])
    assert found["run_hours"] == pytest.approx(
        [s * found["steps"] / 3600 for s in found["step_seconds"]]
    )
    assert found["chip_hours"] == pytest.approx([16 * hours for hours in found["run_hours"]])
    assert found["epoch_seconds"] is None
    assert said[-1].endswith("the largest batch is not searched (--compiles=0)")
    shown = text(found)
    for words in (
        "mine on v5e:4x4 (16 × TPU v5e, 4 hosts), batch 4,096",
        "fits: 2.25 GiB of 15.75 GiB that a program can have, per device",
        "parameters 1 GiB; optimiser 1 GiB; batch 0 bytes; loss 64 MiB; "
        "activations and the rest 192 MiB",
        "3 all-reduce over data (16 devices), 1 GiB, blocking",
        "bound by HBM",
        "a call to the devices takes 50 steps; numbers are those of one",
        "1 more of its loops, whose length only the data tell, count once",
    ):
        assert words in shown


def test_the_largest_batch_is_one_that_was_compiled():
    compiler = Compiler()
    found, said = make(compiler)
    largest = found["largest_batch"]
    assert largest["is_done"]
    batches = {values["train.batch_size"] for _, values in compiler.seen}
    assert {largest["fits"], largest["does_not_fit"]} <= batches
    true = (15.75 * GIB - FIXED) / 2**20 * 16
    assert 0.93 * true < largest["fits"] <= true
    assert f"at most {MOST_COMPILES} more compiles of about 1 s" in "\n".join(said)
    assert f"largest batch seen to fit: {largest['fits']:,}; " in text(found)


def test_a_compiler_that_takes_minutes_is_not_asked_again_unless_told_to():
    slow = Compiler(seconds=400.0)
    found, _ = make(slow)
    assert len(slow.seen) == 1
    assert "largest batch that fits: not searched; --compiles=6 does" in text(found)
    asked = Compiler(seconds=400.0)
    make(asked, compiles=2)
    assert len(asked.seen) == 3


@pytest.mark.parametrize("gives_up", [True, False])
def test_a_run_that_does_not_fit_is_told_what_makes_it_fit(gives_up):
    compiler = Compiler(usable=2.2, gives_up=gives_up)
    found, said = make(
        compiler,
        source__kind="images",
        source__dataset="cifar10",
        source__folder="nowhere",
        encoder__kind="resnet18",
        optimizer__kind="sgd",
    )
    assert not found["fits"]
    assert found["largest_batch"] is None
    tried = {one["what"]: one for one in found["remedies"]}
    assert {name for name, one in tried.items() if one["fits"]} == {
        "encoder.remat=true",
        "train.microbatches=2",
        "--topology=v5e:4x8",
    }
    # A ring saves nothing here; it goes to the end.
    assert found["remedies"][-1]["what"] == "objective.strategy=ring"
    prices = [one["chip_seconds"] for one in found["remedies"][:-1]]
    assert prices == sorted(prices)
    assert "it does not fit; trying at most" in said[1]
    shown = text(found)
    least = "it takes at least 2.25 GiB" if gives_up else "2.25 GiB of 2.2 GiB"
    assert f"does not fit: {least}" in shown
    assert ("the loss by itself 64 MiB" in shown) == gives_up
    assert "fits with train.microbatches=2: 2.125 GiB" in shown
    assert "not enough: objective.strategy=ring" in shown


def test_what_does_not_help_is_not_tried_harder():
    compiler = Compiler(usable=1.0)
    found, _ = make(compiler, compiles=20)
    tried = [one["what"] for one in found["remedies"]]
    assert not any(one["fits"] for one in found["remedies"])
    assert "train.microbatches=2" in tried
    assert "train.microbatches=32" not in tried


def test_of_a_known_data_set_there_is_an_epoch_and_a_pace_of_loading():
    changes = {
        "source__kind": "images",
        "source__folder": "nowhere",
        "encoder__kind": "resnet18",
        "optimizer__kind": "sgd",
    }
    found, _ = make(Compiler(), compiles=0, source__dataset="cifar10", **changes)
    step = found["step_seconds"][0]
    assert found["epoch_seconds"][0] == pytest.approx(step * (50_000 // 4096))
    assert found["examples_per_second_of_host"][1] == pytest.approx(4096 / step / 4)
    assert "an epoch of 50,000 examples" in text(found)
    assert "each host has to load" in text(found)
    unknown, _ = make(Compiler(), compiles=0, source__dataset="folder", **changes)
    assert unknown["epoch_seconds"] is None
    assert "epoch" not in text(unknown)


@pytest.mark.parametrize(
    ("dataset", "title", "count"),
    [
        ("mnist", "", 60_000),
        ("tfds:imagenet2012", "", 1_281_167),
        ("tfds:cifar10:3.0.2", "", 50_000),
        ("folder", "imagenet", 1_281_167),
        ("folder", "", None),
    ],
)
def test_sizes_of_data_sets(dataset, title, count):
    assert examples_of({"source.dataset": dataset, "source.title": title}) == count


def test_a_batch_that_the_devices_do_not_divide_is_refused():
    said = (
        "4098 can't be divided over the 16 devices of --topology=v5e:4x4; choose a multiple of 16, "
        "or another topology"
    )
    with pytest.raises(ConfigError, match=said):
        make(Compiler(), train__batch_size=4098)
    with pytest.raises(ConfigError, match="the 256 pairs of each device of --topology=v5e:4x4"):
        make(Compiler(), train__microbatches=3)


def test_the_devices_of_a_config_are_those_of_the_machine_at_hand():
    found, _ = make(Compiler(), compiles=0, train__devices=4)
    assert "note: train.devices=4 is for the machine at hand and counts for nothing" in text(found)
    same, _ = make(Compiler(), compiles=0, train__devices=16)
    assert "train.devices" not in text(same)


def test_the_parts_of_a_device_s_memory_add_up():
    for usable in (15.75, 2.2):
        memory = make(Compiler(usable=usable, gives_up=False), compiles=0)[0]["memory"]
        parts = ("parameters", "optimizer", "batch", "loss", "activations")
        assert sum(memory[part] for part in parts) == memory["total"]
    # A loss that by itself is laid out in more room than the whole step leaves.
    small = make(Compiler(), compiles=0, train__batch_size=64)[0]["memory"]
    assert (small["loss"], small["activations"]) == (4 * 2**20, 0)


def test_a_gpu_says_what_is_not_known():
    found, _ = make(Compiler(usable=60), "h100:2x8", compiles=0)
    assert found["bounds"]["network"] > 0
    shown = text(found)
    assert "without a GPU these are not known: what autotuning chooses" in shown
    assert "over links" in shown
    assert "over the network" in shown


def test_the_page_is_made_from_the_file_alone(tmp_path: Path):
    fits, _ = make(Compiler())
    not_yet, _ = make(Compiler(usable=2.2), "h100:2x8", encoder__widths=(8,))
    workdir.write_forecasts(tmp_path, [fits, not_yet], {"jax": "0.0"})
    page = write_forecast(tmp_path).read_text()
    for words in (
        "v5e:4x4: mine fits (2.25 GiB of 15.75 GiB a device) and is bound by HBM",
        "h100:2x8: mine does not fit (at least 2.25 GiB of 2.2 GiB a device).",
        "h100:2x8: what makes it fit",
        "train.microbatches=2",
        "What bounds a step",
        "NVIDIA&#39;s data sheet",
    ):
        assert words in page
    for name in ("forecast-memory", "forecast-bounds"):
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 5000
    again = page
    assert write_forecast(tmp_path).read_text() == again
    # Nothing known of any: still a page.
    workdir.write_forecasts(tmp_path, [dict(not_yet, remedies=[])], {"jax": "0.0"})
    assert "does not fit" in write_forecast(tmp_path).read_text()
    assert json.loads((tmp_path / "compile.json").read_text())["forecasts"][0]["fits"] is False


def test_memory_that_is_known_to_be_too_much_does_not_fit():
    memory = Memory(1, 1, 1, rest=10, total=13, usable=12)
    assert not memory.fits
    assert dataclasses.replace(memory, usable=13).fits
