"""Check of the plugin itself. The checks of `efa` test whether NCCL loads it."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

PLUGIN = Path("/usr/local/lib/libnccl-net.so")


def installed() -> str | None:
    """Return the version, which the plugin contains since 1.1.4."""
    found = re.search(r"aws-ofi-nccl (\d+\.\d+\.\d+)", PLUGIN.read_bytes().decode("latin-1"))
    return found[1] if found else None


def check_has_a_face_for_nccl() -> None:
    plugin = ctypes.CDLL(str(PLUGIN))
    assert any(hasattr(plugin, f"ncclNetPlugin_v{number}") for number in range(2, 30))
