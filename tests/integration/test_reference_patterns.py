"""Both reference patterns of heterogeneous clusters: a launcher starts a script for each instance group.

The programs have the structure of AWS's examples, and names of groups that only the API's pattern limits.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.plan.workspace import Workspace

PATTERNS = Path(__file__).with_name("reference_patterns")
DATA_GROUP, DNN_GROUP = "données: A=1, «x» / $HOME", "dnn group 'two'"
pytestmark = [pytest.mark.engine, pytest.mark.release]


def bake(workspace: Workspace, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(HOME / "bake"), *arguments]
    environment = os.environ | {"NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=workspace.project.root, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("pattern", "image", "data_exit"),
    [("grpc", "pytorch-data-service-cpu", -9), ("tf_data_service", "tensorflow-cpu", 0)],
)
def test_the_launcher_starts_a_script_for_each_group_and_ends_the_data_host(
    workspace: Workspace, tmp_path: Path, pattern: str, image: str, data_exit: int
) -> None:
    for script in (PATTERNS / "launcher.py", *(PATTERNS / pattern).iterdir()):
        if script.is_file():
            shutil.copy(script, tmp_path)
    assert bake(workspace, "build", image).returncode == 0

    completed = bake(
        workspace,
        *("run", image, "--json", "--source-dir", str(tmp_path), "--entry-point", "launcher.py"),
        *("--group", f"{DATA_GROUP}=ml.c5.xlarge", "--group", f"{DNN_GROUP}=ml.p3.2xlarge"),
    )

    assert completed.returncode == 0, completed.stderr
    report = json.loads(completed.stdout)
    hosts = {host["group"]: host["host"] for host in report["hosts"]}
    assert hosts.keys() == {DATA_GROUP, DNN_GROUP}
    assert [host["end"] for host in report["hosts"]] == ["exit 0", "exit 0"]
    logs = {name: (Path(report["folder"]) / f"logs/{host}.log").read_text() for name, host in hosts.items()}
    assert f"{hosts[DATA_GROUP]} is in {DATA_GROUP} on ml.c5.xlarge\n" in logs[DATA_GROUP]
    assert f"train_data.py ended with {data_exit}\n" in logs[DATA_GROUP]
    assert "trained 10 steps of 2 hosts\n" in logs[DNN_GROUP]
    assert f"asked {hosts[DATA_GROUP]} to end\n" in logs[DNN_GROUP]
