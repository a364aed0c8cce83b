#!/usr/bin/env python3
"""keep NAME PATTERN...: fails where a layer brings what the base has to keep, lists what else it replaces.

Compares the Python packages of the base with those that are found once /out lies over it.
"""

import csv
import os
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path


def distributions(folder):
    """The packages in a folder of Python's: version and description, by their normal names."""
    found = {}
    for info in [*folder.glob("*.egg-info"), *folder.glob("*.dist-info")]:
        name, _, version = info.stem.partition("-")
        found[re.sub("[-_.]+", "-", name).lower()] = (re.sub("-py[0-9.]+$", "", version), info)
    return found


def files(info):
    """What belongs to a package, as far as it says so."""
    record = info / "RECORD"
    if record.is_file():
        with record.open(newline="") as file:
            return [Path(os.path.normpath(info.parent / row[0])) for row in csv.reader(file)]
    return sorted(path for path in info.rglob("*") if path.is_file()) if info.is_dir() else [info]


def main(base, out, layer, patterns):
    replaced = []
    described = [*out.rglob("*.dist-info"), *out.rglob("*.egg-info")]
    for folder in sorted({info.parent for info in described}):
        before = distributions(base / folder.relative_to(out))
        for name, (version, _) in sorted(distributions(folder).items()):
            old, info = before.get(name, ("", None))
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                change = f"replace {name} {old} of the base with" if old else f"add {name}"
                reason = "the base's own has to stay: lock again without it"
                sys.exit(f"keep: {layer} would {change} {version}; {reason}")
            if old and old != version:
                replaced += [path.relative_to(base) for path in files(info)]
    gone = [path for path in replaced if not os.path.lexists(out / path)]
    (out.parent / "replaced").write_text("".join(f"/{path}\n" for path in sorted(gone)))


if __name__ == "__main__":
    main(Path("/"), Path("/out"), sys.argv[1], sys.argv[2:])
