"""Verification of a view: Spark's own answer to its query, over the same tables at the same epoch, and the difference.

Spark computes the query from the tables: views that the query reads are replaced by their own queries, as they were
when the view was created. Only what has no query that Spark knows, a view of a collection, is read as it is. All
tables are held at one epoch, and the tasks that read them are told this epoch by a property of the job, so other
threads may go on changing tables.

Rows are compared as in `ikebana.spark.answers`. Cost: a Spark job over the tables, and both answers become Python
values in this process, so this is for answers of thousands of rows, not millions.
Refused: views of collections, which Spark cannot compute; views that read the current time, or streams, whose rows are
gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ikebana.errors import DataflowError
from ikebana.plan.sharing import readers_of
from ikebana.spark.answers import Top, difference
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.naming import quote
from ikebana.spark.readers import epoch_property
from ikebana.spark.temporary_views import query_frame
from ikebana.sql import SourceTable
from ikebana.sql.planned import CLOCK
from ikebana.sql.relation import column_names

if TYPE_CHECKING:
    from ikebana.spark.relations import Relations
    from ikebana.spark.session import Session
    from ikebana.spark.view import View


@dataclass(frozen=True)
class Definition:
    """The query of a view, and what the names in it meant when it was created: tables, or views with a query."""

    query: str | DataFrame
    sources: Mapping[str, Definition | SourceTable]

    def renamed(self, columns: Sequence[str]) -> Definition:
        """The same query with other names for its columns."""
        if isinstance(self.query, DataFrame):
            return replace(self, query=self.query.toDF(*columns))
        return replace(self, query=f"SELECT * FROM ({self.query}) AS t({', '.join(map(quote, columns))})")


def definition_of(query: object, relations: Relations) -> Definition | None:
    """A query that Spark can answer, and what the names in it mean now; None for collections."""
    if not isinstance(query, str | DataFrame):
        return None
    sources: dict[str, Definition | SourceTable] = {}
    with relations.lock:
        for name in relations.mentioned(query) if isinstance(query, str) else ():
            view = relations.views.get(name)
            sources[name] = (view and view._definition) or relations.sources[name]
    return Definition(query, sources)


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """The result of `View.verify`. It is true if the view has the rows of Spark's answer."""

    view: str
    epoch: int
    rows: int
    difference: str
    """The rows that only one of them has; empty if there are none."""

    def __bool__(self) -> bool:
        return not self.difference

    def __repr__(self) -> str:
        what = f"view {self.view!r} at epoch {self.epoch}: {self.rows:,} rows"
        if self.difference:
            return f"{what}, which differ from Spark's answer\n{self.difference}"
        return f"{what}, the same as Spark's answer"


def verify(session: Session, view: View, definition: Definition | None) -> Verification:
    """Compare a view with Spark's answer."""
    if definition is None:
        raise _impossible(view.name, "it was defined by a collection, for which Spark has no query")
    plan = view._inner.plan
    if plan.reads_stream:
        raise _impossible(view.name, "it reads a stream, whose rows are not stored")
    if readers_of(plan, {CLOCK}):
        raise _impossible(view.name, "it reads the current time")
    top = _top(definition.query, view.columns)
    with ExitStack() as stack:
        with session.engine.coordinator.lock:  # so that all are held at the same epoch
            held = stack.enter_context(view._inner.hold())
            session._relations.hold_all(stack)
        actual = held.to_arrow(held.epoch)
        query = Definition(top.unlimited, definition.sources) if top else definition
        with reading_at(session.spark, session._address.session, held.epoch):
            expected = _rows(query_of(query, session.spark, session._frames.of_source), view.name)
            expected = expected.rename_columns(column_names(expected.column_names))
    differing = top.difference(actual, expected) if top else difference(actual, expected)
    return Verification(view.name, held.epoch, actual.num_rows, differing)


def _top(query: str | DataFrame, columns: Sequence[str]) -> Top | None:
    """The parts of a query with ORDER BY and LIMIT, if ties can be told from its answer's columns."""
    top = Top.of(query) if isinstance(query, str) else None
    return top and top.within(columns)


def query_of(
    definition: Definition, spark: SparkSession, source_frame: Callable[[SourceTable], DataFrame]
) -> DataFrame:
    """The query as a DataFrame over tables, with the queries of views in place of the views."""
    if isinstance(definition.query, DataFrame):
        return definition.query.select("*")  # Spark keeps what it has shuffled for a DataFrame, of another epoch
    own = {
        name: query_of(source, spark, source_frame) if isinstance(source, Definition) else source_frame(source)
        for name, source in definition.sources.items()
    }
    return query_frame(spark, definition.query, own)


@contextmanager
def reading_at(spark: SparkSession, session: str, epoch: int) -> Iterator[None]:
    """A block in which DataFrames that this thread uses read tables and views of a session at an epoch."""
    context, key = spark.sparkContext, epoch_property(session)
    before = context.getLocalProperty(key)
    context.setLocalProperty(key, str(epoch))
    try:
        yield
    finally:
        context.setLocalProperty(key, before)  # type: ignore[arg-type]  # None removes it


def _rows(frame: DataFrame, name: str) -> pa.Table:
    try:
        return frame.toArrow()
    except PySparkException as error:
        raise DataflowError(
            f"Spark could not compute the query of view {name!r}", detail=spark_error_summary(error)
        ) from error


def _impossible(name: str, why: str) -> DataflowError:
    return DataflowError(f"view {name!r} cannot be verified", detail=why)
