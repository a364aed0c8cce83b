"""Debian package files of all compressions, and files that are not packages."""

from pathlib import Path

import pytest

from bakehouse.builder.deb_file import DebFile
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import BuildError
from tests.support.deb_archives import write_deb
from tests.support.errors import raised

FIELDS = {"Package": "hello", "Version": "1.0", "Depends": "libc6 (>= 2.36),\n libgcc-s1"}


@pytest.mark.parametrize("compression", ["", ".xz", ".gz", ".zst", ".bz2"])
def test_a_package_is_read_without_dpkg(tmp_path: Path, compression: str) -> None:
    entries = {"./usr/bin/hello": b"#!/bin/sh\n"}
    package = DebFile(write_deb(tmp_path / "hello.deb", FIELDS, entries, compression=compression))
    assert package.fields == {"Package": "hello", "Version": "1.0", "Depends": "libc6 (>= 2.36), libgcc-s1"}
    with package.installed_files() as archive:
        [entry] = archive
        content = archive.extractfile(entry)
        assert content
        assert (entry.name, content.read()) == ("./usr/bin/hello", b"#!/bin/sh\n")


def damaged(tmp_path: Path) -> dict[str, bytes]:
    whole = write_deb(tmp_path / "whole.deb", FIELDS, {"./usr/bin/hello": b"x" * 5000}).read_bytes()
    return {
        "empty": b"",
        "page": b"<html>not found</html>",
        "head": whole[:8],
        "control": whole[:150],
        "size": whole.replace(b"4         `\n", b"x         `\n", 1),
        "compressed": whole.replace(b"\xfd7zXZ", b"\xfd7zXX"),
    }


@pytest.mark.parametrize("kind", ["empty", "page", "head", "control", "size", "compressed"])
def test_a_file_that_is_not_a_package_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "hello_1.0_amd64.deb"
    path.write_bytes(damaged(tmp_path)[kind])
    for read in (lambda package: package.fields, DebFile.installed_files):
        assert failure_text(raised(BuildError, read, DebFile(path)).diagnostics[0]) == (
            "error: `hello_1.0_amd64.deb` is not a Debian package\n"
            "\n"
            "hint: run `bake lock --upgrade` to lock another file of the package\n"
        )
