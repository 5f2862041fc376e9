"""What a run results in, to be compared with another of the same config, bit for bit."""

import functools
import json

import jax
import numpy as np

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.build import build_experiment
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import registry
from aninfonce_jax.training import loop

# Of a row of metrics.jsonl, and of eval.json: what measures the machine, or follows from that.
UNEQUAL = registry.TIMINGS | {"metrics_sha256", "digest"}


_experiment = functools.cache(build_experiment)


def _bits(leaf):
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes()


def state_of(folder):
    """Returns the bytes of every array of the latest checkpoint, which must be whole."""
    experiment, placement = _experiment(workdir_lib.read_config(folder)), Placement.local()
    with loop.open_checkpoints(folder, experiment, placement) as checkpoints:
        restored = checkpoints.restore_latest(loop.abstract_state(experiment, placement))
    assert restored.problems == ()
    return [_bits(leaf) for leaf in jax.tree.leaves(restored.state)]


def result_of(folder):
    """Returns scores, rows and state of a run that has ended."""
    scores = json.loads((folder / "eval.json").read_text())
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {
        "scores": {name: value for name, value in scores.items() if name not in UNEQUAL},
        "rows": [{k: v for k, v in row.items() if k not in registry.TIMINGS} for row in rows],
        "state": state_of(folder),
    }
