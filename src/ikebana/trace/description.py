"""The meaning of a batch: three frontiers.

A batch with lower frontier L, upper frontier U and since frontier S has exactly the updates of a collection
at times in [L, U): beyond L and not beyond U. Their times may have been advanced, but only so
far that accumulations at times beyond S are unaffected:

    for every time t beyond S:  sum of the batch's diffs at times <= t
                             =  sum of the diffs of the updates at times in [L, U) and <= t

A batch whose times were never advanced has the minimum as its since frontier, however late its updates are.

The batches of a trace cover time without gap or overlap: the upper of each is the lower of the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ikebana.time import Antichain


@dataclass(frozen=True, slots=True)
class Description:
    """The times of a batch, and the frontier beyond which accumulations are exact.

    >>> Description(Antichain.of((0,)), Antichain.of((3,)), Antichain.of((0,)))
    [{(0,)}, {(3,)}) since {(0,)}
    """

    lower: Antichain
    upper: Antichain
    since: Antichain

    def enter(self) -> Description:
        """Return the description of the same updates inside a loop."""
        return Description(self.lower.enter(), self.upper.enter(), self.since.enter())

    def __repr__(self) -> str:
        return f"[{self.lower}, {self.upper}) since {self.since}"


def frontier_of(times: Any) -> Antichain:
    """Convert an antichain, a single time, or several times to a frontier.

    >>> frontier_of((3, 0)), frontier_of([(3, 0), (0, 3)])
    ({(3, 0)}, {(0, 3), (3, 0)})
    """
    if isinstance(times, Antichain):
        return times
    is_single = isinstance(times, tuple) or not isinstance(times, Iterable)
    return Antichain([times] if is_single else times)
