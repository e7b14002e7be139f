"""A slow link: forwards connections to an endpoint, with a limited number of bytes per second in each direction."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self

from ikebana.cluster.network import endpoint, host_of, port_of

_CHUNK = 2048


class SlowLink:
    """Listens at `endpoint`, and forwards to `target` until it is closed."""

    def __init__(self, target: str, bytes_per_second: float) -> None:
        self._target, self._rate = target, bytes_per_second
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        self.endpoint = endpoint("127.0.0.1", self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection((host_of(self._target), port_of(self._target)))
                self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):  # closed
            while data := source.recv(_CHUNK):
                time.sleep(len(data) / self._rate)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
