"""`memory`: the memory of worker processes while a table grows and shrinks, and the bytes of a row by column type.

A table of four columns doubles from `--least` rows, `--doublings` times, and is then halved as often by deleting the
newest rows. At every size the workers get time to become idle: they finish merges and return memory that they have
freed. `resident` is the memory of all workers less what they took before the table existed, `held` the bytes of the
arrangements according to the workers, and `resident_ratio` the first over the second: 1 would be perfect.

Bytes by column type: tables with a 64-bit key and other columns of a type. `first` is what a single such column adds to
a row, `further` what a fourth column adds to three. All columns that fit into 64 bits together take 8 bytes; otherwise
they share a hash of 8 bytes, and each has its own values.

Not measured: time, and the working memory of sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from time import monotonic, sleep

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.cluster.launch import WORKER_MODULE
from ikebana.cluster.processes import Processes
from ikebana.engine import Engine
from ikebana_bench.measure import Series
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Figure, Parameters, Results, Scenario, parameter

FIELDS = (
    pa.field("id", pa.int64(), nullable=False),
    pa.field("customer", pa.int64(), nullable=False),
    pa.field("status", pa.string(), nullable=False),
    pa.field("amount", pa.decimal128(15, 2), nullable=False),
)
"""The columns of the table that grows."""

TARGET = 1.5
"""Target for the resident memory over the bytes held."""

_IDLE_CPU_SECONDS, _SETTLE_SECONDS, _MOST_SECONDS = 0.02, 1.0, 120.0
"""Workers are idle when they use less processor time than this in so many seconds; they get at most this long."""


@dataclass(frozen=True)
class MemoryParameters(Parameters):
    least: int = parameter(1_000_000, "rows at the beginning and at the end", minimum=1)
    doublings: int = parameter(4, "number of times that the number of rows doubles, and halves again", minimum=1)
    chunk: int = parameter(250_000, "rows in a transaction", minimum=1)
    typed: int = parameter(200_000, "rows of the tables by column type", minimum=1)
    processes: int = parameter(2, "worker processes", minimum=1)


class Memory(Scenario[MemoryParameters]):
    """Let a table grow and shrink, and compare the memory of the workers with what they hold."""

    name = "memory"
    claim = "Workers take little more memory than the rows that they hold, also after a table has shrunk."
    paper = "§6.1 (memory)"
    parameters = MemoryParameters

    def run(self, parameters: MemoryParameters, progress: Progress) -> Results:
        sizes = [parameters.least << doubling for doubling in range(parameters.doublings + 1)]
        results: dict[str, float | Series] = {}
        with Engine(cluster=Processes(parameters.processes)) as engine:
            results |= self._sizes(engine, sizes, parameters, progress)
            engine.drop_table("growing")
            for name, column in progress.track("column types", list(COLUMNS.items())):
                results |= {
                    f"{name}_{place}_bytes": size for place, size in row_bytes(engine, column, parameters.typed)
                }
        return results

    def _sizes(
        self, engine: Engine, sizes: Sequence[int], parameters: MemoryParameters, progress: Progress
    ) -> Iterator[tuple[str, float | Series]]:
        """Yield the metrics of all sizes, growing and shrinking."""
        idle = settled(engine)
        table = engine.table("growing", list(FIELDS), "id")
        rows, ratios = 0, dict[str, list[float]]({"grown": [], "shrunk": []})
        steps = [("grown", size) for size in sizes] + [("shrunk", size) for size in sizes[-2::-1]]
        yield "idle_bytes", idle
        for phase, size in progress.track("sizes", steps):
            for start, end in chunks(rows, size, parameters.chunk):
                change = rows_of(start, end)
                if phase == "grown":
                    table.insert(change)
                else:
                    table.delete(change.select(["id"]))
            engine.run()
            rows, resident, held = size, settled(engine) - idle, held_bytes(engine)
            ratios[phase].append(resident / held)
            yield f"{phase}_{size}_held_bytes", held
            yield f"{phase}_{size}_resident_ratio", resident / held
        view = engine.install("remaining", table)
        actual = view.to_arrow().sort_by("id")
        view.drop()
        expected = rows_of(0, rows)
        same = all(actual[name].equals(expected[name]) for name in expected.column_names)
        self.verify(same, "the table has the remaining rows")
        yield "most_resident_ratio", max(ratios["grown"])
        yield "target_ratio", TARGET / max(ratios["grown"])
        yield "grown_resident_ratio", Series(tuple(map(float, sizes)), tuple(ratios["grown"]))
        yield "shrunk_resident_ratio", Series(tuple(map(float, sizes[-2::-1])), tuple(ratios["shrunk"]))

    def figures(self, results: Results) -> Sequence[Figure]:
        """Return one panel: the ratio by number of rows, growing and shrinking."""
        curves = {name.partition("_")[0]: value for name, value in results.items() if isinstance(value, Series)}
        return [Figure(self.name, "rows", curves, y_label="resident over held", y_scale="linear")]


def chunks(before: int, after: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of rows between two numbers of rows, at most `size` at a time.

    >>> list(chunks(0, 5, 2)), list(chunks(4, 1, 2))
    ([(0, 2), (2, 4), (4, 5)], [(1, 3), (3, 4)])
    """
    low, high = sorted((before, after))
    for start in range(low, high, size):
        yield start, min(start + size, high)


