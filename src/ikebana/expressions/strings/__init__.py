"""Functions of strings and binary values."""
