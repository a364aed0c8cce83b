"""The command line: arguments as users type them, as tasks get them, and messages about mistakes."""

import errno
import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace

import pytest

from bakehouse import __version__
from bakehouse.catalog import project
from bakehouse.catalog.project import HOME
from bakehouse.cli import command_line, command_name, help_text, main
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cli.tasks.collection import GROUPS
from bakehouse.cli.tasks.declare import BakeTask
from bakehouse.errors import Diagnostic
from bakehouse.ledger.releases import ReleasedRegion, append
from bakehouse.plan.workspace import open_workspace
from bakehouse.util.format import fit_lines
from tests.support.fake_registry import FakeRegistry
from tests.support.ledgers import ECR, US, release
from tests.support.programs import BAKE, bake
from tests.support.proxy import Proxy
from tests.support.signing_keys import make_key

TASKS = [task for tasks in GROUPS.values() for task in tasks]
BY_NAME = {task.name: task for task in TASKS}


def failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command line in this process; return its exit code and standard error."""
    code = main.run(arguments)
    return code, capsys.readouterr().err


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HOME)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GITHUB_ACTIONS", "")


@pytest.mark.parametrize(
    ("typed", "expanded"),
    [
        ("build", "build --images="),
        ("build pytorch-cpu", "build --images=pytorch-cpu"),
        ("build mpi-cpu pytorch-*", "build --images=mpi-cpu,pytorch-*"),
        ("smoke --gpus 2 pytorch-cpu", "smoke --gpus 2 --images=pytorch-cpu"),
        ("smoke pytorch-cpu --check=mpi_2x2", "smoke --check=mpi_2x2 --images=pytorch-cpu"),
        ("build --images=a", "build --images=a"),
        ("explain pytorch-cu130 nccl", "explain --image=pytorch-cu130 --component=nccl"),
        ("explain --image pytorch-cu130 nccl", "explain --image pytorch-cu130 --component=nccl"),
        ("init demo", "init --name=demo"),
        ("run a --entry-point build", "run --entry-point build --image=a"),
        ("resolve --assume a=1 --assume b=2", "resolve --assume a=1 --assume b=2 --images="),
        ("doctor", "doctor"),
        ("shell a", "shell --image=a"),
        ("shell a -- ls -l", "shell --image=a --program=ls --program=-l"),
        ("shell a -- b -- c", "shell --image=a --program=b --program=-- --program=c"),
    ],
)
def test_positional_values_get_names(typed: str, expanded: str) -> None:
    assert command_line.expand(typed.split()) == expanded.split()


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("build", {"images": ""}),
        ("build a b", {"images": "a,b"}),
        ("list --json a", {"images": "a", "json": True}),
        ("smoke --gpus=2 a", {"images": "a", "gpus": "2"}),
        ("diff a --from v1", {"image": "a", "from_": "v1"}),
        ("resolve --assume a=1 --assume=b=2", {"images": "", "assume": ["a=1", "b=2"]}),
        ("shell a -- b=1 --help --gpus s", {"image": "a", "program": ["b=1", "--help", "--gpus", "s"]}),
    ],
)
def test_tasks_get_values_by_name(typed: str, values: dict[str, object]) -> None:
    task, given = command_line.parse(typed.split())

    assert (task.name, given) == (typed.split()[0], values)


def test_invoke_runs_the_same_tasks() -> None:
    invoke = [sys.executable, "-m", "invoke"]

    for words, code in (("list --images=pytorch-cpu", 0), ("list --images=pytorch-cpx", 64)):
        here = bake(*words.replace("--images=", "").split())
        there = subprocess.run([*invoke, *words.split()], cwd=HOME, capture_output=True, text=True)
        assert (there.returncode, there.stdout) == (here.returncode, here.stdout)
        assert there.returncode == code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["list", "--json=1"],
            "`--json` takes no value\n\n"
            "hint: usage: `bake list [IMAGE...] [OPTIONS]`; `bake help list` lists the options",
        ),
        (["biuld"], "unknown command `biuld`\n\nhint: did you mean `build`?"),
        (["BUILD"], "unknown command `BUILD`\n\nhint: did you mean `build`?"),
        (["biuld", "--help"], "unknown command `biuld`\n\nhint: did you mean `build`?"),
        (["help", "biuld"], "unknown command `biuld`\n\nhint: did you mean `build`?"),
        (
            ["frobnicate"],
            "unknown command `frobnicate`\n\nhint: run `bake help --all` for a list of commands",
        ),
        (
            ["--dry", "build"],
            "unknown option `--dry`\n\nhint: write options after the command: `bake COMMAND --option`",
        ),
        (["render", "--chekc"], "`render` has no option `--chekc`\n\nhint: did you mean `--check`?"),
        (["render", "--CHECK"], "`render` has no option `--CHECK`\n\nhint: did you mean `--check`?"),
        (
            ["doctor", "--dry"],
            "`doctor` has no option `--dry`\n\n"
            "hint: use one of `--builder`, `--json`, `--strict`, `--verbose`",
        ),
        (
            ["estimator", "pytorch-cpu", "--role"],
            "`--role` needs a value\n\n"
            "hint: usage: `bake estimator [IMAGE] [OPTIONS]`; `bake help estimator` lists the options",
        ),
        (
            ["build", "a", "--to="],
            "`--to` needs a value\n\n"
            "hint: usage: `bake build [IMAGE...] [OPTIONS]`; `bake help build` lists the options",
        ),
        (["build", "a", "--to", "b", "--to=c"], "`--to` is given twice\n\nhint: it takes one value"),
        (
            ["build", ""],
            "`build` got an empty name\n\nhint: check whether a variable in the command is empty",
        ),
        (
            ["push", "mpi-cpu", ","],
            "`push` got an empty name\n\nhint: check whether a variable in the command is empty",
        ),
        (["render", "pytroch-cpu"], "unknown image `pytroch-cpu`\n\nhint: did you mean `pytorch-cpu`?"),
        (["plan", "pytroch-*"], "no image matches `pytroch-*`\n\nhint: did you mean `pytorch-*`?"),
        (
            ["plan", "PyTorch-*-cpu"],
            "no image matches `PyTorch-*-cpu`\n\nhint: did you mean `pytorch-*-cpu`?",
        ),
        (["plan", "MPI-CPU"], "unknown image `MPI-CPU`\n\nhint: did you mean `mpi-cpu`?"),
        (
            ["explain"],
            "`explain` needs IMAGE\n\n"
            "hint: usage: `bake explain IMAGE [COMPONENT] [OPTIONS]`; `bake help explain` lists the options",
        ),
        (
            ["explain", "pytorch-cu130", "ncl"],
            "image `pytorch-cu130` has no component or package `ncl`\n\nhint: did you mean `nccl`?",
        ),
        (
            ["explain", "mpi-cpu", "pytorch"],
            "image `mpi-cpu` has no component or package `pytorch`\n\n"
            "hint: run `bake explain mpi-cpu` to list its components",
        ),
        (
            ["recommend-instances", "ml.p4d.24xlarge", "--vcpu-per-gpu", "many"],
            "`many` is not a number\n\n"
            "hint: `bake help recommend-instances` lists the options that take numbers",
        ),
        (
            ["shell", "a", "ls"],
            "`shell` takes no `ls`\n\nhint: usage: `bake shell IMAGE [-- COMMAND...]`; "
            "`bake help shell` lists the options",
        ),
        (
            ["shell", "--", "ls"],
            "`shell` needs IMAGE\n\nhint: usage: `bake shell IMAGE [-- COMMAND...]`; "
            "`bake help shell` lists the options",
        ),
        (
            ["build", "a", "--", "b"],
            "`build` has no option `--`\n\nhint: usage: `bake build [IMAGE...] [OPTIONS]`; "
            "`bake help build` lists the options",
        ),
        (
            ["shell", "mpi-cpu"],
            "`shell` needs a terminal, or a command\n\n"
            "hint: write the command after `--`: `bake shell mpi-cpu -- ls -l /opt/ml`",
        ),
        (["build", "mpi-cup", "--offline"], "unknown image `mpi-cup`\n\nhint: did you mean `mpi-cpu`?"),
        (
            ["doctor", "now"],
            "`doctor` takes no `now`\n\nhint: usage: `bake doctor [OPTIONS]`; "
            "`bake help doctor` lists the options",
        ),
    ],
)
def test_a_mistyped_command_line_is_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failure(arguments, capsys) == (64, f"error: {message}\n")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["base", "debian-12"], "did you mean `bake build debian-12`?"),
        (["digest", "mpi-cpu"], "did you mean `bake uri IMAGE --built`?"),
        (["help", "digest"], "did you mean `bake uri IMAGE --built`?"),
    ],
)
def test_a_command_of_an_earlier_version_names_the_one_that_replaces_it(
    command: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    word = command[command[0] == "help"]

    assert failure(command, capsys) == (64, f"error: unknown command `{word}`\n\nhint: {hint}\n")


@pytest.mark.parametrize(
    ("command", "option", "hint"),
    [
        ("build", "--build-cache", "set `build_cache` in [tool.bakehouse]"),
        ("push", "--deadline", "limit the time of the whole command, such as with `timeout 1800 bake push`"),
        ("security", "--message", "redirect the text: `bake security --fix > pull-request.md`"),
        ("recommend-instances", "--price", "add the price to [tool.bakehouse.prices]"),
        ("promote", "--scan", "did you mean `--fail-on HIGH`?"),
        ("run", "--max-run", "set `max_run` in a job file, for `--job`"),
        ("plan", "--unreleased", "did you mean `--missing release`?"),
        ("release", "--builder", "set `builders` in [tool.bakehouse]"),
    ],
)
def test_an_option_of_an_earlier_version_names_what_replaces_it(
    command: str, option: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = f"error: `{command}` has no option `{option}`\n\nhint: {hint}\n"

    assert failure([command, f"{option}=x"], capsys) == (64, message)


def test_the_number_of_commands_and_options_is_held() -> None:
    """Name in the commit what a new command or option replaces, or who would search for it.

    `init` has three of `docker build`, without which it cannot read many Dockerfiles: `--build-arg`,
    `--context` and `--target`. `list --all` shows the archive.
    That of `build`, `smoke` and `release` answers their question in scripts.
    """
    options = sum(len(command_line.options(task)) for task in TASKS)

    assert (len(TASKS), options) == (36, 165)


@pytest.mark.parametrize("arguments", [[], ["help"], ["--help"], ["-h"]])
def test_the_commands_of_every_day_are_listed_in_their_order(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 0

    text = capsys.readouterr().out
    assert text == fit_lines(
        f"""\