def rows_of(start: int, end: int) -> pa.Table:
    """Return rows of the table that grows: the same rows for the same range."""
    ids = np.arange(start, end)
    mixed = ids * 7_919 % 1_000_003
    status = pc.binary_join_element_wise("status", pa.array(mixed % 1000).cast(pa.string()), " ")
    amount = pa.array(mixed.astype(np.int32)).cast(pa.decimal128(10, 0)).cast(FIELDS[3].type)
    return pa.table([pa.array(ids), pa.array(mixed), status, amount], schema=pa.schema(FIELDS))


def settled(engine: Engine) -> int:
    """Return the resident memory of all workers once they are idle: they have merged, and returned what is free."""
    engine.run()
    end, spent = monotonic() + _MOST_SECONDS, cpu_seconds(engine)
    while monotonic() < end:
        sleep(_SETTLE_SECONDS)
        before, spent = spent, cpu_seconds(engine)
        if spent - before < _IDLE_CPU_SECONDS:
            break
    return resident(engine)


def processes(engine: Engine) -> list[psutil.Process]:
    """Return the processes of the workers; on Spark, all descendants of this process that are workers."""
    cluster = engine.cluster
    if isinstance(cluster, Processes):
        return [psutil.Process(pid) for pid in cluster.pids]
    return [child for child in psutil.Process().children(recursive=True) if WORKER_MODULE in child.cmdline()]


def cpu_seconds(engine: Engine) -> float:
    """Return the processor time of all workers."""
    return float(sum(sum(process.cpu_times()[:2]) for process in processes(engine)))


def resident(engine: Engine) -> int:
    """Return the resident memory of all workers."""
    return sum(int(process.memory_info().rss) for process in processes(engine))


def held_bytes(engine: Engine) -> int:
    """Return the bytes of all arrangements."""
    return sum(status.bytes + status.inner_bytes for status in engine.status())


# Column types.

Column = tuple[pa.DataType, Callable[[int], pa.Array]]
"""A type, and a function that returns so many values of it."""


def _numbers(count: int) -> pa.Array:
    return pa.array(np.random.default_rng(count).integers(0, 1 << 31, count))


def _lists(count: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * 3), _numbers(3 * count))


def _texts(count: int) -> pa.Array:
    return pc.utf8_lpad(_numbers(count).cast(pa.string()), 12, "0")


def _decimals(count: int) -> pa.Array:
    return pa.array([Decimal(number) / 100 for number in _numbers(count).to_pylist()], pa.decimal128(38, 2))


COLUMNS: dict[str, Column] = {
    "boolean": (pa.bool_(), lambda count: pc.greater(_numbers(count), 1 << 30)),
    "int": (pa.int32(), lambda count: _numbers(count).cast(pa.int32())),
    "bigint": (pa.int64(), _numbers),
    "double": (pa.float64(), lambda count: _numbers(count).cast(pa.float64())),
    "date": (pa.date32(), lambda count: pa.array(np.arange(count, dtype=np.int32) % 10_000).cast(pa.date32())),
    "timestamp": (pa.timestamp("us"), lambda count: _numbers(count).cast(pa.timestamp("us"))),
    "decimal_15_2": (pa.decimal128(15, 2), lambda count: _decimals(count).cast(pa.decimal128(15, 2))),
    "decimal_38_2": (pa.decimal128(38, 2), _decimals),
    "string_of_12": (pa.string(), _texts),
    "array_of_3_bigints": (pa.list_(pa.int64()), _lists),
}
"""Column types, by name."""


def row_bytes(engine: Engine, column: Column, rows: int) -> Iterator[tuple[str, float]]:
    """Yield what the first column of a type, and a fourth one, add to the bytes of a row with a 64-bit key."""
    sizes = []
    for columns in (0, 1, 3, 4):
        kind, values = column
        fields = [pa.field("id", pa.int64(), nullable=False)]
        fields += [pa.field(f"column {at}", kind, nullable=False) for at in range(columns)]
        table = engine.table("typed", fields, "id")
        table.insert(pa.table([pa.array(np.arange(rows)), *[values(rows)] * columns], schema=pa.schema(fields)))
        engine.run()
        sizes.append(held_bytes(engine) / rows)
        engine.drop_table("typed")
        engine.run()
    yield "first", sizes[1] - sizes[0]
    yield "further", sizes[3] - sizes[2]
