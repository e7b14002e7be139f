"""Programs: the sweep of a dataflow over one epoch as a list of instructions, run by one compiled interpreter.

In a small visit nearly all time goes into the calls around the work. A program does the visits of many operators, and
all rounds of a loop, in one call. It is data: nothing is compiled for a query (`ikebana.operators.program` writes
programs).

**Registers.** A register is a set of rows: a *count*, and *slots* of the arena, each a column of 64-bit integers.
Several registers may share slots. Slot 0 is all zeros: the null flags of columns without nulls, and the lane of a side
without columns. The value of a null is 0. All rows of a register are at one time: the epoch of the sweep and, in a
loop, the present round.

**Pending rows.** Rows for later rounds of a loop wait in a register with one more slot, of rounds; `TAKE` moves the
rows of the present round out of it. Between sweeps nothing waits.

**Traces.** Programs read traces by address, and write memtables (`ikebana.kernels.addresses`). The rows that a sweep
has not seen yet, of a shared trace that is ahead, are ignored. In a coalesced sweep, some epochs before count as `now`.

**Payload.** Columns that do not fit into exact lanes are read where they are stored, by a reference to the row
(`LOAD`); texts stay there, and slots have their addresses (`ikebana.kernels.texts`). Whatever treats rows with equal
hashes as equal compares the columns behind them.

**Others.** Where a program needs other workers it stops, with the status `EXCHANGES` or `AGREES`; where it needs a
function that has no instructions, with `CALLS`. The caller does what the instruction says, and resumes the program.

**Room.** A program that finds no room for rows in a memtable stops with the status `SPILL`, before it writes any of
them. The caller makes room and resumes it, or has it undo what it has written.

**Failure.** A program that finds no room in its registers (`FULL`), a row for which an expression raises, a collision
of hashes or a value that does not fit into a slot (`RAISED`) restores all memtables and returns that status: it has
done nothing. The caller then starts it again with more room, or has the operators do the visits.

| instruction | operands | effect |
|---|---|---|
| CLEAR | count | the register is empty |
| NEGATE | count, from, to | diffs with their sign changed |
| FILTER | source, target, flag, null, m, (from, to)*m | the rows whose flag is set and not null |
| ARRANGE | see `arrange` | sorted, added up, and stored |
| PROBE | see `probe` | the rows of a register joined with those of a trace, appended |
| TAKE | pending, target, rounds, m, (from, to)*m | the pending rows of this round, appended |
| DISTINCT | see `distinct` | each row of positive count once |
| SUMS | see `group_sums` | for each changed group its old sums, retracted, and its new sums |
| TOP | see `top` | the least or greatest values of each group |
| ENTER | source, target | the rows of the surrounding scope, in round 0 |
| ENTER_AT | source, target, pending, rounds, delays, m, (from, to, pending)*m | the rows, from rounds of their own on |
| FEEDBACK | source, pending, last round, rounds, m, (from, to)*m | the rows, in the next round |
| APPEND | source, target, m, (from, to)*m | the rows, after those that are there |
| CONSOLIDATE | source, target, k columns, lanes, slots, to slots | equal rows added up |
| LOOP | | round 0 |
| REPEAT | start, n, (pending, rounds)*n | back to `start` if rows wait for a later round |
| EXCHANGE | source, target, key, m, slots, to slots, which are texts | stops: rows go to the owners of their keys |
| AGREE | start, n, (pending, rounds)*n | stops: like REPEAT, once all workers have said which round they need |
| CALL | target, function, m, source*m | stops, if there are rows: the rows that a function makes of them |
| UNPACK | count, from, to, null, shift, width, kind, flips sign | a column of an exact lane |
| PACK | count, to, flips sign, m, (value, null, width, kind, nullable)*m | the exact lane of columns |
| LOAD | count, trace, column, references, to, null | a payload column of stored rows |
| HASH | count, to, mask, m, (value, null, kind, bits)*m | the hashed lane of columns |
| TOTAL | count, to, lanes, slots | the totals of sums in several lanes |
| EXTEND | see `extend` | the rows of a register with the values that several traces have for them in common |
| ROUND | count, to | the present round, in each row |
| others | count, to, null, a, null a, b, null b, least, greatest | an expression, row by row |

Each instruction starts with its opcode and its length. Cost: some nanoseconds for an instruction without rows.
"""

from __future__ import annotations

from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.evaluation import evaluate, pack, total, unpack
from ikebana.kernels.extend import extend
from ikebana.kernels.layout import SAVED
from ikebana.kernels.memtables import restore_rows
from ikebana.kernels.opcodes import (
    AGREE,
    AGREES,
    APPEND,
    ARRANGE,
    CALL,
    CALLS,
    CLEAR,
    COALESCED,
    COMMITS,
    CONSOLIDATE,
    CONSTANT,
    DISTINCT,
    DONE,
    ENTER,
    ENTER_AT,
    EXCHANGE,
    EXCHANGES,
    EXTEND,
    FEEDBACK,
    FILTER,
    HASH,
    LOAD,
    LOOP,
    NEGATE,
    NEXT_ROUND,
    PACK,
    PC,
    PROBE,
    REPEAT,
    ROUND,
    ROUND_NOW,
    SOURCES,
    SPILL,
    STORES,
    SUMS,
    TAKE,
    TOP,
    TOTAL,
    UNPACK,
)
from ikebana.kernels.payloads import hash_columns, load_column
from ikebana.kernels.pointers import store
from ikebana.kernels.probes import arrange, probe, store_target
from ikebana.kernels.reductions import NEVER, distinct, group_sums, top
from ikebana.kernels.registers import append, consolidate, enter_at, feedback, filter_rows, take


