"""The specification, by example and by its algebra: each operator on a small table, then the laws of all.

Tables have a column for the data (two make a pair `(key, val)`), then time and diff.
"""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import model
from ikebana import time as engine
from ikebana.model import accumulate, beyond, consolidate, differences, iterate, leq, lift, lub


def table(text):
    def cell(word):
        return int(word) if word.lstrip("+-").isdigit() else word

    updates = []
    for *data, time, diff in map(str.split, text.strip().splitlines()[1:]):
        values = tuple(map(cell, data))
        coordinates = tuple(map(int, time.split(",")))
        updates.append((values if len(values) > 1 else values[0], coordinates, int(diff)))
    return consolidate(updates)


def test_the_specification_stands_alone():
    tree = ast.parse(Path(model.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.module for node in imports] == ["__future__"]


# Operators, by example.

FRUIT = """
    key    val  time  diff
    apple  3    0     +1
    apple  5    0     +2
    pear   4    1     +1
    apple  5    2     -2
    pear   4    3     -1
"""


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        pytest.param(
            lambda c: model.map(c, lambda data: data[0]),
            """
            data   time  diff
            apple  0     +3
            pear   1     +1
            apple  2     -2
            pear   3     -1
            """,
            id="map",
        ),
        pytest.param(
            lambda c: model.filter(c, lambda data: data[1] < 5),
            """
            key    val  time  diff
            apple  3    0     +1
            pear   4    1     +1
            pear   4    3     -1
            """,
            id="filter",
        ),
        pytest.param(
            lambda c: model.flat_map(c, lambda data: range(data[1] - 2)),
            """
            data  time  diff
            0     0     +3
            1     0     +2
            2     0     +2
            0     1     +1
            1     1     +1
            0     2     -2
            1     2     -2
            2     2     -2
            0     3     -1
            1     3     -1
            """,
            id="flat_map",
        ),
        pytest.param(
            lambda c: model.explode(c, lambda data: [(data[0], data[1]), ("all", -1)]),
            """
            data   time  diff
            apple  0     +13
            all    0     -3
            pear   1     +4
            all    1     -1
            apple  2     -10
            all    2     +2
            pear   3     -4
            all    3     +1
            """,
            id="explode",
        ),
        pytest.param(
            lambda c: model.concat(c, model.negate(model.distinct(c))),
            """
            key    val  time  diff
            apple  5    0     +1
            apple  5    2     -1
            """,
            id="concat negate distinct",
        ),
        pytest.param(
            lambda c: model.threshold(c, lambda data, count: count // 2),
            """
            key    val  time  diff
            apple  5    0     +1
            apple  5    2     -1
            """,
            id="threshold",
        ),
        pytest.param(
            model.count,
            """
            key    val  time  diff
            apple  3    0     +1
            pear   1    1     +1
            apple  3    2     -1
            apple  1    2     +1
            pear   1    3     -1
            """,
            id="count",
        ),
        pytest.param(
            model.sum,
            """
            key    val  time  diff
            apple  13   0     +1
            pear   4    1     +1
            apple  13   2     -1
            apple  3    2     +1
            pear   4    3     -1
            """,
            id="sum",
        ),
        pytest.param(
            model.min,
            """
            key    val  time  diff
            apple  3    0     +1
            pear   4    1     +1
            pear   4    3     -1
            """,
            id="min",
        ),
        pytest.param(
            model.max,
            """
            key    val  time  diff
            apple  5    0     +1
            pear   4    1     +1
            apple  5    2     -1
            apple  3    2     +1
            pear   4    3     -1
            """,
            id="max",
        ),
        pytest.param(
            lambda c: model.top_k(c, 2),
            """
            key    val  time  diff
            apple  5    0     +2
            pear   4    1     +1
            apple  5    2     -2
            apple  3    2     +1
            pear   4    3     -1
            """,
            id="top_k",
        ),
        pytest.param(
            lambda c: model.reduce(c, lambda key, vals: [(f"{key}:{vals[0][0]}x{vals[0][1]}", len(vals))]),
            """
            key    val        time  diff
            apple  apple:3x1  0     +2
            pear   pear:4x1   1     +1
            apple  apple:3x1  2     -1
            pear   pear:4x1   3     -1
            """,
            id="reduce",
        ),
    ],
)
def test_operator_on_one_input(operator, expected):
    assert lift(operator)(table(FRUIT)) == table(expected)


