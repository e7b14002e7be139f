"""Addresses: where a process listens, and under which address others reach it.

A process listens on one address and tells others an *endpoint* of the form `tcp://host:port`. By default both are the
same. They differ behind address translation, in containers, and on machines with several networks: then `bind` is the
address to listen on (`0.0.0.0` or `::` for all), and `host` is what others are told, as it is.

Names are resolved by the system's resolver, in the process that uses them; ZeroMQ is only given numeric addresses. If a
name has an IPv4 address, that one is used, otherwise its IPv6 address.

Ports are chosen by the system, or are the first free ones of a range, for networks with firewalls. A worker needs two
ports, and the driver two, one of them only during the start.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from ikebana.errors import IkebanaError

_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a process listens."""

    host: str  # where others connect to
    bind: str = ""  # the address to listen on, if it is another one
    ports: tuple[int, int] | None = None  # the first and the last port that may be used

    def candidates(self) -> Iterable[str]:
        """The ports to try in order, as ZeroMQ writes them."""
        if self.ports is None:
            return ("*",)
        first, last = self.ports
        return map(str, range(first, last + 1))


def resolve(name: str) -> str:
    """The numeric address of a host, as the system resolves it.

    >>> resolve("127.0.0.1"), resolve("[::1]")
    ('127.0.0.1', '::1')
    """
    try:
        found = socket.getaddrinfo(name.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise IkebanaError(
            f"the host name {name!r} cannot be resolved",
            detail=str(error),
            hint="give an address, or a name that this machine's resolver knows",
        ) from error
    addresses = {family: str(address[0]) for family, _, _, _, address in reversed(found)}
    return addresses.get(socket.AF_INET) or next(iter(addresses.values()))


def endpoint(host: str, port: int | str) -> str:
    """The endpoint of a port on a host.

    >>> endpoint("10.0.0.1", 7000), endpoint("fd00::1", 7000)
    ('tcp://10.0.0.1:7000', 'tcp://[fd00::1]:7000')
    """
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def host_of(endpoint: str) -> str:
    """The host of an endpoint.

    >>> host_of("tcp://10.0.0.1:7000"), host_of("tcp://[fd00::1]:7000")
    ('10.0.0.1', 'fd00::1')
    """
    return _split(endpoint)[0]


def port_of(endpoint: str) -> int:
    """The port of an endpoint.

    >>> port_of("tcp://[fd00::1]:7000")
    7000
    """
    return int(_split(endpoint)[1])


def resolved(endpoint_: str) -> str:
    """An endpoint with a numeric address instead of a name."""
    host, port = _split(endpoint_)
    return endpoint(resolve(host), port)


def _split(endpoint: str) -> tuple[str, str]:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host.strip("[]"), port


def parse_ports(ports: str | None) -> tuple[int, int] | None:
    """The first and the last port of a range such as "7000-7020"; None for any port.

    >>> parse_ports("7000-7020"), parse_ports("7000"), parse_ports(None)
    ((7000, 7020), (7000, 7000), None)
    """
    if ports is None:
        return None
    match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", ports) if isinstance(ports, str) else None
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < first <= last <= _MAX_PORT:
        raise IkebanaError(
            f"{ports!r} is not a range of ports", hint='give the first and the last, such as "7000-7020"'
        )
    return first, last
