"""Settings of runs that take seconds, by dotted name: on a process, and on images."""

SMALL = {
    "source.dim": 4,
    # Compiles in a fraction of the time that the exact sampler takes.
    "source.space": "real",
    "source.marginal": "normal",
    "source.conditional": "normal",
    "source.mixing.candidates": 50,
    "encoder.widths": (16, 16),
    "optimizer.kind": "adam",
    "optimizer.learning_rate": 1e-3,
    "optimizer.warmup_steps": 2,
    "train.steps": 12,
    "train.batch_size": 16,
    "train.steps_per_dispatch": 2,
    "eval.every": 4,
    "eval.samples": 64,
    "eval.held_out_batches": 2,
    "checkpoint.every": 4,
    "log.every": 2,
    "log.tensorboard": False,
}

# The same on images, but for their folder.
SMALL_IMAGES = {
    **{
        name: value
        for name, value in SMALL.items()
        if not name.startswith(("source.", "encoder."))
        and name not in ("eval.samples", "train.steps_per_dispatch")
    },
    "source.kind": "images",
    "source.dataset": "folder",
    "source.image_size": 16,
    "encoder.kind": "resnet10",
    "encoder.width": 0.125,
    "encoder.projector": (16,),
    "encoder.dim": 8,
    "objective.kind": "aninfonce",
    "objective.negatives": "both",
    "train.ema_decay": 0.0,
    "train.steps": 4,
    "train.batch_size": 8,
    "eval.every": 2,
    "eval.held_out_batches": 1,
    "eval.train_examples": 40,
    "eval.readout_examples": 16,
    "eval.batch_size": 16,
    "eval.neighbours": 5,
    "checkpoint.every": 2,
}

# A VAE of MNIST, and a run on what its decoder makes, but for their folders.
SMALL_VAE = {
    **{
        name: value
        for name, value in SMALL_IMAGES.items()
        if not name.startswith(("encoder.", "objective."))
    },
    "source.dataset": "mnist",
    "source.image_size": 8,
    "source.grey": True,
    "source.augment": "none",
    "encoder.widths": (16,),
    "encoder.dim": 6,
    "encoder.init": "he_normal",
    "encoder.output": "none",
    "objective.kind": "elbo",
    "objective.widths": (16,),
}
SMALL_DECODED = {
    **{
        name: value
        for name, value in SMALL_VAE.items()
        if name not in ("source.augment", "encoder.dim", "encoder.init", "encoder.output")
        and not name.startswith("objective.")
    },
    "source.kind": "decoder",
    "source.dim": 3,
    **{name: SMALL[name] for name in ("source.space", "source.marginal", "source.conditional")},
    "eval.samples": 64,
    "train.steps_per_dispatch": 2,
}


def as_flags(values):
    """Returns settings as a command line has them."""
    return [f"--config.{name}={value}" for name, value in values.items()]
