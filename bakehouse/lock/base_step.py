"""Steps that run in a vendor base to find out what it contains; the build makes no image."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bakehouse.builder import registry_auth
from bakehouse.builder.build_inputs import BuildInputs, apt_inputs
from bakehouse.engine import buildx, daemon_info, provision
from bakehouse.engine.buildkit_events import Event
from bakehouse.plan.workspace import Workspace
from bakehouse.util.files import make_directory, read_text
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """Settings of the builds that run such steps."""

    state: Path
    inputs: BuildInputs
    on_event: Callable[[Event], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment of docker's programs, such as their credentials."""


@contextlib.contextmanager
def build_settings(
    workspace: Workspace, references: Sequence[str], report: Reporter, on_event: Callable[[Event], None]
) -> Iterator[BuildSettings]:
    """Yield the settings of builds from bases; start an engine and log in to registries if necessary."""
    project = workspace.project
    with contextlib.ExitStack() as stack:
        daemon_info.require(provision.ensure(provision.ask_at_terminal, report))
        inputs = stack.enter_context(apt_inputs(project, report))
        environment = stack.enter_context(registry_auth.ecr_logins(references, project, report))
        yield BuildSettings(project.state, inputs, on_event, environment)


def run_step(
    name: str, dockerfile: str, settings: BuildSettings, files: Mapping[str, str | bytes] | None = None
) -> dict[str, str]:
    """Build a Dockerfile whose context contains `files`; return the files of its last stage by name."""
    with private_directory(settings.state) as directory:
        context, output = directory / "context", directory / "output"
        target = {"context": str(context), "platforms": ["linux/amd64"], "no-cache": True, "attest": []}
        bake_file = json.dumps({"target": {"packages": target}})
        contents = {"Dockerfile": dockerfile, "docker-bake.json": bake_file, **(files or {})}
        for path, content in contents.items():
            make_directory((context / path).parent)
            (context / path).write_bytes(content.encode() if isinstance(content, str) else content)
        buildx.export_files(
            buildx.Target(name, "packages", context / "docker-bake.json"),
            output,
            buildx.BakeOptions(
                context,
                settings.state,
                settings.on_event,
                settings.inputs.secrets,
                settings.inputs.arguments,
                settings.environment,
            ),
        )
        # Names of maintainers may have any encoding. A link could lead to a file of this machine
        files_of_step = (path for path in output.iterdir() if path.is_file() and not path.is_symlink())
        return {path.name: read_text(path, errors="replace") for path in files_of_step}
