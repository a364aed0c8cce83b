"""A user's project: which images a task means, and how a recipe with mistakes is reported."""

import io
import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from bakehouse.catalog import project as project_settings
from bakehouse.catalog.project import HOME
from bakehouse.cli import main
from bakehouse.cli.tasks import declare
from bakehouse.errors import RegistryAuthError, UsageError
from bakehouse.lock.selection import LockSelection, select_locked
from bakehouse.pipeline import publish
from bakehouse.plan import workspace
from bakehouse.plan.workspace import Selection, open_workspace
from tests.support import own_recipes
from tests.support.trees import Tree

CHURN = """\
summary: Trains the churn model
base: {debian: "12"}
components: {python: "3.11"}
"""
UNLOCKED = CHURN + "requirements: requirements.txt\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    tree = Tree(tmp_path)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    tree.write("mine/images/churn.yaml", CHURN)
    return tree


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command line in this process; return its exit code, output and errors."""
    code = main.run(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("words", [("estimator",), ("uri",)])
def test_a_look_up_of_an_image_without_a_lock_names_the_lock(
    project: Tree, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    project.write("mine/images/requirements.txt", "numpy\n")
    project.write("mine/images/unlocked.yaml", UNLOCKED)

    assert answer(capsys, *words, "unlocked") == (
        2,
        "",
        """\
error: `requirements.txt` has no lock
  --> mine/images/unlocked.yaml:4:15
   |
 4 | requirements: requirements.txt
   |               ^^^^^^^^^^^^^^^^ every package is pinned by content

hint: run `bake lock unlocked` and commit the lock
""",
    )
    errors = answer(capsys, *words, "unlokced")[2]
    assert "error: unknown image `unlokced`\n" in errors
    assert errors.endswith("\nhint: did you mean `unlocked`?\n")


def test_own_images_are_listed_first(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = answer(capsys, "list")

    assert code == 0
    assert output.split()[0] == "churn"
    assert output.splitlines()[1:3] == ["", "Try a job on CPU instances:"]
    assert output.splitlines()[-1].endswith(" more images in the archive: `bake list --all`")
    assert answer(capsys, "list", "--all")[1].partition("Archive, without claims:\n")[2].count("\n") > 50


@pytest.mark.parametrize("words", [("resolve",), ("plan",), ("outdated",), ("render",)])
def test_without_names_tasks_mean_the_own_images(
    project: Tree, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, output, errors = answer(capsys, *words)

    assert code == 0
    assert "churn" in output + errors
    assert "mpi-cpu" not in output + errors


def test_a_project_without_recipes_has_to_name_images(
    project: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("pyproject.toml", "[tool.bakehouse]\n")
    images = len(json.loads(answer(capsys, "list", "--json")[1]))

    assert answer(capsys, "plan")[::2] == (
        64,
        "error: this project has no recipes of its own\n\n"
        "hint: run `bake init` to write one, or name images; "
        f"`'*'` stands for all {images} images of Bakehouse\n",
    )


@pytest.mark.parametrize("words", [("list",), ("list", "c*"), ("resolve", "mpi-cpu"), ("plan", "churn")])
def test_other_tasks_go_on_without_a_recipe_that_has_no_lock(
    project: Tree, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    project.write("mine/images/requirements.txt", "numpy\n")
    project.write("mine/images/unlocked.yaml", UNLOCKED)
    code, output, errors = answer(capsys, *words)

    assert code == 0
    assert output
    assert errors == (
        "warning: recipe `unlocked` is left out: `requirements.txt` has no lock\n"
        "  --> mine/images/unlocked.yaml:4:15\n\n"
        "hint: run `bake lock unlocked` and commit the lock\n\n"
    )


def test_a_recipe_with_several_mistakes_gets_one_warning(
    project: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("mine/images/typo.yaml", CHURN.replace("summary", "sumary"))

    assert answer(capsys, "resolve", "churn")[::2] == (
        0,
        "warning: recipe `typo` is left out: image `typo` has no `summary`, and 1 more mistake\n"
        "  --> mine/images/typo.yaml:1:1\n\n"
        "hint: run `bake resolve typo` for all mistakes\n\n",
    )
    for words in (("resolve", "typo"), ("build", "typo", "churn"), ("run", "typo"), ("list", "typo")):
        code, _, errors = answer(capsys, *words)
        assert (code, errors.splitlines()[0]) == (2, "error: image `typo` has no `summary`")


@pytest.mark.parametrize("words", [("resolve",), ("render",), ("plan", "*"), ("outdated",), ("lock",)])
def test_mistakes_and_conflicts_do_not_stop_other_images(
    project: Tree, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    project.write("mine/images/typo.yaml", CHURN.replace("summary", "sumary"))
    project.write("mine/images/clash.yaml", CHURN.replace('"3.11"', '"3.11", glibc: ">3"'))
    project.write("mine/images/locked.yaml", CHURN + "requirements: missing.txt\n")
    code, output, errors = answer(capsys, *words)

    assert code == 2
    assert {"lock": "everything is locked", "render": "files of 1 image"}.get(words[0], "churn") in output
    assert [line for line in errors.splitlines() if line.startswith("error: ")] == [
        "error: file `missing.txt` does not exist next to the recipe",
        "error: image `typo` has no `summary`",
        "error: unknown key `sumary` in image `typo`",
        "error: no versions satisfy image `clash` on linux/amd64",
    ]
    assert errors.endswith("\n4 errors\n")


COMPONENT = """\
summary: Our kernels
releases:
  - version: "1"
    requries: {python: "*"}
