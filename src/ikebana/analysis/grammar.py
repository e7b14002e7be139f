"""Graspan's inputs: grammars as Datalog programs, and lists of edges.

A grammar says which paths through a graph with labelled edges add up to further edges. Each line is a production, with
symbols separated by blanks or tabs; text after `#` is ignored:

    A  B  C      an edge B from x to y and an edge C from y to z make an edge A from x to z
    A  B         an edge B is an edge A too
    A            there is an edge A from every node to itself

`-B` is an edge B in the opposite direction, and so are `B_bar` and `Bbar` if the grammar has a symbol B. Symbols that
no production derives are the labels of the graph. A graph is a list of lines `source target label`; a label may be an
inverse too.

`Grammar.datalog` writes the same as a program for `ikebana.datalog`: every symbol is a relation of two numbers, an
inverse swaps the columns, so no relation is stored twice.

Cost: a list of edges is read by one call of Arrow, some millions of edges a second. A file that Arrow does not accept
is read again line by line, to name the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ikebana.analysis.facts import AnalysisError, Pairs

NODE = "node"
"""The relation of all nodes, which programs have if some symbol derives the empty path."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARS = ("_bar", "bar")
_MOST = 2**31 - 1

# Words that cannot be names of relations.
_RESERVED = frozenset(
    (
        *("as", "autoinc", "band", "bnot", "bor", "brie", "bshl", "bshr", "btree", "bxor", "cat", "choice", "contains"),
        *("count", "eqrel", "false", "float", "inline", "input", "land", "lnot", "lor", "lxor", "match", "max", "mean"),
        *("min", "mod", "nil", "number", "ord", "output", "override", "printsize", "range", "strlen", "substr", "sum"),
        *("symbol", "to_float", "to_number", "to_string", "to_unsigned", "true", "unsigned", NODE),
    )
)


@dataclass(frozen=True)
class Symbol:
    """A symbol of a production; `inverse` if the edge is followed backwards."""

    name: str
    inverse: bool = False

    def __str__(self) -> str:
        return f"-{self.name}" if self.inverse else self.name


@dataclass(frozen=True)
class Production:
    """`head` derives the path of `body`, which has at most two symbols."""

    head: str
    body: tuple[Symbol, ...]


@dataclass(frozen=True)
class Grammar:
    """The productions of a grammar, in the order of its lines."""

    productions: tuple[Production, ...]

    @staticmethod
    def read(path: str | Path) -> Grammar:
        """Read a file with a grammar."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AnalysisError(f"cannot read grammar {path}", detail=str(error)) from None
        return Grammar.parse(text, str(path))

    @staticmethod
    def parse(text: str, source: str = "grammar") -> Grammar:
        """Parse a grammar; `source` is its name in errors.

        >>> Grammar.parse("N n\\nN N e").productions[1]
        Production(head='N', body=(Symbol(name='N', inverse=False), Symbol(name='e', inverse=False)))
        """
        lines = [(row, line.split("#")[0].split()) for row, line in enumerate(text.splitlines(), 1)]
        lines = [(row, words) for row, words in lines if words]
        if not lines:
            raise AnalysisError(f"{source}: the grammar has no productions", hint="write lines such as `A B C`")
        names = {word.removeprefix("-") for _, words in lines for word in words}
        productions = [_production(words, names, f"{source}:{row}") for row, words in lines]
        return Grammar(tuple(dict.fromkeys(productions)))

    @property
    def derived(self) -> tuple[str, ...]:
        """The symbols that productions derive."""
        return tuple(dict.fromkeys(production.head for production in self.productions))

    @property
    def labels(self) -> tuple[str, ...]:
        """The symbols that no production derives: the labels of the graph."""
        names = dict.fromkeys(symbol.name for production in self.productions for symbol in production.body)
        return tuple(name for name in names if name not in self.derived)

    def symbol(self, label: str) -> Symbol | None:
        """The symbol that a label of a graph stands for; None if the grammar does not have it."""
        symbol = _symbol(label, {*self.derived, *self.labels})
        return symbol if symbol.name in (*self.derived, *self.labels) else None

    def datalog(self) -> str:
        """The grammar as a Datalog program, with the labels as inputs and the derived symbols as outputs.

        >>> print(Grammar.parse("N n\\nN N -e").datalog())
        .decl n(x: number, y: number)
        .input n
        .decl e(x: number, y: number)
        .input e
        .decl N(x: number, y: number)
        .output N
        N(x, y) :- n(x, y).
        N(x, z) :- N(x, y), e(z, y).
        <BLANKLINE>
        """
        lines = []
        for directive, names in (("input", self.labels), ("output", self.derived)):
            for name in names:
                lines += [f".decl {relation(name)}(x: number, y: number)", f".{directive} {relation(name)}"]
        if any(not production.body for production in self.productions):
            lines.append(f".decl {NODE}(x: number)")
            for label in self.labels:
                lines += [f"{NODE}(x) :- {relation(label)}(x, _).", f"{NODE}(x) :- {relation(label)}(_, x)."]
        lines += [_rule(production) for production in self.productions]
        return "\n".join(lines) + "\n"


def relation(symbol: str) -> str:
    """The name of a symbol's relation: the symbol, unless that is a word of the language."""
    return f"{symbol}_" if symbol in _RESERVED else symbol


