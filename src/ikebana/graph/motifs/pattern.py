"""Motifs as text, in the notation of GraphFrames: `parse`.

    motif     term ; term ; ...
    term      chain | !edge | (a)
    chain     (a) -[e]-> (b) -[f]-> (c) ...
    arrow     -[e]->   <-[e]-   -[e]-   <-[]->
    length    [e*2]   [e*1..3]   [*..3]

Names are optional everywhere: `(a)-[]->()`. A name of a vertex that is used again is the same vertex. Chains of edges,
and a length in any direction, are additions to the notation.

The grammar is regular but for the repetition of terms, so the parser is a tokenizer and one function for each kind of
term. Errors show the motif with a caret below the place.

Invariants of a motif: no edge has the name of a vertex or of another edge; a negated edge has no name, and its named
vertices occur in other terms too; a term has a name somewhere. An edge `<-[e]-` is stored with its ends exchanged.

Cost: linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ikebana.errors import MotifError

LONGEST = 32
"""The greatest number of edges of a variable-length edge: each further edge is a join over all pairs of vertices."""

_TOKENS = re.compile(r"\s*(?:(?P<name>\w+)|(?P<symbol>\.\.|->|<-|[()\[\]\-!;*])|(?P<end>$))")
_INDENT = " " * len("  detail: ")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: a name, a number, a symbol, or nothing at the end."""

    text: str
    at: int

    @property
    def is_name(self) -> bool:
        return self.text[:1].isalpha() or self.text[:1] == "_"


@dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex of a motif; anonymous ones have names of their own that no user can write."""

    name: str
    at: int = 0

    @property
    def is_named(self) -> bool:
        return not self.name.startswith("(")

    def __str__(self) -> str:
        return f"({self.name if self.is_named else ''})"


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from `src` to `dst`, or a walk of `least` to `most` edges."""

    name: str
    src: Vertex
    dst: Vertex
    is_directed: bool = True
    least: int | None = None
    most: int | None = None
    is_negated: bool = False
    at: int = 0

    @property
    def is_variable(self) -> bool:
        """Whether the edge is written with a length."""
        return self.most is not None

    @property
    def ends(self) -> tuple[str, ...]:
        """The names of the edge's vertices, each once."""
        return tuple(dict.fromkeys((self.src.name, self.dst.name)))

    def __str__(self) -> str:
        length = ""
        if self.is_variable:
            length = f"*{self.least}" if self.least == self.most else f"*{self.least}..{self.most}"
        sign, arrow = "!" if self.is_negated else "", "->" if self.is_directed else "-"
        return f"{sign}{self.src}-[{self.name}{length}]{arrow}{self.dst}"


@dataclass(frozen=True, slots=True)
class Motif:
    """A parsed motif: its edges, negated ones included, and the vertices that are terms by themselves."""

    text: str
    edges: tuple[Edge, ...]
    lone: tuple[Vertex, ...]

    @property
    def positive(self) -> tuple[Edge, ...]:
        """The edges that must exist."""
        return tuple(edge for edge in self.edges if not edge.is_negated)

    @property
    def negated(self) -> tuple[Edge, ...]:
        """The edges that must not exist."""
        return tuple(edge for edge in self.edges if edge.is_negated)

    @property
    def elements(self) -> tuple[Vertex | Edge, ...]:
        """The named elements in the order of the text, each once."""
        elements: list[Vertex | Edge] = [*self.lone]
        for edge in self.positive:
            elements += [edge.src, edge, edge.dst]
        named = sorted((element for element in elements if _is_named(element)), key=lambda element: element.at)
        first: dict[str, Vertex | Edge] = {}
        for element in named:
            first.setdefault(element.name, element)
        return tuple(first.values())

    @property
    def vertices(self) -> tuple[str, ...]:
        """The names of all vertices that exist in a match, anonymous ones too, in the order of the text."""
        ends = [vertex for edge in self.positive for vertex in (edge.src, edge.dst)]
        in_order = sorted([*self.lone, *ends], key=lambda vertex: vertex.at)
        return tuple(dict.fromkeys(vertex.name for vertex in in_order))


