"""Extensions in ordinary Python: the values that several traces have for a row in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ikebana.kernels import opcodes
from tests.kernels.naive_state import PlainTrace, Row, State, Stop
from tests.kernels.words import signed


def extend(
    state: State, source: int, target: int, traces: int, value: int, diff: int, to_diff: int, columns: int, *slots: int
) -> None:
    """Each row with each value that all traces have for it; the product of its diff and of their multiplicities."""
    uses = [slots[at : at + 4] for at in range(0, 4 * traces, 4)]
    copies, extended = slots[4 * traces :], list[Row]()
    for row in state.rows(source, [diff, *(key for *_, key in uses), *copies[::2]]):
        own, keys, copied = row[0], row[1 : 1 + traces], row[1 + traces :]
        met = [(state.traces[trace], mode, exists) for trace, mode, exists, _ in uses]
        values = extensions(met, keys, state.now, state.coalesced, state.room - len(extended))
        if values is None:
            raise Stop(opcodes.FULL)
        extended += [(val, signed(own * count), *copied) for val, count in values]
    state.write(target, [value, to_diff, *copies[1::2]], extended)


def extensions(
    traces: Sequence[tuple[PlainTrace, int, int]], keys: Sequence[int], now: int, coalesced: int, room: int
) -> list[tuple[int, int]] | None:
    """The values that all traces have for keys, in order, with the product of their multiplicities at an epoch.

    So many epochs before count as this one as `coalesced` says. A multiplicity that only shows existence is 1 if it is
    positive. None if no trace has at most `room` updates of its key: the smallest might have that many values.
    """
    stored = [
        [update for update in trace.updates if update[0] == key]
        for (trace, _, _), key in zip(traces, keys, strict=True)
    ]
    if min(map(len, stored)) > room:
        return None
    totals: list[defaultdict[int, int]] = []
    for (_, mode, exists), updates in zip(traces, stored, strict=True):
        counts: defaultdict[int, int] = defaultdict(int)
        for _, val, epoch, _, diffs, *_ in updates:
            if epoch < now - coalesced or (epoch <= now and mode == opcodes.SEEN):
                counts[val] = signed(counts[val] + diffs[0])
        totals.append(defaultdict(int, {val: int(count > 0) for val, count in counts.items()}) if exists else counts)
    values = []
    for val in sorted(totals[0]):
        product = 1
        for counts in totals:
            product = signed(product * counts[val])
        if product:
            values.append((val, product))
    return values
