"""The import contract: layers of packages, and which of them may use an outside package or run programs."""

import ast
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from importlinter import cli
from packaging.requirements import Requirement

from bakehouse.catalog.project import HOME
from tests.support.syntax import statements, tree

CLIENTS = {
    "boto3": {"util", "fetch", "ledger", "sagemaker"},
    "botocore": {"util", "fetch", "ledger", "jobs", "sagemaker"},
    "cryptography": {"trust"},
    "cyclonedx": {"trust"},
    "debian": {"util", "fetch", "commands/security"},
    "docker": {"engine", "registry"},
    "elftools": {"builder"},
    "jinja2": {"commands/ci", "plan", "commands/report"},
    "msgspec": {"util"},
    "packageurl": {"fetch", "trust", "commands/security"},
    "packaging": {
        "jobs",
        *("catalog", "resolve", "plan", "fetch", "lock", "builder", "trust", "ledger", "maintain"),
        *("commands/dockerfile_import", "commands/security", "commands/update"),
    },
    "deflate": {"registry"},
    "requests": {"engine"},
    "ruamel": {"commands/update"},
    "zstandard": {"util", "engine", "registry"},
    "urllib3": {"fetch"},
    "uv": {"fetch", "lock"},
    "yaml": {"util"},
}
"""Outside packages, each with the packages of Bakehouse that may import it."""

SLOW = {
    *("boto3", "botocore", "cryptography", "cyclonedx", "deflate", "docker", "jinja2", "msgspec"),
    *("requests", "urllib3", "zstandard"),
}
"""Packages that are imported in functions, so that a task that does not need them starts quickly."""

PROGRAMS = {
    *("util", "catalog", "fetch", "engine", "registry", "layers", "lock", "cluster"),
    *("maintain", "commands/dockerfile_import"),
}
"""Packages that may run other programs."""

PACKAGE = HOME / "bakehouse"
MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" and path.parent.name != "probes"
)


@cache
def imports(tree: ast.AST) -> tuple[str, ...]:
    """Return the top-level package of each import."""
    names: list[str] = []
    for node in statements(tree):
        if isinstance(node, ast.Import):
            names += (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module.partition(".")[0])
    return tuple(names)


def package(path: Path) -> str:
    """Return the package of Bakehouse that a module belongs to; a command is one."""
    parts = path.relative_to(PACKAGE).parts
    return "/".join(parts[: 1 + (parts[0] == "commands")]).removesuffix(".py")


def test_packages_import_only_from_lower_layers(capsys: pytest.CaptureFixture[str]) -> None:
    broken = cli.lint_imports(config_filename=str(HOME / "pyproject.toml"), no_cache=True)

    assert not broken, capsys.readouterr().out


def test_each_outside_package_is_imported_only_by_its_clients() -> None:
    outside = {
        (name, package(path))
        for path in MODULES
        for name in imports(tree(path))
        if name not in sys.stdlib_module_names and name != "bakehouse"
    }

    assert outside == {(name, client) for name, clients in CLIENTS.items() for client in clients}


def test_one_client_sends_http_requests() -> None:
    """Docker's SDK and boto3 have their own clients; `requests` has the exceptions of that SDK."""
    harmless = {"url2pathname", "proxy_bypass_environment"}
    modules = {
        (name, str(path.relative_to(PACKAGE)))
        for path in MODULES
        for name in imports(tree(path))
        if name in ("aiohttp", "httpx", "requests", "urllib3")
    }
    standard = [
        (str(path.relative_to(PACKAGE)), node.lineno)
        for path in MODULES
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Import) and {"urllib.request", "http.client"} & {a.name for a in node.names})
        or (isinstance(node, ast.ImportFrom) and node.module == "http.client")
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "urllib.request"
            and {alias.name for alias in node.names} - harmless
        )
    ]

    assert modules == {
        ("requests", "engine/docker_container.py"),
        ("requests", "engine/docker_errors.py"),
        ("urllib3", "fetch/checked_connection.py"),
        ("urllib3", "fetch/faults.py"),
        ("urllib3", "fetch/http_client.py"),
    }
    assert standard == []


def test_simulators_of_aws_are_for_tests_only() -> None:
    simulators = {"moto", "flask", "flask_cors", "werkzeug"}
    paths = [*PACKAGE.rglob("*.py"), HOME / "tasks.py", *HOME.glob("recipes/components/*/smoke.py")]
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    names = {Requirement(line).name for line in project["dependencies"]}

    assert [path for path in paths if simulators & {*imports(tree(path))}] == []
    assert names & simulators == set()
    assert "moto" in {Requirement(line).name for line in project["optional-dependencies"]["test"]}


def test_each_runtime_dependency_is_imported() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    distributions = packages_distributions()
    used = {name.lower() for package in CLIENTS for name in distributions[package]}
    # A program, which one module starts
    used.add("shfmt-py")

    assert [line for line in project["dependencies"] if Requirement(line).name.lower() not in used] == []


def test_slow_packages_are_imported_where_they_are_used() -> None:
    early = [
        (str(path.relative_to(HOME)), name)
        for path in MODULES
        for node in tree(path).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in imports(node)
        if name in SLOW
    ]

    assert early == []


def test_only_some_packages_run_programs() -> None:
    assert {package(path) for path in MODULES if "subprocess" in imports(tree(path))} == PROGRAMS


def test_only_one_module_runs_docker_buildx() -> None:
    running = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if "buildx" in path.read_text(encoding="utf-8")
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.List, ast.Tuple))
        and {"docker", "buildx"} <= {item.value for item in node.elts if isinstance(item, ast.Constant)}
    }

    assert running == {"engine/buildx.py"}


def test_scripts_that_run_in_images_do_not_import_bakehouse() -> None:
    paths = [*PACKAGE.glob("probes/*.py"), *HOME.glob("recipes/components/*/smoke.py")]

    assert len(paths) > 10
    assert [path.name for path in paths if "bakehouse" in imports(tree(path))] == []


def test_packages_start_empty() -> None:
    starts = {path: tree(path).body for path in PACKAGE.glob("*/**/__init__.py")}

    assert [str(path) for path, body in starts.items() if len(body) > 1] == []
