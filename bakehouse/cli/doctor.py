"""The `doctor` task: checks what this machine has, and names the features that missing things affect."""

import os
import re
import shutil
import ssl
import sys
import textwrap
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bakehouse.engine import daemon_info, dockerd, provision
from bakehouse.engine.apt_install import mirrors
from bakehouse.engine.daemon_info import Daemon, Feature, ProgramResult, UnavailableDaemon
from bakehouse.engine.dockerd import DaemonPaths
from bakehouse.errors import BakehouseError, Diagnostic, EngineError
from bakehouse.fetch.connection import redacted

WIDTH = 108
SECONDS = 5
GIGABYTE = 10**9
FLEET_GIGABYTES = 20
"""Twice the bytes of the catalogue's four images: the engine's store keeps each layer packed and unpacked."""


class State(StrEnum):
    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    name: str
    state: State
    detail: str
    cost: str = ""
    """Effect on the user if it is missing or unknown."""
    hint: str = ""


def examine(
    project: Path,
    identity: Callable[[], str],
    *,
    ca: Path | None = None,
    registries: Sequence[str] = (),
    engine: Daemon | UnavailableDaemon | None = None,
) -> tuple[Finding, ...]:
    """Return all findings, in pipeline order. `identity` returns the AWS identity or raises."""
    engine = engine or daemon_info.probe()
    with ThreadPoolExecutor() as pool:
        registry = [pool.submit(_ask_registry, host) for host in registries or default_registries(engine)]
        aws = pool.submit(aws_finding, identity)
        pip = pool.submit(daemon_info.run_program, sys.executable, "-m", "pip", "config", "list")
        gpus = pool.submit(
            daemon_info.run_program, "nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"
        )
        return (
            *engine_findings(engine, _engine_hint(engine)),
            *bridge_finding(engine),
            *_room(engine, project),
            *tool_findings(provision.read_host_info().tools),
            gpu_finding(gpus.result(), engine),
            *[future.result() for future in registry],
            aws.result(),
            ca_finding(ca, os.environ),
            pip_finding(pip.result()),
            apt_finding(mirrors()),
        )


def require_complete(findings: Iterable[Finding]) -> None:
    """Raise EngineError if something is missing."""
    missing = [finding.name for finding in findings if finding.state is State.MISSING]
    if missing:
        raise EngineError(Diagnostic(f"missing: {', '.join(missing)}"))


def text(findings: Iterable[Finding], width: int = WIDTH) -> str:
    """Format findings as aligned lines, each with its cost and hint below."""
    findings = tuple(findings)
    names = max((len(finding.name) for finding in findings), default=0)
    margin = " " * (names + 11)
    lines: list[str] = []
    for finding in findings:
        head = f"{finding.state:<9}{finding.name:<{names}}  "
        lines += textwrap.wrap(finding.detail, width, initial_indent=head, subsequent_indent=margin)
        for word, value in (("cost: ", finding.cost), ("hint: ", finding.hint)):
            indent = margin + " " * len(word)
            lines += textwrap.wrap(value, width, initial_indent=margin + word, subsequent_indent=indent)
    count = {state: sum(finding.state is state for finding in findings) for state in State}
    return "\n".join([*lines, "", ", ".join(f"{number} {state}" for state, number in count.items())]) + "\n"


def engine_findings(engine: Daemon | UnavailableDaemon, hint: str = "") -> tuple[Finding, ...]:
    """Return findings about the engine and each of its features."""
    if isinstance(engine, UnavailableDaemon):
        problem = daemon_info.unavailable(engine, hint)
        cost = "nothing can be built, smoke-tested or pushed; list, resolve, explain, plan and render work"
        return (Finding("engine", State.MISSING, problem.message, cost, problem.hint),)
    has = {
        Feature.LOCAL: ("engine's machine", "this one"),
        Feature.PLATFORM: ("engine's platform", engine.platform),
        Feature.ROOTFUL: ("engine's rights", "root"),
        Feature.CONTAINERD_STORE: ("engine's store", f"containerd image store ({engine.store})"),
        Feature.BRIDGE: ("engine's network", f"default bridge, gateway {engine.bridge}"),
        Feature.BUILDX: ("buildx", engine.buildx or ""),
    }
    missing = {lack.feature: lack for lack in daemon_info.missing_features(engine)}
    detail = f"Docker {engine.version} at {engine.endpoint}, data in {engine.data_root}"
    findings = [Finding("engine", State.OK, detail)]
    for feature, (name, value) in has.items():
        if lack := missing.get(feature):
            findings.append(Finding(name, State.MISSING, lack.message, lack.effect, lack.hint))
        else:
            findings.append(Finding(name, State.OK, value))
    return tuple(findings)