def _production(words: list[str], names: set[str], place: str) -> Production:
    if len(words) > 3:
        raise AnalysisError(
            f"{place}: a production has at most two symbols on its right",
            detail=f"the line has {len(words)} symbols: {' '.join(words)}",
            hint="derive a symbol of its own from the first two, and use it here",
        )
    symbols = [_symbol(word, names) for word in words]
    for symbol in symbols:
        if not _NAME.fullmatch(symbol.name):
            raise AnalysisError(
                f"{place}: {symbol.name!r} is not a symbol",
                detail=f"the line is {' '.join(words)}",
                hint="symbols consist of letters, digits and underscores; `-` before a symbol inverts it",
            )
    head, *body = symbols
    if head.inverse:
        raise AnalysisError(
            f"{place}: a production cannot derive the inverse {words[0]!r}",
            detail=f"the line is {' '.join(words)}",
            hint=f"derive {head.name}, with the right side reversed and inverted",
        )
    return Production(head.name, tuple(body))


def _symbol(word: str, names: Iterable[str]) -> Symbol:
    if word.startswith("-"):
        return Symbol(word[1:], inverse=True)
    for bar in _BARS:
        if word.endswith(bar) and word.removesuffix(bar) in names:
            return Symbol(word.removesuffix(bar), inverse=True)
    return Symbol(word)


def _rule(production: Production) -> str:
    head, body = relation(production.head), production.body
    if not body:
        return f"{head}(x, x) :- {NODE}(x)."
    ends = ("x", "y", "z")
    atoms = [_atom(symbol, ends[at], ends[at + 1]) for at, symbol in enumerate(body)]
    return f"{head}(x, {ends[len(body)]}) :- {', '.join(atoms)}."


def _atom(symbol: Symbol, start: str, end: str) -> str:
    first, second = (end, start) if symbol.inverse else (start, end)
    return f"{relation(symbol.name)}({first}, {second})"


# Lists of edges.


def read_edges(path: str | Path) -> dict[str, Pairs]:
    """Read a list of edges, `source target label` on each line, separated by blanks or tabs: edges by label."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            delimiter = "\t" if b"\t" in file.readline() else " "
        table = pa.csv.read_csv(
            path,
            read_options=pa.csv.ReadOptions(column_names=["source", "target", "label"]),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, quote_char=False),
            convert_options=pa.csv.ConvertOptions(
                column_types={
                    "source": pa.int32(),
                    "target": pa.int32(),
                    "label": pa.dictionary(pa.int32(), pa.string()),
                },
                null_values=[],
            ),
        )
    except OSError as error:
        raise AnalysisError(f"cannot read edges {path}", detail=str(error)) from None
    except pa.ArrowInvalid:
        return _read_edges_slowly(path)
    return _by_label(table)


def _by_label(table: pa.Table) -> dict[str, Pairs]:
    labels = table["label"].unify_dictionaries().combine_chunks()
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.chunk(0) if labels.num_chunks else pa.array([], pa.dictionary(pa.int32(), pa.string()))
    pairs = np.stack([table["source"].to_numpy(), table["target"].to_numpy()], axis=1)
    codes = labels.indices.to_numpy()
    return {label: pairs[codes == code] for code, label in enumerate(labels.dictionary.to_pylist())}


def _read_edges_slowly(path: Path) -> dict[str, Pairs]:
    """Read a list of edges line by line, with any blanks between columns; name the first line that is wrong."""
    edges: dict[str, list[tuple[int, int]]] = {}
    with path.open("rb") as file:
        for row, line in enumerate(file, 1):
            if not line.strip():
                continue
            source, target, label = _edge(line, f"{path}:{row}")
            edges.setdefault(label, []).append((source, target))
    return {label: np.array(pairs, np.int32) for label, pairs in edges.items()}


def _edge(line: bytes, place: str) -> tuple[int, int, str]:
    try:
        words = line.decode().split()
    except UnicodeDecodeError:
        raise AnalysisError(f"{place}: the line is not UTF-8", hint="save the file as UTF-8") from None
    hint = "write lines such as `12 40 a`"
    if len(words) != 3:
        raise AnalysisError(
            f"{place}: an edge has a source, a target and a label", detail=f"the line has {len(words)} words", hint=hint
        )
    for word in words[:2]:
        if not re.fullmatch(r"-?[0-9]+", word) or abs(int(word)) > _MOST:
            detail = f"numbers are integers of at most {_MOST}"
            raise AnalysisError(f"{place}: {word!r} is not the number of a node", detail=detail, hint=hint)
    return int(words[0]), int(words[1]), words[2]


def edges_of(grammar: Grammar, edges: Mapping[str, Pairs]) -> dict[str, Pairs]:
    """The facts of a graph, by relation of a grammar's program.

    Inverse edges are turned round; duplicates, and labels that the grammar does not have, are left out.
    """
    parts: dict[str, list[Pairs]] = {name: [] for name in grammar.labels}
    for label, pairs in edges.items():
        symbol = grammar.symbol(label)
        if symbol is not None:
            parts.setdefault(symbol.name, []).append(pairs[:, ::-1] if symbol.inverse else pairs)
    return {relation(name): _distinct(arrays) for name, arrays in parts.items()}


def _distinct(arrays: list[Pairs]) -> Pairs:
    if not arrays:
        return np.empty((0, 2), np.int32)
    pairs = np.concatenate(arrays).astype(np.int64)
    packed = np.unique(pairs[:, 0] << 32 | pairs[:, 1] & 0xFFFFFFFF)
    return np.stack([packed >> 32, packed], axis=1).astype(np.int32)
