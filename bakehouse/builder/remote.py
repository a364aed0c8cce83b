"""Builds on remote builders, which need no route to this machine or the internet, and no credentials.

Everything that a build needs travels through the session of buildx: bases and the files of steps as OCI
layouts, which BuildKit reads by digest and only if it lacks them. The images come back the same way, with
uncompressed layers, and are loaded into the engine of this machine. They have the same digests as if it had
built them.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakehouse.builder import sent_files
from bakehouse.builder.bake import bake_with_inputs, target_of
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.remote_builders import RemoteBuilders
from bakehouse.builder.sent_files import SentFiles
from bakehouse.engine import buildx
from bakehouse.engine.builder_watch import Watch
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.errors import BuildError, EngineError
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.files import remove_tree
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.oci import Digest

_EXPORTER = "tar=false,oci-mediatypes=false,compression=uncompressed,force-compression=true"


@dataclass
class RemoteBuild:
    """A build of images on remote builders; `open_remote_build` opens it."""

    images: Mapping[str, Image]
    builders: RemoteBuilders
    context: BuildContext
    _loaded: dict[str, buildx.BakedImage] = field(default_factory=dict)
    """Images that were built, and that the engine of this machine has."""
    _received: set[Digest] = field(default_factory=set)
    """The manifests of these images in the layout."""

    @property
    def sent(self) -> SentFiles:
        return SentFiles(self.context)

    @property
    def directory(self) -> Path:
        return self.sent.directory

    @property
    def output(self) -> OciLayout:
        """The layout that receives the images."""
        return OciLayout(self.directory / "images")

    def bake(self, targets: Sequence[buildx.Target]) -> dict[str, buildx.BakedImage]:
        """Build targets on a builder and load the images into the engine of this machine."""
        images = [self.images[target.name] for target in targets]
        self.sent.retried(lambda: self._bake([image for image in images if image.name not in self._loaded]))
        return {image.name: self._loaded[image.name] for image in images}

    def _bake(self, images: Sequence[Image]) -> None:
        """Build images on the first available builder, or on another one if it is lost, and load them."""
        if not images:
            return
        targets = self._targets(images)

        def call(builder: str, watched: Watch) -> dict[str, buildx.BakedImage]:
            try:
                return bake_with_inputs(targets, self.context, builder=builder, check=watched.require)
            except EngineError:
                self.context.progress.drop_running(builder)
                raise

        for name, digests in self.builders.run(self.builders.available()[0], call).items():
            self._loaded[name] = self._load(self.images[name], digests)
            self._received.add(digests.stored)

    def remove_old(self) -> None:
        """Remove the images of older builds."""
        if self._received:
            self.output.keep(self._received)

    def _load(self, image: Image, digests: buildx.BakedImage) -> buildx.BakedImage:
        with heartbeat(self.context.progress.report, f"running: docker load of {image.reference}"):
            self.output.load(digests.stored, image.names)
        stored = self.context.engine.image(image.reference)
        if stored is None:
            raise BuildError(
                f"image `{image.name}` was removed from the engine immediately after its build",
                hint="run the same command again",
            )
        return buildx.BakedImage(Digest(stored.digest), digests.config)

    def _targets(self, images: Sequence[Image]) -> list[buildx.Target]:
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
        for reference in bases:
            self.sent.layout.share_layers(contexts[reference], self.output)
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
                output=f'type=oci,"dest={self.output.directory.absolute()}",{_EXPORTER}',
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
        remove_tree(build.output.directory / "ingest")
        yield build
        build.remove_old()
