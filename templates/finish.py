#!/usr/bin/env python3
"""finish NAME [PATTERN...]: makes /out a layer to be linked over the base, the same at every build.

Drops what matches, and static libraries that no `!PATTERN` keeps; compiles byte code, keeps RECORD true,
lists the files.
"""

import base64
import compileall
import csv
import functools
import hashlib
import multiprocessing
import os
import py_compile
import re
import shutil
import stat
import sys
from pathlib import Path

OUT = Path("/out")
NAME = sys.argv[1]
PATTERNS = [word for word in sys.argv[2:] if not word.startswith("!")]
KEPT = {path for word in sys.argv[2:] if word.startswith("!") for path in OUT.glob(word[1:])}


def drop(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


for pattern in PATTERNS:
    found = sorted(OUT.glob(pattern))
    if not found:
        sys.exit(f"finish: nothing in {NAME} matches {pattern}")
    for path in found:
        drop(path)
for path in [*OUT.rglob("*.a"), *OUT.rglob("*.la"), *OUT.rglob("__pycache__")]:
    if path not in KEPT:
        drop(path)


def recorded(site, row):
    """A row of RECORD as it is after what was done to its file; None where the file is gone."""
    path = site / row[0]
    if not path.exists():
        return None
    if row[2] and int(row[2]) != path.stat().st_size:
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        return [row[0], f"sha256={digest}", str(path.stat().st_size)]
    return row


records = sorted(OUT.rglob("*.dist-info/RECORD"))
for record in records:
    # It names a folder of this build
    record.with_name("direct_url.json").unlink(missing_ok=True)
    with record.open(newline="") as file:
        rows = [kept for row in csv.reader(file) if (kept := recorded(record.parent.parent, row))]
    with record.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
for folder in sorted({record.parent.parent for record in records}):
    if sys.version_info < (3, 9):  # noqa: UP036 - it is the base's Python
        for path in sorted(folder.rglob("*.py")):
            if not re.search("/tests?/", str(path)):
                place = str(Path("/", path.relative_to(OUT)))
                hashed = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(str(path), dfile=place, quiet=2, invalidation_mode=hashed)
        continue
    # Not in this process, whose own names change the bytes. And not in compile_dir's own pool: before Python
    # 3.11.5 it waits for ever where the kernel gives out small pipes and a package has thousands of files
    # (gh-105829).
    compiled = functools.partial(
        compileall.compile_file,
        quiet=2,
        stripdir=OUT,
        prependdir="/",
        rx=re.compile("/tests?/"),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(compiled, sorted(folder.rglob("*.py")), chunksize=16)

epoch = int(os.environ["SOURCE_DATE_EPOCH"])
listing = OUT / "usr/share/bakehouse" / NAME
listing.parent.mkdir(parents=True, exist_ok=True)
files = sorted(path for path in OUT.rglob("*") if path.is_symlink() or not path.is_dir())
listing.write_text("".join(f"{path.lstat().st_size} /{path.relative_to(OUT)}\n" for path in files))
for path in [OUT, *OUT.rglob("*")]:
    if path.is_dir() and not path.is_symlink():
        below = Path("/", path.relative_to(OUT))
        if below.is_symlink():
            sys.exit(
                f"finish: {NAME} has a folder {below}, which is a link in the base: the link would be lost"
            )
        # A linked layer's folders win over the base's: they get the base's mode
        path.chmod(stat.S_IMODE(below.stat().st_mode) if below.is_dir() else 0o755)
    os.utime(path, (epoch, epoch), follow_symlinks=False)
