"""Scheduling: which dataflows of a worker work next, together or by themselves; and what is done in idle time.

A dataflow works when it is woken: by changes, a message, a demand, or a dataflow that it imports. Each step lets every
dataflow that is awake do one quantum. On several workers, small sweeps are done together
(`ikebana.runtime.joint_sweeps`): a joint sweep begins once all dataflows that may take part have been attended to.

Idle time. When nothing else is to be done, `merge_some` moves up to `IDLE_ROWS` rows of a trace: it merges batches and
compacts history, so that memory is freed after a slow reader has left, even if the trace does not change any more
(`ikebana.trace.spine`). It looks at one dataflow in each call, and only at dataflows of which a trace has grown, or has
a reader that has moved or left, until they have no such work. So a worker comes to rest.

Memory. Now and then the memory that a dataflow needs is measured (`ikebana.runtime.memory_budget`); a dataflow that
needs too much fails.

Contract: an exception in a dataflow fails that dataflow alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.joint_sweeps import JointSweeps
from ikebana.runtime.memory_budget import Budget

IDLE_ROWS = 1 << 15
"""How many rows are moved at a time in idle time: half a millisecond, or a few milliseconds for rows with strings."""


class Scheduler:
    """Lets the dataflows of one worker work."""

    def __init__(
        self,
        flows: Mapping[str, Dataflow],
        joint: JointSweeps | None,
        budget: Budget,
        *,
        may_fail: Callable[[Dataflow], bool],
        report: Callable[[Dataflow], None],
        fail: Callable[[Dataflow, Exception], None],
    ) -> None:
        """`flows` are the dataflows of the worker, and `joint` its joint sweeps, if it does any.

        `may_fail` says whether a dataflow may fail for lack of memory; `report` is called after a dataflow has worked,
        and `fail` fails one with an exception.
        """
        self.budget = budget
        self._flows, self._joint = flows, joint
        self._may_fail, self._report, self._fail = may_fail, report, fail
        self._awake: dict[str, None] = {}  # in the order in which they were woken
        self._unmerged: dict[str, None] = {}  # dataflows whose traces may have work for idle time

    # Dataflows.

    def add(self, flow: Dataflow) -> None:
        """Let a new dataflow work."""
        if self._joint is not None:
            self._joint.add(flow)
        self.wake(flow.name)

    def forget(self, flow: Dataflow) -> None:
        """Forget a dataflow that was dropped."""
        if self._joint is not None:
            self._joint.forget(flow)
        self._unmerged.pop(flow.name, None)
        for imported in flow.imported:
            self.has_other_readers(imported.name)

    def wake(self, name: str) -> None:
        """Let a dataflow work in the next step."""
        self._awake[name] = None

    def note(self, flow: Dataflow) -> None:
        """Note that something has happened to a dataflow because of which it may have to sweep by itself."""
        if self._joint is not None:
            self._joint.note(flow)

    # Work.

    def step(self, closed: int) -> bool:
        """Let every dataflow that is awake do one quantum of work. Return whether there was any.

        All epochs before `closed` are closed on this worker.
        """
        awake, self._awake = self._awake, {}
        joint = self._joint
        for name in awake:
            self._awake.pop(name, None)  # what has woken it since then is done in this step, too
            flow = self._flows.get(name)
            if flow is not None and (joint is None or not joint.takes(flow)):
                self._step(flow)
        return (joint is not None and self._step_jointly(joint, closed)) or bool(awake)

    def _step(self, flow: Dataflow) -> None:
        """Let a dataflow do one quantum of work."""
        start = self.budget.now()
        try:
            if flow.step():
                self._awake[flow.name] = None
            self._measure(flow, self.budget.now() - start)
        except Exception as error:  # a user's function, or bad data: only this dataflow fails
            self._fail(flow, error)
        self._report(flow)
        if self._joint is not None and self._flows.get(flow.name) is flow:
            for other in (flow, *flow.importers) if flow.result.closed else (flow,):
                self._joint.note(other)

    def _step_jointly(self, joint: JointSweeps, closed: int) -> bool:
        """Go on with a joint sweep, or begin one once all dataflows that may take part have been attended to."""
        if joint.may_propose and any(not joint.is_apart(name) for name in self._awake):
            return False
        start = self.budget.now()
        has_worked, completed = joint.step(closed)
        seconds = self.budget.now() - start
        for flow in completed:
            self._awake.pop(flow.name, None)
            if flow.wants_to_sweep and not joint.takes(flow):
                self._awake[flow.name] = None
            try:
                self._measure(flow, seconds / len(completed))
            except Exception as error:
                self._fail(flow, error)
            self._report(flow)
        return has_worked

    # Memory.

    def _measure(self, flow: Dataflow, seconds: float) -> None:
        """Note that a dataflow has worked; raise if it uses too much memory.

        A dataflow with a limit of its own is checked after each of its sweeps, however short.
        """
        flow.unmeasured_seconds += seconds
        flow.busy_seconds += seconds
        is_limited = flow.memory is not None and not flow.is_sweeping
        if is_limited or self.budget.is_measurement_due(flow.unmeasured_seconds):
            self._check_memory(flow)

    def _check_memory(self, flow: Dataflow) -> None:
        """Raise if a dataflow uses too much memory: in the sweep that it is in, or between two sweeps."""
        flow.unmeasured_seconds = 0.0
        flow.grown_bytes += self.budget.measure_growth()
        needed = max(0, flow.grown_bytes) + flow.arranged_bytes
        if not flow.is_sweeping:
            flow.grown_bytes, flow.arranged_bytes = 0, flow.own_bytes
            needed = max(needed, flow.arranged_bytes)
        if self._may_fail(flow):
            self.budget.check(needed, flow.memory)

    # Idle time.

    def has_moved(self, flow: Dataflow) -> None:
        """Note that a dataflow has changed its traces, or as a reader the traces that it imports."""
        self._unmerged.update(flow.touched)

    def has_other_readers(self, name: str) -> None:
        """Note that a dataflow's result has got another reader, or that one has moved or left."""
        if name in self._flows:
            self._unmerged[name] = None

    def merge_some(self) -> bool:
        """Use idle time for a piece of merging or compaction of one dataflow. Return whether there may be more."""
        if not self._unmerged:
            return False
        name = next(iter(self._unmerged))
        flow, has_work = self._flows.get(name), False
        with suppress(MemoryError):  # then there is no room for the result of a merge
            has_work = flow is not None and flow.merge_some(IDLE_ROWS)
        if not has_work:
            del self._unmerged[name]
        return bool(self._unmerged)
