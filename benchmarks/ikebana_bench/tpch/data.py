"""The data of TPC-H as Parquet files, which tpchgen-cli generates once per scale and number of files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from ikebana.errors import IkebanaError
from ikebana_bench.tpch.schemas import SCHEMAS, TABLES


def tables(scale: float, directory: Path, *, files: int = 1, names: Iterable[str] = TABLES) -> Path:
    """Return a folder with a subfolder of Parquet files for each table; missing files are generated."""
    folder = directory / f"scale-{scale:g}-files-{files}"
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        _generate(folder, scale, files, missing)
    return folder


def read(folder: Path) -> dict[str, pa.Table]:
    """Read all tables of a folder into memory, with one chunk per column."""
    return {name: pq.read_table(folder / name).cast(SCHEMAS[name]).combine_chunks() for name in TABLES}


def _generate(folder: Path, scale: float, files: int, names: list[str]) -> None:
    program = shutil.which("tpchgen-cli", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        raise IkebanaError(
            "cannot generate the data of TPC-H",
            detail="tpchgen-cli is not installed",
            hint="install it with `pip install tpchgen-cli`",
        )
    folder.mkdir(parents=True, exist_ok=True)
    options = ["parquet", "--scale-factor", f"{scale:g}", "--tables", ",".join(names), "--parts", str(files)]
    with TemporaryDirectory(dir=folder) as temporary:
        subprocess.run([program, *options, "--output-dir", temporary, "--quiet", "--no-progress"], check=True)
        for name in names:
            os.rename(Path(temporary) / name, folder / name)
