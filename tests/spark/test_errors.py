"""The summary of a Spark error, from texts as Spark writes them."""

from __future__ import annotations

import pytest

from ikebana.spark.errors import spark_error_summary

JAVA_STACK = "\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)\n\t... 1 more"
CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
BARRIER = (
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier "
    "ResultStage. Most recent failure reason: Stage failed because barrier task ResultTask(3, 1) finished "
    "unsuccessfully.\n"
)
PLAN = "; line 1 pos 7;\n'Project [id#1]\n+- 'Filter scalar-subquery#1 []\n   :  +- Project [n#2]\n   +- LogicalRDD"
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    y = 1 / 0\n'


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("[PARSE_SYNTAX_ERROR] Syntax error at 'FRM'. (line 1, pos 9)\n\n== SQL ==\nSELECT * FRM t", None),
        ("[UNRESOLVED_COLUMN] A column `x` cannot be resolved.; line 1 pos 7\n'Project ['x]\n", None),
        (f"[FAILED] It failed.\nJVM stacktrace:\njava.lang.Error{JAVA_STACK}", "[FAILED] It failed."),
        (f"[FAILED] It failed.\n\nDriver stacktrace:{JAVA_STACK}", "[FAILED] It failed."),
        (f"\n An exception was thrown:\n {TRACEBACK}ValueError: no\n", "ValueError: no"),
        (f"{TRACEBACK}KeyError: 1\n\nDuring it, another:\n\n{TRACEBACK}ValueError: 2\n", "ValueError: 2"),
        (
            f"{CALL}{BARRIER}ExecutorLostFailure (executor 1 exited){JAVA_STACK}",
            "ExecutorLostFailure (executor 1 exited)",
        ),
        (f"{CALL}{BARRIER}org.apache.spark.SparkException: Gone. Consider setting x{JAVA_STACK}", "Gone."),
        (f"{CALL}{BARRIER}org.apache.spark.api.python.PythonException: {TRACEBACK}ValueError: no", "ValueError: no"),
        (f"{CALL}: org.apache.spark.SparkException: Job 0 cancelled{JAVA_STACK}", "Job 0 cancelled"),
        (f"[LIMIT] Not a constant.{PLAN}", "[LIMIT] Not a constant.; line 1 pos 7"),
        (f"{CALL}: java.lang.IllegalStateException: Stopped.{JAVA_STACK}", "Stopped."),
        ("", ""),
    ],
)
def test_the_line_that_says_what_went_wrong(text: str, summary: str | None) -> None:
    assert spark_error_summary(text) == (text.splitlines()[0] if summary is None else summary)


def test_the_position_in_a_query_is_added_once() -> None:
    text = "[UNRESOLVED_COLUMN] A column `x` cannot be resolved.; \nline 1 pos 7;\n'Project ['x]"
    summary = "[UNRESOLVED_COLUMN] A column `x` cannot be resolved. (line 1 pos 7)"
    assert spark_error_summary(text) == summary
    assert spark_error_summary(summary) == summary


def test_an_exception_without_a_text_is_summarised_by_its_class() -> None:
    assert spark_error_summary(ValueError()) == "ValueError"
