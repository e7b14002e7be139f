"""Spark's hash functions."""
