"""Files in the format of sqllogictest: what is in them.

A file is a list of records with an empty line between them: statements, queries with the rows expected, and conditions
(`skipif`, `onlyif`) on the record that follows. Lines that begin with # are comments. `halt` ends a file; `mode skip`
leaves out what follows until `mode unskip`. Of each query's header only the sort mode matters here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

ENGINE = "spark"
"""Whom `skipif` and `onlyif` mean here."""


@dataclass(frozen=True)
class Record:
    """A statement (`expected` is None) or a query, from a line of a file."""

    line: int
    text: str
    expected: tuple[str, ...] | None = None
    sort: str = "nosort"
    fails: bool = False


def records(text: str) -> Iterator[Record]:
    """What a file has to be run, in order."""
    skipping = False
    for line, block in _blocks(text):
        while block and (condition := re.fullmatch(r"(skipif|onlyif)\s+(\w+).*", block[0])):
            if (condition[1] == "skipif") == (condition[2] == ENGINE):
                block = []
            block, line = block[1:], line + 1
        if not block:
            continue
        words = block[0].split()
        match words[0]:
            case "halt":
                return
            case "mode":
                skipping = words[1] == "skip"
            case "statement" if not skipping:
                body = _until_rule(block[1:])[0]
                yield Record(line, _statement(body), fails=words[1] == "error")
            case "query" if not skipping:
                body, rows = _until_rule(block[1:])
                sort = next((word for word in words[1:] if word in ("nosort", "rowsort", "valuesort")), "nosort")
                yield Record(line, _statement(body), tuple(rows), sort)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines between empty ones, without comments, and the number of the first."""
    block: list[str] = []
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            first = first if block else number
            block.append(line)
        elif block:
            yield first, block
            block = []


def _until_rule(lines: list[str]) -> tuple[list[str], list[str]]:
    """What is above and below a line of dashes."""
    at = lines.index("----") if "----" in lines else len(lines)
    return lines[:at], lines[at + 1 :]


def _statement(lines: list[str]) -> str:
    return "\n".join(lines).strip().rstrip(";").strip()
