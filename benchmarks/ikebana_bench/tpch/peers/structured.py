"""Spark Structured Streaming as a peer that is incremental over one stream.

The largest table that a query reads, usually `lineitem`, is a stream of Parquet files, with one file per batch and one
micro-batch per file. The other tables are static and cached before the clock starts, because Structured Streaming
cannot aggregate a join of streams without time bounds, which TPC-H does not have. That is in its favour: we process the
rows of all tables in batches. The complete answer is collected after every micro-batch.

The clock counts the durations that Spark reports for its micro-batches; starting the streaming query is not measured.
A first run over a few batches warms up the JVM, and shows whether Spark supports the query. It supports Q1, Q3, Q5 to
Q10, Q12, Q14 and Q19. The other queries have the stream in a subquery (Q4, Q11, Q15, Q17, Q18, Q20, Q21, Q22), no
aggregate outside a subquery (Q2), two successive aggregates (Q13), or a DISTINCT aggregate (Q16). The JVM is not fully
warm by then: the first queries of a run take up to 1.5 times as long as they would later. State is in Spark's default
state store; Q3 and Q6 take as long with RocksDB.
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
    """Uses the active Spark, or starts one with one thread per worker."""

    name, title = "structured", "Structured Streaming"

    def feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
        self._feed(number, {name: table.slice(0, _WARM_BATCHES * batch) for name, table in rows.items()}, batch)
        return self._feed(number, rows, batch)

    def wrong(self, number: int, actual: pa.Table, expected: pa.Table) -> str:
        return wrong(number, actual, expected)

    def _feed(self, number: int, rows: Rows, batch: int) -> tuple[float, pa.Table]:
        """Return the seconds to feed the rows, and the answer; raise `CannotRun` if Spark rejects the query."""
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
        """Start the streaming query, which ends after all files; `answers` receives its latest answer."""

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