PRICES = """
    key    val  time  diff
    apple  10   1     +2
    pear   20   0     +1
"""
SOLD_OUT = """
    key    time  diff
    apple  1     +1
    pear   2     +1
    apple  3     -1
"""


def test_join():
    result = lift(lambda a, b: model.join(a, b, lambda key, n, price: (key, n * price)))
    assert result(table(FRUIT), table(PRICES)) == table(
        """
        key    val  time  diff
        apple  30   1     +2
        apple  50   1     +4
        pear   80   1     +1
        apple  50   2     -4
        pear   80   3     -1
        """
    )


def test_semijoin_and_antijoin():
    assert lift(model.semijoin)(table(FRUIT), table(SOLD_OUT)) == table(
        """
        key    val  time  diff
        apple  3    1     +1
        apple  5    1     +2
        apple  5    2     -2
        pear   4    2     +1
        apple  3    3     -1
        pear   4    3     -1
        """
    )
    assert lift(model.antijoin)(table(FRUIT), table(SOLD_OUT)) == table(
        """
        key    val  time  diff
        apple  3    0     +1
        apple  5    0     +2
        apple  3    1     -1
        apple  5    1     -2
        pear   4    1     +1
        pear   4    2     -1
        apple  3    3     +1
        """
    )


def test_reductions_where_counts_are_negative():
    collection = {("k", 1): -1, ("k", 4): 1, ("k", 9): -2, ("gone", 7): -1}
    assert model.distinct(collection) == {("k", 4): 1}
    assert model.min(collection) == model.max(collection) == model.top_k(collection, 3) == {("k", 4): 1}
    assert model.count(collection) == {("k", -2): 1, ("gone", -1): 1}
    assert model.sum(collection) == {("k", 4 - 1 - 18): 1, ("gone", -7): 1}


def test_count_and_sum_have_no_row_where_counts_cancel():
    assert model.count({("k", 1): 1, ("k", 2): -1}) == model.sum({("k", 1): 1, ("k", 2): -1}) == {}
    assert model.sum({("k", 0): 2}) == {("k", 0): 1}


def test_reduce_sees_values_in_order_and_only_keys_that_have_some():
    seen = []
    model.reduce({("k", 3): 1, ("k", 1): -2, ("j", 2): 1}, lambda key, vals: seen.append((key, vals)) or [])
    assert sorted(seen) == [("j", [(2, 1)]), ("k", [(1, -2), (3, 1)])]
    assert model.reduce({}, lambda key, vals: [(0, 1)]) == {}
    assert model.reduce({("k", 1): 1}, lambda key, vals: [(5, 1), (5, 1), (6, 1), (6, -1)]) == {("k", 5): 2}


def test_output_changes_at_joins_of_input_times():
    assert lift(model.count)(
        table(
            """
            key  val  time  diff
            k    1    0,1   +1
            k    2    1,0   +1
            """
        )
    ) == table(
        """
        key  val  time  diff
        k    1    0,1   +1
        k    1    1,0   +1
        k    1    1,1   -2
        k    2    1,1   +1
        """
    )


def test_lift_refuses_results_from_nothing():
    with pytest.raises(ValueError, match="make its constants an input"):
        lift(lambda c: model.concat(c, {"always": 1}))([("a", (0,), 1)])


# Algebra. Data are pairs of small numbers, multiplicities of any sign.

pairs = st.tuples(st.integers(0, 2), st.integers(0, 2))
signed = st.integers(-2, 2)
collections = st.lists(st.tuples(pairs, signed), max_size=6).map(model.collect)


def times(dimensions):
    return st.tuples(*[st.integers(0, 2)] * dimensions)


def updates_at(dimensions, data=pairs, diffs=signed, size=6):
    return st.lists(st.tuples(data, times(dimensions), diffs), max_size=size)


