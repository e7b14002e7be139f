"""The span of a visit: which times an operator sees now, which it has seen, and which are still to come.

A dataflow advances in sweeps. A sweep takes the dataflow from one epoch to a later one. It visits each operator once,
and operators in a loop once per round. A visit fixes the loop coordinates: it covers the updates at epochs in
[lower, upper) and at exactly the rounds `rounds`. The visits of a sweep are in lexicographic order of rounds, so the
times in a trace are

    before   epoch < lower, or epoch < upper and rounds earlier: seen in earlier visits
    fresh    lower <= epoch < upper and rounds equal: those of this visit
    later    rounds later in this sweep, or epoch >= upper: still to come (a shared trace may be ahead)

Readers keep their handles one epoch behind `lower`, so compacted updates stay `before`.

Coalesced sweeps. If no reader of the dataflow's result tells the epochs of a sweep apart, all its changes count as
changes at the last of them: sources advance their times, as compaction would. Everything else then works at one epoch,
and knows nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ikebana.encoding.lanes import Lane
from ikebana.time import Antichain

Rounds = tuple[int, ...]
"""The rounds of a time in the loops around an operator, outermost loop first."""

NEVER = (1 << 62) - 1
"""A collection that never changes again is complete before this epoch, that is at all epochs."""


@dataclass(frozen=True, slots=True)
class Span:
    """Epochs [lower, upper) at the given rounds.

    >>> span = Span(3, 5).enter(2)
    >>> times = np.array([[2, 9], [3, 1], [3, 2], [4, 2], [4, 3], [5, 0]])
    >>> span.before(times).tolist(), span.fresh(times).tolist()
    ([True, True, False, False, False, False], [False, False, True, True, False, False])
    >>> span.frontier
    {(3, 3), (5, 0)}
    """

    lower: int
    upper: int
    rounds: Rounds = ()
    starts: bool = False
    """Whether this is the first sweep of the dataflow, which starts at the epoch `lower`."""
    coalesced: bool = False
    """Whether all changes of the sweep count as changes at its last epoch."""

    @property
    def earliest(self) -> int:
        """The earliest epoch at which the sweep has changes; those before it count as changes at this one."""
        return self.upper - 1 if self.coalesced else self.lower

    @property
    def dimensions(self) -> int:
        """The number of coordinates of a time: the epoch and the rounds."""
        return 1 + len(self.rounds)

    def enter(self, round_: int) -> Span:
        """The same epochs inside a loop, at a round of the loop."""
        return Span(self.lower, self.upper, (*self.rounds, round_), self.starts, self.coalesced)

    @property
    def frontier(self) -> Antichain:
        """The frontier of the times that may still come after this visit."""
        depth = len(self.rounds)
        later = [(self.lower, *self.rounds[:at], self.rounds[at] + 1, *(0,) * (depth - at - 1)) for at in range(depth)]
        return Antichain([*later, (self.upper, *(0,) * depth)])

    def times_at(self, epochs: Lane) -> Lane:
        """The times of this visit at some epochs."""
        rounds = np.array(self.rounds, np.int64)
        return np.column_stack([epochs, np.broadcast_to(rounds, (len(epochs), len(rounds)))])

    def fresh(self, times: Lane) -> Any:
        """Flags for the times of this visit."""
        epochs = times[:, 0]
        flags = (epochs >= self.lower) & (epochs < self.upper)
        for at, round_ in enumerate(self.rounds, 1):
            flags &= times[:, at] == round_
        return flags

    def after_start(self, times: Lane) -> Any:
        """Flags for the times after the epoch at which the dataflow starts."""
        return times[:, 0] > self.lower if self.starts else np.ones(len(times), bool)

    def seen(self, times: Lane) -> Any:
        """Flags for the times of this visit and of earlier visits."""
        return self.before(times) | self.fresh(times)

    def before(self, times: Lane) -> Any:
        """Flags for the times of earlier visits."""
        epochs = times[:, 0]
        return (epochs < self.lower) | ((epochs < self.upper) & self._earlier(times))

    def _earlier(self, times: Lane) -> Any:
        """Flags for the times whose rounds are lexicographically earlier."""
        earlier, equal = np.zeros(len(times), bool), np.ones(len(times), bool)
        for at, round_ in enumerate(self.rounds, 1):
            earlier |= equal & (times[:, at] < round_)
            equal &= times[:, at] == round_
        return earlier
