"""Soufflé's files: facts that `.input` reads, and results that `.output` and `.printsize` write.

The options are Soufflé's: `IO` (`file`, `stdin`, `stdout`, `stdoutprintsize`), `filename`, `delimiter`, `headers`,
`rfc4180`, `columns` and `compress`. A facts file is `relation.facts` in the facts folder, a line for each fact, with
tabs between its columns; a result is `relation.csv`, its rows in order. Files that begin like gzip files are
decompressed.

Files are read and written by Arrow. What Arrow refuses is read again line by line (`_Lines`), either to accept what
Soufflé accepts (delimiters of several characters, for example), or to name the line of the error.

Cost: that of Arrow's CSV reader, which uses all processors; reading line by line is a hundred times slower.
"""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as csv

from ikebana.datalog.check import Relation
from ikebana.datalog.errors import not_supported
from ikebana.datalog.storage import Storage
from ikebana.datalog.syntax import Directive
from ikebana.datalog.types import Primitive
from ikebana.errors import DatalogError

_KNOWN_OPTIONS = frozenset(
    ["IO", "filename", "delimiter", "headers", "rfc4180", "columns", "compress", "attributeNames", "name", "operation"]
)


@dataclass(frozen=True)
class FileOptions:
    """The options of a directive."""

    relation: Relation
    kind: str
    io: str
    filename: str
    delimiter: str
    headers: bool
    rfc4180: bool
    compress: bool
    columns: tuple[int, ...]
    """The columns of the file that are the attributes, in their order."""

    @staticmethod
    def of(directive: Directive, relation: Relation) -> FileOptions:
        """The options of a directive; raises if it has one that is not supported."""
        options = dict(directive.options)
        unknown = options.keys() - _KNOWN_OPTIONS
        if unknown:
            hint = f"supported are {', '.join(sorted(_KNOWN_OPTIONS))}"
            raise not_supported(directive.position, f"the option {min(unknown)} of .{directive.kind} is", hint)
        default = "stdoutprintsize" if directive.kind == "printsize" else "file"
        where = options.get("IO", default)
        allowed = ("file", "stdin") if directive.kind == "input" else ("file", "stdout", "stdoutprintsize")
        if where not in allowed:
            hint = f"supported are {', '.join(allowed)}"
            raise not_supported(directive.position, f"IO={where} of .{directive.kind} is", hint)
        compress = _is_true(options.get("compress", "false"))
        suffix = ".facts" if directive.kind == "input" else ".csv.gz" if compress else ".csv"
        rfc4180 = _is_true(options.get("rfc4180", "false"))
        columns = options.get("columns", "")
        return FileOptions(
            relation,
            directive.kind,
            where,
            options.get("filename", relation.name + suffix),
            options.get("delimiter", "," if rfc4180 else "\t"),
            _is_true(options.get("headers", "false")),
            rfc4180,
            compress,
            tuple(map(int, columns.split(":"))) if columns else tuple(range(relation.arity)),
        )

    def path(self, directory: Path) -> Path:
        return directory / self.filename


def _is_true(text: str) -> bool:
    return text.lower() in ("true", "1", "yes", "")


# Reading.


def read_facts(options: FileOptions, directory: Path, storage: Storage) -> pa.Table:
    """The facts in a file, with a column for each attribute; raises an error that names the file and the line."""
    if options.io == "stdin":
        return _parsed(sys.stdin.buffer.read(), "<stdin>", options, storage)
    path = options.path(directory)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DatalogError(
            f'cannot read the facts of "{options.relation.name}"',
            detail=f"{path}: {error.strerror}",
            hint="create the file, or choose another folder with -F",
        ) from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise DatalogError(
                f'cannot read the facts of "{options.relation.name}"', detail=f"{path}: {error}"
            ) from None
    return _parsed(data, str(path), options, storage)


