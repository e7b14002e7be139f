"""What the server that forks victims imports first, so that each of them starts at once."""

from __future__ import annotations

import gc

from ikebana.pandas_import import postpone_pandas

postpone_pandas()

from ikebana import kernels  # noqa: E402
from tests.durability import crashes  # noqa: E402, F401

kernels.load()
gc.freeze()  # a collection in a fork would copy the memory that it visits
