"""Projects with one image, into which pip installs requirements."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bakehouse.builder.progress import Mode, Progress
from bakehouse.pipeline.build import build
from bakehouse.plan.workspace import open_workspace, select


def write_project(root: Path, name: str, requirements: str) -> Path:
    """Write a project, and return the path that the lock of its requirements will have."""
    images = root / "recipes/images"
    images.mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    (images / f"{name}.yaml").write_text(
        'summary: Own requirements\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'
        "requirements: requirements.txt\n"
    )
    (images / "requirements.txt").write_text(requirements)
    return images / "requirements.txt.lock"


@contextlib.contextmanager
def built_image(root: Path, name: str) -> Iterator[str]:
    """Build the image and give its reference; it is removed at the end."""
    with Progress(sys.__stderr__ or sys.stderr, Mode.LINES) as progress:
        [built] = build(select(open_workspace(root), [name]), progress.report, progress=progress)
    reference = built.image.reference
    try:
        yield reference
    finally:
        latest = f"{reference.rpartition(':')[0]}:latest"
        subprocess.run(["docker", "rmi", reference, latest], check=False, capture_output=True)


def python_output(reference: str, code: str) -> str:
    """Return what Python prints in a container of the image."""
    command = ["docker", "run", "--rm", "--network=none", reference, "python", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
