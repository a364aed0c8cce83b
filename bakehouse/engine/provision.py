"""Provisioning of this machine: install and start a container engine, with apt."""

import contextlib
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bakehouse.engine import daemon_info, dockerd, engine_removal, usage_lock
from bakehouse.engine.apt_install import Apt
from bakehouse.engine.daemon_info import Daemon, UnavailableDaemon, UnavailableReason
from bakehouse.engine.daemon_paths import DaemonPaths
from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.terminal import Reporter

Ask = Callable[[str], bool | None]
"""Asks for confirmation; None without a terminal."""

OLDEST_DOCKERD = (24, 0)
OLD_RELEASE, NEXT_RELEASE = "bookworm", "trixie"
"""Debian release whose own engine is too old, and the release that provides its engine."""
SERVICE_SECONDS = 30
IDLE_SECONDS = 600
"""Time to wait for an engine to become idle before a restart."""
INSTALL = "BAKEHOUSE_INSTALL_ENGINE"
"""Variable that allows installations without a terminal."""
_CI = ("CI", "CODEBUILD_CI")
"""Variables of CI systems, whose machines are made for one run."""
_NO = ("", "0", "false", "no")
_POLL_SECONDS = 0.5
_ROOT_HINT = (
    "run the same command as root: it installs docker.io, docker-cli and docker-buildx with apt"
    " and starts dockerd; or install and start them yourself"
)

_INSTALL_HINT = f"set {INSTALL}=1 to run these steps without a terminal, or run the command in a terminal"


@dataclass(frozen=True, slots=True)
class HostInfo:
    """Facts about this machine that decide how an engine can be installed."""

    root: bool
    system: str
    """`ID` of /etc/os-release."""
    release: str
    """`VERSION_ID` of /etc/os-release; empty for unreleased versions of Debian."""
    architecture: str
    systemd: bool
    dockerd: tuple[int, ...]
    """Version of the installed dockerd; () without one."""
    client: bool
    has_apt: bool
    """apt is installed, and the system is Debian or Ubuntu."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps that provision this machine, in order of execution."""

    service: bool = False
    """Write the engine's configuration first: systemd starts the engine right after its installation."""
    from_next_release: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    start: bool = False

    @property
    def installs(self) -> bool:
        """Return whether something stays on the machine after a restart."""
        return bool(self.service or self.from_next_release or self.packages)


def ensure(ask: Ask, report: Reporter, paths: DaemonPaths | None = None) -> Daemon:
    """Return the engine that docker connects to; install and start one if there is none.

    A running engine is not changed, except for the bridge address of an engine that Bakehouse started.
    Concurrent calls start one engine.
    """
    paths = paths or DaemonPaths()
    with heartbeat(report, "waiting for an answer of the container engine"):
        daemon = daemon_info.probe()
    if isinstance(daemon, Daemon):
        _fix_address(daemon, paths, report)
        return daemon
    problem = refusal(daemon, read_host_info(), paths)
    if problem:
        raise EngineError.of(problem)
    with _lock(paths, report):
        daemon = daemon_info.probe()
        if isinstance(daemon, UnavailableDaemon):
            steps = plan_steps(read_host_info(), daemon, engine=_needs_engine(daemon, paths))
            _confirm(daemon_info.unavailable(daemon, _ROOT_HINT), steps, paths, ask, report)
            _execute(steps, paths, report)
    return daemon_info.inspect()


def _fix_address(daemon: Daemon, paths: DaemonPaths, report: Reporter) -> None:
    """Fix the bridge address of an engine that Bakehouse started."""
    if _own_process(daemon, paths) and daemon.interface and os.geteuid() == 0:
        dockerd.fix_address(daemon.interface, report)


def _own_process(daemon: Daemon | UnavailableDaemon, paths: DaemonPaths) -> int | None:
    """Return the process id of the engine that docker connects to, if Bakehouse started it."""
    if not isinstance(daemon, Daemon) or daemon.endpoint != paths.endpoint:
        return None
    return _process(paths)


def _process(paths: DaemonPaths) -> int | None:
    """Return the process id of the engine that Bakehouse started with these paths."""
    return dockerd.process_of(paths.pidfile, "dockerd", str(paths.configuration))


