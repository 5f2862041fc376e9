"""Sphinx settings: sphinx-build -W docs build/docs."""

project = "aninfonce_jax"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
exclude_patterns = ["_build"]