Build, test and publish container images for training jobs.

Usage: bake COMMAND [ARGUMENTS] [OPTIONS]

From a repository to a job:
  init       Make this repository a Bakehouse project: settings, a recipe, .gitignore
  lock       Record the files of a build: packages, unknown checksums and digests
  render     Write the Dockerfiles and bake files of images below images/
  build      Build images as one graph and compare installed with declared versions
  smoke      Smoke-test images as SageMaker starts them
  run        Run a training job in local containers set up like SageMaker hosts
  release    Build images, smoke-test those not tested yet, and push them
  uri        Print the image URI, by digest, of an image's newest release
  estimator  Validate a job's settings and print Python code that starts it
  explain    Explain why each version was chosen and what keeps newer versions out
  doctor     List what this machine lacks, and the features that need it
  demo       Take pytorch-cpu from its recipe to an image URI in a local registry

Options:
  --help     show this help, or that of the command
  --verbose  print everything that is otherwise left out or summarised
  --version  show the version

`bake help --all` lists all {len(TASKS)} commands; `bake help COMMAND` explains one.
"""
    )


@pytest.mark.parametrize("arguments", [["help", "--all"], ["--list"], ["-l"]])
def test_all_commands_are_listed_by_purpose(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "Usage: bake COMMAND [ARGUMENTS] [OPTIONS]"
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        "Start:",
        "Look up:",
        "Build:",
        "Test:",
        "Publish:",
        "Run on SageMaker:",
        "Maintain:",
        "In a checkout of Bakehouse:",
        "Options:",
    ]
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= {task.name for task in TASKS}
    assert max(map(len, lines)) <= 80


def test_help_fits_80_columns_and_its_commands_can_be_copied() -> None:
    for task in TASKS:
        text = help_text.command_help(task)
        fitted = fit_lines(text, 80)
        assert max(map(len, fitted.splitlines())) <= 80
        examples = [part.partition("Examples:\n")[2].partition("\n\n")[0] for part in (fitted, text)]
        assert len({re.sub(r" \\\n +", " ", part) for part in examples}) == 1
        assert " TEXT" not in text


def test_options_of_the_examples_come_first() -> None:
    options, more = (
        help_text.command_help(BY_NAME["build"]).partition("\nOptions:\n")[2].split("\nMore options:\n")
    )
    assert "--builder NAME,…" in options
    assert "--json" in more


def test_an_option_of_other_commands_is_said_to_be_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["lint", "--json"]) == 64
    holders = capsys.readouterr().err.splitlines()[-1]
    assert holders.startswith("hint: these commands have `--json`: build, ")
    for name in holders.partition("`: ")[2].split(", "):
        assert "--json" in map(command_line.option_name, command_line.options(BY_NAME[name]))


@pytest.mark.parametrize("arguments", [["help", "outdated"], ["outdated", "--help"], ["--help", "outdated"]])
def test_the_help_of_a_command_has_usage_options_and_examples(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 0

    expected = """\
