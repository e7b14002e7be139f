"""Spark Structured Streaming, as a peer that is incremental over one stream.

The largest table that a query reads, `lineitem` for most, is a stream of Parquet files: a file for each batch, and a
micro-batch for each file. The other tables are static and cached, all of their rows being there before the clock
starts: Structured Streaming does not aggregate the join of streams without bounds on time, which TPC-H has not. That
is in its favour: ours takes the rows of all tables in these batches. The answer is complete after every micro-batch
and is collected.

The clock counts what Spark reports for its micro-batches, and not the start of the streaming query. A first run over
some batches has Java compile what it can, and shows whether Spark accepts the query at all. It accepts 1, 3, 5 to 10,
12, 14 and 19: the others have the stream in a subquery (4, 11, 15, 17, 18, 20, 21, 22), or no aggregate outside of one
(2), two aggregates one after the other (13), or a DISTINCT within an aggregate (16). Java goes on compiling for longer
than that: the first queries of a run are up to half as slow again as they would be later. State is in the store that
Spark has by default; with RocksDB Q3 and Q6 took as long.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ikebana_bench.tpch.answers import wrong
from ikebana_bench.tpch.peers import CannotRun, Peer, Rows
from ikebana_bench.tpch.schemas import query
from ikebana_bench.tpch.serving import spark_session

_WARM_BATCHES = 5
_SETTINGS = {"spark.sql.streaming.numRecentProgressUpdates": 1_000_000}


class Structured(Peer):
    """A Spark of its own, unless one runs already, with a thread for each worker."""

    name, title = "structured", "Structured Streaming"

    def feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
        self._feed(number, {name: table.slice(0, _WARM_BATCHES * batch) for name, table in rows.items()}, batch)
        return self._feed(number, rows, batch)

    def wrong(self, number: int, actual: pa.Table, expected: pa.Table) -> str:
        return wrong(number, actual, expected)

    def _feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
        """What feeding takes, and the answer; `CannotRun` if Spark does not accept the query."""
        streamed = max(rows, key=lambda name: rows[name].num_rows)
        with TemporaryDirectory() as path, ExitStack() as stack:
            folder = Path(path)
            for name, table in rows.items():
                if name == streamed:
                    self._stream(folder / name, name, table, batch)
                else:
                    stack.callback(self._cache(folder / f"{name}.parquet", name, table).unpersist)
            answers: list[pa.Table] = []
            running = self._start(number, folder / "checkpoint", answers)
            try:
                running.awaitTermination()
            finally:
                running.stop()
            return sum(
                progress["durationMs"]["triggerExecution"] for progress in running.recentProgress
            ) / 1e3, answers[-1]

    def _stream(self, folder: Path, name: str, rows: pa.Table, batch: int) -> None:
        folder.mkdir()
        for start in range(0, rows.num_rows, batch):
            pq.write_table(rows.slice(start, batch), folder / f"{start:012}.parquet")
        schema = self._spark.read.parquet(str(folder)).schema
        stream = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        stream.createOrReplaceTempView(name)

    def _cache(self, path: Path, name: str, rows: pa.Table) -> Any:
        pq.write_table(rows, path)
        static = self._spark.read.parquet(str(path)).cache()
        static.count()
        static.createOrReplaceTempView(name)
        return static

    def _start(self, number: int, checkpoint: Path, answers: list[pa.Table]) -> Any:
        """Start the streaming query, which ends after all files; its answers go to a list."""

        def collect(batch: Any, _: int) -> None:
            answers[:] = [batch.toArrow()]

        try:
            writer = self._spark.sql(query(number)).writeStream.outputMode("complete")
            writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            return writer.foreachBatch(collect).start()
        except Exception as error:
            if type(error).__name__ != "AnalysisException":
                raise
            reason = str(error).splitlines()[0]
            raise CannotRun(f"Structured Streaming cannot run Q{number}", detail=reason) from None

    def __enter__(self) -> Structured:
        self._stack = ExitStack()
        spark = self._stack.enter_context(spark_session(0, {"spark.master": f"local[{self.workers}]"}))
        self._spark = spark.newSession()
        for name, value in (_SETTINGS | {"spark.sql.shuffle.partitions": self.workers}).items():
            self._spark.conf.set(name, value)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
