"""The plan of a motif: for each of its relations, how a change of it is extended to matches.

A match is found vertex by vertex. The change of a relation binds one or two vertices; then, again and again:

1. *Check* relations all of whose vertices are known: an edge between two known vertices, a vertex that must exist, an
   edge that must not exist.
2. *Extend* by the vertex that most relations connect with known ones. A single relation is looked up. If there are
   several, as in every motif with a cycle, the relation that offers the fewest vertices for a match proposes, and the
   others validate (`Collection.extend`). So the number of matches of a part of the motif is never larger than the least
   of the relations allows, whatever the others are: worst-case optimal joins (Ngo, Porat, Ré, Rudra; as dataflows by
   Ammar, McSherry, Salihoglu, Joglekar).
3. If nothing connects the rest, *combine* with every row of another relation.

Relations are in an order. The changes of a relation meet those before it as of strictly earlier times, and those after
it as of the same time: so each match is found once. The first relation also meets all rows that exist when the motif is
installed; the others only start with later changes. No intermediate result is stored.

An edge that must not exist is the relation of the pairs that exist, subtracted: a match `m` becomes `m` minus its
matches with that relation, and a change of the relation becomes its negation.

Cost: for a change, the vertices proposed by the smallest relation at each step.

Not guaranteed: that the parts of a motif without cycles are no more than its matches. A delta join follows edges that
may lead nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ikebana.engine.collection import Collection, ExtensionIndex
from ikebana.graph.motifs.relations import MotifRelation


@dataclass(frozen=True, eq=False)
class RelationUse:
    """A relation, as the changes of another meet it."""

    relation: MotifRelation
    strict: bool
    """Whether they meet only what was there strictly before."""


@dataclass(frozen=True, eq=False)
class CheckStep:
    """Keep matches that are in a relation, or if it is negated, those that are not."""

    use: RelationUse

    @property
    def reads(self) -> tuple[str, ...]:
        return self.use.relation.vertices

    def apply(self, matches: Collection, keep: frozenset[str]) -> Collection:
        relation = self.use.relation
        index = relation.index(relation.vertices)
        present = _kept(matches.half_join(index, on=relation.vertices, strict=self.use.strict), keep)
        if not relation.is_negated:
            return present
        matches = _kept(matches, keep)
        return matches.concat(present.select(*matches.columns).negate())


@dataclass(frozen=True, eq=False)
class LookUpStep:
    """Extend matches by the rows of a relation that a known vertex is in."""

    use: RelationUse
    known: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return self.known

    def apply(self, matches: Collection, keep: frozenset[str]) -> Collection:
        index = self.use.relation.index(self.known)
        return _kept(matches.half_join(index, on=self.known, strict=self.use.strict), keep)


@dataclass(frozen=True, eq=False)
class ExtendStep:
    """Extend matches by a vertex that several relations agree on, then by the properties of these relations."""

    vertex: str
    uses: tuple[RelationUse, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.known(use) for use in self.uses))

    def known(self, use: RelationUse) -> str:
        """The vertex of a relation that is known."""
        (known,) = (name for name in use.relation.vertices if name != self.vertex)
        return known

    def apply(self, matches: Collection, keep: frozenset[str]) -> Collection:
        indexes = [
            ExtensionIndex(
                use.relation.pair_index(self.known(use)),
                self.known(use),
                strict=use.strict,
                exists=bool(use.relation.properties),  # which are looked up with their multiplicities
            )
            for use in self.uses
        ]
        checks = [CheckStep(use) for use in self.uses if use.relation.properties]
        needed = keep.union(*(check.reads for check in checks))
        names = [name for name in (*matches.columns, self.vertex) if name in needed]
        extended = matches.extend(self.vertex, indexes, names)
        for check in checks:
            extended = check.apply(extended, needed | keep)
        return _kept(extended, keep)


@dataclass(frozen=True, eq=False)
class Combine:
    """Combine matches with all rows of a relation that they have nothing in common with."""

    use: RelationUse
    reads = ()

    def apply(self, matches: Collection, keep: frozenset[str]) -> Collection:
        return _kept(matches.half_join(self.use.relation.index(()), on=(), strict=self.use.strict), keep)


Step = CheckStep | LookUpStep | ExtendStep | Combine


def _kept(matches: Collection, keep: frozenset[str]) -> Collection:
    """The matches with only those of their columns that are needed."""
    names = [name for name in matches.columns if name in keep]
    return matches if names == matches.columns else matches.select(*names)


@dataclass(frozen=True, eq=False)
class DeltaPath:
    """How the changes of a relation are extended to matches."""

    start: MotifRelation
    is_first: bool
    steps: list[Step] = field(default_factory=list)

    def matches(self, columns: list[str]) -> Collection:
        """The matches that changes of the relation add and remove, with these columns."""
        needed = [frozenset(columns)]
        for step in reversed(self.steps):
            needed.append(needed[-1].union(step.reads))
        matches = _kept(self.start.changes(later=not self.is_first), needed.pop())
        for step in self.steps:
            matches = step.apply(matches, needed.pop())
        return matches if matches.columns == columns else matches.select(*columns)


def paths(relations: Sequence[MotifRelation]) -> list[DeltaPath]:
    """A path for each relation; the first relation is not negated."""
    return [_path(relations, at) for at in range(len(relations))]


def is_cyclic(relations: Sequence[MotifRelation]) -> bool:
    """Whether relations, negated ones too, connect vertices in a cycle; several between the same two are none."""
    components: dict[str, str] = {}

    def component(name: str) -> str:
        while components.setdefault(name, name) != name:
            name = components[name]
        return name

    joined = {frozenset(relation.vertices) for relation in relations}
    for one, other in (sorted(pair) for pair in joined if len(pair) == 2):
        if component(one) == component(other):
            return True
        components[component(one)] = component(other)
    return False


def _path(relations: Sequence[MotifRelation], start: int) -> DeltaPath:
    path = DeltaPath(relations[start], start == 0)
    waiting = {at: RelationUse(relation, strict=at < start) for at, relation in enumerate(relations) if at != start}
    known = list(relations[start].vertices)
    while waiting:
        chosen, step, vertices = _next_step(waiting, known)
        path.steps.append(step)
        known += vertices
        for at in chosen:
            del waiting[at]
    return path


def _next_step(waiting: dict[int, RelationUse], known: Sequence[str]) -> tuple[list[int], Step, list[str]]:
    """The relations that come next, what is done with them, and the vertices that are known afterwards."""
    for at, use in waiting.items():
        if set(use.relation.vertices) <= set(known):
            return [at], CheckStep(use), []
    candidates: dict[str, list[int]] = {}
    for at, use in waiting.items():
        unknown = [name for name in use.relation.vertices if name not in known]
        if len(unknown) == 1 and len(use.relation.vertices) == 2 and not use.relation.is_negated:
            candidates.setdefault(unknown[0], []).append(at)
    if candidates:
        vertex = max(candidates, key=lambda name: len(candidates[name]))
        chosen = candidates[vertex]
        uses = [waiting[at] for at in chosen]
        if len(uses) > 1:
            return chosen, ExtendStep(vertex, tuple(uses)), [vertex]
        return chosen, LookUpStep(uses[0], uses[0].relation.known(known)), [vertex]
    at, use = next((at, use) for at, use in waiting.items() if not use.relation.is_negated)
    return [at], Combine(use), list(use.relation.vertices)
