"""The tree of essential packages: which they are, in which order all are installed, and where files go."""

import tarfile
from pathlib import Path

import pytest

from bakehouse.builder import root_tree
from bakehouse.builder.deb_file import DebFile
from tests.support.deb_archives import write_deb

PACKAGES = {
    "bash": {"Essential": "yes", "Pre-Depends": "libc6 (>= 2.36), libtinfo6", "Depends": "debianutils"},
    "init": {"Essential": "yes", "Depends": "absent | perl:any, awk, other-absent"},
    "debianutils": {},
    "libc6": {"Depends": "libgcc-s1"},
    "libgcc-s1": {"Depends": "libc6 (>= 2.35)"},
    "libtinfo6": {"Depends": "libc6"},
    "mawk": {"Provides": "awk (= 1)"},
    "original-awk": {"Provides": "awk"},
    "perl": {},
    "python3": {"Pre-Depends": "python3-minimal (= 3.11)"},
    "python3-minimal": {"Pre-Depends": "python3.11-minimal"},
    "python3.11-minimal": {"Pre-Depends": "libc6"},
}


def packages(directory: Path, packages: dict[str, dict[str, str]]) -> dict[str, DebFile]:
    return {
        name: DebFile(write_deb(directory / f"{name}.deb", {"Package": name, **fields}))
        for name, fields in packages.items()
    }


def test_essential_packages_need_what_they_depend_on(tmp_path: Path) -> None:
    assert root_tree.essential(packages(tmp_path, PACKAGES)) == (
        "bash", "debianutils", "init", "libc6", "libgcc-s1", "libtinfo6", "mawk", "perl",
    )  # fmt: skip


def test_a_package_comes_after_those_that_it_pre_depends_on(tmp_path: Path) -> None:
    available = packages(tmp_path, PACKAGES)
    names = ["python3", "bash", "python3-minimal", "libc6", "python3.11-minimal"]
    assert root_tree.in_order(names, available) == (
        "libc6", "python3.11-minimal", "python3-minimal", "python3", "bash",
    )  # fmt: skip


def test_packages_that_pre_depend_on_each_other_end_in_some_order(tmp_path: Path) -> None:
    circle = {"aa": "bb", "bb": "cc", "cc": "aa"}
    available = packages(tmp_path, {name: {"Pre-Depends": needed} for name, needed in circle.items()})
    assert root_tree.in_order(circle, available) == ("cc", "bb", "aa")


def entries(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {entry.name: entry.linkname or entry.type.decode() for entry in archive}


@pytest.mark.parametrize(("platform", "lib64"), [("linux/amd64", True), ("linux/arm64", False)])
def test_files_go_below_usr_where_a_link_leads_there(tmp_path: Path, platform: str, lib64: bool) -> None:
    first = write_deb(
        tmp_path / "first.deb",
        {"Package": "first"},
        {
            "./": None,
            "./bin/": None,
            "./bin/dash": b"dash",
            "./bin/sh": "dash",
            "./bin/also": "=./bin/dash",
            "./etc/": None,
            "./binary": b"",
            "./usr/share/doc/first/copyright": b"(c)",
            "./usr/share/man/man1/dash.1.gz": b"",
            "./usr/share/docbook/a": b"",
        },
    )
    second = write_deb(
        tmp_path / "second.deb",
        {"Package": "second"},
        {"./bin": "usr/bin", "./etc/": None, "./lib64/ld.so": b"", "./lib/x/": None, "./lib/x/y": "/lib/z"},
    )
    root_tree.write_tree([DebFile(first), DebFile(second)], platform, tmp_path / "tree.tar")
    tree = entries(tmp_path / "tree.tar")
    own = {path: tree.pop(path) for path in [*tree] if path.startswith(("etc/", "var/"))}
    assert {*own.values()} == {"0"}
    assert sorted(own) == [
        "etc/apt/apt.conf.d/90bakehouse", "etc/apt/sources.list", "etc/dpkg/dpkg.cfg.d/bakehouse",
        "var/lib/dpkg/available", "var/lib/dpkg/status",
    ]  # fmt: skip
    links = ["bin", "lib", "sbin", *(["lib64"] if lib64 else [])]
    assert tree == {
        **{f"usr/{link}": "5" for link in links},
        **{link: f"usr/{link}" for link in links},
        "usr/bin/dash": "0",
        "usr/bin/sh": "dash",
        "usr/bin/also": "usr/bin/dash",
        "etc": "5",
        "binary": "0",
        "usr/share/docbook/a": "0",
        ("usr/lib64/ld.so" if lib64 else "lib64/ld.so"): "0",
        "usr/lib/x": "5",
        "usr/lib/x/y": "/lib/z",
    }
    assert [*tree][: 2 * len(links)] == [*(f"usr/{link}" for link in links), *links]
