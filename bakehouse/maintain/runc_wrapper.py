"""Wrapper of runc that gives the containers of build steps a fake clock.

A separate program that only needs Python's standard library, because the engine runs it for each build step.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_INSIDE = "/dev/bakehouse-clock.so"
"""`/dev` is a separate file system in the container; elsewhere the mount point would stay in the layer."""


def main(arguments: Sequence[str]) -> None:
    """Run the real runc; the arguments are its path, the library and the arguments of runc."""
    real, library, *rest = arguments
    if (bundle := bundle_of(rest)) is not None:
        set_clock(bundle, library)
    os.execv(real, [real, *rest])


def bundle_of(arguments: Sequence[str]) -> Path | None:
    """Return the bundle directory of a build step; None for other containers and commands."""
    if "run" not in arguments:
        return None
    for position, argument in enumerate(arguments):
        option, _, value = argument.partition("=")
        if option in ("--bundle", "-b"):
            return Path(value or arguments[position + 1])
    return Path()


def set_clock(bundle: Path, library: str) -> None:
    """Add the mount and LD_PRELOAD of the fake clock to a container."""
    path = bundle / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    mount = {"destination": _INSIDE, "source": library, "type": "bind", "options": ["bind", "ro"]}
    config.setdefault("mounts", []).append(mount)
    variables = dict(entry.split("=", 1) for entry in config["process"].get("env") or ())
    variables["LD_PRELOAD"] = " ".join(filter(None, (_INSIDE, variables.get("LD_PRELOAD"))))
    config["process"]["env"] = [f"{name}={value}" for name, value in variables.items()]
    path.write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
