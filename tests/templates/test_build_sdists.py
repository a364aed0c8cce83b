"""The script that makes wheels: each build sees its own build requirements and the packages of the image."""

import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from tests.support.data import text_of
from tests.support.sdists import sdist
from tests.support.wheels import sha256, wheel

SCRIPT = HOME / "templates/bin/build-sdists"
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = text_of(__file__, "backend")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Two source distributions, and two versions of their build requirement."""
    for name in ("one", "two"):
        files = {"pyproject.toml": PROJECT, "backend.py": BACKEND.format(name=name, module="tool")}
        sdist(tmp_path / "sdists", name, "1.0", files)
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "requirements", "tool", version)
    return tmp_path


def build(inputs: Path, tools: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the script with one version of the tool for each source distribution."""
    lines = []
    for name, version in tools.items():
        lines.append(f"# {name}-1.0.tar.gz")
        if version:
            digest = sha256(inputs / f"requirements/tool-{version}-py3-none-any.whl")
            lines.append(f"tool=={version} --hash=sha256:{digest}")
    (inputs / "build.txt").write_text("".join(f"{line}\n" for line in lines))
    paths = [inputs / name for name in ("build.txt", "sdists", "requirements", "wheels")]
    command = [sys.executable, str(SCRIPT), *map(str, paths), "PIP_NO_INPUT=1", sys.executable, "-m", "pip"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_each_build_has_its_own_requirements(inputs: Path) -> None:
    result = build(inputs, {"one": "1.0", "two": "2.0"})

    assert result.returncode == 0, result.stderr
    wheels = sorted((inputs / "wheels").iterdir())
    assert [path.name for path in wheels] == ["one-1.0-py3-none-any.whl", "two-1.0-py3-none-any.whl"]
    for path, version in zip(wheels, ("1.0", "2.0"), strict=True):
        assert f"VERSION = '{version}'".encode() in path.read_bytes()


def test_a_build_does_not_see_the_requirements_of_another(inputs: Path) -> None:
    result = build(inputs, {"one": "1.0", "two": ""})

    assert result.returncode
    assert "ModuleNotFoundError: No module named 'tool'" in result.stdout + result.stderr
    assert result.stdout.splitlines()[:2] == ["build-sdists: one-1.0.tar.gz", "build-sdists: two-1.0.tar.gz"]


def test_the_paths_of_sources_and_requirements_are_the_same_in_each_run(inputs: Path) -> None:
    assert build(inputs, {"one": "1.0", "two": "1.0"}).returncode == 0

    text = (inputs / "wheels/two-1.0-py3-none-any.whl").read_bytes().decode("latin-1")
    directory = f"{inputs}/build/two-1.0.tar.gz"
    assert f"PATHS = ['{directory}/source/two-1.0/backend.py', '{directory}/requirements/tool.py']" in text
    assert not (inputs / "build/two-1.0.tar.gz").exists()
