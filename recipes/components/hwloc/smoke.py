"""Checks of hwloc."""

import re
import subprocess


def installed() -> str:
    text = subprocess.run(["hwloc-info", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+\.\d+(?:\.\d+)?)", text)
    assert found, text
    return found[1]


def check_sees_this_host() -> None:
    text = subprocess.run(
        ["hwloc-calc", "--number-of", "core", "all"], capture_output=True, text=True, check=True
    )
    assert int(text.stdout) > 0, text.stdout