def _parsed(data: bytes, source: str, options: FileOptions, storage: Storage) -> pa.Table:
    relation = options.relation
    lines = _Lines(data, source, options, storage)
    if not relation.arity or len(options.delimiter) != 1 or options.columns != tuple(range(relation.arity)):
        return lines.table()
    first = data.find(b"\n") + 1 if options.headers else 0
    if options.headers and not first:
        first = len(data)
    if first == len(data) or (options.rfc4180 and data.count(b'"') % 2):  # Arrow would close the quote at the end
        return lines.table()
    try:
        return csv.read_csv(
            io.BytesIO(data[first:] if first else data),
            csv.ReadOptions(column_names=list(relation.attributes)),
            csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char='"' if options.rfc4180 else False,
                ignore_empty_lines=False,
            ),
            csv.ConvertOptions(
                column_types={
                    name: pa.string() if kind == "symbol" else storage.type(kind)
                    for name, kind in zip(relation.attributes, relation.types, strict=True)
                },
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return lines.table()


class _Lines:
    """A facts file, read line by line."""

    def __init__(self, data: bytes, source: str, options: FileOptions, storage: Storage) -> None:
        self._data, self._source, self._options, self._storage = data, source, options, storage

    def table(self) -> pa.Table:
        relation = self._options.relation
        if not relation.arity:
            return pa.table({"": pa.array([0] * sum(1 for _ in self._rows()), pa.int32())})
        rows = list(self._rows())
        columns = zip(*rows, strict=True) if rows else ([] for _ in relation.attributes)
        types = [pa.string() if kind == "symbol" else self._storage.type(kind) for kind in relation.types]
        arrays = [pa.array(list(values), kind) for values, kind in zip(columns, types, strict=True)]
        return pa.table(dict(zip(relation.attributes, arrays, strict=True)))

    def _rows(self) -> Iterator[tuple[int | float | str, ...]]:
        options, relation = self._options, self._options.relation
        lines = self._data.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        for number, line in enumerate(lines, 1):
            if number == 1 and options.headers:
                continue
            try:
                text = line.removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                raise self._error(number, f"it is not UTF-8: {error.reason} at byte {error.start + 1}") from None
            if not relation.arity:
                if text != "()":
                    raise self._error(number, f"a fact of {relation} is written as ()")
                yield ()
                continue
            fields = self._fields(text, number)
            count = max(options.columns) + 1
            is_selection = options.columns != tuple(range(relation.arity))
            if len(fields) < count or (len(fields) > count and not is_selection):
                raise self._error(number, f"it has {len(fields)} columns, but {relation} has {relation.arity}")
            yield tuple(
                self._value(fields[at], kind, number, at + 1)
                for at, kind in zip(options.columns, relation.types, strict=True)
            )

    def _fields(self, text: str, number: int) -> list[str]:
        options = self._options
        if not options.rfc4180:
            return text.split(options.delimiter)
        fields, at = [], 0
        while True:
            if text.startswith('"', at):
                field, at = self._quoted(text, at + 1, number)
            else:
                end = text.find(options.delimiter, at)
                end = len(text) if end < 0 else end
                field, at = text[at:end], end
            fields.append(field)
            if at == len(text):
                return fields
            if not text.startswith(options.delimiter, at):
                raise self._error(number, f"a quoted field is not followed by {options.delimiter!r}")
            at += len(options.delimiter)

    def _quoted(self, text: str, at: int, number: int) -> tuple[str, int]:
        """A quoted field after its opening quote, and where it ends."""
        parts = []
        while True:
            end = text.find('"', at)
            if end < 0:
                raise self._error(number, "a quote is not closed")
            parts.append(text[at:end])
            if not text.startswith('""', end):
                return "".join(parts), end + 1
            parts.append('"')
            at = end + 2

    def _value(self, text: str, kind: Primitive, number: int, column: int) -> int | float | str:
        if kind == "symbol":
            return text
        try:
            if kind == "float":
                return float(text)
            value = int(text, {"0x": 16, "0b": 2}.get(text.lstrip("-")[:2], 10))
            if self._storage.fits(value, kind):
                return value
            problem = f"is out of range for a {kind} of {self._storage.bits} bits"
        except ValueError:
            problem = f"is not a {kind}"
        raise self._error(number, f"column {column} is {text!r}, which {problem}")

    def _error(self, number: int, detail: str) -> DatalogError:
        return DatalogError(
            f'the facts of "{self._options.relation.name}" are not valid',
            detail=f"{self._source}, line {number}: {detail}",
            hint="correct the file; nothing of it was applied",
        )


# Writing.


def write_relation(options: FileOptions, rows: pa.Table, directory: Path, out: IO[str]) -> None:
    """Write the rows of a relation as a directive says; `directory` may be `-` for standard output."""
    relation = options.relation
    if options.io == "stdoutprintsize":
        out.write(f"{relation.name}\t{rows.num_rows}\n")
        return
    is_stdout = options.io == "stdout" or str(directory) == "-"
    data = _written(options, rows)
    header = options.delimiter.join(relation.attributes) + "\n" if options.headers else ""
    if is_stdout:
        out.write(f"---------------\n{relation.name}\n{header}===============\n{data.decode()}===============\n")
        return
    path = options.path(directory)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = header.encode() + data
        path.write_bytes(gzip.compress(data) if options.compress else data)
    except OSError as error:
        raise DatalogError(f'cannot write "{relation.name}"', detail=f"{path}: {error.strerror}") from None


def _written(options: FileOptions, rows: pa.Table) -> bytes:
    """The rows of a relation as text, in order."""
    if not options.relation.arity:
        return b"()\n" * rows.num_rows
    rows = rows.sort_by([(name, "ascending") for name in rows.schema.names])
    rows = _with_printed_floats(rows)
    if len(options.delimiter) == 1:
        buffer = io.BytesIO()
        style = "needed" if options.rfc4180 else "none"
        try:
            write_options = csv.WriteOptions(include_header=False, delimiter=options.delimiter, quoting_style=style)
            csv.write_csv(rows, buffer, write_options)
            return buffer.getvalue()
        except pa.ArrowInvalid:
            pass  # a string contains the delimiter, a quote or a newline, and is not quoted
    columns = [[_printed(value, options) for value in column.to_pylist()] for column in rows.columns]
    return "".join(options.delimiter.join(fields) + "\n" for fields in zip(*columns, strict=True)).encode()


def _printed(value: Any, options: FileOptions) -> str:
    if options.rfc4180 and isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return str(value)


def _with_printed_floats(rows: pa.Table) -> pa.Table:
    """The rows with floats as text: the shortest that is exact, without a fraction that is zero."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            texts = pa.array([repr(value).removesuffix(".0") for value in rows.column(at).to_pylist()], pa.string())
            rows = rows.set_column(at, field.name, texts)
    return rows


def all_options(
    directives: Sequence[Directive], relations: Mapping[str, Relation], *, inputs: bool
) -> list[FileOptions]:
    """The options of all `.input` directives, or of all others."""
    return [
        FileOptions.of(directive, relations[directive.relation])
        for directive in directives
        if (directive.kind == "input") == inputs
    ]
