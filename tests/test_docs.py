"""The documentation is true: every `python` block of README.md and docs/ runs.

Blocks of one file share a namespace, top to bottom. A block below `<!-- not executed -->` is left out.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.spark.sessions import alone, spark

__all__ = ["alone", "spark"]

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(ROOT.glob("examples/*.ipynb"))
PAGES = [*ROOT.glob("README.md"), *sorted(ROOT.glob("docs/**/*.md"))]

PATH = re.compile(r"`((?:[a-z_]+/)+[a-z_]+(?:\.[a-z]+)?/?|[a-z_]+\.py)`")
BLOCK = re.compile(r"^(?P<skip><!-- not executed -->\n\s*)?```python\n(?P<code>.*?)^```$", re.M | re.S)


def blocks(text: str) -> list[str]:
    """The executed blocks, each moved down to its own line numbers, so that errors point into the page."""
    matches = [match for match in BLOCK.finditer(text) if not match["skip"]]
    return ["\n" * text.count("\n", 0, match.start("code")) + match["code"] for match in matches]


def is_on_spark(page: Path) -> bool:
    return "ik.connect(" in page.read_text()


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if not is_on_spark(page)], ids=name_of)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(page, blocks(page.read_text()))


def run_blocks(page: Path, code: Sequence[str]) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in code:
        exec(compile(block, str(page), "exec"), namespace)


def cells(notebook: Path) -> list[str]:
    """The code of a notebook."""
    parsed = json.loads(notebook.read_text())
    return ["".join(cell["source"]) for cell in parsed["cells"] if cell["cell_type"] == "code"]


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "alone")
@pytest.mark.parametrize("page", [page for page in [*PAGES, *NOTEBOOKS] if is_on_spark(page)], ids=name_of)
def test_blocks_run_on_spark(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page connects to the SparkSession of the tests; that `connect` starts one is seen in the demo."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IKEBANA_SECRET_FILE", str(tmp_path / "secret"))
    run_blocks(page, cells(page) if page in NOTEBOOKS else blocks(page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_exist(page: Path) -> None:
    """Every path in backticks, like `trace/spine.py` or `tests/trace`, is that of a file or folder."""
    folders = (ROOT, ROOT / "src" / "ikebana", page.parent)
    paths = [path for path in PATH.findall(page.read_text()) if "*" not in path]
    missing = [path for path in paths if not any((folder / path).exists() for folder in folders)]
    assert not missing


def test_blocks_are_found_and_left_out() -> None:
    skipped = "<!-- not executed -->\n```python\nb\n```\n```text\nc\n```\n"
    page = f"\n```python\na = 1\n```\n{skipped}```python\na\n```\n"
    assert [block.strip() for block in blocks(page)] == ["a = 1", "a"]
    assert blocks(page)[0] == "\n\na = 1\n"


def test_the_site_has_every_page() -> None:
    """All pages are in the navigation of mkdocs.yml, and all pages there exist; decisions are listed on a page."""
    listed = set(re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    decisions = {page for page in pages if page.startswith("decisions/2")}
    assert listed == (pages - decisions) | {"TUTORIAL.md"}  # made of the notebook


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/api/*.md")), ids=name_of)
def test_the_reference_names_what_exists(page: Path) -> None:
    for path in re.findall(r"^::: (\S+)$", page.read_text(), re.M):
        module, _, name = path.rpartition(".")
        parent = importlib.import_module(module)
        member = getattr(parent, name, None) or importlib.import_module(path)
        assert member.__doc__, f"{path} has no docstring"
