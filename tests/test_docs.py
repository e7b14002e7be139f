"""The documentation is true: every `python` block of README.md and docs/ runs.

Blocks of one file share a namespace, top to bottom. A block below `<!-- not executed -->` is left out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("README.md"), *sorted(ROOT.glob("docs/**/*.md"))]

BLOCK = re.compile(r"^(?P<skip><!-- not executed -->\n\s*)?```python\n(?P<code>.*?)^```$", re.M | re.S)


def blocks(text: str) -> list[str]:
    """The executed blocks, each moved down to its own line numbers, so that errors point into the page."""
    found = [match for match in BLOCK.finditer(text) if not match["skip"]]
    return ["\n" * text.count("\n", 0, match.start("code")) + match["code"] for match in found]


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


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("page", [page for page in PAGES if is_on_spark(page)], ids=name_of)
def test_blocks_run_on_spark(page: Path, tmp_path: Path) -> None:
    """In a process of their own, which starts Spark and ends it."""
    program = tmp_path / f"{page.stem}.py"
    program.write_text("\n".join(block.strip("\n") for block in blocks(page.read_text())))
    ran = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_blocks_are_found_and_left_out() -> None:
    skipped = "<!-- not executed -->\n```python\nb\n```\n```text\nc\n```\n"
    page = f"\n```python\na = 1\n```\n{skipped}```python\na\n```\n"
    assert [block.strip() for block in blocks(page)] == ["a = 1", "a"]
    assert blocks(page)[0] == "\n\na = 1\n"
