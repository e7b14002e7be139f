"""Workers in one process, stepped by a seeded scheduler: every run is deterministic, and every interleaving
possible.

Between any two workers letters keep their order; between different pairs, and between letters, commands and
steps, the scheduler chooses at random from its seed. `run_some` stops after some actions, and `kill` ends a worker.
With one worker it is the plain way to run the engine in a program.

A killed worker is noticed at once: everything that needs it raises, nothing answers from the rest.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pyarrow as pa

from ikebana.dataflow.messages import Command, Letter, Request, Retire, unanswerable
from ikebana.dataflow.transport import Listener, ignore
from ikebana.dataflow.worker import PENDING, Worker
from ikebana.errors import DataflowError
from ikebana.time import Time


class InProcess:
    """W workers, their channels, and a scheduler."""

    def __init__(self, workers: int = 1, *, seed: int = 0, effort: str = "default") -> None:
        self.workers = [Worker(index, workers, effort) for index in range(workers)]
        self._random = random.Random(seed)
        self._commands: list[deque[Command]] = [deque() for _ in self.workers]
        self._letters: dict[tuple[int, int], deque[Letter]] = {}
        self._killed: set[int] = set()
        self._listener: Listener = ignore

    def command(self, command: Command, worker: int | None = None) -> None:
        """Send a command to every worker, or to one."""
        self._check_alive()
        for index in range(len(self.workers)) if worker is None else (worker,):
            self._commands[index].append(command)

    def kill(self, worker: int) -> None:
        """The worker is gone, with everything it held and had not yet sent."""
        self._killed.add(worker)

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self.workers)

    def run(self) -> None:
        """Run until nothing is left to do."""
        while not self.run_some(1 << 30):
            pass

    def run_some(self, actions: int) -> bool:
        """Take so many actions at most; returns whether nothing is left to do."""
        self._check_alive()
        idle: set[int] = set()
        for _ in range(actions):
            choices = self._choices(idle)
            if not choices:
                return True
            self._act(self._random.choice(choices) if len(choices) > 1 else choices[0], idle)
        return False

    def ask(self, request: Request, worker: int | None = None) -> list[Any]:
        """The answers of all workers, or of one; runs until they have answered or nothing is left to do."""
        self._check_alive()
        asked = range(len(self.workers)) if worker is None else (worker,)
        if any(self._commands[index] for index in asked):  # a worker takes a request after the commands before it
            self.run()
        answers = {index: self.workers[index].answer(request) for index in asked}
        if any(answer is PENDING for answer in answers.values()):
            self.run()
        for index in [index for index, answer in answers.items() if answer is PENDING]:
            answers[index] = self.workers[index].answer(request)
            if answers[index] is PENDING:
                raise unanswerable(request)
        return list(answers.values())

    def listen(self, listener: Listener) -> None:
        """Give all news of workers to a function, in place of the one before."""
        self._listener = listener

    def close(self) -> None:
        """Drop everything the workers hold."""
        for worker in self.workers:
            for name in list(worker.flows):
                worker.command(Retire(name))

    def _choices(self, idle: set[int]) -> list[tuple[str, int, int]]:
        letters = [("letter", a, b) for (a, b), queue in self._letters.items() if queue]
        commands = [("command", w, 0) for w, queue in enumerate(self._commands) if queue]
        steps = [("step", w, 0) for w in range(len(self.workers)) if w not in idle]
        return [*letters, *commands, *steps]

    def _act(self, choice: tuple[str, int, int], idle: set[int]) -> None:
        match choice:
            case ("letter", source, target):
                self.workers[target].deliver(self._letters[source, target].popleft())
                idle.discard(target)
            case ("command", index, _):
                self.workers[index].command(self._commands[index].popleft())
                idle.discard(index)
            case (_, index, _):
                if not self.workers[index].step():
                    idle.add(index)
                self._post(index)

    def _post(self, index: int) -> None:
        outbox = self.workers[index].outbox
        while outbox:
            peer, letter = outbox.popleft()
            self._letters.setdefault((index, peer), deque()).append(letter)
        news = self.workers[index].news
        while news:
            self._listener(index, news.popleft())

    def complete(self, name: str) -> int:
        """Epochs of a dataflow before this one are complete on all workers."""
        self._check_alive()
        return min(worker.complete(name) for worker in self.workers)

    def read(self, name: str, at: Time) -> pa.Table:
        """A dataflow's result at a time, from all workers."""
        self._check_alive()
        return pa.concat_tables([worker.read(name, at) for worker in self.workers])

    def _check_alive(self) -> None:
        if self._killed:
            raise DataflowError(
                f"worker {min(self._killed)} has died",
                detail="its shard of every arrangement is gone",
                hint="start the engine again and load the data again",
            )
