"""Kernels are compiled once: the first process says so, the next ones find them on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ikebana

IMPORT = """
import json, sys
import numba
numba.config.CACHE_DIR = sys.argv[1]
from ikebana.kernels import KERNELS
assert numba.config.CACHE_DIR == sys.argv[1], "importing the kernels changes where others keep their caches"
print(json.dumps({name: [len(k.stats.cache_hits), len(k.stats.cache_misses)] for name, k in KERNELS.items()}))
"""


def import_kernels(cache: Path, elsewhere: Path) -> tuple[dict[str, list[int]], str]:
    """Import the kernels in a process of its own: each one's cache hits and misses, and what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"IKEBANA_KERNEL_CACHE": str(cache), "PYTHONPATH": str(Path(ikebana.__file__).parents[1])}
    command = [sys.executable, "-c", IMPORT, str(elsewhere)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_the_first_import_compiles_and_the_next_ones_load(tmp_path: Path) -> None:
    cache, elsewhere = tmp_path / "kernels", tmp_path / "elsewhere"

    first, message = import_kernels(cache, elsewhere)
    assert set(map(tuple, first.values())) == {(0, 1)}, "each kernel is compiled, for one signature"
    assert message == f"ikebana: compiled {len(first)} kernels\n"
    files = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}
    assert len(files) == 2 * len(first), "an index and the machine code for each"

    second, message = import_kernels(cache, elsewhere)
    assert set(map(tuple, second.values())) == {(1, 0)}, "nothing is compiled again"
    assert message == ""
    assert files == {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}
    assert not elsewhere.exists(), "nothing is kept where others keep theirs"
