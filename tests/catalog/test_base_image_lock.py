"""Lock of a vendor base: its steps, and the packages that each adds."""

from pathlib import Path

import pytest

from bakehouse.catalog.apt_lock import NotLocked
from bakehouse.catalog.base_image_lock import BaseLock, file_of, read_locks
from bakehouse.errors import RecipeError
from tests.support.errors import raised, refusal
from tests.support.locked_debian import stanza

PINNED = f"nvidia/cuda:12.8.1-base@sha256:{'ab' * 32}"
SITE = "http://mirror.example/ubuntu"
LOCK = f"""\
# made by `bake lock`

Base: {PINNED}

Step: curl gcc
Adds: curl gcc libcurl4

Step: gcc
Adds: gcc

{stanza("curl", {"Site": SITE})}
{stanza("gcc", {"Site": SITE})}
{stanza("libcurl4", {"Site": SITE})}"""
HINT = "restore the file from version control, or delete it and lock the images on that base again"


def read(directory: Path, text: str = LOCK) -> BaseLock:
    path = directory / "apt/bases" / file_of(PINNED)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    [lock] = read_locks([directory]).bases.values()
    return lock


def lock_error(directory: Path, text: str) -> str:
    return refusal(RecipeError, lambda: read(directory, text).adds(["gcc"]))


def test_a_step_is_found_by_what_it_asks_for_in_any_order(tmp_path: Path) -> None:
    lock = read(tmp_path)
    assert [deb.name for deb in lock.adds(["gcc", "curl", "gcc"])] == ["curl", "gcc", "libcurl4"]
    assert [deb.name for deb in lock.adds(["gcc"])] == ["gcc"]
    assert lock.adds([]) == ()


def test_a_file_is_known_by_where_apt_found_it(tmp_path: Path) -> None:
    [gcc] = read(tmp_path).adds(["gcc"])
    assert gcc.url == f"{SITE}/pool/main/g/gcc/gcc_1.0_amd64.deb"


def test_all_unlocked_packages_are_reported(tmp_path: Path) -> None:
    assert raised(NotLocked, read(tmp_path).adds, ["vim", "gcc"]).asked == "gcc vim"


def test_a_lock_is_found_by_its_base_with_the_digest(tmp_path: Path) -> None:
    lock = read(tmp_path)
    assert read_locks([tmp_path]).bases == {PINNED: lock}
    assert lock.pinned == PINNED


def test_a_later_directory_replaces_an_earlier_ones_lock(tmp_path: Path) -> None:
    read(tmp_path / "ours")
    later = read(tmp_path / "theirs")
    assert [*read_locks([tmp_path / "ours", tmp_path / "theirs"]).bases.values()] == [later]


def test_a_locks_name_has_a_piece_of_the_digest() -> None:
    assert file_of(PINNED) == "nvidia-cuda-12.8.1-base-abababab.packages"


def test_a_lock_that_names_no_base_is_refused(tmp_path: Path) -> None:
    assert lock_error(tmp_path, LOCK.replace("Base:", "Based:")) == (
        "error: a lock of a base begins with `Base: <reference>@sha256:<64 hex digits>`\n"
        f"  --> {tmp_path}/apt/bases/nvidia-cuda-12.8.1-base-abababab.packages:3:1\n\nhint: {HINT}\n"
    )


def test_all_locks_without_a_base_are_reported(tmp_path: Path) -> None:
    lock_error(tmp_path, LOCK.replace("Base:", "Based:"))
    directory = tmp_path / "apt/bases"
    (directory / "empty-12345678.packages").write_text("# nothing\n")
    assert [diagnostic.message for diagnostic in raised(RecipeError, read_locks, [tmp_path]).diagnostics] == [
        "`empty-12345678.packages` is empty",
        "a lock of a base begins with `Base: <reference>@sha256:<64 hex digits>`",
    ]


def test_an_empty_lock_is_refused(tmp_path: Path) -> None:
    assert "error: `nvidia-cuda-12.8.1-base-abababab.packages` is empty" in lock_error(
        tmp_path, "# nothing\n"
    )


def test_a_step_that_adds_what_is_not_described_is_refused(tmp_path: Path) -> None:
    text = lock_error(tmp_path, LOCK.replace("Adds: gcc\n", "Adds: gcc-13\n"))
    assert "error: a step adds `gcc-13`, but the lock does not describe it\n" in text
    assert "12.8.1-base-abababab.packages:8:1\n" in text


def test_a_package_without_a_sha256_is_refused(tmp_path: Path) -> None:
    text = lock_error(tmp_path, LOCK.replace("SHA256", "SHA1"))
    assert "error: incomplete package in a lock\n" in text
    assert "12.8.1-base-abababab.packages:11:1\n" in text
    assert "a package needs Package, Version, Filename, Size, SHA256" in text


def test_a_package_that_stands_twice_is_refused(tmp_path: Path) -> None:
    text = lock_error(tmp_path, LOCK + "\n" + stanza("gcc", {}))
    assert "error: duplicate package `gcc` in `nvidia-cuda-12.8.1-base-abababab.packages`" in text


def test_an_invalid_site_url_is_refused(tmp_path: Path) -> None:
    assert "incomplete package in a lock" in lock_error(tmp_path, LOCK.replace("http://", "$(id)"))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("Adds: gcc\n", "", 8, "a step needs `Adds`, which may be empty"),
        ("Step: curl gcc\n", "Step: gcc\n", 8, "duplicate step `gcc` in `{name}`"),
        (
            "Step: gcc\n",
            f"Base: {PINNED.replace('ab', 'cd')}\n\nStep: gcc\n",
            8,
            "`{name}` belongs to two bases",
        ),
    ],
)
def test_a_lock_that_was_merged_badly_is_refused(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    path = f"{tmp_path}/apt/bases/{file_of(PINNED)}"
    assert lock_error(tmp_path, LOCK.replace(old, new)) == (
        f"error: {message.format(name=file_of(PINNED))}\n  --> {path}:{line}:1\n\nhint: {HINT}\n"
    )


def test_a_base_has_a_lock_for_each_of_its_digests(tmp_path: Path) -> None:
    other = PINNED.replace("ab" * 32, "cd" * 32)
    read(tmp_path)
    (tmp_path / "apt/bases" / file_of(other)).write_text(LOCK.replace(PINNED, other))
    locks = read_locks([tmp_path])
    assert {*locks.bases} == {PINNED, other}
    assert locks.of_reference("nvidia/cuda:12.8.1-base") in locks.bases.values()
    assert locks.of_reference("nvidia/cuda") is None


def test_a_path_is_quoted_where_it_is_an_address(tmp_path: Path) -> None:
    path = "pool/libstdc++_4%3a1.0~1_amd64.deb"
    [gcc] = read(tmp_path, LOCK.replace("pool/main/g/gcc/gcc_1.0_amd64.deb", path)).adds(["gcc"])
    assert (gcc.path, gcc.url) == (path, f"{SITE}/pool/libstdc%2B%2B_4%253a1.0~1_amd64.deb")
