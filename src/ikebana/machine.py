"""Facts about the machine that performance depends on, for `ikebana info` and the results of benchmarks.

Nothing here identifies the machine. Also here: `yield_processor`, for threads that work in the background.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil


def machine() -> dict[str, str | int]:
    """CPU, cores, memory, platform and versions, by name; the unit is part of the name."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "memory_bytes": int(psutil.virtual_memory().total),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def yield_processor() -> None:
    """Let another thread run that waits for this thread's processor, if the system can do that."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
