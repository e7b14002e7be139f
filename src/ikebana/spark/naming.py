"""Names of tables and views, by Spark's rule: case counts only where `spark.sql.caseSensitive` is set.

A name is compared as Spark compares it at the moment at which it is given. Names that differ in case alone can exist
beside each other if they were created while case counted; later, while it does not, each is still found by exactly its
own name, and by no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pyspark.sql import SparkSession

from ikebana.errors import DataflowError

CASE = "spark.sql.caseSensitive"

Item = TypeVar("Item")


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names that differ in case alone are different names."""
    return str(spark.conf.get(CASE)).lower() == "true"


def alike(names: Iterable[str], name: str) -> list[str]:
    """Those of some names that differ from a name at most in case.

    >>> alike(["Orders", "lines", "ORDERS"], "orders")
    ['Orders', 'ORDERS']
    """
    return [each for each in names if each.lower() == name.lower()]


def quote(name: str) -> str:
    """A name in backticks, as Spark's SQL has it.

    >>> quote("odd `name`")
    '`odd ``name```'
    """
    return f"`{escape(name)}`"


def escape(name: str) -> str:
    """A name as it is written between backticks."""
    return name.replace("`", "``")


def mentioned(text: str, names: Iterable[str]) -> list[str]:
    """Those of some names that occur in a SQL text, in any case: a superset of the names that the query refers to.

    >>> mentioned("SELECT * FROM Orders -- not lines", ["orders", "lines", "customers"])
    ['orders', 'lines']
    """
    text = text.lower()
    return [name for name in names if escape(name).lower() in text]


def check_free(names: Iterable[str], name: str, spark: SparkSession) -> None:
    """Raise if there is another name that Spark does not tell from a new one."""
    others = alike(names, name)
    if others and others[0] != name and not is_case_sensitive(spark):
        raise DataflowError(
            f"the name {name!r} is taken",
            detail=f"there is {others[0]!r}, and Spark does not tell names apart by case alone",
            hint=f"choose another, drop {others[0]!r}, or set {CASE} to true",
        )


def resolved(known: Mapping[str, Item], name: str, what: str, spark: SparkSession) -> Item:
    """What has a name: exactly that, or, where case does not count, the only one that differs from it in case."""
    if name in known:
        return known[name]
    others = alike(known, name) if isinstance(name, str) else []
    case_counts = bool(others) and is_case_sensitive(spark)
    if len(others) == 1 and not case_counts:
        return known[others[0]]
    if len(others) > 1 and not case_counts:
        raise DataflowError(
            f"there are several that {name!r} could mean",
            detail=f"they are {', '.join(map(repr, others))}",
            hint="write the name exactly as one of them",
        )
    raise DataflowError(
        f"there is no {what} {name!r}",
        detail=f"there are {', '.join(map(repr, known)) or 'none'}",
        hint=f"write the name as it was created: {CASE} is set" if case_counts else "create it first",
    )
