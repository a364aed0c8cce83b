"""Checks of jobs that need no release: `bake validate`."""

from dataclasses import dataclass, replace
from pathlib import Path

from bakehouse.catalog.instance_types import instances
from bakehouse.errors import UsageError
from bakehouse.jobs import rules
from bakehouse.jobs.code_archive import IGNORED_BY_V3, sdk_findings
from bakehouse.jobs.job_file import JobFile
from bakehouse.jobs.job_images import find_image
from bakehouse.jobs.job_spec import JobSpec, job_findings, select_sdk
from bakehouse.jobs.rules import RuleViolation
from bakehouse.jobs.training_request import LaunchImage
from bakehouse.plan.workspace import Workspace


@dataclass(frozen=True, slots=True)
class JobCheck:
    """Findings about a job."""

    image: LaunchImage | None
    """None if the SDK selects an image of AWS by the version of its framework."""
    findings: tuple[RuleViolation, ...]
    """Errors first, then warnings."""

    @property
    def title(self) -> str:
        return self.image.name if self.image else "image of AWS"


def check(workspace: Workspace, image: str, job: JobSpec, file: str = "") -> JobCheck:
    """Check a job, or the one in a JSON file, with an image given by name or URI.

    Raises UsageError if the image is unknown, or the settings are incomplete or contradict each other.
    """
    if file:
        if job != JobSpec():
            raise UsageError(
                "`--file` cannot be combined with settings of a job", hint="change the settings in the file"
            )
        content = JobFile(Path(file), instances(workspace.catalog))
        name = image or content.image
        found = find_image(workspace, name) if name else None
        return _check(found, content.findings_with(found))
    if not image:
        raise UsageError(
            "`validate` needs IMAGE or `--file`",
            hint="name an image, or set `--file`: `bake help validate` shows both",
        )
    if job.sdk == "boto3":
        raise UsageError(
            "`--sdk boto3` has no settings of its own to check",
            hint="save the request as JSON, and run `bake validate --file request.json`",
        )
    found = find_image(workspace, image, job.instance_type)
    code_root = Path() if job.source_dir else None
    job, _ = select_sdk(found, job, workspace.catalog, code_root=code_root)
    _, findings = job_findings(found, job, workspace.catalog, code_root=code_root)
    ignored = IGNORED_BY_V3 if job.sdk == "v3" else ()
    return _check(found, (*findings, *sdk_findings(job.source_dir, ignored)))


def _check(image: LaunchImage | None, findings: tuple[RuleViolation, ...]) -> JobCheck:
    if image is not None and not image.is_known:
        message = f"the content of `{image.name}` is unknown, so only the settings are checked"
        hint = "use the URI of a release of this project, or of a base in the catalogue"
        findings = (*findings, RuleViolation(rules.IMAGE_UNKNOWN, message, hint))
    if image is not None:
        findings = tuple(_with_source(finding, image.source) for finding in findings)
    return JobCheck(image, findings)


def _with_source(finding: RuleViolation, source: str) -> RuleViolation:
    """Name the recipe or the base where the image has no release."""
    rule = replace(finding.rule, source=finding.rule.source.replace(rules.RELEASE, source))
    return replace(finding, rule=rule)
