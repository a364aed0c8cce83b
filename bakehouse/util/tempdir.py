"""Private folders that live as long as the run that made them."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bakehouse.util import owners


@contextlib.contextmanager
def private_folder(state: Path) -> Iterator[Path]:
    """A folder nobody else may read, removed at the end, or by the next run if this one is killed."""
    parent = state / "private"
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{owners.mine()}.", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for folder in parent.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if owners.is_left_behind(folder.name.partition(".")[0], folder.stat().st_mtime):
                shutil.rmtree(folder, ignore_errors=True)
