"""Workers on Spark: the only part that imports pyspark.

`java` finds a Java runtime, `launch` starts or takes a SparkSession, `supervisor` is what a task does, `hosting` keeps
the workers of a cluster as the tasks of one job, `workers` is the cluster that the engine sees.
"""

from ikebana.dataflow.transport.guest import Guest, Invitation
from ikebana.spark.launch import session, slots
from ikebana.spark.workers import SparkWorkers

__all__ = ["Guest", "Invitation", "SparkWorkers", "session", "slots"]
