"""Reducers of SQL: exact sums, window functions, aggregates that need all values of a group, and the first rows of an
order. Each is a function of groups that `ikebana.operators.reduce` maintains.
"""
