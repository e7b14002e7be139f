"""When Arrow imports pandas: in worker processes, only if a plan has users' functions.

PyArrow imports pandas, if it is installed, before it converts its first value, to recognise pandas objects. That takes
0.7 s of processor time and 60 MB, more than anything else that a worker process imports, and workers have no pandas
objects unless a user's function makes them. A process that calls `postpone_pandas` first goes without; `use_pandas`
ends that.

Not guaranteed: that between the two calls Arrow recognises pandas objects. So only a process that runs our code alone
may call `postpone_pandas`, never the user's.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pyarrow as pa


class _WithoutPandas(MetaPathFinder):
    """Imports everything but pandas."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not imported yet", name=name)


def postpone_pandas() -> None:
    """Let Arrow work without pandas until `use_pandas` is called."""
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])  # Arrow looks for pandas once
    finally:
        sys.meta_path.remove(finder)


def use_pandas() -> None:
    """Let Arrow recognise pandas objects from now on, if pandas is installed."""
    try:
        pa.array([0]).to_pandas()  # a conversion to pandas looks for it again
    except ModuleNotFoundError:
        return
