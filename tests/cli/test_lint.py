"""The `lint` task: mistakes and known problems, as text and as SARIF."""

import json
from pathlib import Path
from typing import Any

import pytest

from bakehouse.cli import diagnostics, main
from bakehouse.errors import RecipeError
from tests.support.trees import Tree


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    tree = Tree(tmp_path)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    tree.write("mine/images/sound.yaml", 'summary: Sound\nbase: {debian: "12"}\n')
    return tree


def findings(project: Tree) -> list[dict[str, Any]]:
    document = json.loads((project.root / "out/lint.sarif").read_text())
    assert document["version"] == "2.1.0"
    [run] = document["runs"]
    results: list[dict[str, Any]] = run["results"]
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == {each["ruleId"] for each in results}
    return results


def test_a_project_without_mistakes_passes(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(("lint", "--sarif", "out/lint.sarif")) == 0
    assert capsys.readouterr().out == "1 image without mistakes\n"
    assert findings(project) == []


def test_an_exception_is_told_after_its_last_day(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    for name, day in ("past", "2026-01-31"), ("future", "2099-01-31"):
        accepted = f"accepted: [{{fact: support, until: {day}, reason: no user needs it}}]\n"
        project.write(f"mine/images/{name}.yaml", f'summary: Sound\nbase: {{debian: "12"}}\n{accepted}')

    assert main.run(("lint",)) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == ("the last day has passed: support, accepted until 2026-01-31: no user needs it: `past`")
    assert others == ["3 images without mistakes"]
    for name in ("past", "future"):
        assert main.run(("validate", name)) == 0
        assert ("the last day has passed" in capsys.readouterr().err) == (name == "past")


def test_the_files_that_were_searched_are_counted(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train.py", "key.py", "a.ckpt", "b.ckpt", ".git/config"):
        project.write(f"src/{name}", "postgres://me:s3cr3t@db.internal" if name == "key.py" else "")
    project.write(".dockerignore", "**/*.ckpt\n")
    code = "code: {directory: ../../src, entry_point: train.py, allow: [key.py]}\n"
    for name in ("sound", "other"):
        project.write(f"mine/images/{name}.yaml", f'summary: Sound\nbase: {{debian: "12"}}\n{code}')

    assert main.run(("lint",)) == 0
    assert capsys.readouterr().out == (
        "2 images without mistakes; searched 4 files for secrets, allowed 2 files\n"
        "left out of other and 1 more: .dockerignore:1 **/*.ckpt: 2 files\n"
        "left out of other and 1 more: version control (.git): 1 directory\n"
    )


def test_mistakes_and_conflicts_are_findings(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    project.write("mine/images/typo.yaml", "summary: Typo\nbase: {debian: 12}\ncomponent: {}\n")
    project.write(
        "mine/images/conflict.yaml", 'summary: Conflict\nbase: {debian: "12"}\ncomponents: {pytorch: "0.1"}\n'
    )

    assert main.run(("lint", "--sarif", "out/lint.sarif")) != 0

    captured = capsys.readouterr()
    assert "without mistakes" not in captured.out
    assert "unknown key `component`" in captured.err
    mistakes = {
        each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]: each
        for each in findings(project)
    }
    assert set(mistakes) == {"mine/images/typo.yaml", "mine/images/conflict.yaml"}
    typo = mistakes["mine/images/typo.yaml"]
    assert (typo["ruleId"], typo["level"]) == ("recipe", "error")
    assert "unknown key `component`" in typo["message"]["text"]
    assert typo["locations"][0]["physicalLocation"]["region"] == {
        "startLine": 3,
        "startColumn": 1,
        "endColumn": 10,
    }


def test_known_problems_are_warnings(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(("lint", "pytorch-2.12-cu130-py312-extended", "--sarif", "out/lint.sarif")) == 0
    assert "warning: " in capsys.readouterr().out
    assert {(each["ruleId"], each["level"]) for each in findings(project)} == {("known-problem", "warning")}


def uris(project: Tree) -> list[str]:
    places = (finding["locations"][0]["physicalLocation"] for finding in findings(project))
    return [place["artifactLocation"]["uri"] for place in places]


def test_paths_of_findings_are_escaped(project: Tree) -> None:
    project.write("mine/images/100% typo.yaml", "summary: Typo\n")

    assert main.run(("lint", "--sarif", "out/lint.sarif")) != 0
    assert {*uris(project)} == {"mine/images/100%25%20typo.yaml"}


def test_a_file_outside_the_working_directory_has_an_absolute_uri(
    project: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["../our recipes"]\n')
    recipes = tmp_path.parent / "our recipes"
    Tree(recipes).write("images/typo.yaml", "summary: Typo\n")
    monkeypatch.setenv("BAKEHOUSE_RECIPES", "../our recipes")

    assert main.run(("lint", "--sarif", "out/lint.sarif")) != 0
    assert {*uris(project)} == {(recipes / "images/typo.yaml").as_uri()}


def test_a_finding_without_a_location_is_in_the_settings(project: Tree) -> None:
    assert main.run(("lint", "no-such-image", "--sarif", "out/lint.sarif")) != 0
    assert uris(project) == ["pyproject.toml"]


def test_credentials_of_urls_are_not_in_the_findings() -> None:
    error = RecipeError("`https://ci:s3cret@host/simple` is not a requirement")
    assert "s3cret" not in diagnostics.sarif_text([error], ())
