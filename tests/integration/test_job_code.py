"""Own code in a local job: no server runs, and the script finds its files as on SageMaker."""

import socket
import zipfile
from pathlib import Path

import pytest

from bakehouse.cluster.job import homogeneous
from bakehouse.plan.workspace import Workspace
from tests.integration import jobs
from tests.integration.jobs import Case
from tests.support.data import text_of

pytestmark = pytest.mark.engine

SCRIPT = text_of(__file__, "script")


def test_code_reaches_all_hosts_without_a_server(
    workspace: Workspace,
    fleet: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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
    report = jobs.run(workspace, "code", Case(source=tmp_path, groups=homogeneous(2)))

    assert report.passed, jobs.log_text(report)
    text = jobs.log_text(report) + jobs.log_text(report, "algo-2")
    assert {host for host in ("algo-1", "algo-2") if f"all as expected on {host}" in text} == {
        "algo-1",
        "algo-2",
    }
