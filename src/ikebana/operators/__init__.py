"""Operators: each a driver, which owns frontiers, and its contract; the work itself is done by kernels and batches."""

from ikebana.operators.arrange import Arrange

__all__ = ["Arrange"]
