"""Differential dataflow on dicts: what the engine must compute, in the fewest words. Read this first.

A **collection** is a dict from data to its multiplicity, an integer that is not zero. Multiplicities may
be negative: a collection can be the difference of two others. Operators that look at keys take data
that is a pair `(key, val)`.

A **time** is a tuple of integers `(epoch, round, ...)`, ordered coordinate by coordinate: of two
times neither may be before the other.

A **changing collection** is a list of **updates** `(data, time, diff)`. What it *is* at a time is the sum of
the diffs at all times before or equal: `accumulate(updates, time)`. Nothing else about it matters.

An **operator** is a function from collections to a collection, and that is all of its meaning. What it
does to changing collections follows: `lift(operator)` gives the updates that, accumulated at *any* time,
are the operator applied to what its inputs accumulate to at that time. There is just one such list
of updates, up to order, once equal `(data, time)` are added up. The engine finds it from the changes
alone; here we start from scratch at every time and subtract.

This file is the oracle of the tests. It imports nothing, and is never made faster: expect time and memory
in the square of everything. Operators bear the engine's names, some of which (`map`, `sum`, ...) are
also Python's; those of Python are not used below.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-any-generics
# (What a function argument takes and returns cannot be typed without an import; the docstrings say it.)

from __future__ import annotations

Time = tuple[int, ...]
Collection = dict  # data -> multiplicity, never zero
Updates = list  # of (data, time, diff)


# Times: a lattice, and frontiers.
def leq(a: Time, b: Time) -> bool:
    """Is `a` before or equal to `b`, in every coordinate?"""
    return all(x <= y for x, y in zip(a, b, strict=True))


def lub(a: Time, b: Time) -> Time:
    """Least upper bound, or join: `lub((0, 3), (2, 1)) == (2, 3)`."""
    return tuple(x if x > y else y for x, y in zip(a, b, strict=True))


def glb(a: Time, b: Time) -> Time:
    """Greatest lower bound, or meet: `glb((0, 3), (2, 1)) == (0, 1)`."""
    return tuple(x if x < y else y for x, y in zip(a, b, strict=True))


def joins(times) -> list[Time]:
    """The times and all joins of them, in an order in which each comes after all times before it."""
    closed: set[Time] = set()
    for time in times:
        closed |= {time} | {lub(time, other) for other in closed}
    return sorted(closed)


def beyond(time: Time, frontier) -> bool:
    """Is `time` beyond the frontier, a set of times: at or after some element?"""
    return any(leq(element, time) for element in frontier)


def advance(time: Time, frontier) -> Time:
    """A stand-in for `time` that compares alike with every time beyond the frontier.

    It is the meet, over the frontier's elements, of their join with the time. Beyond the empty frontier
    there are no times, and any choice would do: the time itself.
    """
    result, *others = [lub(time, element) for element in frontier] or [time]
    for other in others:
        result = glb(result, other)
    return result


# Collections and updates.
def collect(pairs) -> Collection:
    """The collection of some `(data, count)` pairs: equal data is added up, zeros vanish."""
    total: Collection = {}
    for data, count in pairs:
        total[data] = total.get(data, 0) + count
    return {data: count for data, count in total.items() if count != 0}


def accumulate(updates: Updates, time: Time) -> Collection:
    """What the updates amount to at a time.

    >>> accumulate([("a", (0,), 1), ("b", (1,), 1), ("a", (2,), -1)], (1,))
    {'a': 1, 'b': 1}
    """
    return collect((data, diff) for data, at, diff in updates if leq(at, time))


def consolidate(updates: Updates) -> Updates:
    """The same updates, each `(data, time)` once, zeros gone, in a fixed order.

    Two lists of updates are the same changing collection exactly when this makes them equal.

    >>> consolidate([("b", (1,), 2), ("a", (0,), 1), ("b", (1,), -2)])
    [('a', (0,), 1)]
    """
    total = collect(((data, time), diff) for data, time, diff in updates)
    ordered = sorted(total, key=lambda update: (update[1], repr(update[0])))
    return [(data, time, total[data, time]) for data, time in ordered]


def compact(updates: Updates, frontier) -> Updates:
    """Fewer updates that accumulate to the same at every time beyond the frontier.

    >>> compact([("a", (0,), 1), ("b", (1,), 1), ("a", (2,), -1)], [(5,)])
    [('b', (5,), 1)]
    """
    return consolidate([(data, advance(time, frontier), diff) for data, time, diff in updates])


def enter(updates: Updates) -> Updates:
    """A changing collection as seen inside a loop: there from the first round, the same in each."""
    return [(data, (*time, 0), diff) for data, time, diff in updates]


def leave(updates: Updates) -> Updates:
    """What a changing collection of a loop is after its last round."""
    return consolidate([(data, time[:-1], diff) for data, time, diff in updates])


def differences(f, times) -> Updates:
    """The updates that accumulate to `f(time)`, a collection, at each of the times and of their joins.

    What changes at a time is what `f` says, minus all that changed before it.

    >>> differences(lambda time: {"a": time[0]} if time[0] else {}, [(0,), (2,), (3,)])
    [('a', (2,), 2), ('a', (3,), 1)]
    """
    updates: Updates = []
    for time in joins(times):
        change = concat(f(time), negate(accumulate(updates, time)))
        updates += [(data, time, diff) for data, diff in change.items()]
    return consolidate(updates)


def lift(operator):
    """The operator on changing collections. It must make nothing of nothing.

    The joins of the inputs' times are enough: what the inputs accumulate to at any time, they also do
    at the join of those of their times that are before it. Some of these joins are no input's time:

    >>> lift(join)([(("k", 1), (0, 1), 1)], [(("k", 2), (1, 0), 1)])
    [(('k', (1, 2)), (1, 1), 1)]
    """

    def lifted(*inputs: Updates) -> Updates:
        if operator(*({} for _ in inputs)):
            raise ValueError("empty inputs give a result: make its constants an input, with a time")
        return differences(
            lambda time: operator(*(accumulate(updates, time) for updates in inputs)),
            {time for updates in inputs for _, time, _ in updates},
        )

    return lifted


# Linear operators: each record by itself, its multiplicity carried over, whatever its sign.
def explode(collection: Collection, f) -> Collection:
    """`f(data)` lists pairs `(data, multiplier)`; every other linear operator is a case of this."""
    return collect((out, count * by) for data, count in collection.items() for out, by in f(data))


def map(collection: Collection, f) -> Collection:
    """Each record replaced by `f(data)`."""
    return explode(collection, lambda data: [(f(data), 1)])


def flat_map(collection: Collection, f) -> Collection:
    """Each record replaced by all those that `f(data)` lists."""
    return explode(collection, lambda data: [(out, 1) for out in f(data)])


def filter(collection: Collection, predicate) -> Collection:
    """The records for which `predicate(data)` holds."""
    return explode(collection, lambda data: [(data, 1)] if predicate(data) else [])


def negate(collection: Collection) -> Collection:
    """Every multiplicity with its sign changed."""
    return explode(collection, lambda data: [(data, -1)])


def concat(*collections: Collection) -> Collection:
    """The sum: multiplicities are added."""
    return collect(pair for collection in collections for pair in collection.items())


# Bilinear operators: pairs of records with equal keys, multiplicities multiplied.
def join(left: Collection, right: Collection, result=lambda key, a, b: (key, (a, b))) -> Collection:
    """All `result(key, a, b)` of a `(key, a)` on the left and a `(key, b)` on the right."""
    pairs = [(a, b) for a in left for b in right if a[0] == b[0]]
    return collect((result(a[0], a[1], b[1]), left[a] * right[b]) for a, b in pairs)


def semijoin(left: Collection, keys: Collection) -> Collection:
    """The `(key, val)` whose key is in `keys`, times its multiplicity there: make `keys` distinct first."""
    return join(left, map(keys, lambda key: (key, None)), lambda key, val, _: (key, val))


def antijoin(left: Collection, keys: Collection) -> Collection:
    """What `semijoin` leaves: `left` minus it, so that the two add up to `left` for any `keys`."""
    return concat(left, negate(semijoin(left, keys)))


def lookup(stream: Updates, index: Updates, strict: bool = False) -> Updates:
    """Half of a join, on changing collections: each change of `stream` meets what `index` was by then.

    "By then" is in the order that tuples have, which is total; equal times count unless `strict`.
    So the lookup of the one side and the strict lookup of the other make up the join.
    """
    met = []
    for (key, a), t, m in stream:
        for (other, b), s, n in index:
            if key == other and (s < t or (s == t and not strict)):
                met.append(((key, (a, b)), lub(t, s), m * n))
    return consolidate(met)


# Reductions: one key at a time, from all of its values. Not linear.
def reduce(collection: Collection, f) -> Collection:
    """For each key the `(val, count)` pairs that `f(key, [(val, count), ...])` lists.

    `f` is given the values whose count is not zero, in ascending order; a key without any is not
    reduced and has no output. Counts may be negative: it is for `f` to say what that means.
    To `distinct`, `top_k`, `max` and `min` a value is there when its count is positive.

    >>> reduce({("k", 1): 2, ("k", 5): 1}, lambda key, vals: [(vals[-1], 1)])
    {('k', (5, 1)): 1}
    """
    groups: dict = {}
    for (key, val), count in collection.items():
        groups.setdefault(key, []).append((val, count))
    return collect(((key, out), n) for key, vals in groups.items() for out, n in f(key, sorted(vals)))


def threshold(collection: Collection, f) -> Collection:
    """Each record with the multiplicity `f(data, count)`; records that are not there stay away."""
    return collect((data, f(data, count)) for data, count in collection.items())


def distinct(collection: Collection) -> Collection:
    """Each record of positive multiplicity, once."""
    return threshold(collection, lambda _, count: 1 if count > 0 else 0)


def count(collection: Collection) -> Collection:
    """For each key `(key, n)`, where the counts of its values add up to n; no row if that is zero."""
    return {(key, n): 1 for key, n in map(collection, lambda data: data[0]).items()}


def sum(collection: Collection) -> Collection:
    """For each key its values added up, each as often as it counts; a row where `count` has one.

    Like `count` it is linear, once values are made multiplicities, which is how the engine does it.
    """
    sums = explode(collection, lambda data: [(data[0], data[1])])
    return map(count(collection), lambda row: (row[0], sums.get(row[0], 0)))


def top_k(collection: Collection, k: int) -> Collection:
    """For each key its `k` greatest values; one that counts twice takes two places, if there are two."""
    return reduce(collection, lambda _, vals: [(val, 1) for val, n in reversed(vals) for _ in range(n)][:k])


def max(collection: Collection) -> Collection:
    """For each key its greatest value, once."""
    return top_k(collection, 1)


def min(collection: Collection) -> Collection:
    """For each key its least value, once."""
    return reduce(collection, lambda _, vals: [(val, 1) for val, count in vals if count > 0][:1])


# Recursion.
def iterate(body, initial: dict, rounds: int | None = None, limit: int = 1000) -> dict:
    """The fixpoint of mutually recursive variables, given as `{name: collection}` at round 0.

    Each round replaces all variables at once by what `body(variables)` makes of those of the round before,
    until nothing changes, or for so many `rounds`. Loops nest: `body` may iterate in turn. As an
    operator it is lifted like any other, and so its updates say how the *result* changes over epochs;
    with the round as one more coordinate of time, `differences` gives those of the loop itself.

    >>> iterate(lambda v: {"x": distinct(concat(v["x"], map(v["x"], lambda n: n // 2)))}, {"x": {5: 1}})
    {'x': {5: 1, 2: 1, 1: 1, 0: 1}}
    """
    variables = initial
    for _ in range(limit if rounds is None else rounds):
        following = body(variables)
        if following.keys() != initial.keys():
            raise ValueError(f"the body gave {sorted(following)}, the variables are {sorted(initial)}")
        if following == variables:
            return variables
        variables = following
    if rounds is None:
        raise ValueError(f"no fixpoint of {sorted(initial)} after {limit} rounds")
    return variables
