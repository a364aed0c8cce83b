"""What is locked of a base that is pulled: each step on it, and the files that it adds."""

from pathlib import Path

import pytest

from bakehouse.aptlock import NotLocked
from bakehouse.baselock import BaseLock, file_of, read_locks
from bakehouse.errors import RecipeError
from tests.conftest import said
from tests.locked_debian import stanza

PINNED = f"nvidia/cuda:12.8.1-base@sha256:{'ab' * 32}"
SITE = "http://mirror.example/ubuntu"
LOCK = f"""\
# made by `./bake lock`

Base: {PINNED}

Step: curl gcc
Adds: curl gcc libcurl4

Step: gcc
Adds: gcc

{stanza("curl", {"Site": SITE})}
{stanza("gcc", {"Site": SITE})}
{stanza("libcurl4", {"Site": SITE})}"""
HINT = "take the file back from version control; or delete it, and lock the images on that base again"


def read(folder: Path, text: str = LOCK) -> BaseLock:
    path = folder / "apt/bases" / file_of(PINNED)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    [found] = read_locks([folder]).bases.values()
    return found


def refused(folder: Path, text: str) -> str:
    with pytest.raises(RecipeError) as caught:
        read(folder, text).adds(["gcc"])
    return said(caught.value)


def test_a_step_is_found_by_what_it_asks_for_in_any_order(tmp_path: Path) -> None:
    lock = read(tmp_path)
    assert [deb.name for deb in lock.adds(["gcc", "curl", "gcc"])] == ["curl", "gcc", "libcurl4"]
    assert [deb.name for deb in lock.adds(["gcc"])] == ["gcc"]
    assert lock.adds([]) == ()


def test_a_file_is_known_by_where_apt_found_it(tmp_path: Path) -> None:
    [gcc] = read(tmp_path).adds(["gcc"])
    assert gcc.url == f"{SITE}/pool/main/g/gcc/gcc_1.0_amd64.deb"


def test_what_is_not_locked_is_told_whole(tmp_path: Path) -> None:
    with pytest.raises(NotLocked) as caught:
        read(tmp_path).adds(["vim", "gcc"])
    assert caught.value.asked == "gcc vim"


def test_a_lock_is_found_by_its_base_without_the_digest(tmp_path: Path) -> None:
    lock = read(tmp_path)
    assert read_locks([tmp_path]).bases == {"nvidia/cuda:12.8.1-base": lock}
    assert lock.pinned == PINNED


def test_a_later_folder_replaces_an_earlier_ones_lock(tmp_path: Path) -> None:
    read(tmp_path / "ours")
    theirs = read(tmp_path / "theirs")
    assert [*read_locks([tmp_path / "ours", tmp_path / "theirs"]).bases.values()] == [theirs]


def test_a_locks_name_has_neither_host_nor_digest() -> None:
    assert file_of(PINNED) == "nvidia-cuda-12.8.1-base.packages"


def test_a_lock_that_names_no_base_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, LOCK.replace("Base:", "Based:")) == (
        "error: a lock of a base begins with `Base: <reference>@sha256:<64 hex digits>`\n"
        f"  --> {tmp_path}/apt/bases/nvidia-cuda-12.8.1-base.packages:3:1\n\nhint: {HINT}\n"
    )


def test_an_empty_lock_is_refused(tmp_path: Path) -> None:
    assert "error: `nvidia-cuda-12.8.1-base.packages` is empty" in refused(tmp_path, "# nothing\n")


def test_a_step_that_adds_what_is_not_described_is_refused(tmp_path: Path) -> None:
    found = refused(tmp_path, LOCK.replace("Adds: gcc\n", "Adds: gcc-13\n"))
    assert "error: a step adds `gcc-13`, which is not described below\n" in found
    assert "12.8.1-base.packages:8:1\n" in found


def test_a_package_without_a_sha256_is_refused(tmp_path: Path) -> None:
    found = refused(tmp_path, LOCK.replace("SHA256", "SHA1"))
    assert "error: this is no package of a lock\n" in found
    assert "12.8.1-base.packages:11:1\n" in found
    assert "a package has Package, Version, Filename, Size, SHA256" in found


def test_a_package_that_stands_twice_is_refused(tmp_path: Path) -> None:
    found = refused(tmp_path, LOCK + "\n" + stanza("gcc", {}))
    assert "error: package `gcc` stands twice in `nvidia-cuda-12.8.1-base.packages`" in found


def test_a_site_that_is_no_address_is_refused(tmp_path: Path) -> None:
    assert "this is no package of a lock" in refused(tmp_path, LOCK.replace("http://", "$(id)"))
