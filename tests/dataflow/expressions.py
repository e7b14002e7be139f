"""Random dataflows as abstract expressions, interpreted twice: on an engine's collections, and by the model.

A `Program` is a list of nodes over numbered collections: first the inputs, then what each node makes of earlier ones;
so parts are shared, and a program shrinks well. A loop has a program of its own, whose collections are
its variables, some collections from outside, and its nodes. `OPERATORS` gives every operator both meanings.

Loops come to rest in one of four ways: the body adds to what there is; it adds to what there was at the start, and
more rows never make fewer; it lowers minima; or there is a fixed number of rounds. In the first three everything in it
is positive; in the last anything goes.

Programs may multiply without bound. The model counts what it does: those that do too much are none of these tests'
business.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from ikebana import model
from ikebana.engine import collection
from ikebana.engine.collection import Collection
from ikebana.engine.delta_join import natural_join
from tests.dataflow.harness import Domain, Row, frozen

Data = dict[Row, int]
MOST = 1 << 40
"""Greater multiplicities are none of these tests' business: the engine's have 64 bits."""
MOST_ROUNDS = 200
MOST_WORK = 4_000
"""Rows that operators may meet in all rounds of a program's loops: the engine may be made to take them one by one."""
LATEST = 3
"""The last round at which a row comes into a loop."""


class TooLarge(Exception):
    """A program multiplies more than it should."""


@dataclass
class Budget:
    """The work that the model may still do for a program."""

    left: int = MOST_WORK

    def spend(self, inputs: Sequence[Data]) -> None:
        """An operator meets its input, or all combinations of its inputs' rows with equal keys."""
        keys = [Counter(key for key, _ in data) for data in inputs]
        self.left -= sum(math.prod(counts[key] for counts in keys) for key in keys[0])
        if self.left < 0:
            raise TooLarge

    def check(self, data: Data) -> Data:
        """What an operator made, if the engine's diffs can hold it."""
        if any(abs(n) > MOST for n in data.values()):
            raise TooLarge
        return data


@dataclass(frozen=True)
class Operator:
    """What an operator is on collections, and in the model; both are given a domain and a parameter first."""

    engine: Callable[..., Collection]
    model: Callable[..., Data]
    arity: int = 1
    positive: bool = False  # of positive multiplicities it makes positive ones

    def __repr__(self) -> str:
        return next(name for name, operator in OPERATORS.items() if operator is self)


# Functions of numbers, some of each kind.
def moved(d: Domain, p: int, k: int, v: int) -> Row:
    return [d.row(k, v), d.row(v, k), d.row(k + v, v + 1), d.row(k, k * v), d.row(0, v)][p % 5]


def chosen(d: Domain, p: int, k: int, v: int) -> bool:
    return [v > 0, k == v, (k + v) % 2 == 0, k < 2, True][p % 5]


def spread(d: Domain, p: int, k: int, v: int) -> list[Row]:
    return [[d.row(k, v), d.row(k, v + 1)], [d.row(k, n) for n in range(v)], [], [d.row(v, k)] * 2][p % 4]


def factor(d: Domain, p: int, k: int, v: int) -> int:
    return [v, -1, k - v, 2, 0][p % 5]


def combined(d: Domain, p: int, k: int, a: int, b: int) -> Row:
    return [d.row(k, b), d.row(a, b), d.row(b, a), d.row(k, a + b), d.row(b, k)][p % 5]


