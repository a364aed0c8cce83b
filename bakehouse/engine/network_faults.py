"""Disturbs the network of a running container: delay and loss, and addresses that no longer get through.

It is done from this machine, in the container's own namespace, so images need no tools for it. Packets that
are refused vanish, as a security group lets them: nobody is told.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from bakehouse.errors import BakehouseError, Diagnostic, EngineError, UsageError

_UNKNOWN_QDISC = "Specified qdisc kind is unknown"
_INTERFACE = "eth0"
"""What the engine calls it in every container on a network."""
_TRIED_ADDRESS = "192.0.2.1"
"""Of no machine: for documentation (RFC 5737)."""
_TOOLS = {"tc": "iproute2", "iptables": "iptables", "nsenter": "util-linux", "unshare": "util-linux"}


def require(netem: str, *, cuts: bool) -> None:
    """That this machine can do what is asked for, tried in a namespace of its own before a job starts.

    Raises UsageError for words that `tc` doesn't take, EngineError for what the machine lacks.
    """
    if netem:
        try:
            shlex.split(netem)
        except ValueError as error:
            message = f"`--netem` can't be parted into words: {error}"
            raise UsageError(Diagnostic(message, hint="such as `delay 100ms loss 1%`")) from error
        _try("--netem", _netem(netem, "lo"))
    if cuts:
        _try("--partition", _refusing(_TRIED_ADDRESS))


def impair_network(process: int, netem: str) -> None:
    """Delay and lose what the network of a process sends."""
    _inside(process, _netem(netem, _INTERFACE))


def refuse(process: int, addresses: Collection[str]) -> None:
    """Let nothing from these addresses into the network of a process."""
    for address in addresses:
        _inside(process, _refusing(address))


def _netem(words: str, interface: str) -> list[str]:
    return ["tc", "qdisc", "add", "dev", interface, "root", "netem", *shlex.split(words)]


def _refusing(address: str) -> list[str]:
    return ["iptables", "--wait", "-A", "INPUT", "-s", address, "-j", "DROP"]


def _try(option: str, command: Sequence[str]) -> None:
    for tool in (command[0], "nsenter", "unshare"):
        if shutil.which(tool) is None:
            raise _lacking(option, f"there is no `{tool}`", f"install Debian's package `{_TOOLS[tool]}`")
    if os.geteuid() != 0:
        raise _lacking(option, "it enters the hosts' network namespaces", "run it as root")
    told = subprocess.run(["unshare", "--net", *command], capture_output=True, text=True)
    said = told.stderr.strip() or f"`{command[0]}` ended with {told.returncode}"
    if told.returncode and said.startswith("unshare:"):
        raise _lacking(option, said.splitlines()[0], "it takes CAP_SYS_ADMIN and CAP_NET_ADMIN")
    if _UNKNOWN_QDISC in said:
        why = "its kernel has no netem (CONFIG_NET_SCH_NETEM)"
        raise _lacking(
            option, why, "`modprobe sch_netem` where the kernel has it as a module, or another machine"
        )
    if told.returncode and command[0] == "tc":
        line = said.splitlines()[0]
        hint = "such as `delay 100ms loss 1%`; `man tc-netem` has them all"
        raise UsageError(Diagnostic(f"`tc` does not take `--netem`: {line}", hint=hint))
    if told.returncode:
        raise _lacking(option, said.splitlines()[-1], "`--kill` needs nothing of the machine")


def _lacking(option: str, why: str, hint: str) -> BakehouseError:
    return EngineError(Diagnostic(f"this machine can't do `{option}`: {why}", hint=hint))


def _inside(process: int, command: Sequence[str]) -> None:
    if not process:
        return
    told = subprocess.run(
        ["nsenter", "--target", str(process), "--net", *command], capture_output=True, text=True
    )
    # A host that ended meanwhile has no network to be disturbed.
    if told.returncode and Path(f"/proc/{process}").exists():
        message = "can't disturb the network of a host"
        raise EngineError(Diagnostic(message, facts=(("answer", " ".join(told.stderr.split())),)))
