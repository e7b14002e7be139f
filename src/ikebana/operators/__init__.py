"""Operators: each a driver, which owns frontiers, and its contract; kernels and batches do the work."""

from ikebana.operators.arrange import Arrange

__all__ = ["Arrange"]
