"""Version of the plugin. Checks of the image test whether NCCL finds it and accepts its interface."""

from __future__ import annotations

import re
from pathlib import Path

PLUGIN = Path("/usr/local/lib/libnccl-net.so")


def installed() -> str | None:
    """Return the version, which the plugin contains since 1.1.4."""
    found = re.search(r"aws-ofi-nccl (\d+\.\d+\.\d+)", PLUGIN.read_bytes().decode("latin-1"))
    return found[1] if found else None
