"""Write a small storage directory as test data: `python -m tests.storage.write_format 2`.

`tests/storage/data/format-2` was written like this, and `format-1` by an earlier version; both are opened by every
later version (`test_formats`). A directory is written again only for a new format, into a new directory.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

from ikebana.storage import LocalDirectory
from ikebana.storage.signing import Secret
from tests.storage.harness import Harness

DATA = Path(__file__).parent / "data"
KEY = b"a secret of tests, of 32 bytes.."

ROWS = {(0, "kept"): 1, (1, "twice"): 2, (2, ""): 1, (3, "ü" * 300): 1}


def write(path: Path) -> None:
    """A session with two workers, a second one that ended in a crash, and everything that is stored."""
    system = Harness(lambda: LocalDirectory(path))
    system.open(2)
    system.put("view", {"sql": "SELECT 1", "settings": {"ansi": True}})
    system.put("function", Secret(KEY).sign(b"pickled"))
    system.transact(Counter({(0, "kept"): 1, (1, "twice"): 1, (4, "deleted"): 1}))
    system.snapshot(0)
    system.snapshot(1)
    system.transact(Counter({(1, "twice"): 1, (4, "deleted"): -1}))
    system.transact(Counter({(0, "timed out"): 1, (1, "timed out"): 1}), "time out")
    system.transact(Counter({(0, "rejected"): 1, (1, "rejected"): 1}), "reject")
    system.reopen(2)
    system.stage(Counter({(2, ""): 1, (3, "ü" * 300): 1}))
    system.commit_staged()
    system.stage(Counter({(5, "dropped"): 1}))
    system.snapshot(1)
    for worker in system.workers:
        worker.close()
    system.store.close()
    (path / "lock").unlink()


if __name__ == "__main__":
    with patch("socket.gethostname", return_value="tests"), patch("getpass.getuser", return_value="tests"):
        write(DATA / f"format-{sys.argv[1]}")
