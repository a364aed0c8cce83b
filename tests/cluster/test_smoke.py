"""Smoke tests: selection of checks, and their results."""

import hashlib
import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.verify import Outcome
from bakehouse.cluster import smoke as running
from bakehouse.cluster.smoke import smoke
from bakehouse.cluster.smoke_report import CheckResult, SmokeReport
from bakehouse.engine.protocol import ContainerSpec
from bakehouse.errors import SmokeError, UsageError
from bakehouse.plan.model import InstalledComponent
from bakehouse.util import terminal
from tests.support.errors import refusal
from tests.support.fake_engine import CONTENT, FakeEngine, Run, answers, built, image

STEPS = ("started", "arrived", "finished")


def good(spec: ContainerSpec) -> Run:
    """Return a container of a working image."""
    if spec.command[0] == "sh":
        return Run(prints="train\ntoolkit\n")
    if not spec.hostname:
        return answers(spec) or Run()
    if "train-failure" in spec.network:
        arrived = b'{"rank": 0, "host": "algo-1", "step": "arrived", "at": 1.0}\n'
        ranks = {"/opt/ml/output/data/ranks/all.jsonl": arrived}
        return Run(exit_code=1, files={**ranks, "/opt/ml/output/failure": b"Framework Error"})
    first = 2 if spec.hostname == "algo-2" else 0
    notes = "".join(
        f'{{"rank": {rank}, "host": "{spec.hostname}", "step": "{step}", "at": 1.0}}\n'
        for rank in (first, first + 1)
        for step in STEPS
    )
    left = {
        "/opt/ml/output/success": b"",
        "/opt/ml/model/model.json": b"{}",
        "/opt/ml/output/data/ranks/all.jsonl": notes.encode(),
    }
    return Run(files=left)


def test_a_good_image_passes(tmp_path: Path) -> None:
    messages: list[str] = []

    report = smoke(FakeEngine(good), built(image()), tmp_path, report=messages.append)

    assert report.passed
    assert (report.image, report.content, report.transport) == ("mpi-cpu", CONTENT, "mpi")
    outcomes = {check.name: check.outcome for check in report.checks}
    assert {name for name, outcome in outcomes.items() if outcome is not Outcome.PASSED} == {
        *("components.contents", "components.libraries")
    }
    assert {"mpi_2x2", "train_success", "no_private_keys"} <= outcomes.keys()
    assert all(check.key and check.date == report.date for check in report.checks)
    assert {"components: 0 of 2 checks", "mpi_2x2", "no_private_keys"} <= {
        line.partition(" passed")[0] for line in messages if " passed in " in line
    }


def test_verbose_reports_the_start_of_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_is_verbose", True)
    messages: list[str] = []

    smoke(FakeEngine(good), built(image()), tmp_path, report=messages.append)

    assert {"components started", "mpi_2x2 started", "no_private_keys started"} <= {*messages}


def test_results_that_passed_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    results = (
        CheckResult("components.a", Outcome.PASSED, 1.0),
        CheckResult("components.b", Outcome.FAILED, 2.0, reason="no file"),
        CheckResult("components.c", Outcome.PASSED, 3.0),
    )

    assert running._lines("components", results, 6.0) == [
        "components.b failed in 2.0 s: no file",
        "components: 2 of 3 checks passed in 6.0 s",
    ]
    assert running._lines("components.a", results[:1], 6.0) == ["components.a passed in 1.0 s"]
    monkeypatch.setattr(terminal, "_is_verbose", True)
    assert len(running._lines("components", results, 6.0)) == 3


def test_checks_that_take_long_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SILENT_SECONDS", 0.1)
    release = threading.Event()
    messages: list[str] = []

    def slow() -> tuple[CheckResult, ...]:
        release.wait(20)
        return (CheckResult("slow", Outcome.PASSED, 1.0),)

    def report(line: str) -> None:
        messages.append(line)
        if line.startswith("still running"):
            release.set()

    running._run_all(FakeEngine(good), {"slow": slow}, report, waiting=0)

    assert re.fullmatch(r"still running: slow \(0\.\d s\)", messages[0])
    assert messages[-1] == "slow passed in 1.0 s"


def test_an_image_without_ranks_reports_no_transport(tmp_path: Path) -> None:
    report = smoke(FakeEngine(good), built(image(launchers=())), tmp_path)

    assert (report.passed, report.transport) == (True, "none")


def test_code_that_the_image_contains_is_not_started_by_checks(tmp_path: Path) -> None:
    def has_code(spec: ContainerSpec) -> Run:
        return Run(prints="train\ntoolkit\ncode\n") if spec.command[0] == "sh" else good(spec)

    engine = FakeEngine(has_code)
    smoke(engine, built(image()), tmp_path, only=["train_success"])

    assert "/opt/ml/code/train_ok.py" in engine.specs[-1].files


