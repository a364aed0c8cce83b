"""`bake init` in the repository of a user, without and with a Dockerfile."""

import tomllib
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli import dockerfile_import, init
from bakehouse.cli.dockerfile_import import BaseAndComponents, Untranslated
from bakehouse.errors import Diagnostic, RecipeError, UsageError
from bakehouse.plan.model import RegistryBase
from bakehouse.plan.workspace import open_workspace, select

RECIPE = "training-images/images/churn.yaml"


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
        "wrote .gitignore: /build/\n"
        "\n"
        "next:\n"
        "  bake resolve churn  select versions that fit\n"
        "  bake render churn   write the Dockerfile\n"
        "  bake release churn  build, test and push the image\n"
    )
    assert [image.name for image in select(open_workspace(repository), ["churn"]).plan.images] == ["churn"]


def test_a_second_run_changes_nothing(repository: Path) -> None:
    init.run(repository)
    before = contents(repository)

    created = init.run(repository)

    assert contents(repository) == before
    assert created.lines == [f"kept {RECIPE}", "kept pyproject.toml", "kept .gitignore"]


def test_a_second_image(repository: Path) -> None:
    init.run(repository)
    init.run(repository, "second")

    assert {"churn", "second"} <= open_workspace(repository).recipes.keys()


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


@pytest.mark.parametrize("line", ["build/", "/build/", "build", "/build"])
def test_ignored_paths_are_not_repeated(repository: Path, line: str) -> None:
    (repository / ".gitignore").write_text(f"*.pyc\n{line}")

    init.run(repository)

    assert (repository / ".gitignore").read_text() == f"*.pyc\n{line}"


def test_gitignore_is_extended(repository: Path) -> None:
    (repository / ".gitignore").write_text("*.pyc")

    init.run(repository)

    assert (repository / ".gitignore").read_text() == "*.pyc\n/build/\n"


def test_invalid_arguments(repository: Path) -> None:
    with pytest.raises(UsageError) as caught:
        init.run(repository, "Churn Model")
    hint = "use lowercase letters and digits, with single `-`, `.` or `_` between them"
    assert caught.value.diagnostics == (Diagnostic("`Churn Model` is not an image name", hint=hint),)
    with pytest.raises(UsageError) as caught:
        init.run(repository, "", "nosuch")
    assert caught.value.diagnostics[0].message == "there is no file `nosuch`"
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
environment:
  MODE: "fast"
run:
  - "mkdir -p /data"
  - "chmod 777 /data\""""
    )
    assert created.needs_lock
    assert [(item.line, item.text, item.reason) for item in created.untranslated] == [
        (1, "ARG TAG", "a recipe has no build arguments; the recipe has the default value"),
        (2, "FROM stage tool", "only the last stage is translated"),
        (5, "ENV PATH=/opt/x:$PATH", "variables are not expanded"),
        (6, "apt-get install libgomp1=12.2.0", "`bake lock` selects the version"),
        (
            8,
            "RUN curl -fsSL https://x.example/i.sh | sh",
            "downloads belong in a component, where they are pinned",
        ),
        (10, "WORKDIR /app", "SageMaker starts training in /opt/ml/code"),
        (12, "COPY --from=tool /out/tool /usr/local/bin/", "it copies from another stage or image"),
        (
            16,
            "RUN for i in 1 2; do echo $i; done",
            "copy the script with `files` and call it in `run`",
        ),
        (
            19,
            "COPY . /everything",
            "it copies the whole project; copy the directories that the image needs",
        ),
        (20, "EXPOSE 8080", "training jobs do not publish ports"),
        (21, "USER app", "training images run as root"),
        (22, 'ENTRYPOINT ["python", "src/train.py"]', "the code moves from /app/src to /opt/ml/code"),
        (22, 'ENTRYPOINT ["python", "src/train.py"]', "pass --epochs as hyperparameters of the job"),
    ]
    assert "  Dockerfile:20  EXPOSE 8080 " in created.text
    assert "bake lock churn " in created.text


