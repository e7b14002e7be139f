"""Differential dataflow on dicts: the specification of the engine, as short as possible. Read this first.

A **collection** is a dict from data to its multiplicity, an integer that is not zero. Multiplicities may
be negative: a collection can be the difference of two others. Operators that look at keys take data
that is a pair `(key, val)`.

A **time** is a tuple of integers `(epoch, round, ...)`, ordered coordinate by coordinate: of two
times neither may be before the other.

A **changing collection** is a list of **updates** `(data, time, diff)`. Its content at a time is the sum of
the diffs at all times before or equal: `accumulate(updates, time)`. Nothing else about it matters.

An **operator** is a function from collections to a collection. This defines its effect on changing
collections: `lift(operator)` returns the updates that, accumulated at *any* time,
are the operator applied to what its inputs accumulate to at that time. There is exactly one such list
of updates, up to order, once updates with equal `(data, time)` are added up. The engine computes it from the changes
alone; here we start from scratch at every time and subtract.

This file is the oracle of the tests. It imports nothing, and is never optimised: expect quadratic time and
memory. Operators have the engine's names, some of which (`map`, `sum`, ...) are
also Python's; those of Python are not used below.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-any-generics
# (Function arguments cannot be typed without an import; the docstrings describe them.)

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
    """Return the times and all their joins, in an order in which each comes after all times before it."""
    closed: set[Time] = set()
    for time in times:
        closed |= {time} | {lub(time, other) for other in closed}
    return sorted(closed)


def beyond(time: Time, frontier) -> bool:
    """Is `time` beyond the frontier, a set of times: at or after some element?"""
    return any(leq(element, time) for element in frontier)


def advance(time: Time, frontier) -> Time:
    """Return a representative of `time` that compares in the same way with every time beyond the frontier.

    It is the meet, over the elements of the frontier, of their join with the time. No times are beyond the empty
    frontier, and any choice would do: the time itself is returned.
    """
    result, *others = [lub(time, element) for element in frontier] or [time]
    for other in others:
        result = glb(result, other)
    return result


# Collections and updates.
def collect(pairs) -> Collection:
    """Return the collection of some `(data, count)` pairs: equal data is added up, zeros are removed."""
    total: Collection = {}
    for data, count in pairs:
        total[data] = total.get(data, 0) + count
    return {data: count for data, count in total.items() if count != 0}


def accumulate(updates: Updates, time: Time) -> Collection:
    """Return the content of a changing collection at a time.

    >>> accumulate([("a", (0,), 1), ("b", (1,), 1), ("a", (2,), -1)], (1,))
    {'a': 1, 'b': 1}
    """
    return collect((data, diff) for data, at, diff in updates if leq(at, time))


def consolidate(updates: Updates) -> Updates:
    """Return the same updates, each `(data, time)` once, without zeros, in a fixed order.

    Two lists of updates are the same changing collection exactly if they are equal once consolidated.

    >>> consolidate([("b", (1,), 2), ("a", (0,), 1), ("b", (1,), -2)])
    [('a', (0,), 1)]
    """
    total = collect(((data, time), diff) for data, time, diff in updates)
    ordered = sorted(total, key=lambda update: (update[1], repr(update[0])))
    return [(data, time, total[data, time]) for data, time in ordered]


def compact(updates: Updates, frontier) -> Updates:
    """Return fewer updates that accumulate to the same collection at every time beyond the frontier.

    >>> compact([("a", (0,), 1), ("b", (1,), 1), ("a", (2,), -1)], [(5,)])
    [('b', (5,), 1)]
    """
    return consolidate([(data, advance(time, frontier), diff) for data, time, diff in updates])


def enter(updates: Updates) -> Updates:
    """Return a changing collection as seen inside a loop: complete in the first round, the same in each."""
    return [(data, (*time, 0), diff) for data, time, diff in updates]


def leave(updates: Updates) -> Updates:
    """Return a changing collection of a loop as it is after the last round."""
    return consolidate([(data, time[:-1], diff) for data, time, diff in updates])


def differences(f, times) -> Updates:
    """Return the updates that accumulate to `f(time)`, a collection, at each of the times and of their joins.

    The change at a time is `f(time)` minus all earlier changes.

    >>> differences(lambda time: {"a": time[0]} if time[0] else {}, [(0,), (2,), (3,)])
    [('a', (2,), 2), ('a', (3,), 1)]
    """
    updates: Updates = []
    for time in joins(times):
        change = concat(f(time), negate(accumulate(updates, time)))
        updates += [(data, time, diff) for data, diff in change.items()]
    return consolidate(updates)


def lift(operator):
    """Return the operator on changing collections. For empty inputs its result must be empty.

    The joins of the inputs' times suffice: at any time, the inputs accumulate to the same as
    at the join of their earlier times. Some of these joins are the time of no input:

    >>> lift(join)([(("k", 1), (0, 1), 1)], [(("k", 2), (1, 0), 1)])
    [(('k', (1, 2)), (1, 1), 1)]
    """

    def lifted(*inputs: Updates) -> Updates:
        if operator(*({} for _ in inputs)):
            raise ValueError("the result for empty inputs is not empty: make its constants an input, with a time")
        return differences(
            lambda time: operator(*(accumulate(updates, time) for updates in inputs)),
            {time for updates in inputs for _, time, _ in updates},
        )

    return lifted


# Linear operators: each record by itself, with its multiplicity, of any sign.
def explode(collection: Collection, f) -> Collection:
    """Replace each record by the pairs `(data, multiplier)` in `f(data)`; all linear operators are cases of this."""
    return collect((out, count * by) for data, count in collection.items() for out, by in f(data))


def map(collection: Collection, f) -> Collection:
    """Replace each record by `f(data)`."""
    return explode(collection, lambda data: [(f(data), 1)])


def flat_map(collection: Collection, f) -> Collection:
    """Replace each record by all records in `f(data)`."""
    return explode(collection, lambda data: [(out, 1) for out in f(data)])


def filter(collection: Collection, predicate) -> Collection:
    """Return the records for which `predicate(data)` holds."""
    return explode(collection, lambda data: [(data, 1)] if predicate(data) else [])


def negate(collection: Collection) -> Collection:
    """Change the sign of every multiplicity."""
    return explode(collection, lambda data: [(data, -1)])


def concat(*collections: Collection) -> Collection:
    """Add collections: multiplicities are added."""
    return collect(pair for collection in collections for pair in collection.items())


# Bilinear operators: pairs of records with equal keys, multiplicities multiplied.
def join(left: Collection, right: Collection, result=lambda key, a, b: (key, (a, b))) -> Collection:
    """Return `result(key, a, b)` for each `(key, a)` on the left and `(key, b)` on the right."""
    pairs = [(a, b) for a in left for b in right if a[0] == b[0]]
    return collect((result(a[0], a[1], b[1]), left[a] * right[b]) for a, b in pairs)


def semijoin(left: Collection, keys: Collection) -> Collection:
    """Return the `(key, val)` whose key is in `keys`, times its multiplicity in `keys`, which is usually distinct."""
    return join(left, map(keys, lambda key: (key, None)), lambda key, val, _: (key, val))


def antijoin(left: Collection, keys: Collection) -> Collection:
    """Return `left` minus the semijoin, so that the two add up to `left` for any `keys`."""
    return concat(left, negate(semijoin(left, keys)))


def lookup(stream: Updates, index: Updates, strict: bool = False) -> Updates:
    """Half of a join, on changing collections: each change of `stream` meets the earlier changes of `index`.

    "Earlier" is by the order of tuples, which is total, and includes equal times unless `strict`.
    So the lookup of one side plus the strict lookup of the other is the join.
    """
    met = []
    for (key, a), t, m in stream:
        for (other, b), s, n in index:
            if key == other and (s < t or (s == t and not strict)):
                met.append(((key, (a, b)), lub(t, s), m * n))
    return consolidate(met)


def extend(stream: Updates, *indexes) -> Updates:
    """Lookups in several indexes at once: each change of `stream` with the values that all of them have for it.

    The data of the stream is a tuple with a key for each index. An index is a triple: its updates, whether it is looked
    up strictly, and whether a value counts once if it exists, rather than with its multiplicity.
    """
    extended = []
    for keys, t, m in stream:
        found = []
        for key, (updates, strict, exists) in zip(keys, indexes, strict=True):
            earlier = [(data, n) for data, s, n in updates if data[0] == key and (s < t or (s == t and not strict))]
            values = collect((val, n) for (_, val), n in earlier)
            found.append({val: 1 if exists else n for val, n in values.items() if n > 0 or not exists})
        for val in found[0]:
            product = m
            for values in found:
                product *= values.get(val, 0)
            extended.append(((keys, val), t, product))
    return consolidate(extended)


# Reductions: one key at a time, from all of its values. Not linear.
def reduce(collection: Collection, f) -> Collection:
    """Return for each key the `(val, count)` pairs in `f(key, [(val, count), ...])`.

    `f` gets the values whose count is not zero, in ascending order; a key without values is not
    reduced and has no output. Counts may be negative: `f` defines what that means.
    For `distinct`, `top_k`, `max` and `min` a value exists if its count is positive.

    >>> reduce({("k", 1): 2, ("k", 5): 1}, lambda key, vals: [(vals[-1], 1)])
    {('k', (5, 1)): 1}
    """
    groups: dict = {}
    for (key, val), count in collection.items():
        groups.setdefault(key, []).append((val, count))
    return collect(((key, out), n) for key, vals in groups.items() for out, n in f(key, sorted(vals)))


def threshold(collection: Collection, f) -> Collection:
    """Replace each multiplicity by `f(data, count)`; `f` is not called for records of multiplicity zero."""
    return collect((data, f(data, count)) for data, count in collection.items())


def distinct(collection: Collection) -> Collection:
    """Return each record of positive multiplicity, once."""
    return threshold(collection, lambda _, count: 1 if count > 0 else 0)


def count(collection: Collection) -> Collection:
    """Return `(key, n)` for each key, where n, the sum of the counts of its values, is not zero."""
    return {(key, n): 1 for key, n in map(collection, lambda data: data[0]).items()}


def sum(collection: Collection) -> Collection:
    """Return for each key the sum of its values, each times its count; a row if `count` has one.

    Like `count` it is linear if values are converted to multiplicities, as the engine does.
    """
    sums = explode(collection, lambda data: [(data[0], data[1])])
    return map(count(collection), lambda row: (row[0], sums.get(row[0], 0)))


def top_k(collection: Collection, k: int) -> Collection:
    """Return for each key its `k` greatest values; a value of count 2 takes two places, if there are two."""
    return reduce(collection, lambda _, vals: [(val, 1) for val, n in reversed(vals) for _ in range(n)][:k])


def max(collection: Collection) -> Collection:
    """Return for each key its greatest value, once."""
    return top_k(collection, 1)


def min(collection: Collection) -> Collection:
    """Return for each key its least value, once."""
    return reduce(collection, lambda _, vals: [(val, 1) for val, count in vals if count > 0][:1])


# Recursion.
def iterate(body, initial: dict, rounds: int | None = None, limit: int = 1000) -> dict:
    """Return the fixpoint of mutually recursive variables, given as `{name: collection}` at round 0.

    Each round replaces all variables at once by `body(variables)`, computed from those of the previous round,
    until nothing changes, or for the given number of `rounds`. Loops can be nested: `body` may iterate in turn. As an
    operator it is lifted like any other, and so its updates are the changes of the *result* over epochs;
    with the round as one more coordinate of time, `differences` returns the changes of the loop itself.

    >>> iterate(lambda v: {"x": distinct(concat(v["x"], map(v["x"], lambda n: n // 2)))}, {"x": {5: 1}})
    {'x': {5: 1, 2: 1, 1: 1, 0: 1}}
    """
    variables = initial
    for _ in range(limit if rounds is None else rounds):
        following = body(variables)
        if following.keys() != initial.keys():
            raise ValueError(f"the body returned {sorted(following)}, the variables are {sorted(initial)}")
        if following == variables:
            return variables
        variables = following
    if rounds is None:
        raise ValueError(f"no fixpoint of {sorted(initial)} after {limit} rounds")
    return variables
