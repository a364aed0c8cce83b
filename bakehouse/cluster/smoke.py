"""Smoke tests of a built image: jobs on a local cluster, started as SageMaker starts them."""

import contextlib
import hashlib
import os
import platform
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bakehouse.builder import verify
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.verify import Outcome
from bakehouse.catalog.base_contents import KEY_DIRECTORIES, KEY_MARK
from bakehouse.cluster import check_keys, job_runner, smoke_report
from bakehouse.cluster.check_keys import COMPONENT_SECONDS, STARTUP, startup_of
from bakehouse.cluster.smoke_checks import SmokeCheck, job_checks
from bakehouse.cluster.smoke_report import COMPONENTS, PRIVATE_KEYS, CheckResult, Setup, SmokeReport
from bakehouse.cluster.smoke_results import (
    component_results,
    evaluate_job,
    evaluate_user_job,
    key_result,
    not_tested,
)
from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import SmokeError, UsageError
from bakehouse.plan.model import Image
from bakehouse.util import file_lock
from bakehouse.util.files import make_directory, remove_tree
from bakehouse.util.format import format_seconds
from bakehouse.util.heartbeat import SILENT_SECONDS
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter, detail, is_verbose

_STARTUP_SECONDS = 60.0

RunCheck = Callable[[], tuple[CheckResult, ...]]


def smoke(
    engine: Engine,
    built: BuiltImage,
    state: Path,
    *,
    only: Sequence[str] = (),
    gpus: tuple[str, ...] = (),
    deadline: float | None = None,
    base_keys: Collection[str] = (),
    report: Reporter = lambda line: None,
) -> SmokeReport:
    """Run the checks of an image, or those in `only`, in parallel where cores allow.

    Logs are written below `state`. `deadline` replaces the deadline of each check. `base_keys` are the sha256
    of private keys of the base. A failed check raises nothing; see `smoke_report.require_passed`.
    """
    if built.is_rehearsed:
        raise SmokeError(
            f"`{built.image.name}` was rehearsed, not built, so it contains stubs and cannot be smoke-tested",
            hint=f"run `bake build {built.image.name}`",
        )
    require_checks(built.image, only)
    engine.sweep()
    report = _thread_safe(report)
    locks = state / "gpus"
    directory = state / "smoke" / built.image.name
    checks = _Checks(engine, built, directory, locks, gpus, deadline, base_keys, report)
    setup = Setup(checks.startup(), gpus=len(gpus))
    all_checks = checks.by_name(setup)
    if only:
        all_checks = checks.long_by_name(setup) | all_checks
    selected = {name: check for name, check in all_checks.items() if not only or name in only}
    results = _run_all(engine, selected, report, waiting=len(selected) if gpus else 0)
    machine, date = platform.node(), smoke_report.now()
    results = check_keys.with_keys(results, built.image, setup, base_keys, date, machine)
    transport = smoke_report.transport_of(results)
    return SmokeReport(built.image.name, built.content, transport, results, machine, date)


@dataclass(frozen=True, slots=True)
class _Checks:
    """The checks of one image as functions."""

    engine: Engine
    built: BuiltImage
    directory: Path
    locks: Path
    """Directory with a lock for each GPU."""
    gpus: tuple[str, ...]
    deadline: float | None
    base_keys: Collection[str]
    report: Reporter

    def by_name(self, setup: Setup) -> dict[str, RunCheck]:
        """Return every check by name, longest first."""
        startup = startup_of(setup.startup.split())
        jobs = job_checks(self.built.image, self.built.stored, len(self.gpus), startup)
        return {
            COMPONENTS: self._components,
            **{check.name: partial(self._job, check) for check in jobs},
            PRIVATE_KEYS: self._private_keys,
        }

    def long_by_name(self, setup: Setup) -> dict[str, RunCheck]:
        """Return the checks that only run if they are named."""
        return {
            name: partial(self._long_check, name, definition.key)
            for name, definition in check_keys.long_definitions(self.built.image, setup).items()
        }

    def startup(self) -> str:
        """Find out what the image starts, because a base or a step of the recipe may have added it."""
        spec = ContainerSpec(self.built.stored, ("sh", "-c", STARTUP), image_name=self.built.image.name)
        with self.engine.container(spec) as container:
            container.start(empty_directory(self.directory / "startup") / "startup.log")
            container.wait(_STARTUP_SECONDS)
            container.stop(grace=0)
            return check_keys.words_of(startup_of(container.stdout().split()))

    def _components(self) -> tuple[CheckResult, ...]:
        return self._probe(COMPONENTS, verify.ProbeOptions(with_checks=True))

    def _long_check(self, check: str, key: str) -> tuple[CheckResult, ...]:
        """Run one check of a component, without its other checks."""
        _, component, name = check.split(".")
        options = verify.ProbeOptions(components=[component], long_check=name)
        found = {result.name: result for result in self._probe(check, options)}
        versions = found[f"{COMPONENTS}.{component}"]
        reason = versions.reason if versions.outcome is Outcome.FAILED else "it gave no answer"
        unanswered = replace(versions, name=check, outcome=Outcome.FAILED, reason=reason)
        return (replace(found.get(check, unanswered), key=key),)

    def _probe(self, check: str, options: verify.ProbeOptions) -> tuple[CheckResult, ...]:
        detail(self.report)(f"{check} started")
        log = empty_directory(self.directory / check) / "components.log"
        options = replace(options, seconds=self.deadline or COMPONENT_SECONDS, gpus=self.gpus)
        with held_gpus(self.gpus, self.locks):
            probes = verify.run_probes(self.engine, self.built.image, self.built.stored, log, options)
        return component_results(probes)

    def _job(self, check: SmokeCheck) -> tuple[CheckResult, ...]:
        if check.job is None:
            return (not_tested(check, check.not_tested),)
        detail(self.report)(f"{check.name} started")
        logs = empty_directory(self.directory / check.name)
        job = replace(check.job, deadline=self.deadline or check.job.deadline, gpu_ids=self.gpus)
        evaluate = evaluate_user_job if check.smoke else evaluate_job
        with held_gpus(job.used_gpus, self.locks):
            result = job_runner.run(self.engine, job, logs)
        return (evaluate(check, job, result, logs),)

    def _private_keys(self) -> tuple[CheckResult, ...]:
        """Search the image for private keys that its base does not have, without starting it."""
        detail(self.report)(f"{PRIVATE_KEYS} started")
        started = time.monotonic()
        spec = ContainerSpec(self.built.stored, ("true",), image_name=self.built.image.name)
        with self.engine.container(spec) as container:
            keys = [
                f"{directory}/{name}"
                for directory in KEY_DIRECTORIES
                for name, content in sorted(container.read(directory).items())
                if KEY_MARK.encode() in content and hashlib.sha256(content).hexdigest() not in self.base_keys
            ]
        return (key_result(keys, time.monotonic() - started),)