def test_a_dockerfile_without_requirements_plans_at_once(repository: Path) -> None:
    (repository / "Dockerfile").write_text(
        "FROM python:3.11\nRUN pip install torch --index-url https://download.pytorch.org/whl/cpu\n"
    )

    created = init.run(repository, dockerfile="Dockerfile")

    assert created.text.startswith(f"wrote {RECIPE}\n")
    assert "all of Dockerfile is in the recipe\n" in created.text
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


def first(text: str, tmp_path: Path) -> BaseAndComponents:
    proposal = dockerfile_import.translate(text, tmp_path)
    return next(iter(dockerfile_import.selections(proposal, open_workspace().catalog.components)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "FROM 763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.6.0-gpu-py312-cu126",
            BaseAndComponents(("aws-dlc-pytorch", "2.6.0"), {}, {"aws-dlc-pytorch": "cu*"}),
        ),
        (
            "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime",
            BaseAndComponents(
                ("debian", "12"),
                {"pytorch": "2.6.0", "sagemaker-pytorch-training": "*"},
                {"pytorch": "cu124-*"},
            ),
        ),
        (
            "FROM nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04\nRUN pip install torch>=2.9",
            BaseAndComponents(
                ("nvidia-cuda", "12.8.1"),
                {"pytorch": ">=2.9", "sagemaker-pytorch-training": "*"},
                {"nvidia-cuda": "*-ubuntu24.04", "pytorch": "cu*"},
            ),
        ),
        (
            "FROM tensorflow/tensorflow:2.20.0",
            BaseAndComponents(
                ("debian", "12"),
                {"tensorflow": "2.20.0", "sagemaker-tensorflow-training": "*"},
                {"tensorflow": "cpu-*"},
            ),
        ),
        ("FROM ubuntu:22.04", BaseAndComponents(("debian", "12"), {"sagemaker-training": "*"}, {})),
    ],
)
def test_bases(text: str, expected: BaseAndComponents, tmp_path: Path) -> None:
    assert first(text, tmp_path) == expected


def test_what_the_catalogue_lacks_is_reported(repository: Path) -> None:
    (repository / "Dockerfile").write_text("FROM ubuntu:20.04\nRUN pip install torch==1.2.3\n")

    created = init.run(repository, dockerfile="Dockerfile")

    assert [(item.line, item.text) for item in created.untranslated] == [
        (1, "FROM ubuntu:20.04"),
        (2, "pip install pytorch 1.2.3"),
    ]
    assert created.untranslated[1].reason == "no such release fits; the recipe has `*`"
    assert select(open_workspace(repository), ["churn"]).plan.images


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ADD https://x.example/a.bin /a", "download the file into the project and pin its checksum"),
        ("ADD a.tar.gz /opt/", "ADD unpacks the archive; unpack it into a directory"),
        ("COPY nosuch /a", "`nosuch` does not exist next to the Dockerfile"),
        ("COPY src/*.py /a/", "name each file or directory"),
        ("COPY <<E /a\nx\nE", "write the content into a file of the project"),
        ("RUN pip install -e .", "copy the package with `files` or `code`"),
        (
            "RUN pip install git+https://x.example/a",
            "pin a version in a requirements file, or copy the package with `files` or `code`",
        ),
        ("RUN pip install -r nosuch.txt", "`nosuch.txt` does not exist next to the Dockerfile"),
        (
            "RUN pip install -i https://x.example/simple a",
            "set the index in pip's configuration, which `bake lock` reads",
        ),
        ("RUN conda install numpy", "Bakehouse does not install packages with conda"),
        ("RUN make install", "add it to `run` if it needs no network, or write a component"),
        ("RUN apt-get install ./a.deb", "it is not a package of the distribution"),
        ('SHELL ["/bin/bash"]', "steps of `run` use /bin/sh"),
        ("HEALTHCHECK NONE", "SageMaker does not run health checks of training jobs"),
        ("FOO bar", "it has no equivalent in a recipe"),
        ('CMD ["bash"]', "SageMaker starts `train`, which runs the entry point of `code`"),
        (
            'COPY src/train.py /app/\nCMD ["python", "/app/train.py"]',
            "move `train.py` into a directory of its own and name it in `code`",
        ),
    ],
)
def test_untranslated_instructions(line: str, expected: str, repository: Path) -> None:
    proposal = dockerfile_import.translate(f"FROM debian:12\n{line}\n", repository)

    assert [item.reason for item in proposal.untranslated] == [expected]
    assert {item.line for item in proposal.untranslated} <= {2, 3}


