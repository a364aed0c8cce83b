"""Checks of a builder before a build, within five seconds and with a separate message for each fault.

buildx reports any fault of a connection as `context deadline exceeded`, after 20 seconds. These checks
therefore connect to the address themselves, and then ask BuildKit with a limit of time.
"""

import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from bakehouse.engine import daemon_info
from bakehouse.engine.buildx_builders import (
    DOCKER,
    REMOTE,
    Builder,
    BuilderNode,
    Program,
    find_builder,
    read_workers,
)
from bakehouse.engine.daemon_info import UnavailableDaemon, run_program
from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util.deadline import OverdueError, bounded, remaining
from bakehouse.util.oci import PLATFORM

SECONDS = 5.0
OLDEST_BUILDKIT = (0, 11)
"""The first version with SOURCE_DATE_EPOCH; Docker Engine 24 contains it."""
_SOCKETS = ("tcp", "unix")
"""Endpoints that these checks connect to; buildx reaches others through a program, such as kubectl."""


@dataclass(frozen=True, slots=True)
class BuilderCheck:
    """Result of one check of a builder."""

    name: str
    detail: str
    fault: Diagnostic | None = None
    hint: str = ""
    """How to find a fact out that the builder does not report; empty if it does."""


def preflight(
    name: str,
    *,
    environment: Mapping[str, str] = os.environ,
    run: Program = run_program,
    seconds: float = SECONDS,
) -> tuple[BuilderCheck, ...]:
    """Return the checks of a builder; a fault ends the checks of its node.

    Raises UsageError for an unknown name.
    """
    until = time.monotonic() + seconds
    builder = find_builder(name, environment, run)
    nodes = ", ".join(node.endpoint for node in builder.nodes)
    definition = BuilderCheck("builder", f"{name}, driver {builder.driver}: {nodes}")
    with ThreadPoolExecutor(len(builder.nodes) or 1) as pool:
        checks = list(pool.map(lambda node: tuple(_node_checks(builder, node, run, until)), builder.nodes))
    results = [definition, *(check for of_node in checks for check in of_node)]
    if not any(check.fault for check in results):
        results += _worker_checks(builder, run, until)
    return tuple(results)


def require_builder(
    name: str, environment: Mapping[str, str] = os.environ, run: Program = run_program
) -> None:
    """Raise EngineError with the faults of a builder."""
    checks = preflight(name, environment=environment, run=run)
    if faults := [check.fault for check in checks if check.fault]:
        raise EngineError.of(*faults)


def is_own_engine(name: str, environment: Mapping[str, str] = os.environ, run: Program = run_program) -> bool:
    """Return whether a builder is the engine that the docker client uses without a builder."""
    if find_builder(name, environment, run).driver != DOCKER:
        return False
    host = ("--format", "{{.Endpoints.docker.Host}}")
    own, other = run("docker", "context", "inspect", *host), run("docker", "context", "inspect", name, *host)
    return own.code == 0 and own.out == other.out


def _node_checks(builder: Builder, node: BuilderNode, run: Program, until: float) -> Iterator[BuilderCheck]:
    """Yield the checks of one node, up to its first fault."""
    try:
        if builder.driver == DOCKER:
            yield _engine_check(node, run, until)
        elif builder.driver == REMOTE and urlsplit(node.endpoint).scheme in _SOCKETS:
            _connect(node, until).close()
            yield BuilderCheck(f"node {node.name}", f"accepts connections at {_address(node)}")
    except EngineError as error:
        yield BuilderCheck(f"node {node.name}", "", error.diagnostics[0])
    except OverdueError:
        message = f"builder node `{node.name}` does not answer in time"
        yield BuilderCheck(f"node {node.name}", "", Diagnostic(message, hint="restart BuildKit there"))


