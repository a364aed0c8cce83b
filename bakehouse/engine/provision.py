"""Gives this machine what a task needs of it: a container engine, and tools that Debian packages carry."""

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bakehouse.engine import daemon_info, dockerd, usage_lock
from bakehouse.engine.apt_install import Apt
from bakehouse.engine.daemon_info import Daemon, UnavailableDaemon, UnavailableReason
from bakehouse.engine.dockerd import DaemonPaths
from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util.files import write_whole
from bakehouse.util.terminal import Reporter

Ask = Callable[[str], bool]

OLDEST_DOCKERD = (24, 0)
TOOLS = ("mmdebstrap", "docker-registry")
RARE_TOOLS = ("gcc",)
"""Installed when a task asks for them, and not with an engine."""
OLD_RELEASE, NEXT_RELEASE = "bookworm", "trixie"
"""The Debian release whose own engine is too old, and the one it gets its engine from."""
SERVICE_SECONDS = 30
IDLE_SECONDS = 600
"""How long an engine that has to be restarted is waited for to be idle."""
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What decides whether, and how, this machine can be given an engine."""

    root: bool
    system: str
    """The ID of /etc/os-release."""
    release: str
    """Its VERSION_ID; empty for a Debian that is still in the making."""
    architecture: str
    systemd: bool
    dockerd: tuple[int, ...]
    """The version of the dockerd that is installed; () for none."""
    client: bool
    tools: tuple[str, ...]
    """Those of TOOLS and RARE_TOOLS that are installed."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What will be done to a machine, in this order."""

    mask_registry: bool = False
    """Debian's docker-registry would serve port 5000 to everyone as soon as systemd sees it installed."""
    service: bool = False
    """systemd starts the engine as soon as it is installed, so its configuration has to lie there before."""
    from_next_release: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    start: bool = False


def ensure(ask: Ask, report: Reporter, place: DaemonPaths | None = None) -> Daemon:
    """Give the engine that docker reaches, after installing and starting one where there is none.

    An engine that runs already is left as it is, but for the address of its bridge where the engine is ours.
    Two calls at once start one engine.
    """
    place = place or DaemonPaths()
    found = daemon_info.probe()
    if isinstance(found, Daemon):
        _fix_address(found, place, report)
        return found
    problem = refusal(found, read_host_info(), place)
    if problem:
        raise EngineError(problem)
    with _alone(place, report):
        found = daemon_info.probe()
        if isinstance(found, UnavailableDaemon):
            steps = plan_steps(read_host_info(), found, engine=_engine_wanted(found, place))
            _agree(daemon_info.unavailable(found, _sentence()), steps, place, ask, report)
            _carry_out(steps, place, report)
    return daemon_info.inspect()


def _fix_address(found: Daemon, place: DaemonPaths, report: Reporter) -> None:
    """Whoever started our engine may have left its bridge's address to the kernel."""
    if _our_process(found, place) and found.interface and os.geteuid() == 0:
        dockerd.fix_address(found.interface, report)


def _our_process(found: Daemon | UnavailableDaemon, place: DaemonPaths) -> int | None:
    """The engine that docker reaches, if we started it."""
    if not isinstance(found, Daemon) or found.endpoint != place.endpoint:
        return None
    return _process(place)


def _process(place: DaemonPaths) -> int | None:
    """The engine that was started in this place by us."""
    return dockerd.process_of(place.pidfile, "dockerd", str(place.configuration))


def ensure_tools(ask: Ask, report: Reporter, *tools: str, place: DaemonPaths | None = None) -> None:
    """Install those of these TOOLS and RARE_TOOLS that this machine lacks."""
    # Every build asks, and to look at all of the machine starts a program.
    if not (missing := tuple(tool for tool in tools if tool not in _tools_here())):
        return
    place, machine = place or DaemonPaths(), read_host_info()
    names = " and ".join(f"`{tool}`" for tool in missing)
    problem = f"{names} {'is' if len(missing) == 1 else 'are'} not installed"
    mask = machine.systemd and "docker-registry" in missing
    steps = Steps(mask_registry=mask, packages=_tool_packages(machine, missing))
    if machine.system not in ("debian", "ubuntu"):
        raise EngineError(Diagnostic(problem, hint=f"install {names} from your system's packages"))
    if not machine.root:
        hint = f"run `apt-get install {' '.join(steps.packages)}` as root"
        raise EngineError(Diagnostic(problem, hint=hint))
    with _alone(place, report):
        _agree(Diagnostic(problem, hint=f"install {names}"), steps, place, ask, report)
        _carry_out(steps, place, report)


