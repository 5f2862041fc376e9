"""Training and evaluating: what the command line does, and what a program of one's own calls."""

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import jax

from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.build import build_experiment, check_data
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.diagnosis.findings import Diagnosis
from aninfonce_jax.distributed.equal import require_equal
from aninfonce_jax.distributed.peers import Peers, of_runtime
from aninfonce_jax.evaluation.diagnosing import diagnose_workdir
from aninfonce_jax.evaluation.runner import evaluate_workdir, make_evaluate
from aninfonce_jax.memory import check_fits
from aninfonce_jax.placement import Placement, local_count
from aninfonce_jax.remote import AnyPath, RemotePath
from aninfonce_jax.report.diagnosis import write_diagnosis_page
from aninfonce_jax.stop import StopSignal
from aninfonce_jax.training import loop
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.progress import ProgressMode
from aninfonce_jax.training.session import TrainResult
from aninfonce_jax.training.together import of_the_machine, shared_settings


def train(
    experiment: Experiment,
    workdir: str | os.PathLike[str] | RemotePath | None = None,
    *,
    placement: Placement | None = None,
    stop: StopSignal | None = None,
    progress: ProgressMode = "auto",
    label: str = "",
    command: str = "",
    profile: tuple[int, int] | None = None,
) -> TrainResult:
    """Trains to the end of an experiment, from wherever the run in `workdir` stands.

    Args:
      experiment: the run.
      workdir: where its files are, or are to be: the same call again goes on from there.
        None: nothing is kept but what is returned.
      placement: where to run; by default on all devices of this process or, under
        `jax.distributed`, of all processes, each of which makes the same call.
      stop: says when to save and leave; by default SIGTERM and Ctrl-C do.
      progress: `auto`, `rich`, `plain` or `off`.
      label: what the progress line calls the run.
      command: what to type to repeat the run, for its report.
      profile: (start, stop): the steps to trace into `workdir`, in steps done.

    Returns:
      The last state and its scores.

    Raises:
      ConfigError: if the experiment does not fit the devices or the work directory.
      CheckpointError: if there are checkpoints but none of this run is whole, or one can't be
        written.
      DivergedError: if the loss stopped being finite.
      Preempted: if it was asked to stop.
      PeerError: of several processes, another one failed or is lost.

    Example:
      >>> positives = an.conditionals.Anisotropic([25.0, 25.0, 5.0])
      >>> process = an.LatentProcess(an.Sphere(3), an.marginals.Uniform(), positives, jnp.tanh)
      >>> import flax.linen as nn, optax
      >>> experiment = an.Experiment(
      ...     an.ProcessSource(process),
      ...     an.as_encoder(nn.Dense(3)),
      ...     an.objectives.AnInfoNCE(),
      ...     optax.adam(1e-3),
      ...     steps=2,
      ...     batch_size=16,
      ... )
      >>> result = an.train(experiment, progress="off")  # with a workdir, it can be gone on with
    """
    placement = placement or Placement.everywhere()
    _check_divides(experiment, placement)
    experiment.objective.check(experiment.source)
    folder = None if workdir is None else workdir_lib.locate(workdir)
    if profile is not None and folder is None:
        raise ConfigError("a profile is written into the work directory: pass workdir")
    settings: dict[str, Any] = {"progress": progress, "label": label, "command": command}
    settings["profile"] = profile
    if stop is not None:
        return loop.train(
            experiment, folder, make_evaluate, placement=placement, stop=stop, **settings
        )
    with StopSignal() as own:
        return loop.train(
            experiment, folder, make_evaluate, placement=placement, stop=own, **settings
        )


def evaluate(
    experiment: Experiment,
    workdir: str | os.PathLike[str] | RemotePath,
    *,
    placement: Placement | None = None,
) -> dict[str, Any]:
    """Recomputes every score from the latest checkpoint of a run and writes them there.

    Args:
      experiment: what was trained in `workdir`.
      workdir: of the run.
      placement: where to compute, as in `train`.
    """
    return evaluate_workdir(
        experiment, workdir_lib.locate(workdir), placement or Placement.everywhere()
    )


