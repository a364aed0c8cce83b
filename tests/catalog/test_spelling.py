"""Names in which only the case differs. File systems that do not tell cases apart are simulated."""

import os
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog import spelling
from tests.support.trees import IMAGE, Tree

CODE = "code: {directory: src, entry_point: train.py}\n"


@pytest.mark.parametrize(
    ("paths", "pairs"),
    [
        (["a/x", "b/X"], []),
        (["a/x", "a/X"], [("a/x", "a/X")]),
        (["A/1", "A/2", "a/1", "a/3"], [("A", "a")]),
        (["/opt/A/x", "/opt/a"], [("/opt/A", "/opt/a")]),
        (["cafe\N{COMBINING ACUTE ACCENT}", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"], 1),
    ],
)
def test_clashes(paths: list[str], pairs: list[tuple[str, str]] | int) -> None:
    found = [*spelling.clashes(paths)]
    assert (len(found) if isinstance(pairs, int) else found) == pairs


def test_two_files_of_the_code(tree: Tree) -> None:
    for name in ("train.py", "Data/a.py", "data/b.py", "Train.py"):
        tree.write(f"images/src/{name}", "")
    tree.image(IMAGE + CODE)

    assert tree.mistakes() == (
        "error: only the case of names differs: `src/Data` and `src/data`\n"
        "  --> images/small.yaml:5:19\n"
        "   |\n"
        " 5 | code: {directory: src, entry_point: train.py}\n"
        "   |                   ^^^\n"
        "\n"
        "hint: rename one of them: macOS and Windows keep only one\n"
        "\n"
        "error: only the case of names differs: `src/Train.py` and `src/train.py`\n"
        "  --> images/small.yaml:5:19\n"
        "   |\n"
        " 5 | code: {directory: src, entry_point: train.py}\n"
        "   |                   ^^^\n"
        "\n"
        "hint: rename one of them: macOS and Windows keep only one\n"
    )


def test_two_files_of_one_image(tree: Tree) -> None:
    tree.write("images/note.txt", "")
    tree.image(f"{IMAGE}files:\n- {{from: note.txt, to: /opt/note}}\n- {{from: note.txt, to: /opt/Note/a}}\n")

    assert tree.mistakes() == (
        "error: only the case of names differs: `/opt/note` and `/opt/Note`\n"
        "  --> images/small.yaml:7:24\n"
        "   |\n"
        " 7 | - {from: note.txt, to: /opt/Note/a}\n"
        "   |                        ^^^^^^^^^^^\n"
        "  because `/opt/note` is set in   images/small.yaml:6:24\n"
        "\n"
        "hint: rename one of them: macOS and Windows keep only one\n"
    )


def test_two_recipes(tree: Tree) -> None:
    tree.image(IMAGE)
    tree.image(IMAGE, "Small")

    assert tree.mistakes() == (
        "error: `Small` is not an image name\n"
        "  --> images/Small.yaml:1:1\n"
        "   |\n"
        " 1 | summary: A small image\n"
        "   | ^ lowercase letters and digits, single `-`, `.` and `_` between them\n"
        "\n"
        "hint: give it another name: `small.yaml` is next to it\n"
    )


@pytest.fixture
def one_case(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Files and directories that are found in any case."""
    stat, access, scandir = os.stat, os.access, os.scandir

    def listed(path: Any) -> Any:
        if not isinstance(path, str | Path) or not Path(path).is_relative_to(tree.root):
            return path
        found = str(tree.root)
        for name in Path(path).relative_to(tree.root).parts:
            entries = (
                [entry.name for entry in scandir(found)] if name != ".." and access(found, os.R_OK) else []
            )
            found += f"/{next((entry for entry in entries if entry.casefold() == name.casefold()), name)}"
        return found

    monkeypatch.setattr(os, "stat", lambda path, **given: stat(listed(path), **given))
    monkeypatch.setattr(os, "access", lambda path, mode: access(listed(path), mode))
    monkeypatch.setattr(os, "scandir", lambda path: scandir(listed(path)))
    monkeypatch.setattr(spelling, "names_in", lambda path: sorted(e.name for e in scandir(listed(path))))
    return tree


def test_a_path_has_the_case_of_the_disk(one_case: Tree) -> None:
    one_case.write("src/lib/train.py", "")
    directory = one_case.root / "images"

    for text in ("../src/lib", "../src/lib/train.py"):
        assert spelling.as_listed(text, directory / text) == text
    assert (
        spelling.as_listed("../Src/LIB/Train.py", directory / "../Src/LIB/Train.py") == "../src/lib/train.py"
    )


def test_an_entry_point_that_other_hosts_do_not_find(one_case: Tree) -> None:
    one_case.write("images/src/Train.py", "")
    one_case.image(IMAGE + CODE)

    assert one_case.mistakes() == (
        "error: the disk spells `train.py` as `Train.py`\n"
        "  --> images/small.yaml:5:37\n"
        "   |\n"
        " 5 | code: {directory: src, entry_point: train.py}\n"
        "   |                                     ^^^^^^^^ file names are case-sensitive on most systems\n"
        "\n"
        "hint: write `Train.py`\n"
    )
