"""Build requirements of source distributions are locked, in the versions of the image if they fit."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.build_requirements import read_build_requirements, with_build_requirements
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import BuildError, ConflictError, Location, Problems
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.lock import build_requirements
from bakehouse.lock.python import Index, Metadata, lock_text
from tests.support.errors import error_text, raised, refusal
from tests.support.wheels import sha256, wheel

SHA = "0123456789abcdef" * 4
SDIST = Package("own", "1.0", SHA, "own-1.0.tar.gz", 5)
SPOT = Location(Path("locks/pytorch.txt"), 1, 1)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    directory = tmp_path / "index"
    for version in ("1.0", "2.0"):
        wheel(directory, "numpy", version)
        wheel(directory, "setuptools", version)
    wheel(directory, "torch", "1.0")
    return directory


def index(wheels: Path, *requires: str) -> Index:
    """An index, and a build backend that asks for build requirements."""

    def run(requirement: str, file: Package, index: Index) -> Metadata:
        assert requirement == "own==1.0"
        return Metadata("own", "1.0", (), "", requires)

    return Index(PipConfig(find_links=(str(wheels),), no_index=True), None, run_for_build=run)


def package(name: str, version: str) -> Package:
    return Package(name, version, SHA, f"{name}.whl", 5, SPOT)


def locked(
    own: Index,
    *installed: Package,
    others: tuple[Package, ...] = (),
    known: Mapping[str, tuple[Package, ...]] | None = None,
    undeclared: tuple[str, ...] = (),
) -> list[str] | None:
    """Return the build requirements of the source distribution."""
    *_, sdist = build_requirements.with_build_requirements(
        (*others, SDIST),
        installed,
        own,
        fixed={"torch"},
        known=known or {},
        undeclared={"own": undeclared} if undeclared else {},
    )
    return None if sdist.build is None else [f"{file.name}=={file.version}" for file in sdist.build]


def test_declared_requirements_are_locked(wheels: Path) -> None:
    assert locked(index(wheels, "setuptools>=1")) == ["setuptools==2.0"]


def test_a_package_of_a_component_is_not_locked_again(wheels: Path) -> None:
    own = index(wheels, "setuptools", "torch")

    assert locked(own, package("torch", "9.0+cpu")) == ["setuptools==2.0"]


def test_the_version_of_the_image_is_taken_if_it_fits(wheels: Path) -> None:
    numpy = Package("numpy", "1.0", SHA, "numpy-1.0-py3-none-any.whl", 5)

    assert locked(index(wheels, "numpy"), others=(numpy,)) == ["numpy==1.0"]
    assert locked(index(wheels, "numpy>=2"), others=(numpy,)) == ["numpy==2.0"]
    assert locked(index(wheels, "numpy<2"), package("numpy", "2.0")) == ["numpy==1.0"]


def test_a_framework_is_not_replaced(wheels: Path) -> None:
    error = raised(ConflictError, locked, index(wheels, "torch==1.0"), package("torch", "9.0+cpu"))

    lines = error_text(error).splitlines()
    assert lines[:2] == [
        "error: `own==1.0` must be built with other packages than those of the image",
        "  because a component installs torch 9.0+cpu",
    ]
    assert lines[-1] == "hint: ask for a version of the package or of the component that fits"


def test_requirements_without_wheels_are_an_error(wheels: Path) -> None:
    lines = refusal(BuildError, locked, index(wheels, "absent>=1")).splitlines()
    assert lines[0] == "error: the build requirements of `own==1.0` have no wheels: absent>=1"
    assert lines[-1] == "hint: name a wheel, or a version that has one"


def test_the_recipe_adds_undeclared_requirements(wheels: Path) -> None:
    assert locked(index(wheels, "setuptools"), undeclared=("numpy<2",)) == ["numpy==1.0", "setuptools==2.0"]


def test_the_present_lock_is_kept_as_long_as_it_fits(wheels: Path) -> None:
    present = {SHA: (package("setuptools", "1.0"),)}
    own = index(wheels, "setuptools")

    assert locked(own, known=present) == ["setuptools==1.0"]
    assert locked(own, known=present, undeclared=("setuptools>=1",)) == ["setuptools==1.0"]
    assert locked(own, known=present, undeclared=("setuptools>1",)) == ["setuptools==2.0"]
    assert locked(own, known=present, undeclared=("numpy",)) == ["numpy==2.0", "setuptools==2.0"]


def test_without_an_engine_they_stay_unknown(wheels: Path) -> None:
    own = Index(PipConfig(find_links=(str(wheels),), no_index=True), None)

    assert locked(own) is None


def test_a_lock_has_them_below_the_source_distribution(tmp_path: Path, wheels: Path) -> None:
    file = wheels / "setuptools-2.0-py3-none-any.whl"
    size = file.stat().st_size
    tool = Package("setuptools", "2.0", sha256(file), file.name, size)
    plain = replace(SDIST, name="plain", file="plain-1.0.tar.gz", sha256="f" * 64, build=())
    other = replace(SDIST, name="other", file="other-1.0.tar.gz", sha256="e" * 64)
    path = tmp_path / "own.lock"
    path.write_text(lock_text("# own", [other, replace(SDIST, build=(tool,)), plain]))

    assert path.read_text() == (
        "# own\n"
        f"other==1.0 --hash=sha256:{'e' * 64}  # other-1.0.tar.gz 5\n"
        f"own==1.0 --hash=sha256:{SHA}  # own-1.0.tar.gz 5\n"
        f"#   built with setuptools==2.0 --hash=sha256:{sha256(file)}  # {file.name} {size}\n"
        f"plain==1.0 --hash=sha256:{'f' * 64}  # plain-1.0.tar.gz 5\n"
        "#   built with nothing else\n"
    )
    known = read_build_requirements(path)
    assert {key: [item.requirement for item in items] for key, items in known.items()} == {
        SHA: [f"setuptools==2.0 --hash=sha256:{sha256(file)}"],
        "f" * 64: [],
    }


def test_locked_packages_get_their_build_requirements(tmp_path: Path) -> None:
    path = tmp_path / "own.lock"
    tool = replace(SDIST, name="tool", file="tool-1.0-py3-none-any.whl", sha256="a" * 64)
    path.write_text(lock_text("# own", [replace(SDIST, build=(tool,)), tool]))
    from bakehouse.catalog.python_lock import load_lock

    problems = Problems()
    own, wheel_of_tool = with_build_requirements(load_lock(path, SPOT, problems))

    assert not problems
    assert own.build
    assert [item.requirement for item in own.build] == [tool.line.partition("  #")[0]]
    assert wheel_of_tool.build is None
    assert own.key_input != replace(own, build=None).key_input


def test_an_unreadable_lock_has_none(tmp_path: Path) -> None:
    assert read_build_requirements(tmp_path / "absent.lock") == {}
