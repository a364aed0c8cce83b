"""A build on a remote builder without routes and credentials: the same image as that of the local engine."""

import contextlib
import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.build.build import build
from bakehouse.build.build_inputs import Downloads, build_inputs, remote_inputs
from bakehouse.build.built_image import BuiltImage
from bakehouse.build.progress import Mode, Progress
from bakehouse.build.remote import RemoteBuilders
from bakehouse.catalog.project import HOME
from bakehouse.engine import builder_preflight, builder_watch, docker
from bakehouse.engine.builder_watch import BuilderLost
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.plan import workspace
from bakehouse.plan.model import BootstrappedBase, Image, ImageKey
from bakehouse.util.oci import EPOCH, Sha256
from tests.integration import projects
from tests.integration.remote_builder import RemoteBuilder, remote_builder
from tests.support import fake_engine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a second engine"),
    pytest.mark.timeout(600),
]

OUTPUT = "type=image,oci-mediatypes=false,compression=uncompressed,force-compression=true"
CONTENT = b"content of a package"
FILE = RequiredFile(
    "deb", "tiny_1_all.deb", Sha256(hashlib.sha256(CONTENT).hexdigest()), len(CONTENT), "pool/tiny"
)
DOCKERFILE = f"""\
FROM scratch AS inputs
COPY --chmod=755 inputs/ /
FROM {{base}} AS base
FROM base AS debs
RUN --mount=type=bind,from=inputs,source=/download-debs,target=/usr/local/bin/download-debs \\
    --mount=type=bind,from=inputs,source=/debs.txt,target=/mnt/debs.txt \\
    --mount=type=secret,id=mirrors \\
    download-debs /mnt/debs.txt /packages
FROM base AS part
RUN --mount=type=bind,from=debs,source=/packages,target=/mnt \\
    mkdir -p /out/opt && cp /mnt/{FILE.file} /out/opt/ && find /out -exec touch -h -d @{EPOCH} {{{{}}}} +
{{more}}
FROM base AS image
COPY --link --from=part /out/ /
LABEL purpose="test"
"""
STEPS = """\
RUN sleep 1 && echo {} > /first
RUN sleep 5 && echo second
"""


