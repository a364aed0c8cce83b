"""Checked copies of the training code of recipes, which builds read instead of the user's directories."""

from pathlib import Path

from bakehouse.errors import BuildError, Reason
from bakehouse.plan import dockerfile
from bakehouse.plan.model import Image
from bakehouse.util.files import display_path, remove_file

CODE = "code"
"""Stage of the training code. It is empty in a Dockerfile, and the copies replace it in a build."""

_MOVE = "move the project to another file system; in WSL2, out of `/mnt` into your home directory"


def code_directory(output: Path, image: str) -> Path:
    """Return the directory of the checked copies of an image's training code."""
    return output / "code" / image


def write_code(image: Image, output: Path) -> None:
    """Write the checked copies of an image's training code, and remove the copies of deleted files."""
    directory, copies = code_directory(output, image.name), dockerfile.code_copies(image)
    for copy in copies:
        copy.write(directory.parent)
    paths = {directory.parent / copy.path for copy in copies}
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in paths:
            remove_file(path)


def require_modes(image: Image, images: Path, output: Path) -> None:
    """Raise BuildError if the copies of an image's files and code do not have the modes of the image.

    The engine takes the mode of a file from the file system, so other modes would change the digest.
    """
    places = [(images, dockerfile.file_copies(image)), (output / "code", dockerfile.code_copies(image))]
    for directory, copies in places:
        for copy in copies:
            path = directory / copy.path
            if path.is_file() and bool(path.stat().st_mode & 0o100) != copy.is_executable:
                must = "must" if copy.is_executable else "must not"
                raise BuildError(
                    f"`{display_path(directory)}` is on a file system that does not store file modes",
                    reasons=(Reason(f"`{copy.path}` {must} be executable in the image"),),
                    hint=_MOVE,
                )
