"""Whether several seeds of a small model train faster in one program than one after the other.

    python benchmarks/seeds.py [--seeds=4] [--steps=20] [--rounds=5] [--widths=64,64] [--batch=256]
        [--space=sphere|real]

The training step of a run, as the loop compiles it, is taken for each seed in turn, and mapped over
the states of all seeds by `jax.vmap`: as many steps of as many networks, on data of their own
through one mixing. Both take turns; what is printed is how many times longer one after the other
takes.
"""

import argparse

import jax
from timing import interleave, ratio

from aninfonce_jax import config as config_lib
from aninfonce_jax import rng
from aninfonce_jax.build import build_experiment
from aninfonce_jax.config.file import load_config
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.state import TrainState
from aninfonce_jax.training.step import make_train_step


def make_experiment(args: argparse.Namespace) -> Experiment:
    overrides = {
        "compare": (),
        "source.dim": args.dim,
        "source.mixing.candidates": 1000,
        "encoder.widths": tuple(int(width) for width in args.widths.split(",")),
        "train.batch_size": args.batch,
        "train.steps": 10_000,
        "train.steps_per_dispatch": args.steps,
    }
    if args.space == "real":
        # Drawn without rejection, and compiled in a fraction of the time.
        overrides |= {
            "source.space": "real",
            "source.marginal": "normal",
            "source.conditional": "normal",
            "encoder.output": "none",
            "objective.normalize": False,
            "objective.spreading": 0.0,
        }
    runs = config_lib.resolve(load_config("configs/quickstart.py"), overrides).runs
    return build_experiment(next(iter(runs.values())))


def states(experiment: Experiment, count: int) -> list[TrainState]:
    """Returns the first state of each seed."""

    def one(seed: int) -> TrainState:
        state = experiment.init_state()
        variables = experiment.encoder.init(
            rng.stream(seed, "encoder"), experiment.source.example()
        )
        params = {**state.params, "encoder": variables["params"]}
        return TrainState(
            state.step,
            rng.stream(seed, "data"),
            params,
            state.model_state,
            experiment.optimizer.init(params),
            None,
        )

    return [one(seed) for seed in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20, help="of each seed in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--widths", default="64,64")
    parser.add_argument("--space", choices=("sphere", "real"), default="sphere")
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    experiment = make_experiment(args)
    step = make_train_step(experiment, Placement.local(1))
    own = states(experiment, args.seeds)
    together = jax.tree.map(lambda *leaves: jax.numpy.stack(leaves), *own)
    # The step donates its state; a copy is what a turn consumes.
    mapped = jax.jit(jax.vmap(lambda state: step(state, None, args.steps)[0]))

    def in_turn() -> None:
        for state in own:
            jax.block_until_ready(step(jax.tree.map(jax.numpy.copy, state), None, args.steps)[0])

    def at_once() -> None:
        jax.block_until_ready(mapped(together))

    seconds = interleave({"in turn": in_turn, "at once": at_once}, args.rounds)
    print(
        f"{args.seeds} seeds, widths {args.widths}, batch {args.batch}, {args.dim} factors in a "
        f"{args.space} space: one after the other takes "
        f"{ratio(seconds, 'in turn', 'at once')} as long as in one program"
    )


if __name__ == "__main__":
    main()