def restart(report: Reporter, paths: DaemonPaths | None = None, seconds: float = IDLE_SECONDS) -> bool:
    """Restart the engine that docker connects to; return False if it is not Bakehouse's or never idle.

    A restart ends all builds, pushes and containers, so it waits for those of other runs. The engine is not
    restarted while containers that belong to no job are running, because these may never end. It is not
    restarted again if another run restarted it in the meantime.
    """
    paths, deadline, reported = paths or DaemonPaths(), time.monotonic() + seconds, set[str]()
    process = _own_process(daemon_info.probe(), paths)
    if process is None or os.geteuid() != 0:
        return False
    with _lock(paths, report), heartbeat(report, "waiting to restart the engine"):
        while (current := _process(paths)) == process and (usage := _restart_idle(paths, report)):
            if names := _permanent_containers():
                report(f"the engine was not restarted: containers of no job are running ({names})")
                return False
            if time.monotonic() > deadline:
                report(f"the engine was not restarted: still in use after {seconds:g} s ({usage})")
                return False
            if (kind := usage.partition(":")[0]) not in reported:
                report(f"waiting to restart the engine: it is in use ({usage})")
                reported.add(kind)
            time.sleep(_POLL_SECONDS)
    return current is not None


def _restart_idle(paths: DaemonPaths, report: Reporter) -> str:
    """Restart the engine if it is idle; otherwise return what uses it."""
    with usage_lock.exclusive_engine(paths) as is_exclusive:
        if not is_exclusive:
            return "a build or a push"
        # Do not hold the lock while waiting, because the owner of the containers may need it for a build.
        if names := daemon_info.docker("ps", "--format", "{{.Names}}").out.split():
            return f"containers: {', '.join(sorted(names))}"
        dockerd.stop(paths)
        dockerd.start(paths, report)
        return ""


def _permanent_containers() -> str:
    """Return the names of running containers that belong to no job, such as a registry."""
    columns = '{{.Names}}\t{{if not (.Label "bakehouse.service")}}{{.Label "bakehouse"}}{{end}}'
    lines = daemon_info.docker("ps", "--format", columns).out.splitlines()
    owners = (line.partition("\t") for line in lines)
    return ", ".join(sorted(name for name, _, owner in owners if not owner))


def refusal(daemon: UnavailableDaemon, host: HostInfo, paths: DaemonPaths) -> Diagnostic | None:
    """Return the reason why no engine can be installed on this machine; None if one can."""
    if daemon.reason not in (UnavailableReason.NO_CLIENT, UnavailableReason.NOT_RUNNING):
        return daemon_info.unavailable(daemon, "")
    if daemon.endpoint not in ("", paths.endpoint):
        return daemon_info.unavailable(daemon, daemon_info.START_SELECTED)
    if host.architecture != "x86_64":
        hint = f"run `bake` on a linux/amd64 machine; this one is {host.architecture}"
        return daemon_info.unavailable(daemon, hint)
    if not host.has_apt:
        return daemon_info.unavailable(
            daemon, f"install {daemon_info.REQUIRED_PROGRAMS}, and start the engine"
        )
    return None if host.root else daemon_info.unavailable(daemon, _ROOT_HINT)


def plan_steps(host: HostInfo, daemon: UnavailableDaemon, *, engine: bool) -> Steps:
    """Return the steps that install an engine; only missing packages are installed."""
    no_dockerd = engine and host.dockerd < OLDEST_DOCKERD
    needed = {
        "docker.io": no_dockerd or (host.system == "ubuntu" and not host.client),
        # Ubuntu's docker.io contains the client.
        "docker-cli": host.system == "debian" and not host.client,
        "docker-buildx": not daemon.buildx,
    }
    packages = tuple(package for package, is_needed in needed.items() if is_needed)
    old = host.system == "debian" and host.release == "12"
    return Steps(
        service=host.systemd and no_dockerd,
        from_next_release=packages if old else (),
        packages=() if old else packages,
        start=engine,
    )


def describe_steps(steps: Steps, paths: DaemonPaths) -> tuple[str, ...]:
    """Return a line of text for each step."""
    lines = []
    if steps.service and not paths.configured.exists():
        lines.append(f"write {paths.configured}: the containerd image store, a limit for the build cache")
    if steps.from_next_release:
        names = " ".join(steps.from_next_release)
        lines.append(
            f"apt-get install {names} from Debian {NEXT_RELEASE}, because the engine of this release is too"
            " old (same mirror; pinned, so that no other package is upgraded)"
        )
    if steps.packages:
        lines.append(f"apt-get install {' '.join(steps.packages)}")
    if steps.start:
        lines.append(f"start dockerd with the containerd image store and its data in {paths.data_root}")
    return tuple(lines)


