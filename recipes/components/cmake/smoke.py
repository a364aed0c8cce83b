"""Check that CMake is only in build stages."""

import shutil


def check_it_does_not_ship() -> None:
    assert shutil.which("cmake") is None
