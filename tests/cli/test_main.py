"""The command line: what people type, what invoke gets, and what they are told when they mistype."""

import fnmatch
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from invoke.collection import Collection

import tasks
from bakehouse.catalog.project import HOME
from bakehouse.cli.main import Bake, help_first, with_named_values
from bakehouse.errors import UsageError
from bakehouse.plan.workspace import open_workspace
from bakehouse.publish.releases import ReleasedRegion, append
from tests.publish.test_image_uris import ECR, US, release

COLLECTION = Collection.from_module(tasks)


def bake(*words: str, cwd: Path = HOME) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", "from bakehouse.cli.main import main; main()", *words]
    environment = os.environ | {"NO_COLOR": "1", "GITHUB_ACTIONS": ""}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("build", "build --images="),
        ("build pytorch-cpu", "build --images=pytorch-cpu"),
        ("build mpi-cpu pytorch-*", "build --images=mpi-cpu,pytorch-*"),
        ("smoke --gpus 2 pytorch-cpu", "smoke --gpus 2 --images=pytorch-cpu"),
        ("smoke pytorch-cpu --check=mpi_2x2", "smoke --check=mpi_2x2 --images=pytorch-cpu"),
        ("build --images=a", "build --images=a"),
        ("explain pytorch-cu130 nccl", "explain --image=pytorch-cu130 --part=nccl"),
        ("render a smoke b", "render --images=a smoke --images=b"),
        ("doctor", "doctor"),
    ],
)
def test_values_after_a_task_get_names(typed: str, given: str) -> None:
    assert with_named_values(typed.split(), COLLECTION) == given.split()


def test_a_mistyped_option_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        with_named_values(["render", "--chekc"], COLLECTION)

    [told] = caught.value.diagnostics
    assert told.message == "task `render` has no option `--chekc`"
    assert told.hint == "did you mean `--check`?"


