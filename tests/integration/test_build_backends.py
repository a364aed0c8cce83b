"""A hostile source distribution is locked and built, and its build backend sees nothing."""

import ast
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.builder.progress import Mode, Progress
from bakehouse.lock import locking
from bakehouse.pipeline.build import build
from bakehouse.plan.workspace import open_workspace, select
from tests.support.git_repository import commit
from tests.support.sdists import WITNESS, hostile, sdist

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """A port of this machine that steps with a network reach."""
    command = ["docker", "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}"]
    gateway = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with socket.create_server(("", 0)) as server:
        yield gateway, server.getsockname()[1]


def test_the_port_can_be_reached_with_a_network(address: tuple[str, int]) -> None:
    """Else a closed port would look like a missing network."""
    socket.create_connection(address, 10).close()


def test_a_build_backend_sees_nothing(
    tmp_path: Path, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[default]\naws_secret_access_key = key\n")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    monkeypatch.setenv("GITHUB_TOKEN", "token")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    files = {
        name: hostile(name, "1.0", tmp_path, requires=("six",), home=tmp_path, address=address)
        for name in ("bakehouse_hostile", "own_hostile")
    }
    sdist(tmp_path / "index", "bakehouse_hostile", "1.0", files["bakehouse_hostile"])
    head = commit(tmp_path / "up", files["own_hostile"])
    mine = tmp_path / "mine"
    (mine / "recipes/images").mkdir(parents=True)
    (mine / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    (mine / "recipes/images/hostile.yaml").write_text(
        'summary: Code of others\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'
        "requirements: requirements.txt\n"
    )
    requirements = f"bakehouse-hostile\nown-hostile @ git+{(tmp_path / 'up').as_uri()}@{head}\n"
    (mine / "recipes/images/requirements.txt").write_text(requirements)

    locking.run(mine, ["hostile"], lambda _: None)

    # It requires `leak-…` for each thing that it sees
    lock = (mine / "recipes/images/requirements.txt.lock").read_text()
    names = [line.partition("==")[0] for line in lock.splitlines() if not line.startswith("#")]
    assert names == ["bakehouse-hostile", "own-hostile", "six"]
    assert not (tmp_path / WITNESS).exists()

    with Progress(sys.__stderr__ or sys.stderr, Mode.LINES) as progress:
        [built] = build(select(open_workspace(mine), ["hostile"]), progress.report, progress=progress)

    reference = built.image.reference
    code = "import bakehouse_hostile, own_hostile; print([bakehouse_hostile.SEEN, own_hostile.SEEN])"
    try:
        command = ["docker", "run", "--rm", "--network=none", reference, "python", "-c", code]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for seen in ast.literal_eval(output):
            assert seen == dict.fromkeys(("variables", "credentials", "secrets", "pip", "socket"), "")
        assert not (tmp_path / WITNESS).exists()
    finally:
        latest = f"{reference.rpartition(':')[0]}:latest"
        subprocess.run(["docker", "rmi", reference, latest], check=False, capture_output=True)
