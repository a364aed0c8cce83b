"""Files of build steps that are sent to BuildKit with the build, because steps cannot reach this host.

Bases and the files of steps are images in an OCI layout. BuildKit reads them by digest through the session of
buildx, and only if it lacks them. An engine without a containerd store cannot read layouts. It loads the
files as images instead.
"""

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from bakehouse.builder import image_owners, prefetch, step_files
from bakehouse.builder.bake import require_files
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.step_files import FileSet
from bakehouse.engine import buildx, daemon_info
from bakehouse.engine.buildkit_errors import TransferBroken
from bakehouse.engine.oci_layout import OciLayout
from bakehouse.errors import EngineError
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.plan.model import Image
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import read_text, write_whole
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.oci import Digest

_LOADED = "bakehouse/files:"
"""Prefix of the images of files that an engine loads; `bake clean` removes them, too."""
T = TypeVar("T")
Bake = Callable[[Sequence[buildx.Target]], dict[str, buildx.BakedImage]]


@dataclass(frozen=True, slots=True)
class SentFiles:
    """The bases and the files of steps that BuildKit receives."""

    context: BuildContext

    @property
    def directory(self) -> Path:
        return self.context.project.state / "remote"

    @property
    def layout(self) -> OciLayout:
        return OciLayout(self.directory / "inputs")

    def retried(self, call: Callable[[], T]) -> T:
        """Call a function. If BuildKit refuses to resume a transfer, call it again with other digests."""
        try:
            return call()
        except TransferBroken:
            self._change_digests()
            self.context.progress.report(
                "the builder keeps a part of an interrupted transfer; sending the files again"
            )
            return call()

    def base(self, reference: str) -> Digest:
        """Return a base of the engine as an image in the layout."""
        stored = self.context.engine.image(reference)
        assert stored is not None, "bases are made before"
        key = hashlib.sha256(f"{reference} {stored.digest}".encode()).hexdigest()
        return self._remembered(
            key, lambda: self.layout.add_image(stored.digest, self.context.engine, self._changes())
        )

    def files(self, sets: Mapping[str, Sequence[FileSet]]) -> dict[str, Digest]:
        """Return each set of files as an image in the layout, by its context; download missing ones."""
        unique = {step.context: step for of_image in sets.values() for step in of_image}
        new = (step for context, step in unique.items() if self._recorded(context) is None)
        files = tuple(dict.fromkeys(file for step in new for file in step.files))
        downloads = self.context.downloads
        needed = replace(downloads.required, files=files)

        def show(fetcher: Fetcher) -> None:
            require_files(self.context, sets.keys())

        transfers = prefetch.download_all(needed, downloads.fetcher, show)
        paths = {transfer.file: transfer.path for transfer in transfers if transfer.path}

        def add(file_set: FileSet) -> Digest:
            return self.layout.add_files({**file_set.tree(paths), "changes": str(self._changes()).encode()})

        return {context: self._remembered(context, partial(add, files)) for context, files in unique.items()}

    def contexts(self, manifests: Mapping[str, Digest]) -> dict[str, str]:
        """Return the images of files as named contexts, which BuildKit reads from the layout."""
        return {context: self.layout.context(manifest) for context, manifest in manifests.items()}

    def loaded(self, manifests: Mapping[str, Digest]) -> dict[str, str]:
        """Load the images of files into the engine, and return them as named contexts; remove old ones."""
        engine = self.context.engine
        names = {context: f"{_LOADED}{manifest.partition(':')[2]}" for context, manifest in manifests.items()}
        self._remove_loaded({*names.values()})
        image_owners.record(self.context.project, names.values())
        for context, name in names.items():
            if not engine.image(name):
                self.layout.load(manifests[context], [name])
        return {context: f"docker-image://{name}" for context, name in names.items()}

    def _remove_loaded(self, kept: Collection[str]) -> None:
        """Remove images of files that only the project loaded; a later build repeats failed removals."""
        project, engine = self.context.project, self.context.engine
        gone = set[str]()
        with contextlib.suppress(EngineError), image_owners.locked(project) as owners:
            old = {name for name in owners.own.difference(kept) if name.startswith(_LOADED)}
            gone = {name for name in old if name in owners.others or engine.remove_image(name)}
        image_owners.forget(project, gone)

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
            digest = Digest(read_text(self._record(key)).strip())
        except OSError:
            return None
        return digest if self.layout.has_image(digest) else None

    def _record(self, key: str) -> Path:
        return self.directory / "digests" / f"{key}-{self._changes()}"

    def _changes(self) -> int:
        """Return how often digests had to be changed, because a builder refused to resume a transfer."""
        try:
            return int(read_text(self.directory / "changes"))
        except (OSError, ValueError):
            return 0

    def _change_digests(self) -> None:
        """Give the same content other digests, so that BuildKit does not resume an interrupted transfer."""
        write_whole(self.directory / "changes", f"{self._changes() + 1}\n")


def bake_with_files(
    targets: Sequence[buildx.Target], images: Mapping[str, Image], context: BuildContext, bake: Bake
) -> dict[str, buildx.BakedImage]:
    """Bake targets on the engine, which receives the files of their steps. It already has the bases."""
    sent = SentFiles(context)
    selected = [images[target.name] for target in targets]
    reads_layouts = daemon_info.inspect().containerd_store

    def send() -> dict[str, buildx.BakedImage]:
        texts, sets = dockerfiles(selected, context.project.images, context.downloads.required)
        with heartbeat(context.progress.report, "preparing files for the engine"):
            manifests = sent.files(sets)
            sent.layout.keep(manifests.values())
            contexts = sent.contexts(manifests) if reads_layouts else sent.loaded(manifests)
        return bake(
            [
                replace(
                    target,
                    dockerfile=texts[target.name],
                    contexts={
                        **target.contexts,
                        **{files.context: contexts[files.context] for files in sets[target.name]},
                    },
                )
                for target in targets
            ]
        )

    return sent.retried(send)


@contextlib.contextmanager
def with_files(images: Sequence[Image], context: BuildContext, bake: Bake) -> Iterator[Bake]:
    """Yield `bake`; an engine that cannot reach this host receives the files of the steps with each call.

    Raises UsageError for files without sha256.
    """
    if not context.sends_files:
        yield bake
        return
    by_name = {image.name: image for image in images}
    with alone(SentFiles(context)):
        yield lambda targets: bake_with_files(targets, by_name, context, bake)


@contextlib.contextmanager
def alone(sent: SentFiles) -> Iterator[None]:
    """Wait until no other build of the project uses the layouts.

    Raises UsageError for files without sha256.
    """
    prefetch.require_known(sent.context.downloads.required)

    def wait() -> None:
        sent.context.progress.report("waiting for another build that sends its files")

    with exclusive(sent.directory / "lock", wait):
        yield


def dockerfiles(
    images: Sequence[Image], rendered: Path, required: RequiredFiles
) -> tuple[dict[str, str], dict[str, tuple[FileSet, ...]]]:
    """Return the Dockerfiles with mounts, and the sets of files, by image."""
    by_sha256: dict[str, tuple[RequiredFile, ...]] = {}
    for file in required.files:
        by_sha256[str(file.sha256)] = (*by_sha256.get(str(file.sha256), ()), file)
    texts, sets = {}, {}
    for image in images:
        directory = rendered / image.name
        text = read_text(directory / "Dockerfile")
        texts[image.name], sets[image.name] = step_files.add_mounts(text, directory / "inputs", by_sha256)
    return texts, sets
