"""Writes the root file system of a candidate to a file, without a container engine."""

import contextlib
import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

from bakehouse.analysis.root_file_system import root_archive
from bakehouse.catalog.project import ProjectSettings
from bakehouse.cluster.bare_machine import RootFileSystem
from bakehouse.engine.image_archive import (
    READ_BYTES,
    compression_of,
    decompressed,
    unreadable_as_engine_error,
)
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.publish.diagnostics import diagnostics_of
from bakehouse.registry import destination
from bakehouse.registry.client import Repository
from bakehouse.registry.compression import compressed, compressor
from bakehouse.util.files import make_directory, open_file
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter


def write_root(
    project: ProjectSettings, candidate: ReleaseRecord, path: Path, command: str, progress: Reporter
) -> RootFileSystem:
    """Download a candidate by its digest, and write its files as one archive with gzip.

    Raises PublishError, with the `command` to repeat, if the registry does not have it.
    """
    progress(f"{candidate.image}: writing the files of {candidate.image_uri} to {path}")
    with (
        destination.registry(project, candidate.registry, progress) as registry,
        private_directory(project.state) as directory,
    ):
        remote = Repository(registry, candidate.repository, RetryPolicy(), progress)
        diagnostics = diagnostics_of(candidate, remote, command)
        with diagnostics.translate_errors():
            manifest = remote.manifest(candidate.digest)
            if manifest is None:
                raise diagnostics.candidate_gone()
            assert manifest.config, "a candidate is an image"
            config = remote.blob(manifest.config.digest)
            for layer in manifest.layers:
                remote.download(layer.digest, layer.bytes, directory / layer.digest)
        chunks = root_archive([partial(_open_layer, directory / layer.digest) for layer in manifest.layers])
        sha256 = hashlib.sha256()
        written = directory / path.name
        with unreadable_as_engine_error(), written.open("wb") as file:
            for block in compressed(chunks, compressor("gzip")):
                sha256.update(block)
                file.write(block)
        make_directory(path.parent)
        written.replace(path)
    return RootFileSystem(sha256.hexdigest(), config)


@contextlib.contextmanager
def _open_layer(path: Path) -> Iterator[IO[bytes]]:
    with open_file(path) as file:
        head = file.read(READ_BYTES)
        file.seek(0)
        with decompressed(file, compression_of(head) or "none") as stream:
            yield stream