def ask_or_agree(question: str) -> bool:
    """Ask for confirmation on a terminal; return True elsewhere."""
    return ask_at_terminal(question) is not False


def ask_at_terminal(question: str) -> bool | None:
    """Ask for confirmation on a terminal; return None elsewhere."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    sys.stderr.write(f"{question} [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().lower() in ("\n", "y\n", "yes\n")


def read_host_info() -> HostInfo:
    """Read the facts about this machine, without a request to an engine."""
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return HostInfo(
        root=os.geteuid() == 0,
        system=release.get("ID", ""),
        release=release.get("VERSION_ID", ""),
        architecture=platform.machine(),
        systemd=Path("/run/systemd/system").is_dir(),
        dockerd=_dockerd_version(),
        client=shutil.which("docker") is not None,
        has_apt=release.get("ID") in ("debian", "ubuntu") and shutil.which("apt-get") is not None,
    )


def _execute(steps: Steps, paths: DaemonPaths, report: Reporter) -> None:
    apt = Apt(paths.state / "apt.log")
    record = engine_removal.read(paths)
    before = apt.installed() if steps.installs else frozenset[str]()
    if not paths.data_root.exists() and steps.start:
        record = record.with_more(directories=[paths.data_root])
    if steps.service and not paths.configured.exists():
        record = record.with_more(files=[paths.configured])
        dockerd.write_configuration(paths, paths.configured, {})
    if steps.from_next_release or steps.packages:
        apt.update(report)
    if steps.from_next_release:
        record = record.with_more(files=apt.release_files(OLD_RELEASE, NEXT_RELEASE))
    if steps.installs:
        # Before the first change, so that an interrupted installation is known, too.
        engine_removal.write(paths, record.with_more({*steps.from_next_release, *steps.packages} - before))
    if steps.from_next_release:
        apt.add_release(OLD_RELEASE, NEXT_RELEASE)
        apt.update(report)
        apt.install(steps.from_next_release, report, NEXT_RELEASE)
    if steps.packages:
        apt.install(steps.packages, report)
    if steps.installs:
        record = record.with_more(apt.installed() - before)
        engine_removal.write(paths, record)
        report(engine_removal.summary(record))
    deadline = time.monotonic() + SERVICE_SECONDS
    with heartbeat(report, "waiting for systemd to start the engine"):
        while steps.service and not dockerd.answers(paths.socket) and time.monotonic() < deadline:
            time.sleep(0.2)
    if steps.start and not dockerd.answers(paths.socket):
        dockerd.start(paths, report)


def _confirm(problem: Diagnostic, steps: Steps, paths: DaemonPaths, ask: Ask, report: Reporter) -> None:
    report(f"{problem.message}; Bakehouse will run these steps:")
    for line in describe_steps(steps, paths):
        report(f"  - {line}")
    answer = ask("Continue?")
    if answer is None:
        answer = not steps.installs or _may_install(os.environ)
        problem = problem if answer else replace(problem, hint=_INSTALL_HINT)
    if not answer:
        raise EngineError.of(problem)


def _may_install(environment: Mapping[str, str]) -> bool:
    """Return whether the user, or the kind of machine, allows an installation without a terminal."""
    if setting := environment.get(INSTALL, ""):
        return setting.lower() not in _NO
    return any(environment.get(name, "").lower() not in _NO for name in _CI)


@contextlib.contextmanager
def _lock(paths: DaemonPaths, report: Reporter) -> Iterator[None]:
    paths.state.mkdir(parents=True, exist_ok=True)
    with (paths.state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another run of `bake` that prepares this machine")
            with heartbeat(report, "waiting for the other run of `bake`"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _needs_engine(daemon: UnavailableDaemon, paths: DaemonPaths) -> bool:
    # Without a client, the probe could not ask an engine, but DOCKER_HOST or the default socket may have one.
    unknown = daemon.reason is UnavailableReason.NO_CLIENT
    return not (unknown and ("DOCKER_HOST" in os.environ or dockerd.answers(paths.socket)))


def _dockerd_version() -> tuple[int, ...]:
    program = shutil.which("dockerd", path=dockerd.program_path())
    if program is None:
        return ()
    output = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    version = re.search(r"version (\d+)\.(\d+)", output)
    return (int(version[1]), int(version[2])) if version else ()
