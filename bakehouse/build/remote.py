"""Builds on remote builders, which need no route to this machine or the internet, and no credentials.

Everything that a build needs travels through the session of buildx: bases and the files of steps as OCI
layouts, which BuildKit reads by digest and only if it lacks them. The images come back the same way, with
uncompressed layers, and are loaded into the engine of this machine. They have the same digests as if it had
built them.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bakehouse.build import prefetch, step_files
from bakehouse.build.bake import bake_with_inputs, require_files, target_of
from bakehouse.build.build_inputs import BuildInputs, Downloads
from bakehouse.build.progress import Progress
from bakehouse.build.step_files import FileSet
from bakehouse.engine import builder_preflight, builder_watch, buildx
from bakehouse.engine.builder_watch import BuilderLost, Watch
from bakehouse.engine.buildkit_errors import EngineGone, TransferBroken
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError, Diagnostic, EngineError
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import write_whole
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.oci import Digest
from bakehouse.util.terminal import Reporter

_ATTEMPTS = 3
"""Limit of builders, or of restarts of one, for a call of buildx."""
_EXPORTER = "tar=false,oci-mediatypes=false,compression=uncompressed,force-compression=true"


@dataclass
class RemoteBuilders:
    """Builders in the order in which they are tried; those with faults, or that were lost, are the last."""

    names: list[str]
    report: Reporter
    require: Callable[[str], object] = builder_preflight.require_builder
    watch: Callable[[str], contextlib.AbstractContextManager[Watch]] = builder_watch.watch

    def first(self) -> str:
        """Return the first builder that passes its preflight. Raises EngineError with the faults of all."""
        faults: list[Diagnostic] = []
        for number, name in enumerate(self.names):
            try:
                self.require(name)
            except EngineError as error:
                faults += error.diagnostics
            else:
                for fault in faults:
                    self.report(f"{fault.message}; building on `{name}`")
                self.names = [*self.names[number:], *self.names[:number]]
                return name
        raise EngineError(*faults)

    def run(self, bake: Callable[[str, Watch], dict[str, buildx.BakedImage]]) -> dict[str, buildx.BakedImage]:
        """Call buildx on the first available builder, and again if it is lost. Raises EngineError."""
        name, losses = self.first(), 0
        while True:
            try:
                with self.watch(name) as watched:
                    try:
                        return bake(name, watched)
                    except EngineGone as error:
                        answer = " ".join(error.diagnostics[0].tail) or error.diagnostics[0].message
                        raise builder_watch.lost(name, answer) from error
            except BuilderLost as error:
                losses += 1
                if losses == _ATTEMPTS:
                    raise
                self.names.sort(key=name.__eq__)
                try:
                    name = self.first()
                except EngineError:
                    raise error from None
                self.report(f"{error.diagnostics[0].message}; continuing on `{name}`")


@dataclass(frozen=True)
class RemoteBuild:
    """A build of images on remote builders; `prepare` makes it."""

    images: Mapping[str, Image]
    builders: RemoteBuilders
    engine: Engine
    downloads: Downloads
    root: Path
    state: Path
    progress: Progress
    manifests: set[Digest] = field(default_factory=set)
    """Images that were built."""

    @property
    def directory(self) -> Path:
        return self.state / "remote"

    @property
    def inputs(self) -> OciLayout:
        """The bases and the files of steps, which builders receive."""
        return OciLayout(self.directory / "inputs")

    @property
    def output(self) -> OciLayout:
        """The images, which builders send."""
        return OciLayout(self.directory / "images")

    def bake(
        self,
        targets: Sequence[buildx.Target],
        inputs: BuildInputs,
        environment: Mapping[str, str] | None = None,
    ) -> dict[str, buildx.BakedImage]:
        """Build targets on a builder and load the images into the engine of this machine."""
        images = [self.images[target.name] for target in targets]

        def call(name: str, watched: Watch) -> dict[str, buildx.BakedImage]:
            return bake_with_inputs(
                self._targets(images),
                cwd=self.root,
                state=self.state,
                downloads=self.downloads,
                inputs=inputs,
                progress=self.progress,
                environment={**(environment or {}), "BUILDX_BUILDER": name},
                check=watched.require,
            )

        try:
            baked = self.builders.run(call)
        except TransferBroken:
            self._change_digests()
            self.progress.report(
                "the builder keeps a part of an interrupted transfer; sending the files again"
            )
            baked = self.builders.run(call)
        return {name: self._load(self.images[name], digests) for name, digests in baked.items()}

    def _load(self, image: Image, digests: buildx.BakedImage) -> buildx.BakedImage:
        self.manifests.add(digests.stored)
        with heartbeat(self.progress.report, f"running: docker load of {image.reference}"):
            self.output.load(digests.stored, image.names)
        stored = self.engine.image(image.reference)
        if stored is None:
            message = f"image `{image.name}` was removed from the engine right after its build"
            raise BuildError(Diagnostic(message, hint="run the same command again"))
        return buildx.BakedImage(Digest(stored.digest), digests.config)

    def _targets(self, images: Sequence[Image]) -> list[buildx.Target]:
        """Download the files of all steps, and return targets with their contexts.

        Raises UsageError for files without sha256, ImagesFailed for missing ones.
        """
        texts, sets = _dockerfiles(images, self.root, self.downloads.required)
        bases = {image.base.reference for image in images if isinstance(image.base, BootstrappedBase)}
        with heartbeat(self.progress.report, "preparing files for the builder"):
            contexts = {reference: self._base(reference) for reference in bases}
            contexts |= self._file_contexts(sets)
        self.inputs.keep(contexts.values())
        for reference in bases:
            self.inputs.share_layers(contexts[reference], self.output)
        return [
            replace(
                target_of(image),
                dockerfile=texts[image.name],
                contexts={
                    name: self.inputs.context(contexts[name])
                    for name in (image.base.reference, *(files.context for files in sets[image.name]))
                    if name in contexts
                },
                output=f'type=oci,"dest={self.output.directory.absolute()}",{_EXPORTER}',
            )
            for image in images
        ]

    def _base(self, reference: str) -> Digest:
        """Return a base of the engine as an image in the layout."""
        stored = self.engine.image(reference)
        assert stored is not None, "bases are made before"
        key = hashlib.sha256(f"{reference} {stored.digest}".encode()).hexdigest()
        return self._remembered(
            key, lambda: self.inputs.add_image(stored.digest, self.engine, self._changes())
        )

    def _file_contexts(self, sets: Mapping[str, Sequence[FileSet]]) -> dict[str, Digest]:
        """Return each set of files as an image in the layout, by its context; download missing ones."""
        unique = {step.context: step for of_image in sets.values() for step in of_image}
        new = (step for context, step in unique.items() if self._recorded(context) is None)
        files = tuple(dict.fromkeys(file for step in new for file in step.files))
        needed = replace(self.downloads.required, files=files)

        def show(fetcher: Fetcher) -> None:
            require_files(self.downloads, sets.keys(), self.progress)

        transfers = prefetch.download_all(needed, self.downloads.fetcher, show)
        paths = {transfer.file: transfer.path for transfer in transfers if transfer.path}

        def add(file_set: FileSet) -> Digest:
            return self.inputs.add_files({**file_set.tree(paths), "changes": str(self._changes()).encode()})

        return {context: self._remembered(context, partial(add, files)) for context, files in unique.items()}

    def _remembered(self, key: str, add: Callable[[], Digest]) -> Digest:
        """Return an image that is in the layout under a key, or add it."""
        digest = self._recorded(key)
        if digest is None:
            digest = add()
            write_whole(self._record(key), digest + "\n")
        return digest

    def _recorded(self, key: str) -> Digest | None:
        """Return an image that is in the layout under a key; None if it is not."""
        try:
            digest = Digest(self._record(key).read_text().strip())
        except OSError:
            return None
        return digest if self.inputs.has_image(digest) else None

    def _record(self, key: str) -> Path:
        return self.directory / "digests" / f"{key}-{self._changes()}"

    def _changes(self) -> int:
        """Return how often digests had to be changed, because a builder refused to resume a transfer."""
        try:
            return int((self.directory / "changes").read_text())
        except (OSError, ValueError):
            return 0

    def _change_digests(self) -> None:
        """Give the same content other digests, so that BuildKit does not resume an interrupted transfer."""
        write_whole(self.directory / "changes", f"{self._changes() + 1}\n")


@contextlib.contextmanager
def prepare(
    images: Sequence[Image],
    builders: RemoteBuilders,
    *,
    root: Path,
    state: Path,
    engine: Engine,
    downloads: Downloads,
    progress: Progress,
) -> Iterator[RemoteBuild]:
    """Yield a build on remote builders, alone in its project. Bases must be in the engine.

    Raises UsageError for files without sha256.
    """
    prefetch.require_known(downloads.required)
    by_name = {image.name: image for image in images}
    build = RemoteBuild(by_name, builders, engine, downloads, root, state, progress)

    def wait() -> None:
        progress.report("waiting for another build on a remote builder")

    with exclusive(build.directory / "lock", wait):
        # Parts of images of an interrupted build
        shutil.rmtree(build.output.directory / "ingest", ignore_errors=True)
        yield build
        if build.manifests:
            build.output.keep(build.manifests)


def _dockerfiles(
    images: Sequence[Image], root: Path, required: RequiredFiles
) -> tuple[dict[str, str], dict[str, tuple[FileSet, ...]]]:
    """Return the Dockerfiles with mounts, and the sets of files, by image."""
    by_sha256: dict[str, tuple[RequiredFile, ...]] = {}
    for file in required.files:
        by_sha256[str(file.sha256)] = (*by_sha256.get(str(file.sha256), ()), file)
    texts, sets = {}, {}
    for image in images:
        directory = root / "images" / image.name
        text = (directory / "Dockerfile").read_text(encoding="utf-8")
        texts[image.name], sets[image.name] = step_files.add_mounts(text, directory / "inputs", by_sha256)
    return texts, sets


def is_remote(names: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether builders are others than the engine that the docker client uses."""
    return bool(names) and not (len(names) == 1 and builder_preflight.is_own_engine(names[0], environment))
