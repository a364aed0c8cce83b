"""Build backends do not run on this machine, whatever a source distribution contains."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.catalog.python_lock import Package
from bakehouse.errors import BuildError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.lock import build_backend, locked_base
from bakehouse.lock.python import Index, Metadata, RunBackend, resolve
from bakehouse.plan.workspace import open_workspace
from tests.support.errors import error_text, raised, refusal
from tests.support.sdists import WITNESS, hostile, sdist
from tests.support.wheels import sha256, wheel

BUILT_WITH_TORCH = "[build-system]\nrequires = ['ninja', 'Torch>=2.1']"
STATIC = "Metadata-Version: 2.2\nName: bad\nVersion: 1.0\nRequires-Dist: six\n"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """An index of a directory with a hostile source distribution, and an older wheel of it."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    monkeypatch.setenv("GITHUB_TOKEN", "token")
    directory = tmp_path / "index"
    sdist(directory, "bad", "1.0", hostile("bad", "1.0", tmp_path, home=tmp_path))
    wheel(directory, "bad", "0.9")
    wheel(directory, "six", "1.0")
    return Index(PipConfig(find_links=(str(directory),), no_index=True), None)


def states(*requires: str, name: str = "bad", version: str = "1.0") -> RunBackend:
    """A build backend that ran elsewhere."""

    def run(requirement: str, file: Package, index: Index) -> Metadata:
        assert file.file == "bad-1.0.tar.gz"
        return Metadata(name, version, requires, "")

    return run


def test_without_an_engine_it_does_not_run(tmp_path: Path, index: Index) -> None:
    error = raised(BuildError, resolve, ["bad"], [], index)

    assert not (tmp_path / WITNESS).exists()
    assert error_text(error) == (
        "error: the requirements of `bad==1.0` are unknown\n"
        "  because its metadata is not static, so its build backend must run, and no container engine"
        " answers\n\nhint: start a container engine, or set `build_on_host = true` in [tool.bakehouse] to run"
        " the code of packages on this machine\n"
    )


def test_a_file_that_a_requirement_names_does_not_run_either(tmp_path: Path, index: Index) -> None:
    url = (tmp_path / "index/bad-1.0.tar.gz").as_uri()

    with pytest.raises(BuildError, match=r"the requirements of `bad @ file:.*bad-1\.0\.tar\.gz` are unknown"):
        resolve([f"bad @ {url}"], [], index)

    assert not (tmp_path / WITNESS).exists()
    files = resolve([f"bad @ {url}"], [], replace(index, run_backend=states("six"), metadata={}))
    assert [(file.name, file.version) for file in files] == [("bad", "1.0"), ("six", "1.0")]


def test_if_allowed_it_runs_here_without_credentials_in_its_environment(tmp_path: Path, index: Index) -> None:
    resolve(["bad"], [], replace(index, run_backend=None))

    assert json.loads((tmp_path / WITNESS).read_text())["variables"] == ""


def test_what_a_backend_states_elsewhere_is_resolved(tmp_path: Path, index: Index) -> None:
    """And the newest version is locked, although an older one has a wheel."""
    files = resolve(["bad"], [], replace(index, run_backend=states("six", "only-old; python_version < '3'")))

    assert [file.file for file in files] == ["bad-1.0.tar.gz", "six-1.0-py3-none-any.whl"]
    assert not (tmp_path / WITNESS).exists()


def test_a_backend_cannot_state_another_package(index: Index) -> None:
    assert refusal(BuildError, resolve, ["bad"], [], replace(index, run_backend=states(version="2.0"))) == (
        "error: the source distribution of `bad==1.0` contains bad 2.0\n\n"
        "hint: choose another version of the package\n"
    )


def test_static_metadata_is_read_without_a_backend(tmp_path: Path, index: Index) -> None:
    files = {**hostile("bad", "1.0", tmp_path), "PKG-INFO": STATIC}
    sdist(tmp_path / "index", "bad", "1.0", files)

    assert [file.name for file in resolve(["bad"], [], index)] == ["bad", "six"]
    assert not (tmp_path / WITNESS).exists()


def test_a_package_alone_needs_no_metadata(tmp_path: Path, index: Index) -> None:
    [file] = resolve(["bad"], [], index, alone=True)

    assert file.file == "bad-1.0.tar.gz"
    assert not (tmp_path / WITNESS).exists()


def test_build_requirements_are_wheels(index: Index) -> None:
    [file] = resolve(["bad"], [], index, only_wheels=True)

    assert file.file == "bad-0.9-py3-none-any.whl"


@pytest.mark.parametrize(
    "report",
    [
        "",
        "[]",
        '{"install": []}',
        '{"install": [{"metadata": {"name": "bad"}}]}',
        '{"install": [{"metadata": {"name": "bad", "version": "1", "requires_dist": ["a b"]}}]}',
        '{"install": [{"metadata": {"name": "bad", "version": "1", "requires_python": "\\n[x]"}}]}',
        '{"install": [{"metadata": {"name": ["bad"], "version": "1"}}]}',
    ],
)
def test_invalid_metadata_of_a_backend_is_an_error(report: str) -> None:
    with pytest.raises(BuildError, match="states invalid metadata"):
        build_backend._metadata("bad==1.0", report)


