"""Routes: where a program stops for other workers, in a sweep of which it is known what changes can reach.

A program stops at exchanges, and where a loop may be repeated. Neighbouring exchanges that do not depend on each other
are one stop. Instructions of operators that no changes reach, on any worker, are replaced: nobody stops there.

Contract: all workers take the same route in a sweep, so all stop at the same places in the same order, and a worker
whose program has no rows knows where the others stop without running it.

Cost: a copy of the program for each route, of which a dataflow has a few: which of its sources change together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ikebana.encoding.lanes import Lane
from ikebana.kernels import opcodes

NO_OPERATION = opcodes.LOOP
"""What takes the place of an instruction that nothing reaches: the start of a loop has no effect outside loops, nor in
a loop that nothing reaches, which has one round."""

SOURCE, TARGET, LOOP_START = 2, 3, 2
"""Operands: of an exchange the counts of its registers, of an agreement on a round where the loop starts."""


class ProgramStop(NamedTuple):
    """A place where a program waits for other workers."""

    pc: int
    exchanges: tuple[int, ...]
    """The positions of the exchanges; none if workers agree on a round."""
    resume: int
    """Where the program goes on; if workers agree on a round, after the loop."""
    loop: int
    """Where the program goes on if the loop is repeated."""
    repeat: int
    """The number of the next stop if the loop is repeated."""


class Route(NamedTuple):
    """A program with its stops, in order; and the number of the stop at each position."""

    code: Lane
    stops: tuple[ProgramStop, ...]
    numbers: Mapping[int, int]


def new_route(code: Sequence[int], stopping: Mapping[int, int], reached: Sequence[bool]) -> Route:
    """The route of a program. `stopping` has the operator of each instruction that stops, by position."""
    changed = np.array(code, np.int64)
    positions = [pc for pc in sorted(stopping) if reached[stopping[pc]]]
    changed[[pc for pc in stopping if not reached[stopping[pc]]]] = NO_OPERATION
    stops: list[ProgramStop] = []
    for pc in positions:
        end = pc + code[pc + 1]
        if code[pc] == opcodes.AGREE:
            start = code[pc + LOOP_START]
            repeat = next((number for number, stop in enumerate(stops) if stop.pc >= start), len(stops))
            stops.append(ProgramStop(pc, (), end, start, repeat))
        elif stops and _are_one(code, stopping, stops[-1], pc):
            last = stops[-1]
            stops[-1] = last._replace(exchanges=(*last.exchanges, pc), resume=end)
        else:
            stops.append(ProgramStop(pc, (pc,), end, -1, -1))
    return Route(changed, tuple(stops), {stop.pc: number for number, stop in enumerate(stops)})


def _are_one(code: Sequence[int], stopping: Mapping[int, int], stop: ProgramStop, pc: int) -> bool:
    """Whether an exchange follows those of a stop, with nothing but exchanges in between, and sends other rows."""
    at = stop.resume
    while at < pc and at in stopping and code[at] == opcodes.EXCHANGE:
        at += code[at + 1]
    return at == pc and all(code[pc + SOURCE] != code[other + TARGET] for other in stop.exchanges)
