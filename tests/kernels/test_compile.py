"""Kernels are compiled once: the first process says so, the next ones find them on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest

import ikebana
from ikebana import kernels
from ikebana.kernels import cache
from ikebana.kernels.compile import KERNELS

IMPORT = """
import json, sys
import numba
numba.config.CACHE_DIR = sys.argv[1]
{kernels}
assert numba.config.CACHE_DIR == sys.argv[1], "importing the kernels changes where others keep their caches"
counts = dict((name, [len(k.stats.cache_hits), len(k.stats.cache_misses)]) for name, k in KERNELS.items())
print(json.dumps(counts))
"""

ALL = """
from ikebana import kernels
from ikebana.kernels.compile import KERNELS
kernels.load()
"""
FEW = """
import numpy
from ikebana.kernels import hash_integers
from ikebana.kernels.compile import KERNELS
hash_integers(numpy.zeros(1, "int64"), numpy.ones(1, "uint8"), numpy.zeros(1, "int64"))
assert "hash_bytes" in KERNELS and "merge_rows" not in KERNELS, "a call loads the kernels of its module"
"""
SOURCES = str(Path(ikebana.__file__).parents[1])


def import_kernels(statements: str, cache: Path, elsewhere: Path, **settings: str) -> tuple[dict[str, list[int]], str]:
    """Import the kernels in a process of its own: each one's cache hits and misses, and what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"IKEBANA_KERNEL_CACHE": str(cache), "PYTHONPATH": SOURCES} | settings
    command = [sys.executable, "-c", IMPORT.format(kernels=statements), str(elsewhere)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("statements", [FEW, pytest.param(ALL, marks=pytest.mark.thorough)], ids=["few", "all"])
def test_the_first_import_compiles_and_the_next_ones_load(tmp_path: Path, statements: str) -> None:
    cache, elsewhere = tmp_path / "kernels", tmp_path / "elsewhere"

    first, message = import_kernels(statements, cache, elsewhere)
    assert set(map(tuple, first.values())) == {(0, 1)}, "each kernel is compiled, for one signature"
    before, after = message.splitlines()
    assert before == f"ikebana: compiling {len(first)} kernels, once on this machine"
    assert after.startswith(f"ikebana: compiled {len(first)} kernels in ")
    files = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}
    assert len(files) == 2 * len(first), "an index and the machine code for each"

    second, message = import_kernels(statements, cache, elsewhere)
    assert set(map(tuple, second.values())) == {(1, 0)}, "nothing is compiled again"
    assert message == ""
    assert files == {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb?")}
    assert not elsewhere.exists(), "nothing is kept where others keep theirs"


def test_kernels_for_another_processor_are_compiled_again(tmp_path: Path) -> None:
    """As where an image was warmed on one kind of machine and starts on another."""
    import_kernels(FEW, tmp_path, tmp_path / "elsewhere", NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    compiled, message = import_kernels(FEW, tmp_path, tmp_path / "elsewhere")
    assert set(map(tuple, compiled.values())) == {(0, 1)}
    assert message.startswith("ikebana: compiling")
    assert len(list(tmp_path.glob("kernels-*"))) == 2


def new_cache_directory() -> Path:
    """The directory of a process that starts now."""
    return cache.cache_directory.__wrapped__()


def test_a_directory_that_is_not_writable_is_used_if_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image that was warmed by its owner and runs as another user."""
    monkeypatch.setenv("IKEBANA_KERNEL_CACHE", str(tmp_path / "image"))
    image = new_cache_directory()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "_is_writable", lambda directory: tmp_path / "home" in directory.parents)
    assert new_cache_directory() == tmp_path / "home" / "ikebana" / image.name
    (image / cache._COMPLETE).touch()
    assert new_cache_directory() == image


def test_directories_that_nobody_uses_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("kernels-own", "kernels-recent", "kernels-old", "classes-old")
    month = cache.UNUSED_DAYS * 24 * 3600
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "complete").touch()
        for path in (tmp_path / name / "complete", tmp_path / name):
            os.utime(path, (time.time() - month - 60,) * 2)
    os.utime(tmp_path / "kernels-recent" / "complete", (time.time() - month + 60,) * 2)
    monkeypatch.setattr(cache, "cache_directory", lambda: tmp_path / "kernels-own")
    cache.delete_unused()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(set(names) - {"kernels-old"})


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_a_cache_with_all_kernels_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.load()
    assert cache.is_complete()
    loaded: list[bool] = []
    monkeypatch.setattr(kernels, "load", lambda: loaded.append(True))
    kernels.ensure_compiled()
    assert not loaded
    monkeypatch.setattr(cache, "cache_directory", lambda: tmp_path)
    kernels.ensure_compiled()
    assert loaded, "a driver compiles before it starts workers"


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_every_kernel_is_compiled_for_one_signature_and_kept() -> None:
    """In this process; Numba does not keep a kernel whose code has addresses of this process."""
    kernels.load()
    assert all(len(kernel.stats.cache_hits) + len(kernel.stats.cache_misses) == 1 for kernel in KERNELS.values())
    kept = [path.name for path in cache.cache_directory().rglob("*.nb?")]
    for name in KERNELS:
        assert {path.rsplit(".", 1)[1] for path in kept if f".{name}-" in path} == {"nbi", "nbc"}, name
