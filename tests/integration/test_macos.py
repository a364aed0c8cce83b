"""Commands without an engine, as on macOS: simulated by the name of the platform and by what a Mac lacks.

There is no /proc, and the temporary directory is a link. Kernel, libraries and Python are those of this
machine.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")

# The standard library chooses modules of macOS when it is imported under that name, so that comes first.
BAKE_ON_MACOS = """\
import ctypes, shutil, subprocess, sys, sysconfig, tempfile, urllib.request
sysconfig.get_config_vars()
sys.platform = "darwin"
from bakehouse.cli.main import main
main()
"""
SETUP = 'mount --make-rprivate / && mount -t tmpfs none /proc && exec "$@"'


@pytest.mark.parametrize(
    "command",
    ["explain mpi-cpu", "render mpi-cpu", "init churn"],
)
def test_a_command_without_an_engine_works(command: str, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path / "link"),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(HOME),
        "DOCKER_HOST": "unix:///none",
    }
    run = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            SETUP,
            "sh",
            sys.executable,
            "-c",
            BAKE_ON_MACOS,
            *command.split(),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
