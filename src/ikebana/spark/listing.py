"""Listings: what a session has, as lists that read well in a terminal and in a notebook.

A `Listing` is a list of dataclass instances. It prints as a table with a column for each field, and is shown as one by
notebooks; programs use it as the list it is.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class Listing(list[Item], Generic[Item]):
    """A list of dataclass instances that is shown as a table.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Planet:
    ...     name: str
    ...     moons: int
    >>> Listing([Planet("Mars", 2), Planet("Jupiter", 1234)], Planet)
    name      moons
    Mars          2
    Jupiter   1,234
    """

    def __init__(self, items: Iterable[Item], kind: type[Item]) -> None:
        super().__init__(items)
        self._names = [field.name for field in fields(kind)]  # type: ignore[arg-type]

    def _cells(self) -> list[list[str]]:
        return [[show(getattr(item, name)) for name in self._names] for item in self]

    def __repr__(self) -> str:
        rows = [[name.replace("_", " ") for name in self._names], *self._cells()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        numeric = [all(isinstance(getattr(item, name), int) for item in self) for name in self._names]
        lines = []
        for row in rows:
            cells = zip(row, widths, numeric, strict=True)
            lines.append("   ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in cells).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in self._names)
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._cells())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def show(value: Any) -> str:
    """A value for people.

    >>> show(1234567), show(("a", "b")), show(None), show(0.25)
    ('1,234,567', 'a, b', '', '0.25')
    """
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(show(each) for each in value)
    return str(value)
