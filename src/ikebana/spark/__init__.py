"""Sessions on Spark, for users of PySpark. The only part that imports pyspark.

For users: `connecting` and `session` (tables and views; `table`, `view`, and `looking` for what both have of a
DataFrame's methods; `prepared_statements`, `datalog` and `graph`). `commands` and `command_runner` are the SQL
statements of a session. `relations` has its tables and views by name, `table_lifecycle` and `view_lifecycle` create and
drop them, `frames` has the DataFrames over them, `expiring` deletes rows by time, `verifying` compares a view with
Spark's answer (`answers`), `arguments` checks what users pass.

What a session tells: `reporting` with `info`, `memory_use`, `rates` and `advising` are its listings (`listing`);
`monitoring` is its log, `metrics` are its figures for Prometheus, `progress` shows what takes long.

Data in: `loading` (DataFrames), `following` and `checkpoints` (streams), `rows` and `types` (rows and schemas in the
forms that users have them). The data source "ikebana": `source`, with `readers`, `snapshots`, `snapshot_server` and
`executions` for data out, and `writers` and `writes` for data in. Queries: `querying`, `planning`, `naming`, `clock`,
and `temporary_views` for those of Spark itself.

Workers: `spark_session` starts or checks a SparkSession, on a Java runtime that `java` finds; `workers` is the cluster
that the engine uses, `barrier_job` the Spark job that hosts it, `supervisor` the code of its tasks; `interrupting` lets
them survive Ctrl-C. `errors` summarises Spark's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ikebana.lazy_imports import lazy_names

if TYPE_CHECKING:
    from ikebana.spark.connecting import connect
    from ikebana.spark.following import FollowedStream
    from ikebana.spark.session import Session
    from ikebana.spark.spark_session import slots
    from ikebana.spark.table import Table
    from ikebana.spark.view import View
    from ikebana.spark.workers import SparkWorkers

__getattr__ = lazy_names(
    __name__,
    {
        "ikebana.spark.connecting": ["connect"],
        "ikebana.spark.following": ["FollowedStream"],
        "ikebana.spark.session": ["Session"],
        "ikebana.spark.spark_session": ["slots"],
        "ikebana.spark.table": ["Table"],
        "ikebana.spark.view": ["View"],
        "ikebana.spark.workers": ["SparkWorkers"],
    },
)

__all__ = [
    "FollowedStream",
    "Session",
    "SparkWorkers",
    "Table",
    "View",
    "connect",
    "slots",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
