"""Encoding: how typed columns become the integer lanes of an index, and how lanes become columns again.

`columns` checks the data that users hand in and converts Arrow arrays to NumPy arrays and back; `lanes` holds integer
columns in little memory; `canonical` and `payload` hold the columns that do not fit into a lane; `schema` puts these
together for the key and the value of an arrangement.
"""

from ikebana.encoding.schema import Schema

__all__ = ["Schema"]
