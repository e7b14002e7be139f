"""Inner joins of any number of relations, planned for sharing.

Equality conditions divide columns into *classes* of equal columns; a path of lookups carries one column for each class.
A relation can be looked up by those of its columns whose class is known already:

- by its *key*, in the index that a table maintains anyway, or that a reduction has left: filters and computed columns
  are applied to the rows found, and further equalities are checked then;
- by other columns of a table that has a key: in an index of these columns and the key alone, which all queries share,
  and then by key;
- by anything else: in an index of the relation's own rows.

Several relations are a *delta join*: the changes of each relation are looked up in the others, one after the other, and
intermediate results are not indexed. The first relation drives the join, one from which most others are found by key:
the existing rows of the others meet only its later changes. Lookups by key come first, of these the ones that filter.

Relations are joined two at a time, through indexes of both, inside loops (`ikebana.engine.collection.natural_join` says
why), and where rows of a stream find all other relations by key. Indexes of what is computed from a stream cannot be
shared with other queries. What remains of its rows after each step, never more than before, is then indexed once,
rather than all of them for every other relation.

Prepared statements: binding columns of different relations are one class, so only rows of the same binding are joined.

Not guaranteed: the order in which conditions are evaluated, except for AND within one of them.
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
from ikebana.sql.expression_steps import Named, filtered, in_place, not_null, projected
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

PLACEHOLDER = Literal(pa.bool_(), False, True)
"""A value for a column that must exist but is not used."""


class InnerJoin:
    """Relations, and the conditions on which they are joined.

    Each attribute of a relation is a column of the join (`columns`), with a unique name. Conditions are expressions
    over these columns; those on columns of several `relations` that are not equalities are `residual`.
    """

    def __init__(self, relations: Sequence[Relation]) -> None:
        self.relations = list(relations)
        self.columns: dict[int, Column] = {}
        self._outputs: dict[str, tuple[int, Expression]] = {}  # a column's relation, and its expression there
        self.residual: list[Expression] = []
        self._same: dict[str, str] = {}
        self._reserved = {name for relation in relations for name in relation.source.columns}  # in their indexes
        self._bindings = self._binding_columns()
        for name in self._bindings[1:]:
            self._unite(self._bindings[0], name)
        for at, relation in enumerate(relations):
            for attribute, output in relation.outputs.items():
                self.columns[attribute] = self._column(at, output, relation.names[attribute])

    def _binding_columns(self) -> list[str]:
        """The binding columns of the relations that depend on parameters."""
        bindings = ((at, relation.binding) for at, relation in enumerate(self.relations))
        return [self._column(at, binding, BINDING_ID).name for at, binding in bindings if binding is not None]

    def _column(self, at: int, output: Expression, name: str) -> Column:
        """Add a column to the join: an expression over the source of a relation."""
        column = Column(output.type, output.nullable, unique_name(name, {*self._outputs, *self._reserved}))
        self._outputs[column.name] = at, output
        return column

    def require(self, condition: Expression) -> None:
        """Add a condition on the columns of the join."""
        owners = self.owners(condition)
        if len(owners) == 1:
            (at,) = owners
            self.relations[at] = self.relations[at].where([self.inside(condition)])
        else:
            self.residual.append(condition)

    def require_equal(self, left: Expression, right: Expression) -> None:
        """Require that two expressions on the columns of the join are equal."""
        owners = [self.owners(left), self.owners(right)]
        if owners[0] == owners[1] or any(len(relations) != 1 for relations in owners) or left.type != right.type:
            self.require(equal(left, right))
        else:
            self._unite(self._name_of(left), self._name_of(right))

    @property
    def has_equalities(self) -> bool:
        """Whether columns of different relations are required to be equal."""
        return bool(self._same)

    def owners(self, expression: Expression) -> set[int]:
        """The relations whose columns an expression uses."""
        return {self._outputs[name][0] for name in expression.columns}

    def inside(self, expression: Expression) -> Expression:
        """An expression on the columns of one relation, over the columns of its source."""
        return substituted(expression, {name: self._outputs[name][1] for name in expression.columns})

    def _name_of(self, expression: Expression) -> str:
        """The column of the join that has the value of an expression on the columns of one relation."""
        if isinstance(expression, Column):
            return expression.name
        (at,) = self.owners(expression)
        return self._column(at, self.inside(expression), "key").name

    def _unite(self, one: str, two: str) -> None:
        """Make the classes of two columns one class."""
        first, second = self._class(one), self._class(two)
        if first != second:
            self._same[second] = first

    def _class(self, name: str) -> str:
        """The class of a column: the name of one of its columns."""
        while name in self._same:
            name = self._same[name]
        return name

    def result(self, attributes: Sequence[int], names: Mapping[int, str]) -> Relation:
        """The join, with some of the attributes."""
        pairs: list[tuple[int, str]] = []
        for attribute in attributes:
            pairs.append((attribute, unique_name(names[attribute], [name for _, name in pairs])))
        outputs = [(BINDING_ID, name) for name in self._bindings[:1]]
        outputs += [(name, self.columns[attribute].name) for attribute, name in pairs]
        outputs = outputs or [("any", self._any_column())]
        classes = {name: self._class(name) for name in self._outputs}
        residual = [self._of_classes(condition, classes) for condition in self.residual]
        rows = _Paths(self._sides(classes), residual, {classes[name] for _, name in outputs}).rows()
        columns = columns_of(rows.node.columns)
        named = tuple((name, columns[classes[column]]) for name, column in outputs)
        return from_collection(projected(rows, named), pairs, names)

    def _any_column(self) -> str:
        """Some column, where only the number of rows matters."""
        return next(iter(self._outputs), None) or self._column(0, PLACEHOLDER, "any").name

    def _of_classes(self, condition: Expression, classes: Mapping[str, str]) -> Expression:
        """A condition over classes in place of columns."""
        outputs = {name: self._outputs[name][1] for name in condition.columns}
        columns = {name: Column(output.type, output.nullable, classes[name]) for name, output in outputs.items()}
        return substituted(condition, columns)

    def _sides(self, classes: Mapping[str, str]) -> list[_Side]:
        """The relations, each with one column for each class; further columns of a class become filters."""
        sides = []
        for at, relation in enumerate(self.relations):
            columns: dict[str, Expression] = {}
            equalities = []
            for name, (owner, output) in self._outputs.items():
                if owner != at:
                    continue
                known = columns.setdefault(classes[name], output)
                if known != output:
                    equalities.append(equal(known, output))
            sides.append(_Side(relation.where(equalities), columns))
        return sides


@dataclass(frozen=True, eq=False)
class _Side:
    """A relation of a join, with its classes as expressions over its source."""

    relation: Relation
    columns: Mapping[str, Expression]

    @property
    def table(self) -> SourceTable | None:
        """The table that the relation reads, if that has an index by key."""
        table = self.relation.table
        return table if table is not None and table.index is not None else None

    @property
    def key(self) -> tuple[str, ...] | None:
        """Columns of the source in which no two rows agree, and by which it is indexed already."""
        return self.table.key if self.table is not None else self.relation.unique

    @property
    def index(self) -> Arrangement:
        """The index by key."""
        return self.relation.source.arrange_by(self.key or ())

    def by_source(self, classes: Sequence[str]) -> dict[str, str]:
        """The columns of the source that are classes without being computed, with their classes."""
        expressions = {class_: self.columns[class_] for class_ in classes if class_ in self.columns}
        return {column.name: class_ for class_, column in expressions.items() if isinstance(column, Column)}

    def key_classes(self, known: Sequence[str]) -> tuple[str, ...] | None:
        """The classes of the key, if all of them are known."""
        classes = self.by_source(known)
        if self.key is None or not all(name in classes for name in self.key):
            return None
        return tuple(classes[name] for name in self.key)


@dataclass(frozen=True, eq=False)
class _Probe:
    """An index, the columns of a path by which it is looked up, and filters and columns of the rows found.

    Expressions that may raise are not computed in place, where they would also be evaluated for rows that the query
    does not read: then the index gives the columns that they use, and `filters` and `values` are computed afterwards.
    """

    index: Arrangement
    key: tuple[str, ...]
    filters: tuple[Expression, ...] = ()
    values: Named | None = None

    def finished(self, rows: Collection, known: Iterable[str]) -> Collection:
        """The rows found, with the columns that were known before and the probe's own."""
        if self.values is None:
            return rows
        columns = columns_of(rows.node.columns)
        before = tuple((name, columns[name]) for name in known)
        return projected(filtered(rows, self.filters), (*before, *self.values))


