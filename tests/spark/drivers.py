"""Drivers as processes of their own (`scripts`), because a process has one SparkContext."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from tests.clusters import within

TIMEOUT = 1200.0
"""How many seconds a driver may take: six Java processes start on few cores, which others may use too."""


class Script:
    """A driver in its own process, and its output."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.scripts", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        self._said: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        threading.Thread(target=self._listen, args=(self.process.stdout, self._said.put), daemon=True).start()
        threading.Thread(target=self._listen, args=(self.process.stderr, self.errors.append), daemon=True).start()

    def _listen(self, stream: Any, take: Any) -> None:
        for line in stream:
            take(line)

    def says(self) -> dict[str, Any]:
        def has_spoken_or_ended() -> bool:
            return not self._said.empty() or self.process.poll() is not None

        within(TIMEOUT, has_spoken_or_ended)
        try:
            message: dict[str, Any] = json.loads(self._said.get(timeout=1))
        except queue.Empty:
            raise AssertionError("".join(self.errors) or "it says nothing") from None
        return message

    def below(self) -> list[int]:
        return [process.pid for process in psutil.Process(self.process.pid).children(recursive=True)]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextmanager
def script(*arguments: str, **environment: str) -> Iterator[Script]:
    running = Script(*arguments, **environment)
    try:
        yield running
    finally:
        running.end()
