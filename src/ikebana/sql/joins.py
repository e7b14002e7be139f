"""Inner joins of any number of parts, planned for sharing.

Equality conditions make *classes* of columns that agree; a path of lookups carries one column for each class. A part
can be looked up by those of its columns whose class is known already:

- by its *key*, in the index that a table maintains anyway, or that a reduction has left: filters and computed columns
  are applied to what is found, and further equalities are checked then;
- by other columns of a table that has a key: in an index of these columns and the key alone, which all queries share,
  and then by key;
- by anything else: in an index of the part's own rows.

Several parts are a *delta join*: for each part, its changes are looked up in the others, one after the other, and
nothing in between is indexed. The first part drives, one from which most others are found by key: what the
others have when the query is installed meets only later changes of it. Lookups by key go first, of these the ones that
filter.

Two parts at a time are joined, through indexes of both, inside loops (`ikebana.engine.collection.natural_join` says
why), and where rows of a stream find all other parts by key. Nobody else has an index of what is made of a stream, so
nothing could be shared; and what is left of its rows after each step, which is never more than before, is indexed once,
rather than all of them for every other part.

Not guaranteed: that conditions are evaluated in the order in which they were written, but for AND within one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ikebana.engine.collection import Arrangement, Collection
from ikebana.expressions import Column, Expression, Literal
from ikebana.expressions.core.builders import equal
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.sql.relation import (
    BINDING_ID,
    Relation,
    SourceTable,
    column_of,
    columns_of,
    from_collection,
    substituted,
    unique_name,
)
from ikebana.sql.steps import Named, filtered, not_null, projected, seen

ANY = Literal(pa.bool_(), False, True)
"""What stands where it does not matter."""


class InnerJoin:
    """Parts, and the conditions on which they are joined.

    Each attribute of a part is a column of the join (`columns`), by a name that no other has. Conditions are
    expressions over these.
    """

    def __init__(self, parts: Sequence[Relation]) -> None:
        self._parts = list(parts)
        self.columns: dict[int, Column] = {}
        self._outputs: dict[str, tuple[int, Expression]] = {}  # the part of a column, and what it is there
        self._residual: list[Expression] = []
        self._same: dict[str, str] = {}
        self._reserved = {name for part in parts for name in part.source.columns}  # the names in indexes of parts
        self._bindings = self._bound_columns()
        for name in self._bindings[1:]:
            self._unite(self._bindings[0], name)
        for at, part in enumerate(parts):
            for attribute, output in part.outputs.items():
                self.columns[attribute] = self._column(at, output, part.names[attribute])

    def _bound_columns(self) -> list[str]:
        """The binding columns of the parts: only rows of the same binding are joined."""
        bindings = ((at, part.binding) for at, part in enumerate(self._parts))
        return [self._column(at, binding, BINDING_ID).name for at, binding in bindings if binding is not None]

    def _column(self, at: int, output: Expression, name: str) -> Column:
        """One more column of the join: an expression over the source of a part."""
        column = Column(output.type, output.nullable, unique_name(name, {*self._outputs, *self._reserved}))
        self._outputs[column.name] = at, output
        return column

    def require(self, condition: Expression) -> None:
        """A condition on the columns of the join."""
        owners = self._owners(condition)
        if len(owners) == 1:
            (at,) = owners
            self._parts[at] = self._parts[at].where([self._inside(condition)])
        else:
            self._residual.append(condition)

    def require_equal(self, left: Expression, right: Expression) -> None:
        """Two expressions on the columns of the join must be equal."""
        owners = [self._owners(each) for each in (left, right)]
        if owners[0] == owners[1] or any(len(each) != 1 for each in owners) or left.type != right.type:
            self.require(equal(left, right))
        else:
            self._unite(*(self._named(each) for each in (left, right)))

    def _owners(self, expression: Expression) -> set[int]:
        return {self._outputs[name][0] for name in expression.columns}

    def _inside(self, expression: Expression) -> Expression:
        """An expression on the columns of one part, over the columns of its source."""
        return substituted(expression, {name: self._outputs[name][1] for name in expression.columns})

    def _named(self, expression: Expression) -> str:
        """The column of the join that an expression on the columns of one part is."""
        if isinstance(expression, Column):
            return expression.name
        (at,) = self._owners(expression)
        return self._column(at, self._inside(expression), "key").name

    def _unite(self, one: str, two: str) -> None:
        first, second = self._class(one), self._class(two)
        if first != second:
            self._same[second] = first

    def _class(self, name: str) -> str:
        """The class of a column: the name of one of those that agree."""
        while name in self._same:
            name = self._same[name]
        return name

    def result(self, attributes: Sequence[int], names: Mapping[int, str]) -> Relation:
        """The join, with some of the attributes."""
        pairs: list[tuple[int, str]] = []
        for each in attributes:
            pairs.append((each, unique_name(names[each], [name for _, name in pairs])))
        wanted = [(BINDING_ID, name) for name in self._bindings[:1]] + [
            (n, self.columns[each].name) for each, n in pairs
        ]
        wanted = wanted or [("any", self._any_column())]
        classes = {name: self._class(name) for name in self._outputs}
        residual = [self._of_classes(each, classes) for each in self._residual]
        rows = _Paths(self._sides(classes), residual, {classes[name] for _, name in wanted}).rows()
        columns = columns_of(rows.node.columns)
        named = tuple((name, columns[classes[column]]) for name, column in wanted)
        return from_collection(projected(rows, named), pairs, names)

    def _any_column(self) -> str:
        """A column where only the number of rows matters."""
        return next(iter(self._outputs), None) or self._column(0, ANY, "any").name

    def _of_classes(self, condition: Expression, classes: Mapping[str, str]) -> Expression:
        columns = {name: self._outputs[name][1] for name in condition.columns}
        return substituted(
            condition, {name: Column(each.type, each.nullable, classes[name]) for name, each in columns.items()}
        )

    def _sides(self, classes: Mapping[str, str]) -> list[_Side]:
        """The parts, each with one column for each class; of several that agree the others are filters."""
        sides = []
        for at, part in enumerate(self._parts):
            columns: dict[str, Expression] = {}
            agree = []
            for name, (owner, output) in self._outputs.items():
                if owner != at:
                    continue
                known = columns.setdefault(classes[name], output)
                if known != output:
                    agree.append(equal(known, output))
            sides.append(_Side(part.where(agree), columns))
        return sides


@dataclass(frozen=True, eq=False)
class _Side:
    """A part of a join: what the classes are in it, over its source."""

    part: Relation
    columns: Mapping[str, Expression]

    @property
    def table(self) -> SourceTable | None:
        """The table whose rows it reads, if that has an index by key."""
        table = self.part.table
        return table if table is not None and table.index is not None else None

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns of the source by which it is indexed already, no two rows agreeing in them."""
        return self.table.key if self.table is not None else self.part.unique

    @property
    def index(self) -> Arrangement:
        """The index by key."""
        return self.part.source.arrange_by(self.key or ())

    def by_source(self, classes: Sequence[str]) -> dict[str, str]:
        """For columns of the source, the class that they are of as they are."""
        plain = {each: self.columns[each] for each in classes if each in self.columns}
        return {column.name: each for each, column in plain.items() if isinstance(column, Column)}

    def key_classes(self, known: Sequence[str]) -> tuple[str, ...] | None:
        """The classes of the key, if all of them are known."""
        found = self.by_source(known)
        if self.key is None or not all(name in found for name in self.key):
            return None
        return tuple(found[name] for name in self.key)