@dataclass(eq=False)
class _Path:
    """Rows joined so far, with a column for each class still needed; their sides; the conditions not yet checked."""

    rows: Collection
    joined: set[int]
    pending: list[Expression]

    @property
    def known(self) -> set[str]:
        """The classes whose value is known."""
        return set(self.rows.columns)


class _Paths:
    """The computation of a join of sides, as lookup paths or pairwise joins."""

    def __init__(self, sides: Sequence[_Side], residual: Sequence[Expression], required: set[str]) -> None:
        self._sides, self._residual, self._required = sides, residual, required

    def rows(self) -> Collection:
        """The rows of the join, with a column for each required class."""
        in_loop = any(side.relation.source.node.scope for side in self._sides)
        if in_loop or len(self._sides) == 1:
            return self._pairwise(0)
        order = self._order()
        if self._is_stream(order[0]) and not self._not_by_key(order[0]):
            return self._pairwise(order[0])
        paths = [self._followed(order, at) for at in range(len(order))]
        return paths[0].with_paths(*(_in_column_order(path, paths[0]) for path in paths[1:]))

    # The order of sides.

    def _order(self) -> list[int]:
        """The sides, the driving one first."""

        def cost(at: int) -> tuple[bool, int]:
            return not self._is_stream(at), self._not_by_key(at)

        first = min(range(len(self._sides)), key=cost)
        return [first, *(at for at in range(len(self._sides)) if at != first)]

    def _is_stream(self, at: int) -> bool:
        """Whether a side reads streams: it has no rows when the query is installed."""
        nodes = walk(self._sides[at].relation.source.node)
        return any(isinstance(node, ir.Source) and node.is_stream for node in nodes)

    def _not_by_key(self, start: int) -> int:
        """The number of sides that a path from side `start` would not look up by key."""
        joined, known, count = {start}, set(self._sides[start].columns), 0
        while len(joined) < len(self._sides):
            at = self._next(joined, known)
            count += self._sides[at].key_classes(self._shared(at, known)) is None
            joined.add(at)
            known |= self._sides[at].columns.keys()
        return count

    def _next(self, joined: set[int], known: set[str]) -> int:
        """The side to look up next: preferably one with known columns, by key, and selective."""
        waiting = [at for at in range(len(self._sides)) if at not in joined]

        def rank(at: int) -> tuple[bool, bool, int]:
            shared = self._shared(at, known)
            return not shared, self._sides[at].key_classes(shared) is None, self._selectivity(at, shared, waiting)

        return min(waiting, key=rank)

    def _selectivity(self, at: int, shared: Sequence[str], waiting: Sequence[int]) -> int:
        """Estimated selectivity rank; a side of a lower rank is joined earlier."""
        side = self._sides[at]
        if side.relation.filters or len(shared) > len(side.key or shared):
            return 0
        if side.table is None and side.key is not None:
            return 1  # the result of a subquery
        others = [self._sides[number] for number in waiting if number != at]
        leads_to_filter = any(other.relation.filters and other.key_classes(list(side.columns)) for other in others)
        return 2 if leads_to_filter else 3

    def _shared(self, at: int, known: set[str]) -> list[str]:
        """The classes of a side that are known."""
        return [class_ for class_ in self._sides[at].columns if class_ in known]

    # Paths.

    def _followed(self, order: Sequence[int], at: int) -> Collection:
        """The changes of one side, looked up in all others; at strictly earlier times in those before it."""
        path = self._start(order[at], later=at > 0)
        before = set(order[:at])
        while len(path.joined) < len(order):
            other = self._next(path.joined, path.known)
            for probe in self._probes(other, path):
                known = path.rows.columns
                matches = not_null(path.rows, probe.key).half_join(probe.index, on=probe.key, strict=other in before)
                path.rows = probe.finished(matches, known)
            self._settle(path, other)
        return path.rows

    def _pairwise(self, start: int) -> Collection:
        """The join two sides at a time, both indexed."""
        path = self._start(start)
        while len(path.joined) < len(self._sides):
            other = self._next(path.joined, path.known)
            (probe,) = self._probes(other, path, at_once=True)
            known = path.rows.columns
            matches = not_null(path.rows, probe.key).arrange_by(probe.key).join(probe.index)
            path.rows = probe.finished(matches, known)
            self._settle(path, other)
        return path.rows

    def _start(self, at: int, *, later: bool = False) -> _Path:
        """The rows of a side; with `later`, for all but the driving one, only changes after the query has started."""
        side = self._sides[at]
        named = tuple(pair for pair in side.columns.items() if self._is_needed(pair[0], {at}, self._residual))
        relation = side.relation
        if later:
            relation = replace(relation, source=relation.source._later())
        path = _Path(relation.project(named or _ANY_ROW), {at}, list(self._residual))
        self._filter(path)
        return path

    def _is_needed(self, class_: str, joined: set[int], pending: Sequence[Expression]) -> bool:
        """Whether a class is still used once some sides have been joined."""
        waiting = (side for at, side in enumerate(self._sides) if at not in joined)
        return (
            class_ in self._required
            or any(class_ in condition.columns for condition in pending)
            or any(class_ in side.columns for side in waiting)
        )

    # Lookups.

    def _probes(self, at: int, path: _Path, *, at_once: bool = False) -> list[_Probe]:
        """The lookups that find a side's rows, one after the other; with `at_once`, a single one."""
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
        """The columns to look up in a side: classes that are needed later, and a second copy of those known already."""
        joined = {*path.joined, at}
        values = []
        for class_, expression in side.columns.items():
            if class_ in key:
                continue
            if class_ in path.known:
                values.append((_second(class_), expression))
            elif self._is_needed(class_, joined, path.pending):
                values.append((class_, expression))
        return tuple(values)

    def _by_key(self, side: _Side, key: tuple[str, ...], at: int, path: _Path) -> _Probe:
        """A lookup in a side's own index by key, filtered and projected in place unless that may raise."""
        filters, values = side.relation.filters, self._values(side, key, at, path)
        expressions = [*filters, *(value for _, value in values)]
        if not any(expression.can_raise for expression in expressions):
            return _Probe(in_place(side.index, filters, values), key)
        fields = {field.name: field for field in side.relation.source.node.columns}
        columns: dict[str, Expression] = {
            name: Column(fields[name].type, False, class_) for name, class_ in zip(side.key or (), key, strict=True)
        }
        renamed: dict[str, str] = {}
        for name in sorted({name for expression in expressions for name in expression.columns} - columns.keys()):
            new = unique_name(f"found {name}", {*path.rows.columns, *key, *renamed})
            renamed[new], columns[name] = name, column_of(fields[name].with_name(new))
        return _Probe(
            side.index.select(**renamed),
            key,
            tuple(substituted(condition, columns) for condition in filters),
            tuple((name, substituted(value, columns)) for name, value in values),
        )

    def _through_key(
        self, side: _Side, by: tuple[str, ...], classes: Mapping[str, str], at: int, path: _Path
    ) -> list[_Probe]:
        """A lookup in an index of some columns and the key alone, then one by key."""
        table = side.table
        assert table is not None
        other_key_columns = [name for name in table.key if name not in by]
        narrow = not_null(table.rows.select(*by, *other_key_columns), by).arrange(*by)
        renamed = {name: f"key {name}" for name in other_key_columns}
        first = _Probe(narrow.select(**{new: old for old, new in renamed.items()}), tuple(classes[name] for name in by))
        key = tuple(renamed.get(name) or classes[name] for name in table.key)
        return [first, self._by_key(side, key, at, path)]

    def _indexed(self, side: _Side, shared: Sequence[str], at: int, path: _Path) -> Arrangement:
        """An index of a side's own rows."""
        named = (*((class_, side.columns[class_]) for class_ in shared), *self._values(side, shared, at, path))
        return not_null(side.relation.project(named or _ANY_ROW), shared).arrange_by(shared)

    def _settle(self, path: _Path, at: int) -> None:
        """After the lookup of a side: check equalities and conditions, and drop columns that are not needed."""
        path.joined.add(at)
        columns = columns_of(path.rows.node.columns)
        equalities = [equal(columns[name], columns[_second(name)]) for name in columns if _second(name) in columns]
        path.rows = filtered(path.rows, equalities)
        self._filter(path)

    def _filter(self, path: _Path) -> None:
        """Apply the conditions whose columns are known, and drop the columns that are not needed any more."""
        known = path.known
        decided = [condition for condition in path.pending if condition.columns <= known]
        path.pending = [condition for condition in path.pending if not condition.columns <= known]
        columns = list(columns_of(path.rows.node.columns).items())
        needed = [pair for pair in columns if self._is_needed(pair[0], path.joined, path.pending)] or columns[:1]
        path.rows = projected(filtered(path.rows, decided, dict(needed)), tuple(needed))


def _second(class_: str) -> str:
    """The column for a second value of a class, which must be equal to the first."""
    return f"{class_} again"


_ANY_ROW: Named = (("any row", PLACEHOLDER),)
"""The columns of rows of which only the number matters."""


def _in_column_order(rows: Collection, other: Collection) -> Collection:
    """The rows with their columns in the order of another collection."""
    return rows if rows.columns == other.columns else rows.select(*other.columns)