def _is_named(element: Vertex | Edge) -> bool:
    return element.is_named if isinstance(element, Vertex) else bool(element.name)


def parse(text: str) -> Motif:
    """Parse a motif.

    >>> motif = parse("(a)-[e]->(b); (b)-[]->(); !(b)-[]->(a)")
    >>> [element.name for element in motif.elements]
    ['a', 'e', 'b']
    >>> parse("(a)-[e]>(b)")
    Traceback (most recent call last):
    ikebana.errors.MotifError: expected '-' or '->' after ']'
      detail: (a)-[e]>(b)
                     ^
      hint: an edge is written (a)-[e]->(b), (a)<-[e]-(b) or (a)-[e]-(b)
    """
    motif = _Parser(text).motif()
    _check(motif)
    return motif


def error_at(text: str, at: int, what: str, *, hint: str = "", width: int = 1) -> MotifError:
    """An error that shows a motif, with a caret below a place in it."""
    line = re.sub(r"\s", " ", text)
    return MotifError(what, detail=f"{line}\n{_INDENT}{' ' * at}{'^' * width}", hint=hint)


_EDGE_HINT = "an edge is written (a)-[e]->(b), (a)<-[e]-(b) or (a)-[e]-(b)"
_LENGTH_HINT = "a length is written [e*2], [e*1..3] or [e*..3]"


