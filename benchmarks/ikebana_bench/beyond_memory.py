"""`beyond-memory`: a table several times larger than the memory of its worker, in spill files.

One worker process may use `--memory` MiB, beside what libraries take before anything is loaded; the system enforces
that (`ikebana.runtime.memory_budget`). It gets a table of `--rows` rows in transactions of `--chunk`, with a view that
adds up a column by region. Then rows are looked up and changed one at a time, and a second view, of few rows, is
installed over the whole table. Three settings:

- `refused`: without spill files. The transaction that does not fit is rejected; `refused_rows` were loaded before.
- `spilled`: batches of at least `--spill` MiB are in files. `spilled_cold_*` are look-ups after all pages of the files
  were evicted from memory; `cold_reads` says how many times a look-up has waited for the disk, on average: fewer
  than once if the system reads far ahead.
- `unlimited`: with as much memory as the machine has, and without spill files.

`anonymous` is the most memory that the worker was seen to use, without that of mapped files and before what it used at
the beginning; `held` the bytes of all arrangements, and `mapped` how many of these are in files.

All answers are compared with those computed by NumPy. Times are those of the driver, with the way to the worker and
back. While there is free memory, the system keeps pages of spill files in it: only `cold` reads are those of the disk.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Table
from ikebana.errors import ChangeError, IkebanaError
from ikebana_bench.measure import Series, Stopwatch, percentiles
from ikebana_bench.memory import chunks, processes, resident
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter

REGIONS, AMOUNTS, SELECTED = 100, 1000, 7
"""How many regions and amounts there are, and the amount of the rows that the second view selects."""

MIB = 1 << 20
_MADV_PAGEOUT = 21


@dataclass(frozen=True)
class BeyondMemoryParameters(Parameters):
    rows: int = parameter(2_500_000, "rows of the table", minimum=1)
    text: int = parameter(200, "bytes of the text in a row", minimum=1)
    chunk: int = parameter(50_000, "rows in a transaction", minimum=1)
    memory: int = parameter(192, "MiB that the worker may use", minimum=1)
    spill: int = parameter(8, "MiB of the smallest batch that is in files", minimum=1)
    lookups: int = parameter(1000, "look-ups of one row", minimum=1)
    updates: int = parameter(300, "changes of one row", minimum=1)
    directory: str = parameter("", "where the spill files are; by default, where temporary files are")


class BeyondMemory(Scenario[BeyondMemoryParameters]):
    """Load, change and read a table that is larger than memory, with and without spill files."""

    name = "beyond-memory"
    claim = "A table several times larger than memory can be loaded, changed, looked up and queried, if it can spill."
    paper = "§7 (no counterpart: the paper's state is in memory)"
    parameters = BeyondMemoryParameters

    def run(self, parameters: BeyondMemoryParameters, progress: Progress) -> Results:
        results: dict[str, float | Series] = {}
        memory = parameters.memory * MIB
        idle_resident, idle_anonymous = idle_bytes()
        results |= self._refused(parameters, idle_resident + memory, progress)
        results |= self._measured("unlimited", {}, parameters, progress)
        with TemporaryDirectory(dir=parameters.directory or None) as folder:
            options = {"memory": idle_anonymous + memory, "spill": folder, "spill_bytes": parameters.spill * MIB}
            results |= self._measured("spilled", options, parameters, progress)
        held = results["spilled_held_bytes"]
        assert isinstance(held, float)
        results["held_over_limit_ratio"] = held / memory
        return results

    def _refused(
        self, parameters: BeyondMemoryParameters, limit: int, progress: Progress
    ) -> Iterator[tuple[str, float]]:
        """Load until the worker has no memory left."""
        with Engine(cluster=Processes(1, memory=limit)) as engine:
            work = Work(engine, parameters)
            reason = ""
            try:
                work.load(progress, "loading without spill files")
            except ChangeError as error:
                reason = str(error)
            self.verify("of its" in reason, "without spill files, rows are rejected for lack of memory", detail=reason)
            yield "refused_rows", work.loaded

    def _measured(
        self, setting: str, options: Mapping[str, Any], parameters: BeyondMemoryParameters, progress: Progress
    ) -> Iterator[tuple[str, float]]:
        """Do everything in one setting."""
        with Engine(cluster=Processes(1, **options)) as engine:
            work = Work(engine, parameters)
            watch = Stopwatch()
            work.load(progress, f"loading, {setting}")
            yield f"{setting}_load_rows_per_s", parameters.rows / watch.seconds
            yield from percentiles(f"{setting}_update", "ms", work.update(parameters.updates)).items()
            yield from percentiles(f"{setting}_lookup", "ms", self._looked_up(work, parameters.lookups)).items()
            watch = Stopwatch()
            selected = engine.install("selected", work.table.filter(Selects(SELECTED))).to_arrow()
            yield f"{setting}_install_ms", watch.seconds * 1e3
            work.measure()
            self.verify(work.has_selected(selected), f"{setting}: the view of few rows has these rows")
            self.verify(work.has_totals(), f"{setting}: the view by region has the sums")
            statuses = engine.status()
            yield f"{setting}_held_bytes", float(sum(status.bytes + status.inner_bytes for status in statuses))
            yield f"{setting}_mapped_bytes", float(sum(status.mapped_bytes for status in statuses))
            yield f"{setting}_anonymous_bytes", float(work.most_anonymous - work.anonymous_before)
            if "spill" in options:
                evict(engine, options["spill"])
                before = major_faults(engine)
                cold = self._looked_up(work, parameters.lookups, seed=2)
                yield from percentiles(f"{setting}_cold_lookup", "ms", cold).items()
                yield f"{setting}_cold_reads", (major_faults(engine) - before) / parameters.lookups

    def _looked_up(self, work: Work, count: int, seed: int = 1) -> list[float]:
        """Look up random rows one at a time, and return the milliseconds of each."""
        seconds, is_right = [], True
        for id_ in np.random.default_rng(seed).integers(0, work.loaded, count).tolist():
            watch = Stopwatch()
            rows = work.table.lookup(id=id_)
            seconds.append(watch.seconds * 1e3)
            is_right &= rows.equals(work.rows([id_]))
        self.verify(is_right, "look-ups return the rows as they were last changed")
        return seconds


def idle_bytes() -> tuple[int, int]:
    """Return the memory that a worker takes before anything is loaded: with that of mapped files, and without."""
    with Engine(cluster=Processes(1)) as engine:
        engine.table("empty", {"id": pa.int64()}, "id").insert({"id": [1]})
        return resident(engine), anonymous(engine)


def anonymous(engine: Engine) -> int:
    """Return the memory of the worker, without that of mapped files; where the system does not tell, with it."""
    (process,) = processes(engine)
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return int(process.memory_info().rss)
    return sum(int(kib) << 10 for kib in re.findall(r"RssAnon:\s*(\d+) kB", status))


def major_faults(engine: Engine) -> int:
    """Return how many times the worker has waited until the system had read a page from a disk, on Linux."""
    (process,) = processes(engine)
    try:
        return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[9])
    except OSError:
        return 0


class Work:
    """The table, what it should have, and the memory that the worker was seen to use."""

    def __init__(self, engine: Engine, parameters: BeyondMemoryParameters) -> None:
        self.engine, self._parameters = engine, parameters
        fields = {"id": pa.int64(), "region": pa.int64(), "amount": pa.int64(), "text": pa.string()}
        self.table: Table = engine.table("orders", fields, "id")
        self._totals = engine.install("totals", self.table.sum("region", "amount"))
        self._amounts: NDArray[np.int64] = np.arange(parameters.rows) * 7_919 % 1_000_003 % AMOUNTS
        self.loaded = 0
        self.anonymous_before = self.most_anonymous = anonymous(engine)

    def rows(self, ids: Any) -> pa.Table:
        """The rows with some ids as they should be."""
        ids = np.asarray(ids, np.int64)
        texts = pc.utf8_rpad(pa.array(ids).cast(pa.string()), self._parameters.text, "-")
        return pa.table({"id": ids, "region": ids % REGIONS, "amount": self._amounts[ids], "text": texts})

    def load(self, progress: Progress, label: str) -> None:
        """Insert all rows."""
        for start, end in progress.track(label, list(chunks(0, self._parameters.rows, self._parameters.chunk))):
            self.table.insert(self.rows(np.arange(start, end)))
            self.loaded = end
            self.measure()
        self.engine.run()

    def update(self, count: int) -> list[float]:
        """Change random rows one at a time, and return the milliseconds of each."""
        random, milliseconds = np.random.default_rng(0), []
        for id_, amount in zip(
            random.integers(0, self.loaded, count).tolist(), random.integers(0, AMOUNTS, count).tolist(), strict=True
        ):
            self._amounts[id_] = amount
            row = self.rows([id_])
            watch = Stopwatch()
            self.table.upsert(row)
            milliseconds.append(watch.seconds * 1e3)
        self.measure()
        return milliseconds

    def measure(self) -> None:
        """Note how much memory the worker uses."""
        self.most_anonymous = max(self.most_anonymous, anonymous(self.engine))

    def has_selected(self, rows: pa.Table) -> bool:
        """Whether rows are those with the selected amount."""
        expected = self.rows(np.flatnonzero(self._amounts == SELECTED))
        return bool(rows.select(expected.column_names).sort_by("id").equals(expected))

    def has_totals(self) -> bool:
        """Whether the view by region is right."""
        regions = np.arange(self.loaded) % REGIONS
        sums = np.bincount(regions, self._amounts, REGIONS).astype(np.int64)
        rows = self._totals.to_arrow().sort_by("region")
        return rows["region"].to_pylist() == list(range(REGIONS)) and rows["sum"].to_pylist() == sums.tolist()


@dataclass(frozen=True)
class Selects:
    """A predicate: the rows with an amount."""

    amount: int
    uses: frozenset[str] = field(default=frozenset({"amount"}))
    is_total: bool = True

    def __call__(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        return pc.equal(columns["amount"], self.amount)


# Eviction.


def evict(engine: Engine, directory: str) -> None:
    """Let the worker ask the system to evict all pages of its spill files from memory."""
    signal = engine.input("evict", {"n": pa.int64()})
    done = engine.install("evicted", signal.map({"n": pa.int64()}, PageOut(directory)))
    signal.insert({"n": [1]})
    engine.advance()
    try:
        done.read()
    finally:
        done.drop()


@dataclass(frozen=True)
class PageOut:
    """A function of the worker: evict the pages of the files in a directory that are mapped, and return the columns."""

    directory: str

    def __call__(self, columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
        if len(columns["n"]):
            for descriptor in os.listdir("/proc/self/fd"):
                with suppress(FileNotFoundError):  # that of the list itself
                    if os.readlink(f"/proc/self/fd/{descriptor}").startswith(self.directory):
                        os.fsync(int(descriptor))  # only pages that were written can be evicted
            for mapping in psutil.Process().memory_maps(grouped=False):
                if mapping.path.startswith(self.directory):
                    _page_out(*(int(text, 16) for text in mapping.addr.split("-")))
        return columns


def _page_out(start: int, end: int) -> None:
    if ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_PAGEOUT):
        raise IkebanaError("the system cannot evict pages", hint="measure on Linux 5.4 or later")
