"""Sphinx builds the pages and the API reference from docstrings: `make docs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import headrace

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "headrace"
version = release = headrace.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# The source folder is the root of the checkout, so that pages link to the files at the root.
include_patterns = ["*.md", "docs/**"]
exclude_patterns = ["docs/README.md", ".venv", "build", "bench", "tests", "examples", "src"]
root_doc = "docs/site/index"

html_theme = "furo"
html_title = f"headrace {release}"
html_show_copyright = False

myst_heading_anchors = 4
# Links to files that are no pages (examples, sources) are right on disk, which tests/docs checks.
# A sample that its highlighter can't read (JSON with "...") is shown without colours.
suppress_warnings = ["myst.xref_missing", "myst.header", "misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_use_ivar = True
napoleon_use_rtype = False
python_use_unqualified_type_names = True


def setup(app: Sphinx) -> None:
    """Connects what changes docstrings."""
    app.connect("autodoc-process-docstring", keep_the_tree_of_errors)


def keep_the_tree_of_errors(*event: Any) -> None:
    """Shows the docstring of the module of errors as it is: its tree is no reStructuredText."""
    _, _, name, _, _, lines = event
    if name == "headrace.errors":
        lines[:] = ["::", "", *(f"    {line}" for line in lines)]
