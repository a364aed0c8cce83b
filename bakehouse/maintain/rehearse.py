"""The use case `rehearse`: every build step of images, with stubs for unavailable files."""

import contextlib
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from bakehouse.builder import rehearse as rehearsal
from bakehouse.builder import run_log
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.build_inputs import build_inputs
from bakehouse.builder.progress import Progress
from bakehouse.builder.rehearse import RehearsalResults, Rehearsed
from bakehouse.engine.open_engine import BUILD_FEATURES, open_engine
from bakehouse.errors import EngineError
from bakehouse.pipeline.build import platforms_of, record_runs, runnable_plan
from bakehouse.plan.model import BootstrappedBase
from bakehouse.plan.planner import bootstrapped_bases
from bakehouse.plan.workspace import Selection, Workspace
from bakehouse.util.terminal import Reporter


def rehearse(
    selection: Selection, report: Reporter, *, real_packages: bool = False, json: bool = False
) -> RehearsalResults:
    """Run every build step of images, with stubs for unavailable files.

    A failing image does not stop the others. Each group of images is recorded when it ends. With
    `real_packages`, every package of a lock is downloaded, whatever its size.
    """
    workspace = selection.workspace
    project = workspace.project
    plan = runnable_plan(selection, selection.plan, report)
    debian = _debian(workspace)
    prepared = rehearsal.prepare(plan.images, workspace.templates, debian, project.state, real=real_packages)
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress.on(sys.stderr, json=json))
        platforms = platforms_of(plan.images)
        engine = stack.enter_context(open_engine(progress.report, *BUILD_FEATURES, platforms=platforms))
        downloads = stack.enter_context(
            rehearsal.start_downloads(prepared, debian, project, engine.host(), progress.report)
        )
        inputs = build_inputs(project, progress.report, rehearsal.step_needs(plan.images), downloads)
        context = BuildContext(project, engine, progress, downloads, stack.enter_context(inputs))
        return rehearsal.run_rehearsals(
            prepared, debian, context, lambda rehearsed: record_runs(workspace, _runs(rehearsed))
        )


def _runs(rehearsed: Sequence[Rehearsed]) -> dict[str, run_log.Run]:
    today = datetime.now(UTC).date()
    return {
        item.rehearsal.real.name: run_log.rehearsed_run(item.rehearsal.real, item.rehearsal.stubs, today)
        for item in rehearsed
    }


def _debian(workspace: Workspace) -> BootstrappedBase:
    """Return the base that stubs of other bases are made from."""
    bases = [
        base
        for base in bootstrapped_bases(workspace.catalog, workspace.apt_locks).values()
        if base.suite == rehearsal.SUITE
    ]
    if not bases:
        raise EngineError(f"no component bootstraps Debian `{rehearsal.SUITE}`, which stubs of bases need")
    return bases[0]
