"""Check that patchelf is only in build stages."""

from pathlib import Path


def check_it_does_not_ship() -> None:
    assert not Path("/opt/patchelf").exists()
