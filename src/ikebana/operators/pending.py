"""Pending changes: output of an operator at later rounds, kept until these rounds are visited.

The visits of a sweep are in lexicographic order of rounds. Output at the rounds of the visit flows on at once; output
at later rounds waits here. `next_round` tells a loop which round it has to visit next.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ikebana.operators.changes import Changes
from ikebana.operators.partition import split_rows
from ikebana.operators.span import Rounds, Span
from ikebana.trace import time_tables


class PendingChanges:
    """Changes by rounds."""

    def __init__(self) -> None:
        self._waiting: dict[Rounds, list[Changes]] = {}

    def keep_later(self, changes: Changes, span: Span) -> Changes:
        """Keep the changes at later rounds than the visit's; return the others."""
        if not span.rounds or not len(changes):
            return changes
        if (changes.times[:, 1:] == span.rounds).all():
            return changes.pruned()
        distinct, position = time_tables.distinct_times(changes.times[:, 1:])
        parts = split_rows(changes, position.astype(np.int64)[changes.tix], len(distinct))
        present = changes.slice(0, 0)
        for rounds, part in zip(map(tuple, distinct.tolist()), parts, strict=True):
            if part is None:
                continue
            if rounds == span.rounds:
                present = part
            else:
                self.put(part.pruned(), rounds)
        return present.pruned()

    def put(self, changes: Changes, rounds: Rounds) -> None:
        """Keep changes until some rounds are visited."""
        if len(changes):
            self._waiting.setdefault(rounds, []).append(changes)

    def pop(self, span: Span) -> list[Changes]:
        """Remove and return the changes that were kept for this visit."""
        return self._waiting.pop(span.rounds, []) if self._waiting else []

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        """The least round later than `after`, in the loop that `prefix` leads to, for which changes are kept."""
        return next_round(self._waiting, prefix, after)


def next_round(pending: Mapping[Rounds, object], prefix: Rounds, after: int) -> int | None:
    """The least round later than `after` among the keys that start with `prefix`.

    >>> next_round({(1, 4): 0, (1, 2): 0, (2, 0): 0}, (1,), after=2)
    4
    """
    depth = len(prefix)
    return min((key[depth] for key in pending if key[:depth] == prefix and key[depth] > after), default=None)