class Project:
    """A project with one image, whose only step downloads one file."""

    def __init__(self, root: Path, builder: RemoteBuilder) -> None:
        self.root, self._builder = root, builder
        planned = workspace.plan_images(workspace.open_workspace(HOME), ["mpi-cpu"]).images[0]
        assert isinstance(planned.base, BootstrappedBase)
        assert planned.base.reference == projects.base()
        key = ImageKey(uuid4().hex * 2)
        self.image: Image = replace(fake_engine.image("remote"), key=key, base=planned.base)
        self.progress = Progress((root / "log").open("w", buffering=1), Mode.LINES)
        (root / "files").mkdir()
        (root / "files" / FILE.file).write_bytes(CONTENT)
        self.write("")

    def write(self, more: str) -> None:
        """Write the rendered files, with more steps."""
        self._written = len((self.root / "log").read_text())
        directory = self.root / "images/remote"
        (directory / "inputs").mkdir(parents=True, exist_ok=True)
        script = (HOME / "templates/bin/download-debs").read_text()
        (directory / "inputs/download-debs").write_text(script)
        (directory / "inputs/debs.txt").write_text(f"{FILE.sha256} pool/{FILE.file}\n")
        dockerfile = DOCKERFILE.format(base=self.image.base.reference, more=more)
        (directory / "Dockerfile").write_text(dockerfile)
        target = {
            "context": "images/remote", "dockerfile": "Dockerfile", "platforms": ["linux/amd64"],
            "tags": [*self.image.names], "output": [OUTPUT], "args": {"SOURCE_DATE_EPOCH": str(EPOCH)},
        }  # fmt: skip
        (directory / "docker-bake.json").write_text(json.dumps({"target": {"remote": target}}))

    def build(self, remote: bool = True, interval: float = 10.0) -> BuiltImage:
        state = self.root / "state"
        mirrors = LocalMirrors((self.root / "files",), HashCache(self.root / "hashes.json"))
        with contextlib.ExitStack() as stack:
            fetcher = stack.enter_context(Fetcher(FileCache(self.root / "cache", print), mirrors))
            downloads = Downloads(RequiredFiles((FILE,), {FILE: ("remote",)}, ((FILE,),)), fetcher)
            report = self.progress.report
            inputs = (
                remote_inputs(state=state, ca=None, report=report, suites=(), has_own_steps=False)
                if remote
                else build_inputs(state=state, mirrors=(), ca=None, report=report, downloads=downloads)
            )
            watch = partial(builder_watch.watch, interval=interval)
            [built] = build(
                [self.image],
                root=self.root,
                state=state,
                engine=stack.enter_context(contextlib.closing(docker.connect())),
                downloads=downloads,
                inputs=stack.enter_context(inputs),
                progress=self.progress,
                verify=lambda _: None,
                expected_bytes=lambda _: 0,
                restart=lambda: False,
                builders=RemoteBuilders([self._builder.name], report, watch=watch) if remote else None,
            )
        return built

    def log(self) -> str:
        """Return the lines of progress since the last `write`."""
        return (self.root / "log").read_text()[self._written :]

    def remove(self) -> None:
        for name in self.image.names:
            subprocess.run(["docker", "image", "rm", name], capture_output=True, check=False)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteBuilder]:
    with remote_builder(tmp_path_factory.mktemp("builder")) as builder, pytest.MonkeyPatch.context() as patch:
        for name, value in builder.environment.items():
            patch.setenv(name, value)
        yield builder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, builder: RemoteBuilder) -> Iterator[Project]:
    made = Project(tmp_path_factory.mktemp("project"), builder)
    with contextlib.closing(made.progress._stream):
        yield made
    made.remove()


def test_a_remote_build_gives_the_image_of_the_local_engine(builder: RemoteBuilder, project: Project) -> None:
    assert [check.fault for check in builder_preflight.preflight(builder.name) if check.fault] == []

    remote = project.build()

    command = ["docker", "run", "--rm", "--network=none", project.image.reference, "cat", f"/opt/{FILE.file}"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == CONTENT
    project.remove()
    local = project.build(remote=False)
    assert (remote.digest, remote.stored) == (local.digest, local.stored)


@contextlib.contextmanager
def in_second_step(project: Project, fault: Callable[[], None]) -> Iterator[None]:
    """Cause a fault when a build reaches the second of `STEPS`."""

    def wait() -> None:
        while "part 3/3" not in project.log() and time.monotonic() < start + 100:
            time.sleep(0.2)
        fault()

    start = time.monotonic()
    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def test_a_build_continues_after_its_connection_was_cut(builder: RemoteBuilder, project: Project) -> None:
    project.write(STEPS.format(uuid4()))

    with in_second_step(project, builder.bridge.cut):
        project.build()

    log = project.log()
    assert f"builder `{builder.name}` stopped answering; continuing on `{builder.name}`" in log
    assert log.count("part 2/3: RUN") == 1


def test_a_frozen_builder_is_named_and_the_same_command_continues(
    builder: RemoteBuilder, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder_watch, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr("bakehouse.util.process._GRACE_SECONDS", 1.0)
    project.write(STEPS.format(uuid4()))

    with in_second_step(project, builder.bridge.freeze), pytest.raises(BuilderLost) as lost:
        project.build(interval=1.0)
    builder.bridge.thaw()

    [diagnostic] = lost.value.diagnostics
    assert diagnostic.message == f"builder `{builder.name}` stopped answering"
    before = len(project.log())
    project.build()
    # Only the bridge was frozen, so the builder may have finished the other step, too.
    assert "part 2/3: RUN" not in project.log()[before:]
