"""Parser of NCCL's log: the transports that the ranks of a job used."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# algo-1:42:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0/GDRDMA
_VIA = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\](?: \[\w+\])? via (?P<way>[^\n]+)"
)
# algo-1:42:99 [0] NCCL INFO Using network AWS Libfabric
_NETWORK = re.compile(r"NCCL INFO Using network (?P<name>[^\n]+)")
_VERSION = re.compile(r"NCCL version (?P<version>\d+(?:\.\d+)+)")
_DEVICE_NUMBER = re.compile(r"/\d+.*")
SOCKET = "Socket"


@dataclass(frozen=True, slots=True)
class Transports:
    """Transports in NCCL's log."""

    version: str = ""
    networks: tuple[str, ...] = ()
    """Networks between hosts: `AWS Libfabric`, `Socket`, `IB`."""
    ways: tuple[str, ...] = ()
    """Transports of the channels: `NET/Socket`, `P2P/CUMEM`, `SHM/direct`."""

    def __bool__(self) -> bool:
        return bool(self.networks or self.ways)

    @property
    def uses_sockets(self) -> bool:
        """Ranks of different hosts used TCP sockets."""
        return any(way.startswith(f"NET/{SOCKET}") for way in self.ways)


def read_transports(logs: Iterable[str]) -> Transports:
    """Return the transports of all logs; empty if NCCL was not used or `NCCL_DEBUG=INFO` was not set."""
    versions: set[str] = set()
    networks: set[str] = set()
    ways: set[str] = set()
    for log in logs:
        versions.update(match["version"] for match in _VERSION.finditer(log))
        networks.update(match["name"].strip() for match in _NETWORK.finditer(log))
        ways.update(_remove_device_number(match["way"].strip()) for match in _VIA.finditer(log))
    return Transports(", ".join(sorted(versions)), tuple(sorted(networks)), tuple(sorted(ways)))


def _remove_device_number(way: str) -> str:
    """Remove the device number: `NET/AWS Libfabric/0/GDRDMA` becomes `NET/AWS Libfabric/GDRDMA`."""
    return f"{_DEVICE_NUMBER.sub('', way)}/GDRDMA" if way.endswith("/GDRDMA") else _DEVICE_NUMBER.sub("", way)
