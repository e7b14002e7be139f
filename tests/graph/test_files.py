"""Edge lists from files: any separators and comments, CSV and Parquet, and the narrowest type of ids."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import SchemaError
from ikebana.graph import read_edges
from tests.profiles import examples

SPACES = st.sampled_from([" ", "\t", "  ", " \t"])


@examples(1, quick=0.6)
@given(
    edges=st.lists(st.tuples(st.integers(-9, 99), st.integers(0, 2**33)), min_size=1, max_size=5),
    separators=st.lists(SPACES, min_size=5, max_size=5),
    comments=st.lists(st.sampled_from(["", "# note 1 2\n", "% 1\n", "\n"]), min_size=5, max_size=5),
    around=st.tuples(st.sampled_from(["", " "]), st.sampled_from(["", " ", "\t"])),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_oracle_text(
    tmp_path_factory: pytest.TempPathFactory,
    edges: list[tuple[int, int]],
    separators: list[str],
    comments: list[str],
    around: tuple[str, str],
    ending: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "edges.txt"
    lines = [
        f"{comment}{around[0]}{a}{separator}{b}{around[1]}{ending}"
        for (a, b), separator, comment in zip(edges, separators, comments, strict=False)
    ]
    path.write_bytes("".join(lines).encode())
    table = read_edges(path)
    assert list(zip(*table.to_pydict().values(), strict=True)) == edges
    assert table.schema.field("src").type == (pa.int32() if max(b for _, b in edges) < 2**31 else pa.int64())


def test_strings_and_further_columns(tmp_path: Path) -> None:
    path = tmp_path / "edges.tsv.gz"
    with gzip.open(path, "wt") as file:
        file.write("ann\tbob\t0.5\nbob\tcleo\t1.5")
    table = read_edges(path)
    assert table.to_pydict() == {"src": ["ann", "bob"], "dst": ["bob", "cleo"], "column 3": [0.5, 1.5]}
    assert read_edges(path, columns=["src", "dst", "miles"]).column_names == ["src", "dst", "miles"]
    path.write_bytes(gzip.compress(b"# nothing\n"))
    assert read_edges(path).num_rows == 0


def test_csv_and_parquet(tmp_path: Path) -> None:
    table = pa.table({"when": [5, 6], "who": [1, 2], "whom": [2, 3]})
    pyarrow.csv.write_csv(table, tmp_path / "edges.csv")
    pyarrow.parquet.write_table(table, tmp_path / "edges.parquet")
    for name in ("edges.csv", "edges.parquet"):
        edges = read_edges(tmp_path / name, src="who", dst="whom")
        assert edges.to_pydict() == {"src": [1, 2], "dst": [2, 3], "when": [5, 6]}
        assert edges.schema.field("src").type == pa.int32() and edges.schema.field("when").type == pa.int64()
        assert read_edges(tmp_path / name).column_names == ["src", "dst", "whom"]


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("1 2\n3\n")
    with pytest.raises(SchemaError, match="cannot read edges"):
        read_edges(path)
    path.write_text("1\n")
    with pytest.raises(SchemaError, match="has no column 1"):
        read_edges(path)
    path.write_text("1 2\n")
    with pytest.raises(SchemaError, match="has no column 'who'"):
        read_edges(path, src="who")
    with pytest.raises(SchemaError, match="not two columns"):
        read_edges(path, src=0, dst=0)
