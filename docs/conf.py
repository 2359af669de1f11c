"""Builds these pages: `python -m sphinx -W docs docs/_build/html`."""

import re
from importlib import metadata
from typing import Any

project = "Lakeshore"
author = "The Lakeshore authors"
release = metadata.version("lakeshore-queue")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
default_role = "code"  # docstrings write code in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signatures have them
napoleon_use_ivar = True
html_theme = "furo"
html_title = f"Lakeshore {release}"

_INLINE = re.compile(r"(Returns|Raises|Yields|Source): (?=\S)")


def give_paragraphs(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings say `Raises: …` in a line, which goes on indented: make each a paragraph."""
    written, lines[:] = list(lines), []
    inside = False
    for line in written:
        found = _INLINE.match(line)
        if found:
            lines += ["", f"**{found[1]}:** {line[found.end() :]}"]
        elif inside and line.startswith("    "):
            lines.append(line.strip())
        else:
            if inside and line:
                lines.append("")
            lines.append(line)
        inside = bool(found) or (inside and line.startswith("    "))


def setup(app: Any) -> None:
    """Before napoleon has its turn."""
    app.connect("autodoc-process-docstring", give_paragraphs, priority=400)
