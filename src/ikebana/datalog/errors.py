"""Errors with a place in a program: the line, with a caret below the place.

    cannot resolve relation "edgee"
      detail: tc.dl:3:13
              tc(x, y) :- edgee(x, y).
                          ^^^^^
      hint: did you mean "edge"?

Cost: none until an error is raised.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ikebana.datalog.syntax import Position
from ikebana.errors import DatalogError

_INDENT = " " * len("  detail: ")


def error_at(position: Position, what: str, *, detail: str = "", hint: str = "") -> DatalogError:
    """Return an error that shows the line of a position; `detail` follows the line."""
    lines = [str(position)]
    if position.text:
        text = position.text.expandtabs(1)
        width = max(1, min(position.width, len(text) - position.column + 1))
        lines += [_INDENT + text, _INDENT + " " * (position.column - 1) + "^" * width]
    lines += [_INDENT + line for line in detail.splitlines()]
    error = DatalogError(what, detail="\n".join(lines) if position.line else detail, hint=hint)
    error.position = position
    return error


def not_supported(position: Position, what: str, hint: str = "") -> DatalogError:
    """Return an error about a feature of Soufflé that is refused."""
    return error_at(position, f"{what} not supported", hint=hint)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name that is most similar, or with all of them if there are few."""
    names = sorted(known)
    similar = difflib.get_close_matches(name, names, n=1)
    if similar:
        return f'did you mean "{similar[0]}"?'
    return f"known names: {', '.join(names)}" if 0 < len(names) <= 12 else ""
