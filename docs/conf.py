"""Sphinx settings; built with warnings as errors (`make docs`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import radnet

project = "radnet"
copyright = "2026, the radnet contributors"
version = release = radnet.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
extensions += ["mathml", "pictures", "drawings", "gallery", "properties", "finishing"]  # ours, in _ext
myst_enable_extensions = ["dollarmath", "deflist", "attrs_block"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "radnet"
html_theme_options = {"source_view_link": ""}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
exclude_patterns = ["_build", "_bench", "_study"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = True
napoleon_use_rtype = False
napoleon_use_ivar = True
nitpicky = False
