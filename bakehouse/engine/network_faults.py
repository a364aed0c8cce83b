"""Network faults of a running container: delay, loss and blocked addresses.

Commands run on this machine in the container's network namespace, so images need no tools. Blocked packets
are dropped without an answer, as by a security group.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from bakehouse.errors import BakehouseError, EngineError, UsageError

_UNKNOWN_QDISC = "Specified qdisc kind is unknown"
_INTERFACE = "eth0"
"""Network interface of every container on a network."""
_TEST_ADDRESS = "192.0.2.1"
"""Unused address, reserved for documentation (RFC 5737)."""
_TOOLS = {"tc": "iproute2", "iptables": "iptables", "nsenter": "util-linux", "unshare": "util-linux"}


def require(netem: str, *, cuts: bool) -> None:
    """Check that this machine can inject the requested faults, with a test in a separate namespace.

    Raises UsageError for arguments that `tc` rejects, EngineError if the machine does not support the faults.
    """
    if netem:
        try:
            shlex.split(netem)
        except ValueError as error:
            raise UsageError(
                f"`local.netem` cannot be split into words: {error}",
                hint="use for example `delay 100ms loss 1%`",
            ) from error
        _try("local.netem", _netem(netem, "lo"))
    if cuts:
        _try("--partition", _blocking(_TEST_ADDRESS))


def impair_network(process: int, netem: str) -> None:
    """Delay and drop packets that a process sends."""
    _inside(process, _netem(netem, _INTERFACE))


def block_addresses(process: int, addresses: Collection[str]) -> None:
    """Drop packets from these addresses in the network of a process."""
    for address in addresses:
        _inside(process, _blocking(address))


def _netem(options: str, interface: str) -> list[str]:
    return ["tc", "qdisc", "add", "dev", interface, "root", "netem", *shlex.split(options)]


def _blocking(address: str) -> list[str]:
    return ["iptables", "--wait", "-A", "INPUT", "-s", address, "-j", "DROP"]


def _try(option: str, command: Sequence[str]) -> None:
    for tool in (command[0], "nsenter", "unshare"):
        if shutil.which(tool) is None:
            raise _unsupported(
                option, f"`{tool}` is not installed", f"install the Debian package `{_TOOLS[tool]}`"
            )
    if os.geteuid() != 0:
        raise _unsupported(option, "only root can enter network namespaces", "run the command as root")
    result = subprocess.run(["unshare", "--net", *command], capture_output=True, text=True)
    output = result.stderr.strip() or f"`{command[0]}` exited with {result.returncode}"
    if result.returncode and output.startswith("unshare:"):
        raise _unsupported(option, output.splitlines()[0], "run with CAP_SYS_ADMIN and CAP_NET_ADMIN")
    if _UNKNOWN_QDISC in output:
        reason = "its kernel has no netem (CONFIG_NET_SCH_NETEM)"
        raise _unsupported(option, reason, "try `modprobe sch_netem`, or use another machine")
    if result.returncode and command[0] == "tc":
        raise UsageError(
            f"`tc` rejects the value of `local.netem`: {output.splitlines()[0]}",
            hint="use for example `delay 100ms loss 1%`; `man tc-netem` lists all options",
        )
    if result.returncode:
        raise _unsupported(option, output.splitlines()[-1], "use `--kill`, which has no requirements")


def _unsupported(option: str, reason: str, hint: str) -> BakehouseError:
    return EngineError(f"this machine does not support `{option}`: {reason}", hint=hint)


def _inside(process: int, command: Sequence[str]) -> None:
    if not process:
        return
    result = subprocess.run(
        ["nsenter", "--target", str(process), "--net", *command], capture_output=True, text=True
    )
    # After its exit, a container has no network.
    if result.returncode and Path(f"/proc/{process}").exists():
        raise EngineError(
            "could not inject a network fault", facts=(("answer", " ".join(result.stderr.split())),)
        )
