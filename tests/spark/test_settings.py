"""Settings of Spark SQL: each is known, and is planned by Spark, obeyed, or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ikebana.errors import SqlError
from ikebana.spark import Session
from ikebana.spark.planning.settings import PREFIX, REFUSED, TREATMENTS, treatment

pytestmark = pytest.mark.spark

Set = Callable[[str, str], None]


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Set]:
    """Changes a setting of the user's session for the duration of a test."""
    changed: list[str] = []

    def set_it(name: str, value: str) -> None:
        changed.append(PREFIX + name)
        spark.conf.set(PREFIX + name, value)

    yield set_it
    for key in changed:
        spark.conf.unset(key)


@pytest.fixture
def numbers(session: Session) -> Session:
    table = session.create_table(
        "numbers", "id BIGINT NOT NULL, x DECIMAL(38, 10), y DECIMAL(20, 9), f DOUBLE, s STRING, a ARRAY<STRING>"
    )
    table.insert(
        [
            (1, Decimal("12.5"), Decimal("3.000000001"), 1.5, "2024-01-05", ["p", None]),
            (2, Decimal("-7.0000000001"), Decimal("7"), 2.5, "abc", None),
            (2, None, Decimal("123456.789"), 4.0, "ABC", []),
        ]
    )
    return session


