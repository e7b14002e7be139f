"""The views and statements of a session, in its storage directory: how they are stored, and how they come back.

A view is stored as its plan: the collection that its query was lowered to, pickled, with all that it depends on: the
settings of its session, Python functions, the queries of other views that it reads. So it comes back as it was, without
Spark, even if a view that it reads was replaced or dropped since. Tables keep their identities in a storage directory,
so plans refer to them as before. Plans are signed with the owner's secret, and nothing else is unpickled
(`ikebana.storage.signing`). If a plan cannot be restored, for instance because another version of ikebana has stored
it, and the view was defined in SQL, the text is planned again.

A prepared statement that has a name is stored as its text, with the types of its parameters, and is planned again. A
Datalog program is stored as its syntax tree, with the plans of the relations that it is given; its facts are tables.

Not stored: views that read inputs of the engine or other things that do not survive, and values for which a statement
is open. What cannot be restored is reported, and stays in the directory until it is dropped.
"""

from __future__ import annotations

import base64
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import cloudpickle
import pyarrow as pa

from ikebana.datalog.syntax import Program
from ikebana.engine.collection import Collection
from ikebana.engine.table_storage import TableStorage
from ikebana.operators.changes import Fields
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.spark.verifying import Definition
from ikebana.sql import LoweredQuery
from ikebana.sql.planned import CLOCK
from ikebana.storage import Secret

