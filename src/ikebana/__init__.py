"""Ikebana: shared arrangements for Spark."""

__version__ = "0.1.0.dev0"
