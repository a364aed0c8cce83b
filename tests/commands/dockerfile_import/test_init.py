"""`bake init` in the repository of a user, without and with a Dockerfile."""

import tomllib
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import load_recipes
from bakehouse.commands.dockerfile_import import init
from bakehouse.commands.dockerfile_import.base_settings import BaseSettings
from bakehouse.commands.dockerfile_import.recipe_text import account_table, import_dockerfile
from bakehouse.commands.dockerfile_import.translate import DockerfileBuild
from bakehouse.errors import Diagnostic, RecipeError, UsageError
from bakehouse.lock.base_description import component_text
from bakehouse.plan.model import RegistryBase
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.resolve.resolver import resolve
from tests.support import own_recipes

RECIPE = "training-images/images/churn.yaml"
FIXTURES = sorted((HOME / "tests/commands/dockerfile_import/fixtures").glob("*.Dockerfile"))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "churn"
    (root / "src").mkdir(parents=True)
    (root / "src/train.py").write_text("print(1)\n")
    monkeypatch.chdir(root)
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_new_project_plans_at_once(repository: Path) -> None:
    created = init.run(repository)

    assert created.text == (
        "wrote training-images/images/churn.yaml\n"
        "wrote pyproject.toml: [tool.bakehouse]\n"
        "wrote .gitignore: /build/ /signing.pem\n"
        "\n"
        "  found         recipe\n"
        "  src/train.py  `code`\n"
        "\n"
        "next:\n"
        "  bake lock churn     lock the requirements\n"
        "  bake resolve churn  select versions that fit\n"
        "  bake render churn   write the Dockerfile\n"
        "  bake release churn  build, test and push the image\n"
    )
    assert [image.name for image in select(open_workspace(repository), ["churn"]).plan.images] == ["churn"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("environment.yml", ""), "`environment.yml` is not a Dockerfile: it has no FROM"),
        (("", "debain"), "`debain` is not an image that Bakehouse can ask"),
        (("", "debain:12"), "`debain:12` is not an image that Bakehouse can ask"),
    ],
)
def test_what_is_no_dockerfile_and_no_image_is_an_error(
    arguments: tuple[str, str], message: str, repository: Path
) -> None:
    (repository / "environment.yml").write_text("dependencies: [python]\n")
    with pytest.raises(UsageError) as caught:
        init.run(repository, "", *arguments, lambda _: ("", ""))

    assert [diagnostic.message for diagnostic in caught.value.diagnostics] == [message]
    assert not (repository / "training-images").exists()


def test_a_second_run_changes_nothing(repository: Path) -> None:
    init.run(repository)
    before = contents(repository)

    created = init.run(repository)

    assert contents(repository) == before
    assert created.lines == [f"kept {RECIPE}", "kept pyproject.toml", "kept .gitignore"]
    init.run(repository, "second")
    assert {"churn", "second"} <= open_workspace(repository).recipes.keys()


def test_the_table_has_a_line_for_each_part_of_a_file(repository: Path) -> None:
    (repository / "requirements.txt").write_text("-r pins.list\n")
    (repository / "pins.list").write_text("tqdm\n")
    (repository / "src/train.py").write_text("import b\n")

    text = init.run(repository).text.partition("recipe\n")[2].partition("\n\n")[0]

    assert text == (
        "  requirements.txt  `requirements`\n"
        "  pins.list         requirements.txt includes it\n"
        "  src/train.py      `code`\n"
        "                    it imports b, which no requirements name"
    )


def test_the_commented_examples_are_valid(repository: Path) -> None:
    (repository / "tools").mkdir()
    (repository / "tools/a.sh").write_text("true\n")
    init.run(repository)
    recipe = repository / RECIPE
    lines = recipe.read_text().splitlines()
    examples = [
        line.removeprefix("# ")
        for line in lines
        if line.startswith(("# packages", "# code", "# smoke", "# env", "# files"))
    ]
    examples += [line[1:] for line in lines if line.startswith("#   - ")]
    examples += [line.removeprefix("# ") for line in lines if line.startswith("# run: ")]
    recipe.write_text(recipe.read_text() + "\n".join(examples) + "\n")

    content = open_workspace(repository).recipes["churn"].content

    assert content.entry_point == "train.py"
    assert content.system_packages.names("apt") == ("libgomp1",)
    assert [file.target for file in content.files] == ["/opt/tools/a.sh"]
    assert len(content.run) == 1


@pytest.mark.parametrize(
    "text",
    [
        '[project]\nname = "x"  # mine\n',
        '[project]\r\nname = "x"\r\n',
        '[project]\nname = "x"',
        "[tool.bakehouse]  # ours\nregion = 'eu-west-1'\n\n[tool.bakehouse.prices]\n'ml.p5.48xlarge' = 1\n",
        "[tool]\nother = 1\n",
    ],
)
def test_other_settings_are_kept(text: str) -> None:
    changed, directory = init.with_settings(text, Path("pyproject.toml"))

    assert directory == "training-images"
    before, after = tomllib.loads(text), tomllib.loads(changed)
    assert after["tool"]["bakehouse"].pop("recipes") == ["training-images"]
    before.setdefault("tool", {}).setdefault("bakehouse", {})
    assert after == before
    assert [line for line in text.splitlines() if line not in changed.splitlines()] == []
    assert ("\r\n" in text) == ("\r\n" in changed)
    assert init.with_settings(changed, Path("pyproject.toml")) == (changed, "training-images")


