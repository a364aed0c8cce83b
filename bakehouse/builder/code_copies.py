"""Checked copies of the training code of recipes, which builds read instead of the user's directories."""

from pathlib import Path

from bakehouse.plan import dockerfile
from bakehouse.plan.model import Image

CODE = "code"
"""Stage of the training code. It is empty in a Dockerfile, and the copies replace it in a build."""


def code_directory(state: Path, image: str) -> Path:
    """Return the directory of the checked copies of an image's training code."""
    return state / "code" / image


def write_code(image: Image, state: Path) -> None:
    """Write the checked copies of an image's training code, and remove those of removed files."""
    directory, copies = code_directory(state, image.name), dockerfile.code_copies(image)
    for copy in copies:
        copy.write(directory.parent)
    paths = {directory.parent / copy.path for copy in copies}
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in paths:
            path.unlink()
