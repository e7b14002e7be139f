"""Where compiled kernels are stored: one directory for each version of the sources of this package and of Numba.

Numba's own cache does not detect a change of a function that a kernel calls, and has a directory for each path from
which a package is imported, so that every virtual environment would compile again. Directories that are not writable
are skipped. Cost: the sources are read once in each process.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

_COMPLETE = f"complete-{sys.implementation.cache_tag}"
"""The file that marks a directory with all kernels for this version of Python."""


@cache
def cache_directory() -> Path:
    """Return the directory of the compiled kernels.

    >>> cache_directory() == cache_directory()
    True
    """
    digest = hashlib.sha256(metadata.version("numba").encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    name = f"kernels-{digest.hexdigest()[:16]}"
    for root in _cache_roots():
        try:
            (root / name).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=root / name):
                return root / name
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="ikebana-kernels-"))


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
    """Whether the directory has a kernel, possibly for another processor only."""
    return is_complete() or any(cache_directory().glob(f"*.{function.__name__}-*.nbi"))


def is_complete() -> bool:
    """Whether the directory has all kernels, compiled."""
    return (cache_directory() / _COMPLETE).exists()


def mark_complete() -> None:
    """Note that the directory has all kernels, compiled."""
    with suppress(OSError):  # removed, or full: the kernels are compiled again then
        (cache_directory() / _COMPLETE).touch()


def _cache_roots() -> Iterator[Path]:
    """Return possible locations of the cache, best first; the last is shared at least by this user's processes."""
    configured = os.environ.get("IKEBANA_KERNEL_CACHE")
    if configured:
        yield Path(configured).expanduser()
    yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ikebana"
    yield Path(tempfile.gettempdir()) / f"ikebana-{os.environ.get('USER') or 'user'}"
