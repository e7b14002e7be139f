"""Collections: the API in which queries are written by hand.

A `Collection` is a plan for a changing collection of rows with named, typed columns; an `Arrangement` is a plan for a
collection that is indexed by key. Methods return new plans and compute nothing; `Engine.install` runs a plan. Functions
that users pass work on whole columns (dictionaries of Arrow arrays by name), or on rows where a method says so.

Cost: building a plan is independent of the data. Plans are immutable, and equal plans are the same object, which is how
queries come to share arrangements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.columns import match_columns
from ikebana.engine.columns import (
    Types,
    check_alike,
    check_clock,
    check_function,
    check_keys,
    check_known,
    declared,
    declared_nullable,
    fields_of,
    with_step,
)
from ikebana.engine.scopes import entered, in_one_scope, inside
from ikebana.engine.top_k import top_k_rows
from ikebana.errors import SchemaError
from ikebana.operators import arrangement_views, linear, reducers
from ikebana.operators.join import JoinColumns
from ikebana.plan import ir

_loops = itertools.count()


class Collection:
    """A changing collection of rows with named, typed columns."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [field.name for field in self.node.columns]

    # Linear operations.

    def map(self, columns: Types, function: Callable[[linear.Columns], Mapping[str, Any]]) -> Collection:
        """Replace the columns of every row.

        `function` computes the new columns from the old ones, whole columns at a time; `columns` declares the names and
        types of the new ones.

        >>> show(numbers.map({"x": pa.int64()}, lambda c: {"x": pc.add(c["k"], c["v"])}))
        [(11, 1), (21, 1), (32, 1)]
        """
        check_function("map", function)
        return self.step(linear.Map(fields_of(columns), function))

    def select(self, *names: str, **renamed: str) -> Collection:
        """Keep only some columns: those named, and others under a new name (`new=old`).

        >>> numbers.select("v", key="k")
        Collection(v, key)
        """
        pairs = (*((name, name) for name in names), *renamed.items())
        check_known(self.node, (source for _, source in pairs))
        return self.step(linear.Select(pairs))

    def filter(self, predicate: Callable[[linear.Columns], Any]) -> Collection:
        """Keep only rows for which the predicate, a function of whole columns, is true.

        >>> show(numbers.filter(lambda c: pc.greater(c["v"], 10)))
        [(1, 20, 1), (2, 30, 1)]
        """
        check_function("filter", predicate)
        return self.step(linear.Filter(predicate))

    def flat_map(self, columns: Types, function: Callable[[dict[str, Any]], Iterable[Any]]) -> Collection:
        """Replace each row by any number of rows.

        `function` is a plain Python function that gets one row (a dict) and returns rows (tuples or dicts); `columns`
        declares the columns of these rows.

        >>> show(numbers.flat_map({"x": pa.int64()}, lambda row: [(row["v"] + i,) for i in range(row["k"])]))
        [(10, 1), (20, 1), (30, 1), (31, 1)]
        """
        fields = fields_of(columns)
        return self.step(linear.FlatMap(fields, linear.RowByRow(fields, function)))

    def negate(self) -> Collection:
        """Change the sign of every multiplicity.

        >>> show(numbers.concat(numbers.negate()))
        []
        """
        return self.step(linear.Negate())

    def explode(self, keep: Sequence[str], function: Callable[[linear.Columns], Sequence[Any]]) -> Collection:
        """Keep some columns, and multiply the multiplicity of each row by integers, one for each diff lane.

        `function` computes these integers from whole columns: an integer for all rows, or an array, for each lane. This
        is how sums are kept in multiplicities; see `aggregate`.
        """
        check_known(self.node, keep)
        lanes = len(function({f.name: pa.array([], f.type) for f in self.node.columns}))
        return self.step(linear.Explode(function, tuple(keep)), lanes)

    def inspect(self, function: Callable[[Any], object]) -> Collection:
        """Call a function with the changes of each worker as they pass; the collection itself is not changed."""
        return self.step(linear.Inspect(function))

    def declare(self, columns: Types) -> Collection:
        """Declare the same columns with a different nullability."""
        return Collection(declared(self.node, fields_of(columns)))

    def consolidate(self) -> Collection:
        """Add up equal changes before they are passed on. The collection itself is not changed."""
        return self.step(linear.Consolidate())

    def _later(self) -> Collection:
        """Only changes after the query starts, without existing rows (used to build delta joins).

        In a delta join, one path covers all rows that exist when the query starts; see `natural_join`.
        """
        return Collection(ir.make(ir.AfterStart, source=self.node))

    def concat(self, *others: Collection) -> Collection:
        """Add collections with the same columns: multiplicities of equal rows add up.

        >>> show(numbers.concat(numbers))
        [(1, 10, 2), (1, 20, 2), (2, 30, 2)]
        """
        return self._concat(others)

    def with_paths(self, *others: Collection) -> Collection:
        """Like `concat`, where these are all paths of a delta join: the sum follows from the rows at each epoch."""
        return self._concat(others, is_delta_join=True)

    def _concat(self, others: Sequence[Collection], *, is_delta_join: bool = False) -> Collection:
        nodes = in_one_scope([collection.node for collection in (self, *others)])
        for node in nodes[1:]:
            check_alike("concatenate collections", nodes[0], node)
        may_be_null = {field.name for node in nodes for field in node.columns if field.nullable}
        sources = tuple(declared_nullable(node, may_be_null) for node in nodes)
        return Collection(ir.make(ir.Union, sources=sources, is_delta_join=is_delta_join))

    def step(self, step: linear.Step, lanes: int | None = None) -> Collection:
        """Append a linear step of any kind (`ikebana.operators.linear`); a chain of steps is one operator.

        `lanes` is the number of diff lanes after the step, by default the same as before.
        """
        return Collection(with_step(self.node, step, lanes))

    # Arrangements.

    def arrange(self, *key: str) -> Arrangement:
        """Index the collection by key columns, by default by all columns."""
        return self.arrange_by(key or tuple(self.columns))

    def arrange_by(self, key: Sequence[str]) -> Arrangement:
        """Index the collection by these columns; if there are none, all rows are under one key, on one worker.

        The rows of an arrangement with this key are not indexed again: the result is that arrangement.
        """
        check_known(self.node, key)
        node = self.node
        if isinstance(node, ir.AsStream):
            existing_key = [field.name for field in ir.schema_of(node.source).key.fields]
            if existing_key == list(key):
                return Arrangement(node.source)
        return Arrangement(ir.make(ir.Arrange, source=node, key=tuple(key)))

    def _arranged_alike(self, other: Collection, key: Sequence[str]) -> tuple[Arrangement, Arrangement]:
        """Both collections, indexed by the same columns with the same nullability, on which the index depends."""
        both = (self, other)
        for side in both:
            check_known(side.node, key)
        may_be_null = {field.name for side in both for field in side.node.columns if field.nullable} & set(key)
        left, right = (Collection(declared_nullable(side.node, may_be_null)).arrange_by(key) for side in both)
        return left, right

    def join(self, other: Collection, on: str | Sequence[str]) -> Collection:
        """Join two collections: pairs of rows that are equal in the columns `on`.

        The result has the columns `on`, then the other columns of this collection, then those of `other`.

        >>> show(numbers.join(numbers.select("k", w="v"), on="k"))
        [(1, 10, 10, 1), (1, 10, 20, 1), (1, 20, 10, 1), (1, 20, 20, 1), (2, 30, 30, 1)]
        """
        left, right = self._arranged_alike(other, (on,) if isinstance(on, str) else tuple(on))
        return left.join(right)

    def half_join(self, index: Arrangement, *, on: Sequence[str] | None = None, strict: bool = False) -> Collection:
        """A half join: extend each change by the rows that `index` has for its key at that time; for delta joins.

        Unlike with `join`, changes of `index` do not cause changes of the result; see `natural_join`. The paths of a
        delta join are added up by `with_paths`.

        `index`: an arrangement, whose value columns are added to the result.
        `on`: the columns of this collection to look up, by default those named like the key columns of `index`.
        `strict`: look up only what `index` had strictly before the time of the change.

        Inside a loop, a match may be due at a later round. Looking up that match in another index meets the rows that
        the index has at the later round.
        """
        fields = ir.schema_of(index.node).key.fields
        key = tuple(field.name for field in fields) if on is None else tuple(on)
        check_known(self.node, key)
        source, index_node = in_one_scope([self.node, index.node])
        may_be_null = {name for name, field in zip(key, fields, strict=True) if field.nullable}
        source = declared_nullable(source, may_be_null)
        known = {field.name: field for field in source.columns}
        check_keys(tuple(known[name] for name in key), fields)
        return Collection(ir.make(ir.Lookup, source=source, index=index_node, key=key, strict=strict))

    def extend(self, name: str, indexes: Sequence[ExtensionIndex], keep: Sequence[str] | None = None) -> Collection:
        """Extend each change by the values that all of several indexes have for it at that time.

        The values become the column `name`; `keep` are the columns of the result, by default all. Multiplicities are
        those of a join with all indexes. The index that has the fewest values for a row proposes, the others validate:
        a row costs the time that the smallest index takes, and no intermediate result is larger
        (`ikebana.operators.extend`, `ikebana.engine.extension`). Like with `lookup`, changes of the indexes do not
        cause changes of the result. Nothing is guaranteed for indexes with rows of negative multiplicity.

        >>> by_k, by_v = numbers.arrange("k"), numbers.select(x="k", v="v").arrange("x")
        >>> pairs = numbers.select(k="k", x="k").distinct()
        >>> show(pairs.extend("both", [ExtensionIndex(by_k, "k"), ExtensionIndex(by_v, "x")]))
        [(1, 1, 10, 1), (1, 1, 20, 1), (2, 2, 30, 1)]
        """
        check_known(self.node, (use.on for use in indexes))
        source, *others = in_one_scope([self.node, *(use.index.node for use in indexes)])
        known = {field.name: field for field in source.columns}
        value = ir.schema_of(others[0]).val.fields
        for use, node in zip(indexes, others, strict=True):
            check_keys((known[use.on],), ir.schema_of(node).key.fields)
            check_keys(value, ir.schema_of(node).val.fields)
        if (
            source.scope
            or len(value) != 1
            or any(field.nullable for field in (*value, *(known[u.on] for u in indexes)))
        ):
            raise SchemaError(
                f"cannot extend rows by a column {name!r}",
                detail="an index must have one value column; it and the key must not be nullable, nor inside a loop",
            )
        return Collection(
            ir.make(
                ir.Extend,
                source=source,
                indexes=tuple(others),
                keys=tuple(use.on for use in indexes),
                strict=tuple(use.strict for use in indexes),
                exists=tuple(use.exists for use in indexes),
                name=name,
                keep=tuple([*self.columns, name] if keep is None else keep),
            )
        )

    def semijoin(self, keys: Collection) -> Collection:
        """Keep only rows that match a row of `keys` in all columns of `keys`.

        >>> show(numbers.semijoin(numbers.filter(lambda c: pc.equal(c["v"], 10)).select("k")))
        [(1, 10, 1), (1, 20, 1)]
        """
        left, right = self._arranged_alike(keys.distinct(), keys.columns)
        return Collection(declared(left.join(right).select(*self.columns).node, self.node.columns))

    def antijoin(self, keys: Collection) -> Collection:
        """Keep only rows that match no row of `keys` in the columns of `keys`.

        >>> show(numbers.antijoin(numbers.filter(lambda c: pc.equal(c["v"], 10)).select("k")))
        [(2, 30, 1)]
        """
        return self.concat(self.semijoin(keys).negate())

    def expire(self, clock: Collection, *, valid_from: str | None = None, valid_until: str | None = None) -> Collection:
        """Keep only rows that are valid now: those with `valid_from <= now < valid_until`.

        `clock`: a collection with one row and one column, which is `now`: a timestamp, a date or an integer, not
        nullable. It must never go back. Advancing it takes time in proportion to the rows that become valid or invalid,
        not to all rows.
        `valid_from`, `valid_until`: columns of the same type as the clock. A null, or a column that is not given, is no
        bound.

        To keep rows that are not older than an hour (`at >= now - hour`), let them be valid until `at + hour` plus one
        microsecond. See `ikebana.operators.expire`.

        >>> ten = constant(pa.table({"now": [10]}, pa.schema([pa.field("now", pa.int64(), nullable=False)])))
        >>> show(numbers.expire(ten, valid_from="k", valid_until="v"))
        [(1, 20, 1), (2, 30, 1)]
        """
        named = [name for name in (valid_from, valid_until) if name is not None]
        check_known(self.node, named)
        check_clock(clock.node, [field for field in self.node.columns if field.name in named])
        if self.node.scope:
            raise SchemaError("rows cannot expire inside a loop", hint="call expire() before the rows enter the loop")
        bounds = {"valid_from": valid_from or "", "valid_until": valid_until or ""}
        return Collection(ir.make(ir.Expire, source=self.node, clock=clock.node, **bounds))

    # Reductions.

    def reduce(
        self,
        by: str | Sequence[str],
        columns: Types,
        function: Callable[[tuple[Any, ...], list[tuple[tuple[Any, ...], int]]], Iterable[tuple[Any, int]]],
    ) -> Collection:
        """Compute rows for each key with a Python function of the key and its values.

        `by`: the key columns.
        `columns`: the value columns of the result, which come after the key columns.
        `function(key, values)`: `values` is a list of pairs (value, multiplicity); the result is an iterable of such
        pairs. Keys and values are tuples, with an entry for each column.

        >>> spread = lambda key, values: [(values[-1][0][0] - values[0][0][0], 1)]
        >>> show(numbers.reduce("k", {"spread": pa.int64()}, spread))
        [(1, 10, 1), (2, 0, 1)]
        """
        return self.reduce_by(by, reducers.PythonReducer(fields_of(columns), function))

    def distinct(self, *key: str) -> Collection:
        """Keep each row of positive multiplicity exactly once.

        The rows are indexed by the columns `key`, by default by all columns. Further operations on the same key, such
        as a join, use that index.

        >>> show(numbers.select("k").distinct())
        [(1, 1), (2, 1)]
        """
        return self.reduce_by(key or self.columns, reducers.DISTINCT)

    def threshold(self, multiplicity: Callable[[Any], Any]) -> Collection:
        """Replace the multiplicity of each row by a function of it; the function gets an array of multiplicities.

        >>> show(numbers.select("k").threshold(lambda count: count // 2))
        [(1, 1)]
        """
        return self.reduce_by(self.columns, reducers.Threshold(multiplicity))

    def count(self, by: str | Sequence[str], name: str = "count") -> Collection:
        """Count the rows of each key; `name` is the name of the column with the count.

        >>> show(numbers.count("k"))
        [(1, 2, 1), (2, 1, 1)]
        """
        if set(self.columns) == set([by] if isinstance(by, str) else by):
            return self.reduce_by(by, reducers.Count(name))  # the index by key has the counts already
        return self.aggregate(by, {name: pa.int64()}, linear.ColumnLanes(()), reducers.Sums((0,)))

    def sum(self, by: str | Sequence[str], column: str, name: str = "sum") -> Collection:
        """Add up a column of integers for each key; `name` is the name of the column with the sum.

        >>> show(numbers.sum("k", "v"))
        [(1, 30, 1), (2, 30, 1)]
        """
        check_known(self.node, [column])
        return self.aggregate(by, {name: pa.int64()}, linear.ColumnLanes((column,)), reducers.Sums((1,)))

    def aggregate(
        self,
        by: str | Sequence[str],
        columns: Types,
        lanes: Callable[[linear.Columns], Sequence[Any]],
        finish: Callable[[Any], Sequence[Any]],
    ) -> Collection:
        """Compute linear aggregates for each key. A change costs one addition, however large its group is.

        `by`: the key columns.
        `columns`: the value columns of the result.
        `lanes`: computes, from whole columns, integers to be added up for each row, the first of them 1 (the count).
        `finish`: computes the value columns from the sums.
        """
        key = (by,) if isinstance(by, str) else tuple(by)
        return self.explode(key, lanes).reduce_by(key, reducers.LinearAggregate(fields_of(columns), finish))

    def min(self, by: str | Sequence[str], *columns: str, levels: int | None = None) -> Collection:
        """Keep, for each key, the row with the least value of `columns`, by default of all columns not in the key.

        See `top_k` for `levels`.

        >>> show(numbers.min("k"))
        [(1, 10, 1), (2, 30, 1)]
        """
        return top_k_rows(self, by, 1, columns, greatest=False, distinct=True, levels=levels)

    def max(self, by: str | Sequence[str], *columns: str, levels: int | None = None) -> Collection:
        """Keep, for each key, the row with the greatest value of `columns`, by default of all columns not in the key.

        See `top_k` for `levels`.

        >>> show(numbers.max("k"))
        [(1, 20, 1), (2, 30, 1)]
        """
        return top_k_rows(self, by, 1, columns, greatest=True, distinct=True, levels=levels)

    def top_k(self, by: str | Sequence[str], k: int, *columns: str, levels: int | None = None) -> Collection:
        """Keep, for each key, the `k` rows with the greatest values of `columns`, by default of all others.

        A change costs far less than reading its group. If the other columns fit into 64 bits together, the index has
        them in order, and only its ends are read. Otherwise (strings, for example) rows compete in two levels: first
        within one of 1024 buckets (fewer for a large `k`), then with the winners of the other buckets.

        `levels` sets the number of levels instead: 1 if all groups are small (two levels index rows twice, and cannot
        share the index by key); 3 for groups of tens of millions of rows, or groups of which many rows change at once;
        2 for large groups of numbers inside loops, where whole groups are read.

        >>> show(numbers.top_k("k", 1))
        [(1, 20, 1), (2, 30, 1)]
        """
        return top_k_rows(self, by, k, columns, greatest=True, distinct=False, levels=levels)

    def reduce_by(self, by: str | Sequence[str], reducer: reducers.Reducer) -> Collection:
        """Compute rows for each key with a reducer (`ikebana.operators.reducers`)."""
        key = (by,) if isinstance(by, str) else tuple(by)
        return self.arrange_by(key).reduce(reducer).rows()

    # Loops.

    def iterate(self, body: Callable[[Collection], Collection], rounds: int | None = None) -> Collection:
        """Apply `body` to the collection repeatedly, until nothing changes, or for a number of rounds.

        >>> halve = lambda c: {"n": pc.divide(c["n"], 2)}
        >>> show(numbers.select(n="v").iterate(lambda x: x.concat(x.map({"n": pa.int64()}, halve)).distinct()))
        [(0, 1), (1, 1), (2, 1), (3, 1), (5, 1), (7, 1), (10, 1), (15, 1), (20, 1), (30, 1)]
        """
        return iterate(lambda variables: {"it": body(variables["it"])}, {"it": self}, rounds)["it"]

    def enter(self, loop: Collection) -> Collection:
        """Bring the collection into the loop (or loops) that another collection is inside."""
        return Collection(inside(self.node, loop.node.scope))

    def enter_at(self, loop: Collection, delay: Callable[[linear.Columns], Any]) -> Collection:
        """Bring the collection into the innermost loop of another, each row at the round that `delay` computes.

        `delay` is a function of whole columns. Useful if some rows should take effect only after others, such as long
        edges after short ones in a search for shortest paths.
        """
        node = self.node
        *outer, last = loop.node.scope[len(node.scope) :]
        for id_ in outer:
            node = entered(node, id_)
        return Collection(ir.make(ir.EnterAt, source=node, loop=last, delay=delay))

    def __repr__(self) -> str:
        return f"Collection({', '.join(self.columns)})"


