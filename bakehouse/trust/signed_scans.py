"""Results of signed scans: read from statements, and summarized for the ledger."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import get_args

from bakehouse.catalog.trust_settings import MAX_SEVERITIES
from bakehouse.cluster.smoke_report import MAX_CLOCK_DIFFERENCE
from bakehouse.ledger.releases import ReleasedFindings, ReleasedScan
from bakehouse.trust import waivers
from bakehouse.trust.bundle import SignedStatement
from bakehouse.trust.document import DocumentError, DocumentValue
from bakehouse.trust.findings import PackageFinding, PackageKind, Usage, Vulnerability
from bakehouse.trust.keys import PublicKey
from bakehouse.trust.statements import SCAN

NOT_SCANNED = "bakehouse_notScanned"
"""Extension field of the predicate."""
NOT_RATED = "not rated"
_RANKS = {
    **dict.fromkeys(("NONE", "INFO", "INFORMATIONAL", "NEGLIGIBLE"), 0),
    **{severity: rank for rank, severity in enumerate(reversed(MAX_SEVERITIES), 1)},
}
"""Severities of all scanners; unknown ones are missing."""
_KINDS: dict[str, PackageKind] = {kind: kind for kind in get_args(PackageKind)}


@dataclass(frozen=True, slots=True)
class SignedScan:
    """Results of a scan that a key signed."""

    key: PublicKey
    finished: datetime
    updated: datetime
    """Time of the oldest data about vulnerabilities that the scan used."""
    findings: tuple[PackageFinding, ...]
    """Each with one vulnerability."""
    not_scanned: tuple[tuple[str, str], ...]
    """Kinds of contents that were not scanned, each with the reason."""

    @property
    def time(self) -> datetime:
        """Vulnerabilities that were published after this time are not among the results."""
        return min(self.finished, self.updated)

    def rated(self) -> dict[str, str]:
        """Return the highest severity of each vulnerability; empty if no source rates it."""
        # A vulnerability that one source does not rate may be rated by another
        severities: dict[str, str] = {}
        for finding in self.findings:
            for vulnerability in finding.vulnerabilities:
                severities[vulnerability.id] = _worst(
                    (severities.get(vulnerability.id, ""), vulnerability.severity)
                )
        return severities


@dataclass(frozen=True, slots=True)
class Scans:
    """The signed scans of an image."""

    newest: tuple[SignedScan, ...] = ()
    """The newest scan of each key."""
    is_future: bool = False
    """All scans are dated in the future."""
    problem: str = ""
    """Why a scan result does not count."""


def read_scans(statements: Iterable[SignedStatement], image: str) -> Scans:
    """Return the scans among statements that state what they cover."""
    scans, problem = [], ""
    for statement in statements:
        if statement.predicate_type == SCAN:
            try:
                scans.append(_read(statement, image))
            except DocumentError as error:
                problem = str(error)
    now = datetime.now(UTC)
    newest: dict[PublicKey, SignedScan] = {}
    for scan in sorted(scans, key=lambda scan: (scan.finished, len(scan.findings))):
        if scan.finished <= now + MAX_CLOCK_DIFFERENCE:
            newest[scan.key] = scan
    return Scans(tuple(newest.values()), bool(scans) and not newest, problem)


def exceeds(rating: str, limit: str) -> bool:
    """Return whether a rating is higher than another; an unknown one counts as the highest."""
    return _RANKS.get(rating, _RANKS["CRITICAL"]) > _RANKS.get(limit, -1)


def summarize(scan: SignedScan, waived: Sequence[waivers.VexStatement]) -> ReleasedScan:
    """Return the summary of a scan for the ledger, with the waivers of today."""
    severities = scan.rated()
    findings, _ = waivers.apply(waived, scan.findings, datetime.now(UTC).date())
    open_ids = {vulnerability.id for finding in findings for vulnerability in finding.open_vulnerabilities}
    counts = Counter(severities[id] or NOT_RATED for id in open_ids)
    in_force = [waiver for finding in findings for waiver in finding.waivers if not waiver.is_expired]
    worst_first = sorted(counts, key=lambda rating: (-_RANKS.get(rating, len(_RANKS)), rating))
    return ReleasedScan(
        key=scan.key.hint,
        finished=time_text(scan.finished),
        updated=time_text(scan.updated),
        findings=tuple(ReleasedFindings(rating, counts[rating]) for rating in worst_first),
        waived=len(severities.keys() - open_ids),
        waived_until=min((waiver.expires for waiver in in_force), default=""),
        not_scanned=tuple(sorted({kind for kind, _ in scan.not_scanned})),
    )


def time_text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read(signed: SignedStatement, image: str) -> SignedScan:
    """Return the results in a statement. Raises DocumentError if it does not state what it covers."""
    predicate = DocumentValue(signed.predicate)
    scanner, metadata = predicate["scanner"], predicate["metadata"]
    for node in (scanner["result"], predicate[NOT_SCANNED]):
        if not isinstance(node.value, list):
            message = f"it has no list `{node.path}`"
            raise DocumentError(message)
    return SignedScan(
        key=signed.key,
        finished=_time(metadata["scanFinishedOn"]),
        updated=_time(scanner["db"]["lastUpdate"]),
        findings=tuple(_finding(result, image) for result in scanner["result"]),
        not_scanned=tuple((item["kind"].needed, item["reason"].text) for item in predicate[NOT_SCANNED]),
    )


def _worst(ratings: Iterable[str]) -> str:
    """Return the highest of the known ratings; empty if none is known."""
    return max(filter(_RANKS.__contains__, ratings), key=_RANKS.__getitem__, default="")


def _time(node: DocumentValue) -> datetime:
    try:
        time = datetime.fromisoformat(node.needed)
    except ValueError:
        time = datetime.min
    if time.tzinfo is None:
        message = f"`{node.path}` must be a time in RFC 3339"
        raise DocumentError(message)
    return time


def _finding(result: DocumentValue, image: str) -> PackageFinding:
    ratings = [rating["score"].needed.upper() for rating in result["severity"]]
    package = next(iter(result["annotations"]), DocumentValue({}))
    return PackageFinding(
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
