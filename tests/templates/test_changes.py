"""What is installed into a base, laid out as a tree to be linked over it."""

import importlib.util
import os
import stat
from pathlib import Path
from types import ModuleType

import pytest

from bakehouse.catalog.project import HOME

EPOCH = 1767225600
BEFORE = EPOCH - 100
AFTER = EPOCH + 100


@pytest.fixture(scope="module")
def changes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changes", HOME / "templates/changes.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Trees:
    """A base, and the same with what was installed into it."""

    def __init__(self, folder: Path, changes: ModuleType) -> None:
        self.base, self.system, self.out = (folder / name for name in ("base", "system", "out"))
        self._changes = changes
        for tree in (self.base, self.system):
            (tree / "etc").mkdir(parents=True)
            (tree / "tmp").mkdir()
            (tree / "tmp").chmod(0o1777)
            self.write(tree / "etc/passwd", "root", BEFORE)

    def write(self, path: Path, text: str, time: int = AFTER) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (time, time))
        return path

    def laid_out(self) -> dict[str, int]:
        """The times of what is laid out."""
        self._changes.main(self.base, self.system, self.out, EPOCH)
        return {str(path.relative_to(self.out)): int(path.lstat().st_mtime) for path in self.out.rglob("*")}


@pytest.fixture
def trees(tmp_path: Path, changes: ModuleType) -> Trees:
    return Trees(tmp_path, changes)


def test_nothing_is_new_where_files_were_written_as_they_were(trees: Trees) -> None:
    trees.write(trees.system / "etc/passwd", "root")
    assert trees.laid_out() == {}


def test_what_is_new_comes_with_its_folders_at_no_later_time_than_all_files_of_ours(trees: Trees) -> None:
    trees.write(trees.system / "usr/bin/ssh", "new")
    trees.write(trees.system / "usr/bin/packed", "by its maker", BEFORE)
    (trees.system / "var/empty").mkdir(parents=True)
    assert trees.laid_out() == {
        "usr": EPOCH,
        "usr/bin": EPOCH,
        "usr/bin/ssh": EPOCH,
        "usr/bin/packed": BEFORE,
        "var": EPOCH,
        "var/empty": EPOCH,
    }


def test_a_file_with_another_content_of_the_same_length_and_time_is_new(trees: Trees) -> None:
    trees.write(trees.system / "etc/passwd", "sshd", BEFORE)
    assert trees.laid_out() == {"etc": EPOCH, "etc/passwd": BEFORE}
    assert (trees.out / "etc/passwd").read_text() == "sshd"


def test_modes_and_links_stay(trees: Trees) -> None:
    trees.write(trees.system / "usr/bin/agent", "").chmod(0o2755)
    (trees.system / "usr/bin/same").hardlink_to(trees.system / "usr/bin/agent")
    (trees.system / "usr/bin/link").symlink_to("/nowhere")
    trees.write(trees.system / "tmp2/kept", "").parent.chmod(0o1777)
    (trees.system / "etc/passwd").chmod(0o600)
    trees.laid_out()
    modes = {
        name: stat.S_IMODE((trees.out / name).lstat().st_mode)
        for name in ("usr/bin/agent", "tmp2", "etc/passwd")
    }
    assert modes == {"usr/bin/agent": 0o2755, "tmp2": 0o1777, "etc/passwd": 0o600}
    assert (trees.out / "usr/bin/same").samefile(trees.out / "usr/bin/agent")
    assert (trees.out / "usr/bin/link").readlink() == Path("/nowhere")


def test_a_link_to_another_place_is_new(trees: Trees) -> None:
    for tree, place in ((trees.base, "mawk"), (trees.system, "gawk")):
        (tree / "etc/awk").symlink_to(place)
    trees.laid_out()
    assert (trees.out / "etc/awk").readlink() == Path("gawk")


def test_what_differs_from_one_build_to_the_next_is_left_out(trees: Trees) -> None:
    for name in ("var/log/dpkg.log", "etc/ssh/ssh_host_rsa_key", "usr/share/doc/ssh/copyright", "tmp/x/y"):
        trees.write(trees.system / name, "")
    trees.write(trees.base / "var/lib/apt/lists/lock", "")
    (trees.system / "var/lib/apt/lists").mkdir(parents=True)
    assert set(trees.laid_out()) == {"etc", "etc/ssh", "usr", "usr/share", "usr/share/doc", "var", "var/log"}


def test_what_takes_a_file_of_the_base_away_fails(trees: Trees) -> None:
    trees.write(trees.base / "usr/bin/old", "")
    with pytest.raises(SystemExit) as caught:
        trees.laid_out()
    assert caught.value.code == (
        "changes: a linked layer can't take away what is in the base, and these are gone:\n"
        "  /usr\n  /usr/bin\n  /usr/bin/old\n"
        "hint: leave the packages of `apt` out that remove them, or take another base"
    )
