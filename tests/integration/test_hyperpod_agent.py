"""The job for HyperPod's training operator with AWS's agent; the test does the operator's work."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from bakehouse.cluster.kubernetes_job import hyperpod_manifests
from bakehouse.cluster.scheduled_job import ScheduledJob
from tests.integration.ports import kept_port
from tests.integration.sagemaker_sdk import installed
from tests.support.programs import started

# PyTorch's wheels for CUDA have 3 GB
pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

LOCK = Path(__file__).with_name("hyperpod-agent.lock")
SCRIPT = """
import torch, torch.distributed as distributed
distributed.init_process_group("gloo")
total = torch.full((1,), float(distributed.get_rank()))
distributed.all_reduce(total)
print(f"{distributed.get_rank()} of {distributed.get_world_size()}: {total.item():.0f}", flush=True)
distributed.destroy_process_group()
"""


def until_status(port: int, status: str) -> None:
    """Wait for a status of the agent of a host."""
    end = time.monotonic() + 120
    while f'"status":"{status}"' not in ask(port, "status"):
        assert time.monotonic() < end, ask(port, "status")
        time.sleep(0.5)


def ask(port: int, path: str, document: object = None) -> str:
    """Call the agent of a host; empty if it does not answer."""
    body = None if document is None else json.dumps(document).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            content: bytes = response.read()
    except OSError:
        return ""
    return content.decode() or "accepted"


def test_the_agent_starts_the_ranks_of_two_hosts_and_ends_at_sigterm(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    job = ScheduledJob(
        "job", "image", (str(tmp_path / "train.py"),), 3600, hosts=2, launcher="torchrun", processes=2
    )
    *_, manifest = hyperpod_manifests(job)
    [container] = manifest["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    program, *words = container["command"]
    variables = {item["name"]: item["value"] for item in container["env"]}
    environment = {**os.environ, **variables, "CUDA_VISIBLE_DEVICES": ""}
    with ExitStack() as stack:
        ports = [stack.enter_context(kept_port()) for _ in range(3)]
        logs = [stack.enter_context((tmp_path / f"{rank}.log").open("w+")) for rank in range(2)]
        hosts = []
        for port, log in zip(ports, logs, strict=False):
            # Both hosts are this machine
            command = [installed(LOCK) / "bin" / program, f"--server-port={port}", *words]
            streams = {"stdout": log, "stderr": subprocess.STDOUT}
            hosts.append(stack.enter_context(started(command, env=environment, **streams)))
        for rank, port in enumerate(ports[:2]):
            until_status(port, "ready")
            start = {"rank": rank, "nnodes": 2, "faultCount": 0}
            assert ask(port, "start", {**start, "master_addr": "127.0.0.1", "master_port": ports[2]})
        for port in ports[:2]:
            until_status(port, "completed")
        for host in hosts:
            host.send_signal(signal.SIGTERM)
            assert host.wait(30)
    text = "".join((tmp_path / f"{rank}.log").read_text() for rank in range(2))
    assert [line for rank in range(4) for line in text.splitlines() if line == f"{rank} of 4: 6"] == [
        f"{rank} of 4: 6" for rank in range(4)
    ]
    assert text.count("got signal: 15") == 2
