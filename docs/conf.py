"""Sphinx settings: python -m sphinx -W docs build/docs.

Notebooks (`notebooks/*.md`) are executed by the build. In the pages of `reference/`, `@@config@@`,
`@@help@@`, `@@help embed@@`, `@@help export@@` and `@@help launch/NAME@@` stand for what the
schema, the program and the launchers say at the time of the build.
"""

import importlib.metadata
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from aninfonce_jax import command_line, embed, export_command
from aninfonce_jax.config.parse import Leaf, leaves

ROOT = Path(__file__).resolve().parent.parent

project = "aninfonce_jax"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "aninfonce_jax"
html_show_copyright = False
html_static_path = ["_static"]
# MathJax would come from the network; without one, readers would see LaTeX. What makes MathML of it
# knows less: fractions need braces.
html_math_renderer = "mathml"
html_css_files = ["site.css"]
exclude_patterns = ["_build"]
# Single backticks in docstrings.
default_role = "code"

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
# Kernels inherit these. Small programs compile sooner without optimisation, and with the code
# generator that tests/conftest.py chooses, as long as XLA has it.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
flags = "--xla_backend_optimization_level=0"
if tuple(map(int, importlib.metadata.version("jax").split(".")[:2])) < (0, 11):
    flags += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", flags)
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # no warning of frozen modules


def setup(app: Any) -> None:
    """Fills in the reference, and writes formulas as browsers draw them by themselves."""
    app.connect("source-read", _fill)
    # Before napoleon, which indents what it makes of sections.
    app.connect("autodoc-process-docstring", _mark_code, priority=400)
    app.add_html_math_renderer("mathml", (_inline_formula, None), (_formula, None))


def _inline_formula(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _formula(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def _mark_code(
    app: Any, what: str, name: str, documented: Any, options: Any, lines: list[str]
) -> None:
    """Marks indented paragraphs of a docstring as code; reST would take them for quotations."""
    for number in reversed(range(2, len(lines))):
        text, blank, line = lines[number - 2 : number + 1]
        if text and not text.startswith(" ") and not blank and line.startswith("    "):
            lines[number:number] = ["::", ""]


def _fill(app: Any, page: str, source: list[str]) -> None:
    if page.startswith("reference/"):
        source[0] = re.sub(r"^@@(.+)@@$", lambda found: _said(found[1]), source[0], flags=re.M)


def _said(what: str) -> str:
    if what == "config":
        return _config_keys()
    if what == "help":
        said = command_line.help_text().split("\nconfig keys, with default")[0]
    elif what in ("help embed", "help export"):
        said = (embed if what == "help embed" else export_command).USAGE
    else:
        command = ["bash", what.removeprefix("help "), "--help"]
        said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return f"```text\n{said.strip()}\n```"


def _config_keys() -> str:
    """Returns every key of a config under a heading for each section."""
    lines, section = [], None
    for name, leaf in leaves().items():
        head = name.partition(".")[0] if "." in name else "at the top"
        if head != section:
            lines += [f"## {head}" if head == "at the top" else f"## `{head}`", ""]
            section = head
        lines += [_entry(name, leaf), ""]
    return "\n".join(lines)


def _entry(name: str, leaf: Leaf) -> str:
    notes = [f"{leaf.type}".replace("|", " | ")]
    if leaf.kinds and not name.endswith(".kind"):
        notes.append(f"of {', '.join(leaf.kinds)}")
    notes += [f"{', '.join(kinds)}: `{other!r}`" for kinds, other in leaf.others]
    meaning = leaf.help.replace("*", r"\*").replace("_", r"\_").replace("<", r"\<")
    return f"`{name}` = `{leaf.default!r}`\n: {meaning}  \n  *{'; '.join(notes)}*"