def changing(count, **options):
    """Changing collections over times of the same dimension."""
    return st.integers(1, 3).flatmap(lambda k: st.tuples(*[updates_at(k, **options)] * count))


def grid_of(*inputs, top=3):
    """All times up to one past the greatest that occur: beyond those nothing more can happen."""
    dimensions = {len(time) for updates in inputs for _, time, _ in updates} or {1}
    return product(range(top + 1), repeat=dimensions.pop())


OPERATORS = {
    "map": (1, lambda a: model.map(a, lambda data: data[0])),
    "flat_map": (1, lambda a: model.flat_map(a, lambda data: range(data[1]))),
    "filter": (1, lambda a: model.filter(a, lambda data: data[0] != data[1])),
    "explode": (1, lambda a: model.explode(a, lambda data: [(data[0], data[1]), (data[1], -1)])),
    "negate": (1, model.negate),
    "concat": (2, model.concat),
    "join": (2, model.join),
    "semijoin": (2, lambda a, b: model.semijoin(a, model.map(b, lambda data: data[1]))),
    "antijoin": (2, lambda a, b: model.antijoin(a, model.map(b, lambda data: data[1]))),
    "reduce": (1, lambda a: model.reduce(a, lambda key, vals: [(tuple(vals), len(vals))])),
    "threshold": (1, lambda a: model.threshold(a, lambda data, count: count * count)),
    "distinct": (1, model.distinct),
    "count": (1, model.count),
    "sum": (1, model.sum),
    "min": (1, model.min),
    "max": (1, model.max),
    "top_k": (1, lambda a: model.top_k(a, 2)),
}
LINEAR = ["map", "flat_map", "filter", "explode", "negate"]
BILINEAR = ["join", "semijoin"]


@given(st.sampled_from(sorted(OPERATORS)), changing(2))
def test_lifted_operator_is_the_operator_at_every_time(name, inputs):
    arity, operator = OPERATORS[name]
    inputs = inputs[:arity]
    output = lift(operator)(*inputs)
    assert output == consolidate(output)
    for time in grid_of(*inputs):
        expected = operator(*(accumulate(updates, time) for updates in inputs))
        assert accumulate(output, time) == expected
        assert 0 not in expected.values()


@given(st.sampled_from(LINEAR), collections, collections)
def test_linear_operators_distribute_over_concat(name, a, b):
    _, operator = OPERATORS[name]
    assert operator(model.concat(a, b)) == model.concat(operator(a), operator(b))


@given(st.sampled_from(BILINEAR), collections, collections, collections)
def test_bilinear_operators_distribute_over_concat_on_both_sides(name, a, b, c):
    _, operator = OPERATORS[name]
    assert operator(model.concat(a, b), c) == model.concat(operator(a, c), operator(b, c))
    assert operator(c, model.concat(a, b)) == model.concat(operator(c, a), operator(c, b))
    assert operator(model.negate(a), c) == model.negate(operator(a, c)) == operator(a, model.negate(c))


@given(collections, collections)
def test_collections_are_a_group(a, b):
    assert model.concat(a, b) == model.concat(b, a)
    assert model.concat(a, {}) == a
    assert model.concat(a, model.negate(a)) == {}


@given(collections, st.lists(st.integers(0, 2)))
def test_semijoin_and_antijoin_split_a_collection(a, keys):
    chosen = model.collect((key, 1) for key in keys)
    assert model.concat(model.semijoin(a, chosen), model.antijoin(a, chosen)) == a
    assert model.semijoin(a, model.distinct(chosen)) == model.filter(a, lambda data: data[0] in keys)


@given(changing(2))
def test_join_of_changes_is_lub_of_times_and_product_of_diffs(inputs):
    left, right = inputs
    by_pairs = [
        ((key, (a, b)), lub(s, t), m * n) for (key, a), s, m in left for (other, b), t, n in right if key == other
    ]
    assert lift(model.join)(left, right) == consolidate(by_pairs)


@given(changing(2))
def test_two_lookups_make_up_the_join(inputs):
    left, right = inputs
    swapped = [((key, (a, b)), time, diff) for (key, (b, a)), time, diff in model.lookup(right, left, True)]
    assert consolidate(model.lookup(left, right) + swapped) == lift(model.join)(left, right)


