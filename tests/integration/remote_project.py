"""A project of small images, for builds on remote builders and on the engine of this machine."""

import contextlib
import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

from bakehouse.builder.build import build
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.build_inputs import Downloads, StepNeeds, build_inputs, remote_inputs
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.progress import Mode, Progress
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.builder.stage_cache import StageCache
from bakehouse.builder.timings import StepTime
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.engine import builder_watch, docker
from bakehouse.engine.protocol import EngineHost
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.plan import workspace
from bakehouse.plan.model import BootstrappedBase, ImageKey
from bakehouse.util.oci import EPOCH, Sha256
from tests.integration import projects
from tests.support import fake_engine, plans

OUTPUT = "type=image,oci-mediatypes=false,compression=uncompressed,force-compression=true"
CONTENT = b"content of a package"
FILE = RequiredFile(
    "deb", "tiny_1_all.deb", Sha256(hashlib.sha256(CONTENT).hexdigest()), len(CONTENT), "pool/tiny"
)
SHARED = f"""\
FROM scratch AS inputs
COPY --chmod=755 inputs/ /
FROM {{base}} AS base
FROM base AS debs
RUN --mount=type=bind,from=inputs,source=/download-debs,target=/usr/local/bin/download-debs \\
    --mount=type=bind,from=inputs,source=/debs.txt,target=/mnt/debs.txt \\
    --mount=type=secret,id=mirrors \\
    download-debs /mnt/debs.txt /packages
FROM base AS part
RUN --mount=type=bind,from=debs,source=/packages,target=/mnt \\
    mkdir -p /out/opt && cp /mnt/{FILE.file} /out/opt/ && find /out -exec touch -h -d @{EPOCH} {{{{}}}} +
"""
"""Stages of all images: the file is downloaded and becomes the result of `part`."""
IMAGE = """\
FROM base AS image
COPY --link --from=part /out/ /
LABEL purpose="test"
"""


class RemoteProject:
    """Images on the base of the catalogue, whose Dockerfiles begin with `SHARED`."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root = root
        planned = workspace.select(workspace.open_workspace(HOME), ["mpi-cpu"]).plan.images[0]
        assert isinstance(planned.base, BootstrappedBase)
        assert planned.base.reference == projects.base()
        self.base = planned.base.reference
        key = ImageKey(uuid4().hex * 2)
        self.images = {
            name: plans.changed(fake_engine.image(name), key=key, base=planned.base) for name in names
        }
        self._log = (root / "log").open("w", buffering=1)
        (root / "files").mkdir()
        (root / "files" / FILE.file).write_bytes(CONTENT)
        self.write(dict.fromkeys(names, IMAGE))

    def write(self, stages: Mapping[str, str]) -> None:
        """Write the rendered files of images, with their own stages, and begin a new log."""
        self.progress = Progress(self._log, Mode.LINES, verbose=True)
        self._written = len((self.root / "log").read_text())
        for name, text in stages.items():
            directory = self.root / "images" / name
            (directory / "inputs").mkdir(parents=True, exist_ok=True)
            script = (HOME / "templates/bin/download-debs").read_text()
            (directory / "inputs/download-debs").write_text(script)
            (directory / "inputs/debs.txt").write_text(f"{FILE.sha256} pool/{FILE.file}\n")
            (directory / "Dockerfile").write_text(SHARED.format(base=self.base) + text)
            target = {
                "context": f"images/{name}", "dockerfile": "Dockerfile", "platforms": ["linux/amd64"],
                "tags": [*self.images[name].names], "output": [OUTPUT],
                "args": {"SOURCE_DATE_EPOCH": str(EPOCH)},
            }  # fmt: skip
            (directory / "docker-bake.json").write_text(json.dumps({"target": {name: target}}))

    def build(
        self,
        *builders: str,
        names: Sequence[str] = (),
        interval: float = 10.0,
        cache: StageCache | None = None,
        sends_files: bool = False,
    ) -> tuple[BuiltImage, ...]:
        """Build images, by default all, on builders, or on the engine of this machine.

        `sends_files` sends the file with the build, as to an engine that does not reach this host.
        """
        project = ProjectSettings(self.root, (), state_directory=self.root / "state")
        images = [self.images[name] for name in names or self.images]
        mirrors = LocalMirrors((self.root / "files",), HashCache(self.root / "hashes.json"))
        with contextlib.ExitStack() as stack:
            fetcher = stack.enter_context(Fetcher(FileCache(self.root / "cache", print), mirrors))
            required = RequiredFiles((FILE,), {FILE: tuple(self.images)}, ((FILE,),))
            downloads = Downloads(required, fetcher, EngineHost() if sends_files else projects.host())
            report = self.progress.report
            inputs = (
                remote_inputs(project, report, StepNeeds())
                if builders or sends_files
                else build_inputs(project, report, downloads=downloads)
            )
            watch = partial(builder_watch.watch, interval=interval)
            context = BuildContext(
                project,
                stack.enter_context(contextlib.closing(docker.connect())),
                self.progress,
                downloads,
                stack.enter_context(inputs),
                builders=RemoteBuilders(builders, report, watch=watch) if builders else None,
                cache=cache,
                sends_files=sends_files,
            )
            return build(images, context)

    def steps(self) -> tuple[StepTime, ...]:
        """Return the steps that ran since the last `write`, and did not come from a cache."""
        # BuildKit cancels a step at once that equals a running one of another image.
        return tuple(
            step
            for step in self.progress.steps()
            if step.text.startswith("RUN ") and not step.cached and step.seconds > 0.01
        )

    def log(self) -> str:
        """Return the lines of progress since the last `write`."""
        return (self.root / "log").read_text()[self._written :]

    def close(self) -> None:
        """Close the log and remove the images."""
        self._log.close()
        self.remove()

    def remove(self) -> None:
        for image in self.images.values():
            for name in image.names:
                subprocess.run(["docker", "image", "rm", name], capture_output=True, check=False)
