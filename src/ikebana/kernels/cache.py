"""Where compiled kernels are stored: one directory for each version of the sources of this package.

Numba's own cache does not detect a change of a function that a kernel calls. Directories that are not writable are
skipped. Cost: the sources are read once in each process.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_COMPLETE = "complete"
"""The file that marks a directory with all kernels."""


@cache
def cache_directory() -> Path:
    """Return the directory of the compiled kernels: one for each version of the sources of this package.

    >>> cache_directory() == cache_directory()
    True
    """
    digest = hashlib.sha256()
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
