"""Operators. Each is a driver that owns frontiers; kernels and batches do the work."""

from ikebana.operators.arrange import Arrange

__all__ = ["Arrange"]
