"""Random programs for the interpreter and its twin, written instruction by instruction.

A `Writer` has registers of one form: three columns, the first of which serves as a key and the second as a value, a
column of null flags, and one or two diffs. Registers and slots are written once, or once in each round of a loop, as in
the programs of dataflows. Every instruction that writes a trace has a trace of its own, whose rows are all earlier;
other traces also have rows of this epoch and of later ones.

Payload is a function of the lanes, as if these were its hashes: of the key for the first columns, of the value for the
others. Some parts of traces have another function, so that hashes collide. Columns of payload are integers or texts,
`i` or `t`; `tests.trace.test_cells` has all types.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.kernels.program_instructions import ANYWHERE, EXPRESSION_OPCODES, ONLY_IN_LOOPS, ONLY_OUTSIDE, instruction_of
from tests.kernels.program_runs import Draw, Program
from tests.kernels.program_traces import TraceCase
from tests.kernels.program_writer import Writer


@st.composite
def traces(draw: Draw, number: int) -> list[TraceCase]:
    """Some traces with one diff lane and without payload, around epoch 3."""
    writer = Writer(draw, extreme=True)
    writer.program.now = 3
    return [writer.program.traces[writer.trace(written=False, lanes=1)] for _ in range(number)]


@st.composite
def instructions(draw: Draw, opcode: int) -> Program:
    """A program of one instruction, by itself or in a loop."""
    writer = Writer(draw, extreme=True)
    if opcode in ONLY_IN_LOOPS or (opcode in ANYWHERE and draw(st.booleans())):
        writer.loop([instruction_of(opcode)])
    else:
        writer.add(instruction_of(opcode))
    return writer.program


@st.composite
def programs(draw: Draw) -> Program:
    """A short program: some instructions, a loop of some, and some more."""
    writer = Writer(draw, extreme=False)
    expression = st.sampled_from(EXPRESSION_OPCODES)
    outside = st.lists(st.sampled_from([*ANYWHERE, *ONLY_OUTSIDE]) | expression, max_size=3)
    inside = st.lists(st.sampled_from([*ANYWHERE, *ONLY_IN_LOOPS]) | expression, min_size=1, max_size=4)
    for opcode in draw(outside):
        writer.add(instruction_of(opcode))
    if draw(st.booleans()):
        writer.loop([instruction_of(opcode) for opcode in draw(inside)])
    for opcode in draw(outside):
        writer.add(instruction_of(opcode))
    return writer.program
