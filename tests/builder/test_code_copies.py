"""Copies of files and code that a build reads, on a file system that keeps no modes."""

from pathlib import Path

import pytest

from bakehouse.builder.code_copies import require_modes, write_code
from bakehouse.errors import BuildError
from bakehouse.plan import dockerfile
from bakehouse.plan.model import Image
from tests.support.errors import refusal
from tests.support.trees import IMAGE, Tree


@pytest.fixture
def image(tree: Tree) -> Image:
    tree.write("images/src/train.py", "pass\n")
    tree.write("images/start.sh", "#!/bin/sh\n").chmod(0o755)
    code = "code: {directory: src, entry_point: train.py}\nfiles: [{from: start.sh, to: /opt/start.sh}]\n"
    tree.image(IMAGE + code)
    return tree.planned_image()


def written(image: Image, directory: Path) -> tuple[Path, Path]:
    images, state = directory / "rendered", directory / "state"
    write_code(image, state)
    for copy in dockerfile.file_copies(image):
        copy.write(images)
    return images, state


def test_copies_have_the_modes_of_the_image(image: Image, tmp_path: Path) -> None:
    require_modes(image, *written(image, tmp_path))


@pytest.mark.parametrize(
    ("mode", "place", "reason"),
    [
        (0o777, "state/code", "`small/opt/ml/code/train.py` must not be executable in the image"),
        (0o644, "rendered", "`small/files/opt/start.sh` must be executable in the image"),
    ],
)
def test_a_build_is_refused_where_modes_are_lost(
    mode: int, place: str, reason: str, image: Image, tmp_path: Path
) -> None:
    images, state = written(image, tmp_path)
    for path in (tmp_path / place).rglob("*.*"):
        # As a file system shows them that has one mode for all files
        path.chmod(mode)

    assert refusal(BuildError, require_modes, image, images, state) == (
        f"error: `{place}` is on a file system that does not store file modes\n"
        f"  because {reason}\n"
        "\n"
        "hint: move the project to another file system; in WSL2, out of `/mnt` into your home directory\n"
    )
