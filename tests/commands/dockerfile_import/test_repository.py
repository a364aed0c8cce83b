"""A repository without a Dockerfile: each file has a row, and the recipe has what the files ask for."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import Variant
from bakehouse.commands.dockerfile_import.choose import select, settle
from bakehouse.commands.dockerfile_import.init import first_recipe
from bakehouse.commands.dockerfile_import.repository import look


def notebook(*lines: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": [f"{line}\n" for line in lines]}]})


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
SETUP = (
    "NEEDS = ['tensorflow==2.19.0', 'pandas>=2']\nsetup(python_requires='>=3.10', install_requires=NEEDS)\n"
)
CONFIG = "[options]\ninstall_requires =\n  torch==2.9.1\n  numpy  # arrays\n"
PIPFILE = (
    "[packages]\ntorch = '==2.9.1'\ntqdm = '*'\nown = {path = '.'}\n[requires]\npython_version = '3.11'\n"
)
PIXI = """\
[dependencies]
python = "3.11.*"
pytorch = "2.9.*"
pandas = ">=2,<3"
[pypi-dependencies]
tqdm = "*"
own = {path = "."}
"""
DYNAMIC = """\
[project]
name = "x"
dynamic = ["dependencies"]
[tool.setuptools.dynamic]
dependencies = {file = "deps.txt"}
"""
OWN_SOURCES = {
    "pyproject.toml": "[project]\ndependencies = ['own']\n[tool.uv.sources]\nown = {workspace = true}\n",
    "Pipfile": "[packages]\ntqdm = '*'\nown = {git = 'https://git.example/own'}\n",
    "pixi.toml": "[dependencies]\nown = {version = '*', channel = 'team'}\n[pypi-dependencies]\ntqdm = '*'\n",
    "own/pyproject.toml": "[tool.poetry]\nname = 'own'\n[tool.poetry.dependencies]\ntqdm = '1'\n",
    "b/pyproject.toml": "[tool.poetry.dependencies]\nown = {version = '1', source = 'team'}\n",
    "c/pyproject.toml": "[project]\ndependencies = ['own']\n[[tool.uv.index]]\nurl = 'https://i.example'\n",
}
"""Files that give `own` a source other than the public index."""
OTHERS = {
    "requirements.txt": "tqdm\nOwn>=1\n",
    "requirements/base.txt": "own[x]\n",
    "environment.yml": "dependencies: [own, pip: [own==1, tqdm]]\n",
    "setup.py": "setup(install_requires=['own', 'tqdm'])\n",
    "setup.cfg": "[options]\ninstall_requires = own\n",
    "poetry.lock": "",
    "tox.ini": "",
    "a.ipynb": notebook("import own, tqdm"),
    "train.sh": "",
    "main.py": "import own",
    "runtime.txt": "python-3.12.1",
}
UV = 'version = 1\n[[package]]\nname = "torch"\nversion = "2.9.1"\n'


@pytest.mark.parametrize(
    ("files", "components", "requirements", "code"),
    [
        ({"requirements.txt": "torch==2.7.1\npandas\n", "src/train.py": "import torch, pandas"},
         {"pytorch": "2.7.1"}, ["requirements.txt"], ("src", "train.py")),
        ({TEXT: "xgboost\n", "train.py": "import xgboost"}, {}, [TEXT], (".", "train.py")),
        ({TEXT: "torch\ntorchvision\n"}, {"pytorch": "*", "torchvision": "*"}, [TEXT], None),
        ({TEXT: "torch==2.9.1\ntorchvision==0.1\ndeepspeed @ git+https://x.example/a\n"},
         {"pytorch": "2.9.1"}, [TEXT], None),
        ({"requirements/base.txt": "tensorflow==2.18.1\n", "deep/er/train.py": ""},
         {"tensorflow": "2.18.1"}, ["requirements/base.txt"], ("deep/er", "train.py")),
        ({"pyproject.toml": PROJECT, "train.py": ""}, BOTH, ["pyproject.toml"], (".", "train.py")),
        ({"pyproject.toml": PROJECT, "uv.lock": UV}, BOTH, ["uv.lock"], None),
        ({"environment.yml": CONDA, "more.txt": "tqdm\n"}, {"pytorch": "2.5.1", "python": "3.10"},
         ["more.txt", "numpy==1.26.*", "x==1"], None),
        ({"train_model.py": "import os, cv2, torch, mine", "mine.py": ""}, {"pytorch": "*"},
         ["opencv-python-headless"], (".", "train_model.py")),
        ({"p/train.py": "from p import x", "p/x.py": "", "p/__init__.py": ""}, {}, [], (".", "p/train.py")),
        ({"pyproject.toml": POETRY}, {"pytorch": "2.9.1", "python": ">=3.11,<3.13"},
         ["tqdm[x]>=0.5.1,<0.6"], None),
        ({".python-version": "3.12\n"}, {"python": "3.12"}, [], None), ({}, {}, [], None),
        ({"setup.py": SETUP, "train.py": "import tensorflow"}, {"tensorflow": "2.19.1", "python": ">=3.10"},
         ["pandas>=2"], (".", "train.py")),
        ({"setup.cfg": CONFIG, "setup.py": "setup()"}, {"pytorch": "2.9.1"}, ["numpy"], None),
        ({"Pipfile": PIPFILE}, {"pytorch": "2.9.1", "python": "3.11"}, ["tqdm"], None),
        ({"pixi.toml": PIXI}, {"pytorch": "2.9", "python": "3.11"}, ["tqdm", "pandas>=2,<3"], None),
        ({"pyproject.toml": DYNAMIC, "deps.txt": "torch==2.9.1"}, {"pytorch": "2.9.1"}, ["deps.txt"], None),
        ({"a/train.py": "", "a/requirements.txt": "torch==2.9.1", TEXT: "tensorflow"}, {"pytorch": "2.9.1"},
         ["a/requirements.txt"], ("a", "train.py")),
        ({"environment.yml": "dependencies: ['python>=3.11', 'pytorch>=2.8,<2.10']"},
         {"pytorch": ">=2.8,<2.10", "python": ">=3.11"}, [], None),
        ({"a/train.py": "", "a/environment.yml": CONDA, "environment.yml": "dependencies: [python=3.11]"},
         {"pytorch": "2.5.1", "python": "3.10"}, ["numpy==1.26.*", "x==1"], ("a", "train.py")),
        ({"x.ipynb": notebook("import torch, pandas, own")}, {"pytorch": "*"}, ["pandas"], None),
        ({"Pipfile": "[packages]\nscikit-learn = '*'", "train.py": "import sklearn"}, {}, ["scikit-learn"],
         (".", "train.py")),
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
        ({"setup.py": ""}, ("setup.py", "it declares no packages")),
        ({"setup.py": "setup(install_requires=read())", "train.py": "import torch"},
         ("setup.py", "not read: `install_requires` is computed; "
          "write the dependencies into a requirements file")),
        ({"setup.py": "setup(install_requires=read())", "train.py": "import torch"},
         ("train.py", "`code`; the version of pytorch is not known: setup.py was not read")),
        ({"setup.py": "("}, ("setup.py", "not read: '(' was never closed (<unknown>, line 1)")),
        ({"pyproject.toml": "project = 1\ntool.poetry = 2\ntool.uv.index = 3"},
         ("pyproject.toml", "not read: its values have other types than in its format")),
        ({"requirements.txt": "x", "pdm.lock": ""},
         ("pdm.lock", "not read: a lock of PDM; "
          "run `pdm export --prod --output requirements.txt` and name that file")),
        ({"requirements.txt": "-r a.txt\nown", "a.txt": "b", "Pipfile": "[packages]\nown = {path = '.'}"},
         ("requirements.txt", "not in the recipe: requirements.txt has `own`, whose source is a path")),
        ({"requirements.txt": "x", "own/pyproject.toml": PROJECT},
         ("own/pyproject.toml", "not in the recipe: requirements.txt has the packages")),
        ({"requirements.txt": "-r requirements-a.txt", "requirements-a.txt": "x"},
         ("requirements-a.txt", "requirements.txt includes it")),
        ({".python-version": "3.12", "environment.yml": "dependencies: [python=3.11]"},
         (".python-version", "environment.yml selects python ==3.11.*")),
        ({"environment.yml": "channels: [own]\nvariables: {A: b}\ndependencies: [x, {npm: [y]}]"},
         ("environment.yml", "not in the recipe: variables A; add them to `environment`; "
          "not in the recipe: `x`, whose source is the channel own; not read: the packages of `npm`")),
        ({"environment.yml": "dependencies: [{pip: [-r x.txt]}]"},
         ("environment.yml", "not known: x.txt does not exist")),
        ({"a/b/c/d/e/train.py": "", "env/x": ""}, ("a/b/c/d/e/, env/", "not known: not searched")),
        ({"x.ipynb": notebook("import own")}, ("x.ipynb", "it imports own, which no requirements name")),
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


@given(own=st.sets(st.sampled_from([*OWN_SOURCES]), min_size=1), others=st.sets(st.sampled_from([*OTHERS])))
@settings(max_examples=60, deadline=None)
def test_each_file_has_a_row_and_no_package_of_another_source_is_locked(
    own: set[str], others: set[str], catalog: Catalog
) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        for name in own | others:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text((OWN_SOURCES | OTHERS)[name])

        proposal = look(root, catalog)

        assert own | others <= {row.text for row in proposal.account.rows()}
        locked = [*proposal.requirements]
        for name in proposal.requirement_files:
            locked += (root / name).read_text().lower().split()
        assert [line for line in locked if line.startswith("own")] == []


@pytest.mark.parametrize("is_for_linux", [True, False])
@pytest.mark.parametrize("marker", ["sys_platform {} 'linux'", "platform_system {} 'Linux' "])
@pytest.mark.parametrize(
    ("name", "form"),
    [
        (TEXT, "{}"),
        ("pyproject.toml", '[project]\ndependencies = ["{}"]'),
        ("setup.cfg", "[options]\ninstall_requires = {}"),
    ],
)
def test_a_marker_for_other_systems_selects_no_framework(
    name: str, form: str, marker: str, is_for_linux: bool, tmp_path: Path, catalog: Catalog
) -> None:
    line = f"torch==2.9.1; {marker.format('==' if is_for_linux else '!=')}"
    (tmp_path / name).write_text(form.format(line))
    assert ("pytorch" in look(tmp_path, catalog).wishes) == is_for_linux


@pytest.mark.parametrize(
    ("python", "fetched", "base"),
    [("", "", "12"), ("", "cpu-py313", "13"), ("3.11\n", "cpu-py313", "12"), ("3.12\n", "", "13")],
)
def test_a_project_starts_on_the_newest_debian_with_wheels_that_were_fetched(
    python: str, fetched: str, base: str, catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / TEXT).write_text("torch==2.13.0\n")
    if python:
        (tmp_path / ".python-version").write_text(python)
    component = catalog.components["pytorch"]
    releases = tuple(
        replace(release, variants=tuple(_fetched(variant, fetched) for variant in release.variants))
        for release in component.releases
    )
    catalog = Catalog({**catalog.components, component.name: replace(component, releases=releases)})

    [text, *_] = first_recipe("x", tmp_path / "x.yaml", tmp_path, look(tmp_path, catalog), catalog).values()
    assert f'\nbase: {{debian: "{base}"}}\n' in text


def _fetched(variant: Variant, name: str) -> Variant:
    if variant.name != name:
        return variant
    artifacts = tuple(replace(item, bytes=1) for item in variant.spec.artifacts)
    return replace(variant, spec=replace(variant.spec, artifacts=artifacts))
