"""Reading the output of a base's apt, and writing locks of vendor bases."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.base_image_lock import read_locks
from bakehouse.errors import BuildError, ConflictError
from bakehouse.lock import apt_base_image
from bakehouse.lock.apt_base_image import LockedSteps, VendorBase
from tests.support.errors import error_text, raised, refusal
from tests.support.locked_debian import stanza

PINNED = f"house/base:1@sha256:{'ab' * 32}"
BASE = VendorBase(PINNED, PINNED, (("g++", "libc6"), ("none",)))
STEPS = """\
NOTE: This is only a simulation!
Inst libc6 [2.39-0ubuntu8.4] (2.39-0ubuntu8.6 Ubuntu:24.04/noble-updates [amd64])
Inst g++ (4:13.2.0-7 Ubuntu:24.04/noble [amd64])
Conf libc6 (2.39-0ubuntu8.6 Ubuntu:24.04/noble-updates [amd64])
"""
FILES = """\
'http://mirror.example/ubuntu/pool/main/g/gcc/g%2b%2b_13.2.0-7_amd64.deb' g++_4%3a13.deb 1 SHA256:00
'https://tools.example/repo/libc6_2.39_amd64.deb' libc6_2.39-0ubuntu8.6_amd64.deb 1 SHA256:00
"""
PACKAGES = "\n".join(
    [
        stanza("libc6", {"Version": "2.39-0ubuntu8.6", "Filename": "./libc6_2.39_amd64.deb"}),
        "Package: libc6\nStatus: install ok installed\nVersion: 2.39-0ubuntu8.4\n",
        stanza("libc6", {"Version": "2.39-0ubuntu8.5"}),
        stanza("g++", {"Version": "4:13.2.0-7", "Filename": "pool/main/g/gcc/g++_13.2.0-7_amd64.deb"}),
    ]
)
TEXTS = {"1.steps": STEPS, "1.files": FILES, "1.packages": PACKAGES, "2.steps": "", "2.files": ""}


def read(before: Mapping[str, Deb] | None = None, **changed: str) -> LockedSteps:
    return apt_base_image.read_output(
        BASE, before or {}, {**TEXTS, **{f"1.{name}": text for name, text in changed.items()}}
    )


def test_each_step_adds_what_apt_would_install() -> None:
    result = read()
    assert result.steps == {("g++", "libc6"): ("g++", "libc6"), ("none",): ()}
    assert {name: fields["Version"] for name, fields in result.packages.items()} == {
        "g++": "4:13.2.0-7",
        "libc6": "2.39-0ubuntu8.6",
    }
    assert [change.text for change in result.changes] == [
        "g++ not locked -> 4:13.2.0-7",
        "libc6 not locked -> 2.39-0ubuntu8.6",
    ]


def test_a_file_is_where_apt_would_take_it_from() -> None:
    packages = read().packages
    assert {name: (fields["Site"], fields["Filename"]) for name, fields in packages.items()} == {
        "g++": ("http://mirror.example/ubuntu", "pool/main/g/gcc/g++_13.2.0-7_amd64.deb"),
        "libc6": ("https://tools.example/repo", "libc6_2.39_amd64.deb"),
    }


def test_a_file_that_is_locked_stays_where_it_was_found() -> None:
    digest = read().packages["g++"]["SHA256"]
    before = Deb("g++", "4:13.2.0-7", digest, 1000, "pool/g++.deb", "http://earlier.example")
    result = read({"g++": before}, files="'copy:/lock/pool/g%2b%2b.deb' x 1 SHA256:00\n" + FILES)
    assert (result.packages["g++"]["Site"], result.packages["g++"]["Filename"]) == (
        "http://earlier.example",
        "pool/g++.deb",
    )
    assert [change.name for change in result.changes] == ["libc6"]


@pytest.mark.parametrize(
    "packages", [PACKAGES.replace("Package: g++", "Package: gpp"), PACKAGES.replace("SHA256", "MD5sum")]
)
def test_a_package_without_a_file_that_is_known_is_reported(packages: str) -> None:
    error = raised(BuildError, read, packages=packages)
    assert error_text(error).startswith("error: apt of `house/base:1` has no usable file of package `")
    assert ("hint: its sources need a sha256 of the file and an http or https URL\n") in error_text(error)


@pytest.mark.parametrize("files", [FILES.replace("https://tools.example", "cdrom://tools"), FILES[:120]])
def test_a_package_on_no_web_is_reported(files: str) -> None:
    with pytest.raises(BuildError, match="has no usable file of package `libc6`"):
        read(files=files)


def test_two_steps_with_one_package_in_two_versions_are_refused() -> None:
    with pytest.raises(ConflictError) as caught:
        apt_base_image.read_output(BASE, {}, {**TEXTS, "2.steps": STEPS.replace("4:13.2.0-7 ", "4:12.0 ")})
    assert error_text(caught.value) == (
        "error: steps on `house/base:1` need `g++` in two versions, 4:13.2.0-7 and 4:12.0\n\n"
        "hint: a lock holds one version of each package: `packages` of all images must agree on that base\n"
    )


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = read()
    path = tmp_path / "apt/bases/house-base-1.packages"
    path.parent.mkdir(parents=True)
    path.write_text(apt_base_image.lock_text(PINNED, result.steps, result.packages.values()))
    lock = read_locks([tmp_path]).bases[PINNED]
    assert lock.pinned == PINNED
    assert {step: tuple(deb.name for deb in lock.adds(step)) for step in lock.steps} == result.steps
    assert [deb.url for deb in lock.debs] == [
        "http://mirror.example/ubuntu/pool/main/g/gcc/g%2B%2B_13.2.0-7_amd64.deb",
        "https://tools.example/repo/libc6_2.39_amd64.deb",
    ]


def test_a_step_that_takes_a_package_of_the_base_away_is_refused() -> None:
    assert refusal(ConflictError, read, steps=f"Remv libc6-plugin [1.0]\n{STEPS}") == (
        "error: a step on `house/base:1` would remove its package `libc6-plugin`: g++ libc6\n\n"
        "hint: name versions in `packages` that fit the packages of the base, or use another base\n"
    )


def test_logins_of_sources_are_in_no_lock() -> None:
    packages = read(files=FILES.replace("https://", "https://ann:s3cret@")).packages
    assert packages["libc6"]["Site"] == "https://tools.example/repo"


def test_of_two_files_with_one_version_the_locked_one_is_kept() -> None:
    digest = "0d" * 32
    before = Deb("g++", "4:13.2.0-7", digest, 1000, "pool/g++.deb", "http://earlier.example")
    locked = stanza("g++", {"Version": "4:13.2.0-7", "SHA256": digest})
    result = read({"g++": before}, packages=f"{PACKAGES}\n{locked}")
    assert result.packages["g++"]["SHA256"] == digest
    assert "g++" not in {change.name for change in result.changes}


def test_another_file_with_the_same_version_is_a_change() -> None:
    before = Deb("g++", "4:13.2.0-7", "0d" * 32, 1000, "pool/g++.deb", "http://earlier.example")
    assert read({"g++": before}).changes[0].text == "g++ 4:13.2.0-7 -> 4:13.2.0-7 (other bytes)"


def test_what_a_mirror_says_of_a_locked_file_comes_before_what_the_lock_says() -> None:
    digest = read().packages["g++"]["SHA256"]
    before = Deb("g++", "4:13.2.0-7", digest, 1000, "pool/g++.deb", "http://earlier.example")
    current = PACKAGES.replace("Package: g++\n", "Package: g++\nBreaks: old\n")
    remembered = stanza("g++", {"Version": "4:13.2.0-7"})
    assert read({"g++": before}, packages=f"{current}\n{remembered}").packages["g++"]["Breaks"] == "old"
