"""The `test` task runs tests without an engine next to those with one, and reports their numbers."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cli import main
from bakehouse.engine import docker, provision
from bakehouse.engine.protocol import EngineHost
from bakehouse.maintain import seconds, selftest
from tests.support.data import text_of
from tests.support.fake_engine import FakeEngine, Run


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


SECONDS = {"": [9.0, 90.0], "tests/test_a.py::test_slow": [4.567, 45.0], "tests: fixture fleet": [0.2, 8.0]}


def report_of(selected: int, passed: int = 0, failed: int = 0, **skipped: int) -> tuple[str, ...]:
    """Return a command that ends with a report, as pytest does with `--counts`."""
    numbers = {"selected": selected, "passed": passed, "failed": failed, "skipped": skipped}
    numbers["seconds"] = SECONDS
    program = f"import sys; print('output'); open(sys.argv[1][9:], 'w').write({json.dumps(numbers)!r})"
    return python(f"{program}; sys.exit({bool(failed)})")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(seconds, "RECORD", tmp_path / "none.json")
    monkeypatch.setattr(provision, "ensure", lambda *arguments: None)
    monkeypatch.setattr(docker, "connect", lambda: FakeEngine(lambda spec: Run()))
    monkeypatch.setattr(shutil, "disk_usage", lambda directory: SimpleNamespace(free=10**12))
    monkeypatch.setattr(selftest, "_LINTERS", {"style": python("pass")})
    monkeypatch.setattr(selftest, "_TYPES", {"types": python("print('types')"), "others": python("pass")})
    monkeypatch.setitem(selftest.TIERS, selftest.PURE, report_of(5, 3, 0, slow=2))
    monkeypatch.setitem(selftest.TIERS, selftest.ENGINE, report_of(4, 4))
    monkeypatch.setattr(selftest, "_COLLECTION", report_of(10))


def names(messages: list[str]) -> list[str]:
    return [message.removeprefix("--- ").rpartition(" in ")[0] or message for message in messages]


@pytest.mark.usefixtures("commands")
def test_the_output_of_checks_follows_when_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = tmp_path / "ended"
    wait = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
    monkeypatch.setitem(selftest.TIERS, selftest.ENGINE, (*python(wait), str(ended)))
    messages: list[str] = []

    def report(message: str) -> None:
        messages.append(message)
        # Tests with an engine run until the others have printed their results.
        if sum(" in " in message for message in messages) == 4:
            ended.touch()

    selftest.run(report)

    order = names(messages)
    assert order[:2] == ["--- style", "style: passed"]
    for name in ("types", "others", "tests without an engine"):
        lines = [f"--- {name}: started, the output follows", f"--- {name}", f"{name}: passed"]
        assert [line for line in order if line in lines] == lines
    assert order[-1] == "tests with an engine: failed"
    assert sorted(capfd.readouterr().out.split()) == ["output", "types"]


@pytest.mark.usefixtures("commands")
@pytest.mark.parametrize("pure", [False, True])
def test_a_failed_type_check_is_a_failure(monkeypatch: pytest.MonkeyPatch, pure: bool) -> None:
    monkeypatch.setattr(
        selftest, "_TYPES", {"types": python("raise SystemExit(1)"), "others": python("pass")}
    )

    assert selftest.run(lambda _: None, pure=pure).failed == ("types",)


@pytest.mark.usefixtures("commands")
def test_a_failed_check_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(selftest.TIERS, selftest.PURE, report_of(2, 1, 1))
    monkeypatch.setitem(selftest.TIERS, selftest.ENGINE, report_of(2, 0, 2))

    summary = selftest.run(lambda _: None)

    assert summary.failed == ("tests with an engine", "tests without an engine")
    assert summary.text().endswith("\n1 passed, 3 failed, 0 skipped\n")


@pytest.mark.usefixtures("commands")
def test_the_numbers_of_each_tier_are_reported() -> None:
    assert selftest.run(lambda _: None).text() == (
        "tests with an engine: 4 passed, 0 failed, 0 skipped; in other tiers: 6\n"
        "tests without an engine: 3 passed, 0 failed, 2 skipped; in other tiers: 5\n"
        "  2 skipped: slow\n"
        "7 passed, 0 failed, 2 skipped\n"
    )


@pytest.mark.usefixtures("commands")
@pytest.mark.parametrize("code", [0, 3])
def test_numbers_of_a_tier_without_a_report_are_not_known(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setitem(selftest.TIERS, selftest.ENGINE, python(f"raise SystemExit({code})"))
    monkeypatch.setattr(selftest, "_COLLECTION", python("pass"))

    summary = selftest.run(lambda _: None)

    assert summary.failed == ("tests with an engine",)
    assert summary.text() == (
        "tests with an engine: not known, because pytest ended without a report\n"
        "tests without an engine: 3 passed, 0 failed, 2 skipped; in other tiers: not known\n"
        "  2 skipped: slow\n"
        "number of passed tests: not known\n"
    )


@pytest.mark.usefixtures("commands")
def test_tests_without_a_result_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(selftest.TIERS, selftest.PURE, report_of(5, 1, 1))

    summary = selftest.run(lambda _: None, pure=True)

    assert summary.text() == (
        "tests without an engine: 1 passed, 1 failed, 0 skipped; in other tiers: 5\n"
        "  3 not known, because the run ended before they did\n"
        "number of passed tests: not known\n"
    )


@pytest.mark.parametrize("failed", [0, 1])
def test_the_last_line_of_the_command_is_the_sum(
    failed: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["ruff check"] * failed
    summary = selftest.Summary(names, {selftest.PURE: selftest.Counts(3, 3)}, 3)
    monkeypatch.setattr(selftest, "run", lambda *arguments, **options: summary)

    assert main.run(["test", "--pure"]) == failed

    out, err = capfd.readouterr()
    assert out.splitlines()[-1] == "3 passed, 0 failed, 0 skipped"
    assert err == "error: failed: ruff check\n" * failed


RUN = text_of(__file__, "run")


@pytest.mark.parametrize("processes", [pytest.param(0, marks=pytest.mark.release), 2])
def test_the_numbers_are_those_of_pytest(tmp_path: Path, processes: int) -> None:
    (tmp_path / "test_run.py").write_text(RUN)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('absent')\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = release\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.counts", f"-n{processes}"]
    environment = {**os.environ, "PYTHONPATH": str(HOME), "PYTEST_ADDOPTS": ""}

    subprocess.run([*command, "--counts=numbers"], cwd=tmp_path, env=environment, capture_output=True)

    numbers = json.loads((tmp_path / "numbers").read_text())
    named = {name: pair for name, pair in numbers.pop("seconds").items() if name}
    assert named.keys() == {"test_run.py: fixture shared", "test_run.py::test_passes"}
    # The test waits for its fixture's second only once, and its child process uses the processor.
    assert named["test_run.py: fixture shared"][0] < 0.5 <= named["test_run.py: fixture shared"][1] < 0.9
    assert named["test_run.py::test_passes"][0] >= 0.5
    assert numbers == {
        "selected": 6,
        "passed": 1,
        "failed": 2,
        "skipped": {
            "no GPU": 1,
            "expected to fail: a bug": 1,
            "could not import 'absent': No module named 'absent'": 1,
        },
    }


def test_a_run_that_crashes_writes_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "test_crash.py").write_text("import os\ndef test_a(): os._exit(0)\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.counts", "--counts=numbers"]
    environment = {**os.environ, "PYTHONPATH": str(HOME), "PYTEST_ADDOPTS": ""}

    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)

    assert result.returncode == 0
    assert not (tmp_path / "numbers").exists()


@pytest.mark.usefixtures("commands")
def test_the_tests_of_a_release_are_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(selftest.TIERS, selftest.RELEASE, report_of(1, 1))
    messages: list[str] = []

    selftest.run(messages.append, release=True)

    assert names(messages) == ["--- tests before a release", "tests before a release: passed"]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(seconds, "RECORD", tmp_path / "seconds.json")
    monkeypatch.setattr(seconds, "PAGE", tmp_path / "slowest.md")
    return tmp_path / "seconds.json"


@pytest.mark.usefixtures("commands")
def test_seconds_of_tiers_that_passed_are_recorded(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selftest.run(lambda _: None)
    assert not record.exists()

    selftest.run(lambda _: None, record=True)

    tiers = json.loads(record.read_text())["tiers"]
    assert {tier: run["seconds"] for tier, run in tiers.items()} == {
        # Seconds of the processor, and elapsed seconds
        selftest.PURE: {"tests/test_a.py::test_slow": 4.6},
        selftest.ENGINE: {"tests/test_a.py::test_slow": 45, "tests: fixture fleet": 8},
    }
    assert (tiers[selftest.PURE]["passed"], tiers[selftest.ENGINE]["passed"]) == (3, 4)
    rows = [row for row in record.with_name("slowest.md").read_text().splitlines() if row.startswith("| ")]
    assert rows == [
        "| seconds | tier | test |",
        "| 45 | tests with an engine | `tests/test_a.py::test_slow` |",
        "| 8 | tests with an engine | `tests: fixture fleet` |",
        "| 4.6 | tests without an engine | `tests/test_a.py::test_slow` |",
    ]

    monkeypatch.setitem(selftest.TIERS, selftest.ENGINE, report_of(4, 3, 1))
    before = record.read_text()
    selftest.run(lambda _: None, record=True)
    assert json.loads(record.read_text())["tiers"][selftest.ENGINE] == tiers[selftest.ENGINE], before


@pytest.mark.usefixtures("commands", "record")
def test_slower_tests_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    selftest.run(lambda _: None, pure=True, record=True)
    slow = {"": [9.0, 9.0], "tests/test_a.py::test_slow": [9.3, 9.0], "tests/test_b.py::test_new": [3, 3]}
    monkeypatch.setitem(globals(), "SECONDS", slow)
    monkeypatch.setitem(selftest.TIERS, selftest.PURE, report_of(5, 5))
    messages: list[str] = []

    selftest.run(messages.append, pure=True)

    assert [message for message in messages if message.startswith("slower")] == [
        "slower than recorded: tests/test_a.py::test_slow: 9.3 s, was 4.6 s",
        "slower than recorded: tests/test_b.py::test_new: 3 s, was below 0.5 s",
    ]


def test_small_changes_keep_the_recorded_seconds() -> None:
    record: seconds.Record = {}
    for value in (10.0, 13.9, 7.1, 14.2):
        record = seconds.merge(record, "tier", seconds={"a": value}, minutes=1, passed=1)
        kept = 14 if value == 14.2 else 10
        assert record["tier"]["seconds"] == {"a": kept}


def test_the_page_of_the_slowest_tests_is_that_of_the_record() -> None:
    assert seconds.PAGE.read_text() == seconds.page(seconds.read())


@pytest.mark.usefixtures("commands")
def test_without_an_engine_types_are_checked_beside_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(selftest.TIERS, selftest.ENGINE, python("raise SystemExit(1)"))
    messages: list[str] = []

    assert selftest.run(messages.append, pure=True).failed == ()

    assert names(messages)[:3] == ["--- style", "style: passed", "--- types: started, the output follows"]
    assert sorted(names(messages)[3:]) == [
        "--- tests without an engine",
        "--- types",
        "tests without an engine: passed",
        "types: passed",
    ]


@pytest.mark.usefixtures("commands")
def test_little_space_on_the_disk_is_reported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda directory: SimpleNamespace(free=2_000_000_000))
    engine = FakeEngine(lambda spec: Run())
    engine.shared = EngineHost(free=2_000_000_000)
    monkeypatch.setattr(docker, "connect", lambda: engine)
    messages: list[str] = []

    selftest.run(messages.append)

    assert [message for message in messages if message.startswith("warning")] == [
        f"warning: {tempfile.gettempdir()} has 2.00 GB of free space, but these tests need up to 3.00 GB",
        "warning: the engine's disk has 2.00 GB of free space, but these tests need up to 25.00 GB",
    ]
    assert messages[0].startswith("warning")
