"""Build steps that run the apt of a locked base."""

from collections.abc import Mapping

from bakehouse.builder.build_inputs import BuildInputs
from bakehouse.catalog.apt_lock import suite_and_platform
from bakehouse.engine import daemon_info, provision
from bakehouse.fetch.debian_mirrors import debian_mirrors
from bakehouse.lock import locked_base
from bakehouse.lock.apt import RESOLVE, AptMachine, RunApt
from bakehouse.lock.base_step import BuildSettings, run_step
from bakehouse.plan.dockerfile import filled
from bakehouse.plan.workspace import Workspace
from bakehouse.util.heartbeat import Heartbeat
from bakehouse.util.terminal import Reporter

_DOCKERFILE = f"""\
FROM {{{{ base }}}} AS base
RUN --network=none --mount=type=bind,target=/input sh /input/{RESOLVE.name} /input /output

FROM scratch
COPY --from=base /output/ /
"""


def apt_machine(workspace: Workspace, name: str, report: Reporter) -> AptMachine:
    """Return the mirrors of a project and the base whose apt resolves the packages of a lock."""
    project = workspace.project

    def open_base() -> RunApt:
        base = locked_base.base_with_apt(workspace, suite_and_platform(name)[0])
        daemon_info.require(provision.ensure(provision.ask_at_terminal, report))
        locked_base.ensure(workspace, base, report)

        def run(files: Mapping[str, str | bytes]) -> Mapping[str, str]:
            beat = Heartbeat(report, f"running: apt of {base.reference}")
            settings = BuildSettings(project.state, BuildInputs(), lambda _: beat.tick())
            return run_step(name, filled(_DOCKERFILE, base=base.reference), settings, files)

        return run

    return AptMachine(debian_mirrors(project), open_base, project.state)
