"""OCI layouts: directories through which images and files travel to BuildKit and back, by digest."""

import contextlib
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from bakehouse.engine import image_load, usage_lock
from bakehouse.engine.image_archive import READ_BYTES
from bakehouse.engine.image_load import add_entry
from bakehouse.engine.protocol import Engine
from bakehouse.util.files import make_directory, named_errors, temporary_file, write_whole
from bakehouse.util.oci import Digest, split_reference

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, slots=True)
class OciLayout:
    """A directory of blobs by digest."""

    directory: Path

    def context(self, manifest: Digest) -> str:
        """Return an image as a named context of a build. BuildKit reads it only if it lacks the digest."""
        return f"oci-layout://{self.directory.absolute()}@{manifest}"

    def blob(self, digest: Digest) -> Path:
        return self.directory / "blobs/sha256" / digest.removeprefix("sha256:")

    def has_image(self, manifest: Digest) -> bool:
        """Return whether all blobs of an image are in the layout."""
        return self.blob(manifest).is_file() and all(path.is_file() for path in self._blobs(manifest))

    def share_layers(self, manifest: Digest, other: "OciLayout") -> None:
        """Link the layers of an image into another layout on this disk, which then need not receive them."""
        for path in self._blobs(manifest)[1:]:
            link = other.directory / "blobs/sha256" / path.name
            make_directory(link.parent)
            with contextlib.suppress(FileExistsError):
                link.hardlink_to(path)

    def add_files(self, files: Mapping[str, Path | bytes]) -> Digest:
        """Add files, by their path in the image, as an image of one layer; equal files give equal digests."""

        def write(stream: IO[bytes]) -> None:
            with tarfile.open(mode="w|", fileobj=stream, format=tarfile.GNU_FORMAT) as archive:
                for name, source in sorted(files.items()):
                    if isinstance(source, bytes):
                        add_entry(archive, name, io.BytesIO(source), len(source))
                    else:
                        with source.open("rb") as content:
                            add_entry(archive, name, content, source.stat().st_size)

        return self.add_layer(write, {"architecture": "amd64", "os": "linux", "config": {}})

    def add_layer(self, write: Callable[[IO[bytes]], object], config: Mapping[str, object]) -> Digest:
        """Add an image of one layer, whose archive `write` writes, with a configuration."""
        layer, size = self._add(write)
        config = {**config, "rootfs": {"type": "layers", "diff_ids": [layer]}}
        return self._add_manifest(_json(config), [{"mediaType": _LAYER, "digest": layer, "size": size}])

    def add_image(self, reference: str, engine: Engine, changes: int = 0) -> Digest:
        """Add an image of an engine; the digests of its layer blobs depend on `changes`."""
        layers: dict[str, Mapping[str, Any]] = {}

        def read(stream: IO[bytes]) -> None:
            plain = hashlib.sha256()

            def write(blob: IO[bytes]) -> None:
                # The time in the header of a gzip file changes its digest, but not its content.
                packed = gzip.GzipFile("", "wb", 1, blob, mtime=changes) if changes else blob
                while chunk := stream.read(READ_BYTES):
                    plain.update(chunk)
                    packed.write(chunk)
                if changes:
                    packed.close()

            digest, size = self._add(write)
            media_type = f"{_LAYER}+gzip" if changes else _LAYER
            layers[f"sha256:{plain.hexdigest()}"] = {"mediaType": media_type, "digest": digest, "size": size}

        with usage_lock.engine_in_use():
            config = engine.read_image(reference, lambda _: read).config
        return self._add_manifest(
            config, [layers[diff_id] for diff_id in json.loads(config)["rootfs"]["diff_ids"]]
        )

    def keep(self, manifests: Collection[Digest]) -> None:
        """Remove the blobs that none of these images use."""
        kept = {path.name for manifest in manifests for path in (self.blob(manifest), *self._blobs(manifest))}
        for path in (self.directory / "blobs/sha256").glob("*"):
            if path.name not in kept:
                path.unlink()

    def load(self, manifest: Digest, names: Sequence[str]) -> None:
        """Load an image into the engine of this machine, with these names. Raises BuildError."""
        message = f"the engine of this machine could not load `{names[0]}`"
        hint = "check `docker system df`, then run the same command again"
        image_load.load(lambda archive: self._write_archive(archive, manifest, names), message, hint)

    def _write_archive(self, archive: tarfile.TarFile, manifest: Digest, names: Sequence[str]) -> None:
        """Write an archive for both image stores of Docker: one reads index.json, the other manifest.json."""
        content = self.blob(manifest).read_bytes()
        document = json.loads(content)
        described = {"mediaType": document["mediaType"], "digest": manifest, "size": len(content)}
        index = {
            "schemaVersion": 2,
            "manifests": [
                {**described, "annotations": {"io.containerd.image.name": full_name(name)}} for name in names
            ],
        }
        config, *layers = (f"blobs/sha256/{path.name}" for path in self._blobs(manifest))
        listed = [{"Config": config, "RepoTags": list(names), "Layers": layers}]
        for name, text in (
            ("oci-layout", {"imageLayoutVersion": "1.0.0"}),
            ("index.json", index),
            ("manifest.json", listed),
        ):
            encoded = _json(text)
            add_entry(archive, name, io.BytesIO(encoded), len(encoded))
        for path in dict.fromkeys((self.blob(manifest), *self._blobs(manifest))):
            with path.open("rb") as stream:
                add_entry(archive, f"blobs/sha256/{path.name}", stream, path.stat().st_size)

    def _blobs(self, manifest: Digest) -> list[Path]:
        """Return the configuration and the layers of an image."""
        document = json.loads(self.blob(manifest).read_bytes())
        return [self.blob(Digest(item["digest"])) for item in (document["config"], *document["layers"])]

    def _add_manifest(self, config: bytes, layers: Sequence[Mapping[str, Any]]) -> Digest:
        digest, size = self._add(lambda stream: stream.write(config))
        document = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": digest, "size": size},
            "layers": list(layers),
        }
        manifest, _ = self._add(lambda stream: stream.write(_json(document)))
        write_whole(self.directory / "oci-layout", '{"imageLayoutVersion": "1.0.0"}\n')
        return manifest

    def _add(self, write: Callable[[IO[bytes]], object]) -> tuple[Digest, int]:
        """Add a blob; return its digest and size."""
        directory = self.directory / "blobs/sha256"
        with named_errors(directory), temporary_file(directory) as file:
            stream = _Hashed(file)
            write(cast(IO[bytes], stream))
            file.flush()
            size = file.tell()
            Path(file.name).replace(directory / stream.sha256.hexdigest())
        return Digest(f"sha256:{stream.sha256.hexdigest()}"), size


class _Hashed(io.RawIOBase):
    """Writer that computes the sha256 of its content."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self._file.write(data)


def full_name(name: str) -> str:
    """Return a name as containerd writes it."""
    host, repository, tag = split_reference(name)
    return f"{host}/{repository}:{tag}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
