"""The use case `shell`: a shell in an image, or in a stage up to the step that fails."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bakehouse.builder import build as builder
from bakehouse.builder import image_owners, remote_builders
from bakehouse.builder.build_context import BuildOptions
from bakehouse.builder.progress import Progress
from bakehouse.builder.stage_cut import StageCut, stage_bases
from bakehouse.builder.stage_shell import build_stage
from bakehouse.catalog.project import ProjectSettings
from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_runner import host_spec
from bakehouse.engine.open_engine import BUILD_FEATURES, open_engine
from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import EngineError, UsageError
from bakehouse.pipeline import image_docs
from bakehouse.pipeline.build import pinned_plan, runnable_plan
from bakehouse.pipeline.run import stored_image
from bakehouse.plan.model import Image
from bakehouse.plan.workspace import Selection, Workspace, render_images, require_valid, select
from bakehouse.sagemaker import local_job
from bakehouse.sagemaker.local_job import RunRequest
from bakehouse.util.files import display_path, read_text
from bakehouse.util.format import format_table
from bakehouse.util.oci import PLATFORM
from bakehouse.util.suggest import suggestion
from bakehouse.util.tempdir import run_id
from bakehouse.util.terminal import Reporter

_SHELL = ("sh", "-c", "if command -v bash >/dev/null; then exec bash; fi; exec sh")
_PROGRAM = ("sh", "-c", '"$@"; exit $?', "sh")
"""The shell stays the first process, because a program in its place would ignore Ctrl-C."""
_SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """Command that a container runs: a program or an interactive shell."""

    program: tuple[str, ...] = ()
    """The program with its arguments; empty means a shell."""
    terminal: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        return (*_PROGRAM, *self.program) if self.program else _SHELL


def open_shell(workspace: Workspace, image: str, command: ContainerCommand, report: Reporter) -> int:
    """Run a command in an image as SageMaker starts it, and return its exit code.

    Raises UsageError if the image is not built.
    """
    require_valid(workspace, [image])
    recipe = workspace.recipes.get(image)
    planned = Selection(workspace, (recipe,), (image,)).image if recipe else None
    platform = planned.platform if planned else PLATFORM
    with open_engine(report, platforms=[platform]) as engine:
        stored = engine.image(planned.reference) if planned else stored_image(workspace, image, engine)
        if stored is None:
            raise UsageError(
                f"image `{image}` is not built, or its recipe has changed since",
                hint=f"run `bake build {image}`",
            )
        request = RunRequest(TrainingJob(image=stored.digest, command=command.words))
        job = local_job.prepare(request, image, workspace.catalog, report=report)
        [host] = job.host_names
        with engine.network(job.name) as network:
            # As for `train`, Bakehouse's own entry point prepares the container
            spec = replace(
                host_spec(job, host, network, {}),
                command=command.words,
                keep_entrypoint=bool(planned and planned.entrypoint),
            )
            return _run(engine, spec, command)


def open_stage_shell(
    workspace: Workspace, image: str, stage: str, command: ContainerCommand, report: Reporter
) -> int:
    """Run a command in a stage of an image before the step that fails, and return its exit code.

    Renders the image and builds the stage, as `bake build` does. Raises UsageError for an unknown stage.
    """
    selection = select(workspace, [image])
    planned = selection.image
    render_images(workspace, selection.plan, report, pages=image_docs.pages(workspace, [planned]))
    _require_stage(workspace.project, planned, stage)
    pinned_plan(workspace, runnable_plan(selection, selection.plan, report))
    with (
        open_engine(report, *BUILD_FEATURES, platforms=[planned.platform]) as engine,
        _temporary_image(workspace.project, engine) as reference,
    ):
        cut = _build_stage(workspace.project, planned, stage, reference, engine)
        for line in _description(workspace.project, planned, cut):
            report(line)
        with contextlib.ExitStack() as stack:
            name = f"{planned.name}-{stage}"
            network = stack.enter_context(engine.network(name)) if cut.has_network else "none"
            spec = ContainerSpec(
                reference, command.words, hostname=stage, network=network, image_name=planned.name
            )
            return _run(engine, spec, command)


def _run(engine: Engine, spec: ContainerSpec, command: ContainerCommand) -> int:
    with engine.container(replace(spec, interactive=True, terminal=command.terminal)) as container:
        return container.attach()


def _require_stage(project: ProjectSettings, image: Image, stage: str) -> None:
    """Raise UsageError for an unknown stage, and for one without programs."""
    path = project.images / image.name / "Dockerfile"
    bases = stage_bases(read_text(path))
    if stage not in bases:
        hint = suggestion(stage, bases) or f"the lines `FROM … AS STAGE` of {display_path(path)} name them"
        raise UsageError(f"image `{image.name}` has no stage `{stage}`", hint=hint)
    if bases[stage] == _SCRATCH:
        raise UsageError(
            f"stage `{stage}` has no shell: it starts from `{_SCRATCH}`",
            hint="select a stage that mounts or copies its files",
        )


@contextlib.contextmanager
def _temporary_image(project: ProjectSettings, engine: Engine) -> Iterator[str]:
    """Yield the name of an image that is removed at the end, or by `bake clean` if this run is killed."""
    reference = f"bakehouse/shell:{run_id()}"
    image_owners.record(project, [reference])
    try:
        yield reference
    finally:
        # An error here would hide the result of the command
        with contextlib.suppress(EngineError):
            if engine.remove_image(reference):
                image_owners.forget(project, [reference])


def _build_stage(
    project: ProjectSettings, image: Image, stage: str, reference: str, engine: Engine
) -> StageCut:
    with Progress.on(sys.stderr) as progress:
        if remote_builders.is_remote(project.builders):
            progress.report("building on this machine's engine, where the shell opens, and not on `builders`")
        options = BuildOptions(cache=project.build_cache)
        with builder.open_context(project, [image], engine, progress, options) as context:
            cut = build_stage(image, stage, reference, context)
    if engine.image(reference) is None:
        raise EngineError(f"image `{reference}` was removed from the engine", hint="run the command again")
    return cut


def _description(project: ProjectSettings, image: Image, cut: StageCut) -> Sequence[str]:
    """Return lines about the place of a shell: the next step and its mounts."""
    stage = f"stage `{cut.stage}` of `{image.name}`"
    if cut.step is None:
        return [f"{stage}: no step fails, so this is its end"]
    path = display_path(project.images / image.name / "Dockerfile")
    lines = [f"{stage}, before the step that fails, {path}:{cut.step.line}"]
    lines += [f"  {line}" for line in cut.text.splitlines()]
    if cut.mounts:
        what = "the shell has copies of the bind mounts" if cut.copies_binds else "not in the shell"
        lines.append(f"mounts of the step ({what}):")
        rows = [
            (mount.kind, mount.target, mount.source, f"of {mount.stage}" if mount.stage else "")
            for mount in cut.mounts
        ]
        lines += format_table(rows, indent="  ").splitlines()
    return lines
