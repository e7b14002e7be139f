"""Joint sweeps: the small sweeps of all dataflows that a change reaches, done together by the programs of all workers.

One proposal for all dataflows, and one message for each peer at each *depth*. At a depth, the programs of all dataflows
that can run do so up to their next stop (`ikebana.runtime.routes`), and what they have for a peer is one message. A
dataflow that reads the arrangement of another in this sweep starts at the depth at which that one ends, and reads what
it has written before it is committed. One that imports an arrangement without reading it, as a delta join does unless
certain tables change, does not wait. A program that is done commits once all workers have said that theirs are, and
after those that it imports.

**Proposals.** A worker proposes joint sweep `number` when a dataflow has changes or is asked for an epoch, when a peer
has proposed it, or when it is told that a peer has changes of a table that dataflows read. A proposal says up to which
epoch this worker has closed its inputs, the least epoch of the changes that wait here, the sources that have them, the
dataflows whose frontier somebody waits for, and the dataflows that are *apart*: those that have a sweep of their own,
or need one. A worker answers a proposal when it has closed the same epochs. From all proposals every worker derives the
same: the epoch, and by reachability who takes part. A dataflow that is apart on some worker is left out, with all that
import it, and does its next sweep by itself (`ikebana.runtime.dataflow`). A dataflow that nothing reaches is complete
up to the epoch as well, and is advanced if somebody waits for it.

**Who speaks.** Only workers with rows have anything to say. A message tells all peers who receives rows by it, and
whether its sender has more to run. So all workers know who speaks at the next depth: nobody waits for the others, whose
exchanges are empty. A worker that has no rows for a dataflow does not run its program; where a program stops is known
without running it. A worker that is the only one to speak goes on by itself, and sends what it has said of several
depths as one message. Once its programs are done, a worker first sends that, so that its peers commit while it does.

**Failure.** A program that fails (it lacks room, an expression raises, there are too many rows) is announced in the
worker's next message. All workers then leave its dataflow out, with all that import it: their programs are undone, and
they do the sweep by themselves. The others go on. A dataflow that fails, or is retired during a joint sweep, is left
out in the same way.

**Long sweeps.** A loop may take many rounds. After `LONG` depths the next joint sweep may begin, without the dataflows
that are still busy, so that a slow dataflow delays no others.

Contract: an epoch of a dataflow is committed on all workers, or on none. Nothing depends on the order in which messages
arrive.

Cost: a proposal to each peer, and a message to each peer for each depth at which the worker has rows; 10 to 20 us in
Python for each program and depth with rows.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ikebana.operators.span import NEVER
from ikebana.runtime.dataflow import MOST_BEHIND, Dataflow
from ikebana.runtime.joint_sweep import PROPOSAL, JointSweep, Participant
from ikebana.runtime.messages import JointMessage
from ikebana.runtime.workspaces import Workspaces

ENABLED = os.environ.get("IKEBANA_JOINT_SWEEPS") != "0"
"""Whether workers do joint sweeps. Without them each dataflow agrees on its sweeps on its own, by its own messages:
slower, and useful to find out whether an error has to do with joint sweeps."""

LONG = 32
"""After so many depths of a joint sweep, the next one need not wait for it."""

MOST_READERS = 64
"""For so many sets of dataflows it is remembered who imports them, until dataflows come or go."""

DEPTHS_AT_ONCE = 16
"""So many depths of a joint sweep are done before the worker attends to anything else."""


class Proposal(NamedTuple):
    """What a worker knows of the next joint sweep."""

    target: int
    """All epochs before it are closed."""
    epoch: int
    """The least epoch with changes here; `NEVER` if there are none."""
    sources: list[int]
    """The sources with changes at that epoch: for each the label of the dataflow, and its number there."""
    wanted: list[int]
    """The labels of dataflows that are asked for an epoch."""
    apart: list[int]
    """The labels of dataflows that cannot take part."""

    def encode(self) -> bytes:
        """The proposal as bytes."""
        counts = len(self.sources), len(self.wanted), len(self.apart)
        return array("q", [self.target, self.epoch, *counts, *self.sources, *self.wanted, *self.apart]).tobytes()

    @staticmethod
    def decode(body: bytes) -> Proposal:
        """The proposal that `encode` has made bytes of."""
        target, epoch, sources, wanted, _, *labels = array("q", body).tolist()
        end = sources + wanted
        return Proposal(target, epoch, labels[:sources], labels[sources:end], labels[end:])


class JointSweeps:
    """The joint sweeps of one worker, one after the other."""

    def __init__(
        self,
        worker: int,
        workers: int,
        flows: Mapping[str, Dataflow],
        workspaces: Workspaces,
        send: Callable[[int, JointMessage], None],
        fail: Callable[[Dataflow, Exception], None],
    ) -> None:
        """`flows` are the dataflows of the worker, `send` sends a peer a message, and `fail` fails a dataflow."""
        self._worker, self._workers, self._flows, self._workspaces = worker, workers, flows, workspaces
        self._send, self._fail = send, fail
        self._number, self._next_epoch = 0, 0  # of the next joint sweep; earlier epochs are not done jointly any more
        self._inbox: dict[tuple[int, int], dict[int, bytes]] = {}  # by number and depth, then by sender
        self._by_label: dict[int, Dataflow] = {}
        self._ready: dict[str, Dataflow] = {}  # dataflows that want to take part
        self._apart: dict[str, Dataflow] = {}  # dataflows that cannot take part
        self._stated_apart: set[str] | None = None  # those that the last proposal has named, until all have proposed
        self._is_expected = False  # whether some worker has changes, and none has proposed a sweep of them yet
        self._readers: dict[frozenset[Dataflow], list[Dataflow]] = {}  # see `_in_order`
        self._held: list[Dataflow] = []  # dataflows that were woken while they could not be attended to
        self._running: dict[int, JointSweep] = {}  # by number
        self._has_unsent = False  # whether this step has said something, which is sent after it

    # Dataflows.

    def add(self, flow: Dataflow) -> None:
        """Note a new dataflow."""
        self._by_label[flow.label] = flow
        self._readers.clear()
        self.note(flow)

    def takes(self, flow: Dataflow) -> bool:
        """Whether a dataflow that is awake is attended to here; if not, it does a sweep of its own."""
        if flow.is_local:
            return False
        if self._is_bound(flow):
            self._held.append(flow)
            return True
        if self.note(flow):
            return False
        if flow.wants_to_sweep:
            self._ready[flow.name] = flow
        return True

    def _is_bound(self, flow: Dataflow) -> bool:
        """Whether this worker has told others that a dataflow takes part, if they agree."""
        if self._stated_apart is not None and flow.name not in self._stated_apart:
            return True
        return bool(self._running) and any([flow.label in sweep.participants for sweep in self._running.values()])

    def note(self, flow: Dataflow) -> bool:
        """Note whether a dataflow is apart, which may have changed; return it."""
        if self._by_label.get(flow.label) is not flow:
            return True  # it was dropped
        if flow.is_apart(self._next_epoch):
            self._apart[flow.name] = flow
            return True
        self._apart.pop(flow.name, None)
        return False

    def forget(self, flow: Dataflow) -> None:
        """Forget a dataflow that was dropped."""
        for by_name in (self._apart, self._ready):
            by_name.pop(flow.name, None)
        self._by_label.pop(flow.label, None)
        self._readers.clear()
        self._held = [other for other in self._held if other is not flow]

    def is_apart(self, name: str) -> bool:
        """Whether a dataflow is known to have a sweep of its own, or to need one."""
        return name in self._apart

    # Messages.

    def deliver(self, message: JointMessage) -> None:
        """Take a message from a peer."""
        if message.number >= self._number or message.number in self._running:
            self._inbox.setdefault((message.number, message.depth), {})[message.sender] = message.body

    def _tell_all(self, number: int, depth: int, bodies: list[bytes]) -> None:
        for peer, body in enumerate(bodies):
            if peer != self._worker:
                self._send(peer, JointMessage(number, depth, self._worker, body))
        self._has_unsent = True
        self._inbox.setdefault((number, depth), {})[self._worker] = bodies[self._worker]

    # Sweeps.

    @property
    def may_propose(self) -> bool:
        """Whether the next step may be a proposal."""
        if self._stated_apart is not None or any([sweep.depth < LONG for sweep in self._running.values()]):
            return False
        return bool(self._ready) or self._is_expected or (self._number, PROPOSAL) in self._inbox

    def expect(self, flows: Iterable[Dataflow]) -> None:
        """Expect a joint sweep, because some worker has changes of these dataflows: propose it before others have.

        What they propose arrives at the worker with the changes while it still sweeps the tables themselves.
        """
        readers = self._in_order(frozenset(flows))
        self._is_expected |= any([not flow.is_local and flow.name not in self._apart for flow in readers])

    def step(self, closed: int) -> tuple[bool, list[Dataflow]]:
        """Go on; return whether anything was done, and the dataflows that have completed epochs, which may want more.

        `closed`: all earlier epochs are closed on this worker.
        """
        completed: list[Dataflow] = []
        self._has_unsent = False
        has_worked = any([self._go_on(number, completed) for number in list(self._running)])
        if not has_worked and self.may_propose:  # else there may be dataflows that were woken just now
            has_worked = self._propose(closed)
        if self._stated_apart is not None:
            proposals = self._inbox[self._number, PROPOSAL]
            if len(proposals) == self._workers:
                has_worked, number = True, self._number
                completed += self._begin(proposals)
                self._go_on(number, completed)
        return has_worked, completed

    def _leave_out(self, flow: Dataflow) -> None:
        """Let a dataflow do its next sweep by itself."""
        flow.sweep_alone()
        self.note(flow)
        flow.wake()

    def _review_ready(self, closed: int) -> dict[Dataflow, int]:
        """The dataflows that take part if others agree, with the least epochs of their changes.

        Those that do not want to any more are dropped, and those that cannot go on by themselves. One that is many
        epochs behind does them in one sweep of its own: a joint sweep is of one epoch. One that has more changes than
        programs take does, too, rather than fail in a joint sweep, which would be two more messages.
        """
        changes: dict[Dataflow, int] = {}
        for name, flow in list(self._ready.items()):
            is_bound = self._is_bound(flow)  # to a long sweep, after which it is looked at again
            if is_bound or not flow.wants_to_sweep:
                del self._ready[name]
                continue
            is_apart, first = self.note(flow), flow.next_change()
            if is_apart or first < closed - MOST_BEHIND or flow.has_many_changes:
                del self._ready[name]
                self._leave_out(flow)
            else:
                changes[flow] = first
        return changes

    def _propose(self, closed: int) -> bool:
        changes = self._review_ready(closed)
        epoch = min((first for first in changes.values() if first < closed), default=NEVER)
        wanted = [flow.label for flow in self._ready.values() if flow.lower < min(flow.demanded, closed)]
        proposed = self._inbox.get((self._number, PROPOSAL), {})
        if any(Proposal.decode(body).target > closed for body in proposed.values()):
            return False  # until this worker has closed the same epochs
        if not (proposed or wanted or epoch < NEVER or self._is_expected):
            return False
        self._is_expected = False
        changed = [flow for flow, first in changes.items() if first == epoch < NEVER]
        sources = [cell for flow in changed for at in flow.changed_sources(epoch) for cell in (flow.label, at)]
        busy = [participant.flow for sweep in self._running.values() for participant in sweep.participants.values()]
        apart = {flow.name: flow.label for flow in (*self._apart.values(), *busy)}
        self._stated_apart = set(apart)
        body = Proposal(closed, epoch, sources, wanted, list(apart.values())).encode()
        self._tell_all(self._number, PROPOSAL, [body] * self._workers)
        return True

    def _begin(self, bodies: Mapping[int, bytes]) -> list[Dataflow]:
        """Do what follows from the proposals of all workers."""
        proposals = {worker: Proposal.decode(body) for worker, body in bodies.items()}
        del self._inbox[self._number, PROPOSAL]
        self._stated_apart = None
        target = min([proposal.target for proposal in proposals.values()])
        epoch = min([proposal.epoch for proposal in proposals.values()])
        by_label = self._by_label
        excluded = _with_importers(
            by_label[label] for proposal in proposals.values() for label in proposal.apart if label in by_label
        )
        wanted = [by_label[label] for proposal in proposals.values() for label in proposal.wanted if label in by_label]
        participants: dict[Dataflow, Participant] = {}
        if epoch < target:
            speakers = {worker for worker, proposal in proposals.items() if proposal.epoch == epoch}
            sources = [(worker, proposals[worker].sources) for worker in sorted(speakers)]
            participants = self._participants(excluded, sources)
            self._next_epoch = epoch + 1
            self._running[self._number] = JointSweep(
                epoch,
                list(participants.values()),
                self._worker,
                speakers,
                self._workspaces,
                lambda flow: self._flows.get(flow.name) is flow,
                self._fail,
            )
        completed = self._advance(wanted, excluded, participants, min(epoch + 1, target))
        self._number += 1
        self._release()
        if epoch < target:
            self._run(self._number - 1)
        return completed

    def _participants(
        self, excluded: set[Dataflow], sources: list[tuple[int, list[int]]]
    ) -> dict[Dataflow, Participant]:
        """The dataflows that changes of these sources, by worker, can reach, in the order of imports.

        Those that cannot take part are added to the `excluded` ones, with their importers.
        """
        changed: dict[Dataflow, set[int]] = {}
        own: set[int] = set()  # labels of those that start with rows here
        for worker, cells in sources:
            for label, at in zip(cells[::2], cells[1::2], strict=True):
                if label in self._by_label:
                    changed.setdefault(self._by_label[label], set()).add(at)
                    if worker == self._worker:
                        own.add(label)
        participants: dict[Dataflow, Participant] = {}
        results: set[Dataflow] = set()  # those whose result may change
        for flow in self._in_order(frozenset(changed)):
            flags = tuple(
                [at in changed.get(flow, ()) or origin in results for at, origin in enumerate(flow.importing)]
            )
            if not any(flags) or not flow.has_begun:
                continue
            if flow in excluded or not flow.can_be_joint():
                excluded |= _with_importers([flow])
                self._leave_out(flow)
                continue
            reach = flow.reach(flags)
            imports = [participants[origin] for origin in flow.importing if origin in participants]
            participant = participants[flow] = Participant(flow, reach, imports)
            participant.has_rows = flow.label in own
            if reach.changes_result:
                results.add(flow)
        return participants

    def _in_order(self, flows: frozenset[Dataflow]) -> list[Dataflow]:
        """Dataflows, and all that import them, directly or indirectly: each after those that it imports."""
        readers = self._readers.get(flows)
        if readers is None:
            if len(self._readers) == MOST_READERS:
                self._readers.clear()
            readers = self._readers[flows] = sorted(_with_importers(flows), key=_order)
        return readers

    def _advance(
        self, wanted: list[Dataflow], excluded: set[Dataflow], participants: Mapping[Dataflow, Participant], epoch: int
    ) -> list[Dataflow]:
        """Advance the dataflows that somebody waits for and that nothing reaches; those left out do it themselves."""
        completed = []
        for flow in dict.fromkeys(wanted):
            if flow in excluded:
                self._leave_out(flow)
            elif flow not in participants:
                self._ready.pop(flow.name, None)
                flow.advance(epoch)
                completed.append(flow)
        return completed

    def _go_on(self, number: int, completed: list[Dataflow]) -> bool:
        """Go on with a sweep as long as all speakers have spoken, for a while; return whether they had.

        A worker that is the only speaker, because all rows are its own, does several depths at once, and what it says
        of them is sent together: at the latest when nothing is left but to commit, which its peers can do meanwhile.
        """
        for depth in range(DEPTHS_AT_ONCE):
            sweep = self._running.get(number)
            if sweep is not None and self._has_unsent and sweep.has_ended:
                return True
            if sweep is None or not self._continue(number, sweep, completed):
                return depth > 0
        return True

    def _continue(self, number: int, sweep: JointSweep, completed: list[Dataflow]) -> bool:
        """Go on with a sweep once all speakers have spoken; return whether they have."""
        messages = self._inbox.get((number, sweep.depth), {})
        if not sweep.speakers <= messages.keys():
            return False
        self._inbox.pop((number, sweep.depth), None)
        finished = sweep.take(messages)
        for flow in finished:
            self._ready.pop(flow.name, None)
        completed += finished
        if sweep.speakers:
            self._run(number)
        else:
            del self._running[number]
        if finished:
            self._release()
        return True

    def _run(self, number: int) -> None:
        """Run the programs of this depth, and say what is to be said."""
        sweep = self._running[number]
        sweep.run()
        if self._worker in sweep.speakers:
            self._tell_all(number, sweep.depth, sweep.messages(self._workers))

    def _release(self) -> None:
        """Attend to the dataflows that were woken in the meantime."""
        held, self._held = self._held, []
        for flow in held:
            flow.wake()


def _order(flow: Dataflow) -> int:
    return flow.order


def _with_importers(flows: Iterable[Dataflow]) -> set[Dataflow]:
    """Dataflows, and all that import them, directly or indirectly."""
    found: set[Dataflow] = set()
    waiting = list(flows)
    while waiting:
        flow = waiting.pop()
        if flow not in found:
            found.add(flow)
            waiting += flow.importers
    return found
