"""Expressions and their evaluation, and the basic functions: literals, casts, comparisons and conditions."""
