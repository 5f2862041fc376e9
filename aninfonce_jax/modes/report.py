"""What --mode=report does, and every mode that scores: pages and tables, from files."""

from collections.abc import Sequence

from aninfonce_jax.cli import EXIT_FAILED, complain, printable
from aninfonce_jax.remote import AnyPath


def show(folders: Sequence[AnyPath], output: AnyPath) -> int:
    """Prints the scores that the work directories hold, and writes tables and report."""
    from aninfonce_jax.console import print_readouts, print_scores, print_times
    from aninfonce_jax.report.runs import read_workdir
    from aninfonce_jax.report.table import tabulate

    runs = [read_workdir(folder) for folder in folders]
    # By their objectives, as while they train, where that tells them apart.
    names = [run.objective.kind for run in runs]
    for others in ([run.name for run in runs], [*map(str, folders)]):
        if len(set(names)) < len(names):
            names = others
    results = dict(zip(names, (run.final for run in runs), strict=True))
    print_scores(results)
    try:
        tables = [tabulate(folder) for folder in folders]
    except OSError as error:
        return complain(f"the table can't be written: {error}", EXIT_FAILED)
    for rows in filter(None, tables):
        print_readouts(rows)
    print_times(results)
    return report([*folders], output)


def report(folders: list[AnyPath], output: AnyPath) -> int:
    """Writes the report of some runs; returns the exit code."""
    from aninfonce_jax.report.report import write_report

    try:
        page = write_report(folders, output)
    except OSError as error:
        return complain(f"the report can't be written: {error}", EXIT_FAILED)
    print(f"report: {printable(page)}")
    return 0


def report_sweep(folder: AnyPath) -> int:
    """Writes the page of a sweep; returns the exit code."""
    from aninfonce_jax.report.sweep import write_sweep

    try:
        page = write_sweep(folder)
    except OSError as error:
        return complain(f"the report can't be written: {error}", EXIT_FAILED)
    print(f"report: {printable(page)}")
    return 0
