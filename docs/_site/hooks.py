"""What the site needs beyond Markdown: the tutorial notebook as a page, and links out of docs/ as plain text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

NOTEBOOK = Path(__file__).parents[2] / "examples" / "tutorial.ipynb"
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?!docs/)[^)]*\)")
INTO_DOCS = re.compile(r"\]\(\.\./docs/")


def as_markdown(notebook: dict[str, Any]) -> str:
    """The cells of a notebook, one below the other."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(parts) + "\n"


def on_files(files: Files, config: Any) -> Files:
    """Add the tutorial as a page."""
    page = as_markdown(json.loads(NOTEBOOK.read_text()))
    files.append(File.generated(config, "TUTORIAL.md", content=INTO_DOCS.sub("](", page)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files that are not part of the site become their text."""
    return OUTSIDE.sub(r"\1", markdown)