Usage: bake outdated [IMAGE...] [OPTIONS]

List components with newer releases and what holds each back.

Examples:
  bake outdated
  bake outdated pytorch-cpu

Arguments:
  IMAGE  names, families or globs of images; default: the project's own; `'*'`
         means all

Options:
  --json  print the report as JSON
"""
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("arguments", [["help", "help"], ["help", "--help"], ["--help", "help"]])
def test_help_explains_itself(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 0

    assert capsys.readouterr().out.startswith(
        "Usage: bake help [COMMAND] [OPTIONS]\n\nShow the most common commands"
    )


def test_every_option_has_a_help_text() -> None:
    for task in TASKS:
        for argument in command_line.options(task):
            assert help_text.help_of(argument, task), f"{task.name} {argument.name}"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"bake {__version__}\n"


def test_a_process_ends_as_its_command_does() -> None:
    result = subprocess.run([*BAKE, "biuld"], capture_output=True, text=True)

    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr == "error: unknown command `biuld`\n\nhint: did you mean `build`?\n"


def test_errors_of_the_machine_are_reported_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("BAKEHOUSE_STATE", str(tmp_path / "state"))

    result = bake("lock", "mpi-cpu")

    assert result.returncode == 1
    assert result.stderr == (
        f"error: cannot use `{tmp_path}/state/locks`: not a directory\n\n"
        f"hint: BAKEHOUSE_STATE is `{tmp_path}/state`\n"
    )


def test_an_interrupt_ends_with_130_and_one_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "_run", interrupt)

    assert main.run(["list"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def examples(task: BakeTask) -> list[list[str]]:
    """Return the words of each example in a task's help."""
    text = (task.function.__doc__ or "").replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in text.splitlines() if line.strip().startswith("bake ")]


