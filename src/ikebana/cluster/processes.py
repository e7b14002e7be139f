"""A cluster of worker processes on this machine, connected by ZeroMQ.

    with Engine(cluster=Processes(workers=2)) as engine: ...

See `driver` for the guarantees of worker processes, and `launch` for how they start and end.

Cost: starting takes as long as the imports, 1 to 3 s; closing takes 0.05 s, or 1 s while a worker computes.
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
        start_timeout: float = 120.0,
        memory: int | None = None,
        view_memory: int | None = None,
    ) -> None:
        """Start the workers, and return when all of them are connected.

        `host` is the address on which all sockets listen, `python` the interpreter to run, and `start_timeout` limits
        the time of the start, in seconds (the first time on a machine, kernels are compiled). `memory` limits the
        memory of each worker, and `view_memory` that of each view on a worker, in bytes
        (`ikebana.runtime.memory_budget`).
        """
        super().__init__(
            ChildProcesses(python),
            workers,
            effort=effort,
            host=host,
            start_timeout=start_timeout,
            memory=memory,
            view_memory=view_memory,
        )
