"""Pathway, as a peer that is incremental too: each query in a process of its own, with a thread for each worker.

Pathway need not be installed here: its releases want other versions of Arrow than this package is tested with. It may
be in a Python of its own, which the environment variable IKEBANA_PATHWAY_PYTHON names:

    python -m venv elsewhere && elsewhere/bin/pip install pathway
    IKEBANA_PATHWAY_PYTHON=elsewhere/bin/python ikebana bench tpch-rates --scale 0.1 --peers pathway

Rows are written to CSV files beforehand, a file for each batch of each table (see `pathway_child` for why). Tables
advance on their own, rather than a batch of all at a time. With one worker the answer changes with every file; with two
Pathway takes some files together, five or six times for seven files, which is in its favour.
The clock runs from the start of the run, after imports and after the query was made, to its end. Reading files is
within that, and so is writing changes of the answer, while ours has its rows in memory: only counting the rows of the
same files takes about half of the time of Q6, the lightest, so the ratios of light queries are those of input as much
as of maintenance. There is no ORDER BY and no LIMIT.

Pathway runs all 22.
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
"""The environment variable that names a Python with Pathway, if it is not the one that runs."""

_CHILD = Path(__file__).with_name("pathway_child.py")
_MISSING = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pathway') is None)"


class Pathway(Peer):
    """Its answers are compared with Spark's, in floating-point numbers."""

    name, title = "pathway", "Pathway"

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._python = os.environ.get(PYTHON) or sys.executable
        if subprocess.run([self._python, "-I", "-c", _MISSING]).returncode:
            hint = f"install it with pip install pathway, or name a Python that has it in {PYTHON}"
            raise IkebanaError("Pathway is not installed", hint=hint)

    def feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
        with TemporaryDirectory() as path:
            folder = Path(path)
            kinds = {name: _write(folder / name, plain(table), batch) for name, table in rows.items()}
            (folder / "columns.json").write_text(json.dumps(kinds))
            seconds = self._run(number, folder)
            return seconds, _answer(folder / "answer.csv")

    def wrong(self, number: int, actual: pa.Table, wanted: pa.Table) -> str:
        expected = plain(wanted)
        if not actual.num_rows:  # not even where SQL has a row, the sum of nothing
            left = [value for row in expected.to_pylist() for value in row.values() if value is not None]
            return f"no rows in place of {expected.num_rows}" if left else ""
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
    """Write files with so many rows each; what their columns are for Pathway."""
    folder.mkdir()
    for start in range(0, rows.num_rows, batch):
        write_csv(rows.slice(start, batch), folder / f"{start:012}.csv")
    return {field.name: _kind(field.type) for field in rows.schema}


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "int"
    return "float" if pa.types.is_floating(kind) else "str"


def _answer(path: Path) -> pa.Table:
    """What is left of all changes of an answer, as text; not even columns, if there were none."""
    counts: Counter[tuple[tuple[str, str], ...]] = Counter()
    with path.open(encoding="utf-8", newline="") as file:
        for change in csv.DictReader(file):
            diff = int(change.pop("diff"))
            change.pop("time")
            counts[tuple(change.items())] += diff
    return pa.Table.from_pylist(list(map(dict, counts.elements())))
