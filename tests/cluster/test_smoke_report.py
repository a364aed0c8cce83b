"""Reports stored by digest, and the failures in them."""

import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakehouse import __version__
from bakehouse.builder.verify import Outcome
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster import smoke_report
from bakehouse.cluster.smoke_report import CheckResult, SmokeReport
from bakehouse.errors import Location, SmokeError
from bakehouse.util.oci import Digest
from tests.support.fake_engine import DIGEST

PASSED = CheckResult("train_success", Outcome.PASSED, 4.3)
FAILED = CheckResult(
    "mpi_2x2",
    Outcome.FAILED,
    41.2,
    reason="RuntimeError: all-reduce gave [3.0], not 10.0",
    ranks=4,
    failed_rank="algo-2 rank 3",
    exit="1 after 41.2 s; ranks 0-2 stopped with it",
    source="bakehouse/probes/mpi_allreduce.py",
    tail=("Traceback", "RuntimeError: all-reduce gave [3.0], not 10.0"),
    log=Path("build/smoke/mpi-cpu/mpi_2x2"),
)
SMOKE = UserSmoke("train.py", 1, 1, "", (), (), "", 600, "d1", Location(Path("small.yaml"), 1, 1))
SKIPPED = CheckResult("nccl_all_reduce", Outcome.NOT_TESTED, 0.0, "no GPU was given", ranks=0)
REPORT = SmokeReport("mpi-cpu", DIGEST, "mpi", (PASSED, FAILED, SKIPPED))

CHECKS = st.builds(
    CheckResult,
    name=st.text(),
    outcome=st.sampled_from(Outcome),
    seconds=st.floats(0, 1e4),
    reason=st.text(),
    ranks=st.integers(0, 64),
    tail=st.lists(st.text()).map(tuple),
    log=st.none() | st.just(Path("build/smoke")),
)


def test_a_report_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "results.json"

    with pytest.raises(SmokeError) as caught:
        smoke_report.attach(path, "mpi-cpu", [DIGEST], tmp_path)

    assert failure_text(caught.value.diagnostics[0]) == (
        f"error: `{path}` does not exist\n\nhint: `bake smoke --report FILE` writes a report\n"
    )


def test_whether_an_image_ever_passed(tmp_path: Path) -> None:
    assert not smoke_report.has_passed(tmp_path, "mpi-cpu")
    path = smoke_report.save(REPORT, tmp_path)
    assert not smoke_report.has_passed(tmp_path, "mpi-cpu")
    smoke_report.save(replace(REPORT, checks=(PASSED,)), tmp_path)
    assert smoke_report.has_passed(tmp_path, "mpi-cpu")
    assert not smoke_report.has_passed(tmp_path, "other")
    path.write_text("{")
    assert not smoke_report.has_passed(tmp_path, "mpi-cpu")


@given(st.lists(CHECKS).map(tuple), st.text())
def test_a_report_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, checks: tuple[CheckResult, ...], name: str
) -> None:
    state = tmp_path_factory.mktemp("state")
    report = SmokeReport(name, DIGEST, "gloo", checks)

    smoke_report.save(report, state)

    assert smoke_report.load(state, DIGEST) == report


def test_an_image_that_was_never_tested_has_no_report(tmp_path: Path) -> None:
    assert smoke_report.load(tmp_path, DIGEST) is None


def test_a_pass_needs_a_check_that_passed_and_none_that_failed() -> None:
    assert replace(REPORT, checks=(PASSED, SKIPPED)).passed
    assert not REPORT.passed
    assert not replace(REPORT, checks=(SKIPPED,)).passed
    assert not replace(REPORT, checks=()).passed


def test_an_invalid_report_is_an_error(tmp_path: Path) -> None:
    path = smoke_report.save(REPORT, tmp_path)
    path.write_text(path.read_text().replace('"transport": "mpi"', '"transports": "mpi"'))

    with pytest.raises(SmokeError) as caught:
        smoke_report.load(tmp_path, DIGEST)

    assert failure_text(caught.value.diagnostics[0]) == (
        f"error: `{path}` is not a smoke report\n"
        "  because  object missing required field `transport`\n"
        "\n"
        "hint: remove it, then run `bake smoke` again\n"
    )


