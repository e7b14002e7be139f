"""Workers in one process, stepped by a seeded scheduler: every run is deterministic, and every interleaving
possible.

Between any two workers letters keep their order; between different pairs, and between letters, commands and
steps, the scheduler chooses at random from its seed. `run_some` stops after some actions, and `kill` ends a worker.
With `Faults` it also holds back letters and commands, lets letters overtake each other, and pauses workers. None of
this changes an answer: a letter says what it is a part of, and nobody takes a step that needs one before it is there.
With one worker and no faults it is the plain way to run the engine in a program.

A killed worker is noticed at once: everything that needs it raises, nothing answers from the rest.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from ikebana.cluster import Listener, ignore
from ikebana.errors import DataflowError
from ikebana.runtime.memory_budget import Budget, default_limit
from ikebana.runtime.messages import Command, PeerMessage, Request, Retire, unanswerable
from ikebana.runtime.worker import PENDING, Worker
from ikebana.time import Time


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, and how likely; by default nothing does. All but losing letters, which transports do not.

    `delay`: the next letter or command on its way is held back, and so are those behind it.
    `reorder`: a letter travels by itself: those before and after it overtake it.
    `pause`: a worker takes no steps.
    `longest`: for how many actions at most; for fewer if nothing else can happen.
    """

    delay: float = 0.0
    reorder: float = 0.0
    pause: float = 0.0
    longest: int = 50

    def __post_init__(self) -> None:
        if max(self.delay, self.pause) >= 1 or self.longest < 1:
            raise ValueError(f"nothing would ever happen with {self}: make delay and pause less likely than 1")


NO_FAULTS = Faults()
Link: TypeAlias = tuple[int, int, int]
"""From a worker, to a worker, on a way of its own (or 0, the usual way): letters keep their order on it."""
Choice: TypeAlias = tuple[Any, ...]
"""What can happen next: ("letter", *link), ("command", worker) or ("step", worker)."""


class InProcess:
    """W workers, their channels, and a scheduler."""

    def __init__(
        self,
        workers: int = 1,
        *,
        seed: int = 0,
        effort: str = "default",
        faults: Faults = NO_FAULTS,
        memory: int | None = None,
        view_memory: int | None = None,
    ) -> None:
        """`memory` is how many bytes this process may use, and `view_memory` each view of each worker."""
        limit = default_limit(1) if memory is None else memory
        self.workers = [Worker(index, workers, effort, Budget(limit, view_memory)) for index in range(workers)]
        self._random = random.Random(seed)
        self._faults, self._faulty = faults, faults != NO_FAULTS
        self._clock, self._held = 0, dict[Choice, int]()  # what does not happen before the clock says so
        self._commands: list[deque[Command]] = [deque() for _ in self.workers]
        self._letters: dict[Link, deque[PeerMessage]] = {}
        self._new_ways = itertools.count(1)
        self._steps = [("step", index) for index in range(workers)]
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

    @property
    def runs_by_itself(self) -> bool:
        """False: workers only make progress inside `run` and `ask`, in the calling thread."""
        return False

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
            if self._faulty:
                choices = self._unhindered(choices)
            choice = self._random.choice(choices) if len(choices) > 1 else choices[0]
            if self._faulty and self._hinder(choice):
                continue
            self._act(choice, idle)
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

    def _choices(self, idle: set[int]) -> list[Choice]:
        choices: list[Choice] = [("letter", *link) for link, queue in self._letters.items() if queue]
        choices += [("command", w) for w, queue in enumerate(self._commands) if queue]
        choices += [step for step in self._steps if step[1] not in idle]
        return choices

    def _unhindered(self, choices: list[Choice]) -> list[Choice]:
        """What is not held back; if everything is, time passes until it is not."""
        self._clock += 1
        return [each for each in choices if self._held.get(each, 0) <= self._clock] or choices

    def _hinder(self, choice: Choice) -> bool:
        """Hold it back for a while, by chance; returns whether that is so."""
        chance = self._faults.pause if choice[0] == "step" else self._faults.delay
        if self._random.random() < chance:
            self._held[choice] = self._clock + self._random.randint(1, self._faults.longest)
            return True
        self._held.pop(choice, None)
        return False

    def _act(self, choice: Choice, idle: set[int]) -> None:
        match choice:
            case ("letter", source, target, way):
                queue = self._letters[source, target, way]
                self.workers[target].deliver(queue.popleft())
                if way and not queue:
                    del self._letters[source, target, way]
                idle.discard(target)
            case ("command", index):
                self.workers[index].command(self._commands[index].popleft())
                idle.discard(index)
            case (_, index):
                if not self.workers[index].step():
                    idle.add(index)
                self._post(index)

    def _post(self, index: int) -> None:
        outbox = self.workers[index].outbox
        while outbox:
            peer, letter = outbox.popleft()
            alone = self._faults.reorder and self._random.random() < self._faults.reorder
            way = next(self._new_ways) if alone else 0
            self._letters.setdefault((index, peer, way), deque()).append(letter)
        news = self.workers[index].notifications
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
