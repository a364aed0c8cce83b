"""The `demo` task: the whole pipeline for one image, with the time of each step."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bakehouse.builder import timings
from bakehouse.builder.progress import Progress
from bakehouse.cli import tables
from bakehouse.engine import provision
from bakehouse.evidence.known_checks import known_checks
from bakehouse.jobs import snippets
from bakehouse.pipeline.build import build
from bakehouse.pipeline.publish import push_images
from bakehouse.pipeline.smoke import smoke_images
from bakehouse.plan.workspace import Workspace, select
from bakehouse.publish import preflight
from bakehouse.publish.options import PublishOptions
from bakehouse.util.format import format_seconds, format_table
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.terminal import Reporter, detail

IMAGE = "pytorch-cpu"
_BRIEF_SECONDS = 10.0
"""At most 40 lines come before the result, because a demo is about the result."""
NEXT = (
    ("bake explain pytorch-cpu", "# why each version was chosen"),
    ("bake run pytorch-cpu --source-dir src --entry-point train.py", "# your script, as SageMaker runs it"),
    ("bake init", "# in your repository: an image of your own"),
)
"""Commands to continue with, and the purpose of each."""


@contextmanager
def _timed(step: str, times: dict[str, float]) -> Iterator[None]:
    began = time.monotonic()
    yield
    times[step] = time.monotonic() - began


def run(workspace: Workspace, report: Reporter) -> str:
    """Release the demo image to the local registry; return the image URI, code and times."""
    times: dict[str, float] = {}
    with _timed("engine", times):
        # Before anything is installed
        preflight.check_access(workspace.project, "local", [IMAGE])
        provision.ensure(provision.ask_or_agree, report)
    with _timed("build", times), Progress.on(sys.stderr, brief=_BRIEF_SECONDS) as progress:
        built = build(select(workspace, [IMAGE]), report, progress=progress)
    with _timed("smoke", times), heartbeat(report, "running: smoke tests"):
        reports = smoke_images(workspace, built, detail(report))
    with _timed("push", times):
        records = push_images(workspace, built, report, PublishOptions(registry="local"))
    known = known_checks(workspace.project, built[0].image, built[0].content)
    assert not known.blockers, "push took an image that was not tested"
    work = timings.spent(progress.steps())
    inside = ", ".join(
        f"{name} {format_seconds(seconds)}" for name, seconds in sorted(work.items()) if seconds >= 1
    )
    lines = [
        tables.built_table(built).rstrip("\n"),
        tables.smoke_table(reports).rstrip("\n"),
        "",
        "image_uri:",
        tables.uris(records).rstrip("\n"),
        "",
        snippets.snippet(records[0]).code.rstrip("\n"),
        "",
        "time spent:",
        format_table(
            ((step, format_seconds(seconds)) for step, seconds in times.items()), align="lr", indent="  "
        ).rstrip("\n"),
        *([f"  build steps, which run in parallel: {inside}"] if inside else []),
        "",
        "next:",
        format_table(NEXT, indent="  ").rstrip("\n"),
    ]
    return "\n".join(lines) + "\n"
