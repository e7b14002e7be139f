"""Fixed bugs of SQL, each with a minimal query, whose view must equal Spark's answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ikebana.spark import Session
from ikebana.spark.answers import SparkAnswers
from tests.sql.logic_run import Outcome, run_folder
from tests.sql.random_sql import wrong
from tests.sql.random_tables import Column, Table

pytestmark = pytest.mark.spark

COLUMNS = [Column("k", "int", False), Column("v", "int", True), Column("n", "bigint", False)]
TABLES = (
    Table("t", COLUMNS, True, [(1, 2, 5), (2, None, 6), (3, 2, 7)]),
    Table("u", COLUMNS, False, [(1, 2, 5), (2, None, 6), (2, None, 6), (4, 4, 1)]),
    Table("e", COLUMNS, False),
    Table("w", [Column("k", "int", False), Column("d", "int", False)], True, [(0, -2), (7, -2), (11, 2)]),
)

Check = Callable[[str], None]


@pytest.fixture(scope="module")
def answers(shared: Session) -> SparkAnswers:
    return SparkAnswers(shared.spark)


@pytest.fixture
def check(session: Session, answers: SparkAnswers) -> Check:
    """Assert that the view of a query over `TABLES` equals Spark's answer."""

    def check(query: str) -> None:
        problem = wrong(session, answers, TABLES, query)
        assert not problem, problem

    return check


# Queries of the random suite, over fixed tables.
def test_regression_an_intersection_with_a_constant(check: Check) -> None:
    """A nullable column meets a column that is constant and never null."""
    check("select v from t intersect select 2 as c from u")


def test_regression_a_constant_except_computed_values(check: Check) -> None:
    """A constant that is never null is compared with values that may be null."""
    check("select 1.5 as c from t except select v / 2 from u")


def test_regression_an_outer_join_on_a_condition_without_columns(check: Check) -> None:
    """A part of the join condition reads neither table."""
    check("select t.k, u.v from t left join u on t.k = u.k and 'b' like ''")


def test_regression_not_exists_on_a_condition_without_columns(check: Check) -> None:
    """The condition reads neither table, and the subquery has one row whatever its table has."""
    check("select k from t where not exists (select 1 from (select max(v) as m from u) q where startswith('ab', 'a'))")


def test_regression_a_constant_for_unread_aggregates_under_a_subquery(check: Check) -> None:
    """No aggregate is read, but their row counts, and a scalar subquery decides whether it is in the result."""
    check("select 1 as c from (select avg(v) as a, count(n) as b from t) q where 0 < (select min(k) from u)")


def test_regression_a_maximum_and_a_sum_of_no_rows(check: Check) -> None:
    """Two aggregates that are maintained separately share the single row of an empty table."""
    check("select max(k), sum(n) from e")


def test_regression_a_sum_a_mean_and_a_maximum_of_no_rows(check: Check) -> None:
    """The single row of an empty table has one null for each aggregate, nullable column or not."""
    check("select sum(v), avg(n), max(n) from e")


def test_regression_a_constant_for_unread_aggregates_with_a_filter(check: Check) -> None:
    """No aggregate is read, with or without FILTER, but their row counts."""
    check("select 5 as c from (select min(v) as m, min(k) filter (where v < n) as f from t) q")


def test_regression_a_count_of_the_row_of_unread_aggregates(check: Check) -> None:
    """A scalar subquery counts a row of which no column is read."""
    check("select k from t where 4L <> (select count(*) from (select min(v) as a, sum(k) as b from u) q)")


def test_regression_a_limited_query_joined_with_itself(check: Check) -> None:
    """Both sides of the join read the same ORDER BY and LIMIT, in which rows tie."""
    check("with x as (select k, d from w order by d desc, k limit 2) select a.* from x a join x b on a.k = b.k")


