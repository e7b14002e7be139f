"""How each instruction of a random program is written."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from ikebana.kernels import opcodes
from tests.kernels.arrays import GREATEST, LEAST, NUMBERS
from tests.kernels.naive_columns import ARITHMETIC, EXPRESSIONS
from tests.kernels.naive_state import reference_to
from tests.kernels.program_runs import Draw, Register
from tests.kernels.program_traces import ROUNDS
from tests.kernels.program_writer import Instruction, Writer, flat
from tests.kernels.words import signed


def _clear(to: Writer, draw: Draw) -> None:
    register = to.filled()
    to.emit(opcodes.CLEAR, register.count)
    to.put(register)


def _negate(to: Writer, draw: Draw) -> None:
    source = to.pick()
    diffs = tuple(to.slot() for _ in source.diffs)
    for pair in zip(source.diffs, diffs, strict=True):
        to.emit(opcodes.NEGATE, source.count, *pair)
    to.put(replace(source, diffs=diffs))


def _round(to: Writer, draw: Draw) -> None:
    source = to.pick()
    column = to.slot()
    to.emit(opcodes.ROUND, source.count, column)
    to.put(replace(source, columns=(*source.columns[:2], column)))


def _filter(to: Writer, draw: Draw) -> None:
    source = to.pick()
    target = to.register(len(source.diffs))
    flag, null = draw(st.sampled_from(source.fields)), draw(st.sampled_from([0, source.null]))
    pairs = flat(source.slots, target.slots)
    to.emit(opcodes.FILTER, source.count, target.count, flag, null, len(source.slots), *pairs)
    to.put(target)


def _append(to: Writer, draw: Draw) -> None:
    source = to.pick()
    target = to.filled(len(source.diffs))
    to.emit(opcodes.APPEND, source.count, target.count, len(source.slots), *flat(source.slots, target.slots))
    to.put(target)


def _exchange(to: Writer, draw: Draw) -> None:
    source = to.pick()
    target = to.register(len(source.diffs))
    operands = source.count, target.count, source.columns[0], len(source.slots)
    to.emit(opcodes.EXCHANGE, *operands, *source.slots, *target.slots, *[0] * len(source.slots))
    to.put(target)


def _call(to: Writer, draw: Draw) -> None:
    source = to.pick()
    sources = [source, *[to.pick() for _ in range(draw(st.integers(0, 2)))]]
    target = replace(source, count=to.count())
    to.emit(opcodes.CALL, target.count, 0, len(sources), *[one.count for one in sources])
    to.put(target)


def _take(to: Writer, draw: Draw) -> None:
    target = to.filled()
    count, rounds, later = to.pending(len(target.slots))
    to.emit(opcodes.TAKE, count, target.count, rounds, len(later), *flat(later, target.slots))
    to.put(target)


def _enter(to: Writer, draw: Draw) -> None:
    source = to.pick()
    inside = replace(source, count=to.count())
    to.emit(opcodes.ENTER, source.count, inside.count)
    to.put(inside)


def _enter_at(to: Writer, draw: Draw) -> None:
    _enter(to, draw)
    source = to.registers.pop()
    target = to.register(len(source.diffs))
    count, rounds, later = to.pending(len(target.slots))
    delays = [0, 1, 0, 3, 2, draw(st.sampled_from([0, -1, LEAST]))]
    waits = to.slot([delays[delay] for delay in _some(draw, len(delays), to.program.room)])
    to.emit(opcodes.CLEAR, target.count)
    to.emit(opcodes.TAKE, count, target.count, rounds, len(later), *flat(later, target.slots))
    triples = flat(source.slots, target.slots, later)
    to.emit(opcodes.ENTER_AT, source.count, target.count, count, rounds, waits, len(later), *triples)
    to.put(target)


def _some(draw: Draw, size: int, number: int) -> list[int]:
    """So many numbers below `size`, from a few that are drawn."""
    few = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    return [few[at % len(few)] for at in range(number)]


def _feedback(to: Writer, draw: Draw) -> None:
    source = to.pick()
    count, rounds, later = to.pending(len(source.slots))
    last = draw(st.integers(ROUNDS, ROUNDS + 2))
    pairs = flat(source.slots, later)
    to.emit(opcodes.FEEDBACK, source.count, count, last, rounds, len(later), *pairs)


def _consolidate(to: Writer, draw: Draw) -> None:
    to.put(consolidated(to, to.pick()))


def consolidated(to: Writer, source: Register) -> Register:
    """The register with equal rows added up."""
    target = to.register(len(source.diffs))
    operands = source.count, target.count, len(source.fields), len(source.diffs)
    to.emit(opcodes.CONSOLIDATE, *operands, *source.slots, *target.slots)
    return target


def _fresh(to: Writer, lanes: int) -> Register:
    """A register of keys, values and diffs."""
    return Register(to.count(), (to.slot(), to.slot(), 0), 0, tuple(to.slot() for _ in range(lanes)))


def _arrange(to: Writer, draw: Draw) -> None:
    kinds, keys = to.payload()
    source, rows = to.keyed() if kinds else (to.pick(), [])
    target = _fresh(to, len(source.diffs))
    trace = to.trace(written=True, lanes=len(source.diffs), payload=kinds, keys=keys) if draw(st.integers(0, 3)) else -1
    key, val = draw(st.sampled_from([source.columns[0], source.columns[2], 0])), source.columns[1]
    key = source.columns[0] if kinds else key
    groups = to.groups(target.count, kinds, to.payload_slots(kinds, keys, rows))
    operands = source.count, target.count, trace, len(source.diffs), len(kinds), key, val, *target.columns[:2]
    to.emit(opcodes.ARRANGE, *operands, *source.diffs, *target.diffs, *groups)
    to.put(target)


def _probe(to: Writer, draw: Draw) -> None:
    kinds, keys = to.payload()
    source, rows = to.keyed() if kinds else (to.pick(), [])
    trace_lanes, mode = to.some_lanes(), draw(st.sampled_from([opcodes.SEEN, opcodes.BEFORE]))
    adds_up = draw(st.integers(0, 1))
    if adds_up and not kinds:
        source = consolidated(to, source)
    written = bool(kinds) and draw(st.booleans())
    trace = (
        to.trace(written=written, lanes=trace_lanes, payload=kinds, keys=keys) if kinds else to.read_trace(trace_lanes)
    )
    lanes = max(len(source.diffs), trace_lanes)
    target = to.register(lanes)
    count, rounds, later = to.pending(len(target.slots)) if to.in_loop else (-1, 0, [0] * len(target.slots))
    to.emit(opcodes.CLEAR, target.count)
    if to.in_loop:
        to.emit(opcodes.TAKE, count, target.count, rounds, len(later), *flat(later, target.slots))
    copies = [
        slot
        for at, triple in enumerate(zip(source.fields, target.fields, later[:4], strict=True))
        if at != 1  # the value is that of the trace
        for slot in triple
    ]
    operands = source.count, target.count, trace, mode, adds_up, source.columns[0], target.columns[1]
    references = to.slot() if kinds else 0
    operands += count, later[1], rounds, len(source.diffs), trace_lanes, lanes, len(copies) // 3, references, keys
    compared = to.payload_slots(kinds[:keys], keys, rows)
    groups = [cell for kind, pair in zip(kinds, compared, strict=False) for cell in (*pair, 0, 0, int(kind == "t"))]
    to.emit(opcodes.PROBE, *operands, *source.diffs, *target.diffs, *later[4:], *copies, *groups)
    for at, kind in enumerate(kinds):
        _load(to, kind, target.count, trace, at, references)
    to.put(target)


def _load(to: Writer, kind: str, count: int, trace: int, column: int, references: int) -> None:
    """Read a payload column of the rows that a probe has met."""
    value, null = to.slot(), to.slot()
    to.program.texts |= {value} if kind == "t" else set()
    to.program.left.append((count, (value, null)))
    to.emit(opcodes.LOAD, count, trace, column, references, value, null)


def _hash(to: Writer, draw: Draw) -> None:
    source, rows = to.keyed()
    texts, numbers = to.payload_slots("t", 1, rows)[0], source.columns[2]
    columns = [(*texts, opcodes.TEXT, 0), (numbers, source.null, opcodes.SIGNED, 64), (numbers, 0, opcodes.WIDE, 64)]
    chosen = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3))
    lane, mask = to.slot(), draw(st.sampled_from([-1, 3]))
    to.emit(opcodes.HASH, source.count, lane, mask, len(chosen), *(cell for column in chosen for cell in column))
    to.put(replace(source, columns=(*source.columns[:2], lane)))


def _total(to: Writer, draw: Draw) -> None:
    numbers = draw(st.lists(st.lists(NUMBERS | st.integers(-(2**40), 2**40), max_size=3), max_size=4))
    lanes = draw(st.integers(1, 4))
    shift = draw(st.sampled_from([0, 0, 0, 40]))
    bits = {1: 62, 2: 64, 3: 96, 4: 128}[lanes]
    values = [[signed(number) << shift if bits > 64 else number >> (64 - bits) for number in some] for some in numbers]
    slots = [to.slot([signed(sum(value >> 32 * lane for value in some)) for some in values]) for lane in range(lanes)]
    to.program.room = max(to.program.room, len(values))
    count, result = to.count(len(values)), to.slot()
    to.emit(opcodes.TOTAL, count, result, lanes, *slots)
    to.program.left.append((count, (result,)))


def _extend(to: Writer, draw: Draw) -> None:
    source, target = to.pick(), to.register(1)
    traces = []
    for _ in range(draw(st.integers(1, 3))):
        mode, exists = draw(st.sampled_from([opcodes.SEEN, opcodes.BEFORE])), draw(st.integers(0, 1))
        traces += [to.read_trace(1), mode, exists, draw(st.sampled_from(source.columns))]
    copies = [
        slot for at, pair in enumerate(zip(source.fields, target.fields, strict=True)) if at != 1 for slot in pair
    ]
    operands = source.count, target.count, len(traces) // 4, target.columns[1], source.diffs[0], target.diffs[0]
    to.emit(opcodes.EXTEND, *operands, len(copies) // 2, *traces, *copies)
    to.put(target)


def _text_expression(opcode: int) -> Instruction:
    def write(to: Writer, draw: Draw) -> None:
        source, rows = to.keyed()
        (a, a_null), (b, b_null) = to.payload_slots("tt", 1, rows)
        value, null = to.slot(), to.slot()
        to.emit(opcode, source.count, value, null, a, a_null, b, b_null, 0, 0)
        to.put(replace(source, columns=(*source.columns[:2], value), null=null))

    return write


TEXT_OPCODES = (opcodes.TEXT_EQUAL, opcodes.STARTS_WITH, opcodes.ENDS_WITH, opcodes.CONTAINS)


def _like(to: Writer, draw: Draw) -> None:
    rows = draw(st.lists(st.tuples(PATTERNS, PATTERNS), max_size=8))
    text, pattern = (to.slot([reference_to(row[at]) for row in rows]) for at in range(2))
    count, result = to.count(len(rows)), to.slot()
    to.emit(opcodes.LIKE, count, result, 0, text, 0, pattern, 0, 0, 0)
    to.program.left.append((count, (result,)))
    to.program.room = max(to.program.room, 8)


def _substring(to: Writer, draw: Draw) -> None:
    texts = draw(st.lists(st.text("aß€", max_size=4).map(str.encode), max_size=8))
    text, nulls = to.slot([reference_to(text) for text in texts]), to.slot([draw(st.integers(0, 1)) for _ in texts])
    count, result, null = to.count(len(texts)), to.slot(), to.slot()
    places = draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    to.emit(opcodes.SUBSTRING, count, result, null, text, nulls, 0, 0, *places)
    to.program.left.append((count, (result, null)))
    to.program.room = max(to.program.room, 8)


PATTERNS = st.text("ab%", max_size=7).map(str.encode)
"""Texts and patterns, of few letters, so that they often match."""


def _year(to: Writer, draw: Draw) -> None:
    days = draw(st.lists(st.integers(-719162, 2932896), max_size=8))
    source, result = to.slot(days), to.slot()
    count = to.count(len(days))
    to.emit(opcodes.YEAR, count, result, 0, source, 0, 0, 0, 0, 0)
    to.program.left.append((count, (result,)))
    to.program.room = max(to.program.room, 8)


def _magnitude(to: Writer, draw: Draw) -> None:
    numbers = draw(st.lists(NUMBERS, max_size=8))
    source, result, count = to.slot(numbers), to.slot(), to.count(len(numbers))
    to.emit(opcodes.MAGNITUDE, count, result, 0, source, 0, 0, 0, draw(st.integers(1, 52)), 0)
    to.program.left.append((count, (result,)))
    to.program.room = max(to.program.room, 8)


def _mean(to: Writer, draw: Draw) -> None:
    numbers = st.tuples(st.integers(-(2**48), 2**48), st.integers(-5, 5), st.integers(0, 1))
    rows = draw(st.lists(numbers, max_size=3))
    slots = [to.slot([row[at] for row in rows]) for at in range(3)]
    count, result, null = to.count(len(rows)), to.slot(), to.slot()
    factor = draw(st.sampled_from([1, 10**4]))
    to.emit(opcodes.MEAN, count, result, null, slots[0], slots[2], slots[1], 0, factor, 0)
    to.program.left.append((count, (result, null)))


def _groups(to: Writer, source: Register, columns: int) -> list[int]:
    """The operands by which instructions find the groups to evaluate."""
    count, rounds, later = to.pending(columns) if to.in_loop else (-1, 0, [to.slot() for _ in range(columns)])
    ordered = [to.slot() for _ in range(columns)]
    return [source.count, to.count(), count, rounds, *source.columns[:columns], *ordered, *later]


def _distinct(to: Writer, draw: Draw) -> None:
    (kinds, keys), target = to.payload(), _fresh(to, 1)
    source, rows = to.keyed() if kinds else (to.pick(), [])
    given = to.trace(written=False, lanes=1, payload=kinds, keys=keys) if kinds else to.read_trace(to.some_lanes())
    produced = to.trace(written=True, lanes=1, payload=kinds, keys=keys)
    operands = target.count, given, produced, *target.columns[:2], *target.diffs, len(kinds)
    groups = to.groups(target.count, kinds, to.payload_slots(kinds, keys, rows))
    to.emit(opcodes.DISTINCT, *operands, *_groups(to, source, 2), *groups)
    to.put(target)


def _top(to: Writer, draw: Draw) -> None:
    source, target = to.pick(), _fresh(to, 1)
    traces = to.read_trace(1), to.trace(written=True, lanes=1)
    limit, greatest, once = (
        draw(st.sampled_from([1, 2, 5, 0, GREATEST])),
        draw(st.integers(0, 1)),
        draw(st.integers(0, 1)),
    )
    operands = target.count, *traces, *target.columns[:2], *target.diffs, limit, greatest, once, int(to.in_loop)
    to.emit(opcodes.TOP, *operands, *_groups(to, source, 1))
    to.put(target)


def _sums(to: Writer, draw: Draw) -> None:
    kinds, _ = to.payload()
    source, rows = to.keyed() if kinds else (to.pick(), [])
    lanes, keys = len(source.diffs), len(kinds)
    trace = to.trace(written=False, lanes=lanes, payload=kinds, keys=keys) if kinds else to.read_trace(lanes)
    columns, diff = tuple(to.slot() for _ in range(1 + lanes)), to.slot()
    target = Register(to.count(), (*columns, 0)[:3], 0, (diff,))
    groups = to.groups(target.count, kinds, to.payload_slots(kinds, keys, rows))
    to.emit(
        opcodes.SUMS, source.count, target.count, trace, lanes, source.columns[0], columns[0], diff, keys,
        *source.diffs, *columns[1:], *groups,
    )  # fmt: skip
    to.put(target)


def _unpack(to: Writer, draw: Draw) -> None:
    source = to.pick()
    nullable, full, kind = draw(st.integers(0, 1)), draw(st.integers(0, 1)), draw(st.integers(0, 1))
    width = draw(st.integers(1 + nullable, 64))
    shift = draw(st.integers(0, 64 - width))
    column, null = to.slot(), to.slot() if nullable else 0
    from_ = draw(st.sampled_from(source.columns))
    to.emit(opcodes.UNPACK, source.count, from_, column, null, shift, width, kind, full, nullable)
    to.put(replace(source, columns=(*source.columns[:2], column), null=null))


def _pack(to: Writer, draw: Draw) -> None:
    source = to.pick()
    nullable = draw(st.lists(st.integers(0, 1), min_size=1, max_size=3))
    room, fields = 64, []
    for at, may_be_null in enumerate(nullable):
        width = draw(st.integers(1 + may_be_null, room - 2 * (len(nullable) - at - 1)))
        column = draw(st.sampled_from(source.columns))
        fields += [column, source.null if may_be_null else 0, width, draw(st.integers(0, 1)), may_be_null]
        room -= width
    lane = to.slot()
    to.emit(opcodes.PACK, source.count, lane, int(room == 0), len(nullable), *fields)
    to.put(replace(source, columns=(*source.columns[:2], lane)))


def _expression(opcode: int) -> Instruction:
    def write(to: Writer, draw: Draw) -> None:
        source = to.pick()
        column = st.tuples(st.sampled_from(source.fields), st.sampled_from([0, source.null]))
        value, null = to.slot(), to.slot()
        least, greatest = 0, 0
        if opcode in ARITHMETIC:
            least, greatest = draw(st.sampled_from([(LEAST, GREATEST), (-128, 127)]))
        elif opcode == opcodes.CONSTANT:
            least = draw(NUMBERS)
        elif opcode == opcodes.CHOOSE:
            least, greatest = draw(column)
        elif opcode == opcodes.SHIFT:
            least = draw(st.sampled_from([0, 32, 63]))
        to.emit(opcode, source.count, value, null, *draw(column), *draw(column), least, greatest)
        to.put(replace(source, columns=(*source.columns[:2], value), null=null))

    return write


INSTRUCTIONS: dict[int, Instruction] = {
    opcodes.CLEAR: _clear,
    opcodes.NEGATE: _negate,
    opcodes.ROUND: _round,
    opcodes.FILTER: _filter,
    opcodes.ARRANGE: _arrange,
    opcodes.PROBE: _probe,
    opcodes.TAKE: _take,
    opcodes.DISTINCT: _distinct,
    opcodes.SUMS: _sums,
    opcodes.TOP: _top,
    opcodes.ENTER: _enter,
    opcodes.ENTER_AT: _enter_at,
    opcodes.FEEDBACK: _feedback,
    opcodes.APPEND: _append,
    opcodes.CONSOLIDATE: _consolidate,
    opcodes.EXCHANGE: _exchange,
    opcodes.CALL: _call,
    opcodes.UNPACK: _unpack,
    opcodes.PACK: _pack,
    opcodes.HASH: _hash,
    opcodes.TOTAL: _total,
    opcodes.EXTEND: _extend,
    opcodes.MEAN: _mean,
    opcodes.YEAR: _year,
    opcodes.LIKE: _like,
    opcodes.SUBSTRING: _substring,
    opcodes.MAGNITUDE: _magnitude,
    **{opcode: _text_expression(opcode) for opcode in TEXT_OPCODES},
}
"""How to write each instruction that is not an expression."""

EXPRESSION_OPCODES = (
    *(opcode for opcode in EXPRESSIONS if opcode not in INSTRUCTIONS),
    opcodes.CONSTANT,
    opcodes.CHOOSE,
    opcodes.SHIFT,
)
ONLY_IN_LOOPS = (opcodes.ENTER_AT, opcodes.FEEDBACK)
ONLY_OUTSIDE = (opcodes.SUMS, opcodes.EXTEND)
ANYWHERE = [opcode for opcode in INSTRUCTIONS if opcode not in (*ONLY_IN_LOOPS, *ONLY_OUTSIDE)]


def instruction_of(opcode: int) -> Instruction:
    return INSTRUCTIONS.get(opcode) or _expression(opcode)
