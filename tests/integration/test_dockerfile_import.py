"""The import of Dockerfiles, by its results: `docker build` and the proposed recipe give the same files."""

import os
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.commands.dockerfile_import import compare, init
from bakehouse.lock.base_description import component_text
from bakehouse.plan.workspace import open_workspace, select
from tests.commands.dockerfile_import.random_programs import instructions_of
from tests.integration import bases
from tests.support.programs import BAKE

GRAMMAR = sorted((HOME / "tests/commands/dockerfile_import/grammar").glob("*.Dockerfile"))
DAILY = ("heredocs", "order", "shells")
Compared = Callable[[str, str], list[str]]


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compared:
    """Return the differences of a Dockerfile and its recipe, both on the base of Debian 12."""
    subprocess.run([*BAKE, "build", "debian-12"], cwd=HOME, check=True, capture_output=True)
    base = bases.base().reference
    content = {"debian": "12", "glibc": "2.36", "python": "3.11"}
    monkeypatch.chdir(tmp_path)

    def run(text: str, more: str = "") -> list[str]:
        (tmp_path / "Dockerfile").write_text(f"FROM {base}\n{text}\n")
        created = init.run(
            tmp_path, "img", "Dockerfile", base, lambda image: (component_text(image, content), "")
        )
        assert [row for row in created.untranslated if "may use the network" not in row.detail] == []
        recipe = tmp_path / "training-images/images/img.yaml"
        recipe.write_text(re.sub(r"(?m)^components:\n(?:  .*\n)*", "", recipe.read_text()) + more)
        assert created.build
        lines = compare.compare(select(open_workspace(tmp_path), ["img"]), created.build, print)
        # Bakehouse sets variables and the start of its images
        return [line for line in lines if not line.startswith(("variable ", "setting "))]

    return run


@pytest.mark.engine
@pytest.mark.parametrize("programs", [15, pytest.param(50, marks=pytest.mark.release)])
def test_random_programs_write_the_same_files(programs: int, compared: Compared) -> None:
    source = random.Random(int(os.environ.get("BAKEHOUSE_SEED", "1")))

    [count] = compared("\n".join(instructions_of(source, programs)), "")

    assert count.endswith(" paths are the same, 0 differ")


@pytest.mark.engine
@pytest.mark.parametrize(
    "paths",
    [
        [path for path in GRAMMAR if path.stem in DAILY],
        pytest.param([path for path in GRAMMAR if path.stem not in DAILY], marks=pytest.mark.release),
    ],
    ids=["daily", "all"],
)
def test_each_form_of_the_grammar_writes_the_same_files(paths: list[Path], compared: Compared) -> None:
    text = "\n".join(f"WORKDIR /\n{path.read_text()}" for path in paths)

    [count] = compared(text, "")

    assert count.endswith(" paths are the same, 0 differ")


@pytest.mark.engine
def test_a_difference_is_named(compared: Compared) -> None:
    lines = compared("RUN echo a > /a\nRUN ln -s a /b", '  - "echo c > /a; chmod 600 /a; rm /b; touch /d"\n')

    assert [re.sub(r" [0-9a-f]{12}(?=,|$)", " SHA", line) for line in lines[:-1]] == [
        "path /a: f 644 0:0 SHA, in the recipe f 600 0:0 SHA",
        "path /b: l 777 0:0 a, in the recipe none",
        "path /d: none, in the recipe f 644 0:0 SHA",
    ]
    assert lines[-1].endswith(" paths are the same, 3 differ")
