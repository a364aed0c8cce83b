"""Platforms that a container engine runs: its own, and those that its kernel emulates."""

from collections.abc import Collection, Iterable

from bakehouse.engine.buildx_builders import Program, read_workers
from bakehouse.engine.daemon_info import Daemon, run_program
from bakehouse.errors import EngineError, Reason
from bakehouse.util.oci import PLATFORMS

HINT = (
    "install qemu's user emulation on the engine's machine (on Debian `apt-get install qemu-user-static "
    "binfmt-support`), or use an engine on a {} machine"
)
COST = "programs run many times slower, jobs with MPI do not start under qemu, and GPUs cannot be used"
"""Effects of emulation."""


def runnable_platforms(daemon: Daemon, run: Program = run_program) -> tuple[str, ...]:
    """Return the platforms of images that an engine runs, its own first."""
    context = run("docker", "context", "show")
    output = run("docker", "buildx", "inspect", context.out.strip() or "default")
    reported = {platform for worker in read_workers(output.out) for platform in worker.platforms}
    others = (platform for platform in PLATFORMS if platform in reported and platform != daemon.platform)
    return (daemon.platform, *others)


def notice(daemon: Daemon, platforms: Collection[str]) -> str:
    """Return a note about the effects of emulating platforms; empty without emulation."""
    emulated = sorted({*platforms} - {daemon.platform})
    return f"the engine runs {daemon.platform} and emulates {', '.join(emulated)}: {COST}" if emulated else ""


def require_platforms(daemon: Daemon, platforms: Iterable[str], run: Program = run_program) -> None:
    """Raise EngineError for a platform that the engine does not run."""
    other = {*platforms} - {daemon.platform}
    for platform in sorted(other.difference(runnable_platforms(daemon, run)) if other else ()):
        message = f"the container engine does not run {platform} programs"
        engine = (("engine", f"{daemon.version} at {daemon.endpoint}"),)
        reason = Reason(f"it runs {daemon.platform}, and its kernel has no emulator for {platform}")
        raise EngineError(message, reasons=(reason,), facts=engine, hint=HINT.format(platform))
