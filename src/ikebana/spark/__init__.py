"""Workers on Spark: the only part that imports pyspark.

`java` finds a Java runtime, `launch` starts or takes a SparkSession, `supervisor` is what a task does, `hosting` keeps
the workers of a cluster as the tasks of one job, `workers` is the cluster that the engine sees.

`session` is what users work with, and `table` and `view` with it; `loading` and `following` bring data in, `source` is
how Spark reads it; `types` and `rows` are about schemas and data as users have them, `listing` and `progress` are for
people.
"""

from ikebana.cluster.client import Client, ClientCredentials
from ikebana.spark.following import Following
from ikebana.spark.session import Session, connect
from ikebana.spark.spark_session import slots
from ikebana.spark.table import Table
from ikebana.spark.view import View
from ikebana.spark.workers import SparkWorkers

__all__ = [
    "Client",
    "ClientCredentials",
    "Following",
    "Session",
    "SparkWorkers",
    "Table",
    "View",
    "connect",
    "slots",
]