def test_every_task_has_examples_that_are_valid_command_lines() -> None:
    for task in TASKS:
        lines = examples(task)
        assert lines, task.name
        for example in lines:
            name = task.name
            typed = example[: example.index(">")] if ">" in example else example
            assert typed[0] == name
            assert name == "help" or command_line.expand(typed)[0] == name


def test_examples_name_images_of_the_catalogue() -> None:
    workspace = open_workspace()
    images = {name for recipe in workspace.recipes.values() for name in (recipe.name, recipe.family)}
    # `explain` knows Python packages, too, and `build` bases.
    names = images | {*workspace.catalog.provided_names, "numpy", "debian-12"}
    words = [
        word
        for task in TASKS
        if {"images", "image"} & {*task.arguments}
        for example in examples(task)
        for word in takewhile(lambda word: not word.startswith("--"), example[1:])
        if not word.startswith("sha256:")
    ]

    assert len(words) > 30
    assert [word for word in words if not fnmatch.filter(names, word)] == []


def test_a_users_own_project_is_found_from_below_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["mine"]\n')
    (tmp_path / "mine" / "images").mkdir(parents=True)
    recipe = (HOME / "recipes" / "images" / "mpi-cpu.yaml").read_text()
    (tmp_path / "mine" / "images" / "churn.yaml").write_text(recipe)
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)

    result = bake("render", "churn", cwd=below)

    assert result.returncode == 0, result.stderr
    assert (tmp_path / "images" / "churn" / "Dockerfile").is_file()


