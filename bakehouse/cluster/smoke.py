"""Turns a BuiltImage into a SmokeReport: a cluster on one machine, started as SageMaker starts it."""

import difflib
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bakehouse.build import verify
from bakehouse.build.built_image import BuiltImage
from bakehouse.build.verify import Outcome as Outcome
from bakehouse.cluster import cluster, smoke_report
from bakehouse.cluster.smoke_checks import Check, job_checks
from bakehouse.cluster.smoke_report import CheckResult as CheckResult
from bakehouse.cluster.smoke_report import SmokeReport as SmokeReport
from bakehouse.cluster.smoke_results import (
    COMPONENTS,
    PRIVATE_KEYS,
    component_results,
    evaluate_job,
    key_result,
)
from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import Diagnostic, SmokeError, UsageError
from bakehouse.util.format import format_seconds
from bakehouse.util.terminal import Reporter

KEY_FOLDERS = ("/etc/ssh", "/root/.ssh")
COMPONENT_SECONDS = 300.0

Task = Callable[[], tuple[CheckResult, ...]]


def smoke(
    engine: Engine,
    built: BuiltImage,
    state: Path,
    *,
    only: Sequence[str] = (),
    gpus: int = 0,
    deadline: float | None = None,
    progress: Reporter = lambda line: None,
) -> SmokeReport:
    """Run the checks that apply to an image, beside each other where cores allow; keep the report by digest.

    `only` names the checks to run: their results replace those of a whole report, and without one are not
    kept. `deadline` replaces each check's own. A failed check is in the report, not raised: see
    `smoke_report.require_passed`.
    """
    if built.is_rehearsed:
        message = f"`{built.image.name}` was rehearsed, not built: what stand-ins do proves nothing"
        raise SmokeError(Diagnostic(message, hint=f"run `./bake build {built.image.name}`"))
    engine.sweep()
    say = _one_at_a_time(progress)
    run = _Run(engine, built, state / "smoke" / built.image.name, gpus, deadline, say)
    results = _run_all(engine, _selected(run.tasks(), only), say)
    report = SmokeReport(built.image.name, built.digest, _transport(built, gpus), results, platform.node())
    if only:
        known = smoke_report.load(state, built.digest)
        if known is None:
            return report
        report = smoke_report.replace_checks(known, results)
    smoke_report.save(report, state)
    return report


@dataclass(frozen=True, slots=True)
class _Run:
    """The checks of one image, each a function from nothing to its results."""

    engine: Engine
    built: BuiltImage
    folder: Path
    gpus: int
    deadline: float | None
    say: Reporter

    def tasks(self) -> dict[str, Task]:
        """Every check by name, those that take longest first."""
        jobs = job_checks(self.built.image, self.built.digest, self.gpus)
        return {
            COMPONENTS: self._components,
            **{check.name: partial(self._job, check) for check in jobs},
            PRIVATE_KEYS: self._private_keys,
        }

    def _components(self) -> tuple[CheckResult, ...]:
        self.say(f"{COMPONENTS} started")
        answers = verify.run_probes(
            self.engine,
            self.built.image,
            self.built.digest,
            log=_emptied(self.folder / COMPONENTS) / "components.log",
            with_checks=True,
            seconds=self.deadline or COMPONENT_SECONDS,
            gpus=self.gpus,
        )
        return component_results(answers)

    def _job(self, check: Check) -> tuple[CheckResult, ...]:
        if check.job is None:
            return (CheckResult(check.name, Outcome.NOT_TESTED, 0.0, check.not_tested, ranks=0),)
        self.say(f"{check.name} started")
        folder = _emptied(self.folder / check.name)
        job = replace(check.job, deadline=self.deadline) if self.deadline else check.job
        return (evaluate_job(check, job, cluster.run(self.engine, job, folder), folder),)

    def _private_keys(self) -> tuple[CheckResult, ...]:
        """Look into the image without starting it."""
        self.say(f"{PRIVATE_KEYS} started")
        started = time.monotonic()
        spec = ContainerSpec(self.built.digest, ("true",), image_name=self.built.image.name)
        with self.engine.container(spec) as container:
            found = [
                f"{folder}/{name}"
                for folder in KEY_FOLDERS
                for name, content in sorted(container.read(folder).items())
                if b"PRIVATE KEY" in content
            ]
        return (key_result(found, time.monotonic() - started),)


def _selected(tasks: Mapping[str, Task], only: Sequence[str]) -> dict[str, Task]:
    for name in only:
        if name not in tasks:
            near = difflib.get_close_matches(name, tasks, 1, 0.6)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(sorted(tasks))}"
            raise UsageError(Diagnostic(f"unknown check `{name}`", hint=hint))
    return {name: task for name, task in tasks.items() if not only or name in only}


def _run_all(engine: Engine, tasks: Mapping[str, Task], progress: Reporter) -> tuple[CheckResult, ...]:
    """All results, in the order of `tasks`, whichever ended first."""
    done: dict[str, tuple[CheckResult, ...]] = {}
    # A job of two hosts sleeps most of its time, so one more than there are cores keeps them busy.
    with ThreadPoolExecutor(max_workers=(os.cpu_count() or 1) + 1) as pool:
        running = {pool.submit(task): name for name, task in tasks.items()}
        try:
            for future in as_completed(running):
                name = running[future]
                done[name] = future.result()
                for result in done[name]:
                    progress(_line(result))
        except BaseException:
            for future in running:
                future.cancel()
            engine.close()
            raise
    return tuple(result for name in tasks for result in done[name])


def _one_at_a_time(progress: Reporter) -> Reporter:
    said = threading.Lock()

    def say(line: str) -> None:
        with said:
            progress(line)

    return say


def _transport(built: BuiltImage, gpus: int) -> str:
    if "torchrun" not in built.image.launchers:
        return "mpi"
    return "nccl" if gpus and built.image.gpu else "gloo"


def _line(result: CheckResult) -> str:
    seconds = f" in {format_seconds(result.seconds)}" if result.outcome is not Outcome.NOT_TESTED else ""
    reason = f": {result.reason}" if result.reason else ""
    return f"{result.name} {result.outcome}{seconds}{reason}"


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
