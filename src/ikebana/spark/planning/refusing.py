"""Refuses, by name, what a plan's JSON does not show and what cannot be maintained, rather than compute it wrongly.

In the JSON `try_add` looks like `+`, `try_cast` like `CAST`, and LIKE lacks its escape character. The text of a plan
has them: that of the analysed plan as they were written, that of the optimised plan has the LIKE and ILIKE that remain.
String literals that look like them are refused as well, which is rare and does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ikebana.errors import SqlError

_TRY = re.compile(r"\b(try_\w+)\(")
_ESCAPE = re.compile(r" ESCAPE '([^\\])'")
_TIME = re.compile(r"\b(current_time|current_date(?=\(Some)|localtimestamp(?=\(Some))\(")
_UNSUPPORTED = {
    "catalyst.plans.logical.Sample": ("TABLESAMPLE", "a sample differs each time"),
    "catalyst.expressions.ScalaUDF": ("a function in Scala or Java", "write it in Python, or in SQL"),
    "catalyst.expressions.InSet": ("a list of more than a million values", "load it into a table"),
    "hive.HiveGenericUDF": ("a Hive function", "write it in Python, or in SQL"),
    "hive.HiveSimpleUDF": ("a Hive function", "write it in Python, or in SQL"),
}


def refuse_analyzed(text: str, has_current: bool) -> None:
    """Raise if the text of an analysed plan has something that the JSON of the optimised plan does not show."""
    match = _TRY.search(text)
    if match:
        raise _refused(
            match[1], "use the function without try_, inside a CASE that excludes the values for which it fails"
        )
    match = _TIME.search(text) if has_current else None
    if match:
        raise _refused(f"{match[1]}()", "write now(), as in `ts >= now() - INTERVAL 5 MINUTES`")


def refuse_optimized(json: str, show: Callable[[], str]) -> None:
    """Raise if an optimised plan has something unsupported; `show` returns its text, which is searched if need be."""
    for name, (what, hint) in _UNSUPPORTED.items():
        if _has(name, json):
            raise _refused(what, hint)
    match = _ESCAPE.search(show()) if _has("catalyst.expressions.Like", json) else None
    if match:
        raise _refused(f"LIKE with ESCAPE '{match[1]}'", "escape with a backslash")


def _has(name: str, json: str) -> bool:
    """Whether a class occurs in a plan. A string literal cannot look like it, because its quotes are escaped."""
    return f'"class":"org.apache.spark.sql.{name}"' in json


def _refused(what: str, hint: str) -> SqlError:
    return SqlError(f"{what} is not supported in a maintained view", hint=hint)
