"""Pathway as an incremental peer: each query runs in a separate process, with one thread per worker.

Pathway requires other versions of Arrow than this package is tested with. It can be installed in a separate virtual
environment, whose Python is named by the environment variable IKEBANA_PATHWAY_PYTHON:

    python -m venv elsewhere && elsewhere/bin/pip install pathway
    IKEBANA_PATHWAY_PYTHON=elsewhere/bin/python ikebana bench tpch-rates --scale 0.1 --peers pathway

Rows are written to CSV files beforehand, one file for each batch of each table; `pathway_child` gives the reason. The
tables advance independently, instead of one batch of all tables at a time. With one worker the answer changes with
every file. With two workers Pathway combines some files (five or six changes for seven files), which is in its favour.

The clock runs from the start to the end of the Pathway run; importing Pathway and building the query are not measured.
The time includes reading the files and writing the changes of the answer, while our rows are in memory. Counting the
rows of the same files takes about half of the time of Q6, the cheapest query, so the ratios of cheap queries reflect
input as much as maintenance. ORDER BY and LIMIT are left out. Pathway runs all 22 queries.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyarrow.csv import write_csv

from ikebana.errors import IkebanaError
from ikebana_bench.tpch.peers import Peer, Rows, differing, plain

PYTHON = "IKEBANA_PATHWAY_PYTHON"
"""The environment variable with the path of a Python that has Pathway; the default is the current Python."""

_CHILD = Path(__file__).with_name("pathway_child.py")
_MISSING = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pathway') is None)"


class Pathway(Peer):
    """Answers are compared with Spark's, as floating-point numbers."""

    name, title = "pathway", "Pathway"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._python = os.environ.get(PYTHON) or sys.executable
        if subprocess.run([self._python, "-I", "-c", _MISSING]).returncode:
            hint = f"install it with `pip install pathway`, or set {PYTHON} to the path of a Python that has it"
            raise IkebanaError("Pathway is not installed", hint=hint)

    def feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
        with TemporaryDirectory() as path:
            folder = Path(path)
            kinds = {name: _write(folder / name, plain(table), batch) for name, table in rows.items()}
            (folder / "columns.json").write_text(json.dumps(kinds))
            seconds = self._run(number, folder)
            return seconds, _answer(folder / "answer.csv")

    def wrong(self, number: int, actual: pa.Table, expected: pa.Table) -> str:
        expected = plain(expected)
        if not actual.num_rows:  # Pathway has no row for an aggregate of no rows, where SQL has a row of nulls
            values = [value for row in expected.to_pylist() for value in row.values() if value is not None]
            return f"no rows instead of {expected.num_rows}" if values else ""
        schema = pa.schema(zip(actual.column_names, expected.schema.types, strict=True))
        return differing(actual.cast(schema), expected)

    def _run(self, number: int, folder: Path) -> float:
        environment = os.environ | {"PATHWAY_THREADS": str(self.workers)}
        command = [self._python, "-I", str(_CHILD), str(number), str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise IkebanaError(f"Pathway failed to run Q{number}", detail=done.stderr[-2000:])
        return float(done.stdout.split()[-1])


def _write(folder: Path, rows: pa.Table, batch: int) -> dict[str, str]:
    """Write files with `batch` rows each, and return the types of their columns in Pathway."""
    folder.mkdir()
    for start in range(0, rows.num_rows, batch):
        write_csv(rows.slice(start, batch), folder / f"{start:012}.csv")
    return {field.name: _kind(field.type) for field in rows.schema}


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "int"
    return "float" if pa.types.is_floating(kind) else "str"


def _answer(path: Path) -> pa.Table:
    """Return the sum of all changes of an answer, as strings; a table without columns if there are no changes."""
    counts: Counter[tuple[tuple[str, str], ...]] = Counter()
    with path.open(encoding="utf-8", newline="") as file:
        for change in csv.DictReader(file):
            diff = int(change.pop("diff"))
            change.pop("time")
            counts[tuple(change.items())] += diff
    return pa.Table.from_pylist(list(map(dict, counts.elements())))
