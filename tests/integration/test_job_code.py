"""Own code in a local job: no server runs, and the script finds its files as on SageMaker."""

import socket
import zipfile
from pathlib import Path

import pytest

from bakehouse.cluster.job import homogeneous
from bakehouse.plan.workspace import Workspace
from tests.integration import jobs
from tests.integration.jobs import Case

pytestmark = pytest.mark.engine

SCRIPT = """\
import importlib.metadata, os, time
from pathlib import Path

assert Path.cwd() == Path("/opt/ml/code")
files = {str(path) for path in Path().rglob("*") if path.is_file()}
assert files == {"deep/run.sh", "train.py", "requirements.txt", "tiny-1.0-py3-none-any.whl"}
assert importlib.metadata.version("tiny") == "1.0"
assert os.access("deep/run.sh", os.X_OK) and not os.access("train.py", os.X_OK)
Path("written").write_text("the directory is writable")
assert os.environ["SM_MODULE_DIR"] == "/opt/ml/sourcedir.tar.gz"
assert os.environ["SM_CHANNELS"] == "[]"
assert os.environ["AWS_REGION"] == os.environ["SAGEMAKER_REGION"] == "us-east-1"
assert not [name for name in os.environ if "ENDPOINT" in name or "ACCESS_KEY" in name]
# mpirun splits what several writes print.
print(f"all as expected on {os.uname().nodename}")
# A host waits for the names of the others, which the engine forgets once they have ended.
time.sleep(10)
"""


@pytest.mark.parametrize("launcher", [{}, {"mpi": {"enabled": True, "processes_per_host": 1}}])
def test_code_reaches_all_hosts_without_a_server(
    workspace: Workspace,
    fleet: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    launcher: dict[str, object],
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "deep/run.sh").chmod(0o755)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "requirements.txt").write_text("./tiny-1.0-py3-none-any.whl\n")
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")

    def listen(*_: object) -> None:
        pytest.fail("a server was opened")

    monkeypatch.setattr(socket.socket, "listen", listen)
    report = jobs.run(workspace, "code", Case(source=tmp_path, groups=homogeneous(2), distribution=launcher))

    assert report.passed, jobs.log_text(report)
    text = jobs.log_text(report) + jobs.log_text(report, "algo-2")
    assert {host for host in ("algo-1", "algo-2") if f"all as expected on {host}" in text} == {
        "algo-1",
        "algo-2",
    }
