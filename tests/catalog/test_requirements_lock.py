"""Locks of requirements that several images share."""

from pathlib import Path

import pytest

from bakehouse.catalog.python_lock import load_lock, preferred_packages
from bakehouse.catalog.requirements_lock import (
    LockState,
    RequirementsLock,
    digest_line,
    is_format_1,
    read_lock,
    state_of,
)
from bakehouse.errors import Location, Problems

SUM = "ab" * 32


def row(name: str, version: str = "1.0", sha256: str = SUM) -> str:
    return f"{name}=={version} --hash=sha256:{sha256}  # {name}.whl 1"


SHARED = RequirementsLock(
    "r.txt",
    {"b": "0" * 64, "a": "0" * 64, "c": "1" * 64},
    {
        "a": (row("one"), row("two", "1.0")),
        "b": (row("one"), row("two", "2.0")),
        "c": (row("one"), row("two", "2.0")),
    },
)


def versions(path: Path, image: str) -> dict[str, str]:
    problems = Problems()
    packages = load_lock(path, Location(path, 1, 1), problems, image)
    assert not problems
    return {package.name: package.version for package in packages}


def test_shared_packages_come_first_and_others_in_sections(tmp_path: Path) -> None:
    path = tmp_path / "r.txt.lock"
    path.write_text(SHARED.text)

    lines = SHARED.text.splitlines()
    assert lines[:2] == [f"# of r.txt sha256:{'0' * 64} for a, b", f"# of r.txt sha256:{'1' * 64} for c"]
    assert lines[3:] == [row("one"), "# for a", row("two", "1.0"), "# for b, c", row("two", "2.0")]
    assert versions(path, "a") == {"one": "1.0", "two": "1.0"}
    assert versions(path, "c") == {"one": "1.0", "two": "2.0"}
    assert read_lock(path) == SHARED


def test_the_state_of_a_lock_is_that_of_one_image(tmp_path: Path) -> None:
    path = tmp_path / "r.txt.lock"
    assert state_of(path, "a", "0" * 64) is LockState.MISSING
    path.write_text(SHARED.text)

    assert state_of(path, "a", "0" * 64) is LockState.CURRENT
    assert state_of(path, "c", "0" * 64) is LockState.OLDER
    assert state_of(path, "new", "0" * 64) is LockState.MISSING


def test_format_1_is_that_of_every_image_and_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "r.txt.lock"
    heading, rows = f"# of r.txt sha256:{'0' * 64}", (row("one"), row("two"))
    path.write_text("".join(f"{line}\n" for line in (heading, digest_line(rows), *rows)))

    assert is_format_1(path)
    assert state_of(path, "any", "2" * 64, "0" * 64) is LockState.CURRENT
    assert state_of(path, "any", "2" * 64) is LockState.OLDER
    lock = read_lock(path, ["a", "b"])
    assert lock.lines == {"a": rows, "b": rows}
    path.write_text(lock.text)
    assert path.read_text().splitlines()[1:] == [digest_line(rows), *rows]
    assert (is_format_1(path), state_of(path, "b", "0" * 64)) == (False, LockState.CURRENT)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", LockState.MISSING),
        ("# format 3\n", LockState.NEWER),
        ("idna==3.1\n", LockState.UNKNOWN),
        ("# of r.txt sha256:1\n", LockState.UNKNOWN),
    ],
)
def test_a_lock_of_another_format_is_not_outdated(tmp_path: Path, text: str, state: LockState) -> None:
    path = tmp_path / "r.txt.lock"
    path.write_text(text)

    assert state_of(path, "a", "0" * 64) is state


@pytest.mark.parametrize(
    ("old", "new"),
    [("# for b, c\n", ""), ("# for a\n", "# for b\n"), (f"{row('one')}\n", ""), ("two==2.0", "two==3.0")],
)
def test_a_changed_line_or_section_is_an_edit(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "r.txt.lock"
    assert old in SHARED.text
    path.write_text(SHARED.text.replace(old, new))

    assert state_of(path, "a", "0" * 64) is LockState.EDITED


CONFLICT = f"""\
<<<<<<< HEAD
# of r.txt sha256:{"2" * 64} for a
=======
# of r.txt sha256:{"3" * 64} for a
>>>>>>> other
{row("both", "3.9")}
<<<<<<< HEAD
{row("ours", "2.0")}
{row("changed", "1.10")}
||||||| base
{row("changed", "1.1")}
=======
{row("changed", "1.9")}
{row("theirs", "5.0")}
>>>>>>> other
"""


def test_conflict_markers_are_an_error_at_their_line(tmp_path: Path) -> None:
    path = tmp_path / "r.txt.lock"
    path.write_text(CONFLICT)
    problems = Problems()

    assert state_of(path, "a", "2" * 64) is LockState.CONFLICTED
    load_lock(path, Location(path, 9, 9), problems, "a")

    [problem] = problems.all
    assert problem.message == "`r.txt.lock` contains conflict markers"
    assert problem.hint == "run `bake lock`, which keeps the versions that both sides share"
    assert problem.location
    assert problem.location.line == 1


def test_the_versions_of_both_sides_of_a_conflict_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.txt.lock"
    path.write_text(CONFLICT)

    kept = {package.name: package.version for package in preferred_packages(path, "a")}

    assert kept == {"both": "3.9", "ours": "2.0", "changed": "1.10", "theirs": "5.0"}


def test_an_image_without_a_lock_prefers_the_versions_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "r.txt.lock"
    path.write_text(SHARED.text)

    kept = {
        image: {each.name: each.version for each in preferred_packages(path, image)} for image in ("c", "new")
    }

    assert kept == {"c": {"one": "1.0", "two": "2.0"}, "new": {"one": "1.0", "two": "1.0"}}


def test_build_requirements_stay_with_their_package(tmp_path: Path) -> None:
    built = f"{row('built')}\n#   built with {row('tool')}"
    lock = RequirementsLock(
        "r.txt", dict.fromkeys("ab", "0" * 64), {"a": (built, row("one")), "b": (row("one"),)}
    )
    path = tmp_path / "r.txt.lock"
    path.write_text(lock.text)

    assert read_lock(path) == lock
    path.write_text(lock.text.replace("with tool==1.0", "with tool==2.0"))
    assert state_of(path, "a", "0" * 64) is LockState.EDITED


def test_packages_are_ordered_by_name_and_not_by_line() -> None:
    names = ("pydantic-core", "pydantic", "pydantic.extra")
    lock = RequirementsLock("r.txt", {"a": SUM}, {"a": tuple(map(row, names))})

    rows = [line.partition("==")[0] for line in lock.text.splitlines() if not line.startswith("#")]
    assert rows == ["pydantic", "pydantic-core", "pydantic.extra"]
