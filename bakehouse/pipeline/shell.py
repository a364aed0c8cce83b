"""The use case `shell`: a shell in an image."""

from dataclasses import dataclass, replace

from bakehouse.cluster.job import TrainingJob
from bakehouse.cluster.job_runner import host_spec
from bakehouse.engine.open_engine import open_engine
from bakehouse.engine.protocol import ContainerSpec, Engine
from bakehouse.errors import UsageError
from bakehouse.pipeline.run import stored_image
from bakehouse.plan.workspace import Selection, Workspace, require_valid
from bakehouse.sagemaker import local_job
from bakehouse.sagemaker.local_job import RunRequest
from bakehouse.util.oci import PLATFORM
from bakehouse.util.terminal import Reporter

_SHELL = ("sh", "-c", "if command -v bash >/dev/null; then exec bash; fi; exec sh")
_PROGRAM = ("sh", "-c", '"$@"; exit $?', "sh")
"""The shell stays the first process, because a program in its place would ignore Ctrl-C."""


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


def _run(engine: Engine, spec: ContainerSpec, command: ContainerCommand) -> int:
    with engine.container(replace(spec, interactive=True, terminal=command.terminal)) as container:
        return container.attach()