def test_a_report_of_a_newer_version_is_read(tmp_path: Path) -> None:
    path = smoke_report.save(REPORT, tmp_path)
    document = json.loads(path.read_text())
    del document["sha256"]
    document["weather"] = "fair"
    document["checks"][0]["mood"] = {"good": True}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    document["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(document))

    assert smoke_report.load(tmp_path, DIGEST) == REPORT


def test_a_report_under_another_digest_is_refused(tmp_path: Path) -> None:
    other = Digest("sha256:" + "00" * 32)
    path = smoke_report.save(REPORT, tmp_path)
    path.rename(path.with_name("00" * 32 + ".json"))

    with pytest.raises(SmokeError) as caught:
        smoke_report.load(tmp_path, other)

    assert failure_text(caught.value.diagnostics[0]) == dedent(f"""\
        error: `{tmp_path}/smoke/{"00" * 32}.json` is the report of another image
          expected  {other}
          found     {DIGEST}

        hint: remove it, then run `bake smoke` again
        """)


def test_a_check_that_ran_again_takes_its_old_place() -> None:
    again = replace(FAILED, outcome=Outcome.PASSED)
    new = replace(PASSED, name="new")

    merged = smoke_report.replace_checks(REPORT, (again, new))

    assert merged.checks == (PASSED, again, SKIPPED, new)


def test_a_failure_shows_the_first_failing_rank() -> None:
    with pytest.raises(SmokeError) as caught:
        smoke_report.require_passed(REPORT)

    assert [failure_text(diagnostic) for diagnostic in caught.value.diagnostics] == [
        dedent("""\
        error: check `mpi_2x2` failed on algo-2 rank 3 of 4
          image       mpi-cpu sha256:4f4f4f4f4f4f
          from        bakehouse/probes/mpi_allreduce.py
          because     RuntimeError: all-reduce gave [3.0], not 10.0
          exit        1 after 41.2 s; ranks 0-2 stopped with it
          full logs   build/smoke/mpi-cpu/mpi_2x2
          last lines  of algo-2 rank 3
            | Traceback
            | RuntimeError: all-reduce gave [3.0], not 10.0

        hint: rerun this check only: `bake smoke mpi-cpu --check mpi_2x2`
        """)
    ]


def test_a_component_s_check_is_run_again_with_the_others_of_its_container() -> None:
    check = CheckResult("components.mpi4py.x", Outcome.FAILED, 0.1, "boom", source="smoke.py:3")

    assert failure_text(smoke_report.check_diagnostic(REPORT, check)) == dedent("""\
        error: check `components.mpi4py.x` failed
          image    mpi-cpu sha256:4f4f4f4f4f4f
          from     smoke.py:3
          because  boom

        hint: rerun this check only: `bake smoke mpi-cpu --check components`
        """)


def test_a_report_without_failures_raises_nothing() -> None:
    smoke_report.require_passed(replace(REPORT, checks=(PASSED, SKIPPED)))


GPU = replace(SKIPPED, outcome=Outcome.PASSED, reason="", ranks=8)
HERE = replace(REPORT, checks=(PASSED, SKIPPED), machine="builder")
THERE = replace(REPORT, checks=(GPU,), machine="gpu-1", transport="nccl")


def test_a_skipped_check_that_is_required_has_not_passed() -> None:
    assert smoke_report.release_blockers(HERE, ()) == ()
    assert smoke_report.release_blockers(HERE, ("train_success",)) == ()
    assert smoke_report.release_blockers(HERE, ("nccl_all_reduce", "gpu")) == (
        "`nccl_all_reduce` is required but was not tested: no GPU was given",
        "`gpu` is required but is in no report",
    )
    assert smoke_report.release_blockers(None, ()) == ("it was never smoke-tested",)
    for required in ((), ("train_success",)):
        assert smoke_report.release_blockers(REPORT, required) == ("its smoke test failed: `mpi_2x2`",)
    assert smoke_report.release_blockers(replace(REPORT, checks=()), ()) == ("its smoke test ran no check",)


def test_what_one_machine_skipped_another_can_pass() -> None:
    both = smoke_report.merge_reports([HERE, THERE])

    assert both.checks == (PASSED, GPU)
    assert (both.transport, both.machine) == ("nccl", "builder, gpu-1")
    assert smoke_report.release_blockers(both, ("nccl_all_reduce",)) == ()


def test_what_failed_on_one_machine_has_failed() -> None:
    failed = replace(THERE, checks=(replace(PASSED, outcome=Outcome.FAILED),))

    for reports in ([HERE, failed], [failed, HERE]):
        both = smoke_report.merge_reports(reports)
        assert smoke_report.release_blockers(both, ()) == ("its smoke test failed: `train_success`",)


def test_a_result_by_another_definition_does_not_cover_the_user_s_test() -> None:
    user = CheckResult("user_code", Outcome.PASSED, 4.0, definition="d1")
    old = replace(REPORT, checks=(PASSED, user))
    new = replace(SMOKE, definition="d2")

    assert smoke_report.release_blockers(old, ("user_code",), SMOKE) == ()
    assert smoke_report.release_blockers(old, ("user_code",), new) == (
        "`user_code` is required, but `smoke` in the recipe changed after the test",
    )
    assert smoke_report.release_blockers(HERE, ("user_code",), new) == (
        "`user_code` is required but is in no report",
    )
    assert smoke_report.current(old, new).checks == (PASSED,)


def test_a_failure_by_another_definition_does_not_fail_a_release() -> None:
    failed = CheckResult("user_code", Outcome.FAILED, 4.0, definition="d2")
    passed = CheckResult("user_code", Outcome.PASSED, 4.0, definition="d1")
    both = smoke_report.merge_reports(
        [replace(REPORT, checks=(PASSED, failed)), replace(REPORT, checks=(passed,))]
    )

    assert smoke_report.release_blockers(both, ("user_code",), SMOKE) == ()


@pytest.mark.parametrize(
    ("passed", "transport"),
    [
        (["nccl_all_reduce", "torchrun_1x2"], "nccl"),
        (["mpirun_1x2", "torchrun_1x2"], "gloo"),
        (["mpi_2x2"], "mpi"),
        (["train_success"], "none"),
    ],
)
def test_the_transport_is_that_of_checks_that_passed(passed: list[str], transport: str) -> None:
    checks = [
        *(CheckResult(name, Outcome.PASSED, 1.0) for name in passed),
        *(CheckResult(name, Outcome.FAILED, 1.0) for name in ("nccl_all_reduce",) if name not in passed),
    ]

    assert smoke_report.transport_of(checks) == transport


def written(directory: Path, report: SmokeReport) -> Path:
    path = directory / "seen.json"
    smoke_report.write(report, path)
    return path


def test_a_report_of_another_machine_counts_with_our_own(tmp_path: Path) -> None:
    smoke_report.save(HERE, tmp_path)

    smoke_report.attach(written(tmp_path, THERE), "mpi-cpu", [DIGEST], tmp_path)

    assert smoke_report.load_all(tmp_path, DIGEST) == smoke_report.merge_reports([HERE, THERE])
    assert smoke_report.load(tmp_path, DIGEST) == HERE


def test_a_machine_s_later_report_replaces_its_earlier_one(tmp_path: Path) -> None:
    failed = replace(THERE, checks=(replace(GPU, outcome=Outcome.FAILED),))
    for report in (failed, THERE):
        smoke_report.attach(written(tmp_path, report), "mpi-cpu", [DIGEST], tmp_path)

    assert smoke_report.load_all(tmp_path, DIGEST) == THERE


def test_checks_that_a_machine_did_not_run_again_keep_what_was_seen_of_them(tmp_path: Path) -> None:
    failed = replace(GPU, name="mpi_2x2", outcome=Outcome.FAILED)
    for report in (replace(THERE, checks=(failed, GPU)), replace(THERE, checks=(GPU,))):
        smoke_report.attach(written(tmp_path, report), "mpi-cpu", [DIGEST], tmp_path)

    merged = smoke_report.load_all(tmp_path, DIGEST)
    assert merged is not None
    assert {check.name: check.outcome for check in merged.checks}["mpi_2x2"] is Outcome.FAILED


@pytest.mark.parametrize(
    "report", [replace(THERE, image="other"), replace(THERE, digest=Digest("sha256:" + "00" * 32))]
)
def test_a_report_of_another_image_is_not_attached(tmp_path: Path, report: SmokeReport) -> None:
    path = written(tmp_path, report)

    with pytest.raises(SmokeError) as caught:
        smoke_report.attach(path, "mpi-cpu", [DIGEST], tmp_path)

    assert failure_text(caught.value.diagnostics[0]) == dedent(f"""\
        error: `{path}` is the report of another image
          expected  mpi-cpu {DIGEST}
          found     {report.image} {report.digest}
        """)
    assert smoke_report.load_all(tmp_path, DIGEST) is None


def refused(path: Path, directory: Path) -> str:
    with pytest.raises(SmokeError) as caught:
        smoke_report.attach(path, "mpi-cpu", [DIGEST], directory)
    assert smoke_report.load_all(directory / "state", DIGEST) is None
    return failure_text(caught.value.diagnostics[0])


def test_a_report_that_was_changed_is_not_attached(tmp_path: Path) -> None:
    path = written(tmp_path, replace(THERE, checks=(replace(GPU, outcome=Outcome.FAILED),)))
    document = json.loads(path.read_text())
    expected = document["sha256"]
    path.write_text(path.read_text().replace('"outcome": "failed"', '"outcome": "passed"'))

    text = refused(path, tmp_path)

    assert re.sub("found     sha256:[0-9a-f]{64}", "found     X", text) == dedent(f"""\
        error: `{path}` was changed after it was written
          expected  sha256:{expected}
          found     X

        hint: remove it, then run `bake smoke` again
        """)


def test_a_report_with_other_spaces_is_the_same_report(tmp_path: Path) -> None:
    path = written(tmp_path, THERE)
    path.write_text(json.dumps(json.loads(path.read_text())))

    assert smoke_report.attach(path, "mpi-cpu", [DIGEST], tmp_path) == THERE


def test_an_incomplete_report_is_not_attached(tmp_path: Path) -> None:
    report = replace(THERE, unfinished=("mpi_2x2", "gpu"), interrupted="stopped by SIGTERM")
    path = written(tmp_path, report)

    assert refused(path, tmp_path) == dedent(f"""\
        error: `{path}` is incomplete: 2 checks did not run
          not run  `mpi_2x2`, `gpu`
          because  stopped by SIGTERM

        hint: run the checks again
        """)


@pytest.mark.parametrize(
    ("days", "reason"), [(31, "31 days old; the limit is 30"), (-2, "dated in the future")]
)
def test_a_stale_report_is_not_attached(tmp_path: Path, days: int, reason: str) -> None:
    date = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    path = written(tmp_path, replace(THERE, date=date))

    assert refused(path, tmp_path) == dedent(f"""\
        error: `{path}` is stale: it is {reason}
          written  {date}

        hint: run the checks again
        """)


def test_stored_passes_expire_and_failures_do_not(tmp_path: Path) -> None:
    old = (datetime.now(UTC) - timedelta(days=31)).isoformat()
    failed = replace(GPU, name="mpi_2x2", outcome=Outcome.FAILED)
    smoke_report.save(replace(HERE, date=old, checks=(failed, GPU)), tmp_path)

    everything = smoke_report.load_all(tmp_path, DIGEST)
    recent = smoke_report.load_all(tmp_path, DIGEST, only_recent=True)

    assert everything
    assert [check.outcome for check in everything.checks] == [Outcome.FAILED, Outcome.PASSED]
    assert recent
    assert [check.outcome for check in recent.checks] == [Outcome.FAILED, Outcome.NOT_TESTED]
    assert recent.checks[1].reason == f"its result of {old[:10]} is older than 30 days"


def test_a_rerun_of_some_checks_keeps_the_transport_of_the_others(tmp_path: Path) -> None:
    smoke_report.store(THERE, tmp_path)

    smoke_report.store(replace(THERE, checks=(PASSED,), transport="none"), tmp_path)

    merged = smoke_report.load_all(tmp_path, DIGEST)
    assert merged
    assert merged.transport == "nccl"


def test_a_rerun_of_some_checks_does_not_make_the_others_recent(tmp_path: Path) -> None:
    old = (datetime.now(UTC) - timedelta(days=31)).isoformat()
    other = replace(GPU, name="gpu")
    smoke_report.store(replace(THERE, date=old, checks=(GPU, other)), tmp_path)

    assert smoke_report.store(replace(THERE, checks=(GPU,)), tmp_path).date == old
    assert smoke_report.store(replace(THERE, checks=(GPU, other)), tmp_path).date == THERE.date


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[" * 100_000, '{"checks": 3}', "null"], ids=["", "[]", "{}", "[[", "3", "null"]
)
def test_an_invalid_report_is_not_attached(tmp_path: Path, text: str) -> None:
    path = tmp_path / "seen.json"
    path.write_text(text)

    with pytest.raises(SmokeError, match="is not a smoke report"):
        smoke_report.attach(path, "mpi-cpu", [DIGEST], tmp_path)


def test_a_report_that_names_a_path_for_a_digest_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, replace(THERE, digest=Digest("sha256:../../x"), machine="../../x"))

    with pytest.raises(SmokeError, match="is not a smoke report"):
        smoke_report.attach(path, "mpi-cpu", [DIGEST], tmp_path)


def test_a_machine_s_name_leads_nowhere(tmp_path: Path) -> None:
    path = written(tmp_path, replace(THERE, machine="../../../x"))

    smoke_report.attach(path, "mpi-cpu", [DIGEST], tmp_path / "state")

    [file] = (tmp_path / "state").rglob("*.json")
    assert file.name == "_________x.json"


@pytest.mark.parametrize(
    ("field", "value"),
    [("reason", ["a"]), ("tail", [1]), ("seconds", "soon"), ("definition", {}), ("failed_rank", None)],
)
def test_a_check_with_a_value_of_another_type_is_refused(tmp_path: Path, field: str, value: object) -> None:
    path = written(tmp_path, replace(THERE, checks=(replace(PASSED, **{field: value}),)))  # type: ignore[arg-type]

    with pytest.raises(SmokeError, match="is not a smoke report"):
        smoke_report.attach(path, "mpi-cpu", [DIGEST], tmp_path)


def test_the_report_of_an_older_version_without_a_sha256_counts_as_missing(tmp_path: Path) -> None:
    path = smoke_report.save(REPORT, tmp_path)
    document = json.loads(path.read_text())
    older = {name: value for name, value in document.items() if name not in ("sha256", "format", "bakehouse")}
    path.write_text(json.dumps(older))

    assert smoke_report.load(tmp_path, DIGEST) is None
    assert smoke_report.load_all(tmp_path, DIGEST) is None


def test_a_report_without_a_format_number_is_read(tmp_path: Path) -> None:
    path = smoke_report.save(REPORT, tmp_path)
    document = json.loads(path.read_text())
    older = {name: value for name, value in document.items() if name not in ("sha256", "format", "bakehouse")}
    text = json.dumps(older, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**older, "sha256": hashlib.sha256(text.encode()).hexdigest()}))

    assert smoke_report.load(tmp_path, DIGEST) == REPORT


def test_the_report_of_a_newer_version_is_named_as_newer(tmp_path: Path) -> None:
    path = smoke_report.save(REPORT, tmp_path)
    path.write_text(json.dumps({"format": 2, "bakehouse": "9.1", "results": []}))

    with pytest.raises(SmokeError) as caught:
        smoke_report.load(tmp_path, DIGEST)

    assert failure_text(caught.value.diagnostics[0]) == (
        f"error: cannot read `{path}`\n"
        f"  because  Bakehouse 9.1 wrote it in format 2; Bakehouse {__version__} reads formats up to 1\n"
        "\n"
        "hint: upgrade Bakehouse; nothing was written\n"
    )
