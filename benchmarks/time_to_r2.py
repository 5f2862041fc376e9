"""Wall time until every kind of factor is recovered: the paper's recipe and ours.

    python benchmarks/time_to_r2.py --recipe=ours
    python benchmarks/time_to_r2.py --recipe=paper      # most of an hour on two cores

Trains configs/synthetic.py until the held-out R² of content and of style have both reached
0.99, evaluating every 250 steps, and prints steps and seconds of training; on the way it says
when their mean did, which is what the paper's curves show. Times of single runs on a shared
machine mean little; steps do not depend on it, and `--recipe=pace` compares the time of a step
of each recipe, interleaved.
"""

import argparse
import time

import jax
from timing import interleave, ratio

from aninfonce_jax import config as config_lib
from aninfonce_jax.config_file import load_config
from aninfonce_jax.config_schema import Config
from aninfonce_jax.evaluation.runner import make_evaluate
from aninfonce_jax.mesh import make_mesh, replicated
from aninfonce_jax.training.state import build_experiment
from aninfonce_jax.training.step import make_train_step

VARIANTS = {"ours": "bimodal", "paper": "recipe"}
GOAL = 0.99


def recipe_config(recipe: str) -> Config:
    return config_lib.from_dict(load_config(f"configs/synthetic.py:{VARIANTS[recipe]}"))


def start(config: Config):
    """Returns the experiment, its compiled step and its first state."""
    mesh = make_mesh(1)
    experiment = build_experiment(config)
    state = jax.jit(experiment.init_state, out_shardings=replicated(mesh))()
    return experiment, make_train_step(experiment, mesh), state


def time_to_goal(recipe: str) -> None:
    config = recipe_config(recipe)
    experiment, step, state = start(config)
    evaluate = make_evaluate(experiment, make_mesh(1))
    done, seconds, dispatch = 0, 0.0, config_lib.dispatch_steps(config)
    mean_is_there = False
    step = step.lower(state, None, dispatch).compile()
    while done < config.train.steps:
        begin = time.perf_counter()
        state, metrics = step(state, None, dispatch)
        jax.block_until_ready(metrics)
        seconds += time.perf_counter() - begin
        done += dispatch
        if done % 250 == 0:
            scores = evaluate(state.evaluated, full=False)
            content, style = scores["r2_content"], scores["r2_style"]
            print(f"{recipe}: step {done} content {content:.4f} style {style:.4f}", flush=True)
            if scores["r2"] >= GOAL and not mean_is_there:
                mean_is_there = True
                print(f"{recipe}: mean R² {GOAL} in {done} steps, {seconds:.0f} s", flush=True)
            if min(content, style) >= GOAL:
                print(f"{recipe}: R² {GOAL} in {done} steps, {seconds:.0f} s of training")
                return
    print(f"{recipe}: not there after {done} steps, {seconds:.0f} s")


def compare_pace(rounds: int = 10) -> None:
    def runner(recipe: str):
        config = recipe_config(recipe)
        _, step, state = start(config)
        dispatch = config_lib.dispatch_steps(config)

        def run():
            nonlocal state
            state, metrics = step(state, None, dispatch)
            jax.block_until_ready(metrics)

        return run

    seconds = interleave({recipe: runner(recipe) for recipe in VARIANTS}, rounds)
    print(f"a step of ours takes {ratio(seconds, 'ours', 'paper')} the time of the paper's")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", choices=[*VARIANTS, "pace"], default="ours")
    recipe = parser.parse_args().recipe
    if recipe == "pace":
        compare_pace()
    else:
        time_to_goal(recipe)


if __name__ == "__main__":
    main()
