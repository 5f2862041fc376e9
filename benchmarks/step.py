"""A training step of the paper's experiment: ours, plain PyTorch, and the bare products.

    pip install torch==2.13.0
    python benchmarks/step.py [--rounds=20] [--optimizer=adam]
    python benchmarks/step.py --against=DIR    (an older checkout; needs no PyTorch)

All three work on the same shapes: batch 1000, d = 10, the paper's encoder, both views as
anchors and as negatives. Ours and PyTorch's draw their own positives from the paper's shell,
mix, encode, take the loss and an Adam step. The bare products are the matrix products that
no implementation of the encoder's and the loss's value and gradient can avoid, and nothing
else. The contestants take turns; what counts is the ratio.

With --against, our step takes turns with that of another checkout of this project, each in a
process of its own. Both count their own processor's seconds, so work of others does not count.
"""

import argparse
import dataclasses
import itertools
import os
import pathlib
import subprocess
import sys
import time

import jax
from timing import interleave, ratio

from aninfonce_jax.build import build_experiment
from aninfonce_jax.config import resolve
from aninfonce_jax.models.mlp import paper_widths
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.step import make_train_step

DIM, BATCH, STEPS = 10, 1000, 10
CONCENTRATION = [25.0] * 5 + [5.0] * 5
WIDTHS = (DIM, *paper_widths(DIM), DIM)


def our_steps(optimizer: str):
    """Returns a function that takes STEPS steps of ours."""
    (config,) = resolve({}, {"optimizer.kind": optimizer}).runs.values()
    config = dataclasses.replace(
        config,
        source=dataclasses.replace(config.source, sampler="paper"),
        objective=dataclasses.replace(config.objective, negatives="both"),
        train=dataclasses.replace(config.train, steps_per_dispatch=STEPS, ema_decay=0.0),
    )
    placement = Placement.local(1)
    experiment = build_experiment(config)
    step = make_train_step(experiment, placement)
    state = jax.jit(experiment.init_state, out_shardings=placement.whole)()

    def run():
        nonlocal state
        state, metrics = step(state, None, STEPS)
        jax.block_until_ready(metrics)

    return run


def torch_sample(mixing):
    """Draws a batch of pairs: uniform anchors, shell rejection, mixing."""
    import torch

    scale = torch.tensor(CONCENTRATION).rsqrt()
    anchors = torch.nn.functional.normalize(torch.randn(BATCH, DIM), dim=1)
    positives = torch.empty_like(anchors)
    missing = torch.arange(BATCH)
    while len(missing):
        proposal = anchors[missing] + scale * torch.randn(len(missing), DIM)
        norm = proposal.norm(dim=1)
        kept = (norm - 1).abs() < 0.1
        positives[missing[kept]] = proposal[kept] / norm[kept, None]
        missing = missing[~kept]
    x = torch.cat([anchors, positives])
    for index, weight in enumerate(mixing):
        x = x @ weight
        if index < len(mixing) - 1:
            x = torch.nn.functional.leaky_relu(x, 0.2)
    return x


def torch_loss(embeddings, free):
    """AnInfoNCE over both views, in the product form and with one log-sum-exp."""
    import torch

    z = torch.nn.functional.normalize(embeddings, dim=1)
    concentration = torch.nn.functional.softplus(free)
    scaled = z * concentration
    bias = -0.5 * (scaled * z).sum(1)
    logits = torch.addmm(bias[None, :], scaled, z.T)
    logits.fill_diagonal_(float("-inf"))
    target = torch.arange(2 * BATCH).roll(BATCH)
    return torch.nn.functional.cross_entropy(logits, target)


def torch_steps():
    """Returns a function that takes STEPS steps of plain PyTorch."""
    import torch

    layers = []
    for fan_in, fan_out in itertools.pairwise(WIDTHS):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.LeakyReLU(0.01)]
    encoder = torch.nn.Sequential(*layers[:-1])
    free = torch.nn.Parameter(torch.zeros(DIM))
    optimizer = torch.optim.Adam(
        [{"params": encoder.parameters(), "lr": 1e-4}, {"params": [free], "lr": 1e-3}]
    )
    mixing = [torch.linalg.qr(torch.randn(DIM, DIM))[0] for _ in range(3)]

    def run():
        for _ in range(STEPS):
            loss = torch_loss(encoder(torch_sample(mixing)), free)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss.item()

    return run


def bare_products():
    """Returns a function that runs STEPS times the products of a step."""
    keys = jax.random.split(jax.random.key(0), len(WIDTHS))
    inputs = [jax.random.normal(k, (2 * BATCH, w)) for k, w in zip(keys, WIDTHS, strict=True)]
    weights = [
        jax.random.normal(k, shape)
        for k, shape in zip(keys[1:], itertools.pairwise(WIDTHS), strict=True)
    ]
    logits = jax.random.normal(keys[0], (2 * BATCH, 2 * BATCH))

    @jax.jit
    def products(inputs, weights, logits):
        out = []
        for i, w in enumerate(weights):
            out += [inputs[i] @ w, inputs[i].T @ inputs[i + 1]]
            if i:
                out.append(inputs[i + 1] @ w.T)
        z = inputs[-1]
        return [*out, z @ z.T, logits @ z, logits.T @ z]

    def run():
        for _ in range(STEPS):
            jax.block_until_ready(products(inputs, weights, logits))

    return run


def work(optimizer):
    """Takes our steps whenever a line comes, and answers with the seconds that they took."""
    run = our_steps(optimizer)
    for _ in sys.stdin:
        start = time.process_time()
        run()
        print(time.process_time() - start, flush=True)


class Checkout:
    """Our steps, as the code in a folder takes them, in a process of its own."""

    def __init__(self, folder, optimizer):
        folder = pathlib.Path(folder).resolve()
        # Its own script, because what a step is called with may differ.
        script = folder / "benchmarks" / "step.py"
        self._process = subprocess.Popen(
            [sys.executable, script, "--worker", f"--optimizer={optimizer}"],
            env=os.environ | {"PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self):
        """Returns the processor's seconds of one run."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def compare(folder, optimizer, rounds):
    """Prints how much longer a step took in another checkout."""
    here = pathlib.Path(__file__).resolve().parent.parent
    contestants = {"there": Checkout(folder, optimizer), "here": Checkout(here, optimizer)}
    seconds = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, checkout in contestants.items():
            spent = checkout.seconds()
            if turn:  # the first round is thrown away
                seconds[name].append(spent)
    print(f"the other checkout takes {ratio(seconds, 'there', 'here')} the time of this one")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--against", help="another checkout to compare with")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments.optimizer)
    if arguments.against:
        return compare(arguments.against, arguments.optimizer, arguments.rounds)
    contestants = {
        "ours": our_steps(arguments.optimizer),
        "torch": torch_steps(),
        "bare": bare_products(),
    }
    seconds = interleave(contestants, arguments.rounds)
    print(
        f"{arguments.rounds} rounds of {STEPS} steps, {arguments.optimizer}, batch {BATCH}, d {DIM}"
    )
    print(f"PyTorch takes {ratio(seconds, 'torch', 'ours')} of our time")
    print(f"ours takes {ratio(seconds, 'ours', 'bare')} the bare products' time")
    return None


if __name__ == "__main__":
    main()
