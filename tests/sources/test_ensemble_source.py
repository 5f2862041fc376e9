import chex
import jax
import numpy as np
import pytest

from aninfonce_jax.dgp import conditionals, marginals
from aninfonce_jax.dgp.spaces import Real
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.sources.ensemble import EnsembleSource
from aninfonce_jax.sources.process import ProcessSource

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
