"""What processes agree on: threads play them, with a store in memory."""

from concurrent.futures import ThreadPoolExecutor

import jax
import pytest
from memory_store import MemoryStore

from aninfonce_jax.cli import EXIT_FAILED, EXIT_PEER_LOST, EXIT_USAGE
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.distributed.equal import require_equal, settings, versions
from aninfonce_jax.distributed.peers import ALONE, PeerError, Peers, exit_code_of
from aninfonce_jax.distributed.watch import Failure


def together(count, act, store=None):
    """Calls act(peers) in as many threads as processes; returns results or errors."""
    store = store or MemoryStore()

    def one(process):
        try:
            return act(Peers(process, count, store))
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_what_the_first_does_all_get():
    done = []

    def act(peers):
        return [peers.by_first("work", lambda: done.append(peers.process) or {"a": [1, None]})] * 2

    assert together(3, act) == [[{"a": [1, None]}] * 2] * 3
    assert done == [0]


def test_all_hand_in_and_the_first_decides():
    def act(peers):
        first = peers.decide("sum", peers.process + 1, sum)
        return first, peers.any("one", peers.process == 2), peers.any("none", False)

    assert together(4, act) == [(10, True, False)] * 4


def test_nothing_is_left_behind_in_the_store():
    store = MemoryStore()
    together(3, lambda peers: [peers.wait_for_all("here") for _ in range(20)], store)
    assert len(store.texts) <= 1


def test_a_single_process_asks_itself():
    assert ALONE.by_first("work", lambda: (1, 2)) == (1, 2)
    assert ALONE.decide("sum", 3, sum) == 3
    assert ALONE.any("stop", True)
    with ALONE.watched(1.0), ALONE.telling():
        ALONE.at("here")
        ALONE.check()


def test_a_single_process_gets_its_errors_as_they_are():
    with pytest.raises(ZeroDivisionError), ALONE.telling():
        ALONE.by_first("work", lambda: 1 / 0)


def test_an_error_of_the_first_reaches_those_who_wait():
    def act(peers):
        with peers.watched():
            return peers.by_first("work", lambda: int("x"))

    first, *others = together(3, act)
    assert isinstance(first, ValueError)
    for error in others:
        assert isinstance(error, PeerError)
        assert error.code == EXIT_FAILED
        assert str(error).startswith("process 0 failed: ValueError: invalid literal")


def test_an_error_of_another_reaches_the_first():
    def act(peers):
        with peers.watched(), peers.telling():
            if peers.process == 1:
                raise ConfigError("no such key")
            peers.wait_for_all("here")

    first, second, third = together(3, act)
    assert isinstance(second, ConfigError)
    for error in (first, third):
        assert str(error) == "process 1 failed: no such key"
        assert error.code == EXIT_USAGE


def test_those_who_wait_in_different_places_are_told():
    def act(peers):
        with peers.watched():
            return peers.decide(f"place {peers.process}", 1, sum)

    first, second = together(2, act)
    assert "process 1 is at 'place 1' and process 0 at 'place 0'" in str(first)
    assert isinstance(second, PeerError)


def test_a_store_that_is_gone_is_a_lost_peer():
    store = MemoryStore()
    store.is_lost = True
    errors = together(2, lambda peers: peers.wait_for_all("here"), store)
    for error in errors:
        assert isinstance(error, PeerError)
        assert error.code == EXIT_PEER_LOST


def test_equal_values_pass_and_others_are_told_with_both():
    def act(peers):
        require_equal(peers, "versions", versions())
        own = {"jax": "0.10.2" if peers.process < 2 else "0.9.0", "same": 1}
        require_equal(peers, "values", own)

    for error in together(3, act):
        assert isinstance(error, ConfigError)
        assert str(error) == (
            "process 2 differs from process 0: jax is '0.9.0' there and '0.10.2' here; make all "
            "processes alike"
        )


def test_the_versions_of_all_that_matters_are_compared():
    assert set(versions()) >= {"jax", "jaxlib", "flax", "optax", "numpy", "Python"}
    assert versions()["jax"]


def test_settings_of_jax_that_change_numbers_are_compared():
    with jax.default_prng_impl("rbg"), jax.default_matmul_precision("float32"):
        changed = settings()
    assert changed["jax_default_prng_impl"] == "rbg" != settings()["jax_default_prng_impl"]
    assert changed["jax_default_matmul_precision"] == "float32"
    # None of them has gone from jax.
    assert "None" not in {x for name, x in settings().items() if "precision" not in name}


def test_every_error_has_a_code():
    assert exit_code_of(ConfigError("x")) == EXIT_USAGE
    assert exit_code_of(OSError("x")) == EXIT_FAILED
    assert exit_code_of(KeyboardInterrupt()) == 130
    assert exit_code_of(PeerError(Failure(1, "gone", 76))) == EXIT_PEER_LOST
