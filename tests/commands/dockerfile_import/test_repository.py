"""A repository without a Dockerfile: each file has a row, and the recipe has what the files ask for."""

import json
from pathlib import Path

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.commands.dockerfile_import.choose import select, settle
from bakehouse.commands.dockerfile_import.repository import look

PROJECT = """\
[project]
name = "x"
requires-python = ">=3.12"
dependencies = ["torch==2.9.1", "tqdm"]
"""
BOTH = {"pytorch": "2.9.1", "python": ">=3.12"}
TEXT = "requirements.txt"
POETRY = """\
[tool.poetry.dependencies]
python = ">=3.11,<3.13"
torch = "2.9.1"
tqdm = {version = "^0.5.1", extras = ["x"]}
own = {path = "../own"}
"""
CONDA = """\
dependencies:
- python=3.10
- pytorch=2.5.1
- numpy=1.26
- conda-forge::x==1=py_0
- pip: [transformers==4.46.0, -i https://x.example, -r more.txt]
"""
UV = 'version = 1\n[[package]]\nname = "torch"\nversion = "2.9.1"\n'


def notebook(*lines: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": [f"{line}\n" for line in lines]}]})


@pytest.mark.parametrize(
    ("files", "components", "requirements", "code"),
    [
        ({"requirements.txt": "torch==2.7.1\npandas\n", "src/train.py": "import torch, pandas"},
         {"pytorch": "2.7.1"}, ["requirements.txt"], ("src", "train.py")),
        ({TEXT: "xgboost\n", "train.py": "import xgboost"}, {}, [TEXT], (".", "train.py")),
        ({"requirements/base.txt": "tensorflow==2.18.1\n", "deep/er/train.py": ""},
         {"tensorflow": "2.18.1"}, ["requirements/base.txt"], ("deep/er", "train.py")),
        ({"pyproject.toml": PROJECT, "train.py": ""}, BOTH, ["pyproject.toml"],
         (".", "train.py")),
        ({"pyproject.toml": PROJECT, "uv.lock": UV}, BOTH, ["uv.lock"], None),
        ({"environment.yml": CONDA, "more.txt": "tqdm\n"}, {"pytorch": "2.5.1", "python": "3.10"},
         ["more.txt", "numpy==1.26.*", "x==1", "transformers==4.46.0"], None),
        ({"train_model.py": "import os, cv2, torch, mine", "mine.py": ""}, {"pytorch": "*"},
         ["opencv-python-headless"], (".", "train_model.py")),
        ({"p/train.py": "from p import x", "p/x.py": "", "p/__init__.py": ""}, {}, [], (".", "p/train.py")),
        ({"pyproject.toml": POETRY}, {"pytorch": "2.9.1", "python": ">=3.11,<3.13"},
         ["tqdm[x]>=0.5.1,<0.6"], None),
        ({".python-version": "3.12\n"}, {"python": "3.12"}, [], None),
        ({}, {}, [], None),
    ],
)  # fmt: skip
def test_a_recipe_has_what_the_repository_asks_for(
    files: dict[str, str],
    components: dict[str, str],
    requirements: list[str],
    code: tuple[str, str] | None,
    tmp_path: Path,
    catalog: Catalog,
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    proposal = look(tmp_path, catalog)
    selection = select(proposal, catalog)
    settle(proposal, selection)

    own = {
        name: version for name, version in selection.components.items() if not name.startswith("sagemaker")
    }
    assert own == components
    assert [*proposal.requirement_files, *proposal.requirements] == requirements
    assert proposal.code == code
    assert [row for row in proposal.account.rows() if not row.detail] == []


@pytest.mark.parametrize(
    ("files", "row"),
    [
        ({"dev-requirements.txt": "x", "requirements-dev.txt": "x"},
         ("requirements-dev.txt", "not in the recipe: packages for development")),
        ({"docker/Dockerfile": "FROM x"},
         ("docker/Dockerfile", "not read: `bake init --from-dockerfile docker/Dockerfile` translates it")),
        ({"setup.py": ""}, ("setup.py", "not read: write its dependencies into a requirements file")),
        ({"requirements.txt": "x", "uv.lock": UV},
         ("uv.lock", "not in the recipe: requirements.txt has the packages; name it in `requirements`, too")),
        ({"requirements.txt": "x", "a.ipynb": notebook("!pip install b", "import b, json")},
         ("a.ipynb", "it imports b, which no requirements name")),
        ({"requirements.txt": "torch", "train.py": "import torch, b"},
         ("train.py", "`code`; it imports b, which no requirements name")),
        ({"a/train.py": "", "b/train.py": ""},
         ("b/train.py", "not in the recipe: a/train.py is the entry point; name another one in `code`")),
        ({"environment.yml": "a: ["}, ("environment.yml", "not known: environment.yml is not YAML")),
        ({}, ("train.py", "no training script was found: name it in `code`")),
    ],
)  # fmt: skip
def test_what_is_not_in_the_recipe_has_a_row(
    files: dict[str, str], row: tuple[str, str], tmp_path: Path, catalog: Catalog
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert row in [(item.text, item.detail) for item in look(tmp_path, catalog).account.rows()]