def test_a_users_project_is_up_to_date_once_its_own_image_is_rendered(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["mine"]\n')
    (tmp_path / "mine" / "images").mkdir(parents=True)
    recipe = (HOME / "recipes" / "images" / "mpi-cpu.yaml").read_text()
    recipe = recipe.replace("platforms: [linux/amd64, linux/arm64]\n", "")
    recipe += "files: [{from: note.txt, to: /opt/note.txt}]\n"
    (tmp_path / "mine" / "images" / "note.txt").write_text("A file of the recipe is copied.\n")
    (tmp_path / "mine" / "images" / "churn.yaml").write_text(recipe)
    before = bake("render", "--check", cwd=tmp_path)
    rendered = bake("render", "churn", cwd=tmp_path)
    files = rendered.stdout.split()[0]
    assert (rendered.stdout, rendered.stderr) == (
        f"{files} files of 1 image\n",
        f"rendered {files} files of images/churn\ncopied images/churn/files/opt/note.txt\n",
    )

    result = bake("render", "--check", cwd=tmp_path)

    assert before.returncode == 4
    assert (result.returncode, result.stdout) == (0, f"{files} files of 1 image are up to date\n")


def test_a_project_without_rendered_images_gets_a_hint(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")

    result = bake("render", cwd=tmp_path)

    assert result.stdout == "0 files of 0 images\n"
    assert (
        result.stderr
        == "no images are rendered here: `bake render IMAGE` renders one of Bakehouse's images\n"
    )


def test_an_outdated_rendering_is_reported_with_a_diff(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    assert bake("render", "mpi-cpu", cwd=tmp_path).returncode == 0
    dockerfile = tmp_path / "images" / "mpi-cpu" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace("AS toolchain", "AS tools"))

    result = bake("render", "--check", "mpi-cpu", cwd=tmp_path)

    assert result.returncode == 4
    assert "error: `images/mpi-cpu/Dockerfile` is out of date" in result.stderr
    assert "    | +FROM base AS toolchain" in result.stderr
    assert "hint: run `bake render` and commit the result" in result.stderr


def test_the_committed_images_are_those_of_the_recipes() -> None:
    result = bake("render", "--check")

    assert result.returncode == 0, result.stderr


def test_the_committed_dockerfiles_pass_hadolint(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("hadolint"))]
    for path in HOME.glob("images/*/Dockerfile"):
        copy = tmp_path / f"{path.parent.name}.Dockerfile"
        # hadolint 2.15 needs a blank line after a here-document
        copy.write_text(path.read_text().replace("\nEND\n", "\nEND\n\n"))
        command.append(str(copy))

    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


@pytest.fixture
def in_two_regions(tmp_path: Path) -> Path:
    """A project with a release and a candidate, each in two regions."""
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    for is_candidate in (False, True):
        record = release(tmp_path / "other", registry=ECR, candidate=is_candidate)
        uri = record.image_uri.replace(ECR, US)
        regions = (ReleasedRegion("eu-west-1", record.image_uri, "t"), ReleasedRegion("us-east-1", uri, "t"))
        path = tmp_path / "images" / "mpi-cpu" / "releases.json"
        append(path, replace(record, regions=regions), tmp_path / "locks")
    return tmp_path


def test_an_estimator_names_the_address_in_the_region(in_two_regions: Path) -> None:
    for region, host in (("eu-west-1", ECR), ("us-east-1", US)):
        result = bake("estimator", "mpi-cpu", "--region", region, cwd=in_two_regions)
        assert f'image_uri="{host}/bakehouse/mpi-cpu@sha256:' in result.stdout, result.stderr


@pytest.mark.parametrize("settings", ['registry = "ecr"', f'registry = "{ECR}/team"', ""])
def test_a_uri_is_that_in_the_registry_of_the_project(in_two_regions: Path, settings: str) -> None:
    (in_two_regions / "pyproject.toml").write_text(f"[tool.bakehouse]\n{settings}\n")
    result = bake("uri", "mpi-cpu", cwd=in_two_regions)

    assert result.stdout.startswith(f"{ECR}/bakehouse/mpi-cpu@sha256:"), result.stderr


@pytest.mark.parametrize("command", [["uri"], ["uri", "--candidate"], ["estimator"]])
def test_look_ups_return_no_release_of_another_registry(in_two_regions: Path, command: list[str]) -> None:
    settings = '[tool.bakehouse]\nregistry = "other.example/team"\n'
    (in_two_regions / "pyproject.toml").write_text(settings)
    result = bake(*command, "mpi-cpu", cwd=in_two_regions)

    assert (result.returncode, result.stdout) == (64, "")
    assert ECR in result.stderr
    assert bake("uri", "mpi-cpu", "--registry", ECR, cwd=in_two_regions).stdout.startswith(ECR)


def test_an_estimator_needs_an_image_that_meets_the_policy(tmp_path: Path) -> None:
    make_key(tmp_path, "signing")
    settings = '[tool.bakehouse.policy]\nkeys = ["signing.pub"]\nrequire = ["signature"]\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    with Proxy(1).running() as proxy:
        proxy.answers.append(FakeRegistry().answer)
        record = release(tmp_path / "images", registry=proxy.host)
        result = bake("estimator", "mpi-cpu", cwd=tmp_path)

    assert (result.returncode, result.stdout) == (16, ""), result.stderr
    assert result.stderr == (
        "error: `mpi-cpu` does not meet [tool.bakehouse.policy]\n"
        "  because it has no signature that a trusted key signed\n"
        f"  image URI  {record.image_uri}\n"
        "  trusted    signing.pub\n"
        "\n"
        "hint: run `bake push mpi-cpu` with a trusted `signing_key`; the image is not pushed twice\n"
    )


def test_an_estimator_in_a_region_without_the_image(in_two_regions: Path) -> None:
    result = bake("estimator", "mpi-cpu", "--region", "ap-south-1", cwd=in_two_regions)
    reason = "  because `mpi-cpu` of 2026-11-20 is in eu-west-1 and us-east-1\n"
    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr == f"error: no release of `mpi-cpu` fits\n{reason}"


def test_a_job_is_validated_without_a_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["validate", "mpi-cpu", "--instance-type", "ml.g5.xlarge", "--distribution", "mpi"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "mpi-cpu: the job is valid, 1 warning\n"
    assert printed.err.startswith("warning: the instances have GPUs, but `mpi-cpu` is for CPUs\n")

    mistaken = [
        "validate",
        "mpi-cpu",
        "--instance-type",
        "ml.c5.xlarge",
        "--distribution",
        "torch_distributed",
    ]
    assert main.run(mistaken) == main.run([*mistaken, "--json"]) == 64
    capsys.readouterr()
    unknown = [
        "validate",
        "mpi-cpu",
        "--instance-type",
        "ml.c5.xlarge",
        "--environment",
        "LD_LIBRARY_PATH=/lib",
    ]
    assert main.run(unknown) == main.run([*unknown, "--json"]) == 17
    assert capsys.readouterr().out.startswith(
        "mpi-cpu: it is not known whether the job is valid, 1 warning\n"
    )


def test_a_candidate_is_printed_as_it_was_asked_for(in_two_regions: Path) -> None:
    result = bake("uri", "mpi-cpu", "--candidate", "--region", "us-east-1", cwd=in_two_regions)
    assert result.stdout.startswith(f"{US}/bakehouse/mpi-cpu@sha256:"), result.stderr
    nowhere = bake("uri", "mpi-cpu", "--candidate", "--version", "3", cwd=in_two_regions)
    assert nowhere.returncode == 64
    assert nowhere.stderr.startswith("error: no candidate of `mpi-cpu` fits\n")


@pytest.mark.parametrize(
    ("tested_on_gpus", "warning"),
    [
        (False, "warning: mpi-cpu is for GPUs, but this release was tested without GPUs\n"),
        (True, ""),
        (None, ""),
    ],
)
def test_an_image_uri_of_a_release_without_tests_on_gpus_has_a_warning(
    tested_on_gpus: bool | None,
    warning: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = release(tmp_path / "images", gpu=True, tested_on_gpus=tested_on_gpus)
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    monkeypatch.chdir(tmp_path)

    assert main.run(["uri", "mpi-cpu"]) == 0
    assert capsys.readouterr() == (f"{record.image_uri}\n", warning)


@pytest.mark.parametrize("task", ["uri", "estimator"])
def test_an_image_without_a_release_is_not_unknown(task: str, in_two_regions: Path) -> None:
    result = bake(task, "pytorch-cpu", cwd=in_two_regions)
    assert (result.returncode, result.stdout) == (64, "")
    first, *_, hint = result.stderr.splitlines()
    assert first == "error: `pytorch-cpu` has not been released yet"
    assert hint == "hint: run `bake release pytorch-cpu`"


def test_releases_of_unknown_images_are_reported(in_two_regions: Path) -> None:
    result = bake("releases", "mpi-cup", "--verify", cwd=in_two_regions)
    message = "no release and no candidate of `mpi-cup` was published"
    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr == f"error: {message}\n\nhint: did you mean `mpi-cpu`?\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "mpi-cpu", "--instance-count", "0"], "`--instance-count` must be at least 1, not 0"),
        (
            ["run", "mpi-cpu", "--gpus=-1"],
            "`--gpus` must be a number up to 999 or `device=` with GPUs, not `-1`\n\n"
            "hint: `--gpus 2` gives the first two GPUs, `--gpus device=0,2` the first and the third",
        ),
        (
            ["smoke", "mpi-cpu", "--gpus", "device=0,0"],
            "`--gpus device=0,0` does not name GPUs\n\n"
            "hint: separate different numbers or UUIDs with commas: `--gpus device=0,2`",
        ),
        (["smoke", "mpi-cpu", "--timeout", "-3"], "`--timeout` must be at least 1, not -3"),
        (
            ["smoke", "mpi-cpu", "--on", "lsf"],
            "unknown runner `lsf`\n\nhint: use `sagemaker`, `ssh://HOST`, `slurm`, `kubernetes`, `bare`",
        ),
        (
            ["smoke", "mpi-cpu", "--on", "slurm", "--results", "no-such-file"],
            "the file `no-such-file` does not exist",
        ),
        (["smoke", "mpi-cpu", "--instance-type", "ml.c5.xlarge"], "`--instance-type` needs `--on sagemaker`"),
        (
            ["smoke", "mpi-cpu", "--on", "slurm", "--job", '{"max_run": 60, "spot": true}'],
            "a job of `--on slurm` has only the setting `max_run`\n\n"
            "hint: remove the other settings; the runner selects the hosts",
        ),
        (
            ["plan", "--missing", "test"],
            "invalid value `--missing test`\n\nhint: use `release` or `candidate`",
        ),
        (["smoke", "mpi-cpu", "--results", "log"], "`--results` needs `--on` with the runner of the job"),
        (
            ["smoke", "mpi-cpu", "--on", "sagemaker", "--results", "log"],
            "`--results` cannot be combined with `--on sagemaker`",
        ),
        (
            ["run", "mpi-cpu", "--hosts", "2"],
            "`run` has no option `--hosts`\n\nhint: did you mean `--instance-count`?",
        ),
        (
            ["validate", "--file", "a.json"],
            "`validate` has no option `--file`\n\nhint: did you mean `--job`?",
        ),
        (
            ["launch", "mpi-cpu", "--follow", "a"],
            "`--follow` does not start a job, so it takes no job settings\n\n"
            "hint: use it with `--region` and `--stop-on-interrupt` only",
        ),
        (["smoke", "mpi-cpu", "--job", "nightly"], "`--job` needs `--on` with the runner of the job"),
        (["estimator", "mpi-cpu", "--instance-count", "0"], "`--instance-count` must be at least 1, not 0"),
        (
            ["uri", "mpi-cpu", "--region", "eu-wst-1"],
            "unknown AWS region `eu-wst-1`\n\nhint: did you mean `eu-west-1`?",
        ),
    ],
)
def test_values_outside_their_range_are_refused_at_once(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failure(arguments, capsys) == (64, f"error: {message}\n")


def test_the_package_runs_as_the_command() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "BAKEHOUSE_COMMAND"}
    command = [sys.executable, "-m", "bakehouse", "list", "mpi-cpu"]

    result = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout) == (0, bake("list", "mpi-cpu").stdout), result.stderr


