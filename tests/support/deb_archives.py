"""Debian package files, written without dpkg."""

import bz2
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import zstandard

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".xz": lzma.compress,
    ".gz": lambda data: zlib.compress(data, wbits=31),
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".bz2": bz2.compress,
}


def write_deb(
    path: Path,
    fields: Mapping[str, str],
    entries: Mapping[str, bytes | str | None] | None = None,
    *,
    compression: str = ".xz",
) -> Path:
    """Write a package; an entry is the content of a file, the target of a link, or None for a directory."""
    control = "".join(f"{name}: {value}\n" for name, value in fields.items()).encode()
    pack = PACK[compression]
    members = {
        "debian-binary": b"2.0\n",
        f"control.tar{compression}": pack(tar({"./control": control})),
        f"data.tar{compression}": pack(tar(entries or {})),
    }
    archive = b"!<arch>\n"
    for name, data in members.items():
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        archive += head + data + b"\n" * (len(data) % 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive)
    return path


def tar(entries: Mapping[str, bytes | str | None]) -> bytes:
    """Return an archive; a target that begins with `=` is that of a hard link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.mode = 1_600_000_000, 0o755
            match content:
                case None:
                    entry.type = tarfile.DIRTYPE
                case bytes():
                    entry.size, entry.mode = len(content), 0o644
                case str():
                    entry.type = tarfile.LNKTYPE if content.startswith("=") else tarfile.SYMTYPE
                    entry.linkname = content.removeprefix("=")
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()
