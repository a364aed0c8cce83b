"""The `doctor` task: checks what this machine has, and names the features that missing things affect."""

import contextlib
import os
import shutil
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.registry_settings import RegistrySettings
from bakehouse.engine import builder_preflight, daemon_info, docker, emulation, provision
from bakehouse.engine.builder_preflight import BuilderCheck
from bakehouse.engine.buildx_builders import Program
from bakehouse.engine.daemon_info import Daemon, Feature, ProgramResult, UnavailableDaemon, run_program
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.engine.gpu_devices import CDI_GPU
from bakehouse.engine.protocol import EngineHost
from bakehouse.errors import BakehouseError, EngineError
from bakehouse.fetch import pip_config
from bakehouse.fetch.connection import bundle_of, redacted
from bakehouse.fetch.debian_mirrors import DebianMirrors
from bakehouse.fetch.faults import SourceError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.publish import preflight
from bakehouse.registry import destination
from bakehouse.util.aws import Access, Aws
from bakehouse.util.deadline import OverdueError, bounded
from bakehouse.util.files import read_text
from bakehouse.util.format import format_count
from bakehouse.util.oci import PLATFORMS

WIDTH = 108
ANSWER_SECONDS = 20
"""apt may download its package lists first."""
_NO_ECR = "nothing can be pushed to Amazon ECR; the local registry works"
GIGABYTE = 10**9
FLEET_GIGABYTES = 20
"""Twice the bytes of the catalogue's four images: the engine's store keeps each layer packed and unpacked."""


class CheckState(StrEnum):
    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """Result of one check."""

    name: str
    state: CheckState
    detail: str
    cost: str = ""
    """Effect on the user; never empty if it is missing or unknown."""
    hint: str = ""
    """How to get it; never empty if it is missing or unknown."""
    needed: bool = True
    """False if the project can be locked, built and published without it."""


def examine(
    project: ProjectSettings,
    environment: Mapping[str, str] = os.environ,
    engine: Daemon | UnavailableDaemon | None = None,
    host: EngineHost | EngineError | None = None,
) -> tuple[DoctorCheck, ...]:
    """Return all findings, in pipeline order. Each `ok` is the result of a check that can fail."""
    engine = engine or daemon_info.probe()
    host = host or _engine_host(engine)
    pip = pip_config.read(environment)
    settings = project.registries.get(project.registry.partition("/")[0])
    with ThreadPoolExecutor(16) as pool:
        target = pool.submit(target_finding, lambda: _check_registries(project), project.registry)
        aws = pool.submit(aws_finding, lambda: _identity(project, settings))
        sources = pool.submit(_source_findings, project, pip, environment)
        gpus = pool.submit(
            daemon_info.run_program, "nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"
        )
        return (
            *engine_findings(engine, _engine_hint(engine)),
            *host_findings(engine, host),
            *_optional(*emulation_finding(engine), *_room(engine, host, project.root)),
            *_optional(gpu_finding(gpus.result(), engine)),
            target.result(),
            replace(aws.result(), needed=bool(project.ledger)),
            *sources.result(),
        )


def _optional(*findings: DoctorCheck) -> tuple[DoctorCheck, ...]:
    return tuple(replace(finding, needed=False) for finding in findings)


def examine_builders(names: Iterable[str]) -> tuple[DoctorCheck, ...]:
    """Return the findings of builders, within seconds. Raises UsageError for unknown names."""
    return tuple(
        builder_finding(name, check) for name in names for check in builder_preflight.preflight(name)
    )


def builder_finding(builder: str, check: BuilderCheck) -> DoctorCheck:
    """Return one check of a builder as a finding."""
    if check.fault:
        answer = "".join(f": {value}" for _, value in check.fault.facts)
        cost = f"no image can be built on {builder}"
        hint = check.fault.hint or f"run `docker buildx inspect {builder}`"
        return DoctorCheck(check.name, CheckState.MISSING, f"{check.fault.message}{answer}", cost, hint)
    if check.hint:
        cost = f"builds on {builder} may fail"
        return DoctorCheck(check.name, CheckState.UNKNOWN, check.detail, cost, check.hint)
    return DoctorCheck(check.name, CheckState.OK, check.detail)


def require_complete(findings: Iterable[DoctorCheck], *, strict: bool) -> None:
    """Raise EngineError if something that the project needs is missing, or anything if `strict`."""
    checks = (finding for finding in findings if finding.needed or strict)
    missing = [finding.name for finding in checks if finding.state is CheckState.MISSING]
    if missing:
        raise EngineError(f"missing: {', '.join(missing)}")


def text(findings: Iterable[DoctorCheck], width: int = WIDTH) -> str:
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
    count = {state: sum(finding.state is state for finding in findings) for state in CheckState}
    return "\n".join([*lines, "", ", ".join(f"{number} {state}" for state, number in count.items())]) + "\n"


