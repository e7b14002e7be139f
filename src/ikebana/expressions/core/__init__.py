"""The parts of every expression: values, columns, literals, casts, comparisons and conditions."""
