"""Builds on remote builders, which need no route to this machine or the internet, and no credentials.

Everything that a build needs travels through the session of buildx: bases and the files of steps as OCI
layouts, which BuildKit reads by digest and only if it lacks them. The images come back the same way, with
uncompressed layers, and are loaded into the engine of this machine. They have the same digests as if it had
built them.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakehouse.builder import build_log, sent_files
from bakehouse.builder.bake import bake_with_inputs, target_of
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.build_steps import read_steps
from bakehouse.builder.code_copies import code_directory
from bakehouse.builder.distribution import Bake, DistributedBuild, distribute
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.builder.sent_files import SentFiles
from bakehouse.engine import buildx
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.errors import BuildError, EngineError
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.files import read_text, remove_tree
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.oci import Digest

_EXPORTER = "tar=false,oci-mediatypes=false,compression=uncompressed,force-compression=true"


@dataclass
class RemoteBuild:
    """A build of images on remote builders; `open_remote_build` opens it."""

    images: Mapping[str, Image]
    builders: RemoteBuilders
    context: BuildContext
    _distribution: DistributedBuild | None = None
    """Images by builder; None before the first call of buildx."""
    _loaded: dict[str, buildx.BakedImage] = field(default_factory=dict)
    """Images that were built, and that the engine of this machine has."""
    _layouts: dict[str, OciLayout] = field(default_factory=dict)
    """The layout that receives each image, even if a different builder than planned builds it."""
    _manifests: dict[OciLayout, set[Digest]] = field(default_factory=dict)
    """The manifests of these images by layout."""

    @property
    def sent(self) -> SentFiles:
        return SentFiles(self.context)

    @property
    def directory(self) -> Path:
        return self.sent.directory

    def output(self, builder: str) -> OciLayout:
        """Return a builder's own layout, because two programs must not write to one at the same time."""
        return OciLayout(self.directory / "images" / builder)

    def bake(self, targets: Sequence[buildx.Target]) -> dict[str, buildx.BakedImage]:
        """Build targets on builders and load the images into the engine of this machine."""

        def bake_on(
            builder: str, targets: Sequence[buildx.Target], check: Callable[[], None]
        ) -> dict[str, buildx.BakedImage]:
            try:
                return bake_with_inputs(targets, self.context, builder=builder, check=check)
            except EngineError:
                self.context.progress.drop_running(builder)
                raise

        images = [self.images[target.name] for target in targets]
        self.sent.retried(lambda: self._bake(images, bake_on))
        return {image.name: self._loaded[image.name] for image in images}

    def _bake(self, images: Sequence[Image], bake: Bake) -> None:
        """Build and load the images that are not loaded."""
        if self._distribution is None:
            directories = {name: self.context.project.images / name for name in self.images}
            steps = {
                name: read_steps(
                    read_text(directory / "Dockerfile"),
                    directory,
                    code_directory(self.context.project.output, name),
                )
                for name, directory in directories.items()
            }
            measured = build_log.stage_seconds(build_log.load_builds(self.context.project.state))
            report = self.context.progress.report
            self._distribution = distribute(steps, self.builders, self.directory, measured, report)
        if missing := [image for image in images if image.name not in self._loaded]:
            self._distribution.run(self._targets(missing, self._distribution), bake, self._load_all)

    def _load_all(self, baked: Mapping[str, buildx.BakedImage]) -> None:
        for name, digests in baked.items():
            layout = self._layouts[name]
            self._loaded[name] = self._load(self.images[name], digests, layout)
            self._manifests.setdefault(layout, set()).add(digests.stored)

    def remove_old(self) -> None:
        """Remove the images of older builds, and all images of builders that are no longer selected."""
        for layout, manifests in self._manifests.items():
            layout.keep(manifests)
        selected = {self.output(name).directory for name in self.builders.names}
        for directory in (self.directory / "images").glob("*"):
            if directory not in selected:
                remove_tree(directory)

    def _load(self, image: Image, digests: buildx.BakedImage, output: OciLayout) -> buildx.BakedImage:
        with heartbeat(self.context.progress.report, f"running: docker load of {image.reference}"):
            output.load(digests.stored, image.names)
        stored = self.context.engine.image(image.reference)
        if stored is None:
            raise BuildError(
                f"image `{image.name}` was removed from the engine immediately after its build",
                hint="run the same command again",
            )
        return buildx.BakedImage(Digest(stored.digest), digests.config)

    def _targets(self, images: Sequence[Image], distribution: DistributedBuild) -> list[buildx.Target]:
        """Download the files of all steps, and return targets with their contexts.

        Raises UsageError for files without sha256, ImagesFailed for missing ones.
        """
        texts, sets = sent_files.dockerfiles(
            images, self.context.project.images, self.context.downloads.required
        )
        bases = {image.base.reference for image in images if isinstance(image.base, BootstrappedBase)}
        with heartbeat(self.context.progress.report, "preparing files for the builder"):
            contexts = {reference: self.sent.base(reference) for reference in bases}
            contexts |= self.sent.files(sets)
        self.sent.layout.keep(contexts.values())
        self._layouts |= {
            name: self.output(builder)
            for builder, names in distribution.schedule.shares.items()
            for name in names
        }
        for reference in bases:
            for layout in (distribution.results, *self._layouts.values()):
                self.sent.layout.share_layers(contexts[reference], layout)
        targets = (target_of(image, self.context.project.output) for image in images)
        return [
            replace(
                target,
                dockerfile=texts[image.name],
                contexts={
                    **target.contexts,
                    **{
                        name: self.sent.layout.context(contexts[name])
                        for name in (image.base.reference, *(files.context for files in sets[image.name]))
                        if name in contexts
                    },
                },
                output=f'type=oci,"dest={self._layouts[image.name].directory.absolute()}",{_EXPORTER}',
            )
            for image, target in zip(images, targets, strict=True)
        ]


@contextlib.contextmanager
def open_remote_build(
    images: Sequence[Image], builders: RemoteBuilders, context: BuildContext
) -> Iterator[RemoteBuild]:
    """Yield a build on remote builders, the only one of its project at a time. Bases must be in the engine.

    Raises UsageError for files without sha256.
    """
    build = RemoteBuild({image.name: image for image in images}, builders, context)
    with sent_files.alone(build.sent):
        # Remove partial images of an interrupted build
        for ingest in (*build.directory.glob("images/*/ingest"), build.directory / "shared/ingest"):
            remove_tree(ingest)
        yield build
        build.remove_old()
