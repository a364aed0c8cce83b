"""Layer of a base: the root file system that BuildKit returned, as the same bytes from every engine.

Engines differ in the times of directories and in extended attributes such as SELinux labels, and versions of
BuildKit may differ in the order and the format of entries.
"""

import tarfile
from pathlib import Path
from typing import IO

from bakehouse.util.oci import EPOCH

_CAPABILITY = "SCHILY.xattr.security.capability"
"""The one extended attribute that packages set."""


def write_layer(exported: Path, to: IO[bytes]) -> None:
    """Write the archive of an exported root file system as a layer.

    The entries are sorted. Modification times are limited to `EPOCH`. If a file has several names, the first
    one has the content.
    """
    with (
        tarfile.open(exported) as source,
        tarfile.open(mode="w|", fileobj=to, format=tarfile.PAX_FORMAT) as layer,
    ):
        members = {path_of(member.name): member for member in source}
        paths = sorted(filter(None, members), key=lambda path: path.split("/"))
        root = tarfile.TarInfo(".")
        root.type, root.mode, root.mtime = tarfile.DIRTYPE, 0o755, EPOCH
        layer.addfile(root)
        first_names: dict[str, str] = {}
        for path in paths:
            member = members[path]
            stored = path_of(member.linkname) if member.islnk() else path
            first = first_names.setdefault(stored, path)
            content = members[stored]
            entry = _entry(path, content)
            if first == path:
                layer.addfile(entry, source.extractfile(content) if content.isreg() else None)
            else:
                entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, first, 0
                layer.addfile(entry)


def path_of(name: str) -> str:
    """Return the path below the root of an entry's name; empty for the root."""
    return f"{name}/".removeprefix("./").strip("/")


def _entry(path: str, member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an entry with the attributes that all engines preserve."""
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.linkname = member.type, member.mode & 0o7777, member.linkname
    entry.uid, entry.gid, entry.size = member.uid, member.gid, member.size
    entry.devmajor, entry.devminor = member.devmajor, member.devminor
    # Some engines keep the time of a directory's last change, others set the time of its copy
    entry.mtime = EPOCH if member.isdir() else min(int(member.mtime), EPOCH)
    if _CAPABILITY in member.pax_headers:
        entry.pax_headers = {_CAPABILITY: member.pax_headers[_CAPABILITY]}
    return entry
