"""The script that copies what differs between a base image and the same with packages installed."""

import os
import stat
from pathlib import Path
from types import ModuleType

import pytest

from bakehouse.catalog.project import HOME
from tests.support.errors import raised
from tests.support.scripts import load_script

EPOCH = 1767225600
BEFORE = EPOCH - 100
AFTER = EPOCH + 100


@pytest.fixture(scope="module")
def diff_tree() -> ModuleType:
    return load_script(HOME / "templates/bin/diff-tree")


class Trees:
    """A base, and the same with what was installed into it."""

    def __init__(self, directory: Path, diff_tree: ModuleType) -> None:
        self.base, self.system, self.out = (directory / name for name in ("base", "system", "out"))
        self._diff_tree = diff_tree
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

    def copied(self) -> dict[str, int]:
        """Run the script; return the times of the copied files."""
        self._diff_tree.main(self.base, self.system, self.out, EPOCH)
        return {str(path.relative_to(self.out)): int(path.lstat().st_mtime) for path in self.out.rglob("*")}


@pytest.fixture
def trees(tmp_path: Path, diff_tree: ModuleType) -> Trees:
    return Trees(tmp_path, diff_tree)


def test_unchanged_files_are_not_copied(trees: Trees) -> None:
    trees.write(trees.system / "etc/passwd", "root")
    assert trees.copied() == {}


def test_new_files_are_copied_with_their_directories_and_limited_times(trees: Trees) -> None:
    trees.write(trees.system / "usr/bin/ssh", "new")
    trees.write(trees.system / "usr/bin/packed", "by its maker", BEFORE)
    (trees.system / "var/empty").mkdir(parents=True)
    assert trees.copied() == {
        "usr": EPOCH,
        "usr/bin": EPOCH,
        "usr/bin/ssh": EPOCH,
        "usr/bin/packed": BEFORE,
        "var": EPOCH,
        "var/empty": EPOCH,
    }


def test_changed_content_of_the_same_size_and_time_is_copied(trees: Trees) -> None:
    trees.write(trees.system / "etc/passwd", "sshd", BEFORE)
    assert trees.copied() == {"etc": EPOCH, "etc/passwd": BEFORE}
    assert (trees.out / "etc/passwd").read_text() == "sshd"


def test_modes_and_links_are_kept(trees: Trees) -> None:
    trees.write(trees.system / "usr/bin/agent", "").chmod(0o2755)
    (trees.system / "usr/bin/same").hardlink_to(trees.system / "usr/bin/agent")
    (trees.system / "usr/bin/link").symlink_to("/nowhere")
    trees.write(trees.system / "tmp2/kept", "").parent.chmod(0o1777)
    (trees.system / "etc/passwd").chmod(0o600)
    trees.copied()
    modes = {
        name: stat.S_IMODE((trees.out / name).lstat().st_mode)
        for name in ("usr/bin/agent", "tmp2", "etc/passwd")
    }
    assert modes == {"usr/bin/agent": 0o2755, "tmp2": 0o1777, "etc/passwd": 0o600}
    assert (trees.out / "usr/bin/same").samefile(trees.out / "usr/bin/agent")
    assert (trees.out / "usr/bin/link").readlink() == Path("/nowhere")


def test_a_changed_symbolic_link_is_copied(trees: Trees) -> None:
    for tree, target in ((trees.base, "mawk"), (trees.system, "gawk")):
        (tree / "etc/awk").symlink_to(target)
    trees.copied()
    assert (trees.out / "etc/awk").readlink() == Path("gawk")


def test_files_that_differ_in_every_build_are_ignored(trees: Trees) -> None:
    for name in ("var/log/dpkg.log", "etc/ssh/ssh_host_rsa_key", "usr/share/doc/ssh/changelog.gz", "tmp/x/y"):
        trees.write(trees.system / name, "")
    trees.write(trees.base / "var/lib/apt/lists/lock", "")
    (trees.system / "var/lib/apt/lists").mkdir(parents=True)
    directories = {
        "etc",
        "etc/ssh",
        "usr",
        "usr/share",
        "usr/share/doc",
        "usr/share/doc/ssh",
        "var",
        "var/log",
    }
    assert set(trees.copied()) == directories


def test_licence_texts_are_copied(trees: Trees) -> None:
    trees.write(trees.system / "usr/share/doc/ssh/copyright", "BSD")
    assert "usr/share/doc/ssh/copyright" in trees.copied()


def test_a_removed_file_of_the_base_is_an_error(trees: Trees) -> None:
    trees.write(trees.base / "usr/bin/old", "")
    assert raised(SystemExit, trees.copied).code == (
        "diff-tree: files of the base image were removed, which COPY --link cannot do:\n"
        "  /usr\n  /usr/bin\n  /usr/bin/old\n"
        "hint: leave out the packages of `apt` that remove them, or use another base"
    )
