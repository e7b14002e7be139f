"""Names of tables and views, compared as Spark does: case-sensitive only if `spark.sql.caseSensitive` is set.

The setting counts at the moment at which a name is used. Names that differ only in case can coexist if they were
created while names were case-sensitive. Later, when they are not, each of them can still be used, by its exact name
only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from pyspark.sql import SparkSession

from ikebana.errors import DataflowError

CASE = "spark.sql.caseSensitive"

Item = TypeVar("Item")


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names that differ only in case are different names."""
    return str(spark.conf.get(CASE)).lower() == "true"


def alike(names: Iterable[str], name: str) -> list[str]:
    """The names that differ from `name` at most in case.

    >>> alike(["Orders", "lines", "ORDERS"], "orders")
    ['Orders', 'ORDERS']
    """
    return [other for other in names if other.lower() == name.lower()]


def quote(name: str) -> str:
    """A name in backticks, for Spark SQL.

    >>> quote("odd `name`")
    '`odd ``name```'
    """
    return f"`{escape(name)}`"


def escape(name: str) -> str:
    """A name as it is written between backticks in Spark SQL."""
    return name.replace("`", "``")


def mentioned(text: str, names: Iterable[str]) -> list[str]:
    """The names that occur in a SQL text, ignoring case: a superset of the tables that the query reads.

    >>> mentioned("SELECT * FROM Orders -- not lines", ["orders", "lines", "customers"])
    ['orders', 'lines']
    """
    text = text.lower()
    return [name for name in names if escape(name).lower() in text]


def check_free(names: Iterable[str], name: str, spark: SparkSession) -> None:
    """Raise if Spark cannot distinguish a new name from an existing one."""
    others = alike(names, name)
    if others and others[0] != name and not is_case_sensitive(spark):
        raise DataflowError(
            f"the name {name!r} is taken",
            detail=f"{others[0]!r} exists, and names are not case-sensitive",
            hint=f"choose another name, drop {others[0]!r}, or set {CASE} to true",
        )


def resolve(known: Mapping[str, Item], name: str, what: str, spark: SparkSession) -> Item:
    """The item of this name, or, if names are not case-sensitive, the only one whose name differs from it in case.

    `what` says what is looked for in errors: "table", "view" or "table or view".
    """
    if name in known:
        return known[name]
    others = alike(known, name) if isinstance(name, str) else []
    case_sensitive = bool(others) and is_case_sensitive(spark)
    if len(others) == 1 and not case_sensitive:
        return known[others[0]]
    if len(others) > 1 and not case_sensitive:
        raise DataflowError(
            f"the name {name!r} is ambiguous",
            detail=f"it may mean {' or '.join(map(repr, others))}, which differ only in case",
            hint="write the name exactly as one of them",
        )
    raise DataflowError(
        f"there is no {what} {name!r}",
        detail=f"there are {', '.join(map(repr, known)) or 'none'}",
        hint=f"names are case-sensitive, since {CASE} is set" if case_sensitive else _suggestion(known, name, what),
    )


def _suggestion(known: Iterable[str], name: str, what: str) -> str:
    names = list(known)
    similar = get_close_matches(str(name), names, n=1)
    if similar:
        return f"did you mean {similar[0]!r}?"
    return "use one of these names" if names else f"create a {what} first"
