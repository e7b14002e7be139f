"""Tasks on this machine run with this interpreter, and import PySpark from where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from ikebana.spark.task_python import SCRIPT, use_this_python

LIB = Path(pyspark.__file__).parent / "python" / "lib"
LOCATE = "import os, pyspark, sys; print(sys.executable, pyspark.__file__, os.environ['PYTHONPATH'], sep='\\n')"


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return SimpleNamespace(pythonExec="python3", environment={})


def test_processes_import_the_installed_pyspark(context: SimpleNamespace, tmp_path: Path) -> None:
    use_this_python(context)
    if context.pythonExec != str(SCRIPT):
        pytest.skip("PySpark is not installed beside this interpreter")
    folders = [str(tmp_path), *map(str, sorted(LIB.glob("*.zip"))), "", str(tmp_path / "with a space")]
    environment = {**os.environ, **context.environment, "PYTHONPATH": os.pathsep.join(folders)}
    ran = subprocess.run(
        [context.pythonExec, "-c", LOCATE], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    path = os.pathsep.join([str(tmp_path), "", str(tmp_path / "with a space")])
    assert ran.stdout.splitlines() == [sys.executable, pyspark.__file__, path]


def test_a_python_that_the_user_has_set_is_kept(context: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    use_this_python(context)
    assert context.pythonExec == "python3" and not context.environment


def test_pyspark_that_only_spark_has_is_imported_from_its_zip(
    context: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__file__", "/opt/spark/python/pyspark/__init__.py")
    use_this_python(context)
    assert context.pythonExec == sys.executable and not context.environment


def test_the_script_can_be_run() -> None:
    assert os.access(SCRIPT, os.X_OK)
