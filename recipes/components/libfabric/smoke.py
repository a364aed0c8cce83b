"""Checks of libfabric."""

import re
import subprocess


def installed() -> str:
    text = subprocess.run(["fi_info", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"libfabric: (\d+\.\d+\.\d+)", text)
    assert found, text
    return found[1]


def check_lists_a_provider() -> None:
    text = subprocess.run(["fi_info", "-p", "tcp"], capture_output=True, text=True, check=True).stdout
    assert "provider: tcp" in text, text[:500]
