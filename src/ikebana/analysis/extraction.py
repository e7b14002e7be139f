"""The facts of all C files below a directory, kept up to date file by file.

    extraction = Extraction("src")
    extraction.load()                       # reads every *.c file
    difference = extraction.update("a.c")   # reads one file again: which facts were added, which removed
    extraction.write("facts")

A fact may come from several files, such as a function in a header. It is removed when the last of them has lost it.
Numbers of nodes are given once, and are kept in the output directory, where a later extraction continues with them.

Contract: after any sequence of updates the facts, as pairs of keys, are those of a new extraction of the same files.
A file that cannot be read leaves everything as it was.

Cost: an update reads the file (and all files that include it, if it is a header) and compares its facts with those
before; other files cost nothing. `refresh` looks at the time and size of every file.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ikebana.analysis.c_source import extract_file
from ikebana.analysis.facts import (
    NODES_FILE,
    RELATIONS,
    AnalysisError,
    FileFacts,
    NodeTable,
    Pairs,
    SourceLocation,
    as_pairs,
    read_keys,
    write_nodes,
    write_pairs,
)
from ikebana.analysis.libclang import clang

_FEW_FILES = 8
"""Up to this number of files, starting further processes takes longer than reading the files."""

Fact = tuple[int, int]
Progress = Callable[[str, int, int], None]
"""Called after each file with its name, the number of files that are done, and the number of all files."""


@dataclass(frozen=True)
class Difference:
    """The facts, by relation, that a change of source adds and removes."""

    added: Mapping[str, Pairs]
    removed: Mapping[str, Pairs]

    def __len__(self) -> int:
        return sum(len(pairs) for pairs in (*self.added.values(), *self.removed.values()))


class Extraction:
    """The facts of a directory of C source."""

    def __init__(
        self,
        root: str | Path,
        arguments: Sequence[str] = (),
        *,
        allocators: Iterable[str] = (),
        output: str | Path | None = None,
    ) -> None:
        """Nothing is read yet.

        `arguments`: options for the compiler, such as `-Iinclude` and `-DDEBUG`.
        `allocators`: functions that return new memory, beside `malloc` and others of the C library.
        `output`: a directory that `write` has written before; nodes keep the numbers that they have there.
        """
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise AnalysisError(f"{root} is not a directory", hint="give the directory of the C source")
        clang()  # complains now if it is missing
        self.arguments, self.allocators = tuple(arguments), tuple(allocators)
        nodes = Path(output) / NODES_FILE if output is not None else None
        self.nodes = NodeTable(read_keys(nodes) if nodes is not None and nodes.exists() else ())
        self._files: dict[str, FileFacts] = {}
        self._counts: dict[str, Counter[Fact]] = {relation: Counter() for relation in RELATIONS}
        self._places: dict[int, dict[str, SourceLocation]] = {}
        self._seen: dict[str, tuple[int, int]] = {}  # time and size of files, when they were read

    # Reading source.

    def sources(self) -> list[str]:
        """The names of all C files, relative to the root."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*.c") if path.is_file())

    def load(self, jobs: int | None = None, progress: Progress | None = None) -> Difference:
        """Read all files, in several processes if there are many; return what has changed since the last time."""
        names = self.sources()
        return self._replace(dict.fromkeys(self._files) | self._read(names, jobs, progress))

    def update(self, path: str | Path) -> Difference:
        """Read one file again after it was changed, created or deleted; of a header, all files that include it."""
        name = self._name(path)
        if not name.endswith(".c"):
            return self._replace(self._read(self.includers(name), 1, None))
        exists = (self.root / name).is_file()
        return self._replace(self._read([name], 1, None) if exists else {name: None})

    def refresh(self) -> Difference:
        """Read all files that have changed since they were read, and those that include changed headers."""
        current = {name: self._stamp(name) for name in {*self.sources(), *self._seen}}
        changed = {name for name, stamp in current.items() if stamp != self._seen.get(name)}
        units = {name for name in changed if name.endswith(".c")}
        units |= {includer for name in changed - units for includer in self.includers(name)}
        deleted = {name: None for name in units if current.get(name) is None}
        return self._replace(deleted | self._read(sorted(units - deleted.keys()), None, None))

    def includers(self, header: str) -> list[str]:
        """The files that include a header, directly or not."""
        return sorted(name for name, facts in self._files.items() if header in facts.includes)

    def _name(self, path: str | Path) -> str:
        full = (self.root / path).resolve()
        if not full.is_relative_to(self.root):
            raise AnalysisError(f"{path} is not below {self.root}", hint="give a path relative to the source directory")
        return full.relative_to(self.root).as_posix()

    def _stamp(self, name: str) -> tuple[int, int] | None:
        try:
            status = (self.root / name).stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size

    def _read(self, names: Sequence[str], jobs: int | None, progress: Progress | None) -> dict[str, FileFacts | None]:
        jobs = min(jobs or os.cpu_count() or 1, len(names))
        stamps = {name: self._stamp(name) for name in names}
        results: dict[str, FileFacts | None] = {}
        for name, facts in self._extract(names, 1 if len(names) <= _FEW_FILES else jobs):
            results[name] = facts
            if progress is not None:
                progress(name, len(results), len(names))
        headers = {header for facts in results.values() if facts is not None for header in facts.includes}
        stamps |= {header: self._stamp(header) for header in headers}
        self._seen |= {name: stamp for name, stamp in stamps.items() if stamp is not None}
        return results

    def _extract(self, names: Sequence[str], jobs: int) -> Iterable[tuple[str, FileFacts]]:
        if jobs <= 1:
            for name in names:
                yield name, extract_file(self.root, self.root / name, self.arguments, self.allocators)
            return
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            tasks = [(self.root, self.root / name, self.arguments, self.allocators) for name in names]
            yield from zip(names, pool.map(extract_file, *zip(*tasks, strict=True)), strict=True)

    # Facts.

    def _replace(self, files: Mapping[str, FileFacts | None]) -> Difference:
        """Replace what these files contribute; None stands for a file that is gone."""
        before: dict[str, set[Fact]] = {relation: set() for relation in RELATIONS}
        after: dict[str, set[Fact]] = {relation: set() for relation in RELATIONS}
        for name, new in files.items():
            old = self._files.pop(name, None)
            if old is not None:
                self._count(name, old, -1, before)
            if new is not None:
                self._files[name] = new
                self._count(name, new, 1, after)
            else:
                self._seen.pop(name, None)
        added, removed = {}, {}
        for relation in RELATIONS:
            counts = self._counts[relation]
            touched = before[relation] | after[relation]
            added[relation] = as_pairs(fact for fact in touched if fact in counts and fact not in before[relation])
            removed[relation] = as_pairs(fact for fact in touched if fact not in counts and fact in before[relation])
        return Difference(added, removed)

    def _count(self, file: str, facts: FileFacts, diff: int, touched: dict[str, set[Fact]]) -> None:
        """Add or remove the contribution of a file; remember in `touched` which facts existed before removing."""
        number = self.nodes.number
        for relation in RELATIONS:
            counts, known = self._counts[relation], touched[relation]
            for left, right in facts.facts[relation]:
                fact = (number(left), number(right))
                if diff < 0 or fact not in counts:
                    known.add(fact)
                counts[fact] += diff
                if not counts[fact]:
                    del counts[fact]
        for key, place in facts.places.items():
            places = self._places.setdefault(number(key), {})
            if diff > 0:
                places[file] = place
            else:
                places.pop(file, None)

    def facts(self, relation: str) -> Pairs:
        """The facts of a relation, as an array with two columns of numbers of nodes."""
        if relation not in RELATIONS:
            raise AnalysisError(
                f"there is no relation {relation!r}", detail=f"the relations are {', '.join(RELATIONS)}"
            )
        return as_pairs(self._counts[relation])

    def place(self, node: int) -> SourceLocation:
        """Where a node is in the source: its definition, if it has one, otherwise where it is first mentioned."""
        places = self._places.get(node) or {}
        if not places:
            return SourceLocation("", self.nodes.keys[node], "", "", 0, 0, definition=False)
        return min(places.values(), key=lambda place: (not place.definition, place.file, place.line, place.column))

    def find(
        self, name: str, *, file: str | None = None, line: int | None = None, kind: str | None = None
    ) -> list[int]:
        """The nodes with a name, such as `p` or `*p`; in a file, on a line, or of a kind only."""
        return [
            number
            for number in self._places
            for place in [self.place(number)]
            if place.name == name
            and (file is None or place.file == file)
            and (line is None or place.line == line)
            and (kind is None or place.kind == kind)
        ]

    @property
    def errors(self) -> dict[str, tuple[int, str]]:
        """For each file that does not compile completely: the number of errors, and the first of them."""
        return {name: (facts.errors, facts.first_error) for name, facts in sorted(self._files.items()) if facts.errors}

    def write(self, directory: str | Path) -> None:
        """Write a file of facts for each relation, and the table of nodes, as Soufflé reads them."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        for relation in RELATIONS:
            write_pairs(directory / f"{relation}.facts", self.facts(relation))
        places = {number: self.place(number) for number, known in self._places.items() if known}
        write_nodes(directory / NODES_FILE, self.nodes.keys, places)

    def keyed_facts(self) -> dict[str, set[tuple[str, str]]]:
        """All facts as pairs of keys, which do not depend on the order in which files were read."""
        keys = self.nodes.keys
        return {
            relation: {(keys[left], keys[right]) for left, right in counts} for relation, counts in self._counts.items()
        }

    def __repr__(self) -> str:
        total = sum(map(len, self._counts.values()))
        return f"Extraction({str(self.root)!r}: {len(self._files)} files, {len(self.nodes)} nodes, {total} facts)"
