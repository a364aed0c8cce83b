"""Builds by the real engine: sharing, what is published, failures, interruption, secrets."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from bakehouse.builder.build import build
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.progress import Mode, Progress
from bakehouse.builder.timings import BuildTimes
from bakehouse.builder.up_to_date import built_content
from bakehouse.catalog import project as projects
from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine import docker
from bakehouse.engine.buildkit_events import Log
from bakehouse.errors import BuildError
from tests.integration.projects import Project, base
from tests.support import feeds
from tests.support.data import text_of
from tests.support.programs import started

pytestmark = pytest.mark.engine

SHARED = """\
FROM {base} AS shared
RUN mkdir -p /out && echo shared {unique} && head -c 100000 /dev/urandom | base64 > /out/random
"""
IMAGE = """\
FROM {base} AS image
COPY --link --from=shared /out/ /
"""


def add_shared(project: Project, unique: str, *names: str) -> None:
    for name in names:
        text = (SHARED + IMAGE).format(base=base(), unique=unique)
        project.add(name, f"# {name}\n{text}LABEL name={name}\n")


def test_a_stage_in_two_dockerfiles_runs_once_and_nothing_runs_the_second_time(
    project: Project, unique: str
) -> None:
    add_shared(project, unique, "one", "two")

    first = project.bake("one", "two")

    output = "".join(event.text for event in project.events if isinstance(event, Log))
    assert output == f"shared {unique}\n"
    times = BuildTimes()
    for event in project.events:
        times.note(event)
    (ran,) = [step for step in times.steps(0) if "urandom" in step.text]
    assert (sorted(ran.images), ran.cached) == (["one", "two"], False)
    assert project.run("one", "cat", "/random") == project.run("two", "cat", "/random")

    again = project.bake("one", "two")

    times = BuildTimes()
    for event in project.events:
        times.note(event)
    assert again == first
    assert not any(isinstance(event, Log) for event in project.events)
    assert [
        step.text for step in times.steps(0) if not step.cached and step.text.startswith(("RUN", "COPY"))
    ] == []


def test_what_is_made_is_one_schema_2_manifest_with_gzip_layers(project: Project, unique: str) -> None:
    add_shared(project, unique, "one")
    digest = project.bake("one")["one"].stored

    saved = subprocess.run(
        ["docker", "save", project.reference("one")], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:

        def read(name: str) -> bytes:
            stream = archive.extractfile(name)
            assert stream
            return stream.read()

        (listed,) = json.loads(read("index.json"))["manifests"]
        manifest = json.loads(read(f"blobs/sha256/{digest.removeprefix('sha256:')}"))
        first_bytes = [read(f"blobs/sha256/{layer['digest'][7:]}")[:2] for layer in manifest["layers"]]
    assert listed["mediaType"] == "application/vnd.docker.distribution.manifest.v2+json"
    assert listed["digest"] == digest
    assert manifest["mediaType"] == "application/vnd.docker.distribution.manifest.v2+json"
    assert {layer["mediaType"] for layer in manifest["layers"]} == {
        "application/vnd.docker.image.rootfs.diff.tar.gzip"
    }
    assert set(first_bytes) == {b"\x1f\x8b"}


def test_a_failing_build_says_where(project: Project, unique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    template = project.root / "recipes/broken/install.j2"
    template.parent.mkdir(parents=True)
    template.write_text("FROM {{ base }} AS broken\nRUN sleep 1 && echo {{ version }} && exit 3\n")
    project.add(
        "broken",
        f"# broken {unique}: recipes/broken/install.j2\nFROM {base()} AS broken\n"
        f"RUN sleep 1 && echo {unique} && exit 3\n\n"
        f"FROM {base()} AS image\nCOPY --link --from=broken /out/ /\n",
    )
    project.add("other", f"FROM {base()} AS slow\nRUN sleep 30 && echo {unique}\n")

    with pytest.raises(BuildError) as caught:
        project.bake("broken", "other")

    line = f"RUN sleep 1 && echo {unique} && exit 3"
    log = project.root / "state/logs/broken-broken.log"
    assert log.read_text() == f"{unique}\n"
    assert failure_text(caught.value.diagnostics[0]) == (
        f"""\
