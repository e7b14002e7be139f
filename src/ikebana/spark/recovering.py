"""Recovery of a session: the tables of its storage directory, and the views and statements over them.

The engine has loaded the tables already (`ikebana.engine.table_storage`). Indexes and the results of views are not
stored: they are computed again from the tables. All views are installed at once, in the order in which they were
created; each can be read as soon as its own result is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ikebana.engine.stored_history import StoredHistory
from ikebana.engine.table_storage import Recovered
from ikebana.spark.expiring import Expiry
from ikebana.spark.stored_queries import RecoveredSession, StoredQueries, StoredStatement, StoredView
from ikebana.spark.verifying import definition_of
from ikebana.spark.view_lifecycle import ViewQuery

if TYPE_CHECKING:
    from ikebana.spark.session import Session


def recover(session: Session, stored: StoredQueries) -> RecoveredSession:
    """Give a new session the tables, views and statements of its storage directory."""
    engine, failed = session.engine, dict[str, str]()
    assert engine.recovered is not None and engine.storage is not None
    started = time.perf_counter()
    internal = {table.name for table in engine.storage.tables() if table.is_internal}
    for inner in list(engine.tables.values()):
        if inner.name not in internal:
            session._table_lifecycle.add(inner)._resume(engine.storage.positions)
    for name, (after, on) in stored.expiries().items():
        session._expiries.add(name, Expiry(session, session.table(name), after, on))
    middle = time.perf_counter()
    for name, entry in stored.programs().items():
        _try(failed, name, partial(_restore_program, session, stored, name, entry))
    for name in internal - _tables_of_programs(session, failed):
        engine.drop_table(name)  # of a program that was not created entirely
    for name, view in stored.views().items():
        _try(failed, name, partial(_restore_view, session, stored, name, view))
    assert engine.history is not None
    for name in engine.history.entries():
        _try(failed, name, partial(_restore_history, session, engine.history, name))
    engine.end_recovery()
    for name, statement in stored.statements().items():
        _try(failed, name, partial(_restore_statement, session, name, statement))
    ended, found = time.perf_counter(), engine.recovered
    steps = {"name tables": middle - started, "install queries": ended - middle}
    return _recovered(session, found, failed, found.seconds + ended - started, steps)


def healed(session: Session, found: Recovered) -> RecoveredSession:
    """What was recovered for new workers, after old ones have died: everything that the session has."""
    assert session.recovered is not None
    steps = {"install queries": found.install_seconds}
    return _recovered(session, found, session.recovered.failed, found.seconds, steps)


def _recovered(
    session: Session, found: Recovered, failed: Mapping[str, str], seconds: float, steps: Mapping[str, float]
) -> RecoveredSession:
    return RecoveredSession(
        epoch=found.epoch,
        tables=tuple(session._relations.tables),
        views=tuple(session._relations.views),
        statements=session._statements.names(),
        programs=len(session._programs),
        failed=failed,
        rows=found.batch_rows,
        log_changes=found.log_rows,
        dropped=found.dropped,
        seconds=seconds,
        steps={
            **({"start workers": found.start_seconds} if found.reason else {}),
            "open": found.open_seconds,
            "load snapshot": found.batch_seconds,
            "load log": found.log_seconds,
            **steps,
        },
        reason=found.reason,
    )


def _try(failed: dict[str, str], name: str, restore: Callable[[], object]) -> None:
    """Restore something, or note why that is impossible: the session is usable without it."""
    try:
        restore()
    except Exception as error:
        failed[name] = str(error)


def _restore_program(session: Session, stored: StoredQueries, name: str, entry: dict[str, str]) -> None:
    program, given, prefix = stored.program(entry)
    session._programs.restore(name, program, given, prefix)


def _tables_of_programs(session: Session, failed: dict[str, str]) -> set[str]:
    """The tables of facts that are needed: all of them, if a program could not be restored."""
    if failed:
        return set(session.engine.tables)
    return session._programs.tables_of_facts()


def _restore_history(session: Session, history: StoredHistory, name: str) -> None:
    """Let a table or view keep its history again, with what was stored of it."""
    if session.has(name):  # else the view could not be restored, which is reported
        history.restore(name, session._relations.rows(name))


def _restore_statement(session: Session, name: str, statement: StoredStatement) -> None:
    parameters = {field.name: field for field in statement.parameters}
    session.prepare(statement.query, parameters, name=name, keep=statement.keep)


def _restore_view(session: Session, stored: StoredQueries, name: str, view: StoredView) -> None:
    try:
        lowered = stored.lowered(view)
    except Exception:  # signed with another secret, or stored by another version
        if view.query is None:
            raise
        lowered = session._queries.lower(view.query, f"view {name!r}")
    definition = None if view.query is None else definition_of(view.query, session._relations)
    session._view_lifecycle.install(name, ViewQuery(lowered, definition, view.share, view.memory), view.identity)