def engine_findings(engine: Daemon | UnavailableDaemon, hint: str = "") -> tuple[DoctorCheck, ...]:
    """Return findings about the engine and each of its features."""
    if isinstance(engine, UnavailableDaemon):
        problem = daemon_info.unavailable(engine, hint)
        cost = "nothing can be built, smoke-tested or pushed; list, resolve, explain, plan and render work"
        return (DoctorCheck("engine", CheckState.MISSING, problem.message, cost, problem.hint),)
    has = {
        Feature.BRIDGE: ("default bridge", f"gateway {engine.bridge}, as the engine reports"),
        Feature.BUILDX: ("buildx", engine.buildx or ""),
        Feature.MEMORY_LIMIT: ("memory limits", "work"),
        Feature.CPU_LIMIT: ("limits of cores", "work"),
        Feature.NATIVE_DIFF: ("layers", "files have the order of other engines"),
    }
    missing = {lack.feature: lack for lack in daemon_info.missing_features(engine)}
    rights = f"{'rootless, ' if engine.rootless else ''}{'with SELinux, ' if engine.selinux else ''}"
    detail = f"Docker {engine.version} at {engine.endpoint}, {rights}data in {engine.data_root}"
    findings = [
        DoctorCheck("engine", CheckState.OK, detail),
        DoctorCheck("engine's platform", CheckState.OK, engine.platform),
    ]
    for feature, (name, value) in has.items():
        if lack := missing.get(feature):
            needed = feature in (Feature.BRIDGE, Feature.BUILDX)
            state = CheckState.MISSING
            findings.append(DoctorCheck(name, state, lack.message, lack.effect, lack.hint, needed))
        else:
            findings.append(DoctorCheck(name, CheckState.OK, value))
    return tuple(findings)


def emulation_finding(
    engine: Daemon | UnavailableDaemon, run: Program = run_program
) -> tuple[DoctorCheck, ...]:
    """Return whether the engine runs images for other platforms; empty without an engine."""
    if isinstance(engine, UnavailableDaemon):
        return ()
    name = "other platforms"
    _, *others = emulation.runnable_platforms(engine, run)
    if others:
        return (DoctorCheck(name, CheckState.OK, f"{', '.join(others)}, emulated", emulation.COST),)
    missing = next(platform for platform in PLATFORMS if platform != engine.platform)
    detail = f"the engine does not run {missing} programs"
    cost = f"images for {missing} cannot be built or smoke-tested"
    return (DoctorCheck(name, CheckState.MISSING, detail, cost, emulation.HINT.format(missing)),)


def host_findings(
    engine: Daemon | UnavailableDaemon, host: EngineHost | EngineError
) -> tuple[DoctorCheck, ...]:
    """Return what a container of the engine found; empty without an engine."""
    if isinstance(engine, UnavailableDaemon):
        return ()
    name = "engine's containers"
    if isinstance(host, EngineError):
        [problem] = host.diagnostics
        detail = "; ".join((problem.message, *(value for _, value in problem.facts)))
        cost = "no image can be built, tested or run"
        hint = problem.hint or "restart the engine, and check that `docker run` starts a container"
        return (DoctorCheck(name, CheckState.MISSING, detail, cost, hint),)
    kernel = "the kernel of this host" if host.same_kernel else "another kernel than this host"
    start = DoctorCheck(name, CheckState.OK, f"start, on {kernel}")
    network = DoctorCheck("engine's network", CheckState.OK, f"containers reach this host at {host.address}")
    if host.problem:
        detail = f"containers do not reach this host: {host.problem}"
        cost = "files of build steps are copied to the engine before its steps run; `rehearse` does not work"
        network = DoctorCheck(network.name, CheckState.OK, detail, cost)
    sees = "sees" if host.shares_files else "does not see"
    files = DoctorCheck("engine's files", CheckState.OK, f"it {sees} directories of this host")
    access = host.metadata_access
    metadata = DoctorCheck(
        "metadata service",
        CheckState.OK,
        f"containers reach that of the engine's machine: {access}" if access else "blocked for containers",
        "jobs can get credentials of the machine, if it is one of a cloud" if access else "",
    )
    detail = f"{engine.memory / GIGABYTE:.0f} GB of memory, {format_count(engine.cores, 'core')}"
    return start, network, metadata, files, DoctorCheck("engine's machine", CheckState.OK, detail)


