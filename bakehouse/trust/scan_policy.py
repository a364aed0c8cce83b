"""The requirement `scan` of the policy: a recent scan without severe vulnerabilities, by a trusted key."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from bakehouse.catalog.trust_settings import ScanRules
from bakehouse.trust import waivers
from bakehouse.trust.bundle import SignedStatement
from bakehouse.trust.findings import PackageFinding
from bakehouse.trust.signed_scans import NOT_RATED, SignedScan, exceeds, read_scans
from bakehouse.util.format import format_count

_MAX_VULNERABILITIES = 5


def scan_problems(
    rules: ScanRules,
    image: str,
    statements: Sequence[SignedStatement],
    waived: Sequence[waivers.VexStatement],
) -> Iterator[tuple[str, str]]:
    """Yield why no scan counts, each with a hint. The newest scan of each key counts."""
    scan_again = f"run `bake security {image} --sign` with a trusted `signing_key`"
    scans = read_scans(statements, image)
    oldest = datetime.now(UTC) - timedelta(rules.max_age)
    recent = [scan for scan in scans.newest if scan.time >= oldest]
    if not recent:
        problem = "it has no scan result that a trusted key signed"
        if scans.newest:
            age = format_count(rules.max_age, "day")
            problem = f"the data of its signed scan results is more than {age} old"
        elif scans.is_future:
            problem = "its signed scan results are dated in the future"
        elif scans.problem:
            problem = f"the signed scan results of other tools do not count: {scans.problem}"
        yield problem, scan_again
        return
    for scan in recent:
        if vulnerabilities := _unacceptable(scan, rules, image, waived):
            hint = f"run `bake security {image} --fix`, or waive vulnerabilities in `{waivers.DIRECTORY}`"
            yield f"`{scan.key.name}` signed that it has {vulnerabilities}", hint
    gaps = [[item for item in scan.not_scanned if item[0] not in rules.accept_not_scanned] for scan in recent]
    if all(gaps):
        kinds: dict[str, list[str]] = {}
        for kind, reason in min(gaps, key=len):
            kinds.setdefault(kind, []).append(reason)
        hint = f"import the report of a scanner: `bake security {image} --import FILE --sign`"
        for kind, reasons in kinds.items():
            yield f"its signed scan does not cover `{kind}`: {'; '.join(reasons)}", hint


def _unacceptable(
    scan: SignedScan, rules: ScanRules, image: str, waived: Sequence[waivers.VexStatement]
) -> str:
    """Return the open vulnerabilities above the accepted severity, as a text; empty without one."""
    severities = scan.rated()
    findings, _ = waivers.apply(waived, scan.findings, datetime.now(UTC).date())
    titles: dict[str, None] = {}
    for finding in findings:
        for vulnerability in finding.open_vulnerabilities:
            if exceeds(severities[vulnerability.id], rules.max_severity):
                titles[_vulnerability_text(vulnerability.id, severities[vulnerability.id], finding)] = None
    if not titles:
        return ""
    rest = len(titles) - _MAX_VULNERABILITIES
    more = f" and {rest} more" if rest > 0 else ""
    accepted = f"; {rules.max_severity} is accepted" if rules.max_severity else ""
    return f"{', '.join(list(titles)[:_MAX_VULNERABILITIES])}{more}{accepted}"


def _vulnerability_text(id: str, severity: str, finding: PackageFinding) -> str:
    package = f"{finding.name} {finding.version}".strip()
    return f"{id}{f' in {package}' if package else ''} ({severity or NOT_RATED})"
