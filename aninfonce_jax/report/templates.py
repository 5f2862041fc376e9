"""Where pages find their templates."""

import importlib.resources

import jinja2
import markupsafe


def templates() -> jinja2.Environment:
    """Returns the templates of this package, which refuse to leave a name empty."""
    folder = importlib.resources.files(__package__)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = markupsafe.Markup
    return environment
