"""What --mode=eval does: scores from the last checkpoint of every run."""

from collections.abc import Mapping
from typing import Any

from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import EXIT_FAILED, complain, warn
from aninfonce_jax.distributed.peers import Peers
from aninfonce_jax.modes.report import show
from aninfonce_jax.remote import AnyPath


def evaluate(
    folders: list[AnyPath], output: AnyPath, overrides: Mapping[str, Any], peers: Peers
) -> int:
    """Scores runs again by the configs that they hold, and reports; returns the exit code.

    Args:
      folders: of the runs.
      output: where the report goes.
      overrides: what to change in their configs.
      peers: the processes that share the work.
    """
    from aninfonce_jax import compile_cache
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.report.runs import find_metrics
    from aninfonce_jax.runs import evaluate_config
    from aninfonce_jax.scores.registry import WARNINGS
    from aninfonce_jax.training.checkpoint import CheckpointError

    compile_cache.use()
    # What would be refused later, before scores are written for a report.
    workdir_lib.check_entries(output)
    for folder in folders:
        workdir_lib.check_entries(folder)
        config_lib.for_evaluation(workdir_lib.read_config(folder), overrides)
        find_metrics(folder)
    try:
        for folder in folders:
            warnings = evaluate_config(folder, overrides).get(WARNINGS, ())
            for problem in warnings if peers.is_first else ():
                warn(f"{folder}: {problem}")
    except (CheckpointError, DataError) as error:
        return complain(error, EXIT_FAILED)
    except OSError as error:
        return complain(f"the scores can't be written: {error}", EXIT_FAILED)
    return peers.by_first("report", lambda: show(folders, output))
