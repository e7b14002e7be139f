"""How the exit of a worker reaches the driver: as one line in the text of Spark's error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ikebana.cluster.hosts import WorkerExit
from ikebana.cluster.launch import EXIT_CODE_CRASHED, EXIT_CODE_LOST
from ikebana.spark.barrier_job import _reported
from ikebana.spark.supervisor import ExitReport, format_exit_report, parse_exit_report

TEXT = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
    ": org.apache.spark.SparkException: Job aborted: barrier task ResultTask(0, 0) finished unsuccessfully.\n"
    'Traceback (most recent call last):\n  File "supervisor.py", line 1, in supervise\n'
    "RuntimeError: {}\n\n\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)\n"
)


@pytest.mark.parametrize(("worker", "code"), [(0, 1), (3, -9), (12, EXIT_CODE_CRASHED), (1, EXIT_CODE_LOST)])
def test_an_exit_report_survives_the_text_of_a_spark_error(worker: int, code: int) -> None:
    report = format_exit_report(worker, code)
    assert "\n" not in report
    assert parse_exit_report(report) == parse_exit_report(TEXT.format(report)) == ExitReport(worker, code)


@pytest.mark.parametrize(
    "message",
    ["", "worker 1 ended with code 3", *(format_exit_report(1, 3)[:length] for length in (5, 19, 22, 35))],
)
def test_a_text_without_a_complete_report_has_none(message: str) -> None:
    assert parse_exit_report(TEXT.format(message)) is None


def test_a_report_of_another_form_is_none() -> None:
    marker = format_exit_report(1, 3).partition("{")[0]
    assert [parse_exit_report(marker + json) for json in ("{}", "[1, 3]", "3", '{"worker": null, "exit_code": 1}')] == (
        [None] * 4
    )


@pytest.mark.parametrize(
    ("report", "lost", "expected"),
    [
        ((1, -9), [0, 1], WorkerExit(1, "it was killed by SIGKILL")),
        ((1, EXIT_CODE_CRASHED), [0, 1], WorkerExit(1, f"it ended with exit code {EXIT_CODE_CRASHED}", crashed=True)),
        ((1, EXIT_CODE_LOST), [1, 0], WorkerExit(0, "worker 1 has lost its connection to one that does not answer")),
        ((1, EXIT_CODE_LOST), [1], WorkerExit(None, "worker 1 has lost its connection to one that does not answer")),
    ],
)
def test_the_cause_of_an_exit(report: Any, lost: Sequence[int], expected: WorkerExit) -> None:
    assert _reported(ExitReport(*report), lost) == expected
