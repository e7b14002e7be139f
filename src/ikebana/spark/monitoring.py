"""The log of a session: `logging.getLogger("ikebana")` tells what happens to its tables, views and streams.

INFO: a table or view was created, replaced or dropped; a view has an answer again; a stream was started or stopped.
WARNING: a view has no answer because of some rows; an epoch took a view long; a stream has failed.
ERROR: a view has failed.

Workers report failures, the first and the last error of a view, and slow epochs by themselves
(`ikebana.runtime.messages.DataflowEvent`). A thread then asks all workers for the state of the view, since only the
errors of all of them together are meaningful, and logs it if it has changed. So an event is logged shortly after it has
happened, and states that last for less than some milliseconds may not be logged at all.

Cost: nothing while nothing happens. Python shows WARNING and ERROR by default; `logging.basicConfig(level="INFO")`
shows everything.
"""

from __future__ import annotations

import logging
import threading
import weakref
from contextlib import suppress
from datetime import datetime
from queue import SimpleQueue
from typing import NamedTuple

from ikebana.engine.engine import Engine
from ikebana.errors import EvaluationError, IkebanaError, WaitTimeoutError
from ikebana.operators.row_errors import raise_errors
from ikebana.runtime.messages import EVENTS, DataflowEvent, ReadErrors
from ikebana.spark.rates import Rates
from ikebana.spark.relations import Relations
from ikebana.spark.view import View

log = logging.getLogger("ikebana")


class ViewState(NamedTuple):
    """Whether a view can be read: "live", "errors" or "failed"; why not; and since when."""

    state: str
    reason: str
    since: datetime


class Monitor:
    """Watches the views of one session."""

    def __init__(self, engine: Engine, relations: Relations) -> None:
        self._engine, self._relations = engine, relations
        self.rates = Rates()
        """The changes of views per second, by name."""
        self._states: weakref.WeakKeyDictionary[View, ViewState] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._events: SimpleQueue[tuple[int, DataflowEvent] | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=_watch, args=(weakref.ref(self), self._events), name="ikebana monitor", daemon=True
        )
        self._thread.start()
        engine.coordinator.add_listener(EVENTS, self._on_event)

    def _on_event(self, worker: int, event: DataflowEvent) -> None:
        self._events.put((worker, event))

    def created(self, view: View, *, is_replaced: bool = False) -> None:
        """A view was created, or has got another query, whose errors may have been reported before it had it."""
        self.rates.start(view.name)
        log.info("view %r was %s", view.name, "replaced" if is_replaced else "created")
        if is_replaced:
            self._events.put((0, DataflowEvent(view._inner.dataflow, "errors")))

    def state_of(self, view: View, timeout: float | None = None) -> ViewState:
        """The state of a view, from its workers; logged if it has changed."""
        state, reason = _state(self._engine, view, timeout)
        with self._lock:
            before = self._states.get(view)
            if before is not None and (before.state, before.reason) == (state, reason):
                return before
            now = self._states[view] = ViewState(state, reason, _since(view, state, before))
        if before is None or before.state != state:
            _log_state(view, before, now)
        return now

    def handle(self, worker: int, event: DataflowEvent) -> None:
        """Log what has happened to the views of a dataflow."""
        with self._relations.lock:
            views = [view for view in self._relations.views.values() if view._inner.dataflow == event.dataflow]
        for view in views:
            if event.kind == "slow":
                log.warning(
                    "view %r took %.1f s of work on worker %d for epoch %d",
                    *(view.name, event.seconds, worker, event.epoch - 1),
                )
            else:
                with suppress(IkebanaError):  # it was dropped meanwhile, or the workers have ended
                    self.state_of(view)

    def close(self) -> None:
        """Stop watching. The workers must have ended, so that a pending call of the thread fails."""
        self._engine.coordinator.remove_listener(EVENTS)
        self._events.put(None)
        self._thread.join()


def _watch(monitor: weakref.ref[Monitor], events: SimpleQueue[tuple[int, DataflowEvent] | None]) -> None:
    """The loop of the monitor's thread; None in the queue ends it, and so does the end of the monitor."""
    while (item := events.get()) is not None:
        alive = monitor()
        if alive is None:
            return
        alive.handle(*item)
        del alive


def _state(engine: Engine, view: View, timeout: float | None) -> tuple[str, str]:
    """Whether a view can be read, and why not."""
    coordinator, dataflow = engine.coordinator, view._inner.dataflow
    deadline = coordinator.deadline(timeout, f"asking for the state of {view.name!r}")
    try:
        raise_errors(view.name, coordinator.ask(ReadErrors(dataflow), deadline=deadline))
    except EvaluationError as error:
        return "errors", " ".join(filter(None, (error.what.partition(": ")[2] or error.what, error.detail)))
    except WaitTimeoutError:
        raise
    except IkebanaError as error:
        return "failed", error.detail or error.what
    return "live", ""


def _since(view: View, state: str, before: ViewState | None) -> datetime:
    """Since when a view is in a state, given what it was when it was last observed."""
    if before is not None and before.state == state:
        return before.since
    return view.created if before is None and state == "live" else datetime.now()


def _log_state(view: View, before: ViewState | None, now: ViewState) -> None:
    if now.state == "failed":
        log.error("view %r has failed: %s", view.name, now.reason)
    elif now.state == "errors":
        log.warning("view %r has no answer: %s", view.name, now.reason)
    elif before is not None:
        log.info("view %r has an answer again", view.name)