class Arrangement:
    """A collection that is indexed by key: what queries share."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node

    def rows(self) -> Collection:
        """Return the collection that is indexed."""
        return Collection(ir.make(ir.AsStream, source=self.node))

    def enter(self, loop: Collection) -> Arrangement:
        """Bring the index into the loop (or loops) that a collection is inside. Nothing is copied."""
        return Arrangement(inside(self.node, loop.node.scope))

    # Views of the same index: nothing is copied, and functions are called whenever the index is read.

    def filter(self, predicate: Callable[[linear.Columns], Any]) -> Arrangement:
        """Keep only rows for which the predicate, a function of whole columns, is true.

        The index is shared, not copied; the predicate is called whenever rows are read.

        >>> show(numbers.arrange("k").filter(lambda c: pc.greater(c["v"], 10)).rows())
        [(1, 20, 1), (2, 30, 1)]
        """
        return self._view(arrangement_views.FilterView(predicate))

    def map(self, columns: Types, function: Callable[[linear.Columns], Mapping[str, Any]]) -> Arrangement:
        """Replace the value columns; keys stay the same. The index is shared, not copied.

        `function` computes the new value columns from all columns; `columns` declares their names and types.

        >>> show(numbers.arrange("k").map({"w": pa.int64()}, lambda c: {"w": pc.negate(c["v"])}).rows())
        [(1, -20, 1), (1, -10, 1), (2, -30, 1)]
        """
        return self._view(arrangement_views.ProjectView(fields_of(columns), function))

    def select(self, *names: str, **renamed: str) -> Arrangement:
        """Keep some value columns, or columns under a new name (`new=old`). The index is shared, not copied.

        >>> show(numbers.arrange("k").select(w="v").rows())
        [(1, 10, 1), (1, 20, 1), (2, 30, 1)]
        """
        pairs = (*((name, name) for name in names), *renamed.items())
        check_known(self.node, (source for _, source in pairs))
        known = {field.name: field for field in self.node.columns}
        fields = tuple(known[source].with_name(name) for name, source in pairs)
        return self._view(arrangement_views.ProjectView(fields, arrangement_views.Keep(pairs)))

    def negate(self) -> Arrangement:
        """Change the sign of every multiplicity. The index is shared, not copied."""
        return self._view(arrangement_views.NegateView())

    def _view(self, wrapper: arrangement_views.ViewStep) -> Arrangement:
        return Arrangement(ir.make(ir.ArrangementView, source=self.node, wrapper=wrapper))

    def join(self, other: Arrangement) -> Collection:
        """Join two arrangements on their keys.

        The result has the key columns, then the value columns of this arrangement, then those of `other`.
        """
        left, right = ir.schema_of(self.node), ir.schema_of(other.node)
        keys = [field.name for field in left.key.fields]
        left_values = [field.name for field in left.val.fields]
        right_values = [field.name for field in right.val.fields]
        check_keys(left.key.fields, right.key.fields)
        clash = {*keys, *left_values} & set(right_values)
        if clash:
            raise SchemaError(
                f"both sides of a join have a column {min(clash)!r}",
                hint="rename one of them first: select(..., new=old)",
            )
        pairs = tuple((name, name) for name in (*keys, *left_values))
        result = JoinColumns((*keys, *left_values, *right_values), pairs, tuple((name, name) for name in right_values))
        left_node, right_node = in_one_scope([self.node, other.node])
        return Collection(ir.make(ir.Join, left=left_node, right=right_node, result=result))

    def reduce(self, reducer: reducers.Reducer) -> Arrangement:
        """Compute rows for each key with a reducer (`ikebana.operators.reducers`), indexed by the same key."""
        return Arrangement(ir.make(ir.Reduce, source=self.node, reducer=reducer))


@dataclass(frozen=True, eq=False)
class ExtensionIndex:
    """An index by which `Collection.extend` extends rows: it has one key column and one value column."""

    index: Arrangement
    on: str
    """The column of the rows that is looked up."""
    strict: bool = False
    """Whether to look up only what the index had strictly before the time of a change."""
    exists: bool = False
    """Whether a value counts once, whatever its multiplicity."""


def constant(table: pa.Table) -> Collection:
    """Return a collection of the rows of a table, which never changes.

    The rows are copied into the plan, so there should be few.

    >>> show(constant(pa.table({"k": [1, 2, 2]})).join(numbers, on="k"))
    [(1, 10, 1), (1, 20, 1), (2, 30, 2)]
    """
    fields = tuple(field.remove_metadata() for field in table.schema)
    all_rows = pa.array(np.arange(table.num_rows))
    arrays = tuple(array.take(all_rows) for array in match_columns(table, fields))
    return Collection(ir.make(ir.Constant, fields=fields, arrays=arrays, rows=table.num_rows))


def iterate(
    body: Callable[[dict[str, Collection]], Mapping[str, Collection]],
    initial: Mapping[str, Collection],
    rounds: int | None = None,
) -> dict[str, Collection]:
    """Compute mutually recursive variables: a loop.

    `body` maps the variables of one round to those of the next; it is applied to all of them at once, until nothing
    changes. `initial` has the variables of the first round. `rounds` limits the number of rounds.

    Collections from outside that the body uses enter the loop by themselves. A loop inside another loop belongs to the
    scope of its initial collections: if these are from outside of the outer loop, `enter` them first.
    """
    if rounds is not None and rounds <= 0:
        return dict(initial)
    loop = f"loop {next(_loops)}"  # a temporary name, while the body is built: see `ikebana.plan.ir`
    starts = in_one_scope([start.node for start in initial.values()])
    variables = {
        name: ir.make(ir.LoopVariable, name=name, loop=loop, initial=entered(start, loop))
        for name, start in zip(initial, starts, strict=True)
    }
    next_round = body({name: Collection(node) for name, node in variables.items()})
    if next_round.keys() != initial.keys():
        raise SchemaError(
            f"the body of a loop returned {sorted(next_round)}",
            detail=f"the variables are {sorted(initial)}",
            hint="return a collection for each variable",
        )
    results = tuple(_next_variable(variable, next_round[name].node) for name, variable in variables.items())
    node = ir.make(ir.Loop, id=loop, variables=tuple(variables.values()), results=results, rounds=rounds)
    return {
        name: Collection(ir.make(ir.Leave, source=result, loop=node))
        for name, result in zip(initial, node.results, strict=True)
    }


def _next_variable(variable: ir.LoopVariable, result: ir.Node) -> ir.Node:
    """The result of a loop's body for a variable, checked to be a replacement for it."""
    result = inside(result, variable.scope)
    check_alike(f"replace variable {variable.name!r} of a loop by rows", variable, result)
    for before, after in zip(variable.columns, result.columns, strict=True):
        if after.nullable and not before.nullable:
            raise SchemaError(
                f"column {after.name!r} of variable {variable.name!r} is nullable after a round, but not at the start",
                hint="declare the initial column nullable: declare([pyarrow.field(..., nullable=True), ...])",
            )
    return declared(result, variable.columns)
