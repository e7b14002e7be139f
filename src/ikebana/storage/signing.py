"""Signatures of objects that have to be pickled, such as Python functions.

Whoever can write to a storage directory could otherwise run code in the processes that open it. So nothing in a storage
directory is unpickled unless it was signed, with a secret that only the owner can read, and that is stored elsewhere.

The secret is 32 random bytes in a file of mode 0600, created when it is first needed: the file named by the variable
IKEBANA_SECRET_FILE, otherwise `~/.config/ikebana/secret`. A session on another machine needs a copy of it.

A signed object is text: `1:<HMAC-SHA256 in hexadecimal>:<the object in base64>`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from ikebana.errors import SignatureError, StorageError

VARIABLE = "IKEBANA_SECRET_FILE"

_VERSION, _BYTES = "1", 32


class Secret:
    """The owner's secret.

    >>> text = Secret(b"0" * 32).sign(b"code")
    >>> Secret(b"0" * 32).verify(text)
    b'code'
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    @staticmethod
    def load(path: str | os.PathLike[str] | None = None) -> Secret:
        """The secret in a file, which is created if it does not exist."""
        file = Path(path or os.environ.get(VARIABLE) or Path.home() / ".config" / "ikebana" / "secret")
        try:
            if not file.exists():
                _create(file)
            _check_mode(file)
            key = file.read_bytes()
        except OSError as error:
            raise StorageError(
                f"cannot read the secret {file}", detail=str(error), hint=f"set {VARIABLE} to a file of your own"
            ) from error
        if len(key) < _BYTES:
            raise StorageError(
                f"the secret {file} is too short",
                detail=f"it has {len(key)} bytes, and needs {_BYTES}",
                hint="delete it, or restore it from a copy: what it has signed cannot be read without it",
            )
        return Secret(key)

    def sign(self, content: bytes) -> str:
        """Return an object with its signature, as text."""
        return f"{_VERSION}:{self._mac(content)}:{base64.b64encode(content).decode()}"

    def verify(self, text: str) -> bytes:
        """Return the object in a signed text; raise if it was not signed with this secret."""
        version, _, rest = text.partition(":")
        mac, _, encoded = rest.partition(":")
        content = b""
        with suppress(binascii.Error, ValueError):
            content = base64.b64decode(encoded, validate=True)
        if version != _VERSION or not hmac.compare_digest(mac.encode(), self._mac(content).encode()):
            raise SignatureError(
                "a stored function was not signed with your secret",
                detail="it was stored by another user or from another machine, or changed since; it was not loaded",
                hint=f"copy the secret of the user who stored it, and set {VARIABLE}, if you trust that user",
            )
        return content

    def _mac(self, content: bytes) -> str:
        return hmac.new(self._key, b"ikebana storage " + content, hashlib.sha256).hexdigest()


def _create(file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(_BYTES))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    with suppress(FileExistsError):  # another process was quicker
        os.link(temporary, file)
    os.unlink(temporary)


def _check_mode(file: Path) -> None:
    status = file.stat()
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or status.st_uid != os.geteuid():
        raise StorageError(
            f"the secret {file} can be read by others",
            detail=f"its mode is {stat.S_IMODE(status.st_mode):04o}, its owner has the id {status.st_uid}",
            hint=f"chmod 600 {file}, and create a new secret if others may have read it",
        )
