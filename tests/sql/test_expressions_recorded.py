"""Expressions have the values, types, errors and nullability that Spark had when they were recorded."""

from __future__ import annotations

import pytest

from tests.sql.expression_sets import RUN_IDS, RUNS, SETS
from tests.sql.recorded_expressions import RECORDED, Answer, evaluated, nullability, read

RECORD_AGAIN = "record them: python -m tests.sql.record_expressions"


@pytest.mark.parametrize(("name", "ansi"), RUNS, ids=RUN_IDS)
def test_oracle_recorded_expressions(name: str, ansi: bool) -> None:
    recording = read(name, ansi)
    assert [answer.text for answer in recording.answers] == list(dict.fromkeys(SETS[name].texts(ansi))), RECORD_AGAIN
    cases = evaluated(name, ansi, recording.plan)
    assert [line for case in cases for line in case.differences] == []
    assert [Answer.of(case) for case in cases] == recording.answers


@pytest.mark.parametrize(
    ("name", "ansi"),
    [(name, ansi) for name, ansi in RUNS if SETS[name].are_functions],
    ids=[run for run, (name, _) in zip(RUN_IDS, RUNS, strict=True) if SETS[name].are_functions],
)
def test_oracle_recorded_nullability(name: str, ansi: bool) -> None:
    """The nullability of functions of columns that are not null is the same as in Spark."""
    recording = read(name, ansi)
    actual = nullability(name, ansi, recording.not_null_plan)
    expected = dict(zip(actual, recording.nullable, strict=True))
    assert {text: may_be for text, may_be in actual.items() if may_be != expected[text]} == {}


def test_there_are_no_other_recordings() -> None:
    assert len(list(RECORDED.iterdir())) == len(RUNS)