@helper
def next_round(code, pc, arena, counts, round_):
    """The least later round for which rows wait; -1 if there is none."""
    least = NEVER
    for number in range(code[pc + 3]):
        pending, rounds = code[pc + 4 + 2 * number], code[pc + 5 + 2 * number]
        for row in range(counts[pending]):
            if round_ < arena[rounds, row] < least:
                least = arena[rounds, row]
    return -1 if least == NEVER else least


@helper
def has_rows(code, pc, counts):
    """Whether a register that a call is given has rows."""
    for at in range(pc + SOURCES + 1, pc + SOURCES + 1 + code[pc + SOURCES]):
        if counts[code[at]] > 0:
            return True
    return False


@helper
def step(code, pc, arena, counts, traces, order, spare, cursors, lists, first, now, round_):
    """Execute an instruction that does not change the order of execution."""
    op = code[pc]
    if op >= CONSTANT:
        return evaluate(code, pc, arena, counts)
    if op == CLEAR:
        counts[code[pc + 2]] = 0
    elif op == NEGATE:
        for row in range(counts[code[pc + 2]]):
            arena[code[pc + 4], row] = -arena[code[pc + 3], row]
    elif op == FILTER:
        return filter_rows(code, pc, arena, counts)
    elif op == ARRANGE:
        return arrange(code, pc, arena, counts, order, spare)
    elif op == PROBE:
        return probe(code, pc, arena, counts, traces, first, now, round_)
    elif op == TAKE:
        return take(code, pc, arena, counts, round_)
    elif op == DISTINCT:
        return distinct(code, pc, arena, counts, traces, order, spare, first, now, round_)
    elif op == SUMS:
        return group_sums(code, pc, arena, counts, traces, now, round_)
    elif op == TOP:
        return top(code, pc, arena, counts, traces, order, spare, cursors, lists, first, now, round_)
    elif op == ENTER:
        counts[code[pc + 3]] = counts[code[pc + 2]] if round_ == 0 else 0
    elif op == ENTER_AT:
        return enter_at(code, pc, arena, counts)
    elif op == FEEDBACK:
        return feedback(code, pc, arena, counts, round_)
    elif op == APPEND:
        return append(code, pc, arena, counts)
    elif op == CONSOLIDATE:
        return consolidate(code, pc, arena, counts, order, spare)
    elif op == UNPACK:
        return unpack(code, pc, arena, counts)
    elif op == PACK:
        return pack(code, pc, arena, counts)
    elif op == LOAD:
        return load_column(code, pc, arena, counts, traces)
    elif op == HASH:
        return hash_columns(code, pc, arena, counts)
    elif op == TOTAL:
        return total(code, pc, arena, counts)
    elif op == EXTEND:
        return extend(code, pc, arena, counts, traces, first, now)
    elif op == ROUND:
        arena[code[pc + 3], : counts[code[pc + 2]]] = round_
    return DONE


@helper
def undo(written):
    """Restore the memtables that a program has written."""
    for table in written:
        restore_rows(table)


@helper
def commit(written):
    """Keep what a program has written."""
    for table in written:
        store(table + 8 * SAVED, -1)


@kernel("int(cells, cells, cells, cells, slots, cells, slots, slots, int)")
def run_program(code, traces, written, state, arena, counts, scratch, cursors, now):
    """Run a program over the epoch `now`, from its start, or from where it has stopped.

    `traces` has the addresses of the tables of its traces, `written` of those that it writes.
    `counts` has the counts of the input registers. `scratch` has six lanes as long as the arena's. Returns a status; if
    it is `FULL` or `RAISED`, memtables are as they were.
    """
    order, spare, lists = scratch[0], scratch[1], scratch[2:6]
    pc, round_, first = state[PC], state[ROUND_NOW], now - state[COALESCED]
    while 0 <= pc < len(code):
        status = DONE
        if code[pc] == LOOP:
            round_ = 0
            pc += code[pc + 1]
        elif code[pc] == REPEAT:
            round_ = next_round(code, pc, arena, counts, round_)
            pc = code[pc + 2] if round_ >= 0 else pc + code[pc + 1]
            round_ = max(round_, 0)
        elif code[pc] == EXCHANGE:
            status = EXCHANGES
        elif code[pc] == CALL:
            counts[code[pc + 2]] = 0
            if has_rows(code, pc, counts):
                status = CALLS
            else:
                pc += code[pc + 1]
        elif code[pc] == AGREE:
            state[NEXT_ROUND] = next_round(code, pc, arena, counts, round_)
            status = AGREES
        else:
            if state[STORES] == 0:
                status = step(code, pc, arena, counts, traces, order, spare, cursors, lists, first, now, round_)
            if status == DONE:
                status = store_target(code, pc, arena, counts, traces, now, round_)
            state[STORES] = status == SPILL
            if status == DONE:
                pc += code[pc + 1]
        if status in (EXCHANGES, AGREES, CALLS, SPILL):
            state[PC], state[ROUND_NOW] = pc, round_
            return status
        if status != DONE:
            undo(written)
            return status
    if pc < 0:
        undo(written)
    elif state[COMMITS]:
        commit(written)
    return DONE
