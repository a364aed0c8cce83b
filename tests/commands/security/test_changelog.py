"""Changelogs of Debian packages."""

import gzip
import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import zstandard
from debian.arfile import ArError
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.commands.security.changelog import (
    ChangelogEntry,
    is_newer,
    newer_entries,
    parse,
    read_changelog,
    source_of,
)
from tests.support.debian_packages import deb

# Excerpt of the changelog of openssl in Debian bookworm
OPENSSL = """\
openssl (3.0.20-1~deb12u2) bookworm-security; urgency=medium

  * CVE-2026-7383 ("Possible Heap Buffer Overflow in ASN.1 Multibyte String
    Conversion")
  * CVE-2026-9076 ("Out-of-Bounds Read in CMS Password-Based Decryption")

 -- Sebastian Andrzej Siewior <sebastian@breakpoint.cc>  Sat, 06 Jun 2026 21:56:20 +0200

openssl (3.0.20-1~deb12u1) bookworm; urgency=medium

  * Import 3.0.20

 -- Sebastian Andrzej Siewior <sebastian@breakpoint.cc>  Mon, 04 May 2026 20:47:50 +0200

openssl (3.0.19-1~deb12u2) bookworm-security; urgency=medium

  * CVE-2026-28387 ("Potential use-after-free in DANE client code")

 -- Sebastian Andrzej Siewior <sebastian@breakpoint.cc>  Fri, 03 Apr 2026 14:29:32 +0200
"""
ENTRIES = (
    ChangelogEntry("3.0.20-1~deb12u2", "bookworm-security", ("CVE-2026-7383", "CVE-2026-9076")),
    ChangelogEntry("3.0.20-1~deb12u1", "bookworm", ()),
    ChangelogEntry("3.0.19-1~deb12u2", "bookworm-security", ("CVE-2026-28387",)),
)


def test_entries_have_the_cve_numbers_of_their_text() -> None:
    assert tuple(parse(OPENSSL)) == ENTRIES
    assert tuple(parse("Changes between 3.0.19 and 3.0.20\n\n  * Fixed CVE-2026-28387\n")) == ()


def test_the_locked_version_and_older_ones_are_left_out() -> None:
    assert newer_entries(ENTRIES, "3.0.19-1~deb12u2") == ENTRIES[:2]
    assert newer_entries(ENTRIES, "3.0.20-1~deb12u2") == ()


@pytest.mark.parametrize(
    ("files", "entries"),
    [
        ({"changelog.Debian.gz": OPENSSL, "changelog.gz": "Changes between 1 and 2\n"}, ENTRIES),
        ({"changelog.gz": OPENSSL}, ENTRIES),
        ({"changelog.gz": "Changes between 1 and 2\n"}, ()),
        ({"copyright": OPENSSL}, ()),
    ],
)
def test_the_changelog_in_a_package_file(
    files: dict[str, str], entries: tuple[ChangelogEntry, ...], tmp_path: Path
) -> None:
    assert read_changelog(deb(tmp_path, "openssl", "3.0.20-1~deb12u2", files)) == entries


def test_the_source_package_of_a_package() -> None:
    assert source_of({"Package": "libssl3", "Source": "openssl", "Version": "3"}) == ("openssl", "3")
    assert source_of({"Package": "gcc", "Source": "gcc-defaults (1.203)", "Version": "4:12.2.0-3"}) == (
        "gcc-defaults",
        "1.203",
    )
    assert source_of({"Package": "vim", "Version": "9"}) == ("vim", "9")


def _ar(members: dict[str, bytes]) -> bytes:
    headers = {
        name: f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n" for name, data in members.items()
    }
    return b"!<arch>\n" + b"".join(
        headers[name].encode() + data + b"\n" * (len(data) % 2) for name, data in members.items()
    )


def test_a_package_that_is_compressed_with_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    original = deb_files({"./usr/share/doc/openssl/changelog.Debian.gz": gzip.compress(OPENSSL.encode())})
    path = tmp_path / "openssl.deb"
    path.write_bytes(_ar({"debian-binary": b"2.0\n", "data.tar.zst": zstandard.compress(original)}))

    assert read_changelog(path) == ENTRIES


def deb_files(files: dict[str, bytes]) -> bytes:
    """The archive of a package's files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_a_package_without_files_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "openssl.deb"
    path.write_bytes(_ar({"debian-binary": b"2.0\n"}))

    with pytest.raises(ArError, match=r"has no `data\.tar`"):
        read_changelog(path)


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("1.0", "1.0~rc1"),
        ("1:0.1", "9.9"),
        ("2.36-9+deb12u10", "2.36-9+deb12u9"),
        ("1.0-1+b1", "1.0-1"),
        ("1.0a", "1.0"),
        ("1.0+dfsg", "1.0"),
        ("1.10", "1.9"),
    ],
)
def test_the_order_of_versions(newer: str, older: str) -> None:
    assert is_newer(newer, older)
    assert not is_newer(older, newer)
    assert not is_newer(newer, newer)


def test_a_text_that_is_not_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid version string 'x_1'"):
        is_newer("x_1", "1.0")


VERSIONS = st.from_regex(r"\A(?:[0-9]:)?[0-9][0-9a-z.+~]{0,6}(?:-[0-9a-z.+~]{1,4})?\Z")


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="compares with dpkg, which only Debian has")
@given(first=VERSIONS, second=VERSIONS)
def test_versions_compare_as_in_dpkg(first: str, second: str) -> None:
    done = subprocess.run(["dpkg", "--compare-versions", first, "gt", second], check=False)

    assert is_newer(first, second) == (done.returncode == 0)
