"""Files in the format of sqllogictest: how they are read, and, where there are some, every query as a view.

IKEBANA_LOGIC names a folder with such files, of whatever project; none come with this one. Without it only the cases
below are run, which show what is understood.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ikebana.bench.tpch.answers import Batch
from ikebana.spark import Session, connect
from tests.sql.logic_files import Outcome, Record, Run, records

FOLDER = os.environ.get("IKEBANA_LOGIC", "")

CASE = """\
# plants, and where they stand
statement ok
CREATE TABLE plants(id INTEGER, place VARCHAR, height DECIMAL(5, 1));

statement ok
INSERT INTO plants VALUES (1, 'hall', 40.5), (2, 'hall', NULL), (3, NULL, 12.0)

query TI rowsort
SELECT place, count(height) FROM plants GROUP BY place
----
NULL 1
hall 1

skipif spark
query I
SELECT no_such_function(id) FROM plants

statement ok
UPDATE plants SET height = height + 1, place = 'attic' WHERE place IS NULL

statement error
SELECT nothing FROM plants

query I
SELECT id FROM plants p WHERE EXISTS (SELECT 1 FROM plants q WHERE q.place = p.place AND q.id <> p.id)
----
1
2

statement ok
DELETE FROM plants WHERE id = 2

statement ok
INSERT INTO plants (place, id) VALUES ('attic', 4)

mode skip

query I
SELECT 1 FROM nowhere

mode unskip

query I
SELECT p.id FROM plants p FULL JOIN plants q ON p.id = q.id + 1
----

halt

query I
SELECT 2 FROM nowhere
"""


def test_what_a_file_has() -> None:
    found = list(records(CASE))
    assert [record.text.split()[0] for record in found] == [
        *("CREATE", "INSERT", "SELECT", "UPDATE", "SELECT", "SELECT", "DELETE", "INSERT", "SELECT")
    ]
    assert found[2] == Record(
        8, "SELECT place, count(height) FROM plants GROUP BY place", ("NULL 1", "hall 1"), "rowsort"
    )
    assert [record.fails for record in found].count(True) == 1


def test_conditions() -> None:
    text = "onlyif spark\nquery I\nSELECT 1\n\nonlyif other\nquery I\nSELECT 2\n\nskipif other\nquery I\nSELECT 3\n"
    assert [record.text for record in records(text)] == ["SELECT 1", "SELECT 3"]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[Session]:
    with connect(spark, workers=2) as session:
        yield session


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
class TestOnSpark:
    def test_oracle_a_file(self, session: Session, tmp_path: Path) -> None:
        (tmp_path / "case.slt").write_text(CASE)
        outcome = Outcome()
        Run(session, Batch(session.spark), outcome).file(tmp_path / "case.slt")
        assert not outcome.failures, "\n\n".join(outcome.failures)
        assert (outcome.compared, outcome.refused, outcome.left_out) == (8, {}, {})
        assert not session.tables() and not session.views()

    @pytest.mark.skipif(not FOLDER, reason="IKEBANA_LOGIC names no folder with files")
    def test_oracle_files_of_others(self, session: Session) -> None:
        batch, outcome = Batch(session.spark), Outcome()
        for path in sorted(each for each in Path(FOLDER).rglob("*") if each.is_file()):
            Run(session, batch, outcome).file(path)
        print(outcome.compared, outcome.refused, outcome.refused_by_spark, outcome.left_out)
        assert not outcome.failures, "\n\n".join(outcome.failures[:20])
        assert outcome.compared