class _Parser:
    """The tokens of a motif, and the position in them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._position = 0
        self._anonymous = 0

    def _split(self) -> Iterator[Token]:
        at = 0
        while True:
            match = _TOKENS.match(self._text, at)
            if match is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                if self._text[at] == ">":  # after a missing '-': where the arrow is read, the error can say so
                    yield Token(">", at)
                    at += 1
                    continue
                raise error_at(self._text, at, f"unexpected character {self._text[at]!r}", hint=_EDGE_HINT)
            kind = match.lastgroup or "end"
            yield Token(match[kind], match.start(kind))
            at = match.end()
            if kind == "end":
                return

    # Tokens.

    @property
    def _next(self) -> Token:
        return self._tokens[self._position]

    def _take(self) -> Token:
        token = self._next
        self._position += 1
        return token

    def _skip(self, *symbols: str) -> bool:
        """Take the next token if it is one of these symbols; return whether it was."""
        is_there = self._next.text in symbols
        self._position += is_there
        return is_there

    def _expect(self, symbol: str, after: str, hint: str = _EDGE_HINT) -> Token:
        if self._next.text != symbol:
            raise self._expected(repr(symbol), after, hint)
        return self._take()

    def _expected(self, what: str, after: str, hint: str = _EDGE_HINT) -> MotifError:
        return error_at(self._text, self._next.at, f"expected {what} {after}", hint=hint)

    # Terms.

    def motif(self) -> Motif:
        edges: list[Edge] = []
        lone: list[Vertex] = []
        while self._next.text:
            start = self._next
            is_negated = self._skip("!")
            vertex = self._vertex("at the start of a term")
            chain = list(self._chain(vertex, is_negated))
            if not chain and is_negated:
                raise error_at(self._text, start.at, "only edges can be negated", hint="!(a)-[]->(b)")
            if not chain and not vertex.is_named:
                raise error_at(self._text, start.at, "a vertex alone needs a name", hint="(a)", width=2)
            if chain and not any(edge.name or edge.src.is_named or edge.dst.is_named for edge in chain):
                what = "a term without any name says nothing about a match"
                raise error_at(self._text, start.at, what, hint="name a vertex or an edge")
            edges += chain
            lone += [] if chain else [vertex]
            if self._next.text:
                self._expect(";", "between terms", "terms are separated by ';'")
        if not edges and not lone:
            raise MotifError("the motif is empty", hint="(a)-[e]->(b); (b)-[f]->(c)")
        return Motif(self._text, tuple(edges), tuple(lone))

    def _vertex(self, where: str) -> Vertex:
        start = self._expect("(", where)
        name = ""
        if self._next.text != ")":
            name = self._name("vertex")
        self._expect(")", "after the vertex")
        if not name:
            self._anonymous += 1
            name = f"({self._anonymous})"
        return Vertex(name, start.at)

    def _name(self, kind: str) -> str:
        token = self._next
        if not token.is_name:
            raise self._expected("a name", f"for the {kind}", "names consist of letters, digits and underscores")
        return self._take().text

    def _chain(self, first: Vertex, is_negated: bool) -> Iterator[Edge]:
        """The edges from a vertex on, to the end of the term."""
        vertex, count = first, 0
        while self._next.text in ("-", "<-"):
            if count and is_negated:
                raise error_at(self._text, self._next.at, "a negated term has one edge", hint="!(a)-[]->(b)")
            points_back = self._take().text == "<-"
            self._expect("[", "in an edge")
            name_at = self._next.at
            name = self._name("edge") if self._next.is_name else ""
            least, most = self._length()
            self._expect("]", "after the edge", _LENGTH_HINT if most is not None else _EDGE_HINT)
            if self._next.text not in ("->", "-"):
                raise self._expected("'-' or '->'", "after ']'")
            points_on = self._take().text == "->"
            other = self._vertex("after the edge")
            length = least, most
            if points_back and points_on and name:
                hint = f"write two edges: ({vertex.name})-[{name}]->({other.name}); ({other.name})-[...]->(...)"
                raise error_at(self._text, name_at, "an edge in both directions has no name", hint=hint)
            if points_back:
                yield Edge(name, other, vertex, True, *length, is_negated, name_at)
            if points_on or not points_back:
                yield Edge(name, vertex, other, points_on, *length, is_negated, name_at)
            vertex, count = other, count + 1

    def _length(self) -> tuple[int | None, int | None]:
        """The least and greatest number of edges; None if the edge has no length."""
        star = self._next
        if not self._skip("*"):
            return None, None
        least = self._number() if self._next.text.isdigit() else None
        if not self._skip(".."):
            if least is None:
                raise error_at(self._text, star.at, "the number of edges is missing", hint=_LENGTH_HINT)
            most = least
        elif self._next.text.isdigit():
            most = self._number()
        else:
            hint = f"{_LENGTH_HINT}; for walks of any length use reach or transitive_closure"
            raise self._expected("the greatest number of edges", "after '..'", hint)
        least = 1 if least is None else least
        if not 1 <= least <= most <= LONGEST:
            what = f"a length is from 1 to {LONGEST} edges, the least number first"
            raise error_at(self._text, star.at, what, hint=_LENGTH_HINT)
        return least, most

    def _number(self) -> int:
        return int(self._take().text)


def _check(motif: Motif) -> None:
    """Raise unless names are used as they may be."""
    existing = set(motif.vertices)
    vertices = {vertex.name for edge in motif.edges for vertex in (edge.src, edge.dst)} | {v.name for v in motif.lone}
    names: set[str] = set()
    for edge in motif.edges:
        width = max(1, len(edge.name))
        if edge.name and edge.is_negated:
            raise error_at(
                motif.text,
                edge.at,
                "a negated edge has no name",
                hint="leave out the name: what does not exist is not in the result",
                width=width,
            )
        if edge.name in vertices:
            what = f"{edge.name!r} is the name of a vertex and of an edge"
            raise error_at(motif.text, edge.at, what, hint="rename one of them", width=width)
        if edge.name and edge.name in names:
            what = f"two edges are named {edge.name!r}"
            raise error_at(motif.text, edge.at, what, hint="rename one of them", width=width)
        names.add(edge.name)
        for vertex in (edge.src, edge.dst) if edge.is_negated else ():
            if vertex.is_named and vertex.name not in existing:
                what = f"vertex {vertex.name!r} occurs only in negated edges"
                hint = f"add a term in which it exists, for example ({vertex.name})"
                raise error_at(motif.text, vertex.at, what, hint=hint, width=len(vertex.name) + 2)