@dataclass(frozen=True, eq=False)
class _Probe:
    """An index, and the columns of a path by which it is looked up; conditions and columns of what is found.

    What may raise is not computed in place, where rows that do not concern the query would be asked about too: then the
    index gives the columns that it is made of, and `filters` and `values` are computed afterwards.
    """

    index: Arrangement
    key: tuple[str, ...]
    filters: tuple[Expression, ...] = ()
    values: Named | None = None

    def finished(self, rows: Collection, known: Iterable[str]) -> Collection:
        """What was found, with the columns that were known before and the probe's own."""
        if self.values is None:
            return rows
        columns = columns_of(rows.node.columns)
        kept = tuple((name, columns[name]) for name in known)
        return projected(filtered(rows, self.filters), (*kept, *self.values))


@dataclass(eq=False)
class _Path:
    """Rows found so far, with a column for each class that is still needed; which parts they are of; what remains."""

    rows: Collection
    joined: set[int]
    pending: list[Expression]

    @property
    def known(self) -> set[str]:
        """The classes that have a value."""
        return set(self.rows.columns)


class _Paths:
    """How a join of sides is computed."""

    def __init__(self, sides: Sequence[_Side], residual: Sequence[Expression], wanted: set[str]) -> None:
        self._sides, self._residual, self._wanted = sides, residual, wanted

    def rows(self) -> Collection:
        """The rows of the join, a column for each class that is wanted."""
        in_loop = any(side.part.source.node.scope for side in self._sides)
        if in_loop or len(self._sides) == 1:
            return self._pairwise(0)
        order = self._order()
        if self._is_stream(order[0]) and not self._not_by_key(order[0]):
            return self._pairwise(order[0])
        paths = [self._followed(order, at) for at in range(len(order))]
        return paths[0].concat(*(projected_alike(each, paths[0]) for each in paths[1:]))

    # In which order.

    def _order(self) -> list[int]:
        """The sides, the one that drives first."""

        def cost(at: int) -> tuple[bool, int]:
            return not self._is_stream(at), self._not_by_key(at)

        first = min(range(len(self._sides)), key=cost)
        return [first, *(at for at in range(len(self._sides)) if at != first)]

    def _is_stream(self, at: int) -> bool:
        """Whether a side is made of streams: there is nothing of it when the query is installed."""
        return any(isinstance(each, ir.Source) and each.is_stream for each in walk(self._sides[at].part.source.node))

    def _not_by_key(self, start: int) -> int:
        """How many sides a path from one of them would not look up by key."""
        joined, known, count = {start}, set(self._sides[start].columns), 0
        while len(joined) < len(self._sides):
            at = self._next(joined, known)
            count += self._sides[at].key_classes(self._shared(at, known)) is None
            joined.add(at)
            known |= self._sides[at].columns.keys()
        return count

    def _next(self, joined: set[int], known: set[str]) -> int:
        """The side to be looked up next: rather by columns than not, by key, one that leaves fewer rows."""
        waiting = [at for at in range(len(self._sides)) if at not in joined]

        def rank(at: int) -> tuple[bool, bool, int]:
            shared = self._shared(at, known)
            return not shared, self._sides[at].key_classes(shared) is None, self._promise(at, shared, waiting)

        return min(waiting, key=rank)

    def _promise(self, at: int, shared: Sequence[str], waiting: Sequence[int]) -> int:
        """Whether a side is likely to leave fewer rows: least if it says so, most if it does not even lead to one."""
        side = self._sides[at]
        if side.part.filters or len(shared) > len(side.key or shared):
            return 0
        if side.table is None and side.key is not None:
            return 1  # what a subquery has left
        others = (self._sides[each] for each in waiting if each != at)
        return 2 if any(each.part.filters and each.key_classes(list(side.columns)) for each in others) else 3

    def _shared(self, at: int, known: set[str]) -> list[str]:
        """The classes of a side that are known."""
        return [each for each in self._sides[at].columns if each in known]

    # Paths.

    def _followed(self, order: Sequence[int], at: int) -> Collection:
        """The changes of one side, looked up in all the others; in those before it in the order strictly."""
        path = self._start(order[at], later=at > 0)
        before = set(order[:at])
        while len(path.joined) < len(order):
            other = self._next(path.joined, path.known)
            for probe in self._probes(other, path):
                known = path.rows.columns
                found = not_null(path.rows, probe.key).lookup(probe.index, on=probe.key, strict=other in before)
                path.rows = probe.finished(found, known)
            self._settle(path, other)
        return path.rows

    def _pairwise(self, start: int) -> Collection:
        """Two sides at a time, both indexed."""
        path = self._start(start)
        while len(path.joined) < len(self._sides):
            other = self._next(path.joined, path.known)
            (probe,) = self._probes(other, path, at_once=True)
            known = path.rows.columns
            found = not_null(path.rows, probe.key).arrange_by(probe.key).join(probe.index)
            path.rows = probe.finished(found, known)
            self._settle(path, other)
        return path.rows

    def _start(self, at: int, *, later: bool = False) -> _Path:
        """The rows of a side; `later`, of all but the driving one, only what changes after the query has started."""
        side = self._sides[at]
        named = tuple(
            (each, side.columns[each]) for each in side.columns if self._is_needed(each, {at}, self._residual)
        )
        part = replace(side.part, source=side.part.source.later()) if later else side.part
        path = _Path(part.project(named or _ANY_ROW), {at}, list(self._residual))
        self._filter(path)
        return path

    def _is_needed(self, class_: str, joined: set[int], pending: Sequence[Expression]) -> bool:
        """Whether a class is of use once some sides have been joined."""
        waiting = (side for at, side in enumerate(self._sides) if at not in joined)
        return (
            class_ in self._wanted
            or any(class_ in each.columns for each in pending)
            or any(class_ in side.columns for side in waiting)
        )

    def _probes(self, at: int, path: _Path, *, at_once: bool = False) -> list[_Probe]:
        """How a side is looked up; `at_once` in a single index."""
        side, shared = self._sides[at], self._shared(at, path.known)
        key = side.key_classes(shared)
        if key is not None:
            return [self._by_key(side, key, at, path)]
        columns = side.by_source(shared)
        if side.table is not None and columns and not at_once:
            by = tuple(field.name for field in side.table.rows.node.columns if field.name in columns)
            return self._through_key(side, by, columns, at, path)
        return [_Probe(self._indexed(side, shared, at, path), tuple(shared))]

    def _values(self, side: _Side, key: Sequence[str], at: int, path: _Path) -> Named:
        """What is to be found in a side: what is needed later, and what must agree with what is known."""
        joined = {*path.joined, at}
        found = []
        for class_, expression in side.columns.items():
            if class_ in key:
                continue
            if class_ in path.known:
                found.append((_again(class_), expression))
            elif self._is_needed(class_, joined, path.pending):
                found.append((class_, expression))
        return tuple(found)

    def _by_key(self, side: _Side, key: tuple[str, ...], at: int, path: _Path) -> _Probe:
        """A look-up in a side's own index by key, filtered and projected in place unless that may raise."""
        filters, values = side.part.filters, self._values(side, key, at, path)
        expressions = [*filters, *(each for _, each in values)]
        if not any(each.can_raise for each in expressions):
            return _Probe(seen(side.index, filters, values), key)
        fields = {field.name: field for field in side.part.source.node.columns}
        columns: dict[str, Expression] = {
            name: Column(fields[name].type, False, class_) for name, class_ in zip(side.key or (), key, strict=True)
        }
        found: dict[str, str] = {}
        for name in sorted({name for each in expressions for name in each.columns} - columns.keys()):
            new = unique_name(f"found {name}", {*path.rows.columns, *key, *found})
            found[new], columns[name] = name, column_of(fields[name].with_name(new))
        return _Probe(
            side.index.select(**found),
            key,
            tuple(substituted(each, columns) for each in filters),
            tuple((name, substituted(each, columns)) for name, each in values),
        )

    def _through_key(
        self, side: _Side, by: tuple[str, ...], classes: Mapping[str, str], at: int, path: _Path
    ) -> list[_Probe]:
        """Through an index of some columns and the key alone, then by key."""
        table = side.table
        assert table is not None
        rest = [name for name in table.key if name not in by]
        narrow = not_null(table.rows.select(*by, *rest), by).arrange(*by)
        found = {name: f"key {name}" for name in rest}
        first = _Probe(narrow.select(**{new: old for old, new in found.items()}), tuple(classes[name] for name in by))
        key = tuple(found.get(name) or classes[name] for name in table.key)
        return [first, self._by_key(side, key, at, path)]

    def _indexed(self, side: _Side, shared: Sequence[str], at: int, path: _Path) -> Arrangement:
        """An index of a side's own rows."""
        named = (*((each, side.columns[each]) for each in shared), *self._values(side, shared, at, path))
        return not_null(side.part.project(named or _ANY_ROW), shared).arrange_by(shared)

    def _settle(self, path: _Path, at: int) -> None:
        """A side has been looked up: check what must agree and what can be decided now, drop what is not needed."""
        path.joined.add(at)
        columns = columns_of(path.rows.node.columns)
        agree = [equal(columns[each], columns[_again(each)]) for each in columns if _again(each) in columns]
        path.rows = filtered(path.rows, agree)
        self._filter(path)

    def _filter(self, path: _Path) -> None:
        """Apply the conditions that can be decided, and drop the columns that are not needed any more."""
        known = path.known
        decided = [each for each in path.pending if each.columns <= known]
        path.pending = [each for each in path.pending if not each.columns <= known]
        columns = list(columns_of(path.rows.node.columns).items())
        kept = [pair for pair in columns if self._is_needed(pair[0], path.joined, path.pending)] or columns[:1]
        path.rows = projected(filtered(path.rows, decided, dict(kept)), tuple(kept))


def _again(class_: str) -> str:
    """What a class is called that was found a second time."""
    return f"{class_} again"


_ANY_ROW: Named = (("any row", ANY),)
"""The columns of rows of which only the number matters."""


def projected_alike(rows: Collection, other: Collection) -> Collection:
    """The columns in the order that another collection has them in."""
    return rows if rows.columns == other.columns else rows.select(*other.columns)