@pytest.mark.parametrize(
    "words", [["build", ""], ["push", "mpi-cpu", ","], ["lock", "--images="], ["fetch", "-i", ""]]
)
def test_an_empty_name_is_not_every_image(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        with_named_values(words, COLLECTION)

    [told] = caught.value.diagnostics
    assert told.message in (
        f"`{words[-1]}` names nothing that task `{words[0]}` could take",
        f"`{words[1].rstrip('=')}` of task `{words[0]}` needs a value",
    )


@pytest.mark.parametrize(
    "words", [["fetch", "a", "--to", ""], ["fetch", "a", "--to="], ["fetch", "a", "--to"]]
)
def test_an_option_s_value_is_not_empty(words: list[str]) -> None:
    with pytest.raises(UsageError, match="`--to` of task `fetch` needs a value"):
        with_named_values(words, COLLECTION)


@pytest.mark.parametrize(
    "words", [["fetch", "a", "--to", "b", "--to=c"], ["build", "a", "--images", "b", "--images", "c"]]
)
def test_an_option_that_takes_one_value_stands_once(words: list[str]) -> None:
    with pytest.raises(UsageError, match="stands twice"):
        with_named_values(words, COLLECTION)


def test_an_option_that_takes_several_values_may_stand_again() -> None:
    words = ["resolve", "--with", "a=1", "--with", "b=2"]
    assert with_named_values(words, COLLECTION) == [*words, "--images="]


def test_help_may_follow_the_task() -> None:
    assert help_first(["bake", "build", "--help"]) == ["bake", "--help", "build"]
    assert help_first(["bake", "--help"]) == ["bake", "--help"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["biuld"], 64, "error: there is no task `biuld`\n\nhint: did you mean `build`?\n"),
        (["biuld", "--help"], 64, "error: there is no task `biuld`\n\nhint: did you mean `build`?\n"),
        (["estimator", "pytorch-cpu", "--role"], 64, "error: `--role` of task `estimator` needs a value\n"),
        (
            ["render", "pytroch-cpu"],
            64,
            "error: there is no image `pytroch-cpu`\n\nhint: did you mean `pytorch-cpu`?\n",
        ),
        (["plan", "mpi-cup"], 64, "error: there is no image `mpi-cup`\n\nhint: did you mean `mpi-cpu`?\n"),
        (
            ["explain"],
            64,
            "error: 'explain' did not receive required positional arguments: 'image'\n\n"
            "hint: `./bake explain --help` shows how it is called\n",
        ),
        (
            ["explain", "pytorch-cu130", "ncl"],
            64,
            "error: `pytorch-cu130` has no `ncl`\n\nhint: did you mean `nccl`?\n",
        ),
        (
            ["size", "ml.p4d.24xlarge", "--vcpu-per-gpu", "many"],
            64,
            "error: `many` is no number\n\nhint: `./bake size --help` names the options that take numbers\n",
        ),
        (
            ["doctor", "now"],
            64,
            "error: task `doctor` takes no `now`\n\nhint: `./bake doctor --help` shows what it takes\n",
        ),
    ],
)
def test_what_is_mistyped_is_answered_without_a_traceback(
    words: list[str],
    code: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(HOME)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GITHUB_ACTIONS", "")
    with pytest.raises(SystemExit) as caught:
        Bake().run(["bake", *words])

    assert (caught.value.code, capsys.readouterr().err) == (code, told)


def test_a_process_ends_as_its_task_does() -> None:
    ended = bake("biuld")

    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr == "error: there is no task `biuld`\n\nhint: did you mean `build`?\n"


def test_what_this_machine_does_not_allow_is_told_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("BAKEHOUSE_STATE", str(tmp_path / "state"))

    ended = bake("lock", "mpi-cpu")

    assert ended.returncode == 1
    assert ended.stderr == (
        f"error: can't use `{tmp_path}/state/locks`: not a directory\n\n"
        f"hint: BAKEHOUSE_STATE is `{tmp_path}/state`\n"
    )


def test_every_task_says_what_it_does_by_example() -> None:
    for name in COLLECTION.task_names:
        task = COLLECTION[name]
        assert task.__doc__ is not None
        assert f"./bake {task.name}" in task.__doc__, name


def test_examples_name_images_that_there_are() -> None:
    workspace = open_workspace()
    images = [*workspace.recipes, *(one.family for one in workspace.recipes.values())]
    known = {*images, *workspace.catalog.provided_names}
    shown = [
        word
        for name in COLLECTION.task_names
        if "image" in " ".join(COLLECTION[name].positional)
        for line in (COLLECTION[name].__doc__ or "").splitlines()
        if line.strip().startswith("./bake ")
        for word in takewhile(lambda word: not word.startswith("--"), shlex.split(line.rstrip("\\"))[2:])
    ]

    assert len(shown) > 30
    assert [word for word in shown if not fnmatch.filter(known, word)] == []


def test_without_words_the_tasks_are_listed() -> None:
    ended = bake()

    assert ended.returncode == 0
    assert "Build images, all in one graph" in ended.stdout


def test_a_users_own_project_is_found_from_below_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["mine"]\n')
    (tmp_path / "mine" / "images").mkdir(parents=True)
    recipe = (HOME / "recipes" / "images" / "mpi-cpu.yaml").read_text()
    (tmp_path / "mine" / "images" / "churn.yaml").write_text(recipe)
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)

    ended = bake("render", "churn", cwd=below)

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "images" / "churn" / "Dockerfile").is_file()


