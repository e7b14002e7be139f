"""Planning: from SQL text and DataFrames to plans that can be lowered. See `ikebana.spark.planning.planner`."""

from ikebana.spark.planning.planner import Parameters, Planner, parameter_field

__all__ = ["Parameters", "Planner", "parameter_field"]