_VIEW, _STATEMENT, _PROGRAM, _EXPIRY = "view", "statement", "datalog", "expiry"
"""The kinds of entries in the catalogue of the directory."""


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view as the directory has it. `plan` is signed, and `query` is the text of a query in SQL."""

    plan: str
    query: str | None
    identity: str
    share: bool | None
    memory: int | None


@dataclass(frozen=True, slots=True)
class StoredStatement:
    """A prepared statement as the directory has it."""

    query: str
    parameters: Fields
    keep: int


@dataclass(frozen=True, slots=True)
class RecoveredSession:
    """What a session has found in its storage directory, and how long it took, in seconds.

    `failed` has the views, statements and programs that could not be restored, and why.
    """

    epoch: int  # the last one; -1 if the directory was empty
    tables: tuple[str, ...]
    views: tuple[str, ...]
    statements: tuple[str, ...]
    programs: int
    failed: Mapping[str, str]
    rows: int
    log_changes: int  # changes that were loaded from the log after the last snapshot
    dropped: int  # transactions in the log that were not complete, or were aborted
    seconds: float
    steps: Mapping[str, float] = field(default_factory=dict)  # the seconds of each step
    reason: str = ""  # if workers were replaced, why

    def __str__(self) -> str:
        counts = f"tables: {len(self.tables)}, rows: {self.rows + self.log_changes:,}, views: {len(self.views)}"
        failed = "".join(f"\n  {name} was not restored: {reason}" for name, reason in self.failed.items())
        why = f", because {self.reason}" if self.reason else ""
        return f"epoch {self.epoch}, {counts}; in {self.seconds:.1f} s{why}{failed}"


class StoredQueries:
    """The queries of a session in its storage directory."""

    def __init__(self, storage: TableStorage, clock: Callable[[], ir.Node]) -> None:
        """`clock` returns the source of the current time, and starts the clock if it does not run."""
        self._storage, self._clock = storage, clock
        self._secret: Secret | None = None  # loaded when it is first needed

    # Views.

    def save_view(
        self,
        name: str,
        lowered: LoweredQuery,
        definition: Definition | None,
        identity: str,
        share: bool | None,
        memory: int | None,
    ) -> None:
        """Store a view, or replace it, unless it reads what does not survive."""
        query = definition.query if definition is not None and isinstance(definition.query, str) else None
        if not all(map(self._survives, walk(lowered.rows.node))):
            self.forget_view(name)
            return
        plan = self._own_secret().sign(_pickled((lowered.rows.node, lowered.order)))
        self._put(_VIEW, name, asdict(StoredView(plan, query, identity, share, memory)))

    def _survives(self, node: ir.Node) -> bool:
        if not isinstance(node, ir.Source):
            return True
        return node.name == CLOCK or node.identity.startswith(self._storage.identity_of(""))

    def forget_view(self, name: str) -> None:
        """Remove a view."""
        self._forget(_VIEW, name)

    def views(self) -> dict[str, StoredView]:
        """All views, in the order in which they were created."""
        return {name: StoredView(**entry) for name, entry in self._entries(_VIEW).items()}

    def lowered(self, view: StoredView) -> LoweredQuery:
        """The plan of a view; raises if it is not signed, or cannot be restored."""
        node, order = _unpickled(self._own_secret().verify(view.plan), self._clock)
        return LoweredQuery(Collection(node), order)

    # Rows that expire.

    def save_expiry(self, table: str, after: timedelta, on: str) -> None:
        """Store after what time the rows of a table are deleted, and by which column."""
        self._put(_EXPIRY, table, {"seconds": after.total_seconds(), "on": on})

    def forget_expiry(self, table: str) -> None:
        """Remove what `save_expiry` has stored."""
        self._forget(_EXPIRY, table)

    def expiries(self) -> dict[str, tuple[timedelta, str]]:
        """By table: after what time its rows are deleted, and by which column."""
        entries = self._entries(_EXPIRY).items()
        return {table: (timedelta(seconds=entry["seconds"]), entry["on"]) for table, entry in entries}

    # Statements.

    def save_statement(self, name: str, query: str, parameters: Fields, keep: int) -> None:
        """Store a prepared statement."""
        schema = base64.b64encode(pa.schema(parameters).serialize()).decode()
        self._put(_STATEMENT, name, {"query": query, "parameters": schema, "keep": keep})

    def forget_statement(self, name: str) -> None:
        """Remove a prepared statement."""
        self._forget(_STATEMENT, name)

    def statements(self) -> dict[str, StoredStatement]:
        """All prepared statements, in the order in which they were created."""
        statements = {}
        for name, entry in self._entries(_STATEMENT).items():
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(entry["parameters"])))
            statements[name] = StoredStatement(entry["query"], tuple(schema), entry["keep"])
        return statements

    # Datalog programs.

    def save_program(self, name: str, program: Program, given: Mapping[str, Collection], prefix: str) -> None:
        """Store a program, unless it reads what does not survive. `given` are the relations that are not its own."""
        nodes = {relation: rows.node for relation, rows in given.items()}
        if all(self._survives(node) for root in nodes.values() for node in walk(root)):
            signed = self._own_secret().sign(_pickled((program, nodes)))
            self._put(_PROGRAM, name, {"program": signed, "prefix": prefix})

    def forget_program(self, name: str) -> None:
        """Remove a program."""
        self._forget(_PROGRAM, name)

    def programs(self) -> dict[str, dict[str, str]]:
        """All programs, in the order in which they were created."""
        return dict(self._entries(_PROGRAM))

    def program(self, entry: dict[str, str]) -> tuple[Program, dict[str, Collection], str]:
        """A program, its relations that are not its own, and its prefix; raises if it is not signed."""
        program, nodes = _unpickled(self._own_secret().verify(entry["program"]), self._clock)
        return program, {relation: Collection(node) for relation, node in nodes.items()}, entry["prefix"]

    def _forget(self, kind: str, name: str) -> None:
        with self._storage.catalog() as catalog:
            if catalog.get(kind, name) is not None:
                catalog.delete(kind, name)

    def _put(self, kind: str, name: str, value: Any) -> None:
        with self._storage.catalog() as catalog:
            catalog.put(kind, name, value)

    def _entries(self, kind: str) -> dict[str, Any]:
        with self._storage.catalog() as catalog:
            return catalog.entries(kind)

    def _own_secret(self) -> Secret:
        if self._secret is None:
            self._secret = Secret.load()
        return self._secret


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles plans, with functions by value; the clock is restored as that of the session."""

    def persistent_id(self, value: Any) -> str | None:
        return CLOCK if isinstance(value, ir.Source) and value.name == CLOCK else None


def _pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Unpickler(pickle.Unpickler):
    """Restores plans."""

    def __init__(self, file: io.BytesIO, clock: Callable[[], ir.Node]) -> None:
        super().__init__(file)
        self._clock = clock

    def persistent_load(self, identifier: Any) -> Any:
        if identifier != CLOCK:
            raise pickle.UnpicklingError(f"the plan refers to {identifier!r}, which is unknown")
        return self._clock()


def _unpickled(content: bytes, clock: Callable[[], ir.Node]) -> Any:
    return _Unpickler(io.BytesIO(content), clock).load()
