"""Workers in one process, stepped by a seeded scheduler: every run is deterministic, and every interleaving is
possible.

Messages between two workers keep their order; between different pairs, and between messages, commands and steps, the
scheduler chooses at random from its seed. `run_some` stops after a number of actions, and `kill` ends a worker. With
`Faults`, the scheduler also delays messages and commands, lets messages overtake each other, and pauses workers. None
of this changes an answer: a message says which channel and number it belongs to, and a worker does not take a step
before the messages that it needs have arrived. With one worker and no faults, this is the simplest way to run the
engine in a program.

Idle time. Workers in this process have none: they run only while the caller waits. So `run` ends with one piece of
merging on each worker (`Worker.merge_some`), while `ask` adds nothing to the time of an answer. A program that calls
`run` now and then gets the memory back that a slow reader has held.

Memory. Freed memory is kept for the next arrays, as in worker processes, but little of it: the process is the caller's.

A killed worker is noticed at once: every call raises, and no call answers from the remaining workers.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import pyarrow as pa

from ikebana.cluster import RESTART_HINT, Cluster, Listener, ignore
from ikebana.encoding.spill_files import SpillFiles
from ikebana.errors import WorkerLostError
from ikebana.runtime.memory_budget import default_limit, keep_freed_memory, release_if_mostly_unused, worker_budget
from ikebana.runtime.messages import Command, PeerMessage, Request, Retire, unanswerable
from ikebana.runtime.worker import PENDING, Worker
from ikebana.time import Time

_MEMORY_FOR_KEEPING = 2 << 30
"""Workers in this process keep as much freed memory as a worker process with this limit: some hundreds of MB."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults to inject, as probabilities; by default none. Messages are never lost, since transports lose none.

    `delay`: the next message or command of a queue is delayed, and so are those behind it.
    `reorder`: a message gets a queue of its own, so that other messages can overtake it.
    `pause`: a worker takes no steps.
    `longest`: the maximal duration of a delay or pause, in actions; less if nothing else can happen.
    """

    delay: float = 0.0
    reorder: float = 0.0
    pause: float = 0.0
    longest: int = 50

    def __post_init__(self) -> None:
        if max(self.delay, self.pause) >= 1 or self.longest < 1:
            raise ValueError(f"nothing would ever happen with {self}: `delay` and `pause` must be below 1")


NO_FAULTS = Faults()
Link: TypeAlias = tuple[int, int, int]
"""A queue of messages: its sender, its receiver, and 0 or, for a message that may be overtaken, a unique number."""
Choice: TypeAlias = tuple[Any, ...]
"""An action that can be next: ("message", *link), ("command", worker) or ("step", worker)."""


class InProcess:
    """W workers, the queues between them, and a scheduler."""

    def __init__(
        self,
        workers: int = 1,
        *,
        seed: int = 0,
        effort: str = "default",
        faults: Faults = NO_FAULTS,
        memory: int | None = None,
        view_memory: int | None = None,
        spill: str | None = None,
        spill_bytes: int | None = None,
    ) -> None:
        """`memory` limits the memory of this process, and `view_memory` that of each view on a worker, in bytes.

        Batches of at least `spill_bytes` are in files of the directory `spill` (`ikebana.encoding.spill_files`).
        """
        self._options: dict[str, Any] = {
            "seed": seed,
            "effort": effort,
            "faults": faults,
            "memory": memory,
            "view_memory": view_memory,
            "spill": spill,
            "spill_bytes": spill_bytes,
        }
        limit = default_limit(1) if memory is None else memory
        keep_freed_memory(min(limit, _MEMORY_FOR_KEEPING))
        files = None if spill is None else SpillFiles(spill, spill_bytes)
        if files is not None:
            files.open()
        self.workers = [
            Worker(index, workers, effort, worker_budget(limit, view_memory, files), spill=files)
            for index in range(workers)
        ]
        self._random = random.Random(seed)
        self._faults, self._faulty = faults, faults != NO_FAULTS
        self._clock, self._delayed_until = 0, dict[Choice, int]()  # delayed actions, and when they may happen
        self._commands: list[deque[Command]] = [deque() for _ in self.workers]
        self._in_transit: dict[Link, deque[PeerMessage]] = {}
        self._queue_numbers = itertools.count(1)
        self._steps = [("step", index) for index in range(workers)]
        self._killed: set[int] = set()
        self._listener: Listener = ignore

    def command(self, command: Command, worker: int | None = None, *, hold: bool = False) -> None:
        """Send a command to every worker, or to one."""
        self._check_alive()
        for index in range(len(self.workers)) if worker is None else (worker,):
            self._commands[index].append(command)

    def kill(self, worker: int) -> None:
        """End a worker, with all its data and all that it has not sent yet."""
        self._killed.add(worker)

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.workers)

    @property
    def runs_by_itself(self) -> bool:
        """False: workers only make progress inside `run` and `ask`, in the calling thread."""
        return False

    def run(self) -> None:
        """Run until nothing is left to do; then merge for a moment."""
        self._run()
        for worker in self.workers:
            worker.merge_some()

    def _run(self) -> None:
        if len(self.workers) == 1 and not self._faulty:
            self._run_alone()
            return
        while not self.run_some(1 << 30):
            pass

    def _run_alone(self) -> None:
        """Run a single worker without faults: like `run_some`, at a tenth of the cost."""
        self._check_alive()
        worker, commands, is_idle = self.workers[0], self._commands[0], False
        while commands or not is_idle:
            if commands and (is_idle or self._random.random() < 0.5):
                worker.command(commands.popleft())
                is_idle = False
            else:
                is_idle = not worker.step()
                self._send(0)

    def run_some(self, actions: int) -> bool:
        """Perform at most this number of actions. Return whether nothing is left to do."""
        self._check_alive()
        idle: set[int] = set()
        for _ in range(actions):
            choices = self._choices(idle)
            if not choices:
                return True
            if self._faulty:
                choices = self._not_delayed(choices)
            choice = self._random.choice(choices) if len(choices) > 1 else choices[0]
            if self._faulty and self._delay(choice):
                continue
            self._do(choice, idle)
        return False

    def ask(self, request: Request, worker: int | None = None) -> list[Any]:
        """The answers of all workers, or of one; runs until they have answered or nothing is left to do."""
        self._check_alive()
        asked = range(len(self.workers)) if worker is None else (worker,)
        if any(self._commands[index] for index in asked):  # a worker takes a request after the commands before it
            self._run()
        answers = [self.workers[index].answer(request) for index in asked]
        if any([answer is PENDING for answer in answers]):
            self._run()
            answers = [
                self.workers[index].answer(request) if answer is PENDING else answer
                for index, answer in zip(asked, answers, strict=True)
            ]
            if any([answer is PENDING for answer in answers]):
                raise unanswerable(request)
        return answers

    def listen(self, listener: Listener) -> None:
        """Call a function with every notification of a worker. Replaces the previous function."""
        self._listener = listener

    def watch(self, on_death: Callable[[], None]) -> None:
        """Do nothing: a worker of this process dies only when a test ends it, and the next call notices."""

    def start_again(self) -> Self:
        """As many workers as this cluster has, of which one was ended, in the same way."""
        self.close()
        return type(self)(len(self.workers), **self._options)

    def hand_over(self, successor: Cluster) -> None:
        """Do nothing: this cluster was closed before its successor was started."""

    def close(self) -> None:
        """Drop everything the workers hold."""
        for worker in self.workers:
            for name in list(worker.flows):
                worker.command(Retire(name))
            worker.close()
        release_if_mostly_unused()

    def _choices(self, idle: set[int]) -> list[Choice]:
        choices: list[Choice] = [("message", *link) for link, queue in self._in_transit.items() if queue]
        choices += [("command", w) for w, queue in enumerate(self._commands) if queue]
        choices += [step for step in self._steps if step[1] not in idle]
        return choices

    def _not_delayed(self, choices: list[Choice]) -> list[Choice]:
        """The actions that are not delayed; all actions, if all are delayed."""
        self._clock += 1
        return [choice for choice in choices if self._delayed_until.get(choice, 0) <= self._clock] or choices

    def _delay(self, choice: Choice) -> bool:
        """Delay an action, at random. Return whether it was delayed."""
        chance = self._faults.pause if choice[0] == "step" else self._faults.delay
        if self._random.random() < chance:
            self._delayed_until[choice] = self._clock + self._random.randint(1, self._faults.longest)
            return True
        self._delayed_until.pop(choice, None)
        return False

    def _do(self, choice: Choice, idle: set[int]) -> None:
        match choice:
            case ("message", source, target, queue_number):
                queue = self._in_transit[source, target, queue_number]
                self.workers[target].deliver(queue.popleft())
                if queue_number and not queue:
                    del self._in_transit[source, target, queue_number]
                idle.discard(target)
            case ("command", index):
                self.workers[index].command(self._commands[index].popleft())
                idle.discard(index)
            case (_, index):
                if not self.workers[index].step():
                    idle.add(index)
                self._send(index)

    def _send(self, index: int) -> None:
        outbox = self.workers[index].outbox
        while outbox:
            peer, message = outbox.popleft()
            alone = self._faults.reorder and self._random.random() < self._faults.reorder
            queue_number = next(self._queue_numbers) if alone else 0
            self._in_transit.setdefault((index, peer, queue_number), deque()).append(message)
        notifications = self.workers[index].notifications
        while notifications:
            self._listener(index, notifications.popleft())

    def complete(self, name: str) -> int:
        """The epoch before which all epochs of a dataflow are complete on all workers."""
        self._check_alive()
        return min(worker.complete(name) for worker in self.workers)

    def read(self, name: str, at: Time) -> pa.Table:
        """A dataflow's result at a time, from all workers."""
        self._check_alive()
        return pa.concat_tables([worker.read(name, at) for worker in self.workers])

    def _check_alive(self) -> None:
        if self._killed:
            raise WorkerLostError(
                f"worker {min(self._killed)} has died",
                detail="its shard of every arrangement is lost",
                hint=RESTART_HINT,
            )
