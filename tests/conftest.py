"""Settings of all tests, and fixtures with a small catalogue in a temporary directory."""

import contextlib
import functools
import os
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from bakehouse.catalog import cache
from bakehouse.catalog.cache import Kept
from bakehouse.catalog.component import Component
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Recipe, RefusalOf
from tests.support.ecr import moto_server
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
    "quick", max_examples=33, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("quick")


@pytest.fixture(scope="session", autouse=True)
def botocore_models() -> Iterator[None]:
    """Models of services that are read once, and not for each session of boto3."""
    import botocore.session  # type: ignore[import-untyped]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
        yield


@pytest.fixture(scope="session", autouse=True)
def own_recipes_in_memory() -> Iterator[None]:
    """Bakehouse's own components and recipes, read, unpickled and pickled once and not for each project."""
    load, pickled, read = Kept.load, cache._pickled, cache.load
    loaded = functools.cache(read)
    known: dict[tuple[int, ...], tuple[object, bytes]] = {}

    @functools.lru_cache(maxsize=4)
    def unpickled(name: str, data: bytes) -> Any:
        return load(Kept({}, {name: data}), name)

    def load_once(kept: Kept, name: str) -> Any:
        is_own = name in ("components", "families")
        return unpickled(name, kept.values[name]) if is_own else load(kept, name)

    def pickle_once(value: object, shared: Collection[int] = ()) -> bytes:
        parts = (*value.values(),) if isinstance(value, dict) else (value,)
        if not all(isinstance(part, (Component, Recipe)) for part in parts):
            return pickled(value, shared)
        key = tuple(map(id, parts))
        if key not in known:
            known[key] = (parts, pickled(value, shared))
        return known[key][1]

    def read_once(
        roots: Sequence[Path], project: Path | None = None, refusal_of: RefusalOf | None = None
    ) -> cache.Loaded:
        is_own = [*roots] == [HOME / "recipes"] and project != HOME
        return loaded((HOME / "recipes",), None, refusal_of) if is_own else read(roots, project, refusal_of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "load", read_once)
        patch.setattr(Kept, "load", load_once)
        patch.setattr(cache, "_pickled", pickle_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def user_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state of a user of these tests alone, such as the images of the local registry."""
    directory = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(directory))
        yield directory / "bakehouse"


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's environment without settings of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    with moto_server() as port:
        yield port


@pytest.fixture
def moto(no_aws: None, moto_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS without AWS, which boto3 in this process takes for AWS."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{moto_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")


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
    # A registry that was stopped removes its network last.
    deadline = time.monotonic() + 5
    while (left := _registries(f"{factory.getbasetemp()}/")) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process, lock in left.items():
        os.kill(process, signal.SIGTERM)
        print(f"\na test left a registry running: {lock}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _registries(below: str) -> dict[int, str]:
    """The processes that keep a registry with its state in a directory, and their locks."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = entry.read_bytes().decode(errors="replace")
            if "registry_keeper" in command and below in command:
                found[int(entry.parent.name)] = command.split(chr(0))[3]
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the expected answers anew")
