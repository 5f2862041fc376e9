"""A program of one's own under jax.distributed: python library_worker.py FOLDER FLAGS.

Trains on arrays that the host feeds, and writes down which rows each process was asked for.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np
import optax

import aninfonce_jax as an


class Waves(an.Source):
    """Pairs of noisy points, by their number."""

    def __init__(self, log):
        self.log = log

    def example(self):
        return np.zeros((2, 4), np.float32)

    def fed(self, batch_size):
        return jax.ShapeDtypeStruct((batch_size, 4), np.float32)

    def open_feed(self, rows, *, seed, step):
        while True:
            positions = rows.positions(step)
            with self.log.open("a") as log:
                log.write(json.dumps([step, positions.tolist()]) + "\n")
            yield np.sin(positions[:, None] * np.arange(1, 5)).astype(np.float32)
            step += 1

    def pairs(self, key, fed, batch_size):
        noise = 0.1 * jax.random.normal(key, fed.shape)
        return an.Pairs(fed, fed + noise)


def init(key, observations):
    return jax.random.normal(key, (observations.shape[1], 4))


def apply(params, observations):
    return observations @ params


def main(folder, flags):
    values = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    rank = int(values["process_id"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(values["coordinator"], int(values["num_processes"]), rank)
    source = Waves(folder / f"rows{rank}.jsonl")
    experiment = an.Experiment(
        source, (init, apply), an.objectives.AnInfoNCE(), optax.adam(1e-2), steps=3, batch_size=8
    )
    result = an.train(experiment, folder / "run", progress="off")
    (folder / f"result{rank}.json").write_text(
        json.dumps(np.asarray(result.state.params["encoder"]).tolist())
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
