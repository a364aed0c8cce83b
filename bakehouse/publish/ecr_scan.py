"""Waits for Amazon ECR's scan of an image, basic or enhanced; an unscanned image never counts as clean."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bakehouse.catalog.registry_settings import SEVERITIES
from bakehouse.errors import PublishError, Reason, RegistryAuthError, UsageError
from bakehouse.ledger.releases import ReleasedFindings, ReleaseRecord
from bakehouse.publish.tags import PublishedImage
from bakehouse.registry.ecr import EcrRegistry
from bakehouse.registry.registry import Registry
from bakehouse.util.aws import summarize
from bakehouse.util.deadline import NEVER, OverdueError, bounded
from bakehouse.util.format import format_seconds
from bakehouse.util.suggest import suggestion
from bakehouse.util.terminal import Reporter

_RUNNING = ("PENDING", "IN_PROGRESS")
_DONE = ("COMPLETE", "ACTIVE")
"""ACTIVE is the status of continuous scans; it has no findings before the first scan."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Limits on waiting for AWS."""

    seconds: float = 1800.0
    pause: float = 5.0
    """Seconds between two requests."""
    until: float = NEVER
    """Deadline by time.monotonic()."""

    def is_over(self, since: float) -> bool:
        now = time.monotonic()
        return now - since >= self.seconds or now >= self.until


@dataclass(frozen=True, slots=True)
class EcrScan:
    """Result of a scan, or the reason for none."""

    completed: str = ""
    """Time in UTC; empty without a scan."""
    findings: tuple[ReleasedFindings, ...] = ()
    """Number of findings of each severity, the worst first."""
    missing_reason: str = ""
    """Why a requested scan is missing."""

    def recorded(self, record: ReleaseRecord) -> ReleaseRecord:
        """Return a record with the result of the scan; the same record if no scan was requested."""
        if not self.completed and not self.missing_reason:
            return record
        return replace(
            record, scanned=self.completed, not_scanned=self.missing_reason, findings=self.findings
        )


def level(severity: str) -> str:
    """Return the severity that `--fail-on` selects; empty without it."""
    if severity and severity.upper() not in SEVERITIES:
        raise UsageError(f"unknown severity `{severity}`", hint=suggestion(severity.upper(), SEVERITIES))
    return severity.upper()


def scan(registry: EcrRegistry, published: PublishedImage, progress: Reporter, waiting: Waiting) -> EcrScan:
    """Return the result of a scan; start one if none has started."""
    arguments = {
        "repositoryName": published.repository,
        "imageId": {"imageDigest": published.digest},
        **registry.owner,
    }
    progress(f"{published.image}: waiting for Amazon ECR to scan it")
    since = time.monotonic()
    was_started = False
    status = "no scan was found"
    while True:
        try:
            response = bounded(lambda: _findings(registry, arguments), waiting.until)
            if response is None and not was_started:
                was_started = True
                bounded(lambda: _start(registry, arguments), waiting.until)
        except _NotScannedError as error:
            return EcrScan(missing_reason=str(error))
        except OverdueError:
            response = None
        if response:
            if result := _scan_in(response):
                return result
            status = f"its scan is still {response['imageScanStatus']['status']}"
        if waiting.is_over(since):
            return EcrScan(missing_reason=f"{status} after {format_seconds(time.monotonic() - since)}")
        time.sleep(waiting.pause)


def require_scanning(registry: Registry) -> EcrRegistry:
    """Return a registry that scans; raise UsageError for others."""
    if not isinstance(registry, EcrRegistry):
        raise UsageError(
            f"`{registry.host}` does not scan images; only Amazon ECR does", hint="omit `--fail-on`"
        )
    return registry


def require_clean(result: EcrScan, severity: str, published: PublishedImage) -> None:
    """Raise PublishError for findings of this severity or a higher one, or for a missing scan."""
    facts: tuple[tuple[str, str], ...] = (("image", published.image_uri),)
    if not result.completed:
        message = f"`{published.image}` was not scanned, but a scan was requested"
        hint = "set `scan_on_push`, or enable scanning in the registry's settings"
        reasons = (Reason(result.missing_reason),)
        raise PublishError(message, reasons=reasons, facts=facts, hint=hint)
    severe = SEVERITIES[: SEVERITIES.index(severity) + 1]
    if findings := [finding for finding in result.findings if finding.severity in severe]:
        counts = ", ".join(f"{finding.count} {finding.severity}" for finding in findings)
        message = f"the scan of `{published.image}` found {counts}"
        hint = "list them with `aws ecr describe-image-scan-findings`, or allow them with `--fail-on`"
        facts = (*facts, ("scanned", result.completed), ("allowed", f"below {severity}"))
        raise PublishError(message, facts=facts, hint=hint)


class _NotScannedError(Exception):
    """No scan will be made."""


def _findings(registry: EcrRegistry, arguments: Mapping[str, Any]) -> Any:
    """ECR's response with the findings; None if no scan has started."""
    errors = registry.api.exceptions
    try:
        with registry.aws.translate_errors("read the findings of the scan"):
            return registry.api.describe_image_scan_findings(**arguments)
    except RegistryAuthError as error:
        raise _NotScannedError(summarize(error)) from error
    except PublishError as error:
        if isinstance(error.__cause__, errors.ScanNotFoundException):
            return None
        raise


def _start(registry: EcrRegistry, arguments: Mapping[str, Any]) -> None:
    errors = registry.api.exceptions
    try:
        with registry.aws.translate_errors("start a scan"):
            registry.api.start_image_scan(**arguments)
    except RegistryAuthError as error:
        raise _NotScannedError(summarize(error)) from error
    except PublishError as error:
        if isinstance(error.__cause__, errors.ValidationException):
            # Enhanced scanning rejects requests, because it starts by itself.
            return
        if isinstance(error.__cause__, (errors.UnsupportedImageTypeException, errors.LimitExceededException)):
            raise _NotScannedError(summarize(error)) from error
        raise


def _scan_in(response: Mapping[str, Any]) -> EcrScan | None:
    """Result in a response; None while the scan is running."""
    status = response["imageScanStatus"]
    details = response.get("imageScanFindings", {})
    name = str(status.get("status", ""))
    if name in _RUNNING or (name == "ACTIVE" and "imageScanCompletedAt" not in details):
        return None
    if name not in _DONE:
        description = str(status.get("description", ""))
        detail = f": {description}" if description else ""
        return EcrScan(missing_reason=f"Amazon ECR reports the status {name}{detail}")
    completed = details.get("imageScanCompletedAt") or datetime.now(UTC)
    counts = details.get("findingSeverityCounts", {})
    severities = (*SEVERITIES, *sorted(set(counts) - set(SEVERITIES)))
    findings = tuple(ReleasedFindings(name, int(counts[name])) for name in severities if counts.get(name))
    return EcrScan(completed.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), findings)
