"""The functions that docs/SQL.md lists are those that there are.

`CALLS` has a call of each. That the list has all of them, and nothing else, needs no Spark; that each can be lowered,
and that no function of Spark's was forgotten whose class can be, does. `python -m tests.sql.test_documented_functions`
prints the list as the page has to have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ikebana.engine import Engine
from ikebana.expressions.core.base import BUILDERS
from ikebana.spark.planning import Planner
from ikebana.spark.types import fields_of
from ikebana.sql import SourceTable
from ikebana.sql.lowering.aggregate_functions import GATHERED, SUMS
from ikebana.sql.lowering.generators import _GENERATORS
from ikebana.sql.lowering.query import lower
from ikebana.sql.lowering.windows import _FUNCTIONS

PAGE = Path(__file__).parents[2] / "docs" / "SQL.md"

COLUMNS = (
    "i INT, l BIGINT, d DOUBLE, s STRING, p STRING NOT NULL, b BINARY, bo BOOLEAN, dt DATE, ts TIMESTAMP, "
    "ntz TIMESTAMP_NTZ, a ARRAY<INT>, sa ARRAY<STRING>, aa ARRAY<ARRAY<INT>>, st STRUCT<x: INT, y: STRING>, "
    "m MAP<STRING, INT>, sta ARRAY<STRUCT<x: INT>>"
)
"""The table that is called about."""

CALLS: dict[str, str] = {
    "conditions": """
        between(i, 1, 2); coalesce(i, 1); equal_null(i, 1); if(bo, 1, 2); ifnull(i, 1); ilike(s, 'a%'); isnan(d);
        isnotnull(i); isnull(i); like(s, 'a%'); nanvl(d, 0D); nullif(i, 1); nullifzero(i); nvl(i, 1); nvl2(i, 1, 2);
        regexp(s, 'a'); regexp_like(s, 'a'); rlike(s, 'a'); zeroifnull(i)""",
    "casts": """
        bigint(s); binary(s); boolean(s); cast(s AS INT); date(s); decimal(s); double(s); float(s); int(s); smallint(s);
        string(i); timestamp(s); tinyint(s); try_cast(s AS INT)""",
    "numbers": """
        abs(i); acos(d); acosh(d); asin(d); asinh(d); atan(d); atan2(d, d); atanh(d); bin(l); bit_count(i);
        bit_get(i, 0); bround(d, 1); cbrt(d); ceil(d); ceiling(d); conv(s, 10, 16); cos(d); cosh(d); cot(d); csc(d);
        degrees(d); div(i, 2); e(); exp(d); expm1(d); factorial(i); floor(d); getbit(i, 0); greatest(i, 2); hex(l);
        hypot(d, d); least(i, 2); ln(d); log(2, d); log10(d); log1p(d); log2(d); mod(i, 3); negative(i); pi();
        pmod(i, 3); positive(i); pow(d, 2); power(d, 2); radians(d); rint(d); round(d, 1); sec(d); shiftleft(i, 1);
        shiftright(i, 1); shiftrightunsigned(i, 1); sign(d); signum(d); sin(d); sinh(d); sqrt(d); tan(d); tanh(d);
        try_add(i, 1); try_divide(i, 2); try_mod(i, 2); try_multiply(i, 2); try_subtract(i, 1); unhex(s);
        width_bucket(d, 0, 10, 5)""",
    "strings and binaries": """
        ascii(s); base64(b); bit_length(s); btrim(s); char(l); char_length(s); character_length(s); chr(l);
        concat_ws(',', s, s); contains(s, 'a'); crc32(b); decode(b, 'UTF-8'); elt(i, s, s); encode(s, 'UTF-8');
        endswith(s, 'a'); find_in_set(s, 'a,b'); format_number(d, 2); format_string('%s', s); hash(s); initcap(s);
        instr(s, 'a'); lcase(s); left(s, 2); len(s); length(s); levenshtein(s, s); locate('a', s); lower(s); lpad(s, 5);
        ltrim(s); md5(s); octet_length(s); overlay(s, 'a', 1); position('a', s); printf('%s', s); regexp_count(s, 'a');
        regexp_extract(s, '(a)', 1); regexp_extract_all(s, '(a)', 1); regexp_instr(s, 'a'); regexp_replace(s, 'a', 'b');
        regexp_substr(s, 'a'); repeat(s, 2); replace(s, 'a', 'b'); right(s, 2); rpad(s, 5); rtrim(s); sha(s); sha1(s);
        sha2(s, 256); soundex(s); space(i); split(s, ','); split_part(s, ',', 1); startswith(s, 'a'); substr(s, 1, 2);
        substring(s, 1, 2); substring_index(s, '.', 1); to_binary(s, 'hex'); translate(s, 'a', 'b'); trim(s); ucase(s);
        unbase64(s); upper(s); url_encode(s); xxhash64(s)""",
    "dates and times": """
        add_months(dt, 1); convert_timezone('UTC', 'Asia/Tokyo', ntz); date_add(dt, 1); date_diff(dt, dt);
        date_format(ts, 'yyyy-MM'); date_from_unix_date(i); date_part('year', dt); date_sub(dt, 1);
        date_trunc('HOUR', ts); dateadd(dt, 1); datediff(dt, dt); datepart('year', dt); day(dt); dayname(dt);
        dayofmonth(dt); dayofweek(dt); dayofyear(dt); extract(YEAR FROM dt); from_unixtime(l);
        from_utc_timestamp(ts, 'Asia/Tokyo'); hour(ts); last_day(dt); make_date(i, 1, 1); make_dt_interval(i);
        make_timestamp(i, 1, 1, 0, 0, 0); make_timestamp_ltz(i, 1, 1, 0, 0, 0); make_timestamp_ntz(i, 1, 1, 0, 0, 0);
        make_ym_interval(i); minute(ts); month(dt); monthname(dt); months_between(dt, dt); next_day(dt, 'MO');
        quarter(dt); second(ts); timestamp_micros(l); timestamp_millis(l); timestamp_seconds(l);
        time_bucket(INTERVAL '5' MINUTE, ts); timestampadd(HOUR, 1, ts); timestampdiff(HOUR, ts, ts); to_date(s);
        to_timestamp(s, 'yyyy-MM-dd');
        to_timestamp_ltz(s); to_timestamp_ntz(s); to_unix_timestamp(ts); to_utc_timestamp(ts, 'Asia/Tokyo');
        trunc(dt, 'MM'); try_to_timestamp(s);
        unix_date(dt); unix_micros(ts); unix_millis(ts); unix_seconds(ts); unix_timestamp(ts);
        weekday(dt); weekofyear(dt); year(dt); window(ts, '5 minutes'); window_time(window(ts, '5 minutes'))""",
    "arrays, structs and maps": """
        aggregate(a, 0, (x, y) -> x + y); array(i, 2); array_append(a, 1); array_compact(a); array_contains(a, 1);
        array_distinct(a); array_except(a, a); array_insert(a, 1, 2); array_intersect(a, a); array_join(sa, ',');
        array_max(a); array_min(a); array_position(a, 1); array_prepend(a, 1); array_remove(a, 1); array_repeat(i, 2);
        array_size(a); array_sort(a); array_union(a, a); arrays_overlap(a, a); arrays_zip(a, sa); cardinality(a);
        concat(s, s); element_at(a, 1); exists(a, x -> x > 1); filter(a, x -> x > 1); flatten(aa);
        forall(a, x -> x > 1); get(a, 0); map(p, i); map_concat(m, m); map_contains_key(m, 'a'); map_entries(m);
        map_filter(m, (k, v) -> v > 1); map_from_arrays(sa, a); map_from_entries(array(struct(p, i))); map_keys(m);
        map_values(m); map_zip_with(m, m, (k, x, y) -> x); named_struct('x', i); reduce(a, 0, (x, y) -> x + y);
        reverse(s); sequence(1, i); size(a); slice(a, 1, 2); sort_array(a); str_to_map(s); struct(i, s);
        transform(a, x -> x + 1); transform_keys(m, (k, v) -> k); transform_values(m, (k, v) -> v);
        try_element_at(a, 1); zip_with(a, a, (x, y) -> x)""",
    "JSON": """
        from_json(s, 'x INT'); get_json_object(s, '$.x'); json_array_length(s); json_object_keys(s);
        to_json(st)""",
    "aggregates": """
        any(bo); any_value(i); approx_count_distinct(i); approx_percentile(i, 0.5); array_agg(i); avg(i); bit_and(i);
        bit_or(i); bit_xor(i); bool_and(bo); bool_or(bo); collect_list(i); collect_set(i); corr(d, d); count(i);
        count_if(bo); covar_pop(d, d); covar_samp(d, d); every(bo); first(i); first_value(i); kurtosis(d); listagg(s);
        max(i); max_by(i, d); mean(i); median(d); min(i); min_by(i, d); mode(i); percentile(d, 0.5);
        percentile_approx(i, 0.5); percentile_cont(0.5) WITHIN GROUP (ORDER BY d);
        percentile_disc(0.5) WITHIN GROUP (ORDER BY d); regr_avgx(d, d); regr_avgy(d, d); regr_count(d, d);
        regr_intercept(d, d); regr_r2(d, d); regr_slope(d, d); regr_sxx(d, d); regr_sxy(d, d); regr_syy(d, d);
        skewness(d); some(bo); std(d); stddev(d); stddev_pop(d); stddev_samp(d); string_agg(s); sum(i); try_avg(i);
        try_sum(i); var_pop(d); var_samp(d); variance(d)""",
    "over windows": """
        any_value(i); approx_count_distinct(i); approx_percentile(i, 0.5); array_agg(i); avg(i); bit_and(i); bit_or(i);
        bit_xor(i); bool_and(bo); bool_or(bo); collect_list(i); collect_set(i); corr(d, d); count(i); count_if(bo);
        covar_pop(d, d); covar_samp(d, d); cume_dist(); dense_rank(); first_value(i); kurtosis(d); lag(i);
        last_value(i); lead(i); max(i); max_by(i, d); mean(i); min(i); min_by(i, d); mode(i); nth_value(i, 2); ntile(3);
        percent_rank(); percentile(d, 0.5); percentile_approx(i, 0.5); rank(); regr_intercept(d, d); regr_r2(d, d);
        regr_slope(d, d); row_number(); skewness(d); std(d); stddev(d); stddev_pop(d); stddev_samp(d); sum(i);
        try_avg(i); try_sum(i); var_pop(d); var_samp(d); variance(d)""",
    "table-generating": """
        explode(a); explode_outer(a); inline(sta); inline_outer(sta); posexplode(a); posexplode_outer(a);
        stack(2, i, 2); unnest(a)""",
}
"""A call of each function, by family."""

OPERATORS = {"and", "in", "not", "or", "when"}
"""What Spark has among its functions, besides signs, and nobody calls so."""
NOT_REALLY = {"time"}
"""Whose class can be lowered, but not for the type that they are about."""


def calls(family: str) -> dict[str, str]:
    """The calls of a family, by the names of functions."""
    texts = [" ".join(text.split()) for text in CALLS[family].split(";")]
    return {text.partition("(")[0]: text for text in texts}


def documented() -> dict[str, list[str]]:
    """The functions that the page lists, by family."""
    section = PAGE.read_text().partition("\n## Functions\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.M)
    return {family: names.split(", ") for family, names in rows if family in CALLS}


def test_the_list_has_all_functions_and_no_others() -> None:
    assert documented() == {family: sorted(calls(family)) for family in CALLS}


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> Iterator[tuple[Planner, Mapping[str, SourceTable]]]:
    """A planner and a table, without workers of Spark's."""
    with Engine() as engine:
        fields = fields_of(COLUMNS)
        planner = Planner(spark)
        planner.add_table("t", fields)
        yield planner, {"t": SourceTable("t", engine.table("t", fields))}


