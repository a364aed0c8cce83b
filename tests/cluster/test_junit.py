"""JUnit XML for CI."""

from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from bakehouse.builder.verify import Outcome
from bakehouse.cluster import junit
from bakehouse.cluster.smoke_report import CheckResult, SmokeReport
from tests.support.fake_engine import CONTENT


def test_each_check_is_a_case_and_skipped_is_not_passed() -> None:
    report = SmokeReport(
        "mpi-cpu",
        CONTENT,
        "mpi",
        (
            CheckResult("train_success", Outcome.PASSED, 4.31),
            CheckResult(
                "mpi_2x2",
                Outcome.FAILED,
                41.2,
                "ValueError: a < b",
                failed_rank="algo-2 rank 3",
                tail=("Traceback", "ValueError: a < b"),
                log=Path("build/smoke"),
            ),
            CheckResult("nccl_all_reduce", Outcome.NOT_TESTED, 0.0, "no GPU was given"),
        ),
    )

    assert junit.text(report) == dedent(f"""\
        <?xml version='1.0' encoding='utf-8'?>
        <testsuite name="mpi-cpu" tests="3" failures="1" errors="0" skipped="1" time="45.5">
          <properties>
            <property name="content" value="{CONTENT}" />
            <property name="transport" value="mpi" />
          </properties>
          <testcase classname="mpi-cpu" name="train_success" time="4.3" />
          <testcase classname="mpi-cpu" name="mpi_2x2" time="41.2">
            <failure message="algo-2 rank 3: ValueError: a &lt; b">Traceback
        ValueError: a &lt; b</failure>
          </testcase>
          <testcase classname="mpi-cpu" name="nccl_all_reduce" time="0.0">
            <skipped message="no GPU was given" />
          </testcase>
        </testsuite>
        """)


@given(st.text(), st.lists(st.text()).map(tuple))
def test_whatever_a_rank_printed_the_file_can_be_read(reason: str, tail: tuple[str, ...]) -> None:
    check = CheckResult("x", Outcome.FAILED, 1.0, reason, tail=tail)

    read = ElementTree.fromstring(junit.text(SmokeReport("mpi-cpu", CONTENT, "mpi", (check,))))

    assert len(read.findall("testcase/failure")) == 1
