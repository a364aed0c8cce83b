"""Blocks the metadata services of clouds, which give credentials of the machine, for containers of a network.

A rule of the kernel's routing refuses connections from the network's bridge to link-local addresses. It needs
no firewall and no program in the container, and holds before the first container starts. Name servers with
such addresses still answer, because only TCP is refused.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bakehouse.engine.dockerd import program_path
from bakehouse.util.process import MISSING_PROGRAM

_TARGETS = {"-4": "169.254.0.0/16", "-6": "fd00:ec2::/32"}
_INTERFACES = Path("/sys/class/net")
_ROOTLESS = "dockerd-rootless/child_pid"
"""File next to the socket of a rootless engine: the process whose network namespace has its bridges."""


@contextlib.contextmanager
def blocked(network: str, socket: Path, interfaces: Path = _INTERFACES) -> Iterator[str]:
    """Block metadata services for the network with this id; yield why that failed, or an empty text.

    `socket` is that of the engine.
    """
    bridge = f"br-{network[:12]}"
    namespace = _namespace(bridge, socket, interfaces)
    if isinstance(namespace, str):
        yield namespace
        return
    rules = [_rule(version, bridge) for version in _TARGETS]
    problems = [_run((*namespace, *_changed(rule, "add"))) for rule in rules]
    try:
        # Without IPv6, there is nothing to block.
        yield problems[0]
    finally:
        for rule in rules:
            _run((*namespace, *_changed(rule, "del")))


def remove_leftovers(socket: Path, interfaces: Path = _INTERFACES) -> None:
    """Remove the rules of networks that killed runs left and that do not exist any more."""
    namespace = _namespace("", socket, interfaces)
    if isinstance(namespace, str):
        return
    for version, target in _TARGETS.items():
        for line in _done((*namespace, "ip", version, "rule", "list")).stdout.splitlines():
            words = line.split()
            if "[detached]" in words and target in words and "iif" in words:
                bridge = words[words.index("iif") + 1]
                _run((*namespace, *_changed(_rule(version, bridge), "del")))


def _rule(version: str, bridge: str) -> tuple[str, ...]:
    return (version, "rule", "iif", bridge, "to", _TARGETS[version], "ipproto", "tcp", "unreachable")


def _changed(rule: Sequence[str], change: str) -> tuple[str, ...]:
    version, kind, *selector = rule
    return ("ip", version, kind, change, *selector)


def _namespace(bridge: str, socket: Path, interfaces: Path) -> tuple[str, ...] | str:
    """Return the start of commands in the namespace that has the bridge, or why there is none."""
    with contextlib.suppress(OSError):
        process = (socket.parent / _ROOTLESS).read_text().strip()
        if process.isdecimal():
            # The engine's user is root in this namespace already; root becomes that.
            same = ("--preserve-credentials",) if os.geteuid() else ()
            return ("nsenter", *same, "--user", "--net", "--target", process, "--")
    if not (interfaces / bridge).exists():
        return "the engine's networks are not on this host"
    return () if os.geteuid() == 0 else "only root can change the routing of the engine's networks"


def _run(command: Sequence[str]) -> str:
    """Run a command; return its error, or an empty text."""
    done = _done(command)
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"`ip` exited with {done.returncode}") if done.returncode else ""


def _done(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": program_path()}
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except MISSING_PROGRAM:
        return subprocess.CompletedProcess(command, 127, "", f"`{command[0]}` is not installed")
