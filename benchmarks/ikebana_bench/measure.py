"""Measurement tools: clocks, memory, distributions, the sort floor, and the commit that was measured.

Times are wall-clock seconds from `time.perf_counter`. Nothing in this module runs in the background, so these
tools do not disturb a measurement.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, TypeAlias

import numpy as np
import psutil
from numpy.typing import NDArray

from ikebana.engine import Engine

Samples: TypeAlias = Sequence[float] | NDArray[Any]


class Stopwatch:
    """A clock that starts when it is created: `seconds` counts from then, `lap()` from the previous lap."""

    def __init__(self) -> None:
        self._start = self._lap = perf_counter()

    @property
    def seconds(self) -> float:
        return perf_counter() - self._start

    def lap(self) -> float:
        previous, self._lap = self._lap, perf_counter()
        return self._lap - previous


class Timer:
    """Measures wall-clock seconds by name, and the fraction of them in which this process was running on a core."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._cpu: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        watch, cpu = Stopwatch(), process_time()
        yield
        self.seconds[name], self._cpu[name] = watch.seconds, process_time() - cpu

    def cpu_seconds(self, name: str) -> float:
        """The processor seconds of one measurement."""
        return self._cpu[name]

    @property
    def cpu_share(self) -> float:
        return sum(self._cpu.values()) / sum(self.seconds.values())


@dataclass(frozen=True)
class Series:
    """The points of a curve, sorted by x."""

    x: tuple[float, ...]
    y: tuple[float, ...]


def ccdf(samples: Samples, points: int = 200) -> Series:
    """Return the complementary cumulative distribution: for each value x, the fraction of samples >= x.

    At most `points` samples are returned, evenly spaced on a logarithmic scale of the fraction. The tail, which
    matters most, is therefore complete.

    >>> ccdf([3, 1, 2, 2])
    Series(x=(1.0, 2.0, 2.0, 3.0), y=(1.0, 0.75, 0.5, 0.25))
    """
    descending = np.sort(np.asarray(samples, dtype=np.float64))[::-1]
    count = len(descending)
    ranks = np.unique(np.geomspace(1, count, min(points, count)).round().astype(np.int64))
    if count <= points:
        ranks = np.arange(1, count + 1)
    ranks = ranks[::-1]
    return Series(tuple(descending[ranks - 1].tolist()), tuple((ranks / count).tolist()))


def compiled_shares(engine: Engine, prefix: str = "") -> dict[str, float]:
    """Return the share of all sweeps so far that were done by compiled programs, without the first of each dataflow."""
    statuses = engine.status()
    programs, visits = (sum(getattr(status, name) for status in statuses) for name in ("programs_run", "visits_run"))
    return {f"{prefix}compiled_share": programs / (programs + visits)} if programs + visits else {}


def percentiles(name: str, unit: str, samples: Samples) -> dict[str, float]:
    """Return the median, 99th percentile and maximum as metrics.

    >>> percentiles("step", "ms", [1.0, 2.0, 9.0])
    {'step_p50_ms': 2.0, 'step_p99_ms': 9.0, 'step_max_ms': 9.0}
    """
    quantiles = np.quantile(np.asarray(samples), [0.5, 0.99, 1.0], method="higher").tolist()
    return {f"{name}_{at}_{unit}": q for at, q in zip(("p50", "p99", "max"), quantiles, strict=True)}


def random_keys(count: int, seed: int = 0) -> NDArray[np.int64]:
    """Return uniformly distributed random 64-bit keys."""
    limits = np.iinfo(np.int64)
    return np.random.default_rng(seed).integers(limits.min, limits.max, count, np.int64, endpoint=True)


def numpy_sort_floor(keys: int | NDArray[Any], repeats: int = 3) -> float:
    """Return the least seconds that `numpy.sort` takes for `keys`, or for that many random 64-bit keys."""
    lane = random_keys(keys) if isinstance(keys, int) else keys
    return min(_sort_seconds(lane) for _ in range(repeats))


def fastest_sort(pieces: NDArray[Any], repeats: int = 3) -> float:
    """Return the seconds to `numpy.sort` all pieces one by one, using NumPy's fastest code for this CPU.

    NumPy uses AVX-512 code wherever the CPU supports it, even on CPUs where it is several times slower than the
    AVX2 code (AMD Zen 4 implements compressed vector stores in microcode). The choice can only be changed before
    NumPy is loaded, so both variants are timed in separate processes, and the faster one counts.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "pieces.npy"
        np.save(file, pieces)
        return min(_sort_in_subprocess(file, repeats, disabled) for disabled in ("", _AVX512))


_AVX512 = "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"

_SORTER = """
import sys, time
import numpy as np
pieces, best = np.load(sys.argv[1]), float("inf")
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    for piece in pieces:
        np.sort(piece)
    best = min(best, time.perf_counter() - start)
print(best)
"""


def _sort_in_subprocess(file: Path, repeats: int, disabled: str) -> float:
    command = [sys.executable, "-W", "ignore", "-c", _SORTER, str(file), str(repeats)]
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": disabled}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _sort_seconds(keys: NDArray[Any]) -> float:
    watch = Stopwatch()
    np.sort(keys)
    return watch.seconds


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(psutil.Process().memory_info().rss)


def commit(root: Path = Path(__file__).parents[2]) -> str:
    """Return the commit checked out at `root`, or `unknown` outside a checkout.

    The suffix `-dirty` marks a checkout whose sources have uncommitted changes.
    """
    try:
        if Path(_git(root, "rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return "unknown"
        dirty = "-dirty" if _git(root, "status", "--porcelain", "--", "src", "benchmarks/ikebana_bench") else ""
        return _git(root, "rev-parse", "HEAD") + dirty
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
