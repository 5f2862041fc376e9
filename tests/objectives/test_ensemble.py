import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.models.encoder import as_encoder
from aninfonce_jax.objectives.contrastive import AnInfoNCE, InfoNCE
from aninfonce_jax.objectives.diet import Diet
from aninfonce_jax.objectives.ensemble import Ensemble
from aninfonce_jax.objectives.objective import NeedsError, Objective
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.ensemble import EnsembleSource
from aninfonce_jax.sources.source import Latents, Source
from aninfonce_jax.types import Pairs

BATCH, DIM = 8, 3
PLACEMENT = Placement.local(2)
VIEWS = jax.random.normal(jax.random.key(0), (2, 2, BATCH, DIM))
MEMBERS = tuple(Pairs(*views) for views in VIEWS)
KEY = jax.random.key(1)


def together(*members):
    return Pairs(members[0].view1, members[0].view2, members=members)


def identity(observations):
    return observations


@pytest.mark.parametrize("objective", [AnInfoNCE(concentration_jitter=0.1), InfoNCE()])
def test_an_ensemble_of_one_is_its_member_to_the_last_bit(objective):
    single = Ensemble((objective,))
    params, own = (x.init(KEY, DIM) for x in (single, objective))
    chex.assert_trees_all_equal(params, {"member_1": own})
    args = identity, together(MEMBERS[0]), KEY, PLACEMENT
    loss, metrics = jax.jit(lambda p: single(p, *args))(params)
    expected, logged = jax.jit(lambda p: objective(p, *args))(own)
    assert loss == expected == metrics["loss"] == metrics["member_1_loss"]
    chex.assert_trees_all_equal({key: metrics[f"member_1_{key}"] for key in logged}, logged)
    grads = jax.jit(jax.grad(lambda p: single(p, *args)[0]))(params)
    expected = jax.jit(jax.grad(lambda p: objective(p, *args)[0]))(own)
    chex.assert_trees_all_equal(grads["member_1"], expected)
    assert single.chance(16) == objective.chance(16)
    assert single.largest_gain(16) == objective.largest_gain(16)
    assert single.compares_directions
    chex.assert_trees_all_equal(single.compared(VIEWS[0, 0]), objective.compared(VIEWS[0, 0]))


def test_losses_are_summed_with_their_weights():
    members = AnInfoNCE(concentration_start=2.0), AnInfoNCE(concentration_start=9.0)
    ensemble = Ensemble(members, weights=(1.0, 0.25))
    params = ensemble.init(KEY, DIM)

    def evaluate(objective, own, pairs):
        return jax.jit(lambda p: objective(p, identity, pairs, KEY, PLACEMENT))(own)

    loss, metrics = evaluate(ensemble, params, together(*MEMBERS))
    losses = [
        evaluate(member, params[name], pairs)[0]
        for member, name, pairs in zip(members, ensemble.names, MEMBERS, strict=True)
    ]
    np.testing.assert_allclose(loss, losses[0] + 0.25 * losses[1], rtol=1e-6)
    np.testing.assert_allclose([metrics["member_1_loss"], metrics["member_2_loss"]], losses)
    learned = ensemble.member_concentrations(params, DIM)
    np.testing.assert_allclose(learned, [[2.0] * DIM, [9.0] * DIM], rtol=1e-6)
    assert ensemble.concentration(params, DIM) is None
    assert ensemble.target(Latents(identity, np.ones(DIM))) is None
    assert ensemble.chance(16) == pytest.approx(1.25 * members[0].chance(16))


def test_penalties_of_members_are_added_in_training_and_not_logged_as_loss():
    ensemble = Ensemble((AnInfoNCE(centring=3.0), AnInfoNCE()))
    params = ensemble.init(KEY, DIM)
    args = identity, together(*MEMBERS), KEY, PLACEMENT
    plain, _ = jax.jit(lambda p: ensemble(p, *args))(params)
    value, metrics = jax.jit(lambda p: ensemble.in_training(p, *args, jnp.zeros(())))(params)
    assert value > plain
    np.testing.assert_allclose(metrics["loss"], plain, rtol=1e-6)


def test_what_does_not_go_together_is_refused():
    objective = AnInfoNCE()
    with pytest.raises(ValueError, match="at least one member"):
        Ensemble(())
    with pytest.raises(ValueError, match="as many weights, or none; got 1"):
        Ensemble((objective, objective), (1.0,))
    ensemble = Ensemble((objective, objective))
    with pytest.raises(ValueError, match="needs a source with as many members, got pairs of 0"):
        ensemble(ensemble.init(KEY, DIM), identity, MEMBERS[0], KEY, PLACEMENT)


class Counted(Source):
    """Noise, each row of which has a number."""

    def __init__(self, pair_count):
        self.count = pair_count

    @property
    def pair_count(self):
        return self.count

    def example(self):
        return jnp.zeros((2, DIM))

    def pairs(self, key, fed, batch_size):
        views = jax.random.normal(key, (2, batch_size, DIM))
        return Pairs(*views, number=None if self.count is None else jnp.arange(batch_size))


def test_a_member_gets_what_it_asks_its_own_source_for():
    members = AnInfoNCE(), Diet()
    source = EnsembleSource(Counted(None), [Counted(None), Counted(40)])
    made = Ensemble(members).for_run(source, as_encoder(nn.Dense(DIM)))
    assert made.members[1].examples == 40
    assert made.init(KEY, DIM)["member_2"]["head"].shape == (40, DIM)
    made.check(source)
    assert not made.tells_of_others
    assert Ensemble(members[:1]).tells_of_others
    other_way_round = EnsembleSource(Counted(None), [Counted(40), Counted(None)])
    with pytest.raises(NeedsError, match="DIET needs to know which example a pair shows"):
        made.check(other_way_round)


def test_an_ensemble_whose_members_ask_for_nothing_stays_as_it_is():
    ensemble = Ensemble((AnInfoNCE(), InfoNCE()))
    source = EnsembleSource(Counted(None), [Counted(None)] * 2)
    assert ensemble.for_run(source, as_encoder(nn.Dense(DIM))) is ensemble


def test_nothing_that_an_objective_may_tell_is_left_out():
    """Also what an objective will be asked tomorrow: without it, the default would answer."""
    protocol = {name for name in vars(Objective) if not name.startswith("_")} | {"__call__"}
    assert not protocol - set(vars(Ensemble))
