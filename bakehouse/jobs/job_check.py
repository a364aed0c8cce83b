"""Checks of jobs that need no release: `bake validate`."""

from dataclasses import replace
from pathlib import Path

from bakehouse.errors import UsageError
from bakehouse.jobs import rules
from bakehouse.jobs.code_archive import IGNORED_BY_V3, sdk_findings
from bakehouse.jobs.given_job import GivenJob
from bakehouse.jobs.job_images import find_image
from bakehouse.jobs.job_spec import CheckedJob, check_job
from bakehouse.jobs.rules import RuleViolation
from bakehouse.jobs.tested_job import with_tested_settings
from bakehouse.plan.workspace import Workspace


def check_settings(workspace: Workspace, given: GivenJob) -> CheckedJob:
    """Check a job with an image given by name or URI.

    Raises UsageError if the image is unknown, or the settings are incomplete or contradict each other.
    """
    job = given.spec
    if given.file:
        image = find_image(workspace, given.image) if given.image else None
        return _explain(given.file.check_with(image))
    if not given.image:
        raise UsageError(
            "`validate` needs an image",
            hint="name one, or set `image` in the job file; `--job` also takes a CreateTrainingJob request",
        )
    if job.sdk == "boto3":
        raise UsageError(
            "`--sdk boto3` has no settings of its own to check",
            hint="save the request as JSON, and run `bake validate --job request.json`",
        )
    code_root = Path() if job.source_dir else None
    launch_image = find_image(workspace, given.image, job.instance_type)
    job = with_tested_settings(launch_image, job)
    checked = check_job(launch_image, job, workspace.catalog, code_root=code_root)
    ignored = IGNORED_BY_V3 if checked.sdk == "v3" else ()
    findings = (*checked.findings, *sdk_findings(job.source_dir, ignored))
    return _explain(replace(checked, findings=findings))


def _explain(checked: CheckedJob) -> CheckedJob:
    """Add a warning for an image of unknown content, and the sources of the image's properties."""
    image, findings = checked.image, checked.findings
    if image is None:
        return checked
    if not image.is_known:
        message = f"the content of `{image.name}` is unknown, so only the settings are checked"
        hint = "use the URI of a release of this project, or of a base in the catalogue"
        findings = (*findings, RuleViolation(rules.IMAGE_UNKNOWN, message, hint))
    return replace(checked, findings=tuple(_name_source(finding, image.source) for finding in findings))


def _name_source(finding: RuleViolation, source: str) -> RuleViolation:
    """Name the recipe or the base where the image has no release."""
    rule = replace(finding.rule, source=finding.rule.source.replace(rules.RELEASE, source))
    return replace(finding, rule=rule)
