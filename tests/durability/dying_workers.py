"""Workers of this process that die at a given action: in the middle of a request, of a sweep, of loading."""

from __future__ import annotations

from functools import partial
from typing import Any

from ikebana.cluster.inprocess import Faults, InProcess

FAULTS = Faults(delay=0.1, reorder=0.1)
"""With faults, every action of a single worker is chosen by the scheduler too, and counted."""


class Countdown:
    """How many actions the workers have left; None for any number. The next worker to act then dies."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.deaths = 0

    def act(self, cluster: InProcess) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left, self.deaths = None, self.deaths + 1
                cluster.kill(0)
        cluster._check_alive()


def dying_workers(countdown: Countdown, workers: int, seed: int = 0) -> InProcess:
    """Workers that die when their countdown says so, and so do those who take their place."""

    class DyingWorkers(InProcess):
        def __init__(self, workers: int, **options: Any) -> None:
            super().__init__(workers, **options)
            for worker in self.workers:
                object.__setattr__(worker, "answer", partial(self._answer, worker.answer))

        def _answer(self, answer: Any, request: Any) -> Any:
            countdown.act(self)
            reply = answer(request)
            countdown.act(self)
            return reply

        def _do(self, choice: Any, idle: set[int]) -> None:
            countdown.act(self)
            super()._do(choice, idle)

    return DyingWorkers(workers, seed=seed, faults=FAULTS)