def queries(family: str) -> list[str]:
    """Queries that call all functions of a family."""
    called = list(calls(family).values())
    if family == "table-generating":
        from_lateral = [f"SELECT p, u.* FROM t, LATERAL {call} AS u" for call in called if call.startswith("unnest")]
        return [*(f"SELECT p, {call} FROM t" for call in called if not call.startswith("unnest")), *from_lateral]
    over = " OVER (PARTITION BY p ORDER BY l)" if family == "over windows" else ""
    columns = ", ".join(f"{call}{over} AS c{number}" for number, call in enumerate(called))
    return [f"SELECT p, {columns} FROM t {'GROUP BY p' if family == 'aggregates' else ''}"]


@pytest.mark.spark
class TestOnSpark:
    @pytest.mark.parametrize("family", CALLS)
    def test_listed_functions_are_supported(
        self, world: tuple[Planner, Mapping[str, SourceTable]], family: str
    ) -> None:
        planner, tables = world
        for query in queries(family):
            lower(planner.plan(query), tables)

    def test_no_function_is_forgotten(self, spark: SparkSession) -> None:
        refused = {kind for kind, builder in BUILDERS.items() if builder.__module__.endswith(".unsupported")}
        lowered = {*BUILDERS, *SUMS, *GATHERED, *_FUNCTIONS, *_GENERATORS, "Min", "Max", "First"} - refused
        listed = {name for family in CALLS for name in calls(family)}
        supported = {name for name, kind in classes(spark).items() if kind in lowered and name.isidentifier()}
        assert supported - listed == OPERATORS | NOT_REALLY


def classes(spark: SparkSession) -> dict[str, str]:
    """The class of each function that Spark has."""
    analysis = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.analysis  # type: ignore[union-attr]
    registry = getattr(getattr(analysis, "FunctionRegistry$"), "MODULE$").builtin()
    names = registry.listFunction()
    class_of = {}
    for position in range(names.size()):
        name = names.apply(position)
        class_of[name.funcName()] = registry.lookupFunction(name).get().getClassName().rpartition(".")[2]
    return class_of


if __name__ == "__main__":
    for family in CALLS:
        print(f"| {family} | {', '.join(sorted(calls(family)))} |")
