"""Checks of arguments that users give, before anything is started.

An argument of a wrong type would otherwise fail deep inside, or only in a worker. Errors name the argument and its
value, and say what it may be. Each function returns the argument in the form that the caller needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from ikebana.errors import SchemaError


def checked_at(at: Any) -> int | datetime | None:
    """An epoch or a time, or None for the last closed epoch.

    >>> checked_at(5), checked_at(None)
    (5, None)
    """
    if at is None or isinstance(at, datetime):
        return at
    if isinstance(at, bool) or not isinstance(at, Integral):
        raise SchemaError(
            f"at={at!r} is not an epoch",
            hint="give the number of an epoch, such as `epoch` of what hold() returns, or a datetime",
        )
    return int(at)


def checked_epoch(at: Any) -> int | None:
    """An epoch, or None for the last closed one."""
    checked = checked_at(at)
    if isinstance(checked, datetime):
        raise SchemaError(f"{at!r} is not an epoch", hint="give the number of an epoch")
    return checked


def checked_timeout(timeout: Any) -> float | None:
    """A number of seconds, or None."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, Real) or timeout != timeout or timeout < 0:
        raise SchemaError(f"timeout={timeout!r} is not a time", hint="give a number of seconds, or None for no limit")
    return float(timeout)


def checked_name(name: Any, what: str) -> str:
    """The name of a new table or view; `what` says which of them, in errors."""
    if not isinstance(name, str) or not name.strip():
        raise SchemaError(f"{name!r} is not a valid name for a {what}", hint="give a string that is not empty")
    return name


def checked_key(key: Any) -> tuple[str, ...]:
    """The names of key columns, which may be given as one name.

    >>> checked_key("id"), checked_key(["a", "b"]), checked_key(None)
    (('id',), ('a', 'b'), ())
    """
    if isinstance(key, str):
        return (key,)
    if key is None:
        return ()
    names = tuple(key) if isinstance(key, Iterable) else (key,)
    if not all(isinstance(name, str) for name in names):
        raise SchemaError(f"key={key!r} is not a key", hint='give the name of a column, or a list: key=["a", "b"]')
    if len(set(names)) < len(names):
        raise SchemaError(f"key={key!r} has a column twice", hint="give each column once")
    return names


def checked_ops(ops: Any) -> Any:
    """One op, or a sequence of ops; what they may be is checked with the rows."""
    if ops is None or isinstance(ops, bytes | int | float) or not hasattr(ops, "__len__"):
        raise SchemaError(
            f"ops={ops!r} is not an operation",
            hint='give "insert", "upsert" or "delete", or a list with one of them for each row',
        )
    return ops


def checked_count(name: str, value: Any) -> int | None:
    """A positive integer, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise SchemaError(f"{name}={value!r} is not valid", hint="give an integer of at least 1, or leave it out")
    return int(value)


def checked_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of several words."""
    if not isinstance(value, str) or value not in choices:
        raise SchemaError(f"{name}={value!r} is not valid", hint=f"use one of {', '.join(map(repr, choices))}")
    return value


def check_options(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise if an option does not exist, with the name that was probably meant.

    >>> check_options("connect()", ["memry"], ["memory", "host"])
    Traceback (most recent call last):
    ikebana.errors.SchemaError: connect() has no option 'memry'
      detail: its options are host, memory
      hint: did you mean 'memory'?
    """
    for name in given:
        if name not in known:
            similar = get_close_matches(name, known, n=1)
            raise SchemaError(
                f"{what} has no option {name!r}",
                detail=f"its options are {', '.join(sorted(known))}",
                hint=f"did you mean {similar[0]!r}?" if similar else "leave it out",
            )
