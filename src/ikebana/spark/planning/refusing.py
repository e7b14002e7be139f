"""What a plan's JSON does not tell, and what no view can be made of: refused by name, rather than computed wrongly.

In the JSON `try_add` looks like `+`, `try_cast` like `CAST`, and LIKE has no escape character. Spark's text of a plan
has them: that of the analysed one as they were written, that of the optimised one what LIKE and ILIKE became. What is
in quotes may look alike, and is refused as well: rare, and harmless.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ikebana.errors import SqlError

_TRY = re.compile(r"\b(try_\w+)\(")
_ESCAPE = re.compile(r" ESCAPE '([^\\])'")
_TIME = re.compile(r"\b(current_time|current_date(?=\(Some)|localtimestamp(?=\(Some))\(")
_LOST = {
    "catalyst.plans.logical.Sample": ("TABLESAMPLE", "a sample is another one each time"),
    "catalyst.expressions.ScalaUDF": ("a function in Scala or Java", "write it in Python, or in SQL"),
    "catalyst.expressions.InSet": ("a list of more than a million values", "load it into a table"),
    "hive.HiveGenericUDF": ("a Hive function", "write it in Python, or in SQL"),
    "hive.HiveSimpleUDF": ("a Hive function", "write it in Python, or in SQL"),
}


def refuse_analyzed(text: str, has_current: bool) -> None:
    """Raise if the text of an analysed plan has what the JSON of the optimised one would lose."""
    found = _TRY.search(text)
    if found:
        raise _refused(found[1], "write what it replaces, with CASE around it for the values that have none")
    found = _TIME.search(text) if has_current else None
    if found:
        raise _refused(f"{found[1]}()", "write now(), as in `ts >= now() - INTERVAL 5 MINUTES`")


def refuse_optimized(json: str, show: Callable[[], str]) -> None:
    """Raise if an optimised plan has what cannot be lowered; where the JSON is not enough, its text is looked at."""
    for name, (what, hint) in _LOST.items():
        if _has(name, json):
            raise _refused(what, hint)
    found = _ESCAPE.search(show()) if _has("catalyst.expressions.Like", json) else None
    if found:
        raise _refused(f"LIKE with ESCAPE '{found[1]}'", "escape with a backslash")


def _has(name: str, json: str) -> bool:
    """Whether a class occurs in a plan; texts in it have their quotes escaped, and cannot look alike."""
    return f'"class":"org.apache.spark.sql.{name}"' in json


def _refused(what: str, hint: str) -> SqlError:
    return SqlError(f"{what} is not supported in a maintained view", hint=hint)
