"""Check the style of docs, docstrings, comments, messages and commit subjects."""

from collections import Counter
from pathlib import Path

import pytest

from tests.docs.prose import (
    HOME,
    Violation,
    find_long_sentences,
    find_long_subjects,
    find_phrases,
    git,
    last_release,
)
from tests.support.documents import documents, sources

REMAINING: dict[str, int] = {}
"""Violations that are left in each directory. These numbers may only fall."""


def directory(violation: Violation) -> str:
    """Return the package of a violation: `bakehouse/cli`, `recipes/components`, `tasks.py`."""
    parts = violation.path.relative_to(HOME).parts
    return "/".join(parts[: max(1, min(2, len(parts) - 1))])


def require_none(violations: list[Violation]) -> None:
    if violations:
        pytest.fail("\n".join(map(str, violations)), pytrace=False)


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(HOME)))
def test_docs_contain_no_forbidden_phrase_and_no_long_sentence(page: Path) -> None:
    require_none([*find_phrases(page), *find_long_sentences(page)])


def test_code_contains_no_forbidden_phrase() -> None:
    violations = [violation for path in sources() for violation in find_phrases(path)]
    counts = Counter(map(directory, violations))
    print("\n".join(f"{count:5} {name}" for name, count in sorted(counts.items())))

    unexpected = {name for name, count in counts.items() if count > REMAINING.get(name, 0)}
    require_none([violation for violation in violations if directory(violation) in unexpected])


def test_commit_subjects_are_short() -> None:
    if not (HOME / ".git").exists():
        pytest.skip("this is not a git checkout")
    assert find_long_subjects(HOME, last_release(HOME)) == []


@pytest.mark.parametrize(
    ("name", "content", "problems"),
    [
        ("a.md", "# What it is\n\nFine. It is\nno file.\n", [(1, "What it is"), (3, "is no file")]),
        ("a.md", "There is no file, it is no longer there, and there will be no file.\n", []),
        ("a.md", "```\nnobody is told\n```\n`nobody` and [a link](folder.md)\n", []),
        ("a.md", "Run it. What is missing is\nreported.\n", [(1, "What is missing is reported.")]),
        ("a.md", "What is missing?\n", []),
        ("a.md", "| a | b |\n|---|---|\n| fine | what `x` needs |\n", [(3, "what X needs")]),
        ("a.py", '"""What was seen."""\n', [(1, "What")]),
        ("a.py", 'x = 1\n"""Whether it is."""\n', [(2, "Whether")]),
        ("a.py", "# Files that\n# can't\n# be had\n", [(2, "can't be had")]),
        ("a.py", 'x = (\n    f"`{name}` is no "\n    "file"\n)\n', [(2, "is no file")]),
        ("a.py", 'USER = "nobody"\n', []),
        ("a.yaml", "# a stand-in\nreason: it lies in the image\n", [(1, "stand-in"), (2, "lies in")]),
        ("a.j2", "RUN x\n{# nobody reads it #}\n", [(2, "nobody")]),
    ],
)
def test_phrases_are_found_with_their_lines(
    tmp_path: Path, name: str, content: str, problems: list[tuple[int, str]]
) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert [(violation.line, violation.problem.strip("`")) for violation in find_phrases(path)] == problems


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (f"{'word ' * 30}.\n", []),
        (f"Short.\n{'word ' * 31}.\n", [2]),
        (f"{'word ' * 20}e.g. {'word ' * 20}.\n", [1]),
        (f"- {'word ' * 20}\n- {'word ' * 20}\n", []),
        (f"| a | {'word ' * 31} |\n", [1]),
        (f"`{'word ' * 31}`\n\n```\n{'word ' * 31}\n```\n", []),
    ],
)
def test_long_sentences_are_found_with_their_lines(tmp_path: Path, content: str, lines: list[int]) -> None:
    path = tmp_path / "a.md"
    path.write_text(content, encoding="utf-8")
    assert [violation.line for violation in find_long_sentences(path)] == lines


def test_long_subjects_since_the_last_release_are_found(tmp_path: Path) -> None:
    def commit(subject: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        git(tmp_path, *author, "commit", "--quiet", "--allow-empty", "--message", subject)

    git(tmp_path, "init", "--quiet")
    commit("a" * 73)
    git(tmp_path, "tag", "v1.0")
    commit("b" * 72)
    commit("c" * 73)
    assert last_release(tmp_path) == "v1.0"
    [line] = find_long_subjects(tmp_path, "v1.0")
    assert line.endswith(" " + "c" * 73)
