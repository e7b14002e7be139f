"""The instructions of a program while it is written, by level, so that many exchanges are one stop.

The *level* of a register is the number of exchanges between it and the inputs of the program. An instruction is at the
greatest level of the registers that it reads. A program is its instructions in the order of levels, those of a level in
the order in which they were written, and before them the exchanges whose rows arrive at that level. So all exchanges of
a level follow one another, and the program stops for them once (`ikebana.runtime.routes`).

Contract: an instruction reads registers of its own level and of lower ones, and writes registers of its own level. A
register is written by one operator. A loop is at one level, with the exchanges in it.

Cost: the instructions are copied once, when the program is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

LOOP_START = 2
"""The operand of the end of a loop that says where the loop starts."""


class CodePosition(NamedTuple):
    """A position in the instructions of a level, or in the exchanges before them."""

    level: int
    is_exchange: bool
    at: int


@dataclass(frozen=True, slots=True)
class Linked:
    """A complete program, and the operator of each instruction for which workers stop, by position."""

    code: list[int]
    stopping: dict[int, int]


class LeveledCode:
    """Instructions by level."""

    def __init__(self) -> None:
        self.level = 0
        """The level of the next instruction."""
        self._exchanges: list[list[int]] = [[]]
        self._instructions: list[list[int]] = [[]]
        self._stopping: list[tuple[CodePosition, int]] = []
        self._loops: list[tuple[CodePosition, int]] = []  # the ends of loops, and where they start in the same level

    @property
    def last_level(self) -> int:
        """The greatest level of all instructions."""
        return len(self._instructions) - 1

    def here(self) -> int:
        """The present end of the instructions of the level."""
        return len(self._instructions[self.level])

    def emit(self, opcode: int, operands: Sequence[int]) -> None:
        """Add an instruction."""
        self._instructions[self.level] += [opcode, 2 + len(operands), *operands]

    def emit_stop(self, opcode: int, operands: Sequence[int], operator: int) -> None:
        """Add an instruction, among the others, for which workers stop."""
        self._stopping.append((CodePosition(self.level, False, self.here()), operator))
        self.emit(opcode, operands)

    def emit_exchange(self, opcode: int, operands: Sequence[int], operator: int) -> None:
        """Add an exchange of rows of the present level; what follows is at the next."""
        self.level += 1
        if self.level == len(self._instructions):
            self._instructions.append([])
            self._exchanges.append([])
        exchanges = self._exchanges[self.level]
        self._stopping.append((CodePosition(self.level, True, len(exchanges)), operator))
        exchanges += [opcode, 2 + len(operands), *operands]

    def note_loop(self, start: int) -> None:
        """Note that the next instruction is the end of a loop that starts at a position of the level."""
        self._loops.append((CodePosition(self.level, False, self.here()), start))

    def mark(self) -> tuple[object, ...]:
        """The present end."""
        lengths = [(len(a), len(b)) for a, b in zip(self._exchanges, self._instructions, strict=True)]
        return lengths, len(self._stopping), len(self._loops), self.level

    def rewind(self, mark: tuple[object, ...]) -> None:
        """Take back what was written after a mark."""
        lengths, stopping, loops, level = mark
        assert isinstance(lengths, list) and isinstance(stopping, int) and isinstance(loops, int)
        assert isinstance(level, int)
        del self._exchanges[len(lengths) :], self._instructions[len(lengths) :]
        for (a, b), exchanges, instructions in zip(lengths, self._exchanges, self._instructions, strict=True):
            del exchanges[a:], instructions[b:]
        del self._stopping[stopping:], self._loops[loops:]
        self.level = level

    def linked(self) -> Linked:
        """The complete program."""
        code: list[int] = []
        starts: dict[tuple[int, bool], int] = {}
        for level, (exchanges, instructions) in enumerate(zip(self._exchanges, self._instructions, strict=True)):
            for is_exchange, cells in ((True, exchanges), (False, instructions)):
                starts[level, is_exchange] = len(code)
                code += cells
        for place, start in self._loops:
            first = starts[place.level, False]
            code[first + place.at + LOOP_START] = first + start
        stopping = {starts[place.level, place.is_exchange] + place.at: operator for place, operator in self._stopping}
        return Linked(code, stopping)