def entries(spark: SparkSession) -> set[str]:
    """The keys of all settings of Spark SQL, including internal ones."""
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.Class.forName("org.apache.spark.sql.internal.StaticSQLConf$")
    known: Any = getattr(getattr(jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$").getConfigEntries()
    return {str(entry.key()) for entry in known.toArray()}


class TestTheList:
    def test_every_setting_of_spark_is_known(self, spark: SparkSession) -> None:
        assert sorted(key for key in entries(spark) if treatment(key) is None) == []

    def test_every_setting_that_is_known_is_one_of_sparks(self, spark: SparkSession) -> None:
        names = {key.removeprefix(PREFIX) for key in entries(spark)}
        stale = [
            name
            for name in TREATMENTS
            if name not in names and not (name.endswith(".") and any(entry.startswith(name) for entry in names))
        ]
        assert stale == []

    def test_what_is_read_late_and_legacy_is_listed_one_by_one(self) -> None:
        assert not {"legacy.", "execution.", "ansi.", "function.", "session."} & set(TREATMENTS)


OBEYED: dict[str, tuple[str, str, str]] = {
    "precision of sums and products": (
        "decimalOperations.allowPrecisionLoss",
        "false",
        "SELECT id, x + y AS a, y * y AS b, x - y AS c, x % y AS d FROM numbers",
    ),
    "precision of quotients": (
        "decimalOperations.allowPrecisionLoss",
        "false",
        "SELECT id, x / y AS a, y / 3 AS b, sum(x) / count(*) AS c, avg(y) AS d FROM numbers GROUP BY id, x, y",
    ),
    "deviation of one value": (
        "legacy.statisticalAggregate",
        "true",
        "SELECT id, stddev(f) AS a, var_samp(f) AS b, stddev_pop(f) AS c, var_pop(f) AS d FROM numbers GROUP BY id",
    ),
    "deviation of nothing": (
        "legacy.statisticalAggregate",
        "true",
        "SELECT stddev(f) AS a, var_samp(f) AS b FROM numbers WHERE id > 5",
    ),
    "grouping_id": (
        "legacy.integerGroupingId",
        "true",
        "SELECT id, grouping_id() AS g, count(*) AS n FROM numbers GROUP BY ROLLUP (id)",
    ),
    "exists": (
        "legacy.followThreeValuedLogicInArrayExists",
        "false",
        "SELECT exists(a, e -> e = 'q') AS b FROM numbers",
    ),
    "base64": ("chunkBase64String.enabled", "false", "SELECT base64(CAST(repeat(s, 40) AS BINARY)) AS b FROM numbers"),
    "common types": (
        "legacy.decimal.retainFractionDigitsOnTruncate",
        "true",
        "SELECT coalesce(x, CAST(y AS DECIMAL(38, 20))) AS c FROM numbers",
    ),
    "time zone": (
        "session.timeZone",
        "Asia/Tokyo",
        "SELECT date_format(timestamp_seconds(id), 'HH') AS h FROM numbers",
    ),
}
"""The name of a setting, a value other than its default, and a query whose result it changes."""


def answer(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


class TestObeyed:
    @pytest.mark.parametrize("what", OBEYED)
    def test_oracle_of_other_values(self, numbers: Session, setting: Set, what: str) -> None:
        name, value, query = OBEYED[what]
        numbers.read("numbers").createOrReplaceTempView("numbers_in_spark")
        usual = numbers.view("usual", query)
        before = answer(usual.to_arrow())
        setting(name, value)
        expected = numbers.spark.sql(query.replace("FROM numbers", "FROM numbers_in_spark"))
        view = numbers.view("other", query)
        assert [field.dataType for field in view.schema] == [field.dataType for field in expected.schema]
        other = answer(view.to_arrow())
        assert other == answer(expected.toArrow())
        numbers.spark.conf.unset(PREFIX + name)
        for row in numbers.table("numbers").to_arrow().to_pylist():  # evaluated again, under the settings of each
            numbers.table("numbers").change([row, row], ["delete", "insert"])
        assert answer(usual.to_arrow()) == before
        assert answer(view.to_arrow()) == other


CONCERNED: dict[str, tuple[str, str]] = {
    "icu.caseMappings.enabled": ("false", "SELECT upper(s) AS u FROM numbers"),
    "legacy.allowNegativeScaleOfDecimal": ("true", "SELECT id FROM numbers"),
    "legacy.castComplexTypesToString.enabled": ("true", "SELECT CAST(a AS STRING) AS t FROM numbers"),
    "legacy.codingErrorAction": ("true", "SELECT encode(s, 'us-ascii') AS e FROM numbers"),
    "legacy.javaCharsets": ("true", "SELECT encode(s, 'latin1') AS e FROM numbers"),
    "legacy.negativeIndexInArrayInsert": ("true", "SELECT array_insert(a, -1, 'x') AS i FROM numbers"),
    "legacy.percentileDiscCalculation": (
        "true",
        "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY f) AS m FROM numbers",
    ),
    "legacy.timeParserPolicy": ("legacy", "SELECT date_format(timestamp_seconds(id), 'yyyy') AS y FROM numbers"),
    "legacy.truncateForEmptyRegexSplit": ("true", "SELECT split(s, '', 2) AS p FROM numbers"),
    "mapKeyDedupPolicy": ("LAST_WIN", "SELECT map_keys(map_from_arrays(a, a)) AS m FROM numbers"),
    "preserveCharVarcharTypeInfo": ("true", "SELECT CAST(s AS CHAR(5)) AS c FROM numbers"),
}
"""A value other than the default, and a query that the setting affects."""


class TestRefused:
    @pytest.mark.parametrize("name", CONCERNED)
    def test_by_name(self, numbers: Session, setting: Set, name: str) -> None:
        value, query = CONCERNED[name]
        setting(name, value)
        with pytest.raises(SqlError, match=PREFIX + name) as refused:
            numbers.view("v", query)
        assert refused.value.detail == f"the setting decides {REFUSED[name].changes}"
        assert f"spark.conf.unset('{PREFIX}{name}')" in refused.value.hint

    def test_not_where_it_does_not_matter_and_not_at_its_default(self, numbers: Session, setting: Set) -> None:
        for name in ("legacy.timeParserPolicy", "mapKeyDedupPolicy", "legacy.percentileDiscCalculation"):
            setting(name, CONCERNED[name][0])
        numbers.view("plain", "SELECT id, count(*) AS n FROM numbers GROUP BY id")
        setting("legacy.timeParserPolicy", "corrected")
        numbers.view("dated", CONCERNED["legacy.timeParserPolicy"][1])

    def test_regression_of_a_dataframe_that_was_made_under_another_value(self, numbers: Session, setting: Set) -> None:
        name = "legacy.percentileDiscCalculation"
        setting(name, "true")
        frame = numbers.read("numbers").selectExpr("percentile_disc(0.5) WITHIN GROUP (ORDER BY f) AS m")
        numbers.spark.conf.unset(PREFIX + name)
        with pytest.raises(SqlError, match=PREFIX + name):
            numbers.view("v", frame)
