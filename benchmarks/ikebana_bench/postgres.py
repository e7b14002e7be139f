"""A PostgreSQL server of one's own, for comparison, and a client of it.

The server is that of the machine's package (Debian's is called `postgresql`), found by `server_folder`. It runs in a
temporary folder with a Unix socket there, as an unprivileged user, and ends with the block that started it. The client
calls the C library of the same package, libpq, so no Python package is needed.

Optional: neither installing nor testing this package requires PostgreSQL.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import getpass
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ikebana.errors import IkebanaError

_OK = (1, 2)
"""The statuses of results: a command without rows, and rows."""

_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "1GB",
    "work_mem": "256MB",
    "maintenance_work_mem": "512MB",
    "max_parallel_workers_per_gather": "0",
    "fsync": "off",
    "jit": "off",
}


def server_folder() -> Path | None:
    """The folder with the programs of the newest server that is installed; None if there is no server, or no client."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: _version(path.parent.name))
    path = shutil.which("postgres")
    folders += [Path(path).resolve().parent] if path else []
    found = [folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()]
    return found[-1] if found and _library_name() and _unprivileged_user() else None


def _version(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return 0.0


def _library_name() -> str | None:
    return ctypes.util.find_library("pq")


def _unprivileged_user() -> str | None:
    """The user that the server runs as: this one, or if this is root, the one of the package, or nobody."""
    if os.geteuid() != 0:
        return getpass.getuser()
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


class PostgresError(IkebanaError):
    """The server or the client of PostgreSQL has failed."""


class Connection:
    """A connection to a server. Values are sent and received as text."""

    def __init__(self, folder: Path, user: str) -> None:
        self._pq = _library()
        self._connection = self._pq.PQconnectdb(f"host={folder} user={user} dbname=postgres".encode())
        if self._pq.PQstatus(self._connection) != 0:
            raise PostgresError("cannot connect to PostgreSQL", detail=self._message())

    def execute(self, text: str) -> list[tuple[str | None, ...]]:
        """Execute a statement; return its rows."""
        return self._rows(self._pq.PQexec(self._connection, text.encode()))

    def prepare(self, name: str, text: str) -> None:
        """Prepare a statement with parameters $1, $2, ..."""
        self._rows(self._pq.PQprepare(self._connection, name.encode(), text.encode(), 0, None))

    def execute_prepared(self, name: str, values: Sequence[str]) -> list[tuple[str | None, ...]]:
        """Execute a prepared statement; return its rows."""
        sent = (ctypes.c_char_p * len(values))(*(value.encode() for value in values))
        result = self._pq.PQexecPrepared(self._connection, name.encode(), len(values), sent, None, None, 0)
        return self._rows(result)

    def close(self) -> None:
        self._pq.PQfinish(self._connection)

    def _rows(self, result: int) -> list[tuple[str | None, ...]]:
        pq = self._pq
        try:
            if pq.PQresultStatus(result) not in _OK:
                raise PostgresError("PostgreSQL cannot execute a statement", detail=self._message())
            columns = range(pq.PQnfields(result))
            return [
                tuple(
                    None if pq.PQgetisnull(result, row, column) else pq.PQgetvalue(result, row, column).decode()
                    for column in columns
                )
                for row in range(pq.PQntuples(result))
            ]
        finally:
            pq.PQclear(result)

    def _message(self) -> str:
        return str(self._pq.PQerrorMessage(self._connection).decode().strip())


def _library() -> ctypes.CDLL:
    pq, pointer, text, number = ctypes.CDLL(_library_name()), ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures = {
        "PQconnectdb": (pointer, [text]),
        "PQstatus": (number, [pointer]),
        "PQfinish": (None, [pointer]),
        "PQerrorMessage": (text, [pointer]),
        "PQexec": (pointer, [pointer, text]),
        "PQprepare": (pointer, [pointer, text, text, number, pointer]),
        "PQexecPrepared": (pointer, [pointer, text, number, ctypes.POINTER(text), pointer, pointer, number]),
        "PQresultStatus": (number, [pointer]),
        "PQntuples": (number, [pointer]),
        "PQnfields": (number, [pointer]),
        "PQgetisnull": (number, [pointer, number, number]),
        "PQgetvalue": (text, [pointer, number, number]),
        "PQclear": (None, [pointer]),
    }
    for name, (returned, arguments) in signatures.items():
        function = getattr(pq, name)
        function.restype, function.argtypes = returned, arguments
    return pq


@contextmanager
def server() -> Iterator[tuple[Connection, Path]]:
    """A block with a connection to a new server, and a folder whose files the server can read."""
    programs, user = server_folder(), _unprivileged_user()
    if programs is None or user is None:
        raise PostgresError(
            "there is no PostgreSQL server", hint="install the package `postgresql`, or choose other peers"
        )
    with TemporaryDirectory(prefix="ikebana-postgres-") as name:
        folder = Path(name)
        data = folder / "data"
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        _run(user, programs / "initdb", "-D", data, "-U", user, "-A", "trust", "--no-sync")
        options = [f"-c{key}={value}" for key, value in _SETTINGS.items()]
        command = [programs / "pg_ctl", "-D", data, "-l", folder / "log", "-w"]
        _run(user, *command, "-o", f"-k {folder} {' '.join(map(_quoted, options))}", "start")
        try:
            connection = Connection(folder, user)
            try:
                yield connection, folder
            finally:
                connection.close()
        finally:
            _run(user, *command, "-m", "immediate", "stop")


def _quoted(text: str) -> str:
    return f"'{text}'"


def _run(user: str, *command: object) -> None:
    """Run a program of the server as a user."""
    as_user = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    words = [str(word) for word in command]
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    done = subprocess.run(words, capture_output=True, text=True, cwd="/", env=environment, check=False, **as_user)  # type: ignore[call-overload]
    if done.returncode:
        raise PostgresError(f"{Path(words[0]).name} of PostgreSQL has failed", detail=done.stderr.strip()[-500:])
