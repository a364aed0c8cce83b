"""The wheel, installed into new virtual environments and used outside the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from uv import find_uv_bin

from bakehouse.catalog.project import HOME
from tests.support.programs import BAKE, install

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(programs: Path, tmp_path: Path) -> Run:
    """Run an installed program in an empty directory."""

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # The environment of the tests must not help.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(programs / name), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_the_installed_command_resolves_the_images_of_the_catalogue(run: Run) -> None:
    checkout = subprocess.run([*BAKE, "resolve", "pytorch-cpu"], capture_output=True, text=True, check=True)

    result = run("bake", "resolve", "pytorch-cpu")

    assert (result.returncode, result.stdout) == (0, checkout.stdout), result.stderr


def test_a_project_with_own_recipes_is_rendered_and_locked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.bakehouse]\nrecipes = ["mine"]\n')
    recipe = tmp_path / "mine/images/own.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(
        'summary: Own image\nbase: {debian: "12"}\ncomponents: {python: "*"}\n'
        "requirements: ../../requirements.txt\n"
    )
    (tmp_path / "requirements.txt").write_text("iniconfig\n")

    locked, rendered = run("bake", "lock", "own"), run("bake", "render")

    assert locked.returncode == 0, locked.stderr
    assert rendered.returncode == 0, rendered.stderr
    assert (tmp_path / "images/own/Dockerfile").exists()


def test_messages_show_files_of_the_catalogue_relative_to_the_package(run: Run) -> None:
    result = run("bake", "explain", "pytorch-cpu", "pytorch")

    assert result.returncode == 0, result.stderr
    assert "   bakehouse/data/recipes/images/pytorch-cpu.yaml:" in result.stdout
    assert "site-packages" not in result.stdout


@pytest.mark.parametrize("arguments", [["test"], ["rehearse", "mpi-cpu"], ["reproduce", "mpi-cpu"]])
def test_tools_of_maintainers_need_a_checkout(arguments: list[str], run: Run) -> None:
    result = run("bake", *arguments)

    assert (result.returncode, result.stderr) == (
        64,
        f"error: `{arguments[0]}` is not part of the installed package\n\n"
        f"hint: run `./bake {arguments[0]}` in a checkout of Bakehouse\n",
    )


def test_the_wheel_leaves_out_the_tools_of_maintainers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packages = {name.split("/")[1] for name in archive.namelist() if name.startswith("bakehouse/")}

    assert "pipeline" in packages
    assert "maintain" not in packages


def test_the_stubs_of_rehearsals_are_complete(programs: Path) -> None:
    data = programs.parent / "lib"
    [installed] = data.glob("python*/site-packages/bakehouse/data")
    for root in ("recipes", "templates", "schema"):
        names = {path.relative_to(HOME / root) for path in (HOME / root).rglob("*") if path.is_file()}
        packaged = {
            path.relative_to(installed / root) for path in (installed / root).rglob("*") if path.is_file()
        }
        assert {name for name in names if "__pycache__" not in name.parts} == packaged


@pytest.fixture(params=["3.11", "3.12", "3.13"])
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter of a supported version."""
    version: str = request.param
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    # The programs of pyenv in PATH start only the versions in its settings.
    directories = [*pyenv.glob(f"versions/{version}.*/bin"), *os.get_exec_path()]
    path = shutil.which(f"python{version}", path=os.pathsep.join(map(str, directories)))
    if path is None:
        pytest.skip(f"Python {version} is not installed on this machine")
    return path


def test_the_wheel_contains_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [licence] = (name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))

        assert archive.read(licence) == (HOME / "LICENSE").read_bytes()
        assert b"\nLicense-Expression: Apache-2.0\n" in archive.read(metadata)


def test_image_uris_needs_the_standard_library_only(wheel: Path, python: str, tmp_path: Path) -> None:
    programs = install(tmp_path / "environment", wheel, "--no-deps", python=python)
    code = "from bakehouse import image_uris; print(image_uris.retrieve.__name__)"

    assert outside(tmp_path, programs / "python", "-I", "-c", code) == "retrieve\n"


def test_each_python_renders_the_same_files_into_the_current_directory(
    wheel: Path, python: str, tmp_path: Path
) -> None:
    bake, project = install(tmp_path / "environment", wheel, python=python) / "bake", tmp_path / "project"
    project.mkdir()

    assert outside(project, bake, "list", "mpi-cpu").count("\nmpi-cpu ")
    outside(project, bake, "render", "mpi-cpu")
    outside(project, bake, "render", "--check", "mpi-cpu")

    for name in ("Dockerfile", "docker-bake.json", "lock.json", "inputs/bin/finish-layer"):
        rendered = (project / "images/mpi-cpu" / name).read_bytes()
        assert rendered == (HOME / "images/mpi-cpu" / name).read_bytes()
    assert [path.name for path in project.iterdir() if path.name != "build"] == ["images"]


def test_uv_installs_the_command(wheel: Path, tmp_path: Path) -> None:
    outside(tmp_path, find_uv_bin(), "tool", "install", "--quiet", wheel)

    assert outside(tmp_path, tmp_path / "bin/bake", "list", "mpi-cpu").count("\nmpi-cpu ")


def test_pipx_installs_the_command(wheel: Path, tmp_path: Path) -> None:
    outside(tmp_path, find_uv_bin(), "tool", "run", "--quiet", "pipx", "install", wheel)

    assert outside(tmp_path, tmp_path / "bin/bake", "list", "mpi-cpu").count("\nmpi-cpu ")


def outside(directory: Path, *command: str | Path) -> str:
    """Run a program outside the checkout, with tools of Python in a directory; return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "UV_PYTHON": sys.executable,
        "UV_TOOL_BIN_DIR": f"{directory}/bin",
        "UV_TOOL_DIR": f"{directory}/tools",
        "PIPX_BIN_DIR": f"{directory}/bin",
        "PIPX_HOME": f"{directory}/pipx",
    }
    result = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