def test_lookup_reads_the_index_as_of_the_stream():
    index = table(
        """
        key  val  time  diff
        k    1    0     +1
        k    1    2     -1
        k    2    2     +1
        """
    )
    assert model.lookup([(("k", "q"), (1,), 1)], index) == [(("k", ("q", 1)), (1,), 1)]


@given(changing(1))
def test_consolidate_changes_nothing_but_the_list(inputs):
    (updates,) = inputs
    tidy = consolidate(updates)
    assert consolidate(tidy) == tidy == consolidate(updates[::-1])
    assert len({(data, time) for data, time, _ in tidy}) == len(tidy)
    assert all(accumulate(tidy, time) == accumulate(updates, time) for time in grid_of(updates))


@given(changing(1))
def test_differences_are_unique(inputs):
    (updates,) = inputs
    result = differences(lambda time: accumulate(updates, time), [time for _, time, _ in updates])
    assert result == consolidate(updates)


@given(st.integers(1, 3).flatmap(lambda k: st.dictionaries(times(k), collections, max_size=5)))
def test_differences_reproduce_any_function_at_every_join(table_of):
    def f(time):
        return table_of.get(time, {(0, time): 1})

    updates = differences(f, table_of)
    closure = model.joins(table_of)
    assert set(table_of) <= set(closure)
    assert all(lub(s, t) in closure for s in closure for t in closure)
    assert all(accumulate(updates, time) == f(time) for time in closure)


@given(st.integers(1, 3).flatmap(lambda k: st.tuples(updates_at(k), st.lists(times(k), max_size=3))))
def test_compact_keeps_what_is_beyond_the_frontier(case):
    updates, frontier = case
    compacted = model.compact(updates, frontier)
    assert len(compacted) <= len(consolidate(updates))
    assert model.compact(compacted, frontier) == compacted
    assert all(model.advance(time, frontier) == time for _, time, _ in compacted)
    for time in grid_of(updates, [(None, f, 0) for f in frontier]):
        if beyond(time, frontier):
            assert accumulate(compacted, time) == accumulate(updates, time)


@given(changing(1))
def test_compact_forgets_history_once_nobody_reads_it(inputs):
    (updates,) = inputs
    for _, time, _ in updates[:1]:
        end = tuple(3 for _ in time)
        now = accumulate(updates, end)
        assert model.compact(updates, [end]) == consolidate([(data, end, n) for data, n in now.items()])


# Recursion. Edges are pairs; they change at times of one or two coordinates.

NODES = range(5)
edge_changes = st.integers(1, 2).flatmap(
    lambda k: updates_at(k, st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), st.integers(-1, 2), 7)
)


def step(nodes, edges):
    """The nodes that edges lead to from the given ones."""
    return model.join(model.map(nodes, lambda n: (n, None)), edges, lambda source, _, target: target)


def reach(edges, roots):
    edges = model.distinct(edges)

    def body(v):
        return {"reached": model.distinct(model.concat(roots, step(v["reached"], edges)))}

    return iterate(body, {"reached": roots})["reached"]


def search(edges, start):
    """Breadth first, over the edges of positive multiplicity."""
    reached, front = {start}, [start]
    while front:
        front = [t for t in {t for (s, t), n in edges.items() if n > 0 and s in front} if t not in reached]
        reached.update(front)
    return reached


def rooted(updates, root=0):
    """The root as a changing collection that is there from the start."""
    return [(root, (0,) * len(time), 1) for _, time, _ in updates[:1]]


@given(edge_changes)
def test_reachability_of_changing_edges(edges):
    output = lift(reach)(edges, rooted(edges))
    for time in grid_of(edges) if edges else []:
        assert accumulate(output, time) == dict.fromkeys(search(accumulate(edges, time), 0), 1)


