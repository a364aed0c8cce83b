"""Checks of the whole image: each file has one owner, nothing is left over, the base is unchanged.

The layer of each component contains a list of its files in /usr/share/bakehouse, with lines `size /path`.
"""

from __future__ import annotations

import os
import stat
import unittest
from pathlib import Path

LISTS = Path("/usr/share/bakehouse")
LEFTOVERS = (
    *("/var/lib/apt/lists/*_Packages*", "/var/cache/apt/*.bin", "/var/cache/apt/archives/*.deb"),
    *("/root/.cache/*", "/tmp/*.txt", "/tmp/wheels", "/out", "/run/secrets/*", "/etc/pip.conf"),
    *(f"/usr/local/bin/{name}" for name in ("download", "download-debs", "finish-layer", "finish-step")),
    *("/etc/apt/apt.conf.d/99bakehouse",),
)
MODES = {
    "/tmp": 0o1777,
    "/var/tmp": 0o1777,
    "/root": 0o700,
    "/": 0o755,
    "/usr/local/bin": 0o755,
    "/opt": 0o755,
}
LINKS = ("/bin", "/lib", "/lib64", "/sbin", "/var/run", "/var/lock")


def listed() -> dict[str, list[tuple[str, int]]]:
    """Return the components that list each path, with the listed sizes."""
    owners: dict[str, list[tuple[str, int]]] = {}
    for file in sorted(LISTS.glob("*")):
        for line in file.read_text().splitlines():
            size, path = line.split(" ", 1)
            owners.setdefault(path, []).append((file.name, int(size)))
    if not owners:
        reason = "no component of this image lists its files"
        raise unittest.SkipTest(reason)
    return owners


def check_each_file_has_one_owner() -> None:
    shared = {path: [name for name, _ in owners] for path, owners in listed().items() if len(owners) > 1}
    assert not shared, f"{len(shared)} files are in two components, for example {next(iter(shared.items()))}"


def check_listed_files_are_there() -> None:
    wrong = [
        path
        for path, [(_, size), *_] in listed().items()
        if not os.path.lexists(path) or os.lstat(path).st_size != size
    ]
    assert not wrong, f"{len(wrong)} files are missing or have another size, for example {wrong[0]}"


def check_nothing_is_left_over() -> None:
    leftovers = [str(path) for pattern in LEFTOVERS for path in Path("/").glob(pattern.lstrip("/"))]
    assert not leftovers, ", ".join(leftovers[:5])


def check_no_static_library() -> None:
    """A compiler that the image carries on purpose has its own."""
    directories = (Path("/opt"), Path("/usr/local"))
    libraries = [str(path) for directory in directories for path in directory.rglob("*.a")]
    assert not libraries, ", ".join(libraries[:5])


def check_base_directories_keep_their_modes() -> None:
    changed = {
        path: oct(mode)
        for path, expected in MODES.items()
        if Path(path).is_dir() and (mode := stat.S_IMODE(Path(path).stat().st_mode)) != expected
    }
    assert not changed, changed


def check_base_links_are_links() -> None:
    lost = [path for path in LINKS if Path(path).is_dir() and not Path(path).is_symlink()]
    # /lib64 and others are real directories in bases without a merged /usr.
    assert not lost or not Path("/bin").is_symlink(), lost
