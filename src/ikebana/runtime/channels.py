"""The channels of a dataflow: the messages that its workers send each other.

A message belongs to a channel and has a number there (`ikebana.runtime.messages`). For each number every worker sends
every peer exactly one message, and waits for one from each: "all messages have arrived" is all the progress tracking
that a sweep needs. An exchange is a channel of its own; proposals, rounds and programs have one each.

Contract: messages may arrive in any order, and before this worker has come to their number.

Cost: one message for each peer and number; a dictionary entry for each that has arrived early.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from typing import Any

from ikebana.operators.exchange import Exchange, Parts
from ikebana.runtime.messages import FIRST_EXCHANGE, PROGRAM_MESSAGES, PROPOSALS, ROUNDS, DataflowMessage

WAITING = object()
"""What a sweep yields while it waits for peers; after any other value it can go on at once."""


class Channels:
    """The channels of one dataflow, on one worker."""

    def __init__(self, dataflow: str, worker: int, workers: int, send: Callable[[int, DataflowMessage], None]) -> None:
        """`send` sends a message to a peer."""
        self.dataflow, self._worker, self._workers, self._send = dataflow, worker, workers, send
        self._inbox: dict[tuple[int, int], dict[int, Any]] = {}  # by channel and number, then by sender
        self._next = itertools.count(FIRST_EXCHANGE)
        self._rounds, self._program_messages = itertools.count(), itertools.count()
        self.has_exchanges = False

    def new_exchange(self) -> Exchange:
        """A new channel between the operators of all workers that are rendered in the same place."""
        channel, numbers, self.has_exchanges = next(self._next), itertools.count(), True

        def all_to_all(parts: Parts) -> Generator[object, None, Parts]:
            return self._all_to_all(channel, next(numbers), parts)

        return Exchange(self._workers, all_to_all)

    def agree(self, round_: int | None) -> Generator[object, None, int | None]:
        """The least of the rounds that all workers give; None if all give None."""
        if self._workers == 1:
            return round_
        rounds = yield from self._all_to_all(ROUNDS, next(self._rounds), [round_] * self._workers)
        return min((round_ for round_ in rounds if round_ is not None), default=None)

    def exchange_of_program(self, messages: list[Any]) -> Generator[object, None, list[Any]]:
        """Send each worker what a program has for it; return what the programs of all workers have for this one."""
        return self._all_to_all(PROGRAM_MESSAGES, next(self._program_messages), messages)

    # Proposals.

    def propose(self, number: int, proposal: Any) -> None:
        """Send all workers a proposal."""
        self.send_all(PROPOSALS, number, [proposal] * self._workers)

    def has_proposal(self, number: int) -> bool:
        """Whether a worker has sent its proposal."""
        return bool(self._inbox) and (PROPOSALS, number) in self._inbox

    def take_proposals(self, number: int) -> list[Any] | None:
        """The proposals of all workers, once they are here."""
        if len(self._inbox.get((PROPOSALS, number), ())) < self._workers:
            return None
        return list(self._inbox.pop((PROPOSALS, number)).values())

    # Messages.

    def deliver(self, message: DataflowMessage) -> None:
        """Take a message from a peer."""
        self._inbox.setdefault((message.channel, message.number), {})[message.sender] = message.body

    def send_all(self, channel: int, number: int, parts: list[Any]) -> None:
        """Send each worker its part; this worker's own part is delivered at once."""
        for peer, part in enumerate(parts):
            if peer != self._worker:
                self._send(peer, DataflowMessage(self.dataflow, channel, number, self._worker, part))
        self._inbox.setdefault((channel, number), {})[self._worker] = parts[self._worker]

    def _all_to_all(self, channel: int, number: int, parts: list[Any]) -> Generator[object, None, list[Any]]:
        """Send each worker its part; return the parts from all workers, in order, once they are here."""
        self.send_all(channel, number, parts)
        while len(self._inbox[channel, number]) < self._workers:
            yield WAITING
        received = self._inbox.pop((channel, number))
        return [received[worker] for worker in range(self._workers)]
