"""Signals: whether an operator can have anything to do in a sweep, on any worker.

Before a sweep all workers have told each other which sources have changes. From that every worker finds out by itself,
and all of them alike, which operators the changes can reach: a signal is a source's, or made of those of an operator's
inputs. What is not reached is not visited, and exchanges nothing.

| operator | is reached when |
|---|---|
| a source | some worker has changes of it |
| most others | an input is reached |
| one of later changes | a source below it has changes after the epoch at which the dataflow starts |
| a join | a side is reached, and something has ever reached the other |
| a lookup | its stream is reached, and something has ever reached its index; changes of the index alone do not count |

So a query over a table that nothing was added to yet joins nothing, however large its other tables are.

Contract: a signal that is not `now` says that there are no changes; one that is promises nothing. Inside loops, where a
variable changes by what is made of it, no signals are asked.

Cost: a call for each operator that has several inputs; all others have the signal of their input.
"""

from __future__ import annotations

from collections.abc import Sequence


class Signal:
    """That of a source: set from outside."""

    __slots__ = ("ever", "later", "now")

    def __init__(self) -> None:
        self.now = False
        """Whether there may be changes in this sweep."""
        self.later = False
        """Whether some of them may be after the epoch at which the dataflow starts."""
        self.ever = False
        """Whether there may have been any, in this sweep or before."""

    def set(self, now: bool, later: bool) -> None:
        """What holds in a new sweep."""
        self.now, self.later = now, later
        self.ever |= now

    def update(self) -> None:
        """Find out what holds in a new sweep, once that is known of the inputs."""


class Any(Signal):
    """That some of the inputs have changes."""

    __slots__ = ("_inputs",)

    def __init__(self, inputs: Sequence[Signal]) -> None:
        super().__init__()
        self._inputs = inputs

    def update(self) -> None:
        self.set(any([each.now for each in self._inputs]), any([each.later for each in self._inputs]))


class Later(Signal):
    """That there are later changes."""

    __slots__ = ("_source",)

    def __init__(self, source: Signal) -> None:
        super().__init__()
        self._source = source

    def update(self) -> None:
        self.set(self._source.later, self._source.later)


class Probe(Signal):
    """That a stream has changes, and an index something to be found."""

    __slots__ = ("_index", "_stream")

    def __init__(self, stream: Signal, index: Signal) -> None:
        super().__init__()
        self._stream, self._index = stream, index

    def update(self) -> None:
        stream, found = self._stream, self._index.ever
        self.set(stream.now and found, stream.later and found)


class Both(Signal):
    """That one of two sides has changes, and the other something to meet them."""

    __slots__ = ("_left", "_right")

    def __init__(self, left: Signal, right: Signal) -> None:
        super().__init__()
        self._left, self._right = left, right

    def update(self) -> None:
        left, right = self._left, self._right
        self.set(
            (left.now and right.ever) or (right.now and left.ever),
            (left.later and right.ever) or (right.later and left.ever),
        )
