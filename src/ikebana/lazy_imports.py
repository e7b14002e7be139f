"""Names of a package that are imported when they are first used: most processes need few of them.

A worker, or a Spark task that loads rows, would otherwise import the whole of SQL to get at one module, which takes
longer than what it is there for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose public names are those of `modules`, by the module that defines them."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def import_name(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name
