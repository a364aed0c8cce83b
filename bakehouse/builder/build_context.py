"""Context of a build: its project, engine, downloads, inputs of steps, builders and cache."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bakehouse.builder.build_inputs import BuildInputs, Downloads
from bakehouse.builder.progress import Progress
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.builder.stage_cache import StageCache
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import provision
from bakehouse.engine.protocol import Engine


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options of a build that its user sets."""

    source: str = ""
    """A mirror to try first."""
    offline: bool = False
    """Use local files only, not the network."""
    builders: tuple[str, ...] = ()
    """Names of remote builders; the available ones are used. Empty means the engine."""
    cache: str = ""
    """Repository of a build cache; empty means none."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Data that the steps of a build share. The images are rendered below `project.images`."""

    project: ProjectSettings
    engine: Engine
    """The engine that builds, or that loads the images of remote builders."""
    progress: Progress
    downloads: Downloads
    inputs: BuildInputs = field(default_factory=BuildInputs)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of docker's programs, such as registry logins."""
    builders: RemoteBuilders | None = None
    """Builders that build instead of the engine."""
    cache: StageCache | None = None
    """Cache that stages are read from and written to."""
    sends_files: bool = False
    """The engine receives the files of steps with the build, because they cannot reach this host."""

    def restart_engine(self) -> bool:
        """Restart an engine that lost a layer, if nothing else uses it; return whether it was restarted."""
        # The engine of another machine is left alone.
        if self.builders or not provision.restart(self.progress.report):
            return False
        self.progress.report("the engine lost a layer (a BuildKit bug): restarted the engine, building again")
        return True
