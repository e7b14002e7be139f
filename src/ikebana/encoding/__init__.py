"""Encoding: the conversion of typed columns to the integer lanes of an index, and back.

`columns` checks input data and converts Arrow arrays to NumPy arrays and back; `structs` checks the fields of structs;
`lanes` stores integer columns in little memory; `canonical` and `payload` store the columns that do not fit into a
lane; `spaces` and `spill_files` are where both are, in memory or in mapped files; `schema` combines these for the key
and the value of an arrangement; `bad_rows` finds the rows for which a function raises.
"""

from ikebana.encoding.schema import HASHING, Schema

__all__ = ["HASHING", "Schema"]
