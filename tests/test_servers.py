"""Every server that Bakehouse opens is in the table of the page on security."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME
from tests.support.documents import table_rows

PAGE = HOME / "docs/explanation/security.md"
LISTENERS = re.compile(
    r"(?:\w*(?:HTTP|TCP|UDP|Datagram|Stream|XMLRPC|WSGI|Moto|Flask)\w*Server|create(?:_unix)?_server|"
    r"start(?:_unix)?_server|make_server|serve_forever|run_simple|\.bind|\.listen)"
)
"""Functions and classes that open a server."""
PUBLISHING = {"ports", "publish_all_ports", "network_mode", "port_bindings"}
"""Arguments of the docker SDK that open a port of this machine."""
OPTIONS = re.compile(r"--publish(?:-all)?(?:=.*)?|--net(?:work)?=host")
"""Options of `docker run` that do. The short ones have other meanings in other programs."""
PROGRAMS = {
    "bakehouse/engine/docker_container.py": "docker start, which ends with the shell",
    "bakehouse/maintain/selftest.py": "pytest",
    "bakehouse/cluster/smoke_runners.py": "docker run and ssh",
    "bakehouse/probes/checks.py": "scripts of smoke checks",
    "bakehouse/probes/remote_smoke.py": "commands of smoke checks",
    "bakehouse/util/process.py": "programs that end with their caller",
    "recipes/components/tf-keras/smoke.py": "two workers, for which the check waits",
}
"""Modules that start other programs in the background."""


_STARTING = re.compile(
    "Popen|start_service|create_subprocess_exec|spawnl|start_new_session|setsid|nohup|--detach"
)


@cache
def modules() -> dict[str, str]:
    """Return the Python code of Bakehouse and of its images by path. Examples are code of users."""
    return {path.relative_to(HOME).as_posix(): path.read_text() for path in (HOME / "tasks.py", *scripts())}


def scripts() -> Iterator[Path]:
    """Yield the Python files below some directories; some have no suffix."""
    for directory in ("bakehouse", "recipes", "templates"):
        for path in (HOME / directory).rglob("*"):
            first_line = path.read_bytes().split(b"\n", 1)[0] if path.is_file() and not path.suffix else b""
            if path.suffix == ".py" or b"python" in first_line:
                yield path


def servers(code: str) -> Iterator[str]:
    """Yield the server constructors and published ports of a module."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        names: list[ast.expr] = []
        if isinstance(node, ast.Call):
            names = [node.func]
            yield from (word.arg for word in node.keywords if word.arg in PUBLISHING)
        elif isinstance(node, ast.ClassDef):
            names = node.bases
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and OPTIONS.fullmatch(node.value):
            yield node.value
        for name in names:
            # Sockets have the methods `bind` and `listen`.
            words = (name.attr, f".{name.attr}") if isinstance(name, ast.Attribute) else (ast.unparse(name),)
            yield from (word for word in words if LISTENERS.fullmatch(word))


def starts_programs(code: str) -> bool:
    """Return whether a module starts a program that may outlive the call."""
    # Most modules contain none of the words, and need no parser.
    nodes = ast.walk(ast.parse(code)) if _STARTING.search(code) else ()
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ("Popen", "create_subprocess_exec", "spawnl"))
        or (isinstance(node, ast.keyword) and node.arg == "start_new_session")
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "start_service")
        or (isinstance(node, ast.Constant) and node.value in ("setsid", "nohup", "--detach"))
        for node in nodes
    )


@cache
def opening() -> frozenset[str]:
    return frozenset(name for name, code in modules().items() if [*servers(code)])


@cache
def starting() -> frozenset[str]:
    return frozenset(name for name, code in modules().items() if starts_programs(code))


@pytest.fixture(scope="module")
def listed() -> set[str]:
    """The code that the table names."""
    section = PAGE.read_text().partition("\n## Servers\n")[2].partition("\n## ")[0]
    rows = [row for row in table_rows(section) if len(row) == 6][1:]

    assert all(cell for row in rows for cell in row)
    return {path for row in rows for path in re.findall("`([^`]+)`", row[1])}


def test_the_table_names_each_module_that_listens(listed: set[str]) -> None:
    assert "bakehouse/builder/file_server.py" in opening()
    assert opening() - listed == set()


def test_the_table_names_each_module_that_starts_a_server_program(listed: set[str]) -> None:
    assert starting() - listed == PROGRAMS.keys() - listed
    assert starting() >= PROGRAMS.keys()


def test_only_one_function_starts_programs_that_outlive_their_caller() -> None:
    """It gives them an environment of their own."""
    detached = {
        name
        for name, code in modules().items()
        for node in ast.walk(ast.parse(code))
        if (isinstance(node, ast.keyword) and node.arg in ("start_new_session", "process_group"))
        or (isinstance(node, ast.Constant) and node.value in ("setsid", "nohup"))
    }

    assert detached == {"bakehouse/util/process.py", "bakehouse/probes/remote_smoke.py"}, (
        "the latter is a container's"
    )


def test_the_table_names_no_other_code(listed: set[str]) -> None:
    assert [name for name in listed if not (HOME / name).is_file()] == []
    # It starts its engine with the functions of `dockerd`.
    assert listed - opening() - starting() == {"bakehouse/maintain/isolated_engine.py"}


@pytest.mark.parametrize(
    "code",
    [
        "http.server.ThreadingHTTPServer(address, handler)",
        "class Mine(socketserver.TCPServer): pass",
        "with create_server(('', 1)): pass",
        "await asyncio.start_server(answer, host, 0)",
        "peer.bind(('', 1))",
        "ThreadedMotoServer(port=0)",
        "client.containers.run(image, ports={80: 80})",
        "command = ['docker', 'run', '--publish', '80:80']",
    ],
)
def test_a_server_is_found(code: str) -> None:
    assert [*servers(code)] if "await" not in code else [*servers(f"async def f():\n    {code}")]


def test_a_detached_program_is_found() -> None:
    assert starts_programs("subprocess.Popen(['dockerd'])")
    assert starts_programs("subprocess.run(['setsid', 'dockerd'])")
    assert starts_programs("start_service(['dockerd'], output)")
    assert not starts_programs("subprocess.run(['true'])")