def test_an_image_without_train_can_pass(tmp_path: Path) -> None:
    def has_no_train(spec: ContainerSpec) -> Run:
        return Run() if spec.command[0] == "sh" else good(spec)

    report = smoke(FakeEngine(has_no_train), built(image()), tmp_path)

    assert report.passed
    assert {"mpi_2x2", "train_success"} <= {
        check.name for check in report.checks if check.reason == "the image contains no `train`"
    }


def test_a_private_key_fails_the_image(tmp_path: Path) -> None:
    keys = {"/root/.ssh/id_rsa": b"-----BEGIN OPENSSH PRIVATE KEY-----\n", "/etc/ssh/sshd_config": b""}

    report = smoke(
        FakeEngine(lambda spec: Run(files=keys)), built(image()), tmp_path, only=["no_private_keys"]
    )

    assert report.checks[0].reason == "the image contains private keys: `/root/.ssh/id_rsa`"
    assert not report.passed


def test_private_keys_of_the_base_are_no_failure(tmp_path: Path) -> None:
    key = b"-----BEGIN OPENSSH PRIVATE KEY-----\n"
    engine = FakeEngine(lambda spec: Run(files={"/etc/ssh/ssh_host_rsa_key": key}))
    base_keys = [hashlib.sha256(key).hexdigest()]

    report = smoke(engine, built(image()), tmp_path, only=["no_private_keys"], base_keys=base_keys)

    assert report.passed


LONG_CHECK = "def installed(): return '1.0'\n\ndef long_check_compiles(): pass\n"


def test_a_long_check_runs_only_if_it_is_named(tmp_path: Path) -> None:
    (smoke_file := tmp_path / "smoke.py").write_text(LONG_CHECK)
    part = InstalledComponent("pytorch", "1.0", "", smoke_file)
    outcomes = {"": "not tested", "compiles": "passed"}

    def answered(spec: ContainerSpec) -> Run:
        if "/run/bakehouse/checks.py" not in spec.command:
            return good(spec)
        long_check = spec.command[spec.command.index("--long") + 1] if "--long" in spec.command else ""
        check = {"component": "pytorch", "check": "compiles", "outcome": outcomes[long_check]}
        lines = [{"component": "pytorch", "installed": "1.0"}, check]
        return Run(prints="".join(f"{json.dumps(line)}\n" for line in lines))

    engine = FakeEngine(answered)
    first = smoke(engine, built(image(parts=(part,))), tmp_path)
    again = smoke(engine, built(image(parts=(part,))), tmp_path, only=["components.pytorch.compiles"])

    name = "components.pytorch.compiles"
    assert [check.outcome for check in first.checks if check.name == name] == [Outcome.NOT_TESTED]
    assert [check.outcome for check in again.checks if check.name == name] == [Outcome.PASSED]
    assert [check.name for check in again.checks] == [name]
    assert engine.specs[-1].command[-1] == "pytorch=/run/bakehouse/smoke/pytorch.py"


def test_a_long_check_without_an_answer_fails(tmp_path: Path) -> None:
    (smoke_file := tmp_path / "smoke.py").write_text(LONG_CHECK)
    part = InstalledComponent("pytorch", "1.0", "", smoke_file)
    name = "components.pytorch.compiles"

    report = smoke(FakeEngine(good), built(image(parts=(part,))), tmp_path, only=[name])

    assert [(check.name, check.outcome) for check in report.checks] == [(name, Outcome.FAILED)]
    assert report.checks[0].reason == "it gave no answer"


def test_logs_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    stale = tmp_path / "smoke/mpi-cpu/train_success/algo-9-rank-70.log"
    stale.parent.mkdir(parents=True)
    stale.write_text("")

    smoke(FakeEngine(good), built(image()), tmp_path, only=["train_success"])

    assert [path.name for path in stale.parent.iterdir()] == ["algo-1.log"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("mpi_2x", "did you mean `mpi_2x2`?"), ("zzz", "use one of `checkpoints`, `components`, ")],
)
def test_an_unknown_check_is_an_error_with_suggestions(tmp_path: Path, name: str, hint: str) -> None:
    message = f"error: `mpi-cpu` has no check `{name}`\n\nhint: {hint}"
    told = refusal(UsageError, smoke, FakeEngine(good), built(image()), tmp_path, only=[name])
    assert told.startswith(message)


def test_an_interrupted_run_removes_its_containers(tmp_path: Path) -> None:
    engine = FakeEngine(good)

    def interrupted(line: str) -> None:
        if "passed" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        smoke(engine, built(image()), tmp_path, report=interrupted)

    assert engine.closed


def test_a_report_without_tests_is_not_a_pass() -> None:
    assert not SmokeReport("mpi-cpu", CONTENT, "mpi", ()).passed


def test_a_rehearsed_image_is_not_tried(tmp_path: Path) -> None:
    engine = FakeEngine(good)

    with pytest.raises(
        SmokeError, match="rehearsed, not built, so it contains stubs and cannot be smoke-tested"
    ):
        smoke(engine, replace(built(image()), is_rehearsed=True), tmp_path)

    assert engine.specs == []
