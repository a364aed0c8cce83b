"""Completion in bash, zsh and fish."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli import completion
from bakehouse.errors import UsageError

_DRIVERS = {
    # What each shell does when Tab is pressed, driven from a script.
    "bash": (
        "source {script}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _bake; "
        'printf "%s\\n" "${{COMPREPLY[@]}}"'
    ),
    "zsh": (
        "compdef() {{ :; }}; compadd() {{ shift; print -l -- $@; }}; _files() {{ :; }}; source {script}; "
        "words=({words}); CURRENT=$#words; _bake"
    ),
    "fish": "source {script}; complete --do-complete '{line}'",
}


@pytest.fixture(params=list(_DRIVERS))
def shell(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")
    return name


@pytest.fixture
def bake(tmp_path: Path) -> str:
    """Return a PATH with a `bake` command of this checkout."""
    program = tmp_path / "bin" / "bake"
    program.parent.mkdir()
    code = "from bakehouse.cli.main import main; main()"
    program.write_text(f"#!/bin/sh\nPYTHONPATH={HOME} exec {sys.executable} -P -c '{code}' \"$@\"\n")
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("bake rend", {"render"}),
        ("bake build mpi-cpu mpi5", {"mpi5-cpu"}),
        ("bake explain mpi-cpu open-m", {"open-mpi"}),
        ("bake resolve --ass", {"--assume"}),
    ],
)
def test_words_are_completed(line: str, completed: set[str], shell: str, bake: str, tmp_path: Path) -> None:
    script = tmp_path / f"bake.{shell}"
    script.write_text(completion.script(shell))
    driver = _DRIVERS[shell].format(script=script, words=line, line=line)
    # The shell has no settings; the catalogue is in the cache, as usual.
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    environment = {**os.environ, "PATH": bake, "HOME": str(tmp_path), "XDG_CACHE_HOME": cache}

    result = subprocess.run([shell, "-c", driver], cwd=HOME, env=environment, capture_output=True, text=True)

    assert ({*result.stdout.split()}, result.stderr) == (completed, "")


def test_names_of_tasks_and_shells_are_completed() -> None:
    assert completion.candidates(["help", "reh"]) == ("rehearse",)
    assert completion.candidates(["completion", "z"]) == ("zsh",)


def test_values_of_options_are_left_to_the_shell() -> None:
    assert completion.candidates(["build", "--from", ""]) == ()


def test_a_command_after_two_dashes_is_left_to_the_shell() -> None:
    assert "mpi-cpu" in completion.candidates(["shell", "mpi-c"])
    assert completion.candidates(["shell", "mpi-cpu", "--", "--st"]) == ()


def test_a_mistake_in_a_component_does_not_stop_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["mine"]\n')
    (tmp_path / "mine" / "components" / "wrong").mkdir(parents=True)
    (tmp_path / "mine" / "components" / "wrong" / "component.yaml").write_text("sumary: x\n")
    monkeypatch.chdir(tmp_path)

    assert "mpi-cpu" in completion.candidates(["build", ""])


def test_other_shells_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        completion.script("fsh")

    [diagnostic] = caught.value.diagnostics
    assert (diagnostic.message, diagnostic.hint) == ("no completion for shell `fsh`", "did you mean `fish`?")
