"""Reading a prepared query for many sets of parameter values, each of which is needed only now and then.

A set of values that is not open has to be opened: one more row in the table of parameters, and its consequences. Reads
are combined. One of the threads that wait serves all of them: one epoch opens all their sets of values, and one request
reads all answers. Meanwhile others gather; when it is done, one of those serves them next.

Afterwards the sets of values stay open, up to a number (`keep`), so that reading them again is a look-up. The least
recently used ones are closed in the epoch that opens others. Each of those that stay open is maintained, at the cost
of its own changes.

An answer that is read while its values are being closed could be that of a binding without rows. Values are therefore
forgotten before they are closed, and an answer counts only if its values are still known after it was read.

Cost: a look-up if the values are open; otherwise an epoch for all threads that wait. Not guaranteed: fairness.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from ikebana.engine.deadline import Deadline
from ikebana.errors import EvaluationError, WaitTimeoutError

Values = Mapping[str, pa.Array]
"""A value for each parameter, as an array of one element."""

_Open = dict[Hashable, tuple[int, Values]]
"""Values that are open, by key, with the numbers of their bindings."""


class Bindings(Protocol):
    """What reading needs of a prepared query."""

    def change(self, opened: Mapping[int, Values], closed: Mapping[int, Values], deadline: Deadline) -> None:
        """Open and close bindings, by number, in one epoch; none if there is nothing to do."""
        ...

    def new_number(self) -> int:
        """A number for a new binding."""
        ...

    def answers(self, numbers: Sequence[int], deadline: Deadline) -> list[pa.Table]:
        """The answer for each binding; raises if one of them has errors."""
        ...


@dataclass(eq=False)
class _Request:
    """A thread that waits for an answer, or for its turn to serve all that wait."""

    key: Hashable
    values: Values
    outcome: pa.Table | Exception | None = None
    serves: bool = False
    woken: threading.Event = field(default_factory=threading.Event)

    def result(self) -> pa.Table:
        assert self.outcome is not None
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class PreparedReads:
    """Reads answers by values, and keeps the most recently read ones open."""

    def __init__(self, bindings: Bindings, keep: int) -> None:
        self._bindings, self._keep = bindings, keep
        self._open: OrderedDict[Hashable, tuple[int, Values]] = OrderedDict()  # the least recently used first
        self._waiting: list[_Request] = []
        self._is_served = False  # whether a thread serves, or was told to
        self._lock = threading.Lock()  # guards all of these

    def read(self, key: Hashable, values: Values, deadline: Deadline) -> pa.Table:
        """The answer for parameter values; `key` is equal for equal values."""
        answer = self._read_open(key, deadline)
        if answer is not None:
            return answer
        request = _Request(key, values)
        with self._lock:
            self._waiting.append(request)
            request.serves = not self._is_served
            self._is_served = True
        try:
            if not request.serves and not request.woken.wait(deadline.seconds_or_none()):
                raise deadline.timeout_error()
            if request.serves:
                self._serve_all(deadline)
        finally:
            self._leave(request)
        return request.result()

    def _leave(self, request: _Request) -> None:
        """Stop waiting; if it was this thread's turn to serve, it is that of the next."""
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)
            if request.serves:
                self._is_served = bool(self._waiting)
                for following in self._waiting[:1]:
                    following.serves = True
                    following.woken.set()

    def forget(self) -> None:
        """Called when the query is closed, and all bindings with it."""
        with self._lock:
            self._open.clear()

    def _read_open(self, key: Hashable, deadline: Deadline) -> pa.Table | None:
        """The answer for values that are open; None if they are not, or not any more."""
        with self._lock:
            entry = self._open.get(key)
            if entry is None:
                return None
            self._open.move_to_end(key)
        (answer,) = self._bindings.answers([entry[0]], deadline)
        return answer if self._open.get(key) is entry else None

    def _serve_all(self, deadline: Deadline) -> None:
        """Serve all requests that wait; those that could not be served wait again."""
        with self._lock:
            batch, self._waiting = self._waiting, []
        try:
            self._serve(batch, deadline)
        finally:
            with self._lock:
                self._waiting[:0] = [request for request in batch if request.outcome is None]
            for request in batch:
                if request.outcome is not None:
                    request.woken.set()

    def _serve(self, batch: list[_Request], deadline: Deadline) -> None:
        try:
            with self._opened(batch, deadline) as numbers:
                answers = self._answers(list(numbers.values()), deadline)
            by_key = dict(zip(numbers, answers, strict=True))
            for request in batch:
                request.outcome = by_key[request.key]
        except WaitTimeoutError:  # of this thread; others may have more time
            raise
        except Exception as error:
            for request in batch:
                request.outcome = request.outcome or error

    @contextmanager
    def _opened(self, batch: list[_Request], deadline: Deadline) -> Iterator[dict[Hashable, int]]:
        """A block in which the values of all requests are open: the number of each. Then at most `keep` stay open."""
        values = {request.key: request.values for request in batch}
        with self._lock:
            known = {key for key in values if key in self._open}
            new = {key: (self._bindings.new_number(), values[key]) for key in values if key not in known}
            evicted = self._evicted(self._keep - len(new), known)
        self._change(new, evicted, deadline)
        yield {key: self._open[key][0] for key in values}
        with self._lock:
            evicted = self._evicted(self._keep, set())
        self._change({}, evicted, deadline)

    def _evicted(self, remaining: int, needed: set[Hashable]) -> _Open:
        """Forget the least recently used values that are not needed, until `remaining` are left, if possible."""
        candidates = [key for key in self._open if key not in needed]
        return {key: self._open.pop(key) for key in candidates[: max(0, len(self._open) - max(0, remaining))]}

    def _change(self, opened: _Open, closed: _Open, deadline: Deadline) -> None:
        """Open and close values in one epoch; if that fails, those to be closed stay open."""
        added = opened
        try:
            self._bindings.change(dict(opened.values()), dict(closed.values()), deadline)
        except BaseException:
            added = closed
            raise
        finally:
            with self._lock:
                self._open.update(added)

    def _answers(self, numbers: Sequence[int], deadline: Deadline) -> list[pa.Table | Exception]:
        """The answer for each binding, or its error."""
        try:
            return list(self._bindings.answers(numbers, deadline))
        except EvaluationError:
            return [self._answer_or_error(number, deadline) for number in numbers]

    def _answer_or_error(self, number: int, deadline: Deadline) -> pa.Table | Exception:
        try:
            return self._bindings.answers([number], deadline)[0]
        except EvaluationError as error:
            return error
