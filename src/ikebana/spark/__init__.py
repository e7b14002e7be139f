"""Sessions on Spark, for users of PySpark. The only part that imports pyspark.

For users: `session` (tables and views; `table`, `view`, and `looking` for what both have of a DataFrame's methods).
`commands` and `command_runner` are the SQL statements of a session. `info`, `memory_use` and `listing` are what a
session reports, `verifying` compares a view with Spark's answer (`answers`), `arguments` checks what users give.

Data in: `loading` (DataFrames), `following` and `checkpoints` (streams), `rows` and `types` (rows and schemas in the
forms that users have them), `progress` (a progress bar). The data source "ikebana": `source`, with `readers`,
`snapshots`, `snapshot_server` and `executions` for data out, and `writers` and `writes` for data in. Queries:
`querying`, `planning`, `naming`, `clock`, and `temporary_views` for those of Spark itself.

Workers: `spark_session` starts or checks a SparkSession, on a Java runtime that `java` finds; `workers` is the cluster
that the engine uses, `barrier_job` the Spark job that hosts it, `supervisor` the code of its tasks; `interrupting` lets
them survive Ctrl-C. `errors` summarises Spark's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ikebana.lazy_imports import lazy_names

if TYPE_CHECKING:
    from ikebana.cluster.client import Client, ClientCredentials
    from ikebana.spark.following import FollowedStream
    from ikebana.spark.session import Session, connect
    from ikebana.spark.spark_session import slots
    from ikebana.spark.table import Table
    from ikebana.spark.view import View
    from ikebana.spark.workers import SparkWorkers

__getattr__ = lazy_names(
    __name__,
    {
        "ikebana.cluster.client": ["Client", "ClientCredentials"],
        "ikebana.spark.following": ["FollowedStream"],
        "ikebana.spark.session": ["Session", "connect"],
        "ikebana.spark.spark_session": ["slots"],
        "ikebana.spark.table": ["Table"],
        "ikebana.spark.view": ["View"],
        "ikebana.spark.workers": ["SparkWorkers"],
    },
)

__all__ = [
    "Client",
    "ClientCredentials",
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