def diagnose_run(
    experiment: Experiment,
    workdir: str | os.PathLike[str] | RemotePath,
    *,
    placement: Placement | None = None,
) -> Diagnosis:
    """Tells which assumption the held-out pairs of a trained run break, in words and as a page.

    It writes `diagnosis.json` and, made from it, `diagnosis.html` into the work directory.

    Args:
      experiment: what was trained in `workdir`.
      workdir: of the run.
      placement: where to compute; by default on all devices of this process.

    Raises:
      ConfigError: embeddings are not compared on a sphere, or there are too few held-out pairs.
    """
    folder = workdir_lib.locate(workdir)
    found = diagnose_workdir(experiment, folder, placement or Placement.everywhere())
    write_diagnosis_page(folder)
    return found


def diagnose_config(workdir: AnyPath, overrides: Mapping[str, Any]) -> Diagnosis:
    """Diagnoses the run in a work directory by the config that it holds; see `diagnose_run`.

    Args:
      workdir: of the run.
      overrides: what to change in its config; see `config.for_evaluation`.

    Raises:
      ConfigError: as `evaluate_config` and `diagnose_run`.
    """
    config = config_lib.for_evaluation(workdir_lib.read_config(workdir), overrides)
    placement = place(config, training=False)
    return diagnose_run(build_experiment(config), workdir, placement=placement)


def require_alike(peers: Peers, configs: Mapping[str, Config], workdir: AnyPath) -> None:
    """Raises ConfigError, in every process, if one would run something else than the others.

    Args:
      peers: all processes.
      configs: of the runs, by name.
      workdir: where they are kept.
    """
    if not peers.are_many:
        return
    values = of_the_machine()
    values["--workdir"] = str(workdir.absolute())
    for name, config in configs.items():
        own = shared_settings(config_lib.to_dict(config))
        values |= {f"config.{key} of {name}": value for key, value in own.items()}
    require_equal(peers, "what is to run", values)


def place(config: Config, *, training: bool = True) -> Placement:
    """Returns where a config's run computes.

    Raises:
      ConfigError: if it does not fit this machine, or its data set is not there.
    """
    if training:
        check_data(config)
    hosts = jax.process_count()
    devices = config_lib.check_devices(config, local_count(), hosts)
    if training:
        config_lib.check_backend(config, jax.default_backend())
    check_fits(config, devices, hosts=hosts, training=training)
    if hosts > 1:
        return Placement.everywhere(config.train.slices)
    return Placement.local(devices, config.train.slices)


def evaluate_config(workdir: AnyPath, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluates the run in a work directory by the config that it holds.

    Args:
      workdir: of the run.
      overrides: what to change in its config; see `config.for_evaluation`.

    Raises:
      ConfigError: if the folder holds no run, or the changes are none of evaluation.
      CheckpointError, OSError: as `evaluate_workdir`.
    """
    with contextlib.ExitStack() as stack:
        peers = of_runtime()
        peers.by_first(
            "hold the run", lambda: stack.enter_context(workdir_lib.hold(workdir)) and None
        )
        config = config_lib.for_evaluation(workdir_lib.read_config(workdir), overrides)
        placement = place(config, training=False)
        return evaluate_workdir(build_experiment(config), workdir, placement)


def _check_divides(experiment: Experiment, placement: Placement) -> None:
    devices, parts = placement.size, experiment.microbatches
    if experiment.batch_size % (devices * parts):
        raise ConfigError(
            f"batch_size={experiment.batch_size} must be a multiple of {devices * parts}: "
            f"{devices} devices, {parts} micro-batches; pass a placement of fewer devices, or "
            "another batch_size"
        )
