"""An engine in a network namespace without a route."""

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

SUBNET = "10.213.0.1/24"
ADDRESS = "02:42:0a:d5:00:01"
"""An address that the kernel keeps when containers start and stop: see dockerd.loose_address."""


class OfflineNetwork:
    """A network namespace with a bridge and no route."""

    def __init__(self, name: str) -> None:
        self.name, self.bridge = name, f"{name}br"[-15:]

    def __enter__(self) -> "OfflineNetwork":
        self._ip("netns", "add", self.name)
        for arguments in (
            f"link set lo up|link add {self.bridge} address {ADDRESS} type bridge|"
            f"addr add {SUBNET} dev {self.bridge}|link set {self.bridge} up"
        ).split("|"):
            self._ip("-n", self.name, *arguments.split())
        return self

    def __exit__(self, *error: object) -> None:
        self._ip("netns", "delete", self.name)

    def inside(self, *command: str) -> list[str]:
        """`ip netns exec` would hide the cgroups that an engine needs."""
        return ["nsenter", f"--net=/run/netns/{self.name}", "--", *command]

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)


@contextlib.contextmanager
def engine(
    nowhere: OfflineNetwork, directory: Path, settings: Mapping[str, object] | None = None
) -> Iterator[str]:
    """An engine in there, with everything of its own; gives its address."""
    defaults = {"features": {"containerd-snapshotter": True}}
    (directory / "daemon.json").write_text(json.dumps(settings or defaults))
    host = f"unix://{directory}/docker.sock"
    command = nowhere.inside(
        "dockerd", f"--config-file={directory}/daemon.json", f"--data-root={directory}/data",
        f"--exec-root={directory}/exec", f"--pidfile={directory}/pid", f"--host={host}",
        f"--bridge={nowhere.bridge}",
    )  # fmt: skip
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            info = ["docker", "--host", host, "info"]
            while subprocess.run(info, capture_output=True).returncode:
                assert process.poll() is None, (directory / "log").read_text()[-2000:]
                time.sleep(0.2)
            yield host
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
