"""Programs that Bakehouse starts on the machine of its user: docker, git, uv, and a few for special tasks."""

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from bakehouse.catalog.project import HOME
from tests.support import syntax

PACKAGE = HOME / "bakehouse"
STARTERS = {
    *("run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"),
    *("system", "popen", "execv", "execve", "execvp", "execvpe", "execl", "execlp", "posix_spawn", "fork"),
    *("spawnv", "spawnvp", "create_subprocess_exec", "create_subprocess_shell", "forkpty", "spawn"),
}
MODULES = {"subprocess", "os", "asyncio", "pty", "multiprocessing"}
PROGRAMS = {
    # What each command may need
    "catalog/git_history.py": {"git"},
    "commands/dockerfile_import/shell.py": {"shfmt"},
    "engine/daemon_info.py": {"docker", "nvidia-smi"},
    "engine/docker.py": {"docker"},
    "engine/docker_container.py": {"docker"},
    "layers/wheel_layout.py": set(),
    "lock/interpreter.py": {"uv", "python"},
    "lock/project_locks.py": {"uv"},
    "lock/python.py": {"uv"},
    "fetch/pip_config.py": {"uv"},
    "fetch/sources.py": {"uv"},
    "registry/local_registry.py": {"docker", "python"},
    "registry/registry_keeper.py": {"docker"},
    "util/git.py": {"git"},
    "util/process.py": {"docker", "setpriv"},
    # Where the user selects them
    "cluster/smoke_runners.py": {"docker", "ssh"},
    "fetch/credentials.py": {"keyring"},
    # To install and start an engine where none is
    "engine/apt_install.py": {"apt-get", "dpkg-query"},
    "engine/dockerd.py": {"dockerd", "ip"},
    "engine/metadata_service.py": {"ip", "nsenter"},
    "engine/provision.py": {"apt-get", "docker", "dockerd"},
}
"""The programs of each module that starts some; `docker` starts buildx, and `ssh` for such contexts."""
OF_DEBIAN = {
    "apt",
    "apt-get",
    "apt-cache",
    "apt-config",
    "dpkg",
    "dpkg-deb",
    "dpkg-query",
    "gpg",
    "gpgv",
    "mmdebstrap",
}
"""Programs that most hosts do not have."""


@cache
def trees() -> dict[str, ast.Module]:
    """Return the modules of commands of users, without tools of maintainers and scripts of images."""
    paths = (path for path in PACKAGE.rglob("*.py") if not {"maintain", "probes"} & {*path.parts})
    return {path.relative_to(PACKAGE).as_posix(): syntax.tree(path) for path in paths}


def starts(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that start a program."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=attr)):
                if module in MODULES and attr in STARTERS:
                    yield node.lineno
            case ast.Call(func=ast.Name(id="start_service")):
                yield node.lineno
            case ast.ImportFrom(module=module) if module in MODULES:
                if STARTERS & {alias.name for alias in node.names}:
                    yield node.lineno


def commands(tree: ast.AST) -> Iterator[str]:
    """Yield the first words of lists and calls that could be commands."""
    for node in ast.walk(tree):
        words: list[ast.expr] = []
        if isinstance(node, (ast.List, ast.Tuple)):
            words = node.elts
        elif isinstance(node, ast.Call):
            words = node.args
        if words and isinstance(words[0], ast.Starred) and isinstance(words[0].value, (ast.List, ast.Tuple)):
            words = words[0].value.elts
        if words and isinstance(words[0], ast.Constant) and isinstance(words[0].value, str):
            yield words[0].value


def test_each_module_that_starts_programs_names_them() -> None:
    assert {name for name, tree in trees().items() if [*starts(tree)]} == PROGRAMS.keys()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_module_starts_the_programs_that_it_names_alone(name: str) -> None:
    known = {program for programs in PROGRAMS.values() for program in programs} | OF_DEBIAN
    assert {*commands(trees()[name])} & known <= PROGRAMS[name]


def test_programs_of_debian_only_install_an_engine() -> None:
    modules = {name for name, programs in PROGRAMS.items() if programs & OF_DEBIAN}
    assert modules == {"engine/apt_install.py", "engine/provision.py"}
    callers = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "bakehouse.engine.apt_install"
    }
    assert callers == {"engine/provision.py", "engine/engine_removal.py"}


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run(['gpg'])",
        "with subprocess.Popen(command): pass",
        "os.execv(program, words)",
        "from subprocess import check_output",
        "asyncio.create_subprocess_exec('gpg')",
    ],
)
def test_a_start_is_found(code: str) -> None:
    assert [*starts(ast.parse(code))]


@pytest.mark.parametrize(
    "code", ["run(['gpg', '-k'])", "command = ('gpg', '-k')", "ask('gpg', '-k')", "[*('gpg',)]"]
)
def test_a_command_is_found(code: str) -> None:
    assert "gpg" in [*commands(ast.parse(code))]
    assert "gpg" not in [*commands(ast.parse("text = 'gpg'"))]