def _engine_check(node: BuilderNode, run: Program, until: float) -> BuilderCheck:
    """Check a docker engine: only the containerd store can export images to other machines."""
    client = partial(run, "docker", "--context", node.endpoint, seconds=remaining(until))
    daemon = daemon_info.probe(client)
    if isinstance(daemon, UnavailableDaemon):
        hint = f"check `docker --context {node.endpoint} info`"
        raise EngineError.of(daemon_info.unavailable(daemon, hint))
    own = run("docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
    if not daemon.containerd_store and own.out.strip() != daemon.endpoint:
        raise EngineError(
            f"the engine of builder `{node.name}` cannot export images without a containerd store",
            hint='set {"features": {"containerd-snapshotter": true}} in its daemon.json and restart it',
        )
    return BuilderCheck(f"node {node.name}", f"Docker {daemon.version} at {daemon.endpoint}")


def _address(node: BuilderNode) -> str:
    url = urlsplit(node.endpoint)
    return url.path if url.scheme == "unix" else url.netloc


def _connect(node: BuilderNode, until: float) -> socket.socket:
    url, address = urlsplit(node.endpoint), _address(node)
    try:
        if url.scheme == "unix":
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(remaining(until))
            try:
                client.connect(url.path)
            except OSError:
                client.close()
                raise
            return client
        # Looking up a name has no time-out of its own.
        limit = remaining(until) * 0.9
        return bounded(lambda: socket.create_connection((url.hostname, url.port or 0), limit), until)
    except socket.gaierror as error:
        message = f"the host name of builder node `{node.name}` is unknown: `{url.hostname}`"
        raise _fault(message, "correct the endpoint, or check the DNS server and the VPN") from error
    except ConnectionRefusedError as error:
        message = f"builder node `{node.name}` does not run: nothing listens at `{address}`"
        raise _fault(message, "start BuildKit there, or correct the endpoint") from error
    except (TimeoutError, OverdueError) as error:
        message = f"builder node `{node.name}` is unreachable: `{address}` does not answer"
        raise _fault(message, f"open TCP port {url.port} in firewalls and security groups") from error
    except FileNotFoundError as error:
        message = f"builder node `{node.name}` does not run: socket `{address}` does not exist"
        raise _fault(message, "start BuildKit there, or correct the endpoint") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"builder node `{node.name}` is unreachable at `{address}`: {reason}"
        raise _fault(message, "check the route to the builder") from error
    except ValueError as error:
        # A port above 65535, or a part of a host name with more than 63 characters
        message = f"the endpoint of builder node `{node.name}` is invalid: `{node.endpoint}`"
        hint = "create the builder again with `tcp://HOST:PORT` or `unix://PATH`"
        raise _fault(message, hint) from error


def _worker_checks(builder: Builder, run: Program, until: float) -> Iterator[BuilderCheck]:
    """Yield the facts that BuildKit reports: version, platforms, limit of the cache."""
    try:
        output = run("docker", "buildx", "inspect", builder.name, seconds=remaining(until))
    except OverdueError:
        output = daemon_info.ProgramResult(124, "")
    if output.code:
        message = f"builder `{builder.name}` does not answer"
        detail = output.err.strip().removeprefix("ERROR: ")
        hint = f"check its port and certificates with `docker buildx inspect {builder.name}`"
        fault = _fault(message, hint, detail).diagnostics[0]
        yield BuilderCheck("BuildKit", "", fault)
        return
    for node, worker in zip(builder.nodes, read_workers(output.out), strict=False):
        if worker.error:
            message = f"BuildKit of builder node `{node.name}` failed"
            hint = f"run `docker buildx inspect {builder.name}`"
            yield BuilderCheck("BuildKit", "", _fault(message, hint, worker.error).diagnostics[0])
        elif worker.status != "running":
            detail = f"node {node.name} is {worker.status or 'not started'}; the first build starts it"
            start = f"run `docker buildx inspect --bootstrap {builder.name}` to start it now"
            yield BuilderCheck("BuildKit", detail, hint=start)
        else:
            yield _version_check(node, worker.version)
            yield _platform_check(node, worker.platforms)
            limit = f"limited to {worker.cache_limit}" if worker.cache_limit else "without a known limit"
            detail = f"{limit}; BuildKit does not report its free disk space"
            yield BuilderCheck("build cache", detail, hint="run `df` on the builder's machine")


def _version_check(node: BuilderNode, version: str) -> BuilderCheck:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    number = (int(match[1]), int(match[2])) if match else (0, 0)
    if number == (0, 0):
        # A package of a distribution may be built without the version.
        detail, oldest = f"node {node.name} does not report its version", ".".join(map(str, OLDEST_BUILDKIT))
        return BuilderCheck("BuildKit", detail, hint=f"check that it is {oldest} or newer")
    if number < OLDEST_BUILDKIT:
        oldest = ".".join(map(str, OLDEST_BUILDKIT))
        message = f"BuildKit {version} of builder node `{node.name}` is too old"
        return BuilderCheck(
            "BuildKit", "", _fault(message, f"install BuildKit {oldest} or newer").diagnostics[0]
        )
    return BuilderCheck("BuildKit", version)


def _platform_check(node: BuilderNode, platforms: tuple[str, ...]) -> BuilderCheck:
    if PLATFORM in platforms:
        return BuilderCheck("platform", PLATFORM)
    message = f"builder node `{node.name}` cannot build for {PLATFORM}"
    hint = f"use a builder on a {PLATFORM} machine; it builds for {', '.join(platforms) or 'no platform'}"
    return BuilderCheck("platform", "", _fault(message, hint).diagnostics[0])


def _fault(message: str, hint: str, answer: str = "") -> EngineError:
    facts = (("answer", " ".join(answer.split())),) if answer else ()
    return EngineError(message, facts=facts, hint=hint)