def restart(report: Reporter, place: DaemonPaths | None = None, seconds: float = IDLE_SECONDS) -> bool:
    """Start the engine that docker reaches anew, if it is ours; False where it is not, or is never idle.

    What others build, push and run would end with it, so they are waited for; a container that is no job's
    may never end. An engine that another run has started anew meanwhile is left as it is.
    """
    place, until, told = place or DaemonPaths(), time.monotonic() + seconds, set[str]()
    process = _our_process(daemon_info.probe(), place)
    if process is None or os.geteuid() != 0:
        return False
    with _alone(place, report):
        while (now := _process(place)) == process and (use := _restart_idle(place, report)):
            if stay := _containers_that_stay():
                report(f"the engine was not restarted: it runs containers that nobody waits for, {stay}")
                return False
            if time.monotonic() > until:
                report(f"the engine was not restarted: after {seconds:g} s it is still in use, by {use}")
                return False
            if (kind := use.partition(":")[0]) not in told:
                report(f"waiting to restart the engine: it is in use, by {use}")
                told.add(kind)
            time.sleep(_POLL_SECONDS)
    return now is not None


def _restart_idle(place: DaemonPaths, report: Reporter) -> str:
    """Restart our engine if nobody uses it; gives what it is used for."""
    with usage_lock.exclusive_engine(place) as is_alone:
        if not is_alone:
            return "a build or a push"
        # Not waited for in here: who has them run may be about to build.
        if names := daemon_info.docker("ps", "--format", "{{.Names}}").out.split():
            return f"containers: {', '.join(sorted(names))}"
        dockerd.stop(place)
        dockerd.start(place, report)
        return ""


def _containers_that_stay() -> str:
    """The running containers that are no part of a job: a registry, or somebody else's."""
    owned = '{{.Names}}\t{{.Label "bakehouse"}}'
    told = (line.partition("\t") for line in daemon_info.docker("ps", "--format", owned).out.splitlines())
    return ", ".join(sorted(name for name, _, owner in told if owner in ("", "registry")))


def refusal(found: UnavailableDaemon, machine: HostInfo, place: DaemonPaths) -> Diagnostic | None:
    """Why this machine can't be given an engine; None where it can."""
    if found.reason in (UnavailableReason.NOT_ALLOWED, UnavailableReason.NO_ANSWER):
        return daemon_info.unavailable(found, "")
    if found.endpoint not in ("", place.endpoint):
        hint = "start the engine that DOCKER_HOST or the docker context names, or unset it"
        return daemon_info.unavailable(found, hint)
    if machine.architecture != "x86_64":
        hint = f"run ./bake on a linux/amd64 machine; this one is {machine.architecture}"
        return daemon_info.unavailable(found, hint)
    if machine.system not in ("debian", "ubuntu"):
        return daemon_info.unavailable(found, f"install {daemon_info.REQUIRED_PROGRAMS}, and start it")
    return None if machine.root else daemon_info.unavailable(found, _sentence())


def plan_steps(machine: HostInfo, found: UnavailableDaemon, *, engine: bool) -> Steps:
    """What gives this machine an engine and the tools for it; only what is missing is installed."""
    no_dockerd = engine and machine.dockerd < OLDEST_DOCKERD
    wanted = {
        "docker.io": no_dockerd or (machine.system == "ubuntu" and not machine.client),
        # Ubuntu's docker.io holds the client as well.
        "docker-cli": machine.system == "debian" and not machine.client,
        "docker-buildx": not found.buildx,
    }
    packages = tuple(package for package, missing in wanted.items() if missing)
    missing_tools = tuple(tool for tool in TOOLS if tool not in machine.tools)
    old = machine.system == "debian" and machine.release == "12"
    return Steps(
        mask_registry=machine.systemd and "docker-registry" in missing_tools,
        service=machine.systemd and no_dockerd,
        from_next_release=packages if old else (),
        packages=(() if old else packages) + _tool_packages(machine, missing_tools),
        start=engine,
    )


