"""Listings: what a session reports, in a form that reads well in a terminal and in a notebook.

A `Listing` is a list of dataclass instances, which is shown as a table with a column for each field, except those that
concern few users (`IF_ANY`); programs use it as a list. A `Card` is a single such instance, shown with a line for each
field.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Generic, TypeVar

from ikebana.plan.estimates import format_bytes

Item = TypeVar("Item")


IF_ANY = {"is shown": "if any"}
"""The metadata of a field whose column is left out of a listing if it has nothing but zeros."""


class Bytes(int):
    """A number of bytes, which is shown in a readable unit.

    >>> Bytes(1_234_567), Bytes(1_234_567) + 1
    (1.2 MB, 1234568)
    """

    def __repr__(self) -> str:
        return format_bytes(self)

    __str__ = __repr__


class Listing(list[Item], Generic[Item]):
    """A list of dataclass instances that is shown as a table.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Planet:
    ...     name: str
    ...     moons: int
    ...     rings: int = field(metadata=IF_ANY)
    >>> Listing([Planet("Mars", 2, 0), Planet("Jupiter", 1234, 0)], Planet)
    name      moons
    Mars          2
    Jupiter   1,234
    >>> Listing([Planet("Mars", 2, 0), Planet("Saturn", 274, 7)], Planet)
    name     moons   rings
    Mars         2       0
    Saturn     274       7
    """

    def __init__(self, items: Iterable[Item], kind: type[Item]) -> None:
        super().__init__(items)
        self._names = [
            field.name
            for field in fields(kind)  # type: ignore[arg-type]
            if field.metadata != IF_ANY or any(getattr(item, field.name) for item in self)
        ]

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


class Card:
    """A dataclass instance that is shown with a line for each field.

    >>> from dataclasses import dataclass
    >>> @dataclass(repr=False)
    ... class Planet(Card):
    ...     name: str
    ...     moons_known: int
    >>> Planet("Jupiter", 1234)
    name          Jupiter
    moons known     1,234
    """

    __slots__ = ()

    def _lines(self) -> list[tuple[str, str]]:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return [(name.replace("_", " "), show(getattr(self, name))) for name in names]

    def __repr__(self) -> str:
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(f"{name.ljust(widths[0])}   {value.rjust(widths[1])}" for name, value in lines)

    def _repr_html_(self) -> str:
        cells = ((html.escape(name), html.escape(value)) for name, value in self._lines())
        return f"<table>{''.join(f'<tr><th>{name}</th><td>{value}</td></tr>' for name, value in cells)}</table>"


def show(value: Any) -> str:
    """A value in readable form.

    >>> show(1234567), show(("a", "b")), show(None), show(0.25)
    ('1,234,567', 'a, b', '', '0.25')
    """
    if value is None:
        return ""
    if isinstance(value, bool | str | Bytes):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value))
    return str(value)
