"""Functions of dates, timestamps and intervals."""
