"""Changelogs of Debian packages."""

from pathlib import Path

import pytest

from bakehouse.security.changelog import ChangelogEntry, newer_entries, parse, read_changelog, source_of
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
