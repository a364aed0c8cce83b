"""Checks of the whole image: files, leftovers, the base's directories and Python packages.

The layer of each component contains a list of its files in /usr/share/bakehouse, with lines `size /path`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import stat
import sys
import types
import unittest
from collections.abc import Iterable
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
PACKAGING = ("packaging", "pip._vendor.packaging", "probe_packaging")
"""Names of the library `packaging`. The last is a copy of Bakehouse's, for images without the others."""
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


def packaging(module: str) -> types.ModuleType:
    """Return a module of the library `packaging`."""
    # This file is loaded by its path, so that its directory is not searched.
    directory = str(Path(__file__).parent)
    if directory not in sys.path:
        sys.path.append(directory)
    for library in PACKAGING:
        try:
            return importlib.import_module(f"{library}.{module}")
        except ImportError:
            continue
    reason = "the library `packaging` is not available"
    raise unittest.SkipTest(reason)


def unmet_requirements(
    distributions: Iterable[importlib.metadata.Distribution],
) -> list[tuple[set[str], str]]:
    """Return the requirements that are not met: the names of both packages, and a line as of `pip check`."""
    normalize = packaging("utils").canonicalize_name
    requirements, specifiers = packaging("requirements"), packaging("specifiers")
    installed: dict[str, importlib.metadata.Distribution] = {}
    for distribution in distributions:
        # Python imports the first of several. Damaged metadata has no name.
        if distribution.metadata["Name"]:
            installed.setdefault(normalize(distribution.metadata["Name"]), distribution)
    unmet = []
    for name, distribution in sorted(installed.items()):
        title = f"{name} {distribution.version}"
        for text in distribution.requires or ():
            try:
                requirement = requirements.Requirement(text)
                if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                    continue
                required, specifier = normalize(requirement.name), requirement.specifier
                if required not in installed:
                    unmet.append(({name}, f"{title} requires {required}, which is not installed"))
                elif not specifier.contains(installed[required].version, prereleases=True):
                    other = f"{required} {installed[required].version}"
                    line = f"{title} has requirement {required}{specifier}, but you have {other}"
                    unmet.append(({name, required}, line))
            except (requirements.InvalidRequirement, specifiers.InvalidSpecifier):
                unmet.append(({name}, f"{title} has an invalid requirement: {text}"))
    return unmet


def listed_packages() -> set[str]:
    """Return the normalized names of the packages that components list."""
    directories = (Path(path).parent.name for path in listed() if path.endswith(".dist-info/METADATA"))
    return {packaging("utils").canonicalize_name(name.partition("-")[0]) for name in directories}


def check_packages_fit_together() -> None:
    """The requirements of all Python packages are met."""
    unmet = unmet_requirements(importlib.metadata.distributions())
    if not (LISTS / "python").exists():
        # The packages of a vendor's base may not fit each other, which the image cannot change.
        own = listed_packages() if LISTS.exists() else set()
        unmet = [(names, line) for names, line in unmet if names & own]
    lines = [line for _, line in unmet]
    print(*lines, sep="\n")
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    assert not lines, f"{lines[0]}{more}"
