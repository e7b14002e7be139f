"""`healing`: how long an engine with storage does not answer when one of its workers is killed.

Workers are processes of this machine. A table is filled and some views are installed; then a worker is killed several
times, and the time is measured until a look-up in the table is answered, and until all views are. Inserts go on
meanwhile: how long the longest of them takes is measured too.

Steps of the last time, from `engine.recovered`: `start_s` is the start of processes, `open_s` the new incarnation of
the storage directory, `load_s` the loading of rows by the slowest worker.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ikebana.cluster.processes import Processes
from ikebana.engine import Engine, Table
from ikebana_bench.durability import columns, new_table
from ikebana_bench.measure import Stopwatch
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter


@dataclass(frozen=True)
class HealingParameters(Parameters):
    workers: int = parameter(2, "number of worker processes", minimum=1)
    rows: int = parameter(1_000_000, "rows of the table", minimum=1)
    views: int = parameter(10, "number of views", minimum=0)
    deaths: int = parameter(3, "how many times a worker is killed", minimum=1)
    folder: str = parameter("", "where to store; a folder for temporary files by default")


class Healing(Scenario[HealingParameters]):
    name = "healing"
    claim = "An engine with storage goes on when a worker dies, after seconds."
    paper = "section 7 leaves persistence open"
    parameters = HealingParameters

    def run(self, parameters: HealingParameters, progress: Progress) -> Results:
        cluster = Processes(parameters.workers)
        with (
            TemporaryDirectory(dir=parameters.folder or None) as folder,
            Engine(cluster=cluster, storage=str(Path(folder) / "store"), restarts=parameters.deaths) as engine,
        ):
            table = new_table(engine)
            for number in range(parameters.views):
                engine.install(f"view {number}", table.count("group").filter(_above(number)))
            table.insert(columns(0, parameters.rows))
            assert engine.storage is not None
            engine.storage.snapshot()
            writer = Writer(table)
            writer.start()
            answered, complete = [], []
            for at in progress.track("killing", range(parameters.deaths)):
                watch, before = Stopwatch(), engine.cluster
                self._kill(engine, at % parameters.workers)
                while engine.cluster is before:
                    found = table.lookup(id=0).num_rows
                answered.append(watch.seconds)
                self.verify(found == 1, "the table answers again")
                engine.wait()
                complete.append(watch.seconds)
            writer.stop()
            inserted = table.lookup(id=writer.inserted).num_rows
            self.verify(inserted == len(writer.inserted), "all inserted rows are there")
            recovered = engine.recovered
            assert recovered is not None
            return {
                "answer_median_s": float(np.median(answered)),
                "answer_max_s": max(answered),
                "views_median_s": float(np.median(complete)),
                "longest_insert_s": max(writer.seconds),
                "start_s": recovered.start_seconds,
                "open_s": recovered.open_seconds,
                "load_s": recovered.batch_seconds + recovered.log_seconds,
            }

    def _kill(self, engine: Engine, worker: int) -> None:
        assert isinstance(engine.cluster, Processes)
        os.kill(engine.cluster.pids[worker], signal.SIGKILL)


class Writer(threading.Thread):
    """Inserts a row again and again, and knows how long each took."""

    def __init__(self, table: Table) -> None:
        super().__init__(daemon=True)
        self._table, self._is_over = table, threading.Event()
        self.inserted: list[int] = []
        self.seconds: list[float] = []

    def run(self) -> None:
        while not self._is_over.wait(0.01):
            row, watch = -1 - len(self.inserted), Stopwatch()
            self._table.insert({"id": [row], "group": [0], "value": [row]})
            self.seconds.append(watch.seconds)
            self.inserted.append(row)

    def stop(self) -> None:
        """Insert no further row."""
        self._is_over.set()
        self.join()


def _above(number: int) -> Callable[[Any], Any]:
    """A condition that differs for each view, so that they share only the index."""
    return lambda columns: pc.greater(columns["count"], number)
