"""Tasks that use the engine and are struck: a small image is built, tested, pushed and promoted."""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest

from bakehouse.engine import dockerd
from bakehouse.engine.daemon_paths import CONTAINERD, DaemonPaths
from bakehouse.maintain.isolated_engine import isolated_engine
from tests.integration import killed_clusters
from tests.integration.projects import base
from tests.support import killed_commands
from tests.support.full_disks import Place, SmallDisk
from tests.support.killed_commands import Command, Strike, run
from tests.support.programs import docker, remove_images

ENGINES = DaemonPaths().state / "engines"
_COMPONENT = """\
summary: A file of some megabytes
stage_order: 90
releases:
  - version: "1.0"
    source: https://example.org/data
    requires: {python: "3.11"}
"""
_TEMPLATE = """\
{% block build %}
FROM {{ package_stage }} AS NAME
RUN {{ mount("bin/finish-layer") }} \\
    mkdir -p /out/opt && seq 400000 > /out/opt/NAME && sleep 1 && {{ stage.finish }}
{% endblock %}
"""
_SMOKE = """\
from pathlib import Path


def installed():
    return "1.0" if Path("/opt/NAME").stat().st_size > 1_000_000 else None
"""
_RECIPE = """\
summary: A small image for campaigns
base: {debian: "12"}
components: {python: "3.11", NAME: "*"}
code: {directory: ../code, entry_point: train.py}
smoke: {hosts: 2, expect: trained}
"""


class Tasks:
    """A project whose image has a stage of its own, and copies of the project before each task.

    Only the stage of this image is removed from the build cache, which other builds may use.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self.image = f"campaign-{secrets.token_hex(4)}"
        self._settings = f'[tool.bakehouse]\nrecipes = ["recipes"]\ncache = "cache"\nregistry_port = {port}\n'

    def commands(self) -> tuple[Command, ...]:
        """Run all tasks once, and return them as commands."""
        project = self._directory / "project"
        self._make(project)
        tasks: dict[str, tuple[str, ...]] = {
            name: (name, self.image) for name in ("build", "smoke", "push", "promote")
        }
        tasks["push"] = ("push", self.image, "--candidate")
        commands = []
        for name, words in tasks.items():
            copy = self._directory / f"before-{name}"
            killed_commands.copy(project, copy)
            prepare = partial(self._prepare_build if name == "build" else killed_commands.copy, copy)
            # These start a registry, and the first lets it run
            finish = ("registry", "stop") if name in ("push", "promote") else ()
            command = Command(name, words, prepare, finish=finish, remains=_in_engine)
            commands.append(command)
            (project / "tmp").mkdir(exist_ok=True)
            result = run(command, project, words)
            assert result.code == 0, result.errors
            if finish:
                run(command, project, finish)
        return tuple(commands)

    def _make(self, project: Path) -> None:
        component = project / "recipes/components" / self.image
        for path, text in {
            project / "pyproject.toml": self._settings,
            component / "component.yaml": _COMPONENT,
            component / "install.j2": _TEMPLATE,
            component / "smoke.py": _SMOKE,
            project / f"recipes/images/{self.image}.yaml": _RECIPE,
            project / "recipes/code/train.py": 'print("trained")\n',
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("NAME", self.image))

    def _prepare_build(self, copy: Path, project: Path) -> None:
        self.remove()
        # Another program may have removed it
        base()
        killed_commands.copy(copy, project)

    def remove(self) -> None:
        """Remove the image, and its stage from the build cache."""
        remove_images(self.image)
        listed = docker("buildx", "du", "--verbose")
        for record in listed.split("\n\n"):
            fields = dict(line.partition(":")[::2] for line in record.splitlines())
            if self.image in fields.get("Description", ""):
                identifier = fields["ID"].strip()
                docker("builder", "prune", "--force", "--filter", f"id={identifier}")


@contextlib.contextmanager
def own_engine(under: Path = ENGINES) -> Iterator[DaemonPaths]:
    """Start an engine that only this process uses, with the base of the image."""
    reference = base()
    with (
        isolated_engine(CONTAINERD, print, under=under) as paths,
        pytest.MonkeyPatch.context() as patch,
    ):
        with subprocess.Popen(["docker", "save", reference], stdout=subprocess.PIPE) as saved:
            load = ["docker", "--host", paths.endpoint, "load", "--quiet"]
            subprocess.run(load, stdin=saved.stdout, capture_output=True, check=True)
        patch.setenv("DOCKER_HOST", paths.endpoint)
        yield paths


def restarts(paths: DaemonPaths) -> Strike:
    """Return a strike that restarts an engine, or kills it first."""

    def restart(process: "subprocess.Popen[bytes]", random: Random) -> str:
        is_killed = random.random() < 0.5
        if is_killed:
            if daemon := dockerd.process_of(paths.pidfile, "dockerd"):
                os.kill(daemon, signal.SIGKILL)
                while dockerd.answers(paths.socket):
                    time.sleep(0.1)
        else:
            dockerd.stop(paths)
        time.sleep(random.uniform(0.0, 2.0))
        dockerd.start(paths, lambda _: None)
        return "with its engine killed and started" if is_killed else "with its engine restarted"

    return restart


def fills(disk: SmallDisk) -> Strike:
    """Return a strike that leaves little space on the disk of an engine until the command ends."""

    def fill(process: "subprocess.Popen[bytes]", random: Random) -> str:
        free = int(random.uniform(0, 4e6))
        disk.resize(disk.used() + free)
        process.wait()
        disk.resize()
        return f"with {free} bytes for its engine"

    return fill


@contextlib.contextmanager
def tasks(directory: Path, port: int) -> Iterator[tuple[Command, ...]]:
    """Yield build, smoke, push and promote of an image, which is removed at the end."""
    project = Tasks(directory, port)
    try:
        yield project.commands()
    finally:
        project.remove()


def places(commands: Sequence[Command]) -> tuple[Place, ...]:
    """Return the places where tasks write on the machine of the client."""
    named = {command.name: command for command in commands}
    return (
        Place("state", named["build"], "../project.state"),
        Place("state", named["smoke"], "../project.state"),
        Place("layer cache", named["push"], "cache"),
        Place("registry", named["push"], "../project.state"),
        Place("ledger", named["promote"], f"images/{named['promote'].words[1]}"),
    )


def _in_engine(process: int) -> list[str]:
    """Return what a run left in the engine for good."""
    return killed_clusters.swept(lambda: [*killed_clusters.in_engine(process)])[1]
