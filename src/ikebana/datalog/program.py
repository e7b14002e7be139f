"""Programs: Datalog text whose relations are maintained by an engine while facts come and go.

    program = datalog.load(engine, "tc.dl")          # or the text of a program
    program.insert("edge", [(1, 2), (2, 3)])         # an epoch of its own
    with program.transaction():                      # several changes, one epoch
        program.insert("edge", [(3, 4)])
        program.remove("edge", [(1, 2)])
    program.relation("tc").rows()                    # {(2, 3), (2, 4), (3, 4)}

Every relation has a table for its facts, also a relation that rules derive into: it consists of its facts and of what
the rules derive. Facts are sets: inserting a fact that exists, or removing one that does not, changes nothing. A
relation can also be a table, input or view of the engine (`relations=`), whose indexes other queries share; then its
facts are changed there.

The relations with an `.output` or `.printsize` directive, or all if there are none, are computed from the start; others
when they are first asked for. Arrangements that several relations read are installed once
(`ikebana.datalog.sharing`).

Any number of threads can use a program. Not guaranteed: that a recursion with arithmetic ends.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.datalog import explaining, files, snapshots, syntax, topdown
from ikebana.datalog.check import CheckedProgram, Relation, check
from ikebana.datalog.collections import Facts, columns_of, fields_of
from ikebana.datalog.errors import did_you_mean
from ikebana.datalog.parser import parse, parse_source
from ikebana.datalog.planner import Planner
from ikebana.datalog.proofs import Proof, WhyNot
from ikebana.datalog.sharing import arrangements_to_install
from ikebana.datalog.sources import adapted, number_bits
from ikebana.datalog.storage import Storage, SymbolTable, symbols_are_opaque
from ikebana.engine import Engine, Table, Transaction, View
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.prepared import KEEP
from ikebana.errors import DatalogError, DroppedError
from ikebana.plan import ir

Row = tuple[int | float | str, ...]
Source = Collection | View

_names = itertools.count(1)


def load(
    engine: Engine,
    program: str | Path,
    *,
    name: str | None = None,
    relations: Mapping[str, Source] | None = None,
    defines: Mapping[str, str] | None = None,
    include: Sequence[str | Path] = (),
) -> Program:
    """Load a program: a path (a `Path`, or a string that ends in `.dl`), or its text.

    `name`: the prefix of the program's views in the engine.
    `relations`: tables, inputs and views that are relations of the program.
    `defines`: macros; `include`: folders in which included files are searched.

    >>> from ikebana import Engine
    >>> engine = Engine()
    >>> program = load(engine, ".decl a(x: number)  .decl b(x: number)  b(x + 1) :- a(x).")
    >>> _ = program.insert("a", [(1,), (5,)])
    >>> sorted(program.relation("b").rows())
    [(2,), (6,)]
    """
    tree = parse_source(program, defines=defines, include=include)
    return Program(engine, tree, name=name, relations=relations)


class Program:
    """A Datalog program on an engine. See `load`."""

    def __init__(
        self,
        engine: Engine,
        program: syntax.Program | str,
        *,
        name: str | None = None,
        relations: Mapping[str, Source] | None = None,
        intern: bool | None = None,
        durable: bool = False,
    ) -> None:
        """Check a program, create tables for its facts, and install its outputs.

        `intern=False` stores symbols as strings in any case, so that other queries can read the program's views. A
        `durable` program, which needs a `name`, keeps its facts in tables that are stored, and finds those again that
        are stored already; then its own facts are not inserted again. Its symbols are strings, too.
        """
        tree = parse(program) if isinstance(program, str) else program
        self.engine, self.name = engine, name or f"datalog {next(_names)}"
        self.checked: CheckedProgram = check(tree)
        given = {name: _collection(source) for name, source in (relations or {}).items()}
        for given_name in given:
            self._known(given_name)
        self.storage = self._storage(given, False if durable else intern)
        self._is_durable, self.has_come_back = durable, False  # whether its facts were stored already
        self._tables: dict[str, Table] = {}
        self._views: dict[str, View] = {}
        self._hidden: list[View] = []
        self._queries: set[topdown.Query | topdown.WholeQuery] = set()
        self._closed = False
        try:
            self.facts = self._facts_of_all(given)
            self.planner = Planner(self.checked, self.storage, self.facts, exported=self.outputs)
            if self.checked.facts and not self.has_come_back:
                self._insert_program_facts()
            self._install(self.outputs)
            if engine.epoch == 0:
                engine.advance()  # so that relations can be read before the first change
        except BaseException:
            self.drop_views()
            if not self.has_come_back:
                self._drop_tables()
            raise

    @property
    def outputs(self) -> list[str]:
        """The relations with an `.output` or `.printsize` directive; all derived relations if there are none."""
        named = {directive.relation for directive in self.checked.directives if directive.kind != "input"}
        derived = {name for name, rules in self.checked.rules_by_head.items() if rules}
        return [name for name in self.checked.relations if name in (named or derived)]

    @property
    def fact_tables(self) -> list[Table]:
        """The tables of the facts of its own relations."""
        return list(self._tables.values())

    @property
    def relations(self) -> Mapping[str, Relation]:
        """The relations by name."""
        return self.checked.relations

    # Set up.

    def _storage(self, given: Mapping[str, Collection], intern: bool | None) -> Storage:
        has_strings = any("symbol" in self.relations[name].types for name in given)
        opaque = intern is not False and not has_strings and symbols_are_opaque(self.checked)
        return Storage(number_bits(given.values()), SymbolTable() if opaque else None)

    def _facts_of_all(self, given: Mapping[str, Collection]) -> dict[str, Facts]:
        facts: dict[str, Facts] = {}
        for name, relation in self.relations.items():
            if name in given:
                facts[name] = adapted(given[name], relation, self.storage)
            else:
                columns = columns_of(relation)
                fields = fields_of(relation, self.storage)
                self._tables[name] = self._facts_table(f"{self.name}.{name} facts", fields, columns)
                facts[name] = Facts(self._tables[name], columns)
        return facts

    def _facts_table(self, name: str, fields: Sequence[pa.Field], columns: Sequence[str]) -> Table:
        """A table for the facts of a relation; that of an earlier session, if there is one."""
        if self._is_durable and name in self.engine.tables:
            self.has_come_back = True
            return self.engine.tables[name]
        return self.engine.table(name, fields, key=columns, durable=self._is_durable, internal=True)

    def _insert_program_facts(self) -> None:
        given = [name for name in self.checked.facts if name not in self._tables]
        if given:
            raise DatalogError(
                f'the program has facts of "{given[0]}", which is a table of the engine',
                hint="insert them into the table, or derive them into another relation",
            )
        with self.transaction():
            for name, rows in self.checked.facts.items():
                self.insert(name, rows)

    def _install(self, names: Iterable[str]) -> None:
        """Install the views of relations, and what several of them share."""
        engine = self.engine
        roots = {self.planner.stored(name).node: name for name in names if name not in self._views}

        def is_maintained(node: ir.Node) -> bool:
            return engine.catalog.maintainer(node) is not None

        for node in arrangements_to_install(list(roots), is_maintained):
            if node in roots:
                name = roots[node]
                self._views[name] = engine.install(f"{self.name}.{name}", Arrangement(node))
            else:
                self._hidden.append(engine.install(f"{self.name} index {len(self._hidden) + 1}", Arrangement(node)))

    def _known(self, name: str) -> Relation:
        relation = self.checked.relations.get(name)
        if relation is None:
            raise DatalogError(f'there is no relation "{name}"', hint=did_you_mean(name, self.checked.relations))
        return relation

    # Facts.

    def insert(self, relation: str, rows: Any, *, timeout: float | None = None) -> int | None:
        """Insert facts: a sequence of tuples, a mapping of attributes to columns, or an Arrow table.

        Returns the epoch at which they were inserted; None inside a transaction. Facts that exist stay as they are.
        """
        return self._table(relation).upsert(self.encoded(relation, rows), timeout=timeout)

    def remove(self, relation: str, rows: Any, *, timeout: float | None = None) -> int | None:
        """Remove facts, given as for `insert`. Facts that do not exist are ignored.

        Removing a fact that rules derive too leaves it in the relation.
        """
        table, columns = self._table(relation), self.encoded(relation, rows)
        count = len(next(iter(columns.values())))
        twice = pa.array(np.repeat(np.arange(count), 2))  # a table deletes only what it has: insert each row first
        doubled = {name: column.take(twice) for name, column in columns.items()}
        return table.change(doubled, ["upsert", "delete"] * count, timeout=timeout)

    def transaction(self, *, timeout: float | None = None) -> Transaction:
        """Begin a transaction: `with program.transaction(): ...`; see `Engine.transaction`."""
        self._check_open()
        return self.engine.transaction(timeout=timeout)

    def read_inputs(self, directory: str | Path = ".", *, missing_ok: bool = False) -> int | None:
        """Read the files of all `.input` directives, relative to a folder, and insert their facts, at one epoch.

        If a file is not valid, an error names the file and the line, and no fact of any file is inserted.
        `missing_ok` ignores files that do not exist.
        """
        read = self._read_files(Path(directory), missing_ok)
        with self.transaction() as transaction:
            for name, table in read:
                self.insert(name, table)
        return transaction.epoch

    def _read_files(self, directory: Path, missing_ok: bool) -> list[tuple[str, pa.Table]]:
        self._check_open()
        options = files.all_options(self.checked.directives, self.relations, inputs=True)
        return [
            (option.relation.name, files.read_facts(option, directory, self.storage))
            for option in options
            if option.io == "stdin" or not missing_ok or option.path(directory).exists()
        ]

    def write_outputs(self, directory: str | Path = ".", out: IO[str] | None = None) -> None:
        """Write the results of all `.output` and `.printsize` directives, to a folder or (`-`) to standard output."""
        for option in files.all_options(self.checked.directives, self.relations, inputs=False):
            rows = self.relation(option.relation.name).to_arrow()
            files.write_relation(option, rows, Path(directory), out or sys.stdout)

    def _table(self, name: str) -> Table:
        self._check_open()
        self._known(name)
        if name not in self._tables:
            raise DatalogError(
                f'"{name}" is a table, input or view of the engine', hint="insert and remove its rows there"
            )
        return self._tables[name]

    def encoded(self, name: str, rows: Any) -> dict[str, pa.Array]:
        """Facts as columns of the relation's table, with values as they are stored."""
        relation = self._known(name)
        if not relation.arity and isinstance(rows, pa.Table):
            rows = [()] * rows.num_rows
        columns = _columns(relation, rows)
        if not relation.arity:
            return {columns_of(relation)[0]: pa.array([0] * len(columns), self.storage.type("number"))}
        encoded: dict[str, pa.Array] = {}
        for column, kind, attribute, values in zip(
            columns_of(relation), relation.types, relation.attributes, columns, strict=True
        ):
            try:
                array = values if isinstance(values, pa.Array | pa.ChunkedArray) else _array(values, kind)
                if isinstance(array, pa.ChunkedArray):
                    array = array.combine_chunks()
                if array.null_count:
                    raise ValueError("it has a null")
                encoded[column] = self.storage.encoded(array, kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError) as error:
                raise DatalogError(
                    f'"{name}" cannot have these facts: attribute "{attribute}" is a {kind}',
                    detail=str(error),
                    hint=f"it is declared as {relation}; a number has {self.storage.bits} bits",
                ) from None
        return encoded

    # Results.

    def relation(self, name: str) -> RelationView:
        """The rows of a relation, maintained from now on."""
        self._check_open()
        relation = self._known(name)
        if name not in self._views:
            self._install([name])
        return RelationView(self, relation, self._views[name], self.planner.columns(name))

    def query(self, text: str, *, keep: int = KEEP, **values: Any) -> topdown.Query | topdown.WholeQuery:
        """Prepare a question, such as `tc(x, ?)`, which computes only what its answers need.

        An argument is a parameter (`x`), a constant, or free: `?`, `?y` (arguments of the same name are equal) or `_`
        (left out of the answer). `open` and `read` of the result take values of the parameters. Parameters that have
        a value here already (`query("tc(x, ?)", x=5)`) are constants. `keep` is how many answers stay open after
        `read`. See `ikebana.datalog.topdown`.
        """
        self._check_open()
        query = topdown.query(self, text, values, keep=keep)
        self._queries.add(query)
        return query

    def forget(self, query: topdown.Query | topdown.WholeQuery) -> None:
        """Called when a question is closed."""
        self._queries.discard(query)

    def why(self, fact: str) -> Proof:
        """Return a proof of least height of a fact, such as `tc(1, 5)`. See `ikebana.datalog.why`."""
        self._check_open()
        return snapshots.explainer(self, fact).why(fact)

    def why_not(self, fact: str) -> WhyNot:
        """Return, for each rule that might derive a fact, the first literal that fails."""
        self._check_open()
        return snapshots.explainer(self, fact).why_not(fact)

    def explain(self) -> str:
        """Return the plan of each rule as text: the order of its joins, and the indexes that it shares with others."""
        return explaining.explain(self.planner)

    def close(self) -> None:
        """Drop the program's views and the tables of its facts."""
        self.drop_views()
        self._drop_tables()

    def drop_views(self) -> None:
        """Drop the program's views and questions; facts that are stored stay."""
        self._closed = True
        for query in list(self._queries):
            query.close()
        for view in (*self._views.values(), *reversed(self._hidden)):
            view.drop()
        self._views, self._hidden = {}, []

    def _drop_tables(self) -> None:
        for table in self._tables.values():
            if not table.dropped:
                self.engine.drop_table(table.name)

    def _check_open(self) -> None:
        if self._closed:
            raise DroppedError(f"program {self.name!r} is closed", hint="load it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class RelationView:
    """The rows of a relation of a program, as values: symbols are strings."""

    def __init__(self, program: Program, relation: Relation, view: View, columns: tuple[str, ...]) -> None:
        self._storage, self._relation, self._columns = program.storage, relation, columns
        self.view = view
        """The view of the engine; its symbols may be numbers (`ikebana.datalog.storage`)."""

    @property
    def name(self) -> str:
        """The name of the relation."""
        return self._relation.name

    def to_arrow(self, *, timeout: float | None = None) -> pa.Table:
        """Return the rows at the last closed epoch, with a column for each attribute."""
        return self.decoded(self.view.to_arrow(timeout=timeout))

    def rows(self, *, timeout: float | None = None) -> set[Row]:
        """Return the rows at the last closed epoch as a set of tuples."""
        table = self.view.to_arrow(timeout=timeout)
        if not self._relation.arity:
            return {()} if table.num_rows else set()
        return set(zip(*(column.to_pylist() for column in self.decoded(table).columns), strict=True))

    def __len__(self) -> int:
        return self.view.to_arrow().num_rows

    def changes(self, since: str | None = None, *, timeout: float | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Iterate over the changes: pairs (epoch, table of the attributes and `diff`). See `View.changes`."""
        subscription = self.view.changes(since, timeout=timeout)
        return ((epoch, self.decoded(changes, "diff")) for epoch, changes in subscription)

    def decoded(self, table: pa.Table, *others: str) -> pa.Table:
        """Rows of the engine's view as values: the attributes in their order, and other columns."""
        selected = table.select([*self._columns, *others])
        decoded = self._storage.decoded(selected, self._relation.types)
        return decoded.rename_columns([*(self._relation.attributes or self._columns), *others])


def _collection(source: Source) -> Collection:
    return source.rows() if isinstance(source, View) else source


def _columns(relation: Relation, rows: Any) -> Sequence[Any]:
    """The columns of facts, one for each attribute; of a relation without attributes, the rows."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        rows = dict(zip(rows.schema.names, rows.columns, strict=True))
    if isinstance(rows, Mapping):
        if set(rows) != set(relation.attributes):
            raise DatalogError(
                f'"{relation.name}" cannot have these facts',
                detail=f"their columns are {', '.join(rows)}",
                hint=f"it is declared as {relation}",
            )
        return [rows[name] for name in relation.attributes]
    listed = [tuple(row) for row in rows]
    wrong = next((row for row in listed if len(row) != relation.arity), None)
    if wrong is not None:
        raise DatalogError(
            f'"{relation.name}" has {relation.arity} attributes',
            detail=f"a row is {wrong}",
            hint=f"it is declared as {relation}",
        )
    if not relation.arity:
        return listed
    return list(zip(*listed, strict=True)) if listed else [[] for _ in relation.attributes]


def _array(values: Iterable[Any], kind: str) -> pa.Array:
    """Python values as an array; values of another kind raise."""
    wide = {"number": pa.int64(), "unsigned": pa.uint64(), "float": pa.float64(), "symbol": pa.string()}[kind]
    listed = values if hasattr(values, "dtype") else list(values)
    if kind in ("number", "unsigned") and not hasattr(values, "dtype"):
        wrong = next((value for value in listed if isinstance(value, float | bool)), None)
        if wrong is not None:
            raise TypeError(f"{wrong!r} is not an integer")
    return pa.array(listed, wide) if not hasattr(values, "dtype") else pc.cast(pa.array(listed), wide)
