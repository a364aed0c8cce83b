"""Version of Debian."""

import subprocess
from pathlib import Path


def installed() -> str:
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    return release["VERSION_ID"].strip('"')


def check_each_package_has_its_licence() -> None:
    query = ["dpkg-query", "--show", "--showformat", "${Package}\\n"]
    packages = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
    missing = [name for name in packages if not Path("/usr/share/doc", name, "copyright").is_file()]
    assert not missing, missing
