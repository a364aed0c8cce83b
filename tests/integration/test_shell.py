"""Shells in real containers: in an image, and in a stage whose build fails."""

import contextlib
import io
import os
import pty
import subprocess
from collections.abc import Iterator
from select import select

import docker
import pytest

from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.build_inputs import BuildInputs
from bakehouse.builder.progress import Mode, Progress
from bakehouse.builder.stage_shell import build_stage
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.docker import OWNER_LABEL, connect
from bakehouse.plan.workspace import Workspace
from tests.integration.projects import Project, base
from tests.support import feeds
from tests.support.data import text_of
from tests.support.programs import BAKE, started

pytestmark = pytest.mark.engine

FAILING = text_of(__file__, "failing")


@contextlib.contextmanager
def opened(project: Project) -> Iterator[BuildContext]:
    """A build of a project with the secret `token`."""
    settings = ProjectSettings(project.root, (), state_directory=project.root / "state")
    secret = project.root / "token"
    secret.write_text("hidden\n")
    with contextlib.closing(connect()) as engine:
        progress = Progress(io.StringIO(), Mode.LINES)
        downloads = feeds.nothing(project.root / "state")
        yield BuildContext(settings, engine, progress, downloads, BuildInputs({"token": secret}))


@contextlib.contextmanager
def files_of(reference: str, script: str) -> Iterator[str]:
    """The output of a script in an image, which is removed."""
    command = ["docker", "run", "--rm", "--network=none", reference, "sh", "-c", script]
    try:
        yield subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        subprocess.run(["docker", "image", "rm", reference], capture_output=True, check=True)


def test_a_stage_is_built_up_to_the_step_that_fails(project: Project, unique: str) -> None:
    project.add("broken", FAILING.format(base=base(), unique=unique))
    image = project.image("broken")
    reference = f"bakehouse/test-shell:{unique[:12]}"

    with opened(project) as context:
        cut = build_stage(image, "tool", reference, context)

    assert (cut.step and cut.step.line, cut.copies_binds) == (7, True)
    script = "pwd; cat first; ls /mnt /work; cat /mnt/make; ls -A /run/secrets || true"
    with files_of(reference, script) as output:
        assert output == f"/work\n{unique}\n/mnt:\nmake\n\n/work:\nfirst\necho {unique}; exit 3"


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
def test_a_stage_in_which_no_step_fails_has_its_shell_at_its_end(workspace: Workspace) -> None:
    script = "ls /out/etc/bakehouse; cat; exit 7"

    command = [*BAKE, "shell", "mpi-cpu", "--stage", "constraints", "--", "sh", "-c", script]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with started(command, cwd=workspace.project.root, text=True, **pipes) as process:
        output, report = process.communicate("typed\n")

    assert (process.returncode, output) == (7, "constraints.txt\ntyped\n")
    assert report.endswith("stage `constraints` of `mpi-cpu`: no step fails, so this is its end\n")
    assert left_by(process.pid) == []


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
