"""Waits for Amazon ECR's scan of an image, basic or enhanced; an unscanned image never counts as clean."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bakehouse.catalog.registry_settings import SEVERITIES
from bakehouse.errors import Diagnostic, PublishError, Reason, RegistryAuthError, UsageError
from bakehouse.publish.ecr_replication import Waiting
from bakehouse.publish.releases import ReleasedFindings, ReleaseRecord
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.util.aws import summarize
from bakehouse.util.deadline import OverdueError, bounded
from bakehouse.util.format import format_seconds
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter

_GOING_ON = ("PENDING", "IN_PROGRESS")
_DONE = ("COMPLETE", "ACTIVE")
"""ACTIVE is said of what is scanned again and again; before the first time there are no findings."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Result of a scan, or the reason for none."""

    completed: str = ""
    """When, in UTC; empty where nothing was scanned."""
    findings: tuple[ReleasedFindings, ...] = ()
    """How many of each severity, the worst first."""
    why_not: str = ""

    def recorded(self, record: ReleaseRecord) -> ReleaseRecord:
        """A record with what is known of the scan; as it is where none was asked for."""
        if not self.completed and not self.why_not:
            return record
        return replace(record, scanned=self.completed, not_scanned=self.why_not, findings=self.findings)


def level(severity: str, *, is_asked: bool) -> str:
    """The words of `--fail-on` and `--scan`; empty where neither was given."""
    if not severity:
        return "HIGH" if is_asked else ""
    if severity.upper() not in SEVERITIES:
        hint = suggestion(severity.upper(), SEVERITIES)
        raise UsageError(Diagnostic(f"there is no severity `{severity}`", hint=hint))
    return severity.upper()


def scan(registry: EcrRegistry, published: PublishedImage, progress: Reporter, waiting: Waiting) -> Scan:
    """The outcome of a scan; one is asked for where none has begun."""
    where = {
        "repositoryName": published.repository,
        "imageId": {"imageDigest": published.digest},
        **registry.owner,
    }
    progress(f"{published.image}: waiting for Amazon ECR to scan it")
    since = time.monotonic()
    has_asked = False
    last = "no scan of it was found"
    while True:
        try:
            answer = bounded(lambda: _findings(registry, where), waiting.until)
            if answer is None and not has_asked:
                has_asked = True
                bounded(lambda: _begin(registry, where), waiting.until)
        except _NotScannedError as error:
            return Scan(why_not=str(error))
        except OverdueError:
            answer = None
        if answer:
            found = _scan_in(answer)
            if found:
                return found
            last = f"its scan is still {answer['imageScanStatus']['status']}"
        if waiting.is_over(since):
            return Scan(why_not=f"{last} after {format_seconds(time.monotonic() - since)}")
        time.sleep(waiting.pause)


def require_clean(found: Scan, severity: str, published: PublishedImage) -> None:
    """Raise PublishError where findings are as severe as that or more, or where nothing was scanned."""
    facts: tuple[tuple[str, str], ...] = (("image", published.image_uri),)
    if not found.completed:
        message = f"`{published.image}` was not scanned, but a scan was requested"
        hint = "set `scan_on_push`, or enable scanning in the registry's settings"
        reasons = (Reason(found.why_not),)
        raise PublishError(Diagnostic(message, reasons=reasons, facts=facts, hint=hint))
    severe = SEVERITIES[: SEVERITIES.index(severity) + 1]
    if bad := [one for one in found.findings if one.severity in severe]:
        told = ", ".join(f"{one.count} {one.severity}" for one in bad)
        message = f"the scan of `{published.image}` found {told}"
        hint = "`aws ecr describe-image-scan-findings` lists them; `--fail-on` sets what is too much"
        facts = (*facts, ("scanned", found.completed), ("allowed", f"below {severity}"))
        raise PublishError(Diagnostic(message, facts=facts, hint=hint))


class _NotScannedError(Exception):
    """No scan will be made."""


def _findings(registry: EcrRegistry, where: Mapping[str, Any]) -> Any:
    """ECR's answer; None where no scan has begun."""
    errors = registry.api.exceptions
    try:
        with registry.aws.translate_errors("read the findings of the scan"):
            return registry.api.describe_image_scan_findings(**where)
    except RegistryAuthError as error:
        raise _NotScannedError(summarize(error)) from error
    except PublishError as error:
        if isinstance(error.__cause__, errors.ScanNotFoundException):
            return None
        raise


def _begin(registry: EcrRegistry, where: Mapping[str, Any]) -> None:
    errors = registry.api.exceptions
    try:
        with registry.aws.translate_errors("begin a scan"):
            registry.api.start_image_scan(**where)
    except RegistryAuthError as error:
        raise _NotScannedError(summarize(error)) from error
    except PublishError as error:
        if isinstance(error.__cause__, errors.ValidationException):
            # With enhanced scanning nobody may ask for one: it comes by itself.
            return
        if isinstance(error.__cause__, (errors.UnsupportedImageTypeException, errors.LimitExceededException)):
            raise _NotScannedError(summarize(error)) from error
        raise


def _scan_in(answer: Mapping[str, Any]) -> Scan | None:
    """What an answer tells; None while the scan goes on."""
    status = answer["imageScanStatus"]
    found = answer.get("imageScanFindings", {})
    name = str(status.get("status", ""))
    if name in _GOING_ON or (name == "ACTIVE" and "imageScanCompletedAt" not in found):
        return None
    if name not in _DONE:
        description = str(status.get("description", ""))
        return Scan(why_not=f"Amazon ECR says {name}" + (f": {description}" if description else ""))
    completed = found.get("imageScanCompletedAt") or datetime.now(UTC)
    counts = found.get("findingSeverityCounts", {})
    known = [severity for severity in SEVERITIES if severity in counts]
    others = sorted(set(counts) - set(SEVERITIES))
    findings = tuple(ReleasedFindings(one, int(counts[one])) for one in (*known, *others) if counts[one])
    return Scan(completed.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), findings)
