"""A cluster of worker processes on this machine, connected by ZeroMQ.

    with Engine(cluster=Processes(workers=2)) as engine: ...

See `driver` for the guarantees of worker processes, and `launch` for how they start and end.

Cost: starting takes as long as the imports, 1 to 3 s; closing takes 0.05 s, or 1 s while a worker computes.
"""

from __future__ import annotations

import sys
from typing import Any

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
        bind: str = "",
        ports: str | None = None,
        python: str = sys.executable,
        start_timeout: float = 120.0,
        memory: int | None = None,
        view_memory: int | None = None,
        spill: str | None = None,
        spill_bytes: int | None = None,
    ) -> None:
        """Start the workers, and return when all of them are connected.

        `host` is the address of all processes, and `bind` the address on which they listen, if it is another one;
        `ports` is the range of ports, such as "7000-7020", by default any. `python` is the interpreter to run, and
        `start_timeout` limits the time of the start, in seconds (the first time on a machine, kernels are compiled).
        `memory` limits the memory of each worker, and `view_memory` that of each view on a worker, in bytes
        (`ikebana.runtime.memory_budget`). Batches of at least `spill_bytes` are in files of the directory `spill`
        (`ikebana.encoding.spill_files`); by default none are.
        """
        self._python = python
        self._options: dict[str, Any] = {
            "effort": effort,
            "host": host,
            "bind": bind,
            "ports": ports,
            "start_timeout": start_timeout,
            "memory": memory,
            "view_memory": view_memory,
            "spill": spill,
            "spill_bytes": spill_bytes,
        }
        super().__init__(ChildProcesses(python), workers, workers_bind=bind, **self._options)

    def start_again(self) -> Processes:
        """Start as many workers as this cluster has, of which one has died, in the same way."""
        return Processes(self.size, python=self._python, **self._options)
