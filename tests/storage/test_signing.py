"""Signatures: only what the owner has signed is returned."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import SignatureError, StorageError
from ikebana.storage.signing import VARIABLE, Secret


def test_the_secret_is_created_once_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder" / "secret"
    monkeypatch.setenv(VARIABLE, str(path))
    text = Secret.load().sign(b"code")
    assert Secret.load().verify(text) == b"code"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    Secret.load(path)
    path.chmod(0o640)
    with pytest.raises(StorageError, match="can be read by others"):
        Secret.load(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(StorageError, match="too short"):
        Secret.load(path)


@given(st.binary(max_size=50), st.data())
def test_a_changed_signature_or_object_is_refused(content: bytes, data: st.DataObject) -> None:
    secret = Secret(b"1" * 32)
    text = secret.sign(content)
    assert secret.verify(text) == content
    with pytest.raises(SignatureError, match="it was not loaded"):
        Secret(b"2" * 32).verify(text)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]
    with suppress(SignatureError):  # base64 has several texts for some contents
        assert secret.verify(changed) == content


@pytest.mark.parametrize("text", ["", "1", "1::", "2:00:AA==", "1:ü:AA=="])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(SignatureError):
        Secret(b"1" * 32).verify(text)
