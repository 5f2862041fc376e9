"""What the `aninfonce` script calls: the command line, which can be stopped before it is loaded."""

from aninfonce_jax.at_once import stop_at_once


def aninfonce() -> None:
    """Runs the command line of this process."""
    stop_at_once()
    from aninfonce_jax.main import script  # takes its time

    script()
