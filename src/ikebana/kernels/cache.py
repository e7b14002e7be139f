"""Where compiled kernels are stored: a directory for each version of this package's sources, Numba and processor.

Numba's own cache does not detect a change of a function that a kernel calls, and has a directory for each path from
which a package is imported, so that every virtual environment would compile again. A directory that is not writable is
used if it has all kernels, as in an image that was warmed by another user, and skipped otherwise. A process that
compiles deletes directories that no process has loaded kernels from for `UNUSED_DAYS`.

Cost: the sources are read once in each process, and llvmlite is imported (25 ms), which names the processor as
Numba sees it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

_COMPLETE = f"complete-{sys.implementation.cache_tag}"
"""The file that marks a directory with all kernels for this version of Python; touched whenever they are loaded."""

_PREFIX = "kernels-"
_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")
"""The settings of Numba that change for which processor it compiles."""

UNUSED_DAYS = 30


@cache
def cache_directory() -> Path:
    """Return the directory of the compiled kernels.

    >>> cache_directory() == cache_directory()
    True
    """
    digest = hashlib.sha256(repr((metadata.version("numba"), *_processor())).encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    name = f"{_PREFIX}{digest.hexdigest()[:16]}"
    for root in _cache_roots():
        if (root / name / _COMPLETE).exists() or _is_writable(root / name):
            return root / name
    return Path(tempfile.mkdtemp(prefix="ikebana-kernels-"))


def _processor() -> tuple[str | None, ...]:
    """The processor for which Numba compiles: its name and its features, and settings that replace them."""
    from llvmlite import binding  # an import that other commands do not need

    features = binding.get_host_cpu_features().flatten()
    return (binding.get_host_cpu_name(), features, *map(os.environ.get, _SETTINGS))


def _is_writable(directory: Path) -> bool:
    """Create a directory; return whether it can be written to."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


class KernelLocator:
    """Tells Numba where a kernel is cached (its setting `CACHE_LOCATOR_CLASSES`)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., Any], path: str) -> KernelLocator:
        """The locator of a kernel."""
        return cls(function)

    def ensure_cache_path(self) -> None:
        """Do nothing: `cache_directory` has created the directory."""

    def get_cache_path(self) -> str:
        """The directory."""
        return str(cache_directory())

    def get_source_stamp(self) -> str:
        """What changes with the sources."""
        return cache_directory().name

    def get_disambiguator(self) -> str:
        """What distinguishes kernels of one name."""
        return str(self._line)


def is_cached(function: Callable[..., Any]) -> bool:
    """Whether the directory has a kernel."""
    return is_complete() or any(cache_directory().glob(f"*.{function.__name__}-*.nbi"))


def is_complete() -> bool:
    """Whether the directory has all kernels, compiled."""
    return (cache_directory() / _COMPLETE).exists()


def mark_complete() -> None:
    """Note that the directory has all kernels, compiled, and that they are in use."""
    with suppress(OSError):  # not writable, or full
        (cache_directory() / _COMPLETE).touch()


def delete_unused() -> None:
    """Delete the directories beside this one that have not been in use for `UNUSED_DAYS`."""
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for other in cache_directory().parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # deleted by another process
            if other != cache_directory() and max(file.stat().st_mtime for file in (other, *other.iterdir())) < oldest:
                shutil.rmtree(other)


def _cache_roots() -> Iterator[Path]:
    """Return possible locations of the cache, best first; the last is shared at least by this user's processes."""
    configured = os.environ.get("IKEBANA_KERNEL_CACHE")
    if configured:
        yield Path(configured).expanduser()
    yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ikebana"
    yield Path(tempfile.gettempdir()) / f"ikebana-{os.environ.get('USER') or 'user'}"
