"""Facts about C source: pairs of nodes in a few relations, and the place of each node in the source.

A node is named by a *key*, a string made of its kind, the function or file that it belongs to, and its text there. A
key does not contain a line: if code moves, its nodes stay the same, and extracting an edited file again changes few
facts. Keys are numbered by a `NodeTable`, and facts are pairs of these numbers.

| relation | pair | meaning |
|---|---|---|
| `assign` | from, to | a value is copied: by `=`, an initialiser, as an argument, as the result of a call |
| `null` | source, to | a null constant is assigned; the source is the assignment itself |
| `address` | pointer, object | the expression `&object`, or an array or a function used as a pointer |
| `alloc` | pointer, object | a call of `malloc` and the like, and the memory that it returns |
| `dereference` | pointer, cell | the expression `*pointer` or `pointer[i]`, read or written |
| `use` | pointer, expression | a place where the program fails if the pointer is null: `*p`, `p[i]`, `p->field` |
| `call` | call, function | a direct call |

Cost: a fact takes some 200 bytes, most of it Python objects; reading and writing a file of facts is one call of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from ikebana.errors import IkebanaError

RELATIONS = ("assign", "null", "address", "alloc", "dereference", "use", "call")

NODES_FILE = "nodes.facts"
NODE_COLUMNS = ("id", "kind", "name", "function", "file", "line", "column", "key")

Pairs = NDArray[np.int32]


class AnalysisError(IkebanaError):
    """Source, a grammar or a graph cannot be read."""


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """Where a node is in the source. `definition` is false where the node is only mentioned, such as in a call."""

    kind: str
    name: str
    function: str
    file: str
    line: int
    column: int
    definition: bool = True

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.file else "(not in the source)"


@dataclass(slots=True)
class FileFacts:
    """What one translation unit contributes: facts by relation, as pairs of keys, and the places of its nodes."""

    facts: dict[str, set[tuple[str, str]]] = field(default_factory=lambda: {name: set() for name in RELATIONS})
    places: dict[str, SourceLocation] = field(default_factory=dict)
    includes: frozenset[str] = frozenset()
    errors: int = 0
    first_error: str = ""

    def put(self, key: str, place: SourceLocation) -> None:
        """Record the place of a node; the definition of a node wins over other places, and the first of equals."""
        known = self.places.get(key)
        if known is None or (place.definition and not known.definition):
            self.places[key] = place


class NodeTable:
    """Numbers for keys, in order of their first appearance. A key keeps its number for good."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.keys = list(keys)
        self._numbers = {key: number for number, key in enumerate(self.keys)}

    def __len__(self) -> int:
        return len(self.keys)

    def number(self, key: str) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return number

    def find(self, key: str) -> int | None:
        return self._numbers.get(key)


def as_pairs(facts: Iterable[tuple[int, int]]) -> Pairs:
    """Facts as an array with two columns, in order."""
    return np.array(sorted(facts), np.int32).reshape(-1, 2)


def write_pairs(path: Path, pairs: Pairs) -> None:
    """Write facts in the format of Soufflé: a line for each, columns separated by a tab."""
    table = pa.table({"x": pairs[:, 0], "y": pairs[:, 1]})
    options = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    pa.csv.write_csv(table, path, options)


def write_nodes(path: Path, keys: list[str], places: dict[int, SourceLocation]) -> None:
    """Write the table of nodes; a node that is not in the source any more keeps its number, without a place."""
    nowhere = SourceLocation("", "", "", "", 0, 0)
    lines = []
    for number, key in enumerate(keys):
        at = places.get(number, nowhere)
        lines.append(f"{number}\t{at.kind}\t{at.name}\t{at.function}\t{at.file}\t{at.line}\t{at.column}\t{key}\n")
    path.write_text("".join(lines), encoding="utf-8")


def read_keys(path: Path) -> list[str]:
    """Read the keys of a table of nodes, in the order of their numbers."""
    keys = []
    for row, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        columns = line.split("\t")
        if len(columns) != len(NODE_COLUMNS) or columns[0] != str(row - 1):
            raise AnalysisError(
                f"{path}:{row}: this is not a line of a table of nodes",
                detail=f"expected the number {row - 1} and {len(NODE_COLUMNS) - 1} more columns, found {line[:80]!r}",
                hint="delete the file, and extract the facts again into an empty directory",
            )
        keys.append(columns[-1])
    return keys