def disk_finding(directory: Path | str, free: int) -> DoctorCheck:
    """Return whether the disk has room for the images of the catalogue."""
    detail = f"{free / GIGABYTE:.0f} GB free for {directory}"
    if free >= FLEET_GIGABYTES * GIGABYTE:
        return DoctorCheck("disk", CheckState.OK, detail)
    need = f"four images of the catalogue need about {FLEET_GIGABYTES} GB"
    cost = f"{need}; a build that does not fit is refused"
    return DoctorCheck(
        "disk", CheckState.MISSING, detail, cost, "run `docker builder prune` and `docker image prune`"
    )


def gpu_finding(reply: ProgramResult, engine: Daemon | UnavailableDaemon) -> DoctorCheck:
    """Return the GPUs that nvidia-smi lists, and whether containers can use them."""
    cost = "NCCL is not tested: smoke checks run on the CPU, through gloo"
    hint = "install NVIDIA's driver if this machine has GPUs; otherwise test with `bake smoke --on`"
    if reply.code == 127:
        return DoctorCheck("GPUs", CheckState.MISSING, "none: nvidia-smi is not installed", cost, hint)
    cards = [line.rpartition(",") for line in reply.out.splitlines() if "," in line]
    if reply.code != 0 or not cards:
        output = " ".join((reply.out + reply.err).split()) or "nvidia-smi lists none"
        return DoctorCheck("GPUs", CheckState.MISSING, output, cost, hint)
    kinds = {name: [card[0] for card in cards].count(name) for name, _, _ in cards}
    detail = ", ".join(f"{count} x {name}" for name, count in kinds.items()) + f", driver{cards[0][2]}"
    if isinstance(engine, UnavailableDaemon) or "nvidia" in engine.runtimes:
        return DoctorCheck("GPUs", CheckState.OK, detail)
    if not engine.cdi_directories:
        hint = "install nvidia-container-toolkit, run `nvidia-ctk runtime configure` and restart the engine"
        lack = "the engine has neither the nvidia runtime nor CDI"
        return DoctorCheck("GPUs", CheckState.MISSING, f"{detail}; {lack}", cost, hint)
    if _names_gpus(engine.cdi_directories):
        return DoctorCheck("GPUs", CheckState.OK, f"{detail}, through CDI")
    places = " or ".join(engine.cdi_directories)
    hint = "run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
    lack = f"no CDI specification in {places} names `{CDI_GPU}`"
    return DoctorCheck("GPUs", CheckState.MISSING, f"{detail}; {lack}", cost, hint)


def _names_gpus(directories: Iterable[str]) -> bool:
    """Return whether a CDI specification has NVIDIA's GPUs."""
    for path in (path for directory in directories for path in sorted(Path(directory).glob("*"))):
        with contextlib.suppress(OSError):
            if path.suffix in (".json", ".yaml") and CDI_GPU in read_text(path, errors="replace"):
                return True
    return False


def target_finding(ask: Callable[[], str], name: str) -> DoctorCheck:
    """Return whether the registry of the project's settings accepts its login."""
    hint = "run `bake push --registry NAME` for another registry"
    return _asked("registry", ask, f"nothing can be pushed to `{name}`", hint)


def aws_finding(ask: Callable[[], str]) -> DoctorCheck:
    """Return the AWS identity of this machine."""
    return _asked("AWS identity", ask, _NO_ECR, "log in, such as with `aws sso login`, or set AWS_PROFILE")


def _asked(name: str, ask: Callable[[], str], cost: str, hint: str) -> DoctorCheck:
    """Return the answer to a question as a finding; after an error, it is missing."""
    try:
        return DoctorCheck(name, CheckState.OK, bounded(ask, time.monotonic() + ANSWER_SECONDS))
    except BakehouseError as error:
        first = error.diagnostics[0]
        reasons = (*(reason.text for reason in first.reasons), *(value for _, value in first.facts))
        detail = "; ".join((first.message, *reasons))
        return DoctorCheck(name, CheckState.MISSING, detail, cost, first.hint or hint)
    except SourceError as error:
        return DoctorCheck(name, CheckState.MISSING, error.reason, cost, hint)
    except OverdueError:
        return DoctorCheck(name, CheckState.MISSING, f"no answer within {ANSWER_SECONDS} s", cost, hint)


def _check_registries(project: ProjectSettings) -> str:
    destination.check_selection(project, "")
    return ", ".join(preflight.check_login(registry) for registry in destination.registries(project, ""))


def _access(settings: RegistrySettings | None) -> Access:
    if settings is None:
        return Access()
    return Access(settings.profile, settings.role, settings.fips, settings.dual_stack)


def _identity(project: ProjectSettings, settings: RegistrySettings | None) -> str:
    """Return the authenticated identity. Unlike `principal` of a registry, this can fail."""
    region = settings.regions[0] if settings and settings.regions else project.region
    return Aws(region, _access(settings)).principal()


