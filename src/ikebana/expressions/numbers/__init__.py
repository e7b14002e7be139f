"""Functions of numbers: arithmetic, decimals, rounding, mathematics."""