def require_checks(image: Image, only: Sequence[str], *, with_long: bool = True) -> None:
    """Raise UsageError if an image lacks a check that `only` names. The image need not be built."""
    jobs = (check.name for check in job_checks(image, ""))
    long = (f"{COMPONENTS}.{component}.{name}" for component, name in verify.long_checks(image))
    names = {COMPONENTS, PRIVATE_KEYS, *jobs, *(long if with_long else ())}
    for name in only:
        if name not in names:
            raise UsageError(
                f"`{image.name}` has no check `{name}`",
                hint=suggestion(name, names) or f"choose from {', '.join(sorted(names))}",
            )


def _run_all(
    engine: Engine, checks: Mapping[str, RunCheck], report: Reporter, waiting: int
) -> tuple[CheckResult, ...]:
    """Run checks, `waiting` of which may wait for GPUs; return the results in the order of `checks`."""
    results: dict[str, tuple[CheckResult, ...]] = {}
    began = time.monotonic()
    # A job of two hosts is mostly idle, so one thread more than cores keeps them busy.
    with ThreadPoolExecutor(max_workers=(os.cpu_count() or 1) + 1 + waiting) as pool:
        running = {pool.submit(check): name for name, check in checks.items()}
        try:
            pending = {*running}
            while pending:
                ended, pending = wait(pending, SILENT_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    name = running[future]
                    results[name] = future.result()
                    for line in _lines(name, results[name], time.monotonic() - began):
                        report(line)
                if not ended:
                    names = ", ".join(sorted(running[future] for future in pending if future.running()))
                    report(f"still running: {names} ({format_seconds(time.monotonic() - began)})")
        except BaseException:
            for future in running:
                future.cancel()
            engine.close()
            raise
    return tuple(result for name in checks for result in results[name])


@contextlib.contextmanager
def held_gpus(gpus: Iterable[str], locks: Path) -> Iterator[None]:
    """Lock GPUs, because a check that fills their memory or measures them would make others fail."""
    with contextlib.ExitStack() as stack:
        # In one order, so that two checks never wait for each other
        for gpu in sorted(gpus):
            stack.enter_context(file_lock.exclusive(locks / f"{gpu}.lock"))
        yield


def _thread_safe(report: Reporter) -> Reporter:
    lock = threading.Lock()

    def report_line(line: str) -> None:
        with lock:
            report(line)

    return report_line


def _lines(name: str, results: Sequence[CheckResult], seconds: float) -> list[str]:
    """Return a line for each result; unless verbose, one for all that passed."""
    if len(results) <= 1 or is_verbose():
        return [_line(result) for result in results]
    others = [result for result in results if result.outcome is not Outcome.PASSED]
    count = f"{len(results) - len(others)} of {len(results)}"
    return [*map(_line, others), f"{name}: {count} checks passed in {format_seconds(seconds)}"]


def _line(result: CheckResult) -> str:
    seconds = f" in {format_seconds(result.seconds)}" if result.outcome is not Outcome.NOT_TESTED else ""
    reason = f": {result.reason}" if result.reason else ""
    return f"{result.name} {result.outcome}{seconds}{reason}"


def empty_directory(path: Path) -> Path:
    """Return a directory that exists and is empty."""
    remove_tree(path)
    make_directory(path)
    return path