@pytest.mark.parametrize(
    "line",
    [
        "ARG VERSION",
        "ARG VERSION=1",
        "COPY --chown=app src /opt/src",
        "COPY --chmod=755 src /opt/src",
        "COPY src",
        "RUN --mount=type=secret,id=x pip install tqdm",
        "RUN --network=none pip install tqdm",
        "RUN OPS=1 pip install tqdm",
        "RUN apt-get install -y -t bookworm-backports git",
        "RUN apt-get install -oAPT::Default-Release=x git",
        "RUN apt-get remove -y perl",
        "RUN apt-get upgrade -y",
        "RUN pip install -c limits.txt tqdm",
        "RUN pip install -climits.txt tqdm",
        "RUN pip install --no-deps tqdm",
        "RUN pip install --pre tqdm",
        "RUN pip install -f https://wheels.example/ tqdm",
        "RUN pip install --target /opt/x tqdm",
        "RUN pip install 'pip<24'",
        "RUN pip install setuptools==70",
        "RUN pip install 'deepspeed[inf]==0.15.4'",
        "RUN pip install torch==2.13.0 && pip install torch==2.12.0",
        "RUN pip install tqdm || true",
        'COPY src /opt/ml/code\nENV SAGEMAKER_PROGRAM=train.py\nCMD ["bash"]',
        'COPY src /opt/ml/code\nCMD ["--epochs=3"]\nENTRYPOINT ["python", "/opt/ml/code/train.py"]',
        "COPY src /opt/ml/code\nCMD torchrun --nproc-per-node 4 train.py",
        "COPY src /opt/ml/code\nCMD python /opt/ml/code/train.py config.yaml",
    ],
)
def test_no_word_is_dropped_without_being_listed(line: str, repository: Path) -> None:
    (repository / "Dockerfile").write_text(f"FROM python:3.11-slim\n{line}\n")

    created = init.run(repository, dockerfile="Dockerfile")

    assert {item.line for item in created.untranslated} & {2, 3, 4}
    assert "all of Dockerfile is in the recipe" not in created.text


@pytest.mark.parametrize(
    "head", ["FROM --platform=linux/arm64 python:3.11-slim\n", "RUN true\nFROM python:3.11-slim\n"]
)
def test_options_and_lines_of_the_head_are_listed(head: str, repository: Path) -> None:
    (repository / "Dockerfile").write_text(head)

    created = init.run(repository, dockerfile="Dockerfile")

    assert [item.line for item in created.untranslated] == [1]


@pytest.mark.parametrize(
    "lines",
    [
        "RUN apt-get update -qq && apt-get install -yq --no-install-recommends git && apt-get clean",
        "RUN --mount=type=cache,target=/root/.cache pip install -U --no-cache-dir pip tqdm",
        "ENV DEBIAN_FRONTEND=noninteractive\nRUN DEBIAN_FRONTEND=noninteractive apt-get install git",
        "COPY --link --chown=root:root src /opt/src",
        'ENV SAGEMAKER_PROGRAM "train.py"\nCOPY src /opt/ml/code',
        'COPY src /opt/ml/code\nCMD ["python", "-u", "/opt/ml/code/train.py"]',
        "COPY src /opt/ml/code\nENV SAGEMAKER_PROGRAM=train.py\nENTRYPOINT train",
    ],
)
def test_a_complete_translation_is_called_complete(lines: str, repository: Path) -> None:
    (repository / "Dockerfile").write_text(f"FROM python:3.11-slim\n{lines}\n")

    created = init.run(repository, dockerfile="Dockerfile")

    assert created.untranslated == ()
    assert "all of Dockerfile is in the recipe\n" in created.text


