"""A rootless engine of Debian's packages, of a user that exists in its mount namespace only."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.data import text_of

DOCKERD = Path("/usr/share/docker.io/contrib/dockerd-rootless.sh")
_USER = 12346
_SETUP = text_of(__file__, "setup")


def missing_programs() -> str:
    """Return the programs that such an engine needs and this machine lacks."""
    programs = ("rootlesskit", "newuidmap", "slirp4netns", "setpriv", str(DOCKERD))
    return ", ".join(program for program in programs if not shutil.which(program))


@contextlib.contextmanager
def rootless_engine() -> Iterator[str]:
    """Start a rootless engine and yield its endpoint; it is removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="bh-", dir="/var/tmp"))
    (home / "run").mkdir(mode=0o700)
    for path in (home, home / "run"):
        os.chown(path, _USER, _USER)
    endpoint = f"unix://{home}/run/docker.sock"
    script = _SETUP.format(home=home, user=_USER, dockerd=DOCKERD)
    try:
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", script],
                cwd="/",
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                while subprocess.run(["docker", "--host", endpoint, "info"], capture_output=True).returncode:
                    assert process.poll() is None, (home / "log").read_text()[-2000:]
                    time.sleep(0.2)
                yield endpoint
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
    finally:
        shutil.rmtree(home, ignore_errors=True)
