"""Settings of all tests, and fixtures with a small catalogue in a temporary directory."""

import contextlib
import os
import signal
from pathlib import Path

import hypothesis
import pytest

from tests.support.trees import COMPONENTS, IMAGE, TEMPLATE, Tree

pytest_plugins = ["tests.support.plugin", "tests.support.counts"]

# The local registry ends with the last process that uses it. Tests of `push` would leave theirs running.
os.environ["BAKEHOUSE_KEEP_REGISTRY"] = "0"
# `./bake test` sets the name of the command that messages show.
os.environ.pop("BAKEHOUSE_COMMAND", None)

# A shell's background job ignores interrupts, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The pure tests are run at every change: a third of hypothesis's default is what they have time for.
# On a busy machine an example may be slow; time is not what these tests are about.
hypothesis.settings.register_profile(
    "quick",
    max_examples=33,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("quick")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A directory without recipes. It is the current directory, so messages contain paths relative to it."""
    monkeypatch.chdir(tmp_path)
    return Tree(tmp_path)


@pytest.fixture
def tree(empty: Tree) -> Tree:
    """Four components and an image."""
    for name, text in COMPONENTS.items():
        is_base = name == "debian"
        empty.component(name, text, None if is_base else TEMPLATE.format(name=name))
    empty.image(IMAGE)
    return empty


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop registries that a test left running, and fail."""
    factory = getattr(session.config, "_tmp_path_factory", None)
    if factory is None or hasattr(session.config, "workerinput"):
        return
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = entry.read_bytes().decode(errors="replace")
            if "registry_keeper" in command and f"{factory.getbasetemp()}/" in command:
                os.kill(int(entry.parent.name), signal.SIGTERM)
                print(f"\na test left a registry running: {command.split(chr(0))[3]}")
                session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the expected answers anew")
