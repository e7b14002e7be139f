"""Join orders and indexes: in which order the atoms of each rule are joined, so that rules share indexes.

Atoms are joined from left to right. The first two are looked up in each other, by the variables that they have in
common; each further atom is looked up by the variables known so far. An *index* of a relation is an arrangement by some
of its columns. It serves all look-ups by exactly these columns, of all rules, in whatever order the rules name them:
columns are indexed in the order of the declaration. (Of two relations that are looked up in each other by several
columns, the first is indexed in the order of the second.)

The order of each rule is chosen among those with the fewest products of unrelated atoms: first one that needs the
fewest indexes which no rule needs already, then the order of the text. An index by a prefix does not serve longer
look-ups here, since indexes are distributed by their whole key; so the least number of indexes is the number of
different sets of columns that are looked up, and the choice of the orders decides it.

Cost: all orders of up to 6 atoms are compared; longer rules are ordered greedily.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ikebana.datalog import syntax

_MAX_EXHAUSTIVE = 6


@dataclass(frozen=True, slots=True)
class SearchPattern:
    """An atom of a body as a search: where its distinct variables are, and what else its rows must satisfy.

    `columns` has a column for each variable. A pattern without conditions reads the relation's own indexes;
    `constants` and `repeats` (pairs of equal columns) are selected first.
    """

    atom: syntax.Atom
    columns: tuple[tuple[str, int], ...]
    constants: tuple[tuple[int, syntax.Constant], ...] = ()
    repeats: tuple[tuple[int, int], ...] = ()

    @property
    def variables(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.columns)

    @property
    def is_plain(self) -> bool:
        return not self.constants and not self.repeats

    def key(self, known: Iterable[str]) -> tuple[int, ...]:
        """The columns of known variables, in the order of the declaration."""
        names = set(known)
        return tuple(sorted(at for name, at in self.columns if name in names))

    def name_of(self, column: int) -> str:
        """The variable of a column."""
        return next(name for name, at in self.columns if at == column)

    def column_of(self, variable: str) -> int:
        """The column of a variable."""
        return next(at for name, at in self.columns if name == variable)


@dataclass(frozen=True, slots=True)
class RelationIndex:
    """An arrangement of a relation, or of a selection from it, by some of its columns."""

    relation: str
    key: tuple[int, ...]
    selection: tuple[object, ...] = ()


Definitions = Sequence[tuple[str, frozenset[str]]]
"""Variables that equations define, each with the variables that it is computed from."""


@dataclass(frozen=True, slots=True)
class Order:
    """The atoms of a body in join order, each with the columns by which it is looked up; None to read all rows."""

    patterns: tuple[SearchPattern, ...]
    keys: tuple[tuple[int, ...] | None, ...]

    @property
    def indexes(self) -> Iterator[RelationIndex]:
        """The indexes that the joins read."""
        for pattern, key in zip(self.patterns, self.keys, strict=True):
            if key is not None:
                yield index_of(pattern, key)


def index_of(pattern: SearchPattern, key: tuple[int, ...]) -> RelationIndex:
    """The index in which a pattern is looked up."""
    selection = tuple((at, constant.value) for at, constant in pattern.constants) + pattern.repeats
    return RelationIndex(pattern.atom.relation, key, selection)


@dataclass
class IndexChoice:
    """Chooses the orders of one body after the other, and keeps the indexes that they need, with the number of uses."""

    uses: dict[RelationIndex, int] = field(default_factory=dict)
    keeps_order: bool = False
    """Whether atoms are joined in the order of the text, as those of rewritten programs are."""

    def order(
        self, patterns: Sequence[SearchPattern], known: Iterable[str] = (), definitions: Definitions = ()
    ) -> Order:
        """The order of the patterns of a body in which some variables are known already."""
        if self.keeps_order:
            order = _order(patterns, frozenset(known), definitions)
        else:
            orders = _orders(patterns, frozenset(known), definitions)
            order = min(orders, key=lambda order: self._cost(order, patterns))
        for index in order.indexes:
            self.uses[index] = self.uses.get(index, 0) + 1
        return order

    def _cost(self, order: Order, patterns: Sequence[SearchPattern]) -> tuple[int, int, list[int]]:
        products = sum(key == () for key in order.keys)
        new = len({index for index in order.indexes if index not in self.uses})
        return products, new, [patterns.index(pattern) for pattern in order.patterns]

    def primary_key(self, relation: str) -> tuple[int, ...]:
        """The columns by which a derived relation is looked up most often; none if it is not looked up."""
        keys = {index.key: count for index, count in self.uses.items() if index.relation == relation and index.key}
        plain = {index.key for index in self.uses if index.relation == relation and not index.selection}
        candidates = [key for key in keys if key in plain]
        return max(candidates, key=lambda key: (keys[key], -len(key)), default=())


def _orders(patterns: Sequence[SearchPattern], known: frozenset[str], definitions: Definitions) -> Iterator[Order]:
    if len(patterns) <= _MAX_EXHAUSTIVE:
        for permutation in itertools.permutations(patterns):
            yield _order(permutation, known, definitions)
        return
    for first in patterns:
        waiting = [pattern for pattern in patterns if pattern is not first]
        chosen, bound = [first], _closed(known | first.variables, definitions)
        while waiting:
            best = max(waiting, key=lambda pattern: len(pattern.variables & bound))
            waiting.remove(best)
            chosen.append(best)
            bound = _closed(bound | best.variables, definitions)
        yield _order(chosen, known, definitions)


def _order(patterns: Sequence[SearchPattern], known: frozenset[str], definitions: Definitions) -> Order:
    keys: list[tuple[int, ...] | None] = []
    bound = known
    for pattern in patterns:
        keys.append(pattern.key(bound))
        bound = _closed(bound | pattern.variables, definitions)
    if patterns and not known:
        keys[0] = _first_key(patterns, keys)
    return Order(tuple(patterns), tuple(keys))


def _first_key(patterns: Sequence[SearchPattern], keys: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    """The columns of the first pattern by which it is joined with the second, if none of them must be computed."""
    if len(patterns) == 1:
        return None
    names = [patterns[1].name_of(column) for column in keys[1] or ()]
    if not patterns[0].variables.issuperset(names):
        return None
    return tuple(patterns[0].column_of(name) for name in names)


def _closed(known: frozenset[str], definitions: Definitions) -> frozenset[str]:
    """Known variables, with those that equations define by them."""
    while True:
        defined = {name for name, needed in definitions if name not in known and needed <= known}
        if not defined:
            return known
        known |= defined
