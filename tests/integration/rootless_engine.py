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

DOCKERD = Path("/usr/share/docker.io/contrib/dockerd-rootless.sh")
_USER = 12346
_SETUP = """\
set -e
mount --make-rprivate /
mount --make-rshared /
for file in passwd group subuid subgid; do
    cat /etc/$file > {home}/$file 2> /dev/null || : > {home}/$file
done
echo 'rootless:x:{user}:{user}::{home}:/bin/sh' >> {home}/passwd
echo 'rootless:x:{user}:' >> {home}/group
for file in subuid subgid; do echo 'rootless:300000:65536' >> {home}/$file; done
for file in passwd group subuid subgid; do touch /etc/$file; mount --bind {home}/$file /etc/$file; done
# On most systems all users may open it
mknod -m 666 {home}/tun c 10 200
mount --bind {home}/tun /dev/net/tun
exec setpriv --reuid={user} --regid={user} --clear-groups --inh-caps=-all env -i HOME={home} \\
    XDG_RUNTIME_DIR={home}/run PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\
    {dockerd} --config-file /dev/null
"""


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
