"""Steps that mount files of inputs/: shared in a fleet build, the same with plain Docker, under any umask."""

import json
import subprocess
from pathlib import Path

import pytest

from bakehouse.engine.buildkit_events import Log
from bakehouse.util.oci import EPOCH
from tests.integration.projects import Project, base
from tests.support.data import text_of

pytestmark = pytest.mark.engine

DOCKERFILE = text_of(__file__, "dockerfile")
SCRIPT = """\
#!/bin/sh
echo "ran $1"
head -c 100000 /dev/urandom > "$2"
"""


@pytest.fixture
def project(project: Project, unique: str) -> Project:
    """Two images that share a stage, which reads an equal list under the name of the image."""
    for name in ("one", "two"):
        text = DOCKERFILE.format(base=base(), unique=unique, epoch=EPOCH, name=name)
        project.add(name, text)
        write(project, name, "bin/make-random", SCRIPT, 0o755)
        write(project, name, "components/part/placed", "placed\n", 0o644)
        write(project, name, f"lists/{name}.txt", "a==1\n", 0o644)
        write(project, name, f"requirements/{name}.txt", name, 0o644)
    return project


def write(project: Project, image: str, name: str, content: str, mode: int) -> Path:
    path = project.root / "images" / image / "inputs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(mode)
    return path


def run_count(project: Project) -> int:
    """Return how often the shared step ran in the last build."""
    return sum(event.text.count("ran ") for event in project.events if isinstance(event, Log))


def configuration(reference: str) -> str:
    """The digest of an image's configuration."""
    saved = subprocess.run(["docker", "save", reference], capture_output=True, check=True)
    manifest = subprocess.run(
        ["tar", "-xO", "manifest.json"], input=saved.stdout, capture_output=True, check=True
    )
    return str(json.loads(manifest.stdout)[0]["Config"])


def unnamed_images() -> set[str]:
    command = ["docker", "images", "--filter", "dangling=true", "--format", "{{.ID}}"]
    return {*subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}


def docker_build(project: Project, name: str) -> str:
    """Build an image as the first lines of its Dockerfile say; return its configuration's digest."""
    tag = f"{project.reference(name)}-plain"
    try:
        subprocess.run(
            [
                *("docker", "build", "--provenance=false", "--build-arg", f"SOURCE_DATE_EPOCH={EPOCH}"),
                *("--quiet", "--tag", tag, f"images/{name}"),
            ],
            cwd=project.root,
            capture_output=True,
            check=True,
        )
        return configuration(tag)
    finally:
        subprocess.run(["docker", "rmi", tag], capture_output=True, check=False)


def test_a_shared_step_runs_once_in_a_fleet_build_and_plain_docker_gives_the_same_images(
    project: Project,
) -> None:
    unnamed = unnamed_images()
    project.bake("one", "two")

    assert run_count(project) == 1
    random = project.run("one", "sha256sum", "/opt/random")
    assert random == project.run("two", "sha256sum", "/opt/random")
    for name in ("one", "two"):
        assert docker_build(project, name) == configuration(project.reference(name))
    assert unnamed_images() <= unnamed


def test_a_checkout_under_another_umask_changes_nothing(project: Project) -> None:
    first = project.bake("one", "two")
    for path in project.root.glob("images/*/inputs/**/*"):
        path.chmod(0o700 if path.is_dir() or path.name == "make-random" else 0o600)

    assert project.bake("one", "two") == first
    assert run_count(project) == 0


def test_a_changed_file_reruns_only_the_steps_that_read_it(project: Project) -> None:
    first = project.bake("one", "two")
    for name in ("one", "two"):
        write(project, name, f"requirements/{name}.txt", "changed", 0o644)

    assert project.bake("one", "two") == first
    assert run_count(project) == 0

    for name in ("one", "two"):
        write(project, name, "bin/make-random", f"{SCRIPT}# changed\n", 0o755)
    assert project.bake("one", "two") != first
    assert run_count(project) == 1