@pytest.mark.parametrize(
    ("typed", "on_path", "printed"),
    [
        ("./bake", False, "./bake"),
        ("../there/bake", False, "../there/bake"),
        ("bin/bake", True, "bake"),
        ("-c", False, "bake"),
        ("/venv/bakehouse/__main__.py", True, "bake"),
        ("/venv/bakehouse/__main__.py", False, "python -P -m bakehouse"),
    ],
)
def test_hints_and_help_name_the_command_as_it_was_typed(
    typed: str, on_path: bool, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "bake"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(program.parent) if on_path else "/nowhere")
    monkeypatch.setenv("BAKEHOUSE_COMMAND", typed)
    command_name.typed_command.cache_clear()
    try:
        assert command_name.as_typed("hint: run `bake lock x`, not `bake.py`") == (
            f"hint: run `{printed} lock x`, not `bake.py`"
        )
        assert command_name.as_typed("Usage: bake TASK\n\n  bake lock\n") == (
            f"Usage: {printed} TASK\n\n  {printed} lock\n"
        )
    finally:
        command_name.typed_command.cache_clear()


def test_a_full_disk_is_reported_with_its_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096, total=2_000_000))
    monkeypatch.setenv("BAKEHOUSE_STATE", str(tmp_path))
    error = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "missing/runs.json"))

    assert failure_text(main._machine_error(error)) == (
        f"error: cannot write `{tmp_path}/missing/runs.json`: no space left on device\n"
        f"  free     4 kB of 2.0 MB in {tmp_path}\n"
        f"  setting  BAKEHOUSE_STATE is `{tmp_path}`\n\n"
        "hint: free disk space, such as with `bake clean`, and run the same command again\n"
    )


