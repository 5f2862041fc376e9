"""What --mode=preview does: a sheet of pairs, before anything is trained."""

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import EXIT_USAGE, complain, printable
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.remote import AnyPath

_PREVIEW_PAIRS = 8


def preview(config: Config, folder: AnyPath) -> int:
    """Draws some pairs of a config, to be looked at; returns the exit code."""
    from aninfonce_jax import rng
    from aninfonce_jax.build import build_source
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.report.preview import write_preview

    key = rng.at_step(rng.stream(config.seed, "data"), 0)
    try:
        sheet = build_source(config).preview(key, _PREVIEW_PAIRS)
    except DataError as error:
        return complain(error, EXIT_USAGE)
    if sheet is None:
        raise ConfigError(
            f"--mode=preview shows pairs that can be looked at, which source.kind="
            f"{config.source.kind!r} does not give; use source.kind='images'"
        )
    try:
        path = write_preview(sheet, folder / workdir_lib.PREVIEW_FILE)
    except OSError as error:
        return complain(f"the preview can't be written: {error}", EXIT_USAGE)
    print(f"preview: {printable(path)}")
    return 0
