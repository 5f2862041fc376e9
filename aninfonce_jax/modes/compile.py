"""What --mode=compile does: what runs would take on machines that are not at hand."""

from collections.abc import Mapping

from aninfonce_jax import command_line
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import EXIT_FAILED, complain, printable
from aninfonce_jax.config.schema import Config
from aninfonce_jax.remote import AnyPath


def forecast(command: command_line.Command, runs: Mapping[str, Config], folder: AnyPath) -> int:
    """Compiles the step of runs for machines that are not at hand; returns the exit code."""
    from aninfonce_jax.forecast.chips import parse_topologies
    from aninfonce_jax.forecast.environment import compilers_ready

    topologies = parse_topologies(command.topology)
    with compilers_ready(folder / workdir_lib.COMPILE_LOG):
        from aninfonce_jax.forecast.compiler import CompileError
        from aninfonce_jax.forecast.run import forecast_runs
        from aninfonce_jax.report.forecast import write_forecast

        try:
            forecast_runs(runs, topologies, folder, command.compiles)
            page = write_forecast(folder)
        except CompileError as error:
            return complain(error, EXIT_FAILED)
        except OSError as error:
            return complain(f"the forecast can't be written: {error}", EXIT_FAILED)
    print(f"forecast: {printable(page)}")
    return 0