def test_a_full_disk_without_a_path_is_the_one_with_the_least_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    monkeypatch.chdir(tmp_path)
    state = project.find(tmp_path).state
    state.mkdir(parents=True)
    free = {state: 0}
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(path, 5_000), total=2_000_000)
    )
    error = OSError(errno.ENOSPC, "No space left on device")

    assert failure_text(main._machine_error(error)) == (
        f"error: cannot write `{state}`: no space left on device\n"
        f"  free  0 bytes of 2.0 MB in {state}\n\n"
        "hint: free disk space, such as with `bake clean`, and run the same command again\n"
    )


def test_a_full_directory_for_temporary_files_is_not_the_disk_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096, total=2_000_000))
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    for path in (tmp_path, tmp_path / "bakehouse-1-2-3.x", tmp_path / "bakehouse-1-2-3.x/lists/Packages"):
        assert failure_text(main._machine_error(OSError(errno.ENOSPC, "Full", str(path)))) == (
            f"error: cannot write `{path}`: full\n"
            f"  free  4 kB of 2.0 MB in {tmp_path}\n\n"
            "hint: free space there, or set TMPDIR to another directory\n"
        )
    assert main._machine_error(OSError(errno.ENOSPC, "Full", str(tmp_path / "project/build"))).hint == (
        "free disk space, such as with `bake clean`, and run the same command again"
    )


def test_a_checkout_of_another_user_is_named_as_the_reason() -> None:
    error = PermissionError(errno.EACCES, "Permission denied", str(HOME / "build"))

    assert main._machine_error(error) == Diagnostic(
        f"cannot use `{HOME / 'build'}`: you may not write in this checkout of Bakehouse",
        hint="run it in a project of your own, or set BAKEHOUSE_STATE to a directory of your own",
    )


def test_a_run_of_the_tests_has_one_tier(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(["test", "--pure", "--release"], capsys) == (
        64,
        "error: `--pure` and `--release` cannot be combined\n\nhint: run `test` once for each\n",
    )


def test_promote_takes_any_number_of_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A checkout may have published candidates.
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    monkeypatch.chdir(tmp_path)
    message = "error: no candidate of `mpi-cpu` was published\n\nhint: run `bake push --candidate mpi-cpu`\n"

    assert failure(["promote", "mpi-cpu"], capsys) == (64, message)
    assert failure(["promote", "mpi-cpu", "--report", "a", "--report", "b"], capsys) == (64, message)
