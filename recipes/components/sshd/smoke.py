"""Checks of OpenSSH, and of the absence of keys in the image."""

import os
import re
import subprocess
import tempfile
from pathlib import Path


def installed() -> str:
    text = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
    found = re.search(r"OpenSSH_(\d+\.\d+)", text)
    assert found, text
    return found[1]


def check_no_key_in_the_image() -> None:
    keys = [*Path("/etc/ssh").glob("ssh_host_*"), *Path("/root/.ssh").glob("*")]
    assert not keys, [str(key) for key in keys]


def check_settings_are_accepted() -> None:
    """sshd accepts its settings, tested with a temporary key."""
    with tempfile.TemporaryDirectory() as directory:
        key = f"{directory}/host-key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        command = ["/usr/sbin/sshd", "-t", "-h", key]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr.strip()


def check_login_shell_keeps_the_path() -> None:
    command = ["bash", "-lc", 'echo "$PATH"']
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert path == os.environ["PATH"], path