def bridge_finding(
    engine: Daemon | UnavailableDaemon, interfaces: Path = dockerd.INTERFACES
) -> tuple[Finding, ...]:
    """Return whether the bridge of a local engine keeps its address; empty if that is not visible."""
    if isinstance(engine, UnavailableDaemon) or engine.remote or engine.rootless or not engine.interface:
        return ()
    if not (interfaces / engine.interface).is_dir():
        return ()
    name = "engine's bridge"
    address = dockerd.loose_address(engine.interface, interfaces)
    if not address:
        return (Finding(name, State.OK, f"{engine.interface} keeps its address"),)
    detail = f"the address of {engine.interface} changes when a container starts or stops"
    cost = "downloads of other build steps and containers then stall for a minute or more"
    hint = f"run `{' '.join(dockerd.address_command(engine.interface, address))}` as root"
    return (Finding(name, State.MISSING, detail, cost, hint),)


def cache_finding(limit: str | None) -> Finding:
    """Return a finding about the limit of the build cache: "" for no limit, None if unknown."""
    name = "build cache"
    if limit:
        return Finding(name, State.OK, f"limited to {limit}")
    if limit is None:
        cost = "the cache may be deleted too early, which repeats builds, or never"
        return Finding(name, State.UNKNOWN, "this engine does not report its limit", cost)
    cost = "the build cache grows until the disk is full"
    hint = 'add {"builder": {"gc": {"enabled": true, "defaultKeepStorage": "40GB"}}} to its daemon.json'
    return Finding(name, State.MISSING, "the engine's configuration sets no limit", cost, hint)


def disk_finding(directory: Path, free: int) -> Finding:
    """Return whether the disk has room for the images of the catalogue."""
    detail = f"{free / GIGABYTE:.0f} GB free for {directory}"
    if free >= FLEET_GIGABYTES * GIGABYTE:
        return Finding("disk", State.OK, detail)
    need = f"four images of the catalogue need about {FLEET_GIGABYTES} GB"
    cost = f"{need}; a build that does not fit is refused"
    return Finding("disk", State.MISSING, detail, cost, "run `docker builder prune` and `docker image prune`")


def tool_findings(installed: Sequence[str]) -> tuple[Finding, ...]:
    """Return findings about programs of Debian packages."""
    costs = {
        "mmdebstrap": "Debian bases cannot be created, so only images on vendor bases can be built",
        "docker-registry": "the local registry needs the `registry` image of an image registry",
    }
    return tuple(
        Finding(tool, State.OK, "installed")
        if tool in installed
        else Finding(tool, State.MISSING, "not installed", cost, f"apt-get install {tool}")
        for tool, cost in costs.items()
    )


def gpu_finding(reply: ProgramResult, engine: Daemon | UnavailableDaemon) -> Finding:
    """Return the GPUs that nvidia-smi lists, and whether containers can use them."""
    cost = "NCCL is not tested: smoke checks run on the CPU, through gloo"
    if reply.code == 127:
        return Finding("GPUs", State.MISSING, "none: nvidia-smi is not installed", cost)
    cards = [line.rpartition(",") for line in reply.out.splitlines() if "," in line]
    if reply.code != 0 or not cards:
        output = " ".join((reply.out + reply.err).split()) or "nvidia-smi lists none"
        return Finding("GPUs", State.MISSING, output, cost)
    kinds = {name: [card[0] for card in cards].count(name) for name, _, _ in cards}
    detail = ", ".join(f"{count} x {name}" for name, count in kinds.items()) + f", driver{cards[0][2]}"
    if isinstance(engine, UnavailableDaemon) or "nvidia" in engine.runtimes:
        return Finding("GPUs", State.OK, detail)
    hint = "install nvidia-container-toolkit, run `nvidia-ctk runtime configure` and restart the engine"
    return Finding("GPUs", State.MISSING, f"{detail}; the engine has no nvidia runtime", cost, hint)


def default_registries(engine: Daemon | UnavailableDaemon) -> tuple[str, ...]:
    """Return the host of the engine's default registry."""
    host = urllib.parse.urlsplit(engine.registry).hostname if isinstance(engine, Daemon) else None
    return (host,) if host else ()