def _source_findings(
    project: ProjectSettings, pip: PipConfig, environment: Mapping[str, str]
) -> tuple[DoctorCheck, ...]:
    certificates, faults = None, []
    try:
        certificates = bundle_of(project.ca, pip, environment)
    except EngineError as error:
        [fault] = error.diagnostics
        cost = "downloads through a proxy with its own certificates fail, here and in RUN steps"
        faults.append(DoctorCheck("CA bundle", CheckState.MISSING, fault.message, cost, fault.hint))
    config = DownloadConfig(project.mirrors, pip, certificates, environment, project.debian_mirrors)
    with ThreadPoolExecutor(8) as pool:
        mirrors = pool.map(lambda mirror: mirror_finding(mirror, config.check_mirror), project.mirrors)
        indexes = pool.submit(index_findings, config)
        apt = pool.submit(apt_finding, lambda: debian_suites(config.debian), config.check_suite)
        return (*faults, *mirrors, *indexes.result(), apt.result())


def mirror_finding(mirror: str, check: Callable[[str], str]) -> DoctorCheck:
    """Return whether a mirror of the settings answers."""
    cost = "its files are downloaded from their origins, or are unavailable"
    hint = "correct `mirrors` in [tool.bakehouse], or BAKEHOUSE_MIRRORS"
    name = redacted(mirror)
    return _asked("mirror", lambda: _named(name, lambda: check(mirror)), cost, hint)


def index_findings(config: DownloadConfig) -> tuple[DoctorCheck, ...]:
    """Return whether each index and directory of pip's configuration has packages."""
    cost = "Python packages from there cannot be locked or downloaded"
    hint = "correct pip's configuration; `pip config debug` shows its files and variables"
    asked = [
        *((index, partial(config.check_index, index)) for index in config.indexes),
        *((links, partial(config.check_links, links)) for links in config.pip.find_links),
    ]
    if not asked:
        detail = "pip's configuration names no index and no directory of wheels"
        return (DoctorCheck("package index", CheckState.MISSING, detail, cost, hint),)
    with ThreadPoolExecutor(len(asked)) as pool:
        return tuple(
            pool.map(
                lambda item: _asked("package index", lambda: _named(redacted(item[0]), item[1]), cost, hint),
                asked,
            )
        )


def apt_finding(
    named: Callable[[], Sequence[tuple[str, str]]], check: Callable[[str, str], None]
) -> DoctorCheck:
    """Return whether the mirrors of Debian have their suites; `named` returns URLs and suites."""
    cost = "Debian packages cannot be locked or downloaded"

    def ask() -> str:
        suites = named()
        if not suites:
            reason = "no mirror of Debian answers"
            raise SourceError(reason)
        for url, suite in suites:
            _named(f"{redacted(url)} {suite}", partial(check, url, suite))
        return "mirrors " + " ".join(dict.fromkeys(redacted(url) for url, _ in suites))

    return _asked("Debian mirrors", ask, cost, "check `debian_mirrors`, proxies and apt's configuration")


def debian_suites(mirrors: DebianMirrors) -> tuple[tuple[str, str], ...]:
    """Return the mirrors of Debian with their suites."""
    return tuple((source.url, source.suite) for source in mirrors.sources())


def _named(name: str, ask: Callable[[], str | None]) -> str:
    """Return an answer with the name of its source. Raises SourceError with that name."""
    try:
        answer = ask()
    except SourceError as error:
        reason = f"{name}: {error.reason}"
        raise SourceError(reason) from None
    return f"{name}, {answer}" if answer else name


def _engine_hint(engine: Daemon | UnavailableDaemon) -> str:
    if isinstance(engine, Daemon):
        return ""
    refusal = provision.refusal(engine, provision.read_host_info(), DaemonPaths())
    return (
        refusal.hint
        if refusal
        else "the first task that needs an engine installs what is missing and starts it"
    )


def _engine_host(engine: Daemon | UnavailableDaemon) -> EngineHost | EngineError:
    if isinstance(engine, UnavailableDaemon):
        return EngineHost()
    try:
        with contextlib.closing(docker.connect()) as connected:
            return replace(connected.host(), metadata_access=connected.metadata_access())
    except EngineError as error:
        return error


def _room(
    engine: Daemon | UnavailableDaemon, host: EngineHost | EngineError, project: Path
) -> tuple[DoctorCheck, ...]:
    if isinstance(engine, UnavailableDaemon):
        return (disk_finding(project, shutil.disk_usage(project).free),)
    if isinstance(host, EngineError):
        return ()
    if host.free is None:
        detail = "the free space on the engine's disk is unknown"
        cost, hint = "a build may fill the engine's disk", "run `df` on the engine's machine"
        return (DoctorCheck("disk", CheckState.UNKNOWN, detail, cost, hint),)
    return (disk_finding(engine.data_root, host.free),)
