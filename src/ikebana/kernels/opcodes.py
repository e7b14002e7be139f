"""The instructions of programs, what a program returns, and its state (`ikebana.kernels.program`).

The interpreter and those who write programs agree on these numbers. An opcode that is at least `CONSTANT` is an
expression. The module imports nothing, so that programs can be written before kernels are loaded.
"""

from __future__ import annotations

(
    CLEAR,
    NEGATE,
    FILTER,
    ARRANGE,
    PROBE,
    TAKE,
    DISTINCT,
    SUMS,
    TOP,
    ENTER,
    ENTER_AT,
    FEEDBACK,
    APPEND,
    CONSOLIDATE,
    LOOP,
    REPEAT,
    EXCHANGE,
    AGREE,
    CALL,
    UNPACK,
    PACK,
    LOAD,
    HASH,
    TOTAL,
    EXTEND,
    ROUND,
    CONSTANT,
    ADD,
    SUBTRACT,
    MULTIPLY,
    EQUAL,
    LESS,
    LESS_EQUAL,
    AND,
    OR,
    NOT,
    IS_NULL,
    LEAST,
    GREATEST_OF,
    CHOOSE,
    BIT_LENGTH,
    SHIFT,
    MEAN,
    YEAR,
    TEXT_EQUAL,
    STARTS_WITH,
    ENDS_WITH,
    CONTAINS,
    LIKE,
    MAGNITUDE,
    DIVIDE,
    SUBSTRING,
) = range(52)
"""The opcodes."""

DONE, FULL, SPILL, RAISED, EXCHANGES, AGREES, CALLS = range(7)
"""What a program returns: that it is done, lacks room in registers or in a memtable, has failed, or waits for other
workers or for a function."""

PC, ROUND_NOW, NEXT_ROUND, COMMITS, STORES, COALESCED = range(6)
STATE_CELLS = 6
"""The state of a program: the position of the next instruction (-1 to undo what it has written), the present round, the
next round for which rows wait here (-1 if there is none), whether it commits what it has written when it is done,
whether all that the next instruction has left to do is to store the rows of its target, and how many epochs before the
program's count as this one.
"""

LACKS_ROOM = 0
"""The first count is not that of a register: with the status `SPILL` it is the number of the trace without room."""

FUNCTION, SOURCES = 3, 4
"""Positions in a `CALL`: of the number of the function, and of the number of registers, which follow."""

SEEN, BEFORE = range(2)
"""Which rows of a trace a probe meets: those up to and including this visit, or those before it."""

SIGNED, UNSIGNED, FLOAT, WIDE, TEXT = range(5)
"""What a slot has of a column: an integer with a sign; one without; the ordered bits of a float; a decimal of more than
18 digits, if it fits; the address and the length of a text. In an exact lane the first has its sign flipped, so that
order is kept, and the next two are as they are; the others have no exact lane."""
