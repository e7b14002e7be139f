"""The twin of the interpreter: programs run in ordinary Python, on lists of rows.

A register is named by a count and some slots, as in the compiled interpreter: its rows are tuples with an integer from
each slot. A trace is a list of updates `(key, val, epoch, round, diffs, payload)`; those of its memtable come first,
and are the only ones that programs add to. The payload is a tuple of integers, strings of bytes and None for null; it
may be left out if it is empty. Each opcode has a function of its operands. Nulls are None while a function computes.

`naive_state` has registers and traces; the functions are in `naive_streams`, `naive_traces`, `naive_extensions`,
`naive_reductions` and `naive_columns`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from ikebana.kernels import opcodes
from tests.kernels.naive_columns import (
    EXPRESSIONS,
    choose,
    constant,
    evaluated,
    hash_,
    magnitude,
    mean,
    pack,
    shift,
    substring,
    total,
    unpack,
)
from tests.kernels.naive_extensions import extend
from tests.kernels.naive_reductions import distinct, sums, top
from tests.kernels.naive_state import PlainTrace, State, Stop
from tests.kernels.naive_streams import (
    append,
    call,
    clear,
    consolidate,
    enter,
    enter_at,
    exchange,
    feedback,
    filter_,
    negate,
    round_,
    take,
)
from tests.kernels.naive_traces import arrange, load, probe


def run(
    code: Sequence[int],
    traces: Sequence[PlainTrace],
    slots: defaultdict[int, list[int]],
    counts: list[int],
    room: int,
    now: int,
    grows: bool,
    coalesced: int,
) -> int:
    """Run a program over an epoch, and return its status; if it does not succeed, memtables are as they were.

    If a memtable lacks room, it gets some, or the program stops there.
    """
    before = [list(trace.memtable) for trace in traces]
    heaps = [trace.heap for trace in traces]
    state, at = State(traces, slots, counts, room, now, grows, coalesced), 0
    try:
        while at < len(code):
            opcode, length = code[at : at + 2]
            operands = code[at + 2 : at + length]
            at += length
            if opcode == opcodes.LOOP:
                state.round = 0
            elif opcode in (opcodes.REPEAT, opcodes.AGREE):
                later = _later_rounds(state, operands[2:])
                state.round = min(later, default=0)
                at = operands[0] if later else at
            else:
                FUNCTIONS[opcode](state, *operands)
    except Stop as stop:
        for trace, rows, heap in zip(traces, before, heaps, strict=True) if stop.status != opcodes.SPILL else ():
            trace.memtable[:], trace.heap = rows, heap
        counts[opcodes.LACKS_ROOM] = stop.trace
        return stop.status
    return opcodes.DONE


def _later_rounds(state: State, pending: Sequence[int]) -> set[int]:
    """The rounds after the present one for which rows wait."""
    pairs = zip(pending[::2], pending[1::2], strict=True)
    return {round_ for count, rounds in pairs for (round_,) in state.rows(count, [rounds]) if round_ > state.round}


FUNCTIONS: dict[int, Callable[..., None]] = {
    opcodes.CLEAR: clear,
    opcodes.NEGATE: negate,
    opcodes.ROUND: round_,
    opcodes.FILTER: filter_,
    opcodes.ARRANGE: arrange,
    opcodes.PROBE: probe,
    opcodes.TAKE: take,
    opcodes.DISTINCT: distinct,
    opcodes.SUMS: sums,
    opcodes.TOP: top,
    opcodes.ENTER: enter,
    opcodes.ENTER_AT: enter_at,
    opcodes.FEEDBACK: feedback,
    opcodes.APPEND: append,
    opcodes.CONSOLIDATE: consolidate,
    opcodes.EXCHANGE: exchange,
    opcodes.CALL: call,
    opcodes.UNPACK: unpack,
    opcodes.PACK: pack,
    opcodes.LOAD: load,
    opcodes.HASH: hash_,
    opcodes.TOTAL: total,
    opcodes.EXTEND: extend,
    opcodes.CONSTANT: constant,
    opcodes.SHIFT: shift,
    opcodes.MAGNITUDE: magnitude,
    opcodes.MEAN: mean,
    opcodes.SUBSTRING: substring,
    opcodes.CHOOSE: choose,
    **{opcode: evaluated(opcode) for opcode in EXPRESSIONS},
}
"""What each opcode does, but for `LOOP`, `REPEAT` and `AGREE`, which say where to go on."""