def describe_steps(steps: Steps, place: DaemonPaths) -> tuple[str, ...]:
    """The plan as a person reads it, a line a step."""
    lines = []
    if steps.mask_registry:
        lines.append("systemctl mask docker-registry (Bakehouse starts its own, on loopback only)")
    if steps.service and not place.configured.exists():
        lines.append(f"write {place.configured}: the containerd image store, a limit for the build cache")
    if steps.from_next_release:
        names = " ".join(steps.from_next_release)
        lines.append(
            f"apt-get install {names} from Debian {NEXT_RELEASE}, through the mirror apt uses now, pinned"
            " so that nothing else comes from there: this release's engine is too old"
        )
    if steps.packages:
        lines.append(f"apt-get install {' '.join(steps.packages)}")
    if steps.start:
        lines.append(f"start dockerd with the containerd image store, its data in {place.data_root}")
    return tuple(lines)


def ask_at_terminal(question: str) -> bool:
    """Ask where there is a terminal to answer at; elsewhere the plan that was printed is carried out."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    sys.stderr.write(f"{question} [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().lower() in ("\n", "y\n", "yes\n")


def read_host_info() -> HostInfo:
    """Look at this machine, without asking an engine."""
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return HostInfo(
        root=os.geteuid() == 0,
        system=release.get("ID", ""),
        release=release.get("VERSION_ID", ""),
        architecture=platform.machine(),
        systemd=Path("/run/systemd/system").is_dir(),
        dockerd=_dockerd_version(),
        client=shutil.which("docker") is not None,
        tools=_tools_here(),
    )


def _tools_here() -> tuple[str, ...]:
    return tuple(tool for tool in TOOLS + RARE_TOOLS if shutil.which(tool, path=dockerd.program_path()))


def _carry_out(steps: Steps, place: DaemonPaths, report: Reporter) -> None:
    apt = Apt(place.state / "apt.log")
    if steps.mask_registry:
        subprocess.run(["systemctl", "mask", "docker-registry.service"], capture_output=True)
    if steps.service and not place.configured.exists():
        place.data_root.mkdir(parents=True, exist_ok=True)
        limit = dockerd.cache_limit(shutil.disk_usage(place.data_root).free)
        settings = dockerd.configuration({}, limit)
        write_whole(place.configured, json.dumps(settings, indent=2, sort_keys=True) + "\n")
    if steps.from_next_release or steps.packages:
        apt.update(report)
    if steps.from_next_release:
        apt.add_release(OLD_RELEASE, NEXT_RELEASE)
        apt.update(report)
        apt.install(steps.from_next_release, report, NEXT_RELEASE)
    if steps.packages:
        apt.install(steps.packages, report)
    deadline = time.monotonic() + SERVICE_SECONDS
    while steps.service and not dockerd.answers(place.socket) and time.monotonic() < deadline:
        time.sleep(0.2)
    if steps.start and not dockerd.answers(place.socket):
        dockerd.start(place, report)


def _agree(problem: Diagnostic, steps: Steps, place: DaemonPaths, ask: Ask, report: Reporter) -> None:
    report(f"{problem.message}; this is what will be done:")
    for line in describe_steps(steps, place):
        report(f"  - {line}")
    if not ask("Go ahead?"):
        raise EngineError(problem)


@contextlib.contextmanager
def _alone(place: DaemonPaths, report: Reporter) -> Iterator[None]:
    place.state.mkdir(parents=True, exist_ok=True)
    with (place.state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another ./bake that prepares this machine")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _engine_wanted(found: UnavailableDaemon, place: DaemonPaths) -> bool:
    # Without a client nobody was asked: there may be an engine that is named, or one that listens here.
    unknown = found.reason is UnavailableReason.NO_CLIENT
    return not (unknown and ("DOCKER_HOST" in os.environ or dockerd.answers(place.socket)))


def _sentence() -> str:
    return (
        "run the same command as root, which installs docker.io, docker-cli, docker-buildx, mmdebstrap and"
        " docker-registry with apt and starts dockerd, or do that yourself"
    )


def _tool_packages(machine: HostInfo, tools: tuple[str, ...]) -> tuple[str, ...]:
    # Bases are Debian; on Debian its keys are there.
    keys = ("debian-archive-keyring",) if machine.system == "ubuntu" and "mmdebstrap" in tools else ()
    headers = ("libc6-dev",) if "gcc" in tools else ()
    return tools + keys + headers


def _dockerd_version() -> tuple[int, ...]:
    program = shutil.which("dockerd", path=dockerd.program_path())
    if program is None:
        return ()
    printed = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", printed)
    return (int(found[1]), int(found[2])) if found else ()
