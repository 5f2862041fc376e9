import chex
import jax
import numpy as np
import pytest

from aninfonce_jax.dgp import conditionals, marginals
from aninfonce_jax.dgp.spaces import Real
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.placement import Rows
from aninfonce_jax.sources import pairs as pairs_lib
from aninfonce_jax.sources.ensemble import EnsembleSource
from aninfonce_jax.sources.process import ProcessSource
from aninfonce_jax.sources.source import Known, Latents, Source

KEY = jax.random.key(0)
FIRST, SECOND = [400.0, 4.0, 4.0], [4.0, 4.0, 400.0]


def process(values):
    normal = marginals.Normal(1.0)
    conditional = conditionals.Normal(values)
    return ProcessSource(LatentProcess(Real(len(values)), normal, conditional, lambda x: 3 * x))


def test_every_member_draws_by_its_own_concentration():
    members = [process(FIRST), process(SECOND)]
    source = EnsembleSource(members[0], members)
    pairs = source.pairs(KEY, None, 512)
    assert len(pairs.members) == 2
    spread = [np.std(own.latents2 - own.latents1, axis=0) for own in pairs.members]
    np.testing.assert_allclose(spread[0], np.array(FIRST) ** -0.5, rtol=0.15)
    np.testing.assert_allclose(spread[1], np.array(SECOND) ** -0.5, rtol=0.15)
    # Batches of their own, not the same one twice.
    assert np.abs(pairs.members[0].view1 - pairs.members[1].view1).max() > 1
    chex.assert_trees_all_equal(pairs.view1, pairs.members[0].view1)
    known = source.known.latents
    assert known.concentration is known.score is None
    np.testing.assert_array_equal(known.members, [FIRST, SECOND])
    assert source.fed(8) is None
    assert source.held_out(8).known.latents.members[1].tolist() == SECOND


def test_an_ensemble_of_one_gives_the_pairs_of_its_member():
    member = process(FIRST)
    source = EnsembleSource(member, [member])
    pairs, plain = source.pairs(KEY, None, 16), member.pairs(KEY, None, 16)
    chex.assert_trees_all_equal((pairs.view1, pairs.view2), (plain.view1, plain.view2))
    np.testing.assert_array_equal(source.known.latents.concentration, FIRST)


def test_members_of_unequal_dimension_are_refused():
    members = [process(FIRST), process(FIRST[:2])]
    with pytest.raises(ValueError, match=r"one shape of observations; got \(3,\), \(2,\)"):
        EnsembleSource(members[0], members)
    with pytest.raises(ValueError, match="at least one member"):
        EnsembleSource(members[0], [])


PROTOCOL = sorted(name for name in vars(Source) if not name.startswith("_"))
# What the ensemble alone can say.
ITS_OWN = {"of_members"}
ARGUMENTS = {
    "fed": (8,),
    "held_out": (8,),
    "with_held_out": (4,),
    "at_hand": (4,),
    "preview": (KEY, 2),
    "samples": (KEY, 2),
    "pairs": (KEY, None, 8),
}


class Told(ProcessSource):
    """Writes down what it is asked."""

    def __getattribute__(self, name):
        if name in PROTOCOL:
            object.__getattribute__(self, "__dict__").setdefault("asked", []).append(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("name", [name for name in PROTOCOL if name not in ITS_OWN])
def test_nothing_that_a_source_may_tell_is_left_out(name):
    """Also what a source will be asked tomorrow: without it here, the default would answer."""
    assert name in vars(EnsembleSource), f"EnsembleSource answers {name} by the default of Source"
    told = [Told(process(FIRST).process), Told(process(SECOND).process)]
    source = EnsembleSource(told[0], told)
    for own in told:
        own.__dict__["asked"] = []
    found = getattr(source, name)
    if name == "open_feed":
        with pytest.raises(RuntimeError):
            found(None, seed=0, step=0)
    elif callable(found):
        found(*ARGUMENTS.get(name, ()))
    assert name in told[0].__dict__["asked"]


def test_pairs_of_an_ensemble_of_arrays_are_set_aside():
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    plain = pairs_lib.augmented(rows, lambda key, x: x)
    noisy = pairs_lib.augmented(rows, lambda key, x: x + jax.random.normal(key, x.shape))
    source = EnsembleSource(plain, [plain, noisy])
    np.testing.assert_array_equal(source.at_hand(8)[0], rows)
    assert source.held_out(8) is None
    apart = source.with_held_out(8)
    assert (source.pair_count, apart.pair_count, apart.held_out(8).pair_count) == (40, 32, 8)
    assert apart.whole is apart.members[0]
    assert apart.fingerprint() == apart.whole.fingerprint() != source.fingerprint()
    fed = next(apart.held_out(8).open_feed(Rows(8), seed=0, step=0))
    first, second = apart.held_out(8).pairs(KEY, fed, 8).members
    seen = {tuple(row) for row in np.asarray(first.view1)}
    assert len(seen) == 8
    assert np.abs(second.view1 - first.view1).max() > 0.1


def test_anchors_that_are_drawn_in_another_way_are_kept():
    class Shifted(ProcessSource):
        @property
        def known(self):
            latents = super().known.latents
            return Known(latents=Latents(latents.draw, latents.concentration, draw_shifted=max))

    members = [Shifted(process(values).process) for values in (FIRST, SECOND)]
    assert EnsembleSource(members[0], members).known.latents.draw_shifted is max
    assert EnsembleSource(members[0], members[:1]).known.latents.draw_shifted is max
