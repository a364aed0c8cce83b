"""Validation of a training job before it is sent: its settings, and its image for these settings.

Settings that the SageMaker SDK rejects are errors, and so are settings with which the job would fail.
Settings with which the job would not run as intended are warnings. Each finding names its rule and source.
"""

from collections.abc import Mapping
from dataclasses import replace

from bakehouse.catalog.names import framework_titled
from bakehouse.jobs import rules
from bakehouse.jobs.api_conditions import channel_names, check_fields
from bakehouse.jobs.distribution import LIBRARIES, LaunchContext, distribution_findings, launch_settings
from bakehouse.jobs.image_checks import (
    XLA,
    check_compiler,
    check_efa,
    check_image,
    check_torchrun,
    check_variables,
)
from bakehouse.jobs.model_trainer import driver_findings, variable_findings
from bakehouse.jobs.request_checks import check_request
from bakehouse.jobs.rules import Findings, RuleViolation
from bakehouse.jobs.training_request import FRAMEWORKS, LaunchImage, TrainingRequest


def validate(request: TrainingRequest, image: LaunchImage | None = None) -> tuple[RuleViolation, ...]:
    """Return all findings about a request: errors first, then warnings.

    Without an image, the SDK uses one of AWS's for the framework's version.
    """
    findings = Findings()
    launch_findings = _launch_findings(request, image)
    check_request(request, image, findings)
    check_fields(request, findings)
    check_torchrun(request, image, findings)
    check_compiler(request, image, findings)
    check_efa(request, image, findings)
    check_variables(request, image, findings)
    if image is not None and image.is_known:
        check_image(request, image, findings)
    if request.sender not in ("ModelTrainer", "API") and not launch_findings.errors:
        _check_overwritten(request, image, findings)
    # Only the SDK drops the groups.
    ignored = (rules.GROUPS_DROPPED,) if request.sender == "API" else ()
    warnings = (warning for warning in launch_findings.warnings if warning.rule not in ignored)
    return (
        *dict.fromkeys((*launch_findings.errors, *findings.errors)),
        *dict.fromkeys((*warnings, *findings.warnings)),
    )


def launch_context(request: TrainingRequest, image: LaunchImage | None) -> LaunchContext:
    """Return the job that a distribution is for, as the sending class sees it."""
    framework = framework_titled(request.framework_class)
    versions = image.versions if image else {}
    # The others start images of any framework.
    if request.sender not in FRAMEWORKS and "tensorflow" in versions:
        framework = "tensorflow"
    version = request.framework_version or versions.get(framework, "")
    return LaunchContext(
        request.groups,
        framework,
        version,
        request.entry_point,
        smp=versions.get("smp", ""),
        libfabric=versions.get("libfabric", ""),
        environment={**(image.environment if image else {}), **request.environment},
        smddp=versions.get("smddp", ""),
    )


def _launch_findings(request: TrainingRequest, image: LaunchImage | None) -> Findings:
    context = launch_context(request, image)
    if request.sender == "ModelTrainer":
        if request.command and not request.entry_point:
            context = replace(context, entry_point="command.sh")
        findings = driver_findings(request.distribution, context)
        if request.sends_code or request.command:
            channels = sorted(channel_names(request))
            findings.extend(variable_findings(request.hyperparameters, channels, request.entry_point))
        return findings
    distribution = dict(_sent_distribution(request))
    if request.compiler is not None:
        distribution.pop(XLA, None)
    return distribution_findings(distribution, context)


def _sent_distribution(request: TrainingRequest) -> Mapping[str, object]:
    """Return the part of a `distribution` that its class does not ignore."""
    if request.sender == "Estimator":
        return {}
    ignored = LIBRARIES if request.sender == "HuggingFace" and request.is_on("torch_distributed") else ""
    return {name: settings for name, settings in request.distribution.items() if name != ignored}


def _check_overwritten(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    if request.compiler is not None:
        return
    sent = launch_settings(_sent_distribution(request), launch_context(request, image)).hyperparameters
    for name in sorted(sent.keys() & request.hyperparameters.keys()):
        if sent[name] != request.hyperparameters[name]:
            message = f"`distribution` overwrites the hyperparameter `{name}`"
            findings.add(rules.OVERWRITTEN, message, "remove one of them")
