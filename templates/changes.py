"""Lays out under /out what of /mnt/system is not as in /mnt/base: a tree to be linked over that base."""

import filecmp
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# What differs from one build to the next, what nobody reads, and host keys: a job makes its own
LEFT_OUT = """
    tmp/* var/log/* var/lib/apt/lists/* var/cache/apt/* var/cache/ldconfig/aux-cache var/cache/debconf/*-old
    var/lib/dpkg/*-old etc/*- etc/ssh/ssh_host_* usr/share/doc/* usr/share/man/*
"""


def paths(tree):
    """All that lies in a folder, but what is left out."""
    left_out = {path for pattern in LEFT_OUT.split() for path in tree.glob(pattern)}
    found = []
    for folder, folders, files in os.walk(tree):
        folders[:] = [name for name in folders if Path(folder, name) not in left_out]
        found += [Path(folder, name) for name in [*folders, *files]]
    return {path.relative_to(tree) for path in found if path not in left_out}


def facts(path):
    """What a layer says of a file, but its time and content."""
    found = path.lstat()
    link = path.readlink() if path.is_symlink() else ""
    attributes = os.listxattr(path, follow_symlinks=False)
    capabilities = "security.capability" in attributes and os.getxattr(path, "security.capability")
    return found.st_mode, found.st_uid, found.st_gid, link, capabilities


def is_same(one, other):
    if not os.path.lexists(other) or facts(one) != facts(other):
        return False
    return one.is_symlink() or not one.is_file() or filecmp.cmp(one, other, shallow=False)


def main(base, system, out, epoch):
    there = paths(system)
    if gone := sorted(paths(base) - there):
        listed = "".join(f"\n  /{path}" for path in gone)
        message = f"changes: a linked layer can't take away what is in the base, and these are gone:{listed}"
        sys.exit(f"{message}\nhint: leave the packages of `apt` out that remove them, or take another base")
    changed = (path for path in there if not is_same(system / path, base / path))
    # With the folders above: a linked layer's win over the base's
    listed = {Path(), *(above for path in changed for above in (path, *path.parents))}
    names = "".join(f"{path}\0" for path in sorted(listed))
    attributes = ["--xattrs", "--xattrs-include=security.capability"]
    times = ["--clamp-mtime", f"--mtime=@{epoch}"]
    pack = ["tar", "-C", system, "--no-recursion", *attributes, *times, "-c", "--null", "-T", "-"]
    out.mkdir()
    with tempfile.TemporaryFile() as packed:
        subprocess.run(pack, input=names.encode(), stdout=packed, check=True)
        packed.seek(0)
        subprocess.run(["tar", "-C", out, *attributes, "-xp"], stdin=packed, check=True)


if __name__ == "__main__":
    main(Path("/mnt/base"), Path("/mnt/system"), Path("/out"), sys.argv[1])
