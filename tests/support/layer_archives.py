"""Layers and saved images made by hand."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import zstandard

Form = Literal["gzip", "zstd", "none"]


@dataclass(frozen=True)
class Member:
    """One entry of a layer: a file, or what `link`, `hard` or `directory` says."""

    path: str
    content: bytes = b""
    link: str = ""
    hard: str = ""
    directory: bool = False
    mode: int = 0o644
    mtime: int = 0
    uid: int = 0


def layer(*members: Member) -> bytes:
    """A layer's archive, uncompressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            info = tarfile.TarInfo(member.path)
            info.mode, info.mtime, info.uid = member.mode, member.mtime, member.uid
            if member.link:
                info.type, info.linkname = tarfile.SYMTYPE, member.link
            elif member.hard:
                info.type, info.linkname = tarfile.LNKTYPE, member.hard
            elif member.directory:
                info.type = tarfile.DIRTYPE
            info.size = len(member.content)
            archive.addfile(info, io.BytesIO(member.content))
    return buffer.getvalue()


def compressed(content: bytes, form: Form) -> bytes:
    if form == "gzip":
        return gzip.compress(content)
    if form == "zstd":
        return zstandard.compress(content)
    return content


def config_of(layers: Sequence[bytes], made_by: Iterable[str] = ()) -> bytes:
    """The configuration of an image."""
    history = [
        {"created_by": "ENV A=1", "empty_layer": True},
        *({"created_by": created_by} for created_by in made_by),
    ]
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    rootfs = {"type": "layers", "diff_ids": diff_ids}
    return json.dumps({"os": "linux", "architecture": "amd64", "history": history, "rootfs": rootfs}).encode()


def saved(layers: Sequence[bytes], made_by: Iterable[str] = (), form: Form = "gzip") -> bytes:
    """An image as the engine saves it: blobs in the order of their names, then what lists them."""
    blobs: dict[str, bytes] = {}

    def put(content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return digest

    stored = [put(compressed(layer, form)) for layer in layers]
    config = put(config_of(layers, made_by))
    manifest = {
        "schemaVersion": 2,
        "config": {"mediaType": "c", "digest": f"sha256:{config}", "size": len(blobs[config])},
        "layers": [
            {"mediaType": "l", "digest": f"sha256:{digest}", "size": len(blobs[digest])} for digest in stored
        ],
    }
    put(json.dumps(manifest).encode())
    listed = [{"Config": f"blobs/sha256/{config}", "Layers": [f"blobs/sha256/{digest}" for digest in stored]}]
    members = [Member(f"blobs/sha256/{name}", content) for name, content in sorted(blobs.items())]
    return layer(
        Member("blobs/sha256", directory=True), *members, Member("manifest.json", json.dumps(listed).encode())
    )
