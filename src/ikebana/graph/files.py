"""Edge lists from files: text, CSV and Parquet, as Arrow tables.

Text is what SNAP and many others distribute: a line for each edge, two ids and perhaps further columns, separated by
any spaces or tabs; lines that start with `#` or `%` are comments. Ids that all fit into 32 bits are 32-bit integers,
with which programs are fastest; other integers have 64 bits, and ids that are not integers are strings.

Cost: files are read by Arrow, in parallel. Text without comments whose columns are separated by one tab or one space is
read as it is; other text is rewritten in memory first.

Not guaranteed: anything about files that do not fit into memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from ikebana.errors import SchemaError

_COMMENT_LINES = re.compile(rb"^[ \t]*[#%].*\n?", re.M)
_FIRST_COMMENTS = re.compile(rb"(?:[ \t]*[#%].*\n|\s+)*")


def read_edges(
    path: str | Path, *, src: str | int | None = None, dst: str | int | None = None, columns: Sequence[str] = ()
) -> pa.Table:
    """Read a file of edges: a table with the columns `src`, `dst`, and further ones.

    `path`: a file whose name ends in `.parquet`, in `.csv` (with a header), or in anything else (text without a header,
    see the module); `.gz` after that is decompressed.
    `src`, `dst`: the columns of the ends of edges, by name or position; by default the columns `src` and `dst` if there
    are any, else the first two.
    `columns`: the names of the columns of a text file, by default `src`, `dst`, `column 3`, ...

    >>> path = Path(getfixture("tmp_path")) / "graph.txt"
    >>> _ = path.write_text("# a comment\\n1 2\\n2\\t 3\\n")
    >>> read_edges(path).to_pydict()
    {'src': [1, 2], 'dst': [2, 3]}
    >>> read_edges(path).schema.field("src").type
    DataType(int32)
    """
    path = Path(path)
    suffix = path.suffixes[-2:-1] if path.suffix == ".gz" else [path.suffix]
    if suffix == [".parquet"]:
        table = pyarrow.parquet.read_table(path)
    elif suffix == [".csv"]:
        table = pyarrow.csv.read_csv(path)
    else:
        table = _read_text(path, columns)
    return _with_ends(table, src, dst, path)


def _read_text(path: Path, columns: Sequence[str]) -> pa.Table:
    with pa.input_stream(path, compression="detect") as stream:
        data, separator = _regular(stream.read())
    if not data:
        return pa.table({name: pa.array([], pa.int32()) for name in (*columns, "src", "dst")[:2]})
    width = data.partition(b"\n")[0].count(separator) + 1
    names = list(columns) or ["src", "dst", *(f"column {number}" for number in range(3, width + 1))][:width]
    options = pyarrow.csv.ParseOptions(delimiter=separator.decode(), quote_char=False)
    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(data), pyarrow.csv.ReadOptions(column_names=names), parse_options=options
        )
    except pa.ArrowInvalid as error:
        raise SchemaError(f"cannot read edges from {str(path)!r}", detail=str(error)) from None


def _regular(data: bytes) -> tuple[bytes, bytes]:
    """Text without comments, in which columns are separated by one tab or one space; and that separator."""
    comments = _FIRST_COMMENTS.match(data)
    data = data[comments.end() if comments else 0 :]
    if b"#" in data or b"%" in data:
        data = _COMMENT_LINES.sub(b"", data)
    data = data.strip()
    one, other = (b"\t", b" ") if b"\t" in data.partition(b"\n")[0] else (b" ", b"\t")
    data = data.replace(other, one)
    for irregular, regular in ((one + one, one), (one + b"\n", b"\n"), (one + b"\r", b"\r"), (b"\n" + one, b"\n")):
        while irregular in data:
            data = data.replace(irregular, regular)
    return data, one


def _with_ends(table: pa.Table, src: str | int | None, dst: str | int | None, path: Path) -> pa.Table:
    """The table with its columns of ends first, as `src` and `dst`, of one type."""
    names = table.column_names
    default: tuple[str | int, str | int] = ("src", "dst") if {"src", "dst"} <= set(names) else (0, 1)
    ends = [_column(table, default[at] if end is None else end, path) for at, end in enumerate((src, dst))]
    others = [name for at, name in enumerate(names) if at not in ends]
    if len(others) != len(names) - 2 or {"src", "dst"} & set(others):
        raise SchemaError(
            f"the ends of the edges in {str(path)!r} are not two columns of their own",
            detail=f"the columns are {', '.join(names)}",
            hint="name two different columns as `src` and `dst`, and no other column src or dst",
        )
    source, target = narrowest([table.column(at) for at in ends])
    return pa.table([source, target, *(table.column(name) for name in others)], names=["src", "dst", *others])


def _column(table: pa.Table, name: str | int, path: Path) -> int:
    names = table.column_names
    if isinstance(name, str) and name in names:
        return names.index(name)
    if isinstance(name, int) and 0 <= name < len(names):
        return name
    raise SchemaError(f"{str(path)!r} has no column {name!r}", detail=f"the columns are {', '.join(names)}")


def narrowest(columns: Sequence[pa.ChunkedArray]) -> list[pa.ChunkedArray]:
    """The columns as one type: integers of 32 bits if all values fit, else of 64 bits, else strings.

    >>> [str(column.type) for column in narrowest([pa.chunked_array([[1, 2]]), pa.chunked_array([[3]])])]
    ['int32', 'int32']
    """
    kinds = {column.type for column in columns}
    if all(pa.types.is_integer(kind) for kind in kinds):
        return [column.cast(_integer_type(columns)) for column in columns]
    if len(kinds) == 1:
        return list(columns)
    return [column.cast(pa.string()) for column in columns]


def _integer_type(columns: Sequence[pa.ChunkedArray]) -> pa.DataType:
    extremes: list[Any] = [value for column in columns for value in pc.min_max(column).as_py().values()]
    known = [value for value in extremes if value is not None]
    if all(-(2**31) <= value < 2**31 for value in known):
        return pa.int32()
    return pa.int64() if all(value < 2**63 for value in known) else pa.uint64()
