"""The Python API: a project with the use cases of the commands."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bakehouse import api, errors
from bakehouse.api import BakehouseError, JobSpec, Project
from bakehouse.catalog.project import HOME
from bakehouse.catalog.project import find as find_project
from bakehouse.cluster.job import Group
from bakehouse.errors import EngineError, Location, Reason
from bakehouse.ledger.store import open_ledger
from bakehouse.lock import locking
from bakehouse.pipeline import build, publish, run, smoke
from bakehouse.pipeline import ensure as ensuring
from bakehouse.pipeline.smoke import SmokeOptions
from bakehouse.plan.workspace import Selection, leave_out, open_workspace, select
from bakehouse.publish.options import PublishOptions
from tests.support.documents import blocks
from tests.support.errors import raised
from tests.support.s3_ledgers import numbered

RECIPE = 'summary: Own image\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["recipes"]\n')
    images = root / "recipes/images"
    images.mkdir(parents=True)
    (images / "churn.yaml").write_text(RECIPE)
    (images / "other.yaml").write_text(RECIPE)
    return root


def test_images_are_resolved(root: Path) -> None:
    [resolution] = Project(root).resolve("churn")

    assert resolution.recipe.name == "churn"
    assert str(resolution.version_of("python")).startswith("3.11")


def test_a_directory_below_belongs_to_the_project(root: Path) -> None:
    resolutions = Project(root / "recipes/images").resolve()

    assert [resolution.recipe.name for resolution in resolutions] == ["churn", "other"]


def test_files_are_rendered_and_returned(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = Project(root).render("churn")

    assert "churn/Dockerfile" in [file.path for file in files]
    assert all((root / "images" / file.path).read_bytes() == file.content for file in files)
    assert capsys.readouterr() == ("", f"rendered {len(files)} files of images/churn\n")


def test_mistakes_are_exceptions_with_the_hints_of_the_command_line(root: Path) -> None:
    error = raised(errors.UsageError, Project(root).resolve, "otherr")

    [mistake] = error.diagnostics
    assert (mistake.message, mistake.hint) == ("unknown image `otherr`", "did you mean `other`?")
    assert error.__notes__ == ["hint: did you mean `other`?"]


def test_notes_have_the_places_facts_and_reasons_of_mistakes() -> None:
    error = BakehouseError(
        "it failed",
        Location(Path("recipe.yaml"), 2, 3),
        reasons=(Reason("the disk is full"),),
        facts=(("log", "build/log"),),
        hint="read the log",
    )

    error.annotate()

    assert error.__notes__ == [
        "  --> recipe.yaml:2:3",
        "  log: build/log",
        "  the disk is full",
        "hint: read the log",
    ]


def test_a_recipe_with_mistakes_is_an_error_although_others_have_none(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(root / "recipes", tmp_path / "recipes")
    (tmp_path / "pyproject.toml").write_text((root / "pyproject.toml").read_text())
    (tmp_path / "recipes/images/wrong.yaml").write_text(RECIPE.replace("python", "pythom"))
    opened = open_workspace(tmp_path)
    monkeypatch.setattr("bakehouse.api.open_workspace", lambda path: opened)
    project = Project(tmp_path)

    for method in (project.resolve, project.render, project.build, project.smoke, project.release):
        with pytest.raises(errors.RecipeError, match="unknown component `pythom`"):
            method()


def test_an_image_that_a_step_leaves_out_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave_out_image(selection: Selection, report: Callable[[str], None]) -> tuple[()]:
        leave_out(selection.workspace, EngineError("the engine runs no linux/arm64 programs"))
        return ()

    monkeypatch.setattr(build, "build", leave_out_image)

    with pytest.raises(EngineError, match="the engine runs no linux/arm64 programs"):
        Project(root).build("churn")


def test_methods_return_the_results_of_the_use_cases(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def record(result: object) -> Callable[..., object]:
        def use(selection: Selection, report: Callable[[str], None], *options: object) -> object:
            calls.append(([image.name for image in selection.plan.images], *options))
            return result

        return use

    monkeypatch.setattr(build, "build", record("built"))
    monkeypatch.setattr(smoke, "smoke", record("tested"))
    monkeypatch.setattr(publish, "release", record("released"))
    project = Project(root)

    results: list[object] = [
        project.build("churn"),
        project.smoke("churn", gpus=2),
        project.release("churn", "other", registry="ecr", create=True),
    ]

    assert results == ["built", "tested", "released"]
    assert calls == [
        (["churn"],),
        (["churn"], SmokeOptions(gpus=("0", "1"))),
        (["churn", "other"], PublishOptions(registry="ecr", create=True), SmokeOptions()),
    ]


def test_locking_raises_the_errors_of_images_that_it_leaves_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock(start: Path, images: tuple[str, ...], *settings: Any, scope: object) -> tuple[str, ...]:
        assert (start, images, scope) == (root, ("churn",), locking.LockScope(upgrade=True))
        if failures:
            settings[-1].extend(failures)
        return ("churn: locked",)

    failures: list[BakehouseError] = []
    monkeypatch.setattr(locking, "run", lock)

    assert Project(root).lock("churn", upgrade=True) == ("churn: locked",)
    failures.append(errors.RecipeError("no lock"))
    with pytest.raises(errors.RecipeError, match="no lock"):
        Project(root).lock("churn", upgrade=True)


def test_a_job_gets_its_data_and_hosts(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr(run, "run_job", lambda workspace, image, job, report: jobs.append((image, job)))

    Project(root).run("churn", JobSpec(instance_count=2, inputs={"training": str(tmp_path)}))

    [(image, request)] = jobs
    assert image == "churn"
    assert request.job.channel_directories == {"training": str(tmp_path)}
    assert request.job.groups == (Group(count=2),)


def test_an_image_without_a_release_has_no_uri(root: Path) -> None:
    with pytest.raises(BakehouseError, match="`other` has not been released yet") as caught:
        Project(root).uri("other")

    assert caught.value.__notes__ == ["hint: run `bake release other`"]


def test_a_release_with_the_current_key_is_not_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project(root)
    [key] = [image.key for image in select(open_workspace(root), ["churn"]).plan.images]
    made: list[str] = []

    def release(selection: Selection, *options: object) -> list[Any]:
        made.append(selection.image.name)
        record = numbered(2, image="churn", repository="bakehouse/churn", key=key)
        open_ledger(find_project(root)).add(record)
        return [record]

    monkeypatch.setattr(ensuring, "release", release)
    open_ledger(find_project(root)).add(
        numbered(1, image="churn", repository="bakehouse/churn", key="0" * 64)
    )

    uri = project.ensure("churn")

    assert (uri, made) == (numbered(2, repository="bakehouse/churn").image_uri, ["churn"])
    assert project.ensure("churn") == api.ensure("churn", project=root) == project.uri("churn") == uri
    assert made == ["churn"]
    assert capsys.readouterr() == ("", "")


def test_a_release_in_another_registry_does_not_count(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def release(selection: Selection, report: object, options: PublishOptions, tests: object) -> list[Any]:
        raise errors.PublishError(f"released to {options.registry}")

    monkeypatch.setattr(ensuring, "release", release)
    [key] = [image.key for image in select(open_workspace(root), ["other"]).plan.images]
    record = numbered(3, image="other", repository="bakehouse/other", key=key)
    open_ledger(find_project(root)).add(record)

    assert Project(root).ensure("other") == record.image_uri
    with pytest.raises(errors.PublishError, match="released to ecr"):
        Project(root).ensure("other", registry="ecr")


def run_example(text: str, **replaced: str) -> dict[str, Any]:
    """Run the example of the page that has a text; return its names."""
    codes = (code for language, code in blocks(HOME / "docs/reference/api.md") if language == "python")
    [code] = [code for code in codes if text in code]
    for old, new in replaced.items():
        assert old in code
        code = code.replace(old, new)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def test_the_first_example_prints_a_version(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root.parent)

    run_example("print(resolution", images=root.name)

    assert capsys.readouterr().out.startswith("3.11")


def test_the_task_of_an_orchestrator_returns_the_image_uri(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    [image] = select(open_workspace(root), ["churn"]).plan.images
    record = numbered(4, image="churn", repository="bakehouse/churn", key=image.key, date="2026-11-21")
    open_ledger(find_project(root)).add(record)

    names = run_example("def training_image")

    assert names["training_image"]() == record.image_uri


def test_it_does_not_import_the_command_line() -> None:
    code = (
        "import sys, bakehouse.api; print([name for name in sys.modules if name.startswith('bakehouse.cli')])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, check=True
    )

    assert result.stdout == "[]\n"


def test_the_package_has_types() -> None:
    assert (HOME / "bakehouse/py.typed").is_file()