error: image `broken` failed to build: stage `broken` failed with exit code 3
  --> images/broken/Dockerfile:3:1
   |
 3 | {line}
   | {"^" * len(line)}
  because rendered from   recipes/broken/install.j2:2:1
  step     broken 2/2
  command  {line.removeprefix("RUN ")}
  log      state/logs/broken-broken.log
    | {unique}
"""
    )


# Bakes what the arguments name and says when the step has begun.
RUN = text_of(__file__, "run")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_process_and_no_file(
    project: Project, unique: str, sent: signal.Signals
) -> None:
    project.add("slow", f"FROM {base()} AS slow\nRUN echo {unique} && sleep 600.{int(unique[:6], 16)}\n")
    with started(
        [sys.executable, "-c", RUN, str(project.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as run:
        try:
            assert run.stdout
            assert run.stdout.readline() == "begun\n"
            assert any("docker-buildx" in line for line in mentioning(str(project.root)))
        finally:
            run.send_signal(sent)

    deadline = time.monotonic() + 20
    while (left := mentioning(str(project.root)) + mentioning(f"600.{int(unique[:6], 16)}")) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.2)
    assert left == []
    project.add("quick", "FROM scratch\nCOPY docker-bake.json /\n")
    project.bake("quick")
    assert list((project.root / "state/private").iterdir()) == []
    assert subprocess.run(
        ["docker", "image", "inspect", project.reference("slow")], capture_output=True
    ).returncode


def test_a_secret_leaves_no_trace(project: Project, unique: str, tmp_path: Path) -> None:
    password = f"word-{unique}"
    secret = tmp_path / "secret"
    secret.write_text(password)
    project.add(
        "one",
        f"FROM {base()} AS image\n"
        "RUN --mount=type=secret,id=pip,target=/etc/pip.conf "
        f"grep -q word- /etc/pip.conf && echo {unique[:12]}\n",
    )

    lines: list[str] = []
    project.bake("one", secrets={"pip": secret}, watch=lambda: lines.extend(command_lines()))

    assert any("docker buildx bake" in line and str(project.root) in line for line in lines)
    assert not any(password in line for line in lines)
    reference = project.reference("one")
    output = "".join(
        subprocess.run(["docker", *look, reference], capture_output=True, text=True).stdout
        for look in (("history", "--no-trunc"), ("image", "inspect"))
    )
    assert "grep -q word-" in output
    assert password not in output
    left = project.run(
        "one", "sh", "-c", f"ls -A /run/secrets 2>/dev/null; grep -rl {password} /etc /run /tmp /root; true"
    )
    assert left == ""


def test_a_build_as_a_whole_gives_what_the_engine_holds(project: Project, unique: str) -> None:
    add_shared(project, unique, "one", "two")
    with contextlib.closing(docker.connect()) as engine:
        state = project.root / "state"
        settings = projects.ProjectSettings(project.root, (), state_directory=state)
        progress = Progress(io.StringIO(), Mode.LINES)
        context = BuildContext(settings, engine, progress, feeds.nothing(state))
        built = build([project.image("one"), project.image("two")], context)
        for image in built:
            stored = engine.image(image.image.reference)
            assert stored
            assert (stored.digest, stored.bytes) == (image.stored, image.bytes)
    digests = [built_content(image.image, settings) for image in built]
    assert digests == [image.content for image in built]


def mentioning(text: str) -> list[str]:
    """The command lines of other living processes that have a text in them."""
    return [line for line in command_lines() if text in line]


def command_lines() -> list[str]:
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if path.parent.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                commands.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in commands if line]
