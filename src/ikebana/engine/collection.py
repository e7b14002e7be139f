"""Collections: what a user writes by hand.

A `Collection` is a plan for a changing collection of rows with named, typed columns; an `Arrangement` is one
that is indexed by key. Methods make new plans and compute nothing; an `Engine` installs them. Functions work
on whole columns (dicts of Arrow arrays by name), or on rows where a method says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.columns import is_nested, is_plain_integer, matched
from ikebana.errors import SchemaError
from ikebana.operators import arrangement_views, linear, reducers
from ikebana.operators.buckets import Bucket
from ikebana.operators.changes import Fields
from ikebana.operators.join import Result
from ikebana.plan import ir

Types = Mapping[str, pa.DataType] | Iterable[pa.Field]
_loops = itertools.count()
_BUCKETS, _MOST_LEVELS = 1024, 4


class Collection:
    """A changing collection of rows."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [field.name for field in self.node.columns]

    # Linear.

    def map(self, columns: Types, function: Callable[[linear.Columns], Mapping[str, Any]]) -> Collection:
        """Rows with other columns, computed by a function of the columns; `columns` names their types.

        >>> show(numbers.map({"x": pa.int64()}, lambda c: {"x": pc.add(c["k"], c["v"])}))
        [(11, 1), (21, 1), (32, 1)]
        """
        return self.step(linear.Map(fields_of(columns), function))

    def select(self, *names: str, **renamed: str) -> Collection:
        """Some columns: those named, and others under a new name (`new=old`).

        >>> numbers.select("v", key="k")
        Collection(v, key)
        """
        pairs = (*((name, name) for name in names), *renamed.items())
        self._check(source for _, source in pairs)
        return self.step(linear.Select(pairs))

    def filter(self, predicate: Callable[[linear.Columns], Any]) -> Collection:
        """The rows for which a function of the columns is true.

        >>> show(numbers.filter(lambda c: pc.greater(c["v"], 10)))
        [(1, 20, 1), (2, 30, 1)]
        """
        return self.step(linear.Filter(predicate))

    def flat_map(self, columns: Types, function: Callable[[dict[str, Any]], Iterable[Any]]) -> Collection:
        """For each row (a dict) any number of rows (tuples or dicts): a plain Python function, row by row.

        >>> show(numbers.flat_map({"x": pa.int64()}, lambda row: [(row["v"] + i,) for i in range(row["k"])]))
        [(10, 1), (20, 1), (30, 1), (31, 1)]
        """
        fields = fields_of(columns)
        return self.step(linear.FlatMap(fields, linear.RowByRow(fields, function)))

    def negate(self) -> Collection:
        """Every multiplicity with its sign changed.

        >>> show(numbers.concat(numbers.negate()))
        []
        """
        return self.step(linear.Negate())

    def explode(self, keep: Sequence[str], function: Callable[[linear.Columns], Sequence[Any]]) -> Collection:
        """Keep some columns, and multiply diffs by whole numbers; one for each diff lane of the result."""
        self._check(keep)
        lanes = len(function({f.name: pa.array([], f.type) for f in self.node.columns}))
        return self.step(linear.Explode(function, tuple(keep)), lanes)

    def inspect(self, function: Callable[[Any], object]) -> Collection:
        """Show each worker's changes to a function, as they flow by."""
        return self.step(linear.Inspect(function))

    def declare(self, columns: Types) -> Collection:
        """The same columns, declared differently: as to whether they may be null."""
        return Collection(_declared(self.node, fields_of(columns)))

    def consolidate(self) -> Collection:
        """Add up equal changes of a visit before they flow on."""
        return self.step(linear.Consolidate())

    def later(self) -> Collection:
        """The changes after the epoch at which a query starts, without what there was: for paths of delta joins.

        In a sum of lookups that make up a join, one path meets all that there was; see `natural_join`.
        """
        return Collection(ir.make(ir.AfterStart, source=self.node))

    def concat(self, *others: Collection) -> Collection:
        """The sum of collections with the same columns.

        >>> show(numbers.concat(numbers))
        [(1, 10, 2), (1, 20, 2), (2, 30, 2)]
        """
        nodes = _in_one_scope([each.node for each in (self, *others)])
        for node in nodes[1:]:
            _check_alike("concatenate collections", nodes[0], node)
        may_be_null = {field.name for node in nodes for field in node.columns if field.nullable}
        return Collection(ir.make(ir.Union, sources=tuple(_declared_nullable(node, may_be_null) for node in nodes)))

    def step(self, step: linear.Step, lanes: int | None = None) -> Collection:
        """One more linear step, of any kind; a chain of steps is one operator."""
        node = self.node
        lanes = lanes or node.lanes
        if isinstance(node, ir.Steps):
            return Collection(ir.make(ir.Steps, source=node.source, steps=(*node.steps, step), diff_lanes=lanes))
        return Collection(ir.make(ir.Steps, source=node, steps=(step,), diff_lanes=lanes))

    def _check(self, names: Iterable[str]) -> None:
        unknown = [name for name in names if name not in self.columns]
        if unknown:
            raise SchemaError(f"there is no column {unknown[0]!r}", detail=f"the columns are {', '.join(self.columns)}")

    # Arrangements.

    def arrange(self, *key: str) -> Arrangement:
        """Indexed by key columns; all columns where none is named."""
        return self.arrange_by(key or tuple(self.columns))

    def arrange_by(self, key: Sequence[str]) -> Arrangement:
        """Indexed by these columns; all rows under one key, on one worker, if there are none.

        Rows of such an index are not indexed again.
        """
        self._check(key)
        node = self.node
        if isinstance(node, ir.AsStream) and [field.name for field in ir.schema_of(node.source).key.fields] == list(
            key
        ):
            return Arrangement(node.source)
        return Arrangement(ir.make(ir.Arrange, source=node, key=tuple(key)))

    def _arranged_alike(self, other: Collection, key: Sequence[str]) -> tuple[Arrangement, Arrangement]:
        """Both indexed by the same columns, declared in the same way: what may be null has another index."""
        for each in (self, other):
            each._check(key)
        may_be_null = {field.name for each in (self, other) for field in each.node.columns if field.nullable} & set(key)
        nodes = (_declared_nullable(each.node, may_be_null) for each in (self, other))
        left, right = (Collection(node).arrange_by(key) for node in nodes)
        return left, right

    def join(self, other: Collection, on: str | Sequence[str]) -> Collection:
        """Pairs of rows that agree in the columns `on`: these, then the others of both sides.

        >>> show(numbers.join(numbers.select("k", w="v"), on="k"))
        [(1, 10, 10, 1), (1, 10, 20, 1), (1, 20, 10, 1), (1, 20, 20, 1), (2, 30, 30, 1)]
        """
        left, right = self._arranged_alike(other, (on,) if isinstance(on, str) else tuple(on))
        return left.join(right)

    def lookup(self, index: Arrangement, *, on: Sequence[str] | None = None, strict: bool = False) -> Collection:
        """Each change with what `index` has for its key by then; see `natural_join` for what it is good for.

        The key columns of `index` are columns here, those named `on` if they have other names; its other columns are
        added. Inside a loop, what is found may be due at a later round: looking that up in turn meets what the other
        index has by then, not by now.
        """
        fields = ir.schema_of(index.node).key.fields
        key = tuple(field.name for field in fields) if on is None else tuple(on)
        self._check(key)
        source, at = _in_one_scope([self.node, index.node])
        may_be_null = {name for name, field in zip(key, fields, strict=True) if field.nullable}
        source = _declared_nullable(source, may_be_null)
        known = {field.name: field for field in source.columns}
        _check_keys(tuple(known[name] for name in key), fields)
        return Collection(ir.make(ir.Lookup, source=source, index=at, key=key, strict=strict))

    def semijoin(self, keys: Collection) -> Collection:
        """The rows whose key, named as in `keys`, is in `keys`.

        >>> show(numbers.semijoin(numbers.filter(lambda c: pc.equal(c["v"], 10)).select("k")))
        [(1, 10, 1), (1, 20, 1)]
        """
        left, right = self._arranged_alike(keys.distinct(), keys.columns)
        return Collection(_declared(left.join(right).select(*self.columns).node, self.node.columns))

    def antijoin(self, keys: Collection) -> Collection:
        """The rows whose key is not in `keys`.

        >>> show(numbers.antijoin(numbers.filter(lambda c: pc.equal(c["v"], 10)).select("k")))
        [(2, 30, 1)]
        """
        return self.concat(self.semijoin(keys).negate())

    def expire(self, clock: Collection, *, valid_from: str | None = None, valid_until: str | None = None) -> Collection:
        """The rows that are valid at what `clock` shows: from a time in one column on, and before that in another.

        Rows for which `valid_from <= now < valid_until`, where a null is no bound, and neither is a column that is not
        named. `now` is the value in the only row of `clock`, which has one column of the same type, never null: a
        timestamp, a date or a whole number. It may only grow, and advancing it costs what changes then, however many
        rows there are. See `ikebana.operators.expire`.

        To keep what is not older than an hour (`at >= now - hour`), let it be valid until `at + hour`, and a
        microsecond more.

        >>> ten = constant(pa.table({"now": [10]}, pa.schema([pa.field("now", pa.int64(), nullable=False)])))
        >>> show(numbers.expire(ten, valid_from="k", valid_until="v"))
        [(1, 20, 1), (2, 30, 1)]
        """
        named = [name for name in (valid_from, valid_until) if name is not None]
        self._check(named)
        _check_clock(clock.node, [field for field in self.node.columns if field.name in named])
        if self.node.scope:
            raise SchemaError("rows cannot expire inside a loop", hint="let them expire before they enter it")
        bounds = {"valid_from": valid_from or "", "valid_until": valid_until or ""}
        return Collection(ir.make(ir.Expire, source=self.node, clock=clock.node, **bounds))

    # Reductions.

    def reduce(
        self,
        by: str | Sequence[str],
        columns: Types,
        function: Callable[[tuple[Any, ...], list[tuple[tuple[Any, ...], int]]], Iterable[tuple[Any, int]]],
    ) -> Collection:
        """For each key rows that a Python function makes of its values: (key, [(value, count), ...]) -> pairs.

        Keys and values are tuples, with an entry for each column.

        >>> spread = lambda key, values: [(values[-1][0][0] - values[0][0][0], 1)]
        >>> show(numbers.reduce("k", {"spread": pa.int64()}, spread))
        [(1, 10, 1), (2, 0, 1)]
        """
        return self.reduce_by(by, reducers.PythonReducer(fields_of(columns), function))

    def distinct(self, *key: str) -> Collection:
        """Each row of positive multiplicity, once. The index that this takes is by `key`, or by all columns.

        With a key, what follows on that key (a join, say) needs no other index.

        >>> show(numbers.select("k").distinct())
        [(1, 1), (2, 1)]
        """
        return self.reduce_by(key or self.columns, reducers.DISTINCT)

    def threshold(self, multiplicity: Callable[[Any], Any]) -> Collection:
        """Each row with a multiplicity that is a function (of whole columns) of the one it has.

        >>> show(numbers.select("k").threshold(lambda count: count // 2))
        [(1, 1)]
        """
        return self.reduce_by(self.columns, reducers.Threshold(multiplicity))

    def count(self, by: str | Sequence[str], name: str = "count") -> Collection:
        """For each key the number of its rows.

        >>> show(numbers.count("k"))
        [(1, 2, 1), (2, 1, 1)]
        """
        if set(self.columns) == set([by] if isinstance(by, str) else by):
            return self.reduce_by(by, reducers.Count(name))  # the index by key has the counts already
        return self.aggregate(by, {name: pa.int64()}, lambda columns: [1], lambda sums: [sums[0]])

    def sum(self, by: str | Sequence[str], column: str, name: str = "sum") -> Collection:
        """For each key the sum of a column of whole numbers.

        >>> show(numbers.sum("k", "v"))
        [(1, 30, 1), (2, 30, 1)]
        """
        self._check([column])
        return self.aggregate(
            by,
            {name: pa.int64()},
            lambda columns: [1, columns[column].to_numpy(zero_copy_only=False)],
            lambda sums: [sums[1]],
        )

    def aggregate(
        self,
        by: str | Sequence[str],
        columns: Types,
        lanes: Callable[[linear.Columns], Sequence[Any]],
        finish: Callable[[Any], Sequence[Any]],
    ) -> Collection:
        """Linear aggregates, kept in the diffs: a change costs an addition, however large its group.

        `lanes` gives whole numbers for each row, the first of them 1 (the count); `finish` computes the
        columns from their sums.
        """
        key = (by,) if isinstance(by, str) else tuple(by)
        return self.explode(key, lanes).reduce_by(key, reducers.LinearAggregate(fields_of(columns), finish))

    def min(self, by: str | Sequence[str], *columns: str, levels: int | None = None) -> Collection:
        """For each key the row with the least value, by `columns` or by all others.

        See `top_k` for `levels`.

        >>> show(numbers.min("k"))
        [(1, 10, 1), (2, 30, 1)]
        """
        return self._top(by, 1, columns, greatest=False, distinct=True, levels=levels)

    def max(self, by: str | Sequence[str], *columns: str, levels: int | None = None) -> Collection:
        """For each key the row with the greatest value, by `columns` or by all others.

        See `top_k` for `levels`.

        >>> show(numbers.max("k"))
        [(1, 20, 1), (2, 30, 1)]
        """
        return self._top(by, 1, columns, greatest=True, distinct=True, levels=levels)

    def top_k(self, by: str | Sequence[str], k: int, *columns: str, levels: int | None = None) -> Collection:
        """For each key the `k` rows with the greatest values, by `columns` or by all others.

        A change costs far less than its group. Where the other columns fit into 64 bits together, the index has them
        in order and its ends are read. Where they do not (strings, for example), rows compete in two levels: in one of
        1024 buckets first (fewer for large `k`), then with the winners of the others. `levels` says how many levels
        instead: 1 where all groups are small (two levels index rows twice, and cannot share the index by key); 3 for
        groups of tens of millions, or of which many rows change at once; 2 for large groups of numbers inside
        loops, where whole groups are read.

        >>> show(numbers.top_k("k", 1))
        [(1, 20, 1), (2, 30, 1)]
        """
        return self._top(by, k, columns, greatest=True, distinct=False, levels=levels)

    def _top(
        self,
        by: str | Sequence[str],
        k: int,
        columns: tuple[str, ...],
        *,
        greatest: bool,
        distinct: bool,
        levels: int | None,
    ) -> Collection:
        key = (by,) if isinstance(by, str) else tuple(by)
        self._check([*key, *columns])
        _check_ordered(field for field in self.node.columns if field.name in columns)
        values = tuple(name for name in self.columns if name not in key)
        order = tuple(dict.fromkeys(name for name in columns if name not in key)) or values
        how = reducers.TopK(k, order, greatest, distinct)
        in_order = _fit_into_a_lane([field for field in self.node.columns if field.name in values])
        levels = (1 if in_order else 2) if levels is None else levels
        in_loop = bool(self.node.scope)  # where whole groups are read
        if levels == 1 and in_order and order != values[: len(order)] and not in_loop:
            reordered = self.select(*key, *dict.fromkeys((*order, *values)))
            return reordered.reduce_by(key, how).select(*key, *values)
        return self._top_in_levels(key, values, how, levels)

    def _top_in_levels(
        self, key: tuple[str, ...], values: tuple[str, ...], how: reducers.TopK, levels: int
    ) -> Collection:
        """The rows that win in their bucket, then among the winners of some buckets, and so on; at last among all."""
        if not 1 <= levels <= _MOST_LEVELS:
            raise SchemaError(f"there can be 1 to {_MOST_LEVELS} levels", detail=f"{levels} were asked for")
        bucket, buckets = _new_name("bucket", self.columns), _buckets(how.k)
        found = self
        for level in range(levels - 1 if values else 0, 0, -1):
            parted = found.step(Bucket(bucket, values, buckets**level))
            found = parted.reduce_by((*key, bucket), how).select(*self.columns)
        return found.reduce_by(key, how)

    def reduce_by(self, by: str | Sequence[str], how: reducers.Reducer) -> Collection:
        """For each key what a logic makes of its values: see `ikebana.operators.reducers`."""
        key = (by,) if isinstance(by, str) else tuple(by)
        return self.arrange_by(key).reduce(how).rows()

    # Loops.

    def iterate(self, body: Callable[[Collection], Collection], rounds: int | None = None) -> Collection:
        """The body applied again and again, until nothing changes or for a number of rounds.

        >>> halve = lambda c: {"n": pc.divide(c["n"], 2)}
        >>> show(numbers.select(n="v").iterate(lambda x: x.concat(x.map({"n": pa.int64()}, halve)).distinct()))
        [(0, 1), (1, 1), (2, 1), (3, 1), (5, 1), (7, 1), (10, 1), (15, 1), (20, 1), (30, 1)]
        """
        return iterate(lambda variables: {"it": body(variables["it"])}, {"it": self}, rounds)["it"]

    def enter(self, loop: Collection) -> Collection:
        """This collection inside the loop of another."""
        return Collection(_inside(self.node, loop.node.scope))

    def enter_at(self, loop: Collection, delay: Callable[[linear.Columns], Any]) -> Collection:
        """This collection inside the innermost loop of another, each row from the round that `delay` computes on.

        For loops in which some rows had better wait, until others have had their effect.
        """
        node = self.node
        *outer, last = loop.node.scope[len(node.scope) :]
        for id_ in outer:
            node = _entered(node, id_)
        return Collection(ir.make(ir.EnterAt, source=node, loop=last, delay=delay))

    def __repr__(self) -> str:
        return f"Collection({', '.join(self.columns)})"


