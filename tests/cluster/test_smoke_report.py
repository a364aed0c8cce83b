"""Files with reports, and the failures in them."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from bakehouse import __version__
from bakehouse.builder.verify import Outcome
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster import smoke_report
from bakehouse.cluster.smoke_report import CheckResult, SmokeReport
from bakehouse.errors import SmokeError
from bakehouse.util.oci import ContentId
from tests.support.built_images import CONTENT
from tests.support.errors import raised, refusal

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
SKIPPED = CheckResult("nccl_all_reduce", Outcome.NOT_TESTED, 0.0, "no GPU was given", ranks=0)
REPORT = SmokeReport("mpi-cpu", CONTENT, "mpi", (PASSED, FAILED, SKIPPED))

MONTH = timedelta(days=30)


def test_a_report_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "results.json"

    assert refusal(SmokeError, smoke_report.read_file, path, "mpi-cpu", CONTENT, MONTH) == (
        f"error: `{path}` does not exist\n\nhint: `bake smoke --report FILE` writes a report\n"
    )


def test_a_pass_needs_a_check_that_passed_and_none_that_failed() -> None:
    assert replace(REPORT, checks=(PASSED, SKIPPED)).passed
    assert not REPORT.passed
    assert not replace(REPORT, checks=(SKIPPED,)).passed
    assert not replace(REPORT, checks=()).passed


def test_a_failure_shows_the_first_failing_rank() -> None:
    error = raised(SmokeError, smoke_report.require_passed, REPORT)

    assert [failure_text(diagnostic) for diagnostic in error.diagnostics] == [
        dedent("""\
        error: check `mpi_2x2` failed on algo-2 rank 3 of 4
          image       mpi-cpu sha256:c0a7e27d5b11
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
          image    mpi-cpu sha256:c0a7e27d5b11
          from     smoke.py:3
          because  boom

        hint: rerun this check only: `bake smoke mpi-cpu --check components`
        """)


def test_a_report_without_failures_raises_nothing() -> None:
    smoke_report.require_passed(replace(REPORT, checks=(PASSED, SKIPPED)))


GPU = replace(SKIPPED, outcome=Outcome.PASSED, reason="", ranks=8)
HERE = replace(REPORT, checks=(PASSED, SKIPPED), machine="builder")
THERE = replace(REPORT, checks=(GPU,), machine="gpu-1", transport="nccl")


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


def test_a_report_of_another_image_is_not_attached(tmp_path: Path) -> None:
    report = replace(THERE, content=ContentId("sha256:" + "00" * 32))
    path = written(tmp_path, report)

    assert refusal(SmokeError, smoke_report.read_file, path, "mpi-cpu", CONTENT, MONTH) == dedent(f"""\
        error: `{path}` is the report of another image
          expected  mpi-cpu {CONTENT}
          found     {report.image} {report.content}
        """)


def refused(path: Path) -> str:
    return refusal(SmokeError, smoke_report.read_file, path, "mpi-cpu", CONTENT, MONTH)


def test_a_report_that_was_changed_is_not_attached(tmp_path: Path) -> None:
    path = written(tmp_path, replace(THERE, checks=(replace(GPU, outcome=Outcome.FAILED),)))
    document = json.loads(path.read_text())
    expected = document["sha256"]
    path.write_text(path.read_text().replace('"outcome": "failed"', '"outcome": "passed"'))

    text = refused(path)

    assert re.sub("found     sha256:[0-9a-f]{64}", "found     X", text) == dedent(f"""\
        error: `{path}` was changed after it was written
          expected  sha256:{expected}
          found     X

        hint: remove it, then run `bake smoke` again
        """)


def test_a_report_with_other_spaces_is_the_same_report(tmp_path: Path) -> None:
    path = written(tmp_path, THERE)
    path.write_text(json.dumps(json.loads(path.read_text())))

    assert smoke_report.read_file(path, "mpi-cpu", CONTENT, MONTH) == THERE


def test_an_incomplete_report_is_not_attached(tmp_path: Path) -> None:
    report = replace(THERE, unfinished=("mpi_2x2", "gpu"), interrupted="stopped by SIGTERM")
    path = written(tmp_path, report)

    assert refused(path) == dedent(f"""\
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

    assert refused(path) == dedent(f"""\
        error: `{path}` is stale: it is {reason}
          written  {date}

        hint: run the checks again
        """)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[" * 100_000, '{"checks": 3}', "null"], ids=["", "[]", "{}", "[[", "3", "null"]
)
def test_an_invalid_report_is_not_attached(tmp_path: Path, text: str) -> None:
    path = tmp_path / "seen.json"
    path.write_text(text)

    with pytest.raises(SmokeError, match="is not a smoke report"):
        smoke_report.read_file(path, "mpi-cpu", CONTENT, MONTH)


def test_a_report_that_names_a_path_for_a_digest_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, replace(THERE, content=ContentId("sha256:../../x"), machine="../../x"))

    with pytest.raises(SmokeError, match="is not a smoke report"):
        smoke_report.read_file(path, "mpi-cpu", CONTENT, MONTH)


@pytest.mark.parametrize(
    ("field", "value"),
    [("reason", ["a"]), ("tail", [1]), ("seconds", "soon"), ("key", {}), ("failed_rank", None)],
)
def test_a_check_with_a_value_of_another_type_is_refused(tmp_path: Path, field: str, value: object) -> None:
    path = written(tmp_path, replace(THERE, checks=(replace(PASSED, **{field: value}),)))  # type: ignore[arg-type]

    with pytest.raises(SmokeError, match="is not a smoke report"):
        smoke_report.read_file(path, "mpi-cpu", CONTENT, MONTH)


@pytest.mark.parametrize("number", [None, 1])
def test_the_report_of_an_earlier_version_does_not_count(tmp_path: Path, number: int | None) -> None:
    path = written(tmp_path, THERE)
    document = json.loads(path.read_text())
    del document["format"]
    document["digest"] = document.pop("content")
    path.write_text(json.dumps(document | ({"format": number} if number else {})))

    assert refused(path) == (
        f"error: `{path}` was written by an earlier version, so its results do not count\n"
        "\n"
        "hint: run the checks again\n"
    )


def test_the_report_of_a_newer_version_is_named_as_newer(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    path.write_text(json.dumps({"format": 3, "bakehouse": "9.1", "results": []}))

    assert refused(path) == (
        f"error: cannot read `{path}`\n"
        f"  because  Bakehouse 9.1 wrote it in format 3; Bakehouse {__version__} reads formats up to 2\n"
        "\n"
        "hint: upgrade Bakehouse; nothing was written\n"
    )


def test_a_result_from_the_future_makes_a_report_stale(tmp_path: Path) -> None:
    date = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    path = written(tmp_path, replace(THERE, checks=(replace(GPU, date=date),)))

    assert "is stale: it is dated in the future" in refused(path)
