"""Datalog programs of a session: relations are tables and views of the session, results are views.

    program = session.datalog('''
        .decl edge(src: number, dst: number)                -- a table of the session
        .decl reach(src: number, dst: number)
        .output reach
        reach(x, y) :- edge(x, y).
        reach(x, z) :- reach(x, y), edge(y, z).
    ''')
    session.view("counts", "SELECT src, count(*) AS n FROM reach GROUP BY src")
    program.query("reach(x, ?)").open(x=5)

A relation that has neither rules nor facts in the program is the table or view of the session that has its name, if
there is one; `relations=` names others, or DataFrames over them. All other relations have facts of their own, which
`insert` and `remove` change.

Every output is a view of the session, so it is a DataFrame, a feed of changes, and a source of SQL. Symbols are
strings, as in the tables. An `unsigned` is a BIGINT there, or a DECIMAL(20, 0) if the program has 64-bit numbers,
because Spark has no unsigned numbers.

Cost and guarantees are those of `ikebana.datalog.program`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ikebana.cluster.interrupts import complete_or_undo
from ikebana.datalog import Program, check, syntax
from ikebana.datalog.proofs import Proof, WhyNot
from ikebana.datalog.topdown import Query, WholeQuery
from ikebana.engine.collection import Collection
from ikebana.engine.tables import Transaction
from ikebana.operators.linear import Columns
from ikebana.spark.naming import resolve
from ikebana.spark.querying import Relation
from ikebana.spark.relations import Relations
from ikebana.spark.stored_queries import StoredQueries
from ikebana.spark.view import View
from ikebana.sql import SourceTable

if TYPE_CHECKING:
    from ikebana.spark.session import Session


class SessionProgram:
    """A Datalog program on the workers of a session; `Session.datalog` creates one."""

    def __init__(
        self,
        session: Session,
        program: syntax.Program,
        known: Mapping[str, SourceTable],
        relations: Mapping[str, Relation],
        prefix: str,
        name: str | None = None,
    ) -> None:
        """`known` are the tables and views of the session, `relations` what the user has named, by relation.

        A program that is stored has a `name`, by which it finds its facts.
        """
        self._session, self.prefix, self.program = session, prefix, program
        self._views: dict[str, View] = {}
        self.given = _of_the_same_name(program, known)
        """The relations that are not the program's own."""
        rows_of = session._queries.rows_of
        self.given |= {relation: rows_of(source, f"relation {relation!r}") for relation, source in relations.items()}
        is_stored = name is not None
        self.inner = Program(session.engine, program, relations=self.given, intern=False, name=name, durable=is_stored)
        """The program on the session's engine."""
        try:
            for relation in self.inner.outputs:
                self.view(relation)
        except BaseException:
            self._drop_views()
            if self.inner.has_come_back:
                self.inner.drop_views()
            else:
                self.inner.close()
            raise

    # Results.

    @property
    def views(self) -> dict[str, View]:
        """The views of the program's relations, by relation."""
        return dict(self._views)

    def view(self, relation: str) -> View:
        """The view of a relation, with a column for each attribute. The outputs of the program have one already.

        In the session, its name is that of the relation, after the program's prefix.
        """
        view = self._views.get(relation)
        if view is None:
            rows = self.inner.relation(relation).view.rows()
            columns = self.inner.planner.columns(relation)
            view = self._session._view_lifecycle.create_for_program(self.prefix + relation, _for_spark(rows, columns))
            self._views[relation] = view
        return view

    def query(self, text: str, **values: Any) -> Query | WholeQuery:
        """Prepare a question such as `reach(x, ?)`, which computes only what its answers need.

        `read(x=5)` of the result returns an answer, `open(x=5)` one that is kept up to date; see
        `ikebana.datalog.program.Program.query`.
        """
        return self.inner.query(text, **values)

    def why(self, fact: str) -> Proof:
        """Return a proof of least height of a fact, such as `reach(1, 5)`."""
        return self.inner.why(fact)

    def why_not(self, fact: str) -> WhyNot:
        """Return, for each rule that might derive a fact, the first literal that fails."""
        return self.inner.why_not(fact)

    def explain(self) -> str:
        """Return the plan of each rule, with the indexes that it shares with others."""
        return self.inner.explain()

    # Facts.

    def insert(self, relation: str, rows: Any, *, timeout: float | None = None) -> int | None:
        """Insert facts of a relation: tuples, a mapping of attributes to columns, an Arrow table or a DataFrame.

        Returns the epoch at which they were inserted; None inside a transaction. Facts that exist stay as they are.
        """
        return self.inner.insert(relation, _in_memory(rows), timeout=timeout)

    def remove(self, relation: str, rows: Any, *, timeout: float | None = None) -> int | None:
        """Remove facts, given as for `insert`. Facts that do not exist are ignored."""
        return self.inner.remove(relation, _in_memory(rows), timeout=timeout)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Change facts and tables of the session in one epoch: `with program.transaction(): ...`."""
        return self._session.transaction(timeout=timeout)

    # Closing.

    def close(self) -> None:
        """Drop the program's views, questions and facts. Raises if another view reads them: drop that view first."""
        self._drop_views()
        self._session._programs.forget(self)
        self.inner.close()

    def _drop_views(self) -> None:
        for relation in list(self._views):
            self._views.pop(relation).drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<datalog program: {', '.join(self._views) or 'no views'}>"


