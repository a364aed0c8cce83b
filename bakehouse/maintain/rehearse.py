"""The use case `rehearse`: every build step of images, with stubs for unavailable files."""

import contextlib
import sys
from collections.abc import Iterable, Sequence

from bakehouse.builder import rehearse as rehearsal
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.build_inputs import build_inputs
from bakehouse.builder.progress import Progress
from bakehouse.builder.rehearse import RehearsalResults, Rehearsed
from bakehouse.builder.stub_plan import Rehearsal
from bakehouse.engine.open_engine import BUILD_FEATURES, open_engine
from bakehouse.errors import EngineError
from bakehouse.evidence import step_layers, step_results
from bakehouse.evidence.step_layers import StepLayer
from bakehouse.pipeline.build import platforms_of, runnable_plan
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

        def record(rehearsed: Sequence[Rehearsed]) -> None:
            rows = [row for item in rehearsed for row in _rows(item.rehearsal)]
            step_layers.record(project.state, rows, project.state / "locks")

        return rehearsal.run_rehearsals(prepared, debian, context, record)


def _rows(done: Rehearsal) -> Iterable[StepLayer]:
    components = {need.part.component for need, _ in done.files}
    return step_results.rehearsed_rows(done.real, done.real.base_part.component, components)


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
