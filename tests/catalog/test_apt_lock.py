"""A lock of a distribution says which files a step installs, without asking a mirror."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse.catalog.apt_lock import AptLock, Deb, NotLocked, apt_locks, stanzas, written
from bakehouse.errors import RecipeError
from tests.support.errors import raised, refusal
from tests.support.locked_debian import PACKAGES, index, stanza

BASE = ["apt", "base-files", "dpkg", "gpgv", "libc6", "libgcc-s1"]


def locked(directory: Path, packages: Mapping[str, Mapping[str, str]] = PACKAGES) -> AptLock:
    (directory / "apt").mkdir(exist_ok=True)
    (directory / "apt/bookworm.packages").write_text(index(packages))
    return apt_locks([directory])["bookworm"]


def names(debs: tuple[Deb, ...]) -> list[str]:
    return [deb.name for deb in debs]


def mistake(lock: AptLock) -> str:
    return refusal(RecipeError, lock.base, [])


def test_every_base_has_what_is_essential_or_required_and_apt(tmp_path: Path) -> None:
    assert names(locked(tmp_path).base([])) == BASE


def test_a_base_has_its_own_packages_with_all_that_these_need(tmp_path: Path) -> None:
    assert names(locked(tmp_path).base(["ca-certificates"])) == sorted(
        [*BASE, "ca-certificates", "cdebconf", "openssl"]
    )


def test_a_step_adds_what_is_not_there_yet(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    assert names(lock.install(["gcc", "openssl"], on=lock.base([]))) == ["cpp-12", "gcc", "gcc-12", "openssl"]
    assert lock.install(["gcc"], on=lock.base(["gcc"])) == ()


def test_of_alternatives_the_first_that_is_locked_is_taken(tmp_path: Path) -> None:
    both = {**PACKAGES, "gpgv2": {}}
    assert "gpgv2" in names(locked(tmp_path, both).base([]))
    assert "gpgv" not in names(locked(tmp_path, both).base([]))


def test_an_alternative_that_is_there_already_is_enough(tmp_path: Path) -> None:
    lock = locked(tmp_path, {**PACKAGES, "gpgv2": {}})
    assert names(lock.install(["apt"], on=lock.install(["gpgv", "libc6"], on=()))) == ["apt"]


def test_what_others_provide_can_be_asked_for(tmp_path: Path) -> None:
    assert names(locked(tmp_path).install(["awk"], on=())) == ["awk-of-mine"]


def test_a_file_is_known_by_its_name_sum_size_and_path(tmp_path: Path) -> None:
    [deb] = locked(tmp_path).install(["cpp-12"], on=())
    expected = stanza("cpp-12", PACKAGES["cpp-12"])
    assert (deb.name, deb.version, deb.bytes, deb.file) == ("cpp-12", "12.2", 1000, "cpp-12_12.2_amd64.deb")
    assert f"SHA256: {deb.sha256}\n" in expected
    assert f"Filename: {deb.path}\n" in expected


@pytest.mark.parametrize(
    ("package", "missing"), [("vim", ("vim", "")), ("gcc-12=11.0", ("gcc-12=11.0", "12.2"))]
)
def test_what_is_not_locked_is_named(tmp_path: Path, package: str, missing: tuple[str, str]) -> None:
    error = raised(NotLocked, locked(tmp_path).install, [package], on=())
    assert (error.asked, error.locked) == missing


def test_the_version_that_is_asked_for_may_be_the_locked_one(tmp_path: Path) -> None:
    assert names(locked(tmp_path).install(["cpp-12=12.2"], on=())) == ["cpp-12"]


def test_a_need_that_no_package_meets_is_not_locked(tmp_path: Path) -> None:
    with pytest.raises(NotLocked, match=r"a \| b"):
        locked(tmp_path, {**PACKAGES, "top": {"Depends": "a (>= 1) | b"}}).install(["top"], on=())


def test_a_later_directory_replaces_packages_and_adds_to_them(tmp_path: Path) -> None:
    first, later = tmp_path / "ours", tmp_path / "theirs"
    for directory in (first, later):
        directory.mkdir()
    locked(first)
    locked(later, {"openssl": {"Version": "3.0"}, "vim": {}})
    lock = apt_locks([first, later])["bookworm"]
    assert [deb.version for deb in lock.install(["openssl"], on=lock.base([]))] == ["3.0"]
    assert names(lock.install(["vim"], on=())) == ["vim"]


def test_a_lock_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    locked(tmp_path)
    assert "vim" in names(locked(tmp_path, {**PACKAGES, "vim": {"Essential": "yes"}}).base([]))


def test_an_invalid_package_is_reported_with_its_line(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    path = tmp_path / "apt/bookworm.packages"
    path.write_text("# a comment\n\n" + path.read_text().replace("Size: 1000", "Size: many", 1))
    assert mistake(lock) == (
        f"error: incomplete package in a lock\n  --> {path}:3:1\n"
        "  because a package needs Package, Version, Filename, Size, SHA256\n\n"
        "hint: restore the file from version control, "
        "or delete it and run `bake lock` to lock today's packages\n"
    )


def test_a_merge_that_was_not_finished_is_reported_with_its_line(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    path = tmp_path / "apt/bookworm.packages"
    line, conflict = "Size: 1000\n", "<<<<<<< HEAD\nSize: 999\n=======\nSize: 1000\n>>>>>>> other\n"
    path.write_text(path.read_text().replace(line, conflict, 1))
    assert mistake(lock).startswith(f"error: invalid field in a lock\n  --> {path}:4:1\n")


def test_two_packages_that_lost_the_line_between_them_are_not_one(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    path = tmp_path / "apt/bookworm.packages"
    path.write_text(path.read_text().replace("\n\nPackage: libc6\n", "\nPackage: libc6\n"))
    assert mistake(lock).startswith("error: duplicate field `Package` of a package\n")


def test_a_package_for_other_machines_is_refused(tmp_path: Path) -> None:
    lock = locked(tmp_path, {**PACKAGES, "vim": {"Architecture": "arm64"}})
    assert mistake(lock).startswith("error: package `vim` is for arm64, but images are for amd64\n")


def test_the_name_of_a_lock_says_for_which_machines_it_is(tmp_path: Path) -> None:
    (tmp_path / "apt").mkdir()
    path = tmp_path / "apt/bookworm-arm64.packages"
    path.write_text(index({"apt": {"Architecture": "arm64"}}))
    assert names(apt_locks([tmp_path])["bookworm-arm64"].base([])) == ["apt"]

    path.write_text(index({"apt": {"Architecture": "amd64", "Size": "2000"}}))
    lock = apt_locks([tmp_path])["bookworm-arm64"]
    assert mistake(lock).startswith("error: package `apt` is for amd64, but images are for arm64\n")


@pytest.mark.parametrize("size", ["9" * 5_000, "-1", "1e3", "²"])
def test_a_size_is_a_number_of_bytes(tmp_path: Path, size: str) -> None:
    lock = locked(tmp_path, {**PACKAGES, "vim": {"Size": size}})
    assert "incomplete package in a lock" in mistake(lock)


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    path = tmp_path / "apt/bookworm.packages"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert names(lock.base([])) == BASE


def test_a_path_outside_the_mirror_is_not_a_package(tmp_path: Path) -> None:
    lock = locked(tmp_path, {"evil": {"Filename": "pool/../../evil.deb"}})
    assert "incomplete package in a lock" in mistake(lock)


def test_a_package_stands_once(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    path = tmp_path / "apt/bookworm.packages"
    path.write_text(path.read_text() + "\n" + stanza("gpgv", {}))
    assert "duplicate package `gpgv` in `bookworm.packages`" in mistake(lock)


def test_all_damaged_packages_of_a_lock_are_reported(tmp_path: Path) -> None:
    lock = locked(
        tmp_path,
        {"evil": {"Filename": "pool/../../evil.deb"}, "foreign": {"Architecture": "arm64"}, "plain": {}},
    )
    text = mistake(lock)
    assert "error: incomplete package in a lock" in text
    assert "error: package `foreign` is for arm64, but images are for amd64" in text


def test_locks_that_were_mixed_are_refused(tmp_path: Path) -> None:
    lock = locked(tmp_path, {**PACKAGES, "cpp-12": {"Version": "12.3"}})
    text = mistake(lock)
    assert "error: `gcc-12` needs `cpp-12` 12.2, but 12.3 is locked" in text
    assert "hint: run `bake lock --upgrade cpp-12` to lock them together" in text


def test_all_packages_of_mixed_locks_are_reported(tmp_path: Path) -> None:
    lock = locked(
        tmp_path,
        {
            **PACKAGES,
            "cpp-12": {"Version": "12.3"},
            "vim": {"Depends": "vim-data (= 9)"},
            "vim-data": {"Version": "8"},
        },
    )
    text = mistake(lock)
    assert "error: `gcc-12` needs `cpp-12` 12.2, but 12.3 is locked" in text
    assert "error: `vim` needs `vim-data` 9, but 8 is locked" in text


def test_what_is_written_is_read_again_and_sorted() -> None:
    packages = [fields for _, fields in stanzas(index())]
    text = written(reversed(packages))
    assert [fields["Package"] for _, fields in stanzas(text)] == sorted(PACKAGES)
    assert written(fields for _, fields in stanzas(text)) == text


def test_folded_fields_are_one_line() -> None:
    [(line, fields)] = stanzas("\n\nPackage: a\nDepends: b,\n c\n")
    assert (line, fields) == (3, {"Package": "a", "Depends": "b, c"})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> AptLock:
    return locked(tmp_path_factory.mktemp("locks"))


@given(first=st.sets(st.sampled_from(sorted(PACKAGES))), second=st.sets(st.sampled_from(sorted(PACKAGES))))
def test_what_one_step_has_the_next_does_not_install_again(
    shared: AptLock, first: set[str], second: set[str]
) -> None:
    below = names(shared.base(first))
    added = names(shared.install(second, on=shared.base(first)))
    assert not {*below} & {*added}
    assert {*first, *second} <= {*below, *added}
