"""How views of a session are created, replaced and dropped: on the workers, in SQL and Spark, and in storage.

A view exists entirely or not at all: if a step of creating it fails or is interrupted, the earlier steps are undone.
Creating a view does not wait for its result.

Replacing a view gives it another query. The new result is computed beside the old one, and takes its place when it is
complete. Readers see the old result until then, and the new one afterwards, at any epoch exactly one of them. A Spark
query that has begun to read the old result reads it to the end: the old dataflow is dropped when nobody reads it any
more. If the new query fails, or the call is interrupted, the view is as it was before. Until then both results take
memory.

Not guaranteed: views that read a replaced view keep its old query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ikebana.cluster.interrupts import complete_or_undo, defer_interrupts
from ikebana.engine import views
from ikebana.engine.collection import Collection
from ikebana.errors import DataflowError
from ikebana.spark.arguments import checked_name
from ikebana.spark.frames import Frames
from ikebana.spark.monitoring import Monitor, log
from ikebana.spark.progress import progress
from ikebana.spark.relations import Relations, new_identity
from ikebana.spark.snapshot_server import SnapshotServer
from ikebana.spark.stored_queries import StoredQueries
from ikebana.spark.verifying import Definition
from ikebana.spark.view import View
from ikebana.sql import LoweredQuery

if TYPE_CHECKING:
    from ikebana.spark.session import Session


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """What a view is to compute, and how; `definition` is the query if it is one that Spark can answer."""

    lowered: LoweredQuery
    definition: Definition | None = None
    share: bool | None = None
    memory: int | None = None


class ViewLifecycle:
    """Creates, replaces and drops the views of a session."""

    def __init__(
        self,
        session: Session,
        relations: Relations,
        frames: Frames,
        snapshots: SnapshotServer,
        monitor: Monitor,
        stored: StoredQueries | None,
    ) -> None:
        self._session, self._engine, self._relations, self._frames = session, session.engine, relations, frames
        self._snapshots, self._monitor, self._stored = snapshots, monitor, stored

    def create(self, name: str, query: ViewQuery) -> View:
        """Create a view, and store it."""
        with self._relations.lock:
            self._relations.check_free(name)
            return complete_or_undo(lambda: self.install(name, query), View.drop)

    def create_for_program(self, name: str, rows: Collection) -> View:
        """Create a view that is not stored itself, but with its program."""
        checked_name(name, "view")
        with self._relations.lock:
            self._relations.check_free(name)
            return complete_or_undo(
                lambda: self.install(name, ViewQuery(LoweredQuery(rows)), new_identity()), View.drop
            )

    def install(self, name: str, query: ViewQuery, identity: str | None = None) -> View:
        """Install a view; one that has an identity already is not stored: it is stored elsewhere, or was restored."""
        inner = self._engine.install(name, query.lowered.rows, share=query.share, memory=query.memory)
        view = View(self._session, inner, query.lowered.order, query.definition)
        self._relations.add_view(view, identity)
        try:
            if identity is None:
                self._save(name, query)
        except BaseException:
            self.drop(view)
            raise
        self._frames.show(name)
        self._monitor.created(view)
        return view

    def _save(self, name: str, query: ViewQuery) -> None:
        """Store a view, if there is a storage directory."""
        if self._stored is not None:
            identity = self._relations.sources[name].identity
            self._stored.save_view(name, query.lowered, query.definition, identity, query.share, query.memory)

    def replace(self, view: View, query: ViewQuery) -> None:
        """Give a view another query; returns when the new result is complete and has taken the place of the old one."""
        old = view._inner
        new = self._engine.install(view.name, query.lowered.rows, share=query.share, memory=query.memory, beside=old)
        try:
            with progress(f"computing view {view.name}"):
                new.wait(self._engine.epoch - 1)
            with self._relations.lock, defer_interrupts():
                self._exchange(view, old, new, query)
        except BaseException:
            if view._inner is not new:
                new.drop()
            raise
        self._snapshots.drop_when_unread(old.dataflow, old.drop)
        self._monitor.created(view, is_replaced=True)

    def _exchange(self, view: View, old: views.View, new: views.View, query: ViewQuery) -> None:
        """Let a view show its new result, which is complete."""
        if view._inner is not old or self._relations.views.get(view.name) is not view:
            raise DataflowError(
                f"cannot replace view {view.name!r}",
                detail="it was dropped or replaced meanwhile",
                hint="try again",
            )
        self._engine.replace(old, new)
        view._become(new, query.lowered.order, query.definition)
        has_same_columns = old.plan.columns == new.plan.columns
        self._relations.update_view(view, keep_identity=has_same_columns)
        self._save(view.name, query)
        if not has_same_columns:
            self._frames.hide(view.name)
            self._frames.show(view.name)

    def drop(self, view: View) -> None:
        """Drop this view, but no other view that has its name now."""
        with self._relations.lock, defer_interrupts():
            view._inner.drop()
            if self._relations.views.get(view.name) is not view:
                return
            if self._stored is not None:
                self._stored.forget_view(view.name)
            if self._engine.history is not None:
                self._engine.history.save(view.name, None)
            self._relations.remove(view.name)
        self._frames.hide(view.name)
        log.info("view %r was dropped", view.name)