class Arrangement:
    """A collection indexed by key."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node

    def rows(self) -> Collection:
        """The same collection as rows."""
        return Collection(ir.make(ir.AsStream, source=self.node))

    def enter(self, loop: Collection) -> Arrangement:
        """The same index inside the loop of another collection: nothing is copied."""
        return Arrangement(_inside(self.node, loop.node.scope))

    # The same index, seen differently: nothing is copied, and functions are called when it is read.

    def filter(self, predicate: Callable[[linear.Columns], Any]) -> Arrangement:
        """The rows for which a function of the columns is true, read from the same index.

        >>> show(numbers.arrange("k").filter(lambda c: pc.greater(c["v"], 10)).rows())
        [(1, 20, 1), (2, 30, 1)]
        """
        return self._seen(arrangement_views.FilterView(predicate))

    def map(self, columns: Types, function: Callable[[linear.Columns], Mapping[str, Any]]) -> Arrangement:
        """The same keys with other value columns, computed by a function of the columns.

        >>> show(numbers.arrange("k").map({"w": pa.int64()}, lambda c: {"w": pc.negate(c["v"])}).rows())
        [(1, -20, 1), (1, -10, 1), (2, -30, 1)]
        """
        return self._seen(arrangement_views.ProjectView(fields_of(columns), function))

    def select(self, *names: str, **renamed: str) -> Arrangement:
        """The same keys with some of the value columns, or columns under a new name (`new=old`).

        >>> show(numbers.arrange("k").select(w="v").rows())
        [(1, 10, 1), (1, 20, 1), (2, 30, 1)]
        """
        pairs = (*((name, name) for name in names), *renamed.items())
        self.rows()._check(source for _, source in pairs)
        known = {field.name: field for field in self.node.columns}
        fields = tuple(known[source].with_name(name) for name, source in pairs)
        return self._seen(arrangement_views.ProjectView(fields, arrangement_views.Keep(pairs)))

    def negate(self) -> Arrangement:
        """Every multiplicity with its sign changed."""
        return self._seen(arrangement_views.NegateView())

    def _seen(self, wrapper: arrangement_views.ViewStep) -> Arrangement:
        return Arrangement(ir.make(ir.ArrangementView, source=self.node, wrapper=wrapper))

    def join(self, other: Arrangement) -> Collection:
        """Pairs of rows with equal keys: the key columns, then the others of both sides."""
        left, right = ir.schema_of(self.node), ir.schema_of(other.node)
        keys = [field.name for field in left.key.fields]
        mine = [field.name for field in left.val.fields]
        theirs = [field.name for field in right.val.fields]
        _check_keys(left.key.fields, right.key.fields)
        clash = {*keys, *mine} & set(theirs)
        if clash:
            raise SchemaError(
                f"both sides of a join have a column {min(clash)!r}",
                hint="rename one of them first: select(..., new=old)",
            )
        pairs = tuple((name, name) for name in (*keys, *mine))
        result = Result((*keys, *mine, *theirs), pairs, tuple((name, name) for name in theirs))
        one, two = _in_one_scope([self.node, other.node])
        return Collection(ir.make(ir.Join, left=one, right=two, result=result))

    def reduce(self, how: reducers.Reducer) -> Arrangement:
        """For each key a function of its values; indexed by the same key."""
        return Arrangement(ir.make(ir.Reduce, source=self.node, reducer=how))


def constant(table: pa.Table) -> Collection:
    """The rows of a table, for ever. They are part of the plan, so let them be few; they are copied.

    >>> show(constant(pa.table({"k": [1, 2, 2]})).join(numbers, on="k"))
    [(1, 10, 1), (1, 20, 1), (2, 30, 2)]
    """
    fields = tuple(field.remove_metadata() for field in table.schema)
    everything = pa.array(np.arange(table.num_rows))
    arrays = tuple(array.take(everything) for array in matched(table, fields))
    return Collection(ir.make(ir.Constant, fields=fields, arrays=arrays, rows=table.num_rows))


def natural_join(*collections: Collection) -> Collection:
    """Rows that agree in all columns of the same name, of any number of collections: a delta join.

    For each collection its changes are looked up in arrangements of all the others, one after the other, by the
    columns known so far. No intermediate result is indexed; the arrangements are shared with other queries.

    Inside loops that holds for two at a time, and what two make is indexed: what a change finds may be due at a later
    round, and by then the other collections are no longer what they were for the change.
    """
    names = list(dict.fromkeys(name for each in collections for name in each.columns))
    if len(collections) > 2 and any(each.node.scope for each in collections):
        first, *others = collections
        best = max(others, key=lambda each: len({*each.columns} & {*first.columns}))
        others.remove(best)
        return natural_join(natural_join(first, best), *others).select(*names)
    paths = [_delta_path(collections, start).select(*names) for start in range(len(collections))]
    return paths[0].concat(*paths[1:])


def _delta_path(collections: Sequence[Collection], start: int) -> Collection:
    """The changes of one collection, looked up in all the others; those before it strictly.

    So what there is when a query starts is all met by the changes of the first: the others need only later ones.
    """
    in_loop = any(each.node.scope for each in collections)
    found = collections[start].later() if start and not in_loop else collections[start]
    waiting = [at for at in range(len(collections)) if at != start]
    while waiting:
        shared = {at: [n for n in collections[at].columns if n in found.columns] for at in waiting}
        best = max(waiting, key=lambda at: len(shared[at]))
        if not shared[best]:
            raise SchemaError(
                "cannot join collections that have no column in common",
                detail=f"{collections[best].columns} shares no name with {found.columns}",
                hint="give columns that should agree the same name: select(new=old)",
            )
        may_be_null = {field.name for field in found.node.columns if field.nullable} & set(shared[best])
        other = Collection(_declared_nullable(collections[best].node, may_be_null))
        found = found.lookup(other.arrange_by(shared[best]), strict=best < start)
        waiting.remove(best)
    return found


def iterate(
    body: Callable[[dict[str, Collection]], Mapping[str, Collection]],
    initial: Mapping[str, Collection],
    rounds: int | None = None,
) -> dict[str, Collection]:
    """Mutually recursive variables: all are replaced at once by what `body` makes of them, until nothing changes.

    With `rounds`, only so many times. Collections from outside that the body uses enter the loop by themselves. A loop
    inside another is where it starts: if that is a collection from outside, `enter` it first.
    """
    if rounds is not None and rounds <= 0:
        return dict(initial)
    loop = f"loop {next(_loops)}"  # while its body is built: see `ikebana.plan.ir`
    starts = _in_one_scope([start.node for start in initial.values()])
    variables = {
        name: ir.make(ir.LoopVariable, name=name, loop=loop, initial=_entered(start, loop))
        for name, start in zip(initial, starts, strict=True)
    }
    made = body({name: Collection(node) for name, node in variables.items()})
    if made.keys() != initial.keys():
        raise SchemaError(f"the body of a loop gave {sorted(made)}", detail=f"the variables are {sorted(initial)}")
    results = []
    for name, variable in variables.items():
        result = _inside(made[name].node, variable.scope)
        _check_alike(f"replace variable {name!r} of a loop by rows", variable, result)
        for before, after in zip(variable.columns, result.columns, strict=True):
            if after.nullable and not before.nullable:
                raise SchemaError(
                    f"column {after.name!r} of variable {name!r} may be null after a round, but not at the start",
                    hint="declare it at the start: map([pyarrow.field(..., nullable=True), ...], ...)",
                )
        results.append(_declared(result, variable.columns))
    node = ir.make(ir.Loop, id=loop, variables=tuple(variables.values()), results=tuple(results), rounds=rounds)
    return {
        name: Collection(ir.make(ir.Leave, source=result, loop=node))
        for name, result in zip(initial, node.results, strict=True)
    }


# Loops: collections from outside.


def _entered(node: ir.Node, loop: str) -> ir.Node:
    """A collection inside a loop; of an arrangement's rows, the arrangement enters."""
    if isinstance(node, ir.AsStream):
        return ir.make(ir.AsStream, source=ir.make(ir.Enter, source=node.source, loop=loop))
    return ir.make(ir.Enter, source=node, loop=loop)


