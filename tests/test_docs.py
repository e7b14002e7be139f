"""The documentation is true: every `python` block of README.md and docs/ runs.

Blocks of one file share a namespace, top to bottom. A block below `<!-- not executed -->` is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        exec(compile(block, str(page), "exec"), namespace)


RUN_PAGES = """
import sys
from pathlib import Path
from tests.test_docs import blocks

for page in map(Path, sys.argv[1:]):
    namespace = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        exec(compile(block, str(page), "exec"), namespace)
"""


@pytest.mark.spark
def test_blocks_run_on_spark(tmp_path: Path) -> None:
    """All pages in one process, one after the other: each page connects and closes its session."""
    pages = [str(page) for page in PAGES if is_on_spark(page)]
    ran = subprocess.run(
        [sys.executable, "-c", RUN_PAGES, *pages],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


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
