"""Workers in processes of their own, on this machine, with ZeroMQ between them.

    with Engine(cluster=Processes(workers=2)) as engine: ...

`driver` says what holds for workers in processes, and `launch` how these start and end.

Cost: starting takes as long as importing does, 1 to 3 s; closing 0.05 s, or 1 s while a worker computes.
"""

from __future__ import annotations

import sys

from ikebana.cluster.driver import Driver
from ikebana.cluster.launch import ChildProcesses


class Processes(Driver):
    """W worker processes on this machine."""

    def __init__(
        self,
        workers: int = 1,
        *,
        effort: str = "default",
        host: str = "127.0.0.1",
        python: str = sys.executable,
        patience: float = 120.0,
        memory: int | None = None,
        view_memory: int | None = None,
    ) -> None:
        """Start the workers, and return when all are there.

        `host` is the address on which all sockets listen, `python` the interpreter to run, and `patience` how many
        seconds starting may take (the first time on a machine kernels are compiled). `memory` is how many bytes each
        worker may use, and `view_memory` each view there (`ikebana.runtime.memory_budget`).
        """
        super().__init__(
            ChildProcesses(python),
            workers,
            effort=effort,
            host=host,
            patience=patience,
            memory=memory,
            view_memory=view_memory,
        )
