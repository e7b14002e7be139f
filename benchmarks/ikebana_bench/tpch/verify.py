"""`tpch-verify`: all 22 queries as views, equal to Spark's own answers after every round of changes.

The tables are loaded, the views installed, and then rounds of changes on all eight tables applied, a transaction each.
After each round Spark answers every query over the same snapshot, from Parquet files, and both are compared row by row.
Times are given for orientation: of loading, of installing each view, until all have their first answers, and of a round
of changes through all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ikebana.spark.answers import LARGE, SparkAnswers
from ikebana_bench.measure import Stopwatch
from ikebana_bench.progress import Progress
from ikebana_bench.scenario import Parameters, Results, Scenario, parameter
from ikebana_bench.tpch import data
from ikebana_bench.tpch.answers import expected, wrong
from ikebana_bench.tpch.schemas import MINIMUM_SCALE, QUERIES, TABLES, query
from ikebana_bench.tpch.serving import apply, create
from ikebana_bench.tpch.stream import RefreshStream

if TYPE_CHECKING:
    from ikebana.spark import Session
    from ikebana.spark.view import View


def install(session: Session) -> dict[int, View]:
    """All 22 queries as views q1 to q22, by number."""
    return {number: session.view(f"q{number}", query(number)) for number in QUERIES}


@dataclass(frozen=True)
class VerifyParameters(Parameters):
    scale: float = parameter(0.1, "scale factor of TPC-H; lineitem has 6M rows at 1", minimum=MINIMUM_SCALE)
    rounds: int = parameter(3, "rounds of changes", minimum=1)
    orders: int = parameter(100, "new orders of a round, beside those made for each query", minimum=1)
    workers: int = parameter(2, "workers", minimum=1)
    seed: int = parameter(0, "seed of the changes", minimum=0)
    data: str = parameter("build/tpch", "folder for the data, which is made once")


class TpchVerify(Scenario[VerifyParameters]):
    """Every answer after every round."""

    name = "tpch-verify"
    claim = "All 22 queries, maintained, equal Spark's own answers after every round of changes."
    paper = "§6.1.1"
    parameters = VerifyParameters

    def run(self, parameters: VerifyParameters, progress: Progress) -> Results:
        from ikebana.spark import connect  # here, since the other benchmarks need no PySpark, which takes a while

        folder = data.tables(parameters.scale, Path(parameters.data))
        stream = RefreshStream(data.read(folder), parameters.seed, orders=parameters.orders)
        results: dict[str, float] = {}
        with connect(workers=parameters.workers) as session, TemporaryDirectory() as scratch:
            create(session, stream=False)
            results |= self._load(session, folder, progress)
            views = {}
            for number in progress.track("installing", QUERIES):
                watch = Stopwatch()
                views[number] = session.view(f"q{number}", query(number))
                results[f"q{number}_install_ms"] = watch.seconds * 1e3
            watch = Stopwatch()
            session.engine.run()
            results["all_answers_s"] = watch.seconds
            batch = SparkAnswers(session.spark, LARGE)
            self._compare(batch, views, stream, Path(scratch), progress)
            updating = 0.0
            for _ in range(parameters.rounds):
                changes = stream.next_round()
                watch = Stopwatch()
                apply(session, changes)
                session.engine.run()
                updating += watch.seconds
                self._compare(batch, views, stream, Path(scratch), progress)
        return results | {"verified_answers": self.verifications, "update_round_s": updating / parameters.rounds}

    def _load(self, session: Session, folder: Path, progress: Progress) -> dict[str, float]:
        watch = Stopwatch()
        for name in progress.track("loading", TABLES):
            session.table(name).load(session.spark.read.parquet(str(folder / name)), progress=False)
        session.engine.run()
        return {"load_s": watch.seconds}

    def _compare(
        self, batch: SparkAnswers, views: Mapping[int, View], stream: RefreshStream, scratch: Path, progress: Progress
    ) -> None:
        """Compare all answers over the present snapshot."""
        folder = scratch / str(stream.rounds)
        batch.write(folder, stream.snapshot)
        for number in progress.track(f"verifying round {stream.rounds}", QUERIES):
            problem = wrong(number, views[number].to_arrow(), expected(batch, number))
            self.verify(not problem, f"Q{number} equals Spark's answer after round {stream.rounds}", detail=problem)
        rmtree(folder)
