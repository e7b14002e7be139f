"""Reachability: whether an operator can have anything to do in a sweep, on any worker.

Before a sweep all workers tell each other which sources have changes. From that, every worker derives by itself, and
with the same result, which operators the changes can reach. Each operator has a *signal*: that of a source, or one
derived from the signals of the operator's inputs. An operator whose signal is off is not visited, and exchanges
nothing.

| operator | is reached when |
|---|---|
| a source | some worker has changes of it |
| a join | one side is reached, and the other side has ever been reached |
| a lookup, an extension | its stream is, and its indexes have ever been; changes of indexes alone do not count |
| `AfterStart` | a source below it has changes after the epoch at which the dataflow starts |
| any other | an input is reached |

So a query that joins with an empty table joins nothing, however large its other tables are.

Contract: if `now` is false, there are no changes; if it is true, there may be some. Signals are not used inside loops,
where a variable changes by its own feedback.

Cost: one call for each operator with several inputs; an operator with one input has the signal of its input.
"""

from __future__ import annotations

from collections.abc import Sequence


class Signal:
    """The signal of a source, set from outside; base of the derived signals."""

    __slots__ = ("after_start", "ever", "now")

    def __init__(self) -> None:
        self.now = False
        """Whether there may be changes in this sweep."""
        self.after_start = False
        """Whether some of them may be later than the epoch at which the dataflow starts."""
        self.ever = False
        """Whether there may have been changes in this sweep or an earlier one."""

    def set(self, now: bool, after_start: bool) -> None:
        """Set the signal for a new sweep."""
        self.now, self.after_start = now, after_start
        self.ever |= now

    def update(self) -> None:
        """Derive the signal for a new sweep; the signals of the inputs are up to date."""


class AnySignal(Signal):
    """On if some input's signal is."""

    __slots__ = ("_inputs",)

    def __init__(self, inputs: Sequence[Signal]) -> None:
        super().__init__()
        self._inputs = inputs

    def update(self) -> None:
        self.set(any([signal.now for signal in self._inputs]), any([signal.after_start for signal in self._inputs]))


class AfterStartSignal(Signal):
    """On if the source has changes after the epoch at which the dataflow starts."""

    __slots__ = ("_source",)

    def __init__(self, source: Signal) -> None:
        super().__init__()
        self._source = source

    def update(self) -> None:
        self.set(self._source.after_start, self._source.after_start)


class LookupSignal(Signal):
    """On if the stream has changes and all indexes may have rows."""

    __slots__ = ("_indexes", "_stream")

    def __init__(self, stream: Signal, *indexes: Signal) -> None:
        super().__init__()
        self._stream, self._indexes = stream, indexes

    def update(self) -> None:
        stream, has_rows = self._stream, all([index.ever for index in self._indexes])
        self.set(stream.now and has_rows, stream.after_start and has_rows)


class JoinSignal(Signal):
    """On if one side has changes and the other may have rows."""

    __slots__ = ("_left", "_right")

    def __init__(self, left: Signal, right: Signal) -> None:
        super().__init__()
        self._left, self._right = left, right

    def update(self) -> None:
        left, right = self._left, self._right
        self.set(
            (left.now and right.ever) or (right.now and left.ever),
            (left.after_start and right.ever) or (right.after_start and left.ever),
        )
