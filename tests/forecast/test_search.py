"""The search for the largest batch, and what may make a run fit, without a compiler."""

import dataclasses

import pytest

from aninfonce_jax.config.kinds import ResNetConfig
from aninfonce_jax.config.schema import Config, TrainConfig
from aninfonce_jax.forecast.chips import parse_topologies
from aninfonce_jax.forecast.search import MOST_TIMES, Trial, remedies, search_batch

FIXED, EACH = 1000, 7.0


class Memory:
    """A compiler that fits what a function of the batch allows, and counts its calls."""

    def __init__(self, usable, needs=lambda batch: FIXED + EACH * batch):
        self.usable, self.needs, self.calls = usable, needs, []

    def trial(self, batch):
        return Trial(batch, self.needs(batch) <= self.usable, int(self.needs(batch)))

    def __call__(self, batch):
        self.calls.append(batch)
        return self.trial(batch)

    def search(self, first, multiple=16, compiles=20):
        return search_batch(
            self.trial(first), self, multiple=multiple, fixed=FIXED, usable=self.usable,
            compiles=compiles,
        )  # fmt: skip


@pytest.mark.parametrize("usable", [3_000, 30_000, 60_000])
@pytest.mark.parametrize("multiple", [8, 16])
def test_a_line_is_followed_to_its_limit_in_few_compiles(usable, multiple):
    memory = Memory(usable)
    found = memory.search(256, multiple)
    true = (usable - FIXED) / EACH
    assert found.is_done
    assert found.largest % multiple == 0
    assert found.largest <= true
    assert true - found.largest <= max(multiple, found.largest / 16) + multiple
    assert len(memory.calls) <= 6


def test_memory_that_grows_in_other_ways_is_searched_all_the_same():
    for needs in (
        lambda batch: FIXED + 0.02 * batch**2,
        lambda batch: FIXED + 300 * batch**0.5,
        # A compiler that finds another way from some batch on.
        lambda batch: FIXED + (EACH * batch if batch < 4096 else 3 * batch),
    ):
        memory = Memory(20_000, needs)
        found = memory.search(256)
        assert found.is_done
        assert needs(found.largest) <= memory.usable
        if found.too_large is not None:
            assert needs(found.too_large) > memory.usable
            assert found.too_large - found.largest <= max(16, found.largest / 16) + 16


def test_a_batch_that_does_not_fit_is_searched_downwards():
    found = Memory(3_000).search(4096)
    assert 0 < found.largest <= (3_000 - FIXED) / EACH
    assert found.too_large > found.largest


def test_nothing_that_fits_is_said_to_be_none():
    found = Memory(FIXED - 1).search(64)
    assert found.largest is None
    assert found.too_large == 16


def test_the_number_of_compiles_is_kept_and_an_unfinished_search_says_so():
    memory = Memory(20_000, lambda batch: FIXED + 0.02 * batch**2)
    found = memory.search(64, compiles=1)
    assert len(memory.calls) == 1
    assert not found.is_done
    assert memory.search(64, compiles=0).largest == 64


def test_far_larger_batches_are_not_tried():
    memory = Memory(10**12)
    found = memory.search(64)
    assert found.largest == MOST_TIMES * 64
    assert found.too_large is None
    assert found.is_done


def ways(config, name):
    return [[way.what for way in ways] for ways in remedies(config, parse_topologies(name)[0])]


def test_ways_to_make_a_run_fit_go_from_the_cheapest_change_on():
    config = Config(encoder=ResNetConfig(), train=TrainConfig(batch_size=1024))
    assert ways(config, "v5e:4x4") == [
        ["objective.strategy=ring"],
        ["encoder.remat=true"],
        [f"train.microbatches={parts}" for parts in (2, 4, 8, 16, 32)],
        ["--topology=v5e:4x8", "--topology=v5e:8x8", "--topology=v5e:8x16"],
    ]
    # A pod of v5e has 256 chips.
    assert ways(config, "v5e:8x16")[-1] == ["--topology=v5e:16x16"]


def test_what_is_done_already_or_can_t_be_is_not_proposed():
    config = Config(
        encoder=ResNetConfig(remat=True), train=TrainConfig(batch_size=48, microbatches=2)
    )
    ring = dataclasses.replace(config.objective, strategy="ring")
    config = dataclasses.replace(config, objective=ring)
    # 48 pairs over 8 devices are 6 each, which four parts do not divide.
    assert ways(config, "v5e:2x4") == []
    assert ways(config, "v5e:1x1")[0] == ["objective.strategy=chunked"]