def test_a_users_project_is_up_to_date_once_its_own_image_is_rendered(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["mine"]\n')
    (tmp_path / "mine" / "images").mkdir(parents=True)
    recipe = (HOME / "recipes" / "images" / "mpi-cpu.yaml").read_text()
    (tmp_path / "mine" / "images" / "churn.yaml").write_text(recipe)
    before = bake("render", "--check", cwd=tmp_path)
    assert bake("render", "churn", cwd=tmp_path).stdout == "3 files of 1 image\n"

    ended = bake("render", "--check", cwd=tmp_path)

    assert before.returncode == 4
    assert (ended.returncode, ended.stdout) == (0, "3 files of 1 image are up to date\n")


def test_a_project_that_keeps_no_image_is_told_how_it_would(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")

    ended = bake("render", cwd=tmp_path)

    assert ended.stdout == "0 files of 0 images\n"
    assert ended.stderr == "no images are kept here: `./bake render IMAGE` keeps one of Bakehouse's\n"


def test_a_stale_rendering_is_told_with_a_diff(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    assert bake("render", "mpi-cpu", cwd=tmp_path).returncode == 0
    dockerfile = tmp_path / "images" / "mpi-cpu" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace("AS toolchain", "AS tools"))

    ended = bake("render", "--check", "mpi-cpu", cwd=tmp_path)

    assert ended.returncode == 4
    assert "error: `images/mpi-cpu/Dockerfile` is out of date" in ended.stderr
    assert "    | +FROM base AS toolchain" in ended.stderr
    assert "hint: run `./bake render` and commit the result" in ended.stderr


def test_the_committed_images_are_those_of_the_recipes() -> None:
    ended = bake("render", "--check")

    assert ended.returncode == 0, ended.stderr


def test_the_committed_dockerfiles_pass_hadolint() -> None:
    command = [str(Path(sys.executable).with_name("hadolint")), *map(str, HOME.glob("images/*/Dockerfile"))]

    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


@pytest.fixture
def in_two_regions(tmp_path: Path) -> Path:
    """A project with a release and a candidate, each in two regions."""
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    for is_candidate in (False, True):
        record = release(tmp_path / "other", registry=ECR, candidate=is_candidate)
        there = record.image_uri.replace(ECR, US)
        regions = (
            ReleasedRegion("eu-west-1", record.image_uri, "t"),
            ReleasedRegion("us-east-1", there, "t"),
        )
        path = tmp_path / "images" / "mpi-cpu" / "releases.json"
        append(path, replace(record, regions=regions), tmp_path / "locks")
    return tmp_path


def test_an_estimator_names_the_address_in_the_region(in_two_regions: Path) -> None:
    for region, host in (("eu-west-1", ECR), ("us-east-1", US)):
        ended = bake("estimator", "mpi-cpu", "--region", region, cwd=in_two_regions)
        assert f'image_uri="{host}/bakehouse/mpi-cpu@sha256:' in ended.stdout, ended.stderr


def test_an_estimator_in_a_region_without_the_image(in_two_regions: Path) -> None:
    ended = bake("estimator", "mpi-cpu", "--region", "ap-south-1", cwd=in_two_regions)
    told = "  because `mpi-cpu` of 2026-11-20 is in eu-west-1 and us-east-1\n"
    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr == f"error: no release of `mpi-cpu` fits\n{told}"


def test_a_candidate_is_printed_as_it_was_asked_for(in_two_regions: Path) -> None:
    there = bake("uri", "mpi-cpu", "--candidate", "--region", "us-east-1", cwd=in_two_regions)
    assert there.stdout.startswith(f"{US}/bakehouse/mpi-cpu@sha256:"), there.stderr
    nowhere = bake("uri", "mpi-cpu", "--candidate", "--version", "3", cwd=in_two_regions)
    assert nowhere.returncode == 64
    assert nowhere.stderr.startswith("error: no candidate of `mpi-cpu` fits\n")


def test_releases_of_nothing_are_told(in_two_regions: Path) -> None:
    ended = bake("releases", "mpi-cup", "--verify", cwd=in_two_regions)
    message = "no release and no candidate of `mpi-cup` was published"
    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr == f"error: {message}\n\nhint: did you mean `mpi-cpu`?\n"