def test_the_recipe_directory_of_the_settings_is_used(repository: Path) -> None:
    (repository / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["ml"]\n')

    init.run(repository)

    assert (repository / "ml/images/churn.yaml").is_file()


def test_settings_that_cannot_be_extended() -> None:
    with pytest.raises(RecipeError) as caught:
        init.with_settings('tool.bakehouse = {region = "eu-west-1"}\n', Path("pyproject.toml"))
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.message == "cannot add `recipes` to [tool.bakehouse] in `pyproject.toml`"
    assert diagnostic.hint == 'add `recipes = ["training-images"]` to that table'


@pytest.mark.parametrize(
    ("before", "added"),
    [(f"*.pyc\nsigning.pem\n{line}", "") for line in ("build/", "/build/", "build", "/build")]
    + [("*.pyc", "\n/build/\n/signing.pem\n")],
)
def test_gitignore_has_each_path_once(repository: Path, before: str, added: str) -> None:
    (repository / ".gitignore").write_text(before)

    init.run(repository)

    assert (repository / ".gitignore").read_text() == before + added


def test_invalid_arguments(repository: Path) -> None:
    with pytest.raises(UsageError) as caught:
        init.run(repository, "Churn Model")
    hint = "use lowercase letters and digits, with single `-`, `.` or `_` between them: `churn-model`"
    assert caught.value.diagnostics == (Diagnostic("`Churn Model` is not an image name", hint=hint),)
    with pytest.raises(UsageError) as caught:
        init.run(repository, "", "nosuch")
    assert caught.value.diagnostics[0].message == "`nosuch` does not exist"
    with pytest.raises(UsageError) as caught:
        init.run(HOME / "tests")
    assert caught.value.diagnostics[0].message == "this is the repository of Bakehouse itself"
    assert list(repository.iterdir()) == [repository / "src"]


DOCKERFILE = """\
ARG TAG=3.11
FROM golang:1.22 AS tool
RUN go build ./...
FROM python:${TAG}-slim AS base
ENV MODE=fast PATH=/opt/x:$PATH
RUN apt-get update && apt-get install -y --no-install-recommends git \\
      libgomp1=12.2.0 && rm -rf /var/lib/apt/lists/*
RUN curl -fsSL https://x.example/i.sh | sh
FROM base
WORKDIR /app
COPY requirements.txt .
COPY --from=tool /out/tool /usr/local/bin/
RUN pip install -U pip && pip install --no-cache-dir -r requirements.txt
RUN pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
RUN mkdir -p /data && chmod 777 /data
RUN for i in 1 2; do echo $i; done
COPY src/ /app/src/
COPY tools /opt/tools
COPY . /everything
EXPOSE 8080
USER app
ENTRYPOINT ["python", "src/train.py"]
CMD ["--epochs", "3"]
"""


def test_a_dockerfile_becomes_a_recipe(repository: Path) -> None:
    (repository / "requirements.txt").write_text("pandas>=2\n")
    (repository / "tools").mkdir()
    (repository / "tools/a.sh").write_text("true\n")
    (repository / "Dockerfile").write_text(DOCKERFILE)

    created = init.run(repository, dockerfile="Dockerfile")

    assert (
        (repository / RECIPE).read_text().partition("\n\n")[0]
        == """\
summary: Replaces the Dockerfile from python:3.11-slim
base: {debian: "12"}
components:
  python: "3.11"
  pytorch: "2.13.0"
  sagemaker-pytorch-training: "*"
variants: {pytorch: "cpu-*"}
packages: [git, libgomp1]
requirements: ../../requirements.txt
code: {directory: ../../src, entry_point: train.py}
files:
  - {from: ../../tools, to: /opt/tools}
  - {from: ../.., to: /everything}
environment:
  MODE: "fast"
run:
  - before: "requirements"
    command: |
      export PATH="/opt/x:$PATH"
      curl -fsSL https://x.example/i.sh | sh
  - network: false
    command: |
      mkdir -p /app && cd /app
      mkdir -p /data && chmod 777 /data
  - network: false
    command: |
      mkdir -p /app && cd /app
      set +e
      for i in 1 2; do echo $i; done"""
    )
    assert created.needs_lock
    assert [(item.line, item.detail) for item in created.untranslated] == EXPECTED
    assert (
        "  Dockerfile:6  RUN apt-get install libgomp1=12.2.0: `bake lock` selects the version\n"
        in created.text
    )
    assert "22 instructions: 5 replaced, 6 in the recipe, 3 kept, 8 to check\n" in created.text
    assert "bake lock churn " in created.text


FOREIGN = "it builds files for `COPY --from=tool`; write a component, or add the files to the project"
EXPECTED = [
    (2, FOREIGN),
    (3, FOREIGN),
    (5, "a recipe cannot extend PATH; the directory is /opt/x"),
    (6, "`bake lock` selects the version"),
    (8, "step 1 of `run` may use the network: to pin it, compare the file with its sha256: `sha256sum -c`"),
    (12, "it copies from tool; write a component, or add the files to the project"),
    (21, "SageMaker starts training as root; only steps of `run` have this user"),
    (22, "the code moves from /app/src to /opt/ml/code"),
    (23, "pass --epochs as hyperparameters of the job"),
]


def test_a_dockerfile_without_requirements_plans_at_once(repository: Path) -> None:
    (repository / "Dockerfile").write_text(
        "FROM python:3.11\nRUN pip install torch --index-url https://download.pytorch.org/whl/cpu\n"
    )

    created = init.run(repository, dockerfile="Dockerfile")

    assert created.text.startswith(f"wrote {RECIPE}\n")
    assert "each instruction of Dockerfile is in the recipe, kept or replaced\n" in created.text
    assert select(open_workspace(repository), ["churn"]).plan.images


def test_packages_of_the_dockerfile_get_a_file_of_their_own(repository: Path) -> None:
    (repository / "requirements.txt").write_text("pandas\n")
    (repository / "Dockerfile").write_text(
        "FROM debian:12\nCOPY requirements.txt /tmp/\n"
        "RUN pip3 install -r /tmp/requirements.txt 'click>8' && python -m pip install tqdm\n"
    )

    init.run(repository, dockerfile="Dockerfile")

    assert (repository / "training-images/images/churn.requirements.txt").read_text() == (
        "-r ../../requirements.txt\nclick>8\ntqdm\n"
    )


AWS_BASE = (
    "763104351884.dkr.ecr.eu-west-1.amazonaws.com/"
    "pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-sagemaker"
)


def test_the_region_of_an_aws_base_is_kept(repository: Path) -> None:
    (repository / "Dockerfile").write_text(f"FROM {AWS_BASE}\n")

    created = init.run(repository, dockerfile="Dockerfile")

    assert 'region = "eu-west-1"\n' in (repository / "pyproject.toml").read_text()
    workspace = open_workspace(repository)
    [image] = select(workspace, ["churn"]).plan.images
    assert isinstance(image.base, RegistryBase)
    assert image.base.pinned.startswith(
        "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.5.1-"
    )
    assert "each instruction of Dockerfile is in the recipe, kept or replaced\n" in created.text

    (repository / "pyproject.toml").write_text('[tool.bakehouse]\nregion = "us-west-2"\n')
    [item] = init.run(repository, "second", dockerfile="Dockerfile").untranslated
    assert item.detail == "`region` in [tool.bakehouse] selects the registry of us-west-2"


def test_a_base_that_the_catalogue_lacks_is_described_once(repository: Path) -> None:
    reference = "registry.example/team/torch:2.5.1"
    provides = {"ubuntu": "22.04", "glibc": "2.35", "python": "3.11", "pytorch": "2.5.1"}
    asked: list[str] = []

    def describe(image: str) -> tuple[str, str]:
        asked.append(image)
        return component_text(image, provides), f"{image} contains pytorch 2.5.1"

    (repository / "Dockerfile").write_text(f"FROM {reference}\nRUN pip install torch==2.5.1\n")
    settings = BaseSettings("/ws")
    created = init.run(repository, "", "Dockerfile", reference, describe, ask=lambda _: settings)
    init.run(repository, "second", "", reference, describe)

    assert asked == [reference]
    assert created.lines[:3] == [
        f"{reference} sets WORKDIR /ws, USER root, 0 variables",
        "wrote training-images/components/own-torch/component.yaml",
        f"{reference} contains pytorch 2.5.1",
    ]
    assert created.untranslated == ()
    assert 'base: {own-torch: "2.5.1"}\n' in (repository / RECIPE).read_text()
    workspace = open_workspace(repository)
    assert 'base: {own-torch: "2.5.1"}\n' in (repository / "training-images/images/second.yaml").read_text()
    [image] = select(workspace, ["churn"]).plan.images
    assert isinstance(image.base, RegistryBase)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_the_recipes_of_all_fixtures_are_valid(path: Path, tmp_path: Path) -> None:
    catalog = own_recipes.catalog()
    recipe = tmp_path / "images/image.yaml"
    recipe.parent.mkdir()
    build = DockerfileBuild(path, path.parent)
    files, proposal, _ = import_dockerfile(build, path.name, recipe, catalog)
    text = "\n".join(line for line in files[recipe].split("\n") if not line.startswith("requirements:"))
    recipe.write_text(text)

    assert resolve(load_recipes([tmp_path], catalog)["image"], catalog).all_choices
    assert account_table(proposal.account.rows())[-1].count(",") == 3