def test_regression_max_by_with_two_filters(check: Check) -> None:
    """The filters of two aggregates choose different rows of a group, and none of some groups."""
    check(
        "select k, max_by(v, n) filter (where v is null) as a, max_by(v, k) filter (where v > 1) as b from u group by k"
    )


def test_regression_a_lateral_subquery_with_a_limit(check: Check) -> None:
    """ORDER BY and LIMIT apply to each row of the outer table."""
    check("select t.k, q.* from t, lateral (select u.n from u where u.v = t.v order by u.n desc limit 1) q")


# Scripts. Half of the rows arrive after the views are installed.
NULL_SAFE = """
create table t (k int primary key, d date, t timestamp, n numeric, o bool, i int8, s varchar(4));
insert into t values (1, null, null, null, null, null, null), (2, '1970-01-01', '1970-01-01 00:00:00', 0, false, 0, '');
insert into t values (3, '2000-01-01', null, 1, true, 7, 'a'), (4, null, '2000-01-01 12:00:00', null, true, null, 'b');
create table u as select * from t where k <> 3;
select d, t, n, o, i, s from t except select d, t, n, o, i, s from u;
select d, t, n, o, i, s from t intersect select d, t, n, o, i, s from u;
select x.k, y.k as l from t x left join u y on x.d <=> y.d and x.n <=> y.n;
select x.k, y.k as l from t x join u y on x.o <=> y.o and x.k > y.k;
select k from t x where not exists (select 1 from u y where x.t <=> y.t and x.i <=> y.i);
"""

TREE = """
create table t (id int, parent int, n numeric(10, 2));
insert into t values (1, null, 1), (2, 1, 2);
"""


def run(session: Session, folder: Path, script: str) -> Outcome:
    """Run a script, in which no view may be wrong."""
    (folder / "script.sql").write_text(script)
    outcome = run_folder(session, folder)
    assert not outcome.failures, "\n\n".join(outcome.failures)
    return outcome


def assert_refused(outcome: Outcome, what: str) -> None:
    """Assert that the only query of a script was refused."""
    assert {text: len(queries) for text, queries in outcome.refused.items()} == {
        f"{what} is not supported in a maintained view": 1
    }
    assert outcome.compared == 0


def test_regression_null_safe_equality_compared_all_pairs_of_rows(session: Session, tmp_path: Path) -> None:
    """EXCEPT, INTERSECT and <=> over nullable columns joined every row with every other."""
    outcome = run(session, tmp_path, NULL_SAFE)
    assert (outcome.compared, outcome.refused) == (NULL_SAFE.count("\nselect"), {}), outcome


def test_regression_a_frame_with_null_bounds_was_an_internal_error(session: Session, tmp_path: Path) -> None:
    """The query is refused, like everything else that is not supported."""
    outcome = run(
        session,
        tmp_path,
        f"{TREE}select id, count(*) over (order by n range between 'inf' preceding and 'inf' preceding) from t;",
    )
    assert_refused(outcome, "a frame whose bounds are not constants")


def test_regression_recursion_that_reads_an_outer_loop_was_an_internal_error(session: Session, tmp_path: Path) -> None:
    """The query is refused, like everything else that is not supported."""
    outcome = run(
        session,
        tmp_path,
        f"""{TREE}with recursive q as (
          select id from t union all (
            with recursive x as (select id from t union all (select * from q union all select * from x)) select * from x
          )
        ) select * from q limit 8;""",
    )
    assert_refused(outcome, "a recursive query inside another, which it reads in each round,")


def test_regression_recursion_through_a_with_clause_ends_at_its_limit(session: Session, tmp_path: Path) -> None:
    """The recursive part never runs out of rows; only LIMIT ends the loop, here as in Spark."""
    outcome = run(
        session,
        tmp_path,
        f"""{TREE}with recursive q as (select id from t union all (with x as (select * from q) select * from x))
        select * from q limit 8;""",
    )
    assert (outcome.compared, outcome.refused) == (1, {}), outcome
