"""The `test` task runs tests without an engine next to those with one."""

import shutil
import sys
import tempfile
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bakehouse.cli import selftest
from bakehouse.engine import daemon_info, provision
from tests.cli.test_doctor import ENGINE


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "ensure", lambda *arguments: None)
    monkeypatch.setattr(provision, "ensure_tools", lambda *arguments: None)
    monkeypatch.setattr(daemon_info, "probe", lambda: replace(ENGINE, data_root="/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda directory: SimpleNamespace(free=10**12))
    monkeypatch.setattr(selftest, "_LINTERS", {"types": python("pass")})
    monkeypatch.setattr(selftest, "_PURE_TESTS", python("print('3 passed')"))
    monkeypatch.setattr(selftest, "_ENGINE_TESTS", python("pass"))


def names(messages: list[str]) -> list[str]:
    return [message.removeprefix("--- ").rpartition(" in ")[0] or message for message in messages]


@pytest.mark.usefixtures("commands")
def test_the_output_of_tests_without_an_engine_follows_at_the_end(
    capfd: pytest.CaptureFixture[str],
) -> None:
    messages: list[str] = []

    selftest.run(messages.append, pure=False, projects=False)

    assert names(messages) == [
        "--- types",
        "types: passed",
        "--- tests without an engine: started, the output follows",
        "--- tests with an engine",
        "tests with an engine: passed",
        "--- tests without an engine",
        "tests without an engine: passed",
    ]
    assert capfd.readouterr().out == "3 passed\n"


@pytest.mark.usefixtures("commands")
def test_a_failed_check_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PURE_TESTS", "_ENGINE_TESTS"):
        monkeypatch.setattr(selftest, name, python("raise SystemExit(1)"))
    messages: list[str] = []

    with pytest.raises(selftest.SelfTestError) as caught:
        selftest.run(messages.append, pure=False, projects=False)

    assert caught.value.diagnostics[0].message == "failed: tests with an engine, tests without an engine"


@pytest.mark.usefixtures("commands")
def test_without_an_engine_the_tests_follow_the_linters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_ENGINE_TESTS", python("raise SystemExit(1)"))
    messages: list[str] = []

    selftest.run(messages.append, pure=True, projects=False)

    assert names(messages) == [
        "--- types",
        "types: passed",
        "--- tests without an engine",
        "tests without an engine: passed",
    ]


@pytest.mark.usefixtures("commands")
def test_little_space_on_the_disk_is_reported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda directory: SimpleNamespace(free=2_000_000_000))
    messages: list[str] = []

    selftest.run(messages.append, pure=False, projects=False)

    assert [message for message in messages if message.startswith("warning")] == [
        f"warning: {tempfile.gettempdir()} has 2.00 GB of free space, but these tests need up to 3.00 GB",
        "warning: / has 2.00 GB of free space, but these tests need up to 25.00 GB",
    ]
    assert messages[0].startswith("warning")
