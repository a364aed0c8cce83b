"""Repositories that others wrote: no command reads or changes what is outside of them."""

from pathlib import Path
from random import Random

import pytest

from tests.support import hostile_repositories
from tests.support.hostile_repositories import COMMANDS, Attack, attacked, complaints, run

pytestmark = pytest.mark.timeout(600)

READ = ("own/images/tool.yaml", "own/components/extra/files/setting", "own/more.txt", "own/uv/pyproject.toml")


def test_no_command_reads_or_changes_what_is_outside(tmp_path: Path) -> None:
    """`benchmarks/hostile_repositories.py` tries more."""
    random = Random(1)
    kinds = ["absolute link", "relative link", "chain of links", "named pipe"]
    read = [Attack(kind, path) for kind, path in zip(kinds, READ, strict=True)]
    written = [Attack("absolute link", path) for path in ("images/tool/inputs", ".github/workflows")]
    texts = [Attack("text", path, text) for path, text in random.sample(hostile_repositories.texts(), 4)]
    for number, changes in enumerate((read, written, texts)):
        commands = (COMMANDS[0], ("render",), ("ci", "github"))
        assert complaints(tmp_path / str(number), changes, commands) == []


def test_a_command_that_follows_a_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakehouse.util.files.repository_of", lambda path: None)
    monkeypatch.setattr("bakehouse.util.directory_handles._top", lambda path: "")

    read = complaints(tmp_path / "1", [Attack("chain of links", "own/images/tool.yaml")], COMMANDS[:1])
    written = complaints(tmp_path / "2", [Attack("absolute link", ".github")], [("ci", "github")])

    assert any(line.startswith("opened ") for line in read)
    assert any(line.startswith("lint ") for line in read)
    assert "the tree outside has changed" in written


OUT = "a link leads out of the repository"
MISTAKES = (
    {
        "own/components/extra/install.j2": f"cannot read `install.j2`: {OUT}\n",
        "own/components/extra/files/setting": f"cannot read `setting`: {OUT}\n",
        "own/components/extra/smoke.py": f"cannot read `smoke.py`: {OUT}\n",
        "own/more.txt": f"cannot read `more.txt`: {OUT}\n  --> own/requirements.txt:1:1\n",
    },
    {
        "own/components/extra/component.yaml": f"cannot read `component.yaml`: {OUT}\n",
        "own/images/tool.yaml": f"cannot read `tool.yaml`: {OUT}\n  --> own/images/tool.yaml:1:1\n",
        "own/constraints.txt": f"cannot read `constraints.txt`: {OUT}\n  --> own/requirements.txt:2:1\n",
        "own/uv": "`../uv/uv.lock` is outside the repository\n",
    },
    {
        ".github": "cannot use `{top}/.github/workflows/bakehouse-pull-request.yml`: "
        f"{OUT}\n\nhint: replace the link with a file or a directory of the repository\n",
        "images/tool/inputs": f"cannot use `{{top}}/images/tool/inputs/bin/download-debs`: {OUT}\n",
        "build": "cannot use `build/lint.sarif`: nothing is written through a link: `build`\n",
    },
    {"own/images": f"cannot use `{{top}}/own/images`: {OUT}\n"},
)
"""Messages by the path that is a link out of the repository."""


@pytest.mark.parametrize("mistakes", MISTAKES, ids=lambda mistakes: next(iter(mistakes)))
def test_a_link_is_reported_where_it_is_used(tmp_path: Path, mistakes: dict[str, str]) -> None:
    top, outside = attacked(tmp_path, [Attack("absolute link", path) for path in mistakes])

    commands = (("lint", "--sarif", "build/lint.sarif"), ("render",), ("ci", "github"))
    output = "".join(run(top, commands).values())

    expected = {path: message.format(top=top, outside=outside) for path, message in mistakes.items()}
    assert {path for path, message in expected.items() if message not in output} == set(), output
