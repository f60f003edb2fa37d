"""Sphinx's configuration. `python -m tests.docs_site` makes the pages, and calls Sphinx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from ipython_pygments_lexers import IPython3Lexer
from pygments.lexer import Lexer
from pygments.lexers import YamlLexer
from pygments.token import Name
from sphinx.application import Sphinx

import det_jupyter

project = "det_jupyter"
author = "the det_jupyter developers"
version = release = det_jupyter.__version__
html_title = project

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib.mermaid",
]
templates_path = [str(Path(__file__).parent / "_templates")]  # autosummary looks beside the pages
myst_heading_anchors = 4  # as GitHub has them, to which pages link
myst_enable_extensions = ["attrs_inline"]
myst_fence_as_directive = ["mermaid"]
nb_execution_mode = "off"  # `make docs-examples` stores their outputs
nb_mime_priority_overrides = [("*", "application/vnd.jupyter.widget-view+json", None)]
suppress_warnings = ["mystnb.unknown_mime_type"]  # ours, which JupyterLab draws; HTML is beside it

autosummary_ignore_module_all = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
default_role = "literal"  # a word in backticks is code in our docstrings
napoleon_google_docstring, napoleon_numpy_docstring = True, False
# Types in signatures: those of other projects, and of ours that have no page.
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = html_logo = "_static/icon.svg"  # that of the sidebar: slots, two of which are used
html_theme_options = {
    "logo": {"text": project},
    "github_url": "https://github.com/det-jupyter/det_jupyter",
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navbar_start": ["navbar-logo", "version-switcher"],
    "switcher": {"json_url": "../switcher.json", "version_match": version},
    "check_switcher": False,  # it is written when the site is
    "show_prev_next": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
html_sidebars = {"index": [], "changelog": []}
html_show_copyright = False
copybutton_exclude = ".linenos, .gp, .go"


class CellLexer(Lexer):
    """Code of a notebook's cell; below `%%det_experiment` it is YAML."""

    name, aliases = "IPython with configurations", ["ipython3", "ipython"]
    _yaml: ClassVar = re.compile(r"%%det_experiment[^\n]*\n")

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        magic = self._yaml.match(text)
        if magic is None:
            yield from IPython3Lexer().get_tokens_unprocessed(text)
            return
        yield 0, Name.Builtin, magic[0]
        for index, token, value in YamlLexer().get_tokens_unprocessed(text[magic.end() :]):
            yield magic.end() + index, token, value


_HEAD = re.compile(r"^(Args|Attributes|Example|Examples|Raises|Returns|Yields):$")


def mark_code(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Make literal blocks of paragraphs that a docstring indents, as Markdown does.

    The docstring of a property gets a comment before it: napoleon takes what stands before a colon
    in its first line for a type.
    """
    result = ["..", ""] if what in ("attribute", "data", "property") else []
    above, was_blank, in_section = "", True, False
    for line in lines:
        indented = line.startswith("    ")
        if line and not indented:
            in_section = _HEAD.match(line) is not None
        starts = indented and was_blank and not above.startswith("    ") and not in_section
        if starts and not above.startswith(("- ", "..", ">>>")):
            result += ["::", ""]
        result.append(line)
        was_blank = not line.strip()
        above = line if line.strip() else above
    lines[:] = result


def setup(app: Sphinx) -> None:
    """Register what is defined here."""
    app.add_lexer("ipython3", CellLexer)
    app.add_lexer("ipython", CellLexer)
    app.connect("autodoc-process-docstring", mark_code, priority=400)  # before napoleon
