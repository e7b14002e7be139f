"""The part of a dataflow that is written as a program: which operators, and the program itself.

Operators that can be written as instructions (`Operator.lower`) are one program (`ikebana.runtime.program`); the
others, and those that read from them, are visited after it, and the program offers them its outputs.

A program is written when it is first needed, after the first sweep: most dataflows of short-lived queries never need
one. If groups turn out to be too large for registers, it is written again without the reductions that read groups.

A dataflow works without a program, only more slowly. So an exception while it is written, which is an error of ours, is
logged, and the operators are visited. Plans are the same on all workers, so none of them has a program then.

Cost: about a millisecond for a dataflow of ten operators; nothing is compiled.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ikebana.operators.arrange import Maintainer
from ikebana.operators.arrangement_views import ViewOperator
from ikebana.operators.program import ProgramBuilder
from ikebana.plan.scopes import Scope, read_by
from ikebana.runtime import program as programs
from ikebana.runtime.program import Program
from ikebana.runtime.workspaces import Workspaces

RAISES = os.environ.get("IKEBANA_PROGRAM_ERRORS") == "raise"
"""Whether an exception while a program is written is raised: in tests."""

_log = logging.getLogger(__name__)


class LoweredDataflow:
    """The program of a dataflow, if it has one."""

    def __init__(
        self,
        root: Scope,
        maintainer: Maintainer,
        workers: int,
        workspaces: Workspaces,
        has_changed: Callable[[], None],
    ) -> None:
        """`root` has the operators, of which `maintainer` maintains the result; `has_changed` is called whenever the
        program has been written."""
        self._root, self._maintainer, self._workers, self._workspaces = root, maintainer, workers, workspaces
        self._has_changed = has_changed
        self.is_written = False
        """Whether the dataflow has been written as a program, if it can be."""
        self.program: Program | None = None
        """The program, if it has been written, and there is anything that it does."""
        self.positions: frozenset[int] = frozenset()
        """The positions of the operators that the program does, if not all."""
        self.visited = 0
        """The number of operators that are visited after the program."""

    def write(self, *, has_begun: bool) -> Program | None:
        """The program, which is written if need be; None if there is none, or as long as no sweep `has_begun`."""
        if not self.is_written and has_begun and programs.FUSE != "never":
            self.is_written, self.program = True, self._try_to_write()
            self._has_changed()
        if self.program is not None and self.program.has_large_groups:  # on all workers alike
            self.program = self._try_to_write(calls_reducers=False)
            self._has_changed()
        return self.program

    def drop(self) -> None:
        """Release the program, and the traces that it reads and writes."""
        if self.program is not None:
            self.program.drop()
            self.program = None

    def _try_to_write(self, *, calls_reducers: bool = True) -> Program | None:
        """The operators as a program, or None."""
        try:
            return self._written(calls_reducers=calls_reducers)
        except Exception:
            if RAISES:
                raise
            _log.exception("a dataflow is slower than it could be: its program cannot be written")
            self.visited, self.positions = 0, frozenset()
            return None

    def _written(self, *, calls_reducers: bool = True) -> Program | None:
        """The operators that can be written as instructions, as a program; None if it would do nothing."""
        builder, items = ProgramBuilder(self._workers, calls_reducers=calls_reducers), self._root.items
        written = [position for position, operator in enumerate(items) if builder.try_lower(operator, position)]
        if not builder.linked().code or not builder.inputs:
            return None
        self.visited = len(items) - len(written)
        result, trace = builder.arranged(self._maintainer.out), self._maintainer.trace
        if not self.visited:
            return Program(builder, result, trace, self._workspaces)
        views = [position for position in written if isinstance(items[position], ViewOperator)]
        self.positions = frozenset(written) - frozenset(views)  # views must show the others what they read
        others = [item for position, item in enumerate(items) if position not in self.positions]
        outputs = [(output, builder.offered(output)) for output in read_by(others) if builder.register(output)]
        return Program(builder, result, trace, self._workspaces, outputs)
