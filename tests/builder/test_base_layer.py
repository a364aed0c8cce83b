"""The layer of a base: the same bytes from each archive of the same root file system."""

import io
import random
import tarfile
from pathlib import Path

from bakehouse.builder.base_layer import write_layer
from bakehouse.util.oci import EPOCH

CONTENT = {
    "usr": None,
    "usr/bin": None,
    "usr/bin/a": b"a program",
    "usr/bin/b": "=usr/bin/a",
    "usr/bin/sh": "dash",
    "usr-local": b"sorted after all of usr",
    "usr/bin/ping": b"a program with a capability",
    "new": b"written in the step",
}
CAPABILITY = "SCHILY.xattr.security.capability"


def layer(archive: Path) -> bytes:
    buffer = io.BytesIO()
    write_layer(archive, buffer)
    return buffer.getvalue()


def export(path: Path, order: list[str], *, first: str = "usr/bin/a", **differences: object) -> Path:
    """Write an archive as an engine would; `first` is the name of the file that has its content."""
    second = {"usr/bin/a": "usr/bin/b", "usr/bin/b": "usr/bin/a"}[first]
    order = [name for name in order if name != second] + [second]
    with tarfile.open(path, "w", format=differences.get("format", tarfile.PAX_FORMAT)) as archive:  # type: ignore[call-overload]
        for name in order:
            entry = tarfile.TarInfo(f"{differences.get('prefix', '')}{name}")
            content = {first: b"a program", second: f"={differences.get('prefix', '')}{first}"}.get(
                name, CONTENT[name]
            )
            entry.mtime = int(str(differences["time"])) if content is None or name == "new" else 1_600_000_000
            entry.uname = str(differences.get("user", ""))
            entry.mode = 0o4755
            if name == "usr/bin/ping":
                entry.pax_headers = {CAPABILITY: "cap", "SCHILY.xattr.security.selinux": str(differences)}
            if content is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                entry.type = tarfile.LNKTYPE if content.startswith("=") else tarfile.SYMTYPE
                entry.linkname = content.removeprefix("=")
            else:
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def test_engines_may_differ_in_order_times_users_and_labels(tmp_path: Path) -> None:
    order = [*CONTENT]
    first = layer(export(tmp_path / "first.tar", order, time=EPOCH + 5))
    random.Random(1).shuffle(order)
    other = export(
        tmp_path / "other.tar", order, first="usr/bin/b", time=EPOCH + 86400, user="root", prefix="./"
    )
    assert layer(other) == first
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        entries = {entry.name: entry for entry in archive}
    assert [*entries] == [
        ".", "new", "usr", "usr/bin", "usr/bin/a", "usr/bin/b", "usr/bin/ping", "usr/bin/sh", "usr-local",
    ]  # fmt: skip
    assert (entries["usr/bin/a"].size, entries["usr/bin/b"].linkname) == (9, "usr/bin/a")
    assert entries["usr/bin/b"].islnk()
    assert entries["usr/bin/ping"].pax_headers == {CAPABILITY: "cap"}
    assert {name: entries[name].mtime for name in ("new", "usr", "usr/bin/sh")} == {
        "new": EPOCH,
        "usr": EPOCH,
        "usr/bin/sh": 1_600_000_000,
    }
    assert entries["usr/bin/a"].mode == 0o4755


def test_another_content_mode_or_owner_is_another_layer(tmp_path: Path) -> None:
    first = layer(export(tmp_path / "first.tar", [*CONTENT], time=EPOCH))
    order = [name for name in CONTENT if name != "usr-local"]
    assert layer(export(tmp_path / "other.tar", order, time=EPOCH)) != first
    changed = (tmp_path / "first.tar").read_bytes().replace(b"a program", b"b program", 1)
    (tmp_path / "changed.tar").write_bytes(changed)
    assert layer(tmp_path / "changed.tar") != first
