"""Sets of expressions as Spark planned and evaluated them once, for tests without Java.

`python -m tests.sql.record_expressions` writes a file for each set and mode, after it has compared all values with
Spark's: so the recorded values are those of Spark. Tests on Spark compare again, and fail if Spark plans otherwise.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ikebana.expressions import Config
from tests.sql.expression_cases import Case, EvaluatedRows, cases_of, translate_cases
from tests.sql.expression_sets import SETS
from tests.sql.record_plans import EXPRESSION_ID, Numbers

RECORDED = Path(__file__).parent / "functions" / "recorded"


@dataclass(frozen=True)
class Answer:
    """The type of an expression, the rows for which it raises, and its values for the other rows, as text."""

    text: str
    kind: str
    bad: list[int]
    values: list[str]

    @classmethod
    def of(cls, case: Case) -> Answer:
        """What a case has here."""
        assert case.expression is not None
        return cls(case.text, str(case.expression.type), case.bad, [repr(value) for value in case.values])


@dataclass(frozen=True)
class Recording:
    """Plans and answers of a set of expressions."""

    plan: str
    answers: list[Answer]
    not_null_plan: str
    """The plan over columns that are not null; empty if their nullability is not compared."""

    nullable: list[bool]
    """Whether the values of the expressions of that plan may be null."""


def renumbered(plan: str) -> str:
    """A plan, its expressions numbered from zero."""
    return EXPRESSION_ID.sub(Numbers(), plan)


def write(name: str, ansi: bool, recording: Recording) -> None:
    """Write the recording of a set."""
    RECORDED.mkdir(exist_ok=True)
    data = json.dumps(astuple(recording), separators=(",", ":")).encode()
    _file(name, ansi).write_bytes(gzip.compress(data, mtime=0))


def read(name: str, ansi: bool) -> Recording:
    """The recording of a set."""
    plan, answers, not_null_plan, nullable = json.loads(gzip.decompress(_file(name, ansi).read_bytes()))
    return Recording(plan, [Answer(*answer) for answer in answers], not_null_plan, nullable)


def _file(name: str, ansi: bool) -> Path:
    return RECORDED / f"{name}-{'ansi' if ansi else 'legacy'}.json.gz"


def evaluated(name: str, ansi: bool, plan: str) -> list[Case]:
    """The expressions of a set, translated from a plan, and evaluated."""
    expressions = SETS[name]
    cases = cases_of(expressions.texts(ansi))
    translate_cases(cases, plan, Config(ansi, expressions.zone))
    rows = EvaluatedRows(expressions.table)
    for case in cases:
        rows.evaluate(case)
    return cases


def nullability(name: str, ansi: bool, plan: str) -> dict[str, Any]:
    """Whether the values of each expression may be null, over columns that are not."""
    expressions = SETS[name]
    cases = cases_of(expressions.texts(ansi))
    translate_cases(cases, plan, Config(ansi, expressions.zone))
    return {case.text: case.expression and case.expression.nullable for case in cases}
