"""Callers of `ensure` that need the same release: one makes it, and the others wait for its result.

The release is a stub that only adds a record to the ledger.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME

STUB = """
import os, sys, time
from dataclasses import replace
from pathlib import Path
from bakehouse.api import BakehouseError, Project
from bakehouse.errors import BuildError
from bakehouse.ledger import claims
from bakehouse.ledger.store import open_ledger
from datetime import timedelta
from tests.support.s3_ledgers import numbered

claims.LEASE, claims.RENEWAL_SECONDS = timedelta(seconds=3), 1.0
root, seconds, fails = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "fails"

def release(self, image, registry="", create=False):
    with open(root / "releases.log", "a") as log:
        log.write(f"{os.getpid()}\\n")
    time.sleep(seconds)
    if fails:
        raise BuildError("the build failed", hint="read the log")
    selection = self._select([image])
    record = numbered(1, image=image, key=selection.image.key)
    open_ledger(selection.workspace.project).add(record)
    return (record,)

Project.release = release
try:
    print(Project(root).ensure("own"))
except BakehouseError as error:
    print(type(error).__name__, error, error.diagnostics[0].hint)
"""


@pytest.fixture(params=["files", "S3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    images = tmp_path / "recipes/images"
    images.mkdir(parents=True)
    (images / "own.yaml").write_text('summary: Own\nbase: {debian: "12"}\ncomponents: {python: "*"}\n')
    with contextlib.ExitStack() as stack:
        ledger = ""
        if request.param == "S3":
            from moto.server import ThreadedMotoServer

            server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
            server.start()
            stack.callback(server.stop)
            host, port = server.get_host_and_port()
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
            patch.setenv("AWS_ACCESS_KEY_ID", "stub")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "stub")
            import boto3

            boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="ledgers")
            ledger = 'ledger = "s3://ledgers/team"\nregion = "us-east-1"\n'
        (tmp_path / "pyproject.toml").write_text(f'[tool.bakehouse]\nrecipes = ["recipes"]\n{ledger}')
        yield tmp_path


def begin(root: Path, number: int, seconds: float, *, fails: bool = False) -> "list[subprocess.Popen[str]]":
    command = [sys.executable, "-c", STUB, str(root), str(seconds), "fails" if fails else ""]
    environment = os.environ | {"PYTHONPATH": str(HOME)}
    options = {"cwd": HOME, "env": environment, "stdout": subprocess.PIPE, "text": True}
    return [subprocess.Popen(command, **options) for _ in range(number)]  # type: ignore[call-overload]


def makers(root: Path) -> list[int]:
    log = root / "releases.log"
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_ten_callers_get_the_uri_of_one_release_although_its_maker_is_killed(root: Path) -> None:
    callers = begin(root, 10, seconds=5)
    deadline = time.monotonic() + 120
    while not makers(root) and time.monotonic() < deadline:
        time.sleep(0.05)
    [killed] = makers(root)
    os.kill(killed, signal.SIGKILL)

    outputs = [caller.communicate(timeout=240)[0] for caller in callers if caller.pid != killed]

    assert len(makers(root)) == 2
    assert len(set(outputs)) == 1
    assert outputs[0].startswith("127.0.0.1:5050/bakehouse/mpi-cpu@sha256:")
    for caller in callers:
        caller.wait()


def test_those_who_wait_get_the_error_of_the_maker(root: Path) -> None:
    callers = begin(root, 3, seconds=15, fails=True)

    outputs = {caller.communicate(timeout=240)[0] for caller in callers}

    assert outputs == {"BuildError the build failed read the log\n"}
    assert len(makers(root)) == 1


def test_a_later_caller_tries_again(root: Path) -> None:
    [first] = begin(root, 1, seconds=0, fails=True)
    first.communicate(timeout=120)

    [second] = begin(root, 1, seconds=0)

    assert second.communicate(timeout=120)[0].startswith("127.0.0.1:5050/")