def reduced(d: Domain, p: int, k: int, vals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    total = sum(n for _, n in vals)
    return [
        [(vals[-1][0], 1)],
        [(v, n * n) for v, n in vals],
        [(d.row(0, total)[1], 1), (vals[0][0], -2)],
        [(v, 1) for v, n in vals if n > 0][1::2],
        [(d.row(0, len(vals) + k)[1], 1)] if total > 0 else [],
    ][p % 5]


def counted(p: int, n: Any) -> Any:
    return [n > 0, -n, n * n, n // 2, n == 1][p % 5] * 1


def delay(k: int, v: int) -> int:
    return (k + v) % (LATEST + 1)


def remapped(d: Domain, c: Collection, f: Callable[[Any], Sequence[Row]]) -> Collection:
    """Columns computed from whatever columns there are, by a function to rows of numbers."""
    return c.map(d.fields, lambda columns: d.columns(f(columns)))


# The engine's side of each operator.
def e_map(d: Domain, p: int, c: Collection) -> Collection:
    return remapped(d, c, lambda columns: [moved(d, p, k, v) for k, v in d.numbers(columns)])


def e_select(d: Domain, p: int, c: Collection) -> Collection:
    """Renamed there and back, and in another order in between."""
    turned = c.select(**{f"new {name}": name for name in reversed(c.columns)})
    return turned.select(**{name: f"new {name}" for name in c.columns})


def e_filter(d: Domain, p: int, c: Collection) -> Collection:
    return c.filter(lambda columns: pa.array([chosen(d, p, k, v) for k, v in d.numbers(columns)], pa.bool_()))


def e_filter_in_place(d: Domain, p: int, c: Collection) -> Collection:
    def predicate(columns: Any) -> Any:
        return pa.array([chosen(d, p, k, v) for k, v in d.numbers(columns)], pa.bool_())

    return c.arrange(*d.by).filter(predicate).rows()


def e_project_in_place(d: Domain, p: int, c: Collection) -> Collection:
    def values(columns: Any) -> dict[str, Any]:
        output = d.columns([d.row(k, moved(d, p, k, v)[1]) for k, v in d.numbers(columns)])
        return {name: output[name] for name in d.rest}

    return c.arrange(*d.by).map(d.val, values).rows()


def e_flat_map(d: Domain, p: int, c: Collection) -> Collection:
    def rows(row: dict[str, Any]) -> list[Any]:
        k = d.key_number[frozen([row[name] for name in d.by])]
        v = d.val_number[frozen([row[name] for name in d.rest])]
        results = [(*d.keys[a], *d.vals[b]) for a, b in spread(d, p, k, v)]
        return [dict(zip(row, result, strict=True)) for result in results] if p % 2 else results

    return c.flat_map(d.fields, rows)


def e_explode(d: Domain, p: int, c: Collection) -> Collection:
    return c.explode(c.columns, lambda columns: [np.array([factor(d, p, k, v) for k, v in d.numbers(columns)], int)])


def e_join(d: Domain, p: int, a: Collection, b: Collection) -> Collection:
    other = [f"other {name}" for name in d.rest]
    right = b.select(*d.by, **dict(zip(other, d.rest, strict=True)))
    met = a.join(right, on=d.by)
    if p % 5 == 0:
        return met.select(*d.by, **dict(zip(d.rest, other, strict=True)))

    def rows(columns: Any) -> list[Row]:
        both = zip(d.numbers(columns), d.numbers(columns, other), strict=True)
        return [combined(d, p, k, v, w) for (k, v), (_, w) in both]

    return remapped(d, met, rows)


def e_delta(d: Domain, p: int, *several: Collection) -> Collection:
    """A delta join on the key; the values of the first and the last count."""
    names = [[f"{letter}{name}" for name in d.rest] for letter in "abc"[: len(several)]]
    renamed = [
        source.select(*d.by, **dict(zip(mine, d.rest, strict=True)))
        for source, mine in zip(several, names, strict=True)
    ]

    def rows(columns: Any) -> list[Row]:
        both = zip(d.numbers(columns, names[0]), d.numbers(columns, names[-1]), strict=True)
        return [combined(d, p, k, v, w) for (k, v), (_, w) in both]

    return remapped(d, natural_join(*renamed), rows)


def e_triangle(d: Domain, p: int, x: Collection, y: Collection, z: Collection) -> Collection:
    """Three collections that share one column each with the other two, for domains that have one type."""
    closed = natural_join(x.select(k0="k0", v0="v0"), y.select(v0="k0", w0="v0"), z.select(w0="k0", k0="v0"))
    return closed.select("k0", v0="w0")


def m_triangle(d: Domain, p: int, x: Data, y: Data, z: Data) -> Data:
    sides = [(a, (a[1], c[0]), c) for a in x for c in z if c[1] == a[0]]
    return model.collect(((a[0], c[0]), x[a] * y[b] * z[c]) for a, b, c in sides if b in y)


def e_semijoin(d: Domain, p: int, a: Collection, b: Collection) -> Collection:
    return a.semijoin(b.select(*d.by))


def e_antijoin(d: Domain, p: int, a: Collection, b: Collection) -> Collection:
    return a.antijoin(b.select(*d.by))


def e_reduce(d: Domain, p: int, c: Collection) -> Collection:
    def function(key: Any, vals: Any) -> list[Any]:
        numbers = [(d.val_number[frozen(v)], n) for v, n in vals]
        return [(d.vals[v], n) for v, n in reduced(d, p, d.key_number[frozen(key)], numbers)]

    return c.reduce(d.by, d.val, function)


def e_threshold(d: Domain, p: int, c: Collection) -> Collection:
    return c.threshold(lambda counts: counted(p, counts))


def _from_numbers(d: Domain, c: Collection, *names: str) -> Collection:
    """(key, whole numbers) as rows: the numbers added up stand for the value."""

    def rows(columns: Any) -> list[Row]:
        numbers = zip(*(columns[name].to_pylist() for name in names), strict=True)
        return [d.row(k, sum(values)) for k, values in zip(d.read_keys(columns), numbers, strict=True)]

    return remapped(d, c, rows)


def e_count(d: Domain, p: int, c: Collection) -> Collection:
    return _from_numbers(d, c.count(d.by, "n"), "n")


def e_sum(d: Domain, p: int, c: Collection) -> Collection:
    weight = pa.field("weight", pa.int64(), nullable=False)

    def weighed(columns: Any) -> dict[str, Any]:
        rows = d.numbers(columns)
        return {**d.columns(rows), "weight": [v - k for k, v in rows]}

    return _from_numbers(d, c.map((*d.fields, weight), weighed).sum(d.by, "weight", "s"), "s")


def e_aggregate(d: Domain, p: int, c: Collection) -> Collection:
    def lanes(columns: Any) -> list[Any]:
        vals = np.array([v for _, v in d.numbers(columns)], int)
        return [1, vals, vals * vals]

    columns = {"a": pa.int64(), "b": pa.int64()}
    return _from_numbers(d, c.aggregate(d.by, columns, lanes, lambda sums: [sums[1], sums[0] * sums[2]]), "a", "b")


def m_aggregate(d: Domain, p: int, x: Data) -> Data:
    squares = model.explode(x, lambda row: [(row[0], row[1] ** 2)])
    counts = dict(model.count(x).keys())
    return {d.row(k, v + counts[k] * squares.get(k, 0)): 1 for k, v in model.sum(x)}


def m_top_k(d: Domain, p: int, x: Data) -> Data:
    """The model lists a value as often as it counts, of which more than `k` times makes no difference."""
    k = 1 + p
    return model.top_k({row: min(n, k) for row, n in x.items()}, k)


def m_semijoin(d: Domain, p: int, a: Data, b: Data) -> Data:
    return model.semijoin(a, model.distinct(model.map(b, lambda row: row[0])))


def m_antijoin(d: Domain, p: int, a: Data, b: Data) -> Data:
    return model.antijoin(a, model.distinct(model.map(b, lambda row: row[0])))


def m_sum(d: Domain, p: int, x: Data) -> Data:
    weighed = model.map(x, lambda row: (row[0], row[1] - row[0]))
    return model.map(model.sum(weighed), lambda row: d.row(*row))


def constant_rows(d: Domain, p: int) -> list[Row]:
    """A few rows, one of them twice."""
    return [d.row(at, p + at) for at in range(p)] + [d.row(0, p)]


def e_constant(d: Domain, p: int, c: Collection) -> Collection:
    return collection.constant(pa.table(d.columns(constant_rows(d, p)), schema=pa.schema(d.fields)))


def m_constant(d: Domain, p: int, x: Data) -> Data:
    return model.collect((row, 1) for row in constant_rows(d, p))


OPERATORS: dict[str, Operator] = {
    "constant": Operator(e_constant, m_constant, positive=True),
    "and constant": Operator(
        lambda d, p, c: c.concat(e_constant(d, p, c)),
        lambda d, p, x: model.concat(x, m_constant(d, p, x)),
        positive=True,
    ),
    "join constant": Operator(
        lambda d, p, c: e_join(d, p, c, e_constant(d, p, c)),
        lambda d, p, x: model.join(x, m_constant(d, p, x), lambda k, a, b: combined(d, p, k, a, b)),
        positive=True,
    ),
    "map": Operator(e_map, lambda d, p, x: model.map(x, lambda row: moved(d, p, *row)), positive=True),
    "select": Operator(e_select, lambda d, p, x: x, positive=True),
    "filter": Operator(e_filter, lambda d, p, x: model.filter(x, lambda row: chosen(d, p, *row)), positive=True),
    "flat_map": Operator(e_flat_map, lambda d, p, x: model.flat_map(x, lambda row: spread(d, p, *row)), positive=True),
    "negate": Operator(lambda d, p, c: c.negate(), lambda d, p, x: model.negate(x)),
    "concat": Operator(lambda d, p, a, b: a.concat(b), lambda d, p, x, y: model.concat(x, y), arity=2, positive=True),
    "concat_3": Operator(
        lambda d, p, a, b, c: a.concat(b, c), lambda d, p, x, y, z: model.concat(x, y, z), arity=3, positive=True
    ),
    "explode": Operator(e_explode, lambda d, p, x: model.explode(x, lambda row: [(row, factor(d, p, *row))])),
    "consolidate": Operator(lambda d, p, c: c.consolidate(), lambda d, p, x: x, positive=True),
    "inspect": Operator(lambda d, p, c: c.inspect(len), lambda d, p, x: x, positive=True),
    "filter in place": Operator(
        e_filter_in_place, lambda d, p, x: model.filter(x, lambda row: chosen(d, p, *row)), positive=True
    ),
    "project in place": Operator(
        e_project_in_place,
        lambda d, p, x: model.map(x, lambda row: d.row(row[0], moved(d, p, *row)[1])),
        positive=True,
    ),
    "negate in place": Operator(lambda d, p, c: c.arrange(*d.by).negate().rows(), lambda d, p, x: model.negate(x)),
    "arrange": Operator(lambda d, p, c: c.arrange(*d.by).rows(), lambda d, p, x: x, positive=True),
    "join": Operator(
        e_join,
        lambda d, p, x, y: model.join(x, y, lambda k, a, b: combined(d, p, k, a, b)),
        arity=2,
        positive=True,
    ),
    "delta_2": Operator(
        e_delta, lambda d, p, x, y: model.join(x, y, lambda k, a, b: combined(d, p, k, a, b)), arity=2, positive=True
    ),
    "delta_3": Operator(
        e_delta,
        lambda d, p, x, y, z: model.join(x, model.join(y, z), lambda k, a, b: combined(d, p, k, a, b[1])),
        arity=3,
        positive=True,
    ),
    "triangle": Operator(e_triangle, m_triangle, arity=3, positive=True),
    "semijoin": Operator(e_semijoin, m_semijoin, arity=2, positive=True),
    "antijoin": Operator(e_antijoin, m_antijoin, arity=2, positive=True),
    "reduce": Operator(e_reduce, lambda d, p, x: model.reduce(x, lambda k, vals: reduced(d, p, k, vals))),
    "distinct": Operator(lambda d, p, c: c.distinct(), lambda d, p, x: model.distinct(x), positive=True),
    "distinct by key": Operator(lambda d, p, c: c.distinct(*d.by), lambda d, p, x: model.distinct(x), positive=True),
    "threshold": Operator(e_threshold, lambda d, p, x: model.threshold(x, lambda _, n: counted(p, n))),
    "count": Operator(e_count, lambda d, p, x: model.map(model.count(x), lambda row: d.row(*row)), positive=True),
    "sum": Operator(e_sum, m_sum, positive=True),
    "aggregate": Operator(e_aggregate, m_aggregate, positive=True),
    "min": Operator(lambda d, p, c: c.min(d.by), lambda d, p, x: model.min(x), positive=True),
    "max": Operator(lambda d, p, c: c.max(d.by), lambda d, p, x: m_top_k(d, 0, x), positive=True),
    "top_k": Operator(lambda d, p, c: c.top_k(d.by, 1 + p), m_top_k, positive=True),
}
GROWING = [
    "constant",
    "and constant",
    "join constant",
    "map",
    "select",
    "filter",
    "flat_map",
    "concat",
    "concat_3",
    "consolidate",
    "inspect",
    "filter in place",
    "project in place",
    "arrange",
    "join",
    "delta_2",
    "delta_3",
    "triangle",
    "semijoin",
    "distinct",
    "distinct by key",
]
"""Those that make of more rows more rows, or as many."""
POSITIVE = [name for name, operator in OPERATORS.items() if operator.positive]


# Programs.
@dataclass(frozen=True)
class Apply:
    """An operator on numbered collections."""

    operator: str
    of: tuple[int, ...]
    parameter: int


@dataclass(frozen=True)
class Loop:
    """Variables that start as numbered collections; the result is one of them.

    Inside, collections are the variables, those from `outside`, then the nodes; `results` has what each
    variable becomes.
    """

    start: tuple[int, ...]
    outside: tuple[int, ...]
    late: tuple[bool, ...]  # which of those from outside come row by row, each at a round of its own
    nodes: tuple[Node, ...]
    results: tuple[int, ...]
    rounds: int | None
    result: int


Node = Apply | Loop


@dataclass(frozen=True)
class Program:
    """Nodes over some inputs."""

    inputs: int
    nodes: tuple[Node, ...]

    @property
    def size(self) -> int:
        """How many collections there are to ask for: inputs, then nodes."""
        return self.inputs + len(self.nodes)


# Interpreted on the engine.
def built(domain: Domain, inputs: Sequence[Collection], nodes: Sequence[Node]) -> list[Collection]:
    """All collections of a program: the inputs, then what the nodes make."""
    known = list(inputs)
    for node in nodes:
        if isinstance(node, Apply):
            operator = OPERATORS[node.operator]
            known.append(operator.engine(domain, node.parameter, *(known[at] for at in node.of)))
        else:
            known.append(_looped(domain, known, node))
    return known


def _looped(domain: Domain, known: Sequence[Collection], loop: Loop) -> Collection:
    names = [f"x{at}" for at in range(len(loop.start))]

    def rounds(columns: Any) -> Any:
        return np.array([delay(k, v) for k, v in domain.numbers(columns)], int)

    def body(variables: dict[str, Collection]) -> dict[str, Collection]:
        inside = [variables[name] for name in names]
        for at, late in zip(loop.outside, loop.late, strict=True):
            entered = known[at].enter_at(inside[0], rounds) if late else known[at].enter(inside[0])
            inside.append(entered)
        results = built(domain, inside, loop.nodes)
        return {name: results[at] for name, at in zip(names, loop.results, strict=True)}

    start = {name: known[at].enter(known[0]) for name, at in zip(names, loop.start, strict=True)}  # constants too
    return collection.iterate(body, start, loop.rounds)[names[loop.result]]


# Interpreted by the model.
def evaluated(
    domain: Domain, inputs: Sequence[Data], nodes: Sequence[Node], budget: Budget | None = None
) -> list[Data]:
    """All collections of a program, from scratch; raises `TooLarge` if that is too much work."""
    known, budget = list(inputs), budget or Budget()
    for node in nodes:
        if isinstance(node, Apply):
            operands = [known[at] for at in node.of]
            budget.spend(operands)
            data = OPERATORS[node.operator].model(domain, node.parameter, *operands)
        else:
            data = _iterated(domain, known, node, budget)
        known.append(budget.check(data))
    return known


def _iterated(domain: Domain, known: Sequence[Data], loop: Loop, budget: Budget) -> Data:
    """As `model.iterate`, but that what comes from outside may come late: then a loop is done no earlier than it."""
    names = [f"x{at}" for at in range(len(loop.start))]
    now = itertools.count()
    latest = LATEST if any(loop.late) else 0

    def outside(at: int, late: bool, round_: int) -> Data:
        return {row: n for row, n in known[at].items() if delay(*row) <= round_} if late else known[at]

    def body(variables: dict[str, Data]) -> dict[str, Data]:
        round_ = min(next(now), latest)
        entered = [outside(at, late, round_) for at, late in zip(loop.outside, loop.late, strict=True)]
        results = evaluated(domain, [*(variables[name] for name in names), *entered], loop.nodes, budget)
        return {name: results[at] for name, at in zip(names, loop.results, strict=True)}

    variables = {name: known[at] for name, at in zip(names, loop.start, strict=True)}
    for _ in range(latest):
        variables = body(variables)
    return model.iterate(body, variables, loop.rounds, limit=MOST_ROUNDS)[names[loop.result]]


# Drawn at random.
@dataclass(frozen=True)
class Kind:
    """A way in which loops come to rest: the operators of the body, the kinds of loops in it, how it ends."""

    operators: list[str]
    inner: tuple[str, ...]
    end: str = "distinct"


KINDS = {
    "set": Kind(POSITIVE, ("set", "again", "least")),  # adds to what there is
    "again": Kind([*GROWING, *["join"] * 10], ("again",)),  # adds to what there was at the start
    "least": Kind(POSITIVE, ("set", "again", "least"), end="min"),  # lowers minima
    "rounds": Kind(list(OPERATORS), ("set", "again", "again", "least", "rounds")),  # so many rounds
}


@st.composite
def _nodes(draw: Any, known: int, count: int, names: Sequence[str], kinds: Sequence[str], depth: int) -> list[Node]:
    nodes: list[Node] = []
    for _ in range(count):
        have = known + len(nodes)
        # The newest are taken more often, so that programs are deep.
        some = st.integers(0, 2 * have).map(lambda n, have=have: n % have if n < have else max(0, have - 1 - n % 3))
        if depth and draw(st.integers(0, 3)) == 3:
            nodes += draw(_loop(have, some, kinds, depth - 1))
        else:
            name = draw(st.sampled_from(names))
            of = tuple(draw(some) for _ in range(OPERATORS[name].arity))
            nodes.append(Apply(name, of, draw(st.integers(0, 4))))
    return nodes


@st.composite
def _loop(draw: Any, known: int, some: Any, kinds: Sequence[str], depth: int) -> list[Node]:
    """A loop of one of some kinds, after the nodes that it needs."""
    start = tuple(draw(st.lists(some, min_size=1, max_size=draw(st.sampled_from([1, 1, 2, 3])))))
    outside = tuple(draw(st.lists(some, max_size=2)))
    name = draw(st.sampled_from(kinds))
    kind = KINDS[name]
    result = draw(st.integers(0, len(start) - 1))
    late = tuple(name != "rounds" and draw(st.sampled_from([False, False, True])) for _ in outside)
    before: list[Node] = []
    if name != "rounds":  # what comes from outside is positive
        before = [Apply("distinct", (at,), 0) for at in outside]
        outside = tuple(range(known, known + len(outside)))
    if name == "again":  # and so is the start, which comes from outside again in each round
        first = known + len(before)
        before += [Apply("distinct", (at,), 0) for at in start]
        start = tuple(range(first, first + len(start)))
        outside, late = (*outside, *start), (*late, *(False for _ in start))
    have = len(start) + len(outside)
    body = draw(_nodes(have, draw(st.integers(1, 3)), kind.operators, kind.inner, depth))
    last = have + len(body) - 1
    inside = st.integers(0, last).map(lambda n: last - n)
    if name == "rounds":
        results = [draw(inside) for _ in start]
        return [*before, Loop(start, outside, late, tuple(body), tuple(results), draw(st.integers(1, 4)), result)]
    results = []
    for variable in range(len(start)):
        base = have - len(start) + variable if name == "again" else variable
        body.append(Apply("concat", (base, draw(inside)), 0))
        body.append(Apply(kind.end, (have + len(body) - 1,), 0))
        results.append(have + len(body) - 1)
    return [*before, Loop(start, outside, late, tuple(body), tuple(results), None, result)]


@st.composite
def programs(draw: Any, most: int = 8, depth: int = 2) -> Program:
    """Any program of 2-8 nodes over 1-3 inputs; loops are nested to a depth."""
    inputs = draw(st.integers(1, 3))
    anything = KINDS["rounds"]
    nodes = draw(_nodes(inputs, draw(st.integers(2, most)), anything.operators, anything.inner, depth))
    return Program(inputs, tuple(nodes))


@st.composite
def loops(draw: Any, depth: int = 1) -> Program:
    """A single loop, over one or two inputs."""
    inputs = draw(st.integers(1, 2))
    some = st.integers(0, inputs - 1)
    return Program(inputs, tuple(draw(_loop(inputs, some, KINDS["rounds"].inner, draw(st.integers(0, depth))))))


@st.composite
def searches(draw: Any) -> Program:
    """A search in a graph: from the rows of one input along those of the other, which may meet again and again."""
    end = draw(st.sampled_from(["distinct", "distinct", "reduce", "min", "top_k", "count", "aggregate", "threshold"]))
    step = Apply("join", (0, 1), draw(st.sampled_from([4, 2, 1])))
    onward = (step, Apply("concat", (2, 3), 0), Apply(end, (4,), draw(st.integers(0, 4))))
    rounds = None if end == "distinct" else 4
    positive = (Apply("distinct", (0,), 0), Apply("distinct", (1,), 0))
    return Program(2, (*positive, Loop((2,), (3, 2), (False, False), onward, (5,), rounds, 0)))
