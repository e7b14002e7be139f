"""What tests of spill files have in common: a directory for them, and which files of a process are in it."""

from __future__ import annotations

import os
from pathlib import Path

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where tests create directories for files that need not outlive them, if possible."""


def open_files(directory: Path, process: int | str = "self") -> list[Path]:
    """The files in a directory that a process has open or mapped, as paths in /proc. They have no names any more."""
    descriptors = Path(f"/proc/{process}/fd")
    return [path for path in descriptors.iterdir() if _target(path).startswith(f"{directory}{os.sep}")]


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # it was closed meanwhile
        return ""
