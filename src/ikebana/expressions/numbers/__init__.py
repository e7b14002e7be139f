"""Numeric functions: arithmetic, decimals, rounding and mathematical functions."""
