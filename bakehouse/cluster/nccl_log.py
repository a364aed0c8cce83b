"""Reads from NCCL's own log which way the ranks of a job talked to each other."""

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
_NUMBERED = re.compile(r"/\d+.*")
SOCKET = "Socket"


@dataclass(frozen=True, slots=True)
class Transports:
    """What NCCL said of its ways."""

    version: str = ""
    networks: tuple[str, ...] = ()
    """What it would use between hosts: `AWS Libfabric`, `Socket`, `IB`."""
    ways: tuple[str, ...] = ()
    """What channels were made of: `NET/Socket`, `P2P/CUMEM`, `SHM/direct`."""

    def __bool__(self) -> bool:
        return bool(self.networks or self.ways)

    @property
    def uses_sockets(self) -> bool:
        """Whether ranks of different hosts talked through TCP sockets."""
        return any(way.startswith(f"NET/{SOCKET}") for way in self.ways)


def transports(logs: Iterable[str]) -> Transports:
    """What the ranks' logs say; empty where they used no NCCL, or its log was off (`NCCL_DEBUG=INFO`)."""
    versions: set[str] = set()
    networks: set[str] = set()
    ways: set[str] = set()
    for log in logs:
        versions.update(match["version"] for match in _VERSION.finditer(log))
        networks.update(match["name"].strip() for match in _NETWORK.finditer(log))
        ways.update(_way(match["way"].strip()) for match in _VIA.finditer(log))
    return Transports(", ".join(sorted(versions)), tuple(sorted(networks)), tuple(sorted(ways)))


def _way(text: str) -> str:
    """`NET/AWS Libfabric/0/GDRDMA` without the number of the device."""
    return f"{_NUMBERED.sub('', text)}/GDRDMA" if text.endswith("/GDRDMA") else _NUMBERED.sub("", text)
