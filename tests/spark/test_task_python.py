"""Tasks on this machine run with this interpreter, import PySpark from where it is installed, and start quickly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from ikebana.spark import task_daemon
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


def test_the_daemon_of_tasks_is_replaced_and_no_other_module() -> None:
    def arguments(*given: str) -> list[str]:
        environment = {**os.environ, "IKEBANA_PYTHON": "/bin/echo"}
        ran = subprocess.run([SCRIPT, *given], env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return ran.stdout.split()

    assert arguments("-m", "pyspark.daemon", "pyspark.worker") == ["-P", task_daemon.__file__, "pyspark.worker"]
    assert arguments("-m", "my.daemon", "pyspark.worker") == ["-m", "my.daemon", "pyspark.worker"]


def test_the_daemon_has_imported_what_tasks_need() -> None:
    script = (
        "import sys; from ikebana.spark import task_daemon; task_daemon.preload(); "
        "assert {*task_daemon.MODULES, 'ikebana.spark.loading', 'ikebana.kernels.hashing'} <= sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("is_for_queries", [False, True])
def test_the_daemon_has_the_path_and_arguments_of_sparks_own(tmp_path: Path, is_for_queries: bool) -> None:
    """A package that stands in for PySpark shows them; what imports the real one cannot be imported beside it."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "daemon.py").write_text("import sys; print(__name__, sys.argv[1:], sys.path)")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    if is_for_queries:
        environment[task_daemon.FOR_QUERIES] = "1"

    def shown(*start: str) -> str:
        command = [sys.executable, *start, "pyspark.worker"]
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout

    assert shown("-P", task_daemon.__file__) == shown("-m", "pyspark.daemon") != ""
