"""`tpch-verify`: all 22 queries as views, compared with Spark's answers after every round of changes.

The benchmark loads the tables, installs the views, and applies rounds of changes to all eight tables, one transaction
per round. After each round Spark answers every query over the same snapshot, from Parquet files, and the answers are
compared row by row.

This is a test of correctness. The reported times are only indicative: loading the tables, installing each view, the
time until all views have their first answers, and the mean time of a round of changes with all views installed.
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
    """Install all 22 queries as views q1 to q22, and return the views by query number."""
    return {number: session.view(f"q{number}", query(number)) for number in QUERIES}


@dataclass(frozen=True)
class VerifyParameters(Parameters):
    scale: float = parameter(0.1, "scale factor of TPC-H; lineitem has 6M rows at 1", minimum=MINIMUM_SCALE)
    rounds: int = parameter(3, "number of rounds of changes", minimum=1)
    orders: int = parameter(100, "random new orders per round, in addition to those for each query", minimum=1)
    workers: int = parameter(2, "number of workers", minimum=1)
    seed: int = parameter(0, "seed of the changes", minimum=0)
    data: str = parameter("build/tpch", "folder for the generated data")


class TpchVerify(Scenario[VerifyParameters]):
    """Compare every answer with Spark's after every round."""

    name = "tpch-verify"
    claim = "The maintained answers of all 22 queries equal Spark's answers after every round of changes."
    paper = "§6.1.1"
    parameters = VerifyParameters

    def run(self, parameters: VerifyParameters, progress: Progress) -> Results:
        from ikebana.spark import connect  # imported late: PySpark is slow to import

        folder = data.tables(parameters.scale, Path(parameters.data))
        stream = RefreshStream(data.read(folder), parameters.seed, orders=parameters.orders)
        results: dict[str, float] = {}
        with connect(workers=parameters.workers, temp_views=False) as session, TemporaryDirectory() as scratch:
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
        """Compare all answers over the current snapshot."""
        folder = scratch / str(stream.rounds)
        batch.write(folder, stream.snapshot)
        for number in progress.track(f"verifying round {stream.rounds}", QUERIES):
            problem = wrong(number, views[number].to_arrow(), expected(batch, number))
            self.verify(not problem, f"Q{number} equals Spark's answer after round {stream.rounds}", detail=problem)
        rmtree(folder)
