"""Root file system of essential Debian packages, unpacked so that their programs work in a build step."""

import io
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bakehouse.builder.base_layer import path_of
from bakehouse.builder.deb_file import DebFile
from bakehouse.plan.base_steps import EXCLUDED, FILES
from bakehouse.util.oci import EPOCH, PLATFORM

_MERGED = ("bin", "lib", "sbin")
_DATABASE = ("var/lib/dpkg/status", "var/lib/dpkg/available")
_ALTERNATIVE = re.compile(r"\s*([a-z0-9][a-z0-9.+-]+)")
_SKIPPED = tuple(f"usr/share/{name}/" for name in EXCLUDED)


def merged_links(platform: str) -> tuple[str, ...]:
    """Return the names in / that are links into /usr."""
    return (*_MERGED, "lib64") if platform == PLATFORM else _MERGED


def essential(packages: Mapping[str, DebFile]) -> tuple[str, ...]:
    """Return the names of the essential packages and all that they depend on, sorted."""
    providers: dict[str, str] = {}
    for name, package in sorted(packages.items()):
        for provided in _names(package.fields.get("Provides", "")):
            providers.setdefault(provided, name)
    closure = dict.fromkeys(name for name in packages if packages[name].fields.get("Essential") == "yes")
    left = list(closure)
    # The loop appends to the list that it reads
    for name in left:
        for needed in _needs(packages[name], packages, providers, "Pre-Depends", "Depends"):
            if needed not in closure:
                closure[needed] = None
                left.append(needed)
    return tuple(sorted(closure))


def in_order(names: Iterable[str], packages: Mapping[str, DebFile]) -> tuple[str, ...]:
    """Sort packages so that each one comes after its pre-dependencies."""
    ordered: dict[str, None] = {}
    selected = dict.fromkeys(names)

    def add(name: str, above: tuple[str, ...]) -> None:
        for needed in _needs(packages[name], packages, {}, "Pre-Depends"):
            if needed in selected and needed not in (*above, *ordered):
                add(needed, (*above, name))
        ordered.setdefault(name)

    for name in selected:
        add(name, ())
    return tuple(ordered)


def _needs(
    package: DebFile, packages: Mapping[str, DebFile], providers: Mapping[str, str], *fields: str
) -> list[str]:
    """Return the packages that a package needs. The first available alternative is used."""
    needed = []
    for field in fields:
        for group in filter(None, package.fields.get(field, "").split(",")):
            names = [match[1] for match in map(_ALTERNATIVE.match, group.split("|")) if match]
            found = [name if name in packages else providers.get(name, "") for name in names]
            needed += [name for name in found if name][:1]
    return needed


def _names(text: str) -> list[str]:
    return [match[1] for match in map(_ALTERNATIVE.match, text.split(",")) if match]


def write_tree(packages: Sequence[DebFile], platform: str, to: Path) -> None:
    """Write an archive of the files of packages, with the links of a merged /usr first.

    BuildKit unpacks it. Raises BuildError for files that are not packages.
    """
    links = merged_links(platform)
    with tarfile.open(to, "w", format=tarfile.GNU_FORMAT) as tree, ThreadPoolExecutor() as threads:
        for link in links:
            _add_directory(tree, f"usr/{link}")
        for link in links:
            entry = _entry(link, tarfile.SYMTYPE)
            entry.linkname = f"usr/{link}"
            tree.addfile(entry)
        directories: set[str] = set()
        # Decompression takes most of the time, and runs on all cores
        for archive in threads.map(DebFile.installed_files, packages):
            with archive:
                _copy(archive, tree, links, directories)
        for path, text in (*FILES.items(), *((path, "") for path in _DATABASE)):
            entry = _entry(path, tarfile.REGTYPE)
            entry.size = len(text)
            tree.addfile(entry, io.BytesIO(text.encode()))


def _copy(archive: tarfile.TarFile, tree: tarfile.TarFile, links: Sequence[str], seen: set[str]) -> None:
    """Copy the files of a package. Paths follow the links into /usr, and each directory is added once."""
    for member in archive:
        path = _merged(member.name, links)
        if not path or path in links or path.startswith(_SKIPPED) or (member.isdir() and path in seen):
            continue
        if member.isdir():
            seen.add(path)
        member.name = path
        if member.islnk():
            member.linkname = _merged(member.linkname, links)
        tree.addfile(member, archive.extractfile(member) if member.isreg() else None)


def _merged(name: str, links: Sequence[str]) -> str:
    path = path_of(name)
    top, slash, rest = path.partition("/")
    return f"usr/{top}/{rest}" if slash and top in links else path


def _add_directory(tree: tarfile.TarFile, path: str) -> None:
    entry = _entry(path, tarfile.DIRTYPE)
    tree.addfile(entry)


def _entry(path: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mtime = kind, EPOCH
    entry.mode = {tarfile.DIRTYPE: 0o755, tarfile.SYMTYPE: 0o777}.get(kind, 0o644)
    return entry
