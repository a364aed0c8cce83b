"""Daily commands on projects that earlier versions of Bakehouse wrote and released."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli import main
from tests.support.git_repository import commit

VERSIONS = ("0.1.0", "0.2.0")
LOCK = Path("requirements.txt.lock")
COMMANDS = (
    ("lint",),
    ("list",),
    ("resolve", "churn"),
    ("explain", "churn"),
    ("outdated", "churn"),
    ("plan", "--from", "HEAD"),
    ("diff", "--from", "HEAD"),
    ("report",),
    ("uri", "churn"),
    ("releases", "churn"),
    ("estimator", "churn", "--instance-type", "ml.c5.xlarge"),
    ("validate", "churn", "--instance-type", "ml.c5.xlarge"),
)


@pytest.fixture
def version(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    version = str(getattr(request, "param", VERSIONS[-1]))
    shutil.copytree(HOME / "tests/projects/upgrades" / version, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("NO_COLOR", "1")
    commit(tmp_path / "project", {})
    return version


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run a command line in this process; return its exit code and what it printed."""
    code = main.run(words)
    return code, "".join(capsys.readouterr())


@pytest.mark.parametrize("version", VERSIONS, indirect=True)
def test_daily_commands_read_the_files_of_an_earlier_version(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {words[0]: answer(capsys, *words) for words in COMMANDS}

    assert {name: code for name, (code, _) in answers.items() if code} == {}
    assert "+ polars" not in answers["diff"][1]
    assert "train.py removed" not in answers["plan"][1]
    note = "`requirements.txt.lock` has the format of Bakehouse 0.1.0; `bake lock` writes the present one\n"
    assert (note in answers["lint"][1]) is (version == "0.1.0")
    assert answers["uri"][1].startswith("127.0.0.1:5050/bakehouse/churn@sha256:a7c3556ef17b")


@pytest.mark.release
@pytest.mark.parametrize("version", VERSIONS, indirect=True)
def test_a_project_goes_up_with_lock_and_render_and_back_with_git(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = LOCK.read_text().splitlines()

    def failures() -> dict[str, str]:
        answers = {words: answer(capsys, *words) for words in COMMANDS}
        return {" ".join(words): text for words, (code, text) in answers.items() if code}

    for words in (("lock",), ("render",)):
        code, text = answer(capsys, *words)
        assert code == 0, text
    after = LOCK.read_text().splitlines()
    assert [line for line in after if line not in before] == after[: version == "0.1.0"]
    assert failures() == {}
    commit(Path.cwd(), {})
    assert failures() == {}
    for path in (Path("images"), LOCK):
        subprocess.run(["git", "checkout", "-q", "HEAD~1", "--", str(path)], check=True)
    assert failures() == {}


@pytest.mark.parametrize("version", VERSIONS, indirect=True)
def test_rendering_is_all_that_an_upgrade_needs(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "render", "--check")[0] == 4
    assert answer(capsys, "render")[0] == 0
    assert answer(capsys, "render", "--check")[0] == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("# format 9\n", "`requirements.txt.lock` was written by a newer Bakehouse"),
        ("# something else\n", "`requirements.txt.lock` has an unknown format"),
        (
            f"# of requirements.txt sha256:{'0' * 64}\n",
            "`requirements.txt.lock` is older than `requirements.txt`",
        ),
    ],
)
def test_three_kinds_of_unusable_locks_are_different_mistakes(
    version: str, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    lines = LOCK.read_text().splitlines(keepends=True)
    LOCK.write_text("".join((line, *lines[1:])))

    code, text = answer(capsys, "lint", "churn")
    assert (code, text.splitlines()[0]) == (2, f"error: {message}")
    # The committed side is known, the present one is not
    assert answer(capsys, "diff", "--from", "HEAD")[0] == 2


def test_a_commit_with_an_unusable_lock_is_not_known(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = LOCK.read_text()
    LOCK.write_text(lock.replace(" sha256:f", " sha256:0", 1))
    commit(Path.cwd(), {})
    LOCK.write_text(lock)

    reason = "`requirements.txt.lock` is older than `requirements.txt` at HEAD"
    code, text = answer(capsys, "diff", "--from", "HEAD")
    assert (code, text) == (0, f"churn\n  Python packages: not known, because {reason}\n")
