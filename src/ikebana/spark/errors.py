"""The line of a Spark error that says what went wrong.

A Spark exception's text may hold a summary, the query with its context, a Python traceback from a task, and one or more
Java stack traces. Users of Ikebana get one line of it as the `detail` of an error; the exception itself stays attached
as its cause.

Not guaranteed: the best line for every text. Spark's wording is not an interface; a text in a format that is not known
here is summarised by its first line.
"""

from __future__ import annotations

import re
from itertools import pairwise

from ikebana.errors import SqlError

BARRIER_TASK = re.compile(r"barrier task ResultTask\(\d+, (\d+)\)")
"""The task of a barrier stage that Spark blames for the failure of the stage: the group is the task's partition."""

_STACK_TRACES = re.compile(r"\n(?:JVM|Driver) stacktrace:")
_JAVA_CLASS = re.compile(r"^.*?Exception: ")
_SQL_POSITION = re.compile(r"line \d+,? pos \d+")
_PY4J_CALL = "An error occurred while calling "
_EXHAUSTED = re.compile(
    r"No space left on device|Disk quota exceeded|Too many open files|OutOfMemoryError(?:: [^\n]*)?"
)
"""What a machine has run out of: this matters more than what it has made impossible."""
_UNBOUND_PARAMETER = "[UNBOUND_SQL_PARAMETER]"
_ADVICE_ON_ARGUMENTS = re.compile(r" Please, fix `args` [^.]*\.")  # of a method that sessions do not have
_ADVICE = " Consider setting"  # advice about Spark's settings that do not matter to workers


def spark_error_summary(error: Exception | str) -> str:
    """The line of an exception, or of its text, that says what went wrong, with the position in a query if it has one.

    >>> python = "An exception was thrown from the Python worker:\\nTraceback ...\\n  File x\\n    y = 1 / 0"
    >>> spark_error_summary(python + "\\nZeroDivisionError: division by zero\\n")
    'ZeroDivisionError: division by zero'
    >>> spark_error_summary("[PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03\\nJVM stacktrace:\\n  at java")
    '[PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03'
    >>> spark_error_summary("An error occurred while calling x.\\n: org.SparkException: Job 0 cancelled\\n  at y")
    'Job 0 cancelled'
    >>> spark_error_summary(
    ...     "An error occurred while calling o1.collect.\\n: org.SparkException: Job aborted.\\n  at y\\n"
    ...     "Caused by: java.io.IOException: No space left on device\\n  at z"
    ... )
    'No space left on device: Job aborted.'
    """
    text = str(error)
    lines = _lines(_STACK_TRACES.split(text)[0])
    if not lines:
        return type(error).__name__ if isinstance(error, Exception) else ""
    summary = _raised(lines) or _blamed(lines) or _called(lines) or lines[0].strip()
    return _with_exhausted(_with_position(summary.rstrip("; "), text), text)


def query_error(error: Exception) -> SqlError:
    """The error of a query that Spark does not understand."""
    summary, hint = spark_error_summary(error), ""
    if _UNBOUND_PARAMETER in summary:
        summary = _ADVICE_ON_ARGUMENTS.sub("", summary)
        hint = 'prepare the query with a type for each parameter, such as session.prepare(query, id="BIGINT")'
    return SqlError("Spark does not understand the query", detail=summary, hint=hint)


def _lines(text: str) -> list[str]:
    """The lines of a text without empty ones and stack frames of Java."""
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "*"))]


def _raised(lines: list[str]) -> str:
    """The exception below the last Python traceback: its first line that is not indented."""
    starts = [number for number, line in enumerate(lines) if "Traceback" in line]
    raised = [line for line in lines[starts[-1] + 1 :] if not line.startswith(" ")] if starts else []
    return raised[0].strip() if raised else ""


def _blamed(lines: list[str]) -> str:
    """The reason of a failed barrier task, which is on the line after it."""
    reasons = [after for line, after in pairwise(lines) if BARRIER_TASK.search(line)]
    return _message(reasons[0]) if reasons else ""


def _called(lines: list[str]) -> str:
    """The Java exception that Py4J reports on its second line; the first one only names the method that was called."""
    if _PY4J_CALL in lines[0] and lines[1:] and lines[1].startswith(": "):
        return _message(lines[1])
    return ""


def _message(line: str) -> str:
    """The message of a Java exception, without its class."""
    return _JAVA_CLASS.sub("", line.strip()).removeprefix(": ").partition(_ADVICE)[0]


def _with_exhausted(summary: str, text: str) -> str:
    """The summary, after what the machine has run out of, if that is a cause further down in the text."""
    exhausted = _EXHAUSTED.search(text)
    return summary if exhausted is None or exhausted[0] in summary else f"{exhausted[0]}: {summary}"


def _with_position(summary: str, text: str) -> str:
    position = _SQL_POSITION.search(text)
    if position is None or position[0] in summary:
        return summary
    return f"{summary} ({position[0]})"
