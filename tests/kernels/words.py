"""Integers of 64 bits, for the twins: what is left of an integer that does not fit."""

from __future__ import annotations

WORDS = 2**64


def signed(number: int) -> int:
    """The number as 64 bits hold it, with a sign: what an int64 that overflows becomes.

    >>> signed(5), signed(2**63), signed(-(2**63) - 1)
    (5, -9223372036854775808, 9223372036854775807)
    """
    return (number + 2**63) % WORDS - 2**63
