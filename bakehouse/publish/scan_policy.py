"""The requirement `scan` of the policy: a recent scan without severe vulnerabilities, by a trusted key."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import get_args

from bakehouse.catalog.trust_settings import MAX_SEVERITIES, ScanRules
from bakehouse.cluster.smoke_report import MAX_CLOCK_DIFFERENCE
from bakehouse.publish.scans import NOT_SCANNED
from bakehouse.publish.statements import SCAN
from bakehouse.security import waivers
from bakehouse.security.document import DocumentError, Node
from bakehouse.security.findings import Finding, PackageKind, Usage, Vulnerability
from bakehouse.trust.bundle import SignedStatement
from bakehouse.trust.keys import PublicKey
from bakehouse.util.format import format_count

_MOST_VULNERABILITIES = 5
_RANKS = {
    **dict.fromkeys(("NONE", "INFO", "INFORMATIONAL", "NEGLIGIBLE"), 0),
    **{severity: rank for rank, severity in enumerate(reversed(MAX_SEVERITIES), 1)},
}
"""Severities of all scanners; unknown ones are missing."""
_KINDS: dict[str, PackageKind] = {kind: kind for kind in get_args(PackageKind)}


@dataclass(frozen=True, slots=True)
class _Scan:
    """Results of a scan that a key signed."""

    key: PublicKey
    finished: datetime
    updated: datetime
    """Time of the oldest data about vulnerabilities that the scan used."""
    findings: tuple[Finding, ...]
    """Each with one vulnerability."""
    not_scanned: tuple[tuple[str, str], ...]
    """Kinds of contents that were not scanned, each with the reason."""

    @property
    def time(self) -> datetime:
        """The time up to which published vulnerabilities can be among the results."""
        return min(self.finished, self.updated)


def scan_problems(
    rules: ScanRules,
    image: str,
    statements: Sequence[SignedStatement],
    waived: Sequence[waivers.Statement],
) -> Iterator[tuple[str, str]]:
    """Yield why no scan counts, each with a hint. The newest scan of each key counts."""
    scan_again = f"run `bake security {image} --sign` with a trusted `signing_key`"
    now = datetime.now(UTC)
    signed = [each for each in statements if each.predicate_type == SCAN]
    scans, incomplete = _scans(signed, image)
    newest: dict[PublicKey, _Scan] = {}
    for scan in sorted(scans, key=lambda each: (each.finished, len(each.findings))):
        if scan.finished <= now + MAX_CLOCK_DIFFERENCE:
            newest[scan.key] = scan
    recent = [scan for scan in newest.values() if scan.time >= now - timedelta(rules.max_age)]
    if not recent:
        problem = "it has no scan result that a trusted key signed"
        if newest:
            age = format_count(rules.max_age, "day")
            problem = f"the data of its signed scan results is more than {age} old"
        elif scans:
            problem = "its signed scan results are dated in the future"
        elif incomplete:
            problem = f"the signed scan results of other tools do not count: {incomplete}"
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


def _scans(signed: Iterable[SignedStatement], image: str) -> tuple[list[_Scan], str]:
    """Return the scans that state what they cover, and why others do not count."""
    scans, problem = [], ""
    for each in signed:
        try:
            scans.append(_read(each, image))
        except DocumentError as error:
            problem = str(error)
    return scans, problem


def _unacceptable(scan: _Scan, rules: ScanRules, image: str, waived: Sequence[waivers.Statement]) -> str:
    """Return the open vulnerabilities above the accepted severity, as a text; empty without one."""
    # A vulnerability that one source does not rate may be rated by another
    severities: dict[str, str] = {}
    for finding in scan.findings:
        for each in finding.vulnerabilities:
            severities[each.id] = _worst((severities.get(each.id, ""), each.severity))
    findings, _ = waivers.apply(waived, scan.findings, datetime.now(UTC).date())
    titles: dict[str, None] = {}
    for finding in findings:
        for each in finding.open_vulnerabilities:
            if _exceeds(severities[each.id], rules.max_severity):
                titles[_vulnerability_text(each.id, severities[each.id], finding)] = None
    if not titles:
        return ""
    rest = len(titles) - _MOST_VULNERABILITIES
    more = f" and {rest} more" if rest > 0 else ""
    accepted = f"; {rules.max_severity} is accepted" if rules.max_severity else ""
    return f"{', '.join(list(titles)[:_MOST_VULNERABILITIES])}{more}{accepted}"


def _vulnerability_text(id: str, severity: str, finding: Finding) -> str:
    package = f"{finding.name} {finding.version}".strip()
    return f"{id}{f' in {package}' if package else ''} ({severity or 'not rated'})"


def _read(signed: SignedStatement, image: str) -> _Scan:
    """Return the results in a statement. Raises DocumentError for one that leaves out what it covers."""
    predicate = Node(signed.predicate)
    scanner, metadata = predicate["scanner"], predicate["metadata"]
    for node in (scanner["result"], predicate[NOT_SCANNED]):
        if not isinstance(node.value, list):
            message = f"it has no list `{node.path}`"
            raise DocumentError(message)
    return _Scan(
        key=signed.key,
        finished=_time(metadata["scanFinishedOn"]),
        updated=_time(scanner["db"]["lastUpdate"]),
        findings=tuple(_finding(result, image) for result in scanner["result"]),
        not_scanned=tuple((item["kind"].needed, item["reason"].text) for item in predicate[NOT_SCANNED]),
    )


def _worst(ratings: Iterable[str]) -> str:
    """Return the highest of the known ratings; empty if none is known."""
    return max(filter(_RANKS.__contains__, ratings), key=_RANKS.__getitem__, default="")


def _exceeds(rating: str, most: str) -> bool:
    """Return whether a rating is higher than another; an unknown one counts as the highest."""
    return _RANKS.get(rating, _RANKS["CRITICAL"]) > _RANKS.get(most, -1)


def _time(node: Node) -> datetime:
    try:
        time = datetime.fromisoformat(node.needed)
    except ValueError:
        time = datetime.min
    if time.tzinfo is None:
        message = f"`{node.path}` must be a time in RFC 3339"
        raise DocumentError(message)
    return time


def _finding(result: Node, image: str) -> Finding:
    ratings = [rating["score"].needed.upper() for rating in result["severity"]]
    package = next(iter(result["annotations"]), Node({}))
    return Finding(
        kind=_KINDS.get(package["kind"].text, "other"),
        name=package["name"].text,
        version=package["version"].text,
        newer="",
        source=package["source"].text,
        packages=package["packages"].texts,
        vulnerabilities=(
            Vulnerability(
                id=result["id"].needed,
                fixed=package["fixed"].text,
                aliases=package["aliases"].texts,
                severity=_worst(ratings),
            ),
        ),
        usages=(Usage(image, "", in_image=True),),
    )
