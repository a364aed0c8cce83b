"""Stands for runc on the PATH of an engine: every container it starts is told another time.

A program of its own that needs nothing but Python, since an engine calls it for each step of a build.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_INSIDE = "/dev/bakehouse-clock.so"
"""`/dev` is the container's own file system: elsewhere the place of the mount would stay in the layer."""


def main(words: Sequence[str]) -> None:
    """Run the real runc: the words are its path, the library, and what runc is called with."""
    real, library, *rest = words
    if (bundle := bundle_of(rest)) is not None:
        set_clock(bundle, library)
    os.execv(real, [real, *rest])


def bundle_of(words: Sequence[str]) -> Path | None:
    """The bundle that a step of a build is run from; None for all else, such as checks of what was built."""
    if "run" not in words:
        return None
    for position, word in enumerate(words):
        option, _, value = word.partition("=")
        if option in ("--bundle", "-b"):
            return Path(value or words[position + 1])
    return Path()


def set_clock(bundle: Path, library: str) -> None:
    """Let a container's programs load the library that tells them another time."""
    path = bundle / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    mount = {"destination": _INSIDE, "source": library, "type": "bind", "options": ["bind", "ro"]}
    config.setdefault("mounts", []).append(mount)
    given = dict(one.split("=", 1) for one in config["process"].get("env") or ())
    given["LD_PRELOAD"] = " ".join(filter(None, (_INSIDE, given.get("LD_PRELOAD"))))
    config["process"]["env"] = [f"{name}={value}" for name, value in given.items()]
    path.write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