def registry_finding(host: str, reply: ProgramResult) -> Finding:
    """Return whether an image registry answers. `reply` has the HTTP status as code, the headers as out."""
    # A proxy may answer for any host: only 200 and 401 with a registry's headers count.
    if reply.code in (200, 401) and re.search(r"(?mi)^(docker-distribution|www-authenticate)", reply.out):
        return Finding("image registry", State.OK, f"{host} answers")
    why = reply.err or f"HTTP {reply.code}, which is not a registry's answer"
    cost = "images with a base from there cannot be built; images on a bootstrapped Debian base can"
    return Finding("image registry", State.MISSING, f"{host} is not reachable: {why}", cost)


def aws_finding(identity: Callable[[], str]) -> Finding:
    """Return the AWS identity of this machine."""
    cost = "nothing can be pushed to Amazon ECR; the local registry works"
    try:
        return Finding("AWS identity", State.OK, identity())
    except BakehouseError as error:
        first = error.diagnostics[0]
        return Finding("AWS identity", State.MISSING, first.message, cost, first.hint)


def ca_finding(ca: Path | None, environment: Mapping[str, str]) -> Finding:
    """Return the CA bundle for HTTPS."""
    name = "CA bundle"
    variables = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    named = next((environment[key] for key in variables if environment.get(key)), None)
    path = ca or Path(named or ssl.get_default_verify_paths().openssl_cafile)
    cost = "downloads through a proxy with its own certificates fail, here and in RUN steps"
    hint = "set `ca` in [tool.bakehouse] to your company's bundle, or install ca-certificates"
    try:
        count = path.read_text(errors="replace").count("-----BEGIN CERTIFICATE-----")
    except OSError as error:
        return Finding(name, State.MISSING, f"{path}: {error.strerror}", cost, hint)
    if not count:
        return Finding(name, State.MISSING, f"{path} contains no certificate", cost, hint)
    return Finding(name, State.OK, f"{path}, {count} certificates")


def pip_finding(reply: ProgramResult) -> Finding:
    """Return the indexes and wheel directories of pip's configuration."""
    settings = dict(re.findall(r"(?m)^[^.\n]*\.([a-z-]+)='(.*)'$", reply.out))
    words = {"index-url": "index", "extra-index-url": "extra index", "find-links": "wheels in"}
    named = [f"{word} {_without_secrets(settings[key])}" for key, word in words.items() if settings.get(key)]
    if reply.code != 0:
        cost = "the source of Python packages is unknown"
        return Finding("pip", State.UNKNOWN, "`pip config list` failed", cost)
    return Finding("pip", State.OK, "; ".join(named) or "its default index, no mirror configured")


def apt_finding(named: Sequence[str]) -> Finding:
    """Return the mirrors of apt's configuration."""
    if named:
        return Finding("apt", State.OK, f"mirrors {_without_secrets(' '.join(named))}")
    cost = "Debian bases and tools cannot be installed"
    return Finding("apt", State.MISSING, "apt's configuration names no mirror", cost)


def _engine_hint(engine: Daemon | UnavailableDaemon) -> str:
    if isinstance(engine, Daemon):
        return ""
    refusal = provision.refusal(engine, provision.read_host_info(), DaemonPaths())
    return (
        refusal.hint
        if refusal
        else "the first task that needs an engine installs what is missing and starts it"
    )


def _room(engine: Daemon | UnavailableDaemon, project: Path) -> tuple[Finding, ...]:
    if isinstance(engine, UnavailableDaemon):
        return (disk_finding(project, shutil.disk_usage(project).free),)
    limit = cache_finding(None if engine.remote else dockerd.configured_cache_limit(engine.endpoint))
    if engine.remote:
        detail = "the free space on a remote engine's disk is unknown"
        return (limit, Finding("disk", State.UNKNOWN, detail, "a build may fill the engine's disk"))
    directory = Path(engine.data_root)
    return (limit, disk_finding(directory, shutil.disk_usage(directory).free))


def _ask_registry(host: str) -> Finding:
    try:
        with urllib.request.urlopen(f"https://{host}/v2/", timeout=SECONDS) as response:
            reply = ProgramResult(response.status, str(response.headers))
    except urllib.error.HTTPError as error:
        with error:
            reply = ProgramResult(error.code, str(error.headers))
    except OSError as error:
        reply = ProgramResult(0, "", str(getattr(error, "reason", error)))
    return registry_finding(host, reply)


def _without_secrets(urls: str) -> str:
    return " ".join(map(redacted, urls.split()))