"""


def test_a_component_with_a_mistake_stops_only_images_that_may_use_it(
    project: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("mine/components/kernels/component.yaml", COMPONENT)
    project.write(
        "mine/components/model/component.yaml",
        'summary: x\nreleases: [{version: "1", requires: {kernels: "*"}}]\n',
    )
    project.write("mine/images/direct.yaml", CHURN.replace('"3.11"', '"3.11", kernels: "*"'))
    project.write("mine/images/indirect.yaml", CHURN.replace('"3.11"', '"3.11", model: "*"'))

    assert answer(capsys, "resolve", "churn") == (
        0,
        "churn\n  debian 12  provides glibc 2.36\n  python 3.11 (distribution)\n",
        "warning: component `kernels` and 2 images that may use it are left out: "
        "unknown key `requries` in release 1 of `kernels`\n"
        "  --> mine/components/kernels/component.yaml:4:5\n\n"
        "hint: did you mean `requires`?\n\n",
    )
    for words in (("resolve", "direct"), ("build", "indirect"), ("lock", "kernels"), ("render",)):
        code, output, errors = answer(capsys, *words)
        assert (code, errors.count("error: "), output) == (
            2,
            1,
            "7 files of 1 image\n" * (words == ("render",)),
        )
        assert "error: unknown key `requries` in release 1 of `kernels`\n" in errors


def test_a_mistake_in_a_replaced_component_stops_the_images_of_bakehouse_that_may_use_it(
    project: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("mine/components/nccl/component.yaml", COMPONENT)

    assert answer(capsys, "resolve", "pytorch-cpu")[0] == 0
    assert answer(capsys, "resolve", "nccl-tests-openmpi4")[0] == 2
    code, _, errors = answer(capsys, "list")
    assert code == 0
    assert re.match(r"warning: component `nccl` and \d+ images that may use it are left out: unknown", errors)


def test_a_check_is_looked_up_before_anything_is_built(
    project: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    code, _, errors = answer(capsys, "smoke", "churn", "--check", "nosuch")

    assert code == 64
    assert errors.startswith(
        "error: `churn` has no check `nosuch`\n\nhint: use one of `checkpoints`, `components`, "
    )


def test_lock_does_not_write_bakehouses_catalogue(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "lock", "pytorch")[::2] == (
        64,
        "error: `pytorch` is a component of Bakehouse, which is not changed from a project\n\n"
        "hint: copy its directory to `components/pytorch` of your recipes to lock it there\n",
    )
    assert answer(capsys, "lock", "--upgrade", "pytorch")[::2] == (
        64,
        "error: `pytorch` is a component of Bakehouse, which is not changed from a project\n\n"
        "hint: install a newer Bakehouse, which may have newer packages of `pytorch`, or copy its directory "
        "to `components/pytorch` of your recipes to lock it there\n",
    )
    assert answer(capsys, "lock")[:2] == (0, "everything is locked\n")


def test_an_upgrade_of_a_base_of_bakehouse_selects_all_debian_packages(project: Tree) -> None:
    opened = open_workspace(project.root)

    selection = select_locked(opened, ["debian"], upgrade=True)

    assert selection == LockSelection((), (), (), is_all=True)
    with pytest.raises(UsageError, match="`debian` is a component of Bakehouse"):
        select_locked(opened, ["debian"])


def test_lock_needs_a_recipe_directory(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    project.write("pyproject.toml", "[tool.bakehouse]\n")

    assert answer(capsys, "lock", "mpi-cpu")[::2] == (
        64,
        "error: this project has no recipe directory for locks\n\nhint: run `bake init` to create one\n",
    )


def test_nothing_is_published_yet(project: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    message = "nothing is published yet; `bake release IMAGE` builds, tests and pushes an image\n"
    assert answer(capsys, "releases") == (0, "", message)


@pytest.mark.usefixtures("no_aws")
def test_a_release_asks_the_registry_before_it_builds(
    project: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(publish, "build", build)
    monkeypatch.setattr(publish, "ensure_built", build)
    host = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
    for task in ("release", "push"):
        code, _, errors = answer(capsys, task, "churn", "--registry", host)

        assert code == RegistryAuthError.exit_code
        assert errors.startswith("error: no AWS credentials were found\n")


IN_CHECKOUT = f"using Bakehouse's checkout, {HOME}: no project in this directory or above it\n"


def test_a_named_image_outside_of_projects_is_that_of_bakehouses_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    code, output, errors = answer(capsys, "resolve", "mpi-cpu")

    assert (code, output.splitlines()[0], errors) == (0, "mpi-cpu", IN_CHECKOUT)
    monkeypatch.chdir(HOME / "docs")
    assert answer(capsys, "resolve", "mpi-cpu")[2] == ""


def test_an_installed_bakehouse_says_where_it_writes_without_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (project_settings, workspace, declare):
        monkeypatch.setattr(module, "IS_CHECKOUT", False)
    monkeypatch.chdir(tmp_path)
    notice = f"using this directory, {tmp_path}: no project in this directory or above it\n"

    assert answer(capsys, "resolve", "mpi-cpu")[::2] == (0, notice)
    assert answer(capsys, "render") == (
        64,
        "",
        f"{notice}error: this directory is not in a project\n\n"
        "hint: run `bake init` to create one, or name images\n",
    )


@pytest.mark.parametrize("task", ["build", "render", "lock", "clean", "release"])
def test_all_images_of_bakehouse_need_its_checkout_as_the_current_directory(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    code, output, errors = answer(capsys, task)

    assert (code, output) == (64, "")
    assert errors == IN_CHECKOUT + (
        "error: this directory is not in a project\n\n"
        f"hint: run `bake init` to create one, name images, or change to Bakehouse's checkout: `cd {HOME}`\n"
    )


@pytest.mark.parametrize("command", ["build", "smoke", "release"])
def test_many_images_need_a_name_or_an_option(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = Tree(tmp_path)
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["mine"]\n')
    for number in range(21):
        tree.write(f"mine/images/image-{number}.yaml", 'summary: Small\nbase: {debian: "12"}\n')

    assert main.run((command,)) == UsageError.exit_code
    assert (
        "no image is named, and the project has 21\n\nhint: name images, or add `--all`"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("count", "images", "all", "answer", "confirms"),
    [
        (20, "", False, None, True),
        (21, "", False, None, False),
        (21, "*", False, None, True),
        (21, "", True, None, True),
        (21, "", False, "y", True),
        (21, "", False, "", False),
    ],
)
def test_many_images_are_confirmed(
    count: int,
    images: str,
    all: bool,
    answer: str | None,
    confirms: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stdin = io.StringIO(f"{answer}\n")
    for stream in (stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: answer is not None)
    monkeypatch.setattr(sys, "stdin", stdin)
    selection = Selection(open_workspace(), tuple(own_recipes.recipes().values())[:count])

    with nullcontext() if confirms else pytest.raises(UsageError):
        assert declare.confirmed(selection, images, all=all) == selection
