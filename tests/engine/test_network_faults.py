"""Network faults, and errors of machines that do not support them."""

import os
from pathlib import Path

import pytest

from bakehouse.cli.diagnostics import failure_text
from bakehouse.engine import network_faults
from bakehouse.errors import BakehouseError, EngineError, UsageError
from tests.support import fake_commands

CAN = {"tc": "", "iptables": "", "nsenter": "", "unshare": 'shift; exec "$@"'}


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def error_message(error: type[BakehouseError], netem: str = "", *, cuts: bool = False) -> str:
    with pytest.raises(error) as caught:
        network_faults.require(netem, cuts=cuts)
    return failure_text(caught.value.diagnostics[0])


def test_a_kernel_without_netem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "echo 'Error: Specified qdisc kind is unknown.' >&2; exit 2"
    fake_commands.put(tmp_path, monkeypatch, **{**CAN, "tc": says})

    assert error_message(EngineError, "delay 100ms") == (
        "error: this machine does not support `local.netem`: its kernel has no netem (CONFIG_NET_SCH_NETEM)\n"
        "\n"
        "hint: try `modprobe sch_netem`, or use another machine\n"
    )


def test_words_that_tc_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "echo 'What is \"much\"?' >&2; echo 'Usage: …' >&2; exit 1"
    fake_commands.put(tmp_path, monkeypatch, **{**CAN, "tc": says})

    assert error_message(UsageError, "much") == (
        'error: `tc` rejects the value of `local.netem`: What is "much"?\n'
        "\n"
        "hint: use for example `delay 100ms loss 1%`; `man tc-netem` lists all options\n"
    )


def test_a_kernel_that_filters_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "echo 'iptables: Failed to initialize nft: Protocol not supported' >&2; exit 1"
    fake_commands.put(tmp_path, monkeypatch, **{**CAN, "iptables": says})

    assert error_message(EngineError, cuts=True) == (
        "error: this machine does not support `--partition`: iptables: Failed to initialize nft: Protocol not"
        " supported\n"
        "\n"
        "hint: use `--kill`, which has no requirements\n"
    )


def test_a_machine_without_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_commands.only(tmp_path, monkeypatch, nsenter="", unshare="")

    assert error_message(EngineError, "delay 1ms") == (
        "error: this machine does not support `local.netem`: `tc` is not installed\n"
        "\n"
        "hint: install the Debian package `iproute2`\n"
    )


def test_a_user_who_is_not_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_commands.put(tmp_path, monkeypatch, **CAN)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert error_message(EngineError, cuts=True) == (
        "error: this machine does not support `--partition`: only root can enter network namespaces\n"
        "\n"
        "hint: run the command as root\n"
    )


def test_nothing_is_needed_where_nothing_is_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_commands.only(tmp_path, monkeypatch)

    network_faults.require("", cuts=False)


def test_it_is_done_in_the_namespace_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_commands.put(tmp_path, monkeypatch, nsenter=f'echo "$@" >> {tmp_path}/asked')

    network_faults.impair_network(os.getpid(), "delay 100ms loss 1%")
    network_faults.block_addresses(os.getpid(), ["10.0.0.2", "10.0.0.3"])
    network_faults.block_addresses(0, ["10.0.0.2"])

    entered = f"--target {os.getpid()} --net"
    assert (tmp_path / "asked").read_text() == (
        f"{entered} tc qdisc add dev eth0 root netem delay 100ms loss 1%\n"
        f"{entered} iptables --wait -A INPUT -s 10.0.0.2 -j DROP\n"
        f"{entered} iptables --wait -A INPUT -s 10.0.0.3 -j DROP\n"
    )


def test_a_living_host_that_cannot_be_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_commands.put(tmp_path, monkeypatch, nsenter="echo no such device >&2; exit 1")

    with pytest.raises(EngineError) as caught:
        network_faults.impair_network(os.getpid(), "delay 1ms")

    assert failure_text(caught.value.diagnostics[0]) == (
        "error: could not inject a network fault\n  answer  no such device\n"
    )
