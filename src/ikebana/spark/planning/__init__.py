"""Planning: SQL text and DataFrames to plans that can be lowered. See `ikebana.spark.planning.planner`."""

from ikebana.spark.planning.planner import Planner

__all__ = ["Planner"]
