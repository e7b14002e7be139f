"""One joint sweep, on one worker: the programs of many dataflows run side by side, from stop to stop.

See `ikebana.runtime.joint_sweeps` for the protocol: who takes part, who speaks at a depth, and what happens when a
program fails. Here is what a worker does at a depth: run the programs that can run, write a message for each peer, take
the messages of the peers, and commit what is done on all workers.

Invariants: all workers see the same messages in the same order of depths, and so have the same participants in the same
states, rows apart. A program commits after those whose arrangements its dataflow imports.

Cost: a call of the interpreter for each program and stop that has rows here; a few Python calls for the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from ikebana.encoding.lanes import Lane
from ikebana.kernels import opcodes
from ikebana.runtime.dataflow import Dataflow, Reach
from ikebana.runtime.exchanged_rows import Outgoing, ReceivedRows, entries
from ikebana.runtime.workspaces import Workspace, Workspaces
from ikebana.trace.batch import StoredBatch

PROPOSAL = 0
"""The depth of proposals; that of the first messages with rows is 1."""

WAITS, RUNS, ENDED, FAILED = range(4)
"""A dataflow in a joint sweep, on one worker: it waits for those that it reads, runs or has stopped, is done, or
cannot be done here, which the other workers do not know yet."""


class DepthReport(NamedTuple):
    """What a worker says at a depth, apart from rows."""

    continues: bool
    """Whether it has more to run, even if it receives nothing."""
    receivers: list[int]
    """The workers that receive rows by this message."""
    failed: list[int]
    """The labels of dataflows that cannot go on."""
    rounds: list[int]
    """For each loop that stops here the label of its dataflow, and the next round for which rows wait, or -1."""

    def encode(self) -> bytes:
        """The report as bytes."""
        parts = self.receivers, self.failed, self.rounds
        cells = [cell for part in parts for cell in part]
        return array("q", [self.continues, *map(len, parts), *cells]).tobytes()

    @staticmethod
    def decode(message: Lane) -> tuple[DepthReport, int]:
        """The report at the start of a message, and where it ends."""
        continues, receivers, failed, rounds = message[:4].tolist()
        end = 4 + receivers + failed + rounds
        cells = message[4:end].tolist()
        split = receivers + failed
        return DepthReport(bool(continues), cells[:receivers], cells[receivers:split], cells[split:]), end


class Participant:
    """A dataflow in a joint sweep, on this worker."""

    def __init__(self, flow: Dataflow, reach: Reach, imports: list[Participant]) -> None:
        self.flow, self.route, self.imports, self.program = flow, reach.route, imports, flow.program
        self.awaited = [other for other in imports if other.flow in reach.read]
        self.importers: list[Participant] = []  # those that await it
        for other in self.awaited:
            other.importers.append(self)
        self.state, self.stop, self.round = WAITS, 0, 0
        self.next_pc = 0  # where the program goes on
        self.has_rows = False  # whether it starts with rows on this worker
        self.workspace: Workspace | None = None  # None as long as it has had no rows on this worker
        self.fresh: StoredBatch | None = None  # what it adds to its result

    @property
    def is_early(self) -> bool:
        """Whether a dataflow that it imports is not done. Then it must not be complete either: its sources would later
        get changes at an epoch that is over."""
        return any([other.state != ENDED for other in self.imports])


class JointSweep:
    """A joint sweep of an epoch, on one worker."""

    def __init__(
        self,
        epoch: int,
        participants: list[Participant],
        worker: int,
        speakers: set[int],
        workspaces: Workspaces,
        is_there: Callable[[Dataflow], bool],
        fail: Callable[[Dataflow, Exception], None],
    ) -> None:
        """`is_there` says whether a dataflow is still installed here, and `fail` fails one with an exception."""
        self.epoch, self.depth, self.speakers = epoch, PROPOSAL + 1, speakers
        self.participants = {participant.flow.label: participant for participant in participants}
        self._worker, self._workspaces, self._is_there, self._fail = worker, workspaces, is_there, fail
        self._unknown: list[int] = []  # labels of dataflows that have received rows and do not take part here

    @property
    def has_ended(self) -> bool:
        """Whether all programs are done on this worker, so that it has nothing left to do but to commit."""
        return all([participant.state == ENDED for participant in self.participants.values()])

    # One depth.

    def run(self) -> None:
        """Run all programs that can run up to their next stop."""
        for participant in self.participants.values():
            if participant.state == WAITS and all([other.state == ENDED for other in participant.awaited]):
                participant.state = RUNS
                if participant.has_rows:
                    self._guard(participant, self._start)
            elif participant.state == RUNS and participant.workspace is not None:
                self._guard(participant, self._proceed)
            if participant.state == RUNS and participant.stop == len(participant.route.stops):
                participant.state = ENDED
                if participant.workspace is not None and participant.importers:
                    self._guard(participant, self._offer)

    def _guard(self, participant: Participant, run: Callable[[Participant], None]) -> None:
        """Do a step of a dataflow; an exception fails the dataflow alone."""
        if not self._is_there(participant.flow):
            participant.state = FAILED
            return
        try:
            run(participant)
        except Exception as error:
            participant.state = FAILED
            self._fail(participant.flow, error)

    def _start(self, participant: Participant) -> None:
        workspace = self._workspace_of(participant)
        self._check(participant, participant.program.begin(workspace, self.epoch))

    def _workspace_of(self, participant: Participant) -> Workspace:
        """The workspace of a program, which gets one when it has rows for the first time."""
        workspace = participant.workspace
        if workspace is None:
            participant.program.follow(participant.route)
            workspace = participant.workspace = participant.program.new_workspace()
        return workspace

    def _proceed(self, participant: Participant) -> None:
        workspace = self._workspace_of(participant)
        workspace.state[opcodes.ROUND_NOW] = participant.round
        self._check(participant, participant.program.proceed(workspace, self.epoch, participant.next_pc))

    def _check(self, participant: Participant, status: int) -> None:
        """Note a program that could not run up to its next stop."""
        stops = participant.route.stops
        expected = opcodes.DONE
        if participant.stop < len(stops):
            expected = opcodes.EXCHANGES if stops[participant.stop].exchanges else opcodes.AGREES
        if status != expected:
            participant.state = FAILED

    def _offer(self, participant: Participant) -> None:
        """Pass on to importers what a program that is done adds to its result."""
        participant.fresh = participant.program.result(self._workspace_of(participant), self.epoch)
        if participant.fresh is not None:
            for other in participant.importers:
                other.flow.offer(participant.flow, participant.fresh)
                other.has_rows = True

    def messages(self, workers: int) -> list[bytes]:
        """What this worker says to each worker at this depth."""
        outgoing, rounds, failed = self._workspaces.outgoing, list[int](), list(self._unknown)
        self._unknown, continues = [], False
        for label, participant in self.participants.items():
            if participant.state == FAILED:
                failed.append(label)
            elif participant.state == WAITS:
                continues |= participant.has_rows
            elif participant.state == RUNS and participant.workspace is not None:
                continues = True
                self._send(participant, outgoing, rounds)
        rows = outgoing.take()
        receivers = [peer for peer in range(workers) if len(rows[peer])]
        report = DepthReport(continues, receivers, failed, rounds).encode()
        return [report + part.tobytes() for part in rows]

    def _send(self, participant: Participant, outgoing: Outgoing, rounds: list[int]) -> None:
        stop, workspace = participant.route.stops[participant.stop], participant.workspace
        assert workspace is not None
        if stop.exchanges:
            participant.program.send(workspace, stop, outgoing, participant.flow.label)
        else:
            rounds += [participant.flow.label, participant.program.next_round(workspace)]

    def take(self, messages: Mapping[int, bytes]) -> list[Dataflow]:
        """Take what the speakers of this depth have said; return the dataflows that have completed the epoch.

        The sweep is over if nobody speaks at the next depth.
        """
        received = [(sender, np.frombuffer(messages[sender], np.int64)) for sender in sorted(messages)]
        reports = [(sender, message, *DepthReport.decode(message)) for sender, message in received]
        self._leave_out({label for _, _, report, _ in reports for label in report.failed})
        self.speakers = {sender for sender, _, report, _ in reports if report.continues}
        self.speakers.update(*(report.receivers for _, _, report, _ in reports))
        self.depth += 1
        completed = self._commit_ended()
        for sender, message, _, end in reports:
            if sender != self._worker:
                self._receive(message, end)
        self._move_on(_agreed_rounds([report.rounds for _, _, report, _ in reports]))
        return completed

    def _leave_out(self, failed: set[int]) -> None:
        """Leave out dataflows that cannot go on, and all that import them."""
        if not failed:
            return
        for label, participant in list(self.participants.items()):
            if label in failed or any(other.flow.label in failed for other in participant.imports):
                failed.add(label)
                participant.importers.clear()
                for other in participant.awaited:
                    other.importers = [importer for importer in other.importers if importer is not participant]
                del self.participants[label]
                self._undo(participant)
                participant.flow.sweep_alone()
                participant.flow.wake()

    def _undo(self, participant: Participant) -> None:
        if participant.workspace is not None:
            participant.program.undo(participant.workspace, self.epoch)
            self._workspaces.keep(participant.workspace)
            participant.workspace = None
        for other in participant.imports:
            participant.flow.offer(other.flow, None)

    def _receive(self, message: Lane, start: int) -> None:
        for entry in entries(message, start):
            participant = self.participants.get(entry.label)
            if participant is None:
                self._unknown.append(entry.label)
            else:
                self._guard(participant, partial(self._append, entry))

    def _append(self, entry: ReceivedRows, participant: Participant) -> None:
        """Take rows of an exchange; a program that has had none until now is woken."""
        if participant.state != RUNS:
            participant.state = FAILED
            return
        is_new = participant.workspace is None
        workspace = self._workspace_of(participant)
        if is_new:
            participant.program.wake(workspace, participant.round)
        if participant.program.receive(workspace, entry) != opcodes.DONE:
            participant.state = FAILED

    def _move_on(self, rounds: Mapping[int, int]) -> None:
        """Move every program that has stopped, with or without rows here, on to its next stop."""
        for label, participant in self.participants.items():
            if participant.state == RUNS:
                stop = participant.route.stops[participant.stop]
                round_ = -1 if stop.exchanges else rounds.get(label, -1)
                if round_ >= 0:
                    participant.round, participant.next_pc, participant.stop = round_, stop.loop, stop.repeat
                else:
                    participant.next_pc = stop.resume
                    participant.stop += 1
                    participant.round = participant.round if stop.exchanges else 0

    def _commit_ended(self) -> list[Dataflow]:
        """Commit the programs that are done on all workers: all, if nobody has anything to say any more."""
        ended = [
            participant
            for participant in self.participants.values()
            if not self.speakers or (participant.state == ENDED and not participant.is_early)
        ]
        for participant in ended:
            self._guard(participant, self._commit)
            participant.importers.clear()
            del self.participants[participant.flow.label]
            if participant.workspace is not None:
                self._workspaces.keep(participant.workspace)
        return [participant.flow for participant in ended if self._is_there(participant.flow)]

    def _commit(self, participant: Participant) -> None:
        participant.flow.complete_jointly(self.epoch, participant.workspace, participant.fresh)
        for other in participant.importers:
            if other.state == WAITS:
                other.flow.offer(participant.flow, None)  # it finds the batch among those of the trace


def _agreed_rounds(reported: Iterable[list[int]]) -> dict[int, int]:
    """For each loop, by the label of its dataflow, the least round for which rows wait on any worker."""
    agreed: dict[int, int] = {}
    for rounds in reported:
        for label, round_ in zip(rounds[::2], rounds[1::2], strict=True):
            if round_ >= 0:
                agreed[label] = min(round_, agreed.get(label, round_))
    return agreed
