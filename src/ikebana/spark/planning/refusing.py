"""Refuses, by name, what a plan's JSON does not show and what cannot be maintained, rather than compute it wrongly.

Other parts of expressions that the JSON lacks are added by `rewriting`. The text of the analysed plan shows functions
of the current time that would stand still; the JSON of the optimised plan shows classes that cannot be maintained.
"""

from __future__ import annotations

import re

from ikebana.errors import SqlError

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
    match = _TIME.search(text) if has_current else None
    if match:
        raise _refused(f"{match[1]}()", "write now(), as in `ts >= now() - INTERVAL 5 MINUTES`")


def refuse_optimized(json: str) -> None:
    """Raise if the JSON of an optimised plan has something unsupported."""
    for name, (what, hint) in _UNSUPPORTED.items():
        if _has(name, json):
            raise _refused(what, hint)


def _has(name: str, json: str) -> bool:
    """Whether a class occurs in a plan. A string literal cannot look like it, because its quotes are escaped."""
    return f'"class":"org.apache.spark.sql.{name}"' in json


def _refused(what: str, hint: str) -> SqlError:
    return SqlError(f"{what} is not supported in a maintained view", hint=hint)