def test_the_value_of_a_variable_of_one_command_is_not_shown(tmp_path: Path) -> None:
    [item] = dockerfile_import.translate("FROM a\nRUN TOKEN=secret pip install x\n", tmp_path).untranslated

    assert (item.text, item.reason) == ("RUN TOKEN=…", "a recipe sets no variables for one command")


def test_options_and_urls_are_listed_without_their_values(tmp_path: Path) -> None:
    address = "https://ada:secret@x.example"
    text = (
        f"FROM a\nRUN apt-get install -o Acquire::http::Proxy={address} git\n"
        f"RUN pip install --proxy={address} --log={address} 'torch @ {address}/t.whl'"
        f" 'setuptools @ {address}/s'\n"
    )

    assert [item.text for item in dockerfile_import.translate(text, tmp_path).untranslated] == [
        "apt-get -o Acquire::http::Proxy",
        "pip install --proxy https://x.example",
        "pip install --log",
        "pip install torch",
        "pip install setuptools",
    ]


def test_quotes_around_a_value_are_not_part_of_it(tmp_path: Path) -> None:
    text = "FROM a\nENV MESSAGE \"hello world\"\nENV OTHER='x y'\n"

    assert dockerfile_import.translate(text, tmp_path).environment == {
        "MESSAGE": "hello world",
        "OTHER": "x y",
    }


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
    assert "all of Dockerfile is in the recipe" in created.text


def test_another_region_of_the_project_is_listed(repository: Path) -> None:
    (repository / "pyproject.toml").write_text('[tool.bakehouse]\nregion = "us-west-2"\n')
    (repository / "Dockerfile").write_text(f"FROM {AWS_BASE}\n")

    [item] = init.run(repository, dockerfile="Dockerfile").untranslated

    assert item.reason == "`region` in [tool.bakehouse] selects the registry of us-west-2"


def test_components_that_an_aws_base_may_contain_are_listed(repository: Path) -> None:
    (repository / "Dockerfile").write_text(f"FROM {AWS_BASE}\nRUN pip install deepspeed==0.15.4 mpi4py\n")

    created = init.run(repository, dockerfile="Dockerfile")

    assert [(item.line, item.text, item.reason) for item in created.untranslated] == [
        (
            2,
            "pip install deepspeed 0.15.4",
            "check whether aws-dlc-pytorch 2.5.1 contains this version",
        ),
        (2, "pip install mpi4py *", "check whether aws-dlc-pytorch 2.5.1 contains this version"),
    ]


def test_a_password_in_a_url_is_never_copied(tmp_path: Path) -> None:
    text = "FROM a\nRUN pip install --index-url https://ada:secret@mirror.example/simple x\n"
    [item] = dockerfile_import.translate(text, tmp_path).untranslated

    assert item.text == "pip install --index-url https://mirror.example/simple"


def test_a_secret_is_never_copied(repository: Path) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz012345"
    (repository / "Dockerfile").write_text(f"FROM debian:12\nENV MODE=fast HF_TOKEN={secret}\n")

    created = init.run(repository, dockerfile="Dockerfile")

    [item] = created.untranslated
    assert (item.line, item.text) == (2, "ENV HF_TOKEN=…")
    assert item.reason == "it looks like a secret; set it when the job starts"
    assert secret not in (repository / RECIPE).read_text() + created.text
    assert select(open_workspace(repository), ["churn"]).plan.images


def test_long_commands_are_shortened(tmp_path: Path) -> None:
    [item] = dockerfile_import.translate(f"FROM a\nRUN {'x' * 100}", tmp_path).untranslated

    assert item == Untranslated(2, "RUN " + "x" * 55 + "…", item.reason)