@given(edge_changes)
def test_two_mutually_recursive_variables(edges):
    def even_odd(edges, roots):
        edges = model.distinct(edges)

        def body(v):
            even = model.distinct(model.concat(roots, step(v["odd"], edges)))
            return {"even": even, "odd": model.distinct(step(v["even"], edges))}

        final = iterate(body, {"even": roots, "odd": {}})
        return {(parity, node): n for parity in final for node, n in final[parity].items()}

    output = lift(even_odd)(edges, rooted(edges))
    for time in grid_of(edges) if edges else []:
        here = accumulate(edges, time)
        doubled = {((s, p), (t, not p)): n for (s, t), n in here.items() for p in (True, False)}
        walks = search(doubled, (0, True))
        assert accumulate(output, time) == {("even" if p else "odd", node): 1 for node, p in walks}


def strongly_connected(edges):
    """The edges within components: keep those whose ends agree on a label, either way round, and repeat."""

    def reverse(edges):
        return model.map(edges, lambda edge: (edge[1], edge[0]))

    def labels(edges):
        own = model.distinct(model.flat_map(edges, lambda edge: [(n, n) for n in edge]))

        def body(v):
            passed = model.join(v["label"], edges, lambda _, label, target: (target, label))
            return {"label": model.min(model.concat(own, passed))}

        return iterate(body, {"label": own})["label"]

    def agreeing(edges):
        label = labels(edges)
        sources = model.join(edges, label, lambda s, t, label: (t, (s, label)))
        both = model.join(sources, label, lambda t, source, label: (source[0], t, source[1] == label))
        return model.map(model.filter(both, lambda data: data[2]), lambda data: data[:2])

    def body(v):
        return {"edges": reverse(agreeing(reverse(agreeing(v["edges"]))))}

    return iterate(body, {"edges": model.distinct(edges)})["edges"]


@given(edge_changes)
def test_nested_iteration_finds_strongly_connected_components(edges):
    output = lift(strongly_connected)(edges)
    for time in grid_of(edges) if edges else []:
        here = model.distinct(accumulate(edges, time))
        assert accumulate(output, time) == {(s, t): 1 for s, t in here if s in search(here, t)}


@given(edge_changes)
def test_leaving_the_loop_gives_the_fixpoint(edges):
    """The loop's own updates, with the round as a coordinate, add up over all rounds to the result's."""

    def after(time):
        *outer, rounds = time
        here, roots = (accumulate(updates, tuple(outer)) for updates in (edges, rooted(edges)))
        distinct = model.distinct(here)

        def body(v):
            return {"reached": model.distinct(model.concat(roots, step(v["reached"], distinct)))}

        return iterate(body, {"reached": roots}, rounds=rounds)["reached"]

    entered = [time for _, time, _ in model.enter(edges + rooted(edges))]
    inside = differences(after, [(*time[:-1], r) for time in entered for r in range(len(NODES) + 1)])
    assert model.leave(inside) == lift(reach)(edges, rooted(edges))


def swap(v):
    return {"a": v["b"], "b": v["a"]}


def test_variables_change_all_at_once():
    start = {"a": {1: 1}, "b": {2: 1}}
    assert iterate(swap, start, rounds=0) == start
    assert iterate(swap, start, rounds=1) == {"a": {2: 1}, "b": {1: 1}}
    assert iterate(swap, start, rounds=4) == start == {"a": {1: 1}, "b": {2: 1}}


def test_iterate_gives_up():
    with pytest.raises(ValueError, match=r"no fixpoint of \['a', 'b'\] after 9 rounds"):
        iterate(swap, {"a": {1: 1}, "b": {}}, limit=9)


def test_iterate_wants_every_variable_back():
    with pytest.raises(ValueError, match=r"the body returned \['a'\], the variables are \['a', 'b'\]"):
        iterate(lambda v: {"a": v["a"]}, {"a": {}, "b": {}})


# The model's own lattice, which is written again so that it leans on nothing.


@given(st.integers(1, 3).flatmap(lambda k: st.tuples(times(k), times(k), st.lists(times(k), max_size=3))))
def test_times_are_those_of_the_engine(case):
    a, b, frontier = case
    assert leq(a, b) == engine.less_equal(a, b)
    assert lub(a, b) == engine.join(a, b) and model.glb(a, b) == engine.meet(a, b)
    assert beyond(a, frontier) == engine.Antichain(frontier).less_equal(a)
    assert model.advance(a, frontier) == engine.advance(a, frontier)
