"""The reader of a page, and the comparison of what the page shows with what a command printed."""

import tomllib
from pathlib import Path

import pytest

from tests.support.guides import Command, File, Reader, differences, missing_disk_space


@pytest.mark.parametrize(
    "printed",
    [
        "churn  450.1 MB as pushed, 8 files",
        "churn  455.9 MB as pushed, 8 files",
        "churn  0.46 GB as pushed, 8 files",
    ],
)
def test_sizes_may_differ_a_little(printed: str) -> None:
    assert differences("churn  451.8 MB as pushed, 8 files", printed) == []


@pytest.mark.parametrize(
    "printed",
    ["churn  480.0 MB as pushed, 8 files", "churn  451.8 kB as pushed, 8 files", "churn  451.8 MB, 8 files"],
)
def test_other_sizes_and_texts_are_differences(printed: str) -> None:
    shown = "churn  451.8 MB as pushed, 8 files"

    assert differences(shown, printed) == [shown]


def test_dots_stand_for_any_lines_and_any_text() -> None:
    assert differences("a 1\n…\nc … d\n", "a 1\nb\nb\nc 5 MB d\n") == []
    assert differences("a 1\nc … d\n", "a 1\nb\nc 5 MB d\n") == ["c … d"]


@pytest.mark.parametrize(("commit", "is_same"), [("0123456789ab", True), ("0123456789ab-dirty", False)])
def test_a_release_may_have_another_tag_and_commit_but_no_local_changes(commit: str, is_same: bool) -> None:
    shown = "2026-11-28  release  churn-20261128-11f83dd3  baf9f75d51ed"
    printed = f"2026-11-29  release  churn-20261129-2fd65bb9  {commit}"

    assert (differences(shown, printed) == []) is is_same


def test_the_next_command_has_the_directory_and_the_exported_variables(tmp_path: Path) -> None:
    reader = Reader(tmp_path, Path("/"))
    reader.run(Command(1, "mkdir here && cd here && export WORD='a\nb' && own=1", ""))

    assert reader.run(Command(2, 'echo "$PWD $WORD ${own-}"', "")).stdout == f"{tmp_path}/here a\nb \n"


def test_a_failed_command_leaves_the_directory_of_the_next_one(tmp_path: Path) -> None:
    reader = Reader(tmp_path, Path("/"))

    assert reader.run(Command(1, "exit 3", "")).returncode == 3
    assert reader.run(Command(2, "pwd", "")).stdout == f"{tmp_path}\n"


def test_a_table_that_a_toml_file_has_gets_the_added_lines(tmp_path: Path) -> None:
    reader = Reader(tmp_path, Path("/"))
    reader.write(File("a.toml", "[one]\na = 1\n\n[two]\nb = 2\n", is_addition=False))
    reader.write(File("a.toml", "\n[one]\nc = 3\n[three]\nd = 4\n", is_addition=True))

    tables = tomllib.loads((tmp_path / "a.toml").read_text())
    assert tables == {"one": {"a": 1, "c": 3}, "two": {"b": 2}, "three": {"d": 4}}


def test_only_a_disk_that_is_too_small_is_a_reason_to_skip() -> None:
    errors = """\
rendered 20 files of images/speech
error: not enough disk space to build `speech`
  needed  about 21.52 GB
  free    15.05 GB on the engine's disk

hint: check `docker system df`; `docker builder prune` removes unused build cache
"""

    assert missing_disk_space(errors) == (
        "not enough disk space to build `speech`: needed about 21.52 GB, free 15.05 GB on the engine's disk"
    )
    assert missing_disk_space("error: unknown image `speech`\n") == ""
