"""Waking a thread that waits for one thing."""

from __future__ import annotations

import threading

from ikebana.cluster.wakeups import Wakeup
from tests.clusters import SOON


def test_what_has_happened_is_not_waited_for() -> None:
    wakeup = Wakeup()
    assert not wakeup.is_set and not wakeup.wait(0)
    wakeup.set()
    wakeup.set()
    assert wakeup.is_set and wakeup.wait() and wakeup.wait(0) and wakeup.wait(SOON)


def test_a_thread_that_waits_is_woken() -> None:
    wakeup, found = Wakeup(), list[bool]()
    thread = threading.Thread(target=lambda: found.append(wakeup.wait(SOON)))
    thread.start()
    wakeup.set()
    thread.join(SOON)
    assert found == [True]
