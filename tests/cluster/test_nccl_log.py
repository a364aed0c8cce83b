"""Transports in NCCL's log."""

import pytest

from bakehouse.cluster.nccl_log import Transports, read_transports

EFA = """\
NCCL version 2.27.5+cuda12.8
algo-1:42:99 [0] NCCL INFO Using network AWS Libfabric
algo-1:42:99 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [receive] via NET/AWS Libfabric/0/GDRDMA
algo-1:42:99 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
"""
TCP = """\
algo-1:42:99 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.
algo-1:42:99 [0] NCCL INFO Using network Socket
algo-1:42:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/1
"""


def test_efa_is_reported_with_gpudirect() -> None:
    assert read_transports([EFA]) == Transports(
        "2.27.5", ("AWS Libfabric",), ("NET/AWS Libfabric/GDRDMA", "P2P/CUMEM/read")
    )
    assert not read_transports([EFA]).uses_sockets


def test_the_silent_fallback_is_seen() -> None:
    assert read_transports([EFA, TCP]).uses_sockets


def test_one_host_that_would_use_sockets_and_needs_no_network_does_not_fall_back() -> None:
    alone = TCP.replace("NET/Socket/1", "SHM/direct/direct")

    assert read_transports([alone]) == Transports("", ("Socket",), ("SHM/direct/direct",))
    assert not read_transports([alone]).uses_sockets


@pytest.mark.parametrize("log", ["", "no NCCL here\n", "NCCL INFO Bootstrap: Using eth0\n"])
def test_a_log_without_transports_gives_none(log: str) -> None:
    assert not read_transports([log])