class SessionPrograms:
    """The Datalog programs of a session."""

    def __init__(self, session: Session, relations: Relations, stored: StoredQueries | None) -> None:
        self._session, self._relations, self._stored = session, relations, stored
        self._programs: list[SessionProgram] = []

    def __len__(self) -> int:
        return len(self._programs)

    def create(self, tree: syntax.Program, relations: Mapping[str, Relation], prefix: str) -> SessionProgram:
        """Create a program, its views and the tables of its facts, and store it."""
        with self._relations.lock:
            known, storage = dict(self._relations.sources), self._session.engine.storage
            name = None if storage is None else f"datalog {storage.store.new_transaction()}"

            def create() -> SessionProgram:
                program = SessionProgram(self._session, tree, known, relations, prefix, name)
                self._programs.append(program)
                try:
                    if self._stored is not None:
                        self._stored.save_program(program.inner.name, program.program, program.given, prefix)
                except BaseException:
                    program.close()
                    raise
                return program

            return complete_or_undo(create, SessionProgram.close)

    def restore(self, name: str, tree: syntax.Program, given: Mapping[str, Relation], prefix: str) -> None:
        """Create a program that is stored under this name, over the tables of its facts."""
        self._programs.append(SessionProgram(self._session, tree, {}, given, prefix, name))

    def find(self, name: str) -> SessionProgram:
        """The program that has a view of this name; raises if there is none."""
        with self._relations.lock:
            by_view = {view.name: program for program in self._programs for view in program.views.values()}
        return resolve(by_view, name, "view of a program", self._session.spark)

    def tables_of_facts(self) -> set[str]:
        """The names of the tables in which programs keep their own facts."""
        return {table.name for program in self._programs for table in program.inner.fact_tables}

    def forget(self, program: SessionProgram) -> None:
        """Remove a program that is being closed, from storage too."""
        with self._relations.lock:
            self._programs.remove(program)
            if self._stored is not None:
                self._stored.forget_program(program.inner.name)


def _of_the_same_name(program: syntax.Program, known: Mapping[str, SourceTable]) -> dict[str, Collection]:
    """The relations without rules and facts that have the names of tables and views."""
    checked = check(program)
    empty = [name for name in checked.relations if not checked.rules_by_head[name] and name not in checked.facts]
    return {name: known[name].rows for name in empty if name in known}


def _in_memory(rows: Any) -> Any:
    return rows.toArrow() if isinstance(rows, DataFrame) else rows


def _for_spark(rows: Collection, columns: Sequence[str]) -> Collection:
    """The rows with these columns, in their order, and with types that Spark has."""
    fields = {field.name: field for field in rows.node.columns}
    signed = {name: _signed(fields[name]) for name in columns}
    if any(signed[name] != fields[name] for name in columns):
        return rows.map(list(signed.values()), _Signed(signed))
    return rows if tuple(rows.columns) == tuple(columns) else rows.select(*columns)


def _signed(field: pa.Field) -> pa.Field:
    if not pa.types.is_unsigned_integer(field.type):
        return field
    return field.with_type(pa.int64() if field.type.bit_width < 64 else pa.decimal128(20, 0))


class _Signed:
    """Converts columns to signed types."""

    def __init__(self, fields: Mapping[str, pa.Field]) -> None:
        self._types = {name: field.type for name, field in fields.items()}

    def __call__(self, columns: Columns) -> dict[str, pa.Array]:
        return {name: pc.cast(columns[name], kind) for name, kind in self._types.items()}
