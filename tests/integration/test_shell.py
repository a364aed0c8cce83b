"""A shell in a real container."""

import contextlib
import os
import pty
from select import select

import docker
import pytest

from bakehouse.engine.docker import OWNER_LABEL
from bakehouse.plan.workspace import Workspace
from tests.support.programs import BAKE

pytestmark = pytest.mark.engine


def left_by(process: int) -> list[str]:
    """Everything in the engine that a process has made."""
    with contextlib.closing(docker.from_env()) as client:
        labelled = {"label": OWNER_LABEL}
        made = [
            *client.api.containers(all=True, filters=labelled),
            *client.api.networks(filters=labelled),
            *(client.api.volumes(filters=labelled)["Volumes"] or ()),
        ]
        names = [f"{entry['Labels'][OWNER_LABEL]}: {entry}" for entry in made]
        names += [tag for image in client.api.images() for tag in image["RepoTags"] or ()]
    return [name for name in names if f"-{process}-" in name]


@pytest.mark.usefixtures("mpi_cpu")
def test_a_terminal_that_is_closed_leaves_nothing(workspace: Workspace) -> None:
    command = [*BAKE, "shell", "mpi-cpu"]
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(workspace.project.root)
        os.execvp(command[0], command)
    os.write(terminal, b"echo $(hostname) $(tty) $(ls /opt/ml/input)\n")
    output = b""
    while b"algo-1 /dev/pts/0 config" not in output:
        assert select([terminal], [], [], 60)[0], output
        output += os.read(terminal, 1000)
    during = left_by(process)
    os.close(terminal)

    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    assert len(during) > 1
    assert left_by(process) == []