def _inside(node: ir.Node, scope: ir.Scope) -> ir.Node:
    """A collection inside loops, from outside all or some of them."""
    if scope[: len(node.scope)] != node.scope:
        raise SchemaError(
            "cannot use a variable of a loop outside of it",
            detail=f"it belongs to {' in '.join(reversed(node.scope))}",
            hint="use what iterate returns; a loop inside another must start there: enter() what it starts from",
        )
    for loop in scope[len(node.scope) :]:
        node = _entered(node, loop)
    return node


def _in_one_scope(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """All inside the loops that the innermost of them is in."""
    scope = max((node.scope for node in nodes), key=len)
    return [_inside(node, scope) for node in nodes]


# Levels of competition.


def _buckets(k: int) -> int:
    """How many buckets compete in a level; fewer where more than one row wins in each, since all winners are read."""
    return max(2, _BUCKETS >> max(0, k.bit_length() - 1) // 2)


def _fit_into_a_lane(fields: Iterable[pa.Field]) -> bool:
    """Whether an index keeps these columns in order."""
    return Schema((), fields).val.exact


def _new_name(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else _new_name(f"{name}_", taken)


# Columns that must fit.


def _check_alike(what: str, one: ir.Node, other: ir.Node) -> None:
    if [(f.name, f.type) for f in one.columns] != [(f.name, f.type) for f in other.columns]:
        shown = [", ".join(f"{f.name}: {f.type}" for f in node.columns) for node in (one, other)]
        raise SchemaError(
            f"cannot {what} with different columns",
            detail=f"the one has {shown[0]}; the other has {shown[1]}",
            hint="select or map to the same columns, in the same order, first",
        )
    if one.lanes != other.lanes:
        raise SchemaError(
            f"cannot {what} with different numbers of diff lanes",
            detail=f"the one has {one.lanes}, the other has {other.lanes}",
            hint="explode both into as many",
        )


def _check_clock(clock: ir.Node, bounds: Sequence[pa.Field]) -> None:
    if len(clock.columns) != 1 or not is_plain_integer(clock.columns[0]) or clock.lanes != 1 or clock.scope:
        raise SchemaError(
            "a clock is a collection of one column: a timestamp, a date or a whole number, never null",
            detail=f"this one has {', '.join(f'{f.name}: {f.type}' for f in clock.columns) or 'no columns'}",
            hint="select that column, and declare it as never null; clocks are outside of loops",
        )
    for field in bounds:
        if field.type != clock.columns[0].type:
            raise SchemaError(
                f"column {field.name!r} and the clock do not show the same kind of time",
                detail=f"it is of type {field.type}, the clock is of type {clock.columns[0].type}",
                hint="map one to the type of the other",
            )


def _check_ordered(fields: Iterable[pa.Field]) -> None:
    for field in fields:
        if is_nested(field.type):
            raise SchemaError(
                f"column {field.name!r} is of type {field.type}, whose values have no order here",
                hint="order by columns that are made of what is in it",
            )


def _check_keys(left: Fields, right: Fields) -> None:
    if [(f.type, f.nullable) for f in left] != [(f.type, f.nullable) for f in right]:
        shown = [", ".join(f"{f.name}: {f.type}{'?' if f.nullable else ''}" for f in each) for each in (left, right)]
        raise SchemaError(
            "cannot join on keys of different types",
            detail=f"left {shown[0]}; right {shown[1]} (? if it may be null)",
            hint="map to the same types before arranging",
        )


def _declared(node: ir.Node, fields: Fields) -> ir.Node:
    """The same columns, but for whether they may be null."""
    return node if node.columns == fields else Collection(node).step(linear.Declare(fields)).node


def _declared_nullable(node: ir.Node, names: Iterable[str]) -> ir.Node:
    names = set(names)
    return _declared(node, tuple(field.with_nullable(field.nullable or field.name in names) for field in node.columns))


def fields_of(columns: Types) -> Fields:
    """Fields of named types, never null unless a `pyarrow.Field` says so."""
    pairs = columns.items() if isinstance(columns, Mapping) else columns
    return tuple(each if isinstance(each, pa.Field) else pa.field(each[0], each[1], nullable=False) for each in pairs)
