"""State of an image in the column *Scanned*: the scan of Amazon ECR, and signed scans."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bakehouse.catalog.trust_settings import Policy, ScanRules
from bakehouse.commands.report.states import CellState, Mark, not_recorded
from bakehouse.ledger.releases import ReleasedFindings, ReleasedScan, ReleaseRecord
from bakehouse.trust.keys import read_public_key
from bakehouse.trust.signed_scans import exceeds, time_text

_WORST_FIRST = (Mark.FAILED, Mark.PARTLY, Mark.DONE)
_LONG_AGO, _NEVER = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScanPolicy:
    """The part of a policy that requires signed scans."""

    rules: ScanRules
    keys: Mapping[str, str]
    """File names of the trusted keys, by their hints."""


def scan_policy_of(policy: Policy | None) -> ScanPolicy | None:
    """Return the rules for scans; None if the project requires no scan. Raises TrustError."""
    if policy is None or "scan" not in policy.require:
        return None
    keys = (read_public_key(path) for path in policy.keys)
    return ScanPolicy(policy.scan, {key.hint: key.name for key in keys})


def scan_state(records: Sequence[ReleaseRecord], policy: ScanPolicy | None = None) -> CellState:
    """Return the state of an image by the last scans in its records, which start with the newest."""
    ecr = _ecr_state(records)
    scans = next((record.scans for record in records if record.scans), ())
    signed = _signed_state(scans, policy) if scans else None
    if signed and ecr:
        return _joined(signed, ecr)
    if policy and not signed:
        note = "The policy requires a signed scan, and none is recorded."
        if ecr is None:
            return not_recorded(note)
        mark = Mark.PARTLY if ecr.mark is Mark.DONE else ecr.mark
        return replace(ecr, mark=mark, note=f"{ecr.note} {note}")
    return signed or ecr or not_recorded()


def _ecr_state(records: Iterable[ReleaseRecord]) -> CellState | None:
    for record in records:
        if record.scanned:
            counts = _counts(record.findings)
            text = f"{counts or 'no findings'}, {record.scanned[:10]}"
            return CellState(
                Mark.PARTLY if counts else Mark.DONE, text, f"Amazon ECR scanned {record.scanned}."
            )
        if record.not_scanned:
            return CellState(Mark.UNKNOWN, "not scanned", f"Amazon ECR: {record.not_scanned}.")
    return None


def _joined(signed: CellState, ecr: CellState) -> CellState:
    """Return the state of an image with scans of both kinds."""
    text, mark = signed.text, signed.mark
    if ecr.mark is not Mark.UNKNOWN:
        text = f"{text}; ECR: {ecr.text}"
        mark = next(worst for worst in _WORST_FIRST if worst in (mark, ecr.mark))
    return replace(signed, mark=mark, text=text, note=f"{signed.note} {ecr.note}")


def _signed_state(scans: Sequence[ReleasedScan], policy: ScanPolicy | None) -> CellState:
    """Return the state by the newest scan of each key; with a policy only its trusted keys count."""
    trusted = [scan for scan in scans if policy is None or scan.key in policy.keys]
    newest_first = sorted(trusted or scans, key=_data_time, reverse=True)
    note = " ".join(_scan_note(scan, policy) for scan in newest_first)
    note = f"{note} This page does not verify signatures."
    newest = newest_first[0]
    if not trusted:
        return CellState(Mark.FAILED, f"refused: no trusted key, {_day(newest)}", note)
    if policy is None:
        return CellState(_mark(newest), _text(newest), note)
    rules = policy.rules
    recent = [scan for scan in newest_first if _data_time(scan) >= _data_time(newest) - _max_age(rules)]
    for scan in recent:
        if any(finding.count and exceeds(finding.severity, rules.max_severity) for finding in scan.findings):
            return CellState(Mark.FAILED, f"refused: {_text(scan)}", note)
    gaps = [[kind for kind in scan.not_scanned if kind not in rules.accept_not_scanned] for scan in recent]
    if all(gaps):
        fewest = min(gaps, key=len)
        return CellState(Mark.FAILED, f"refused: {', '.join(fewest)} not scanned, {_day(newest)}", note)
    end = min(_data_time(newest) + _max_age(rules), *map(_end_of_waivers, recent))
    note = f"{note} The policy accepts it until {time_text(end)}."
    return CellState(_mark(newest), _text(newest), note, time_text(end))


def _mark(scan: ReleasedScan) -> Mark:
    is_complete = not (scan.waived or scan.not_scanned or _counts(scan.findings))
    return Mark.DONE if is_complete else Mark.PARTLY


def _text(scan: ReleasedScan) -> str:
    counts = _counts(scan.findings) or ("no open findings" if scan.waived else "no findings")
    gaps = f"{', '.join(scan.not_scanned)} not scanned" if scan.not_scanned else ""
    return ", ".join(filter(None, (counts, gaps, _day(scan))))


def _scan_note(scan: ReleasedScan, policy: ScanPolicy | None) -> str:
    untrusted = "a key that the policy does not trust"
    signer = policy.keys.get(scan.key, untrusted) if policy else "a key"
    waived = f", {scan.waived} waived until {scan.waived_until}" if scan.waived else ""
    facts = f"{_counts(scan.findings) or 'no open findings'}{waived}"
    gaps = f", not scanned: {', '.join(scan.not_scanned)}" if scan.not_scanned else ""
    return f"Signed by {signer}, scanned {scan.finished} with data of {scan.updated}: {facts}{gaps}."


def _counts(findings: Iterable[ReleasedFindings]) -> str:
    return ", ".join(f"{finding.count} {finding.severity}" for finding in findings if finding.count)


def _day(scan: ReleasedScan) -> str:
    return scan.finished[:10]


def _max_age(rules: ScanRules) -> timedelta:
    return timedelta(rules.max_age)


def _data_time(scan: ReleasedScan) -> datetime:
    """Return the time after which published vulnerabilities are not among the results."""
    return min(_time(scan.finished), _time(scan.updated))


def _end_of_waivers(scan: ReleasedScan) -> datetime:
    return _time(f"{scan.waived_until}T23:59:59Z") if scan.waived else _NEVER


def _time(text: str) -> datetime:
    """Return a time of the ledger; an invalid one is long ago."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return _LONG_AGO
    return time if time.tzinfo and _LONG_AGO < time < _NEVER else _LONG_AGO