@pytest.mark.parametrize(
    ("line", "requirement"),
    [
        ("ERROR: No matching distribution found for cython >=3", "cython>=3"),
        ("No matching distribution found for x @ file:///etc/x.zip", ""),
        ("No matching distribution found for --index-url=http://x.example", ""),
        ("No matching distribution found for -r /etc/passwd", ""),
        ("something else", ""),
    ],
)
def test_what_a_log_calls_missing_is_a_project_of_an_index(line: str, requirement: str) -> None:
    assert build_backend._missing(f"x\n{line}\ny\n") == requirement


@pytest.mark.parametrize(
    ("project", "requires"),
    [
        (None, ("setuptools>=40.8.0", "wheel")),
        ("[tool.x]", ("setuptools>=40.8.0", "wheel")),
        ('[build-system]\nrequires = ["a>=1", "b"]', ("a>=1", "b")),
        ("[build-system]\nrequires = []", ()),
        ('[build-system]\nrequires = ["a", "b @ file:///etc/x.zip", "--index-url=http://x.example"]', ("a",)),
        ("no toml", ("setuptools>=40.8.0", "wheel")),
    ],
)
def test_build_requirements_are_read_from_the_archive(
    tmp_path: Path, project: str | None, requires: tuple[str, ...]
) -> None:
    files = {"sub/pyproject.toml": "[build-system]\nrequires = ['x']"}
    file = sdist(tmp_path, "bad", "1.0", files if project is None else {**files, "pyproject.toml": project})

    assert build_backend._build_requires(file) == requires


def test_metadata_of_a_package_that_is_built_with_a_framework_is_read_from_the_archive(
    tmp_path: Path, index: Index
) -> None:
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: bad\nVersion: 1.0\nRequires-Dist: six\n",
        "pyproject.toml": BUILT_WITH_TORCH,
    }
    archive = sdist(tmp_path, "bad", "1.0", files)
    file = Package(
        "bad", "1.0", sha256(archive), archive.name, archive.stat().st_size, origin=archive.as_uri()
    )
    reports: list[str] = []
    backends = build_backend.Backends(open_workspace(HOME), reports.append, lambda _: None)

    metadata = backends.run("bad==1.0", file, index)

    assert metadata == Metadata("bad", "1.0", ("six",), "", ("ninja", "Torch>=2.1"))
    assert reports == [
        "bad==1.0 is built with torch: its backend does not run, and the metadata in its archive is taken"
    ]


@pytest.mark.parametrize(
    ("requires", "framework"),
    [
        (("ninja", "Torch>=2.1"), "torch"),
        (("tensorflow-cpu",), "tensorflow-cpu"),
        (("torch; sys_platform == 'win32'", "numpy"), None),
        (("torch; platform_system == 'Linux'",), "torch"),
    ],
)
def test_a_package_is_built_with_the_framework_that_its_build_needs_on_linux(
    requires: tuple[str, ...], framework: str | None
) -> None:
    assert build_backend._framework(requires, open_workspace(HOME).catalog) == framework


def test_a_backend_runs_if_the_archive_states_no_requirements(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n",
        "pyproject.toml": BUILT_WITH_TORCH,
    }
    archive = sdist(tmp_path, "bad", "1.0", files)
    file = Package("bad", "1.0", sha256(archive), archive.name, 1, origin=archive.as_uri())
    monkeypatch.setattr(locked_base, "ensure_with", started)
    backends = build_backend.Backends(open_workspace(HOME), lambda _: None, lambda _: None)

    with pytest.raises(RuntimeError, match="started"):
        backends.run("bad==1.0", file, index)


def test_a_backend_runs_once_for_all_later_locks(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = sdist(tmp_path, "bad", "1.0", {"PKG-INFO": STATIC})
    report = {"install": [{"metadata": {"name": "bad", "version": "1.0", "requires_dist": ["six"]}}]}
    runs: list[str] = []

    def run_step(requirement: str, *_: object) -> dict[str, str]:
        runs.append(requirement)
        return {"report.json": json.dumps(report)}

    monkeypatch.setattr(locked_base, "ensure_with", lambda *_: None)
    monkeypatch.setattr(build_backend, "run_step", run_step)
    monkeypatch.setattr(build_backend, "_wheels", lambda *_: ())
    workspace = open_workspace(HOME)
    project = replace(workspace.project, cache_directory=tmp_path / "files")

    def metadata() -> Metadata:
        file = Package("bad", "1.0", sha256(archive), archive.name, 1, origin=archive.as_uri())
        backends = build_backend.Backends(replace(workspace, project=project), lambda _: None, lambda _: None)
        return backends.run("bad==1.0", file, index)

    assert [metadata(), metadata()] == [
        Metadata("bad", "1.0", ("six",), "", build_backend._DEFAULT_REQUIRES)
    ] * 2
    assert runs == ["bad==1.0"]
    for kept in (tmp_path / "files/.metadata").iterdir():
        kept.write_text("{}")
    metadata()
    archive.write_bytes(archive.read_bytes() + b"0")
    metadata()
    assert len(runs) == 3


def started(*_: object) -> None:
    message = "started"
    raise RuntimeError(message)
