"""Smoke reports as JUnit XML for CI systems."""

import re
from xml.etree import ElementTree

from bakehouse.builder.verify import Outcome
from bakehouse.cluster.smoke_report import CheckResult, SmokeReport

# XML 1.0 cannot contain these characters, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text(report: SmokeReport) -> str:
    """Return a test suite for the image with a test case for each check."""
    failed = sum(check.outcome is Outcome.FAILED for check in report.checks)
    not_tested = sum(check.outcome is Outcome.NOT_TESTED for check in report.checks)
    suite = ElementTree.Element(
        "testsuite",
        name=_clean(report.image),
        tests=str(len(report.checks)),
        failures=str(failed),
        errors="0",
        skipped=str(not_tested),
        time=f"{sum(check.seconds for check in report.checks):.1f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("content", report.content), ("transport", report.transport)):
        ElementTree.SubElement(properties, "property", name=name, value=value)
    for check in report.checks:
        suite.append(_case(report, check))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(report: SmokeReport, check: CheckResult) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=_clean(report.image), name=_clean(check.name), time=f"{check.seconds:.1f}"
    )
    if check.outcome is Outcome.NOT_TESTED:
        ElementTree.SubElement(case, "skipped", message=_clean(check.reason))
    if check.outcome is Outcome.FAILED:
        location = f"{check.failed_rank}: " if check.failed_rank else ""
        failure = ElementTree.SubElement(case, "failure", message=_clean(location + check.reason))
        failure.text = _clean("\n".join(check.tail))
    return case


def _clean(value: str) -> str:
    return _FORBIDDEN.sub("\ufffd", value)
