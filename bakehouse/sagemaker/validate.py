"""Says what is wrong with a training job before it is sent: with its settings, and with its image for them.

What SageMaker's SDK refuses is refused, and so is what it takes and the job then fails of, or runs otherwise
than it was meant; each finding names its rule, and where that is known from.
"""

from dataclasses import replace

from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.compiler_rules import XLA, compiler_findings
from bakehouse.sagemaker.distribution import Framework, Training, distribution_findings, launch_settings
from bakehouse.sagemaker.findings import Finding, Findings
from bakehouse.sagemaker.image_checks import efa_findings
from bakehouse.sagemaker.image_rules import image_findings
from bakehouse.sagemaker.model_trainer import driver_findings
from bakehouse.sagemaker.request_checks import sending_findings
from bakehouse.sagemaker.training_request import LaunchImage, TrainingRequest


def check(request: TrainingRequest, image: LaunchImage | None = None) -> tuple[Finding, ...]:
    """Everything that is wrong with a request: errors first, then what is only warned of.

    Without an image SageMaker's SDK takes one of AWS's, by the framework's version.
    """
    findings = Findings()
    told = _launch_findings(request, image)
    sending_findings(request, image, findings)
    compiler_findings(request, image, findings)
    efa_findings(request, image, findings)
    if image is not None:
        image_findings(request, image, findings)
    if request.sender != "ModelTrainer" and not told.errors:
        _check_overwritten(request, image, findings)
    return (
        *dict.fromkeys((*told.errors, *findings.errors)),
        *dict.fromkeys((*told.warnings, *findings.warnings)),
    )


def training_of(request: TrainingRequest, image: LaunchImage | None) -> Training:
    """The job that a distribution is for, as the class that sends it sees it."""
    framework: Framework = "tensorflow" if request.sender == "TensorFlow" else "pytorch"
    version = request.framework_version or (image.versions.get(framework, "") if image else "")
    return Training(request.groups, framework, version, request.entry_point)


def _launch_findings(request: TrainingRequest, image: LaunchImage | None) -> Findings:
    training = training_of(request, image)
    if request.sender == "ModelTrainer":
        if request.command and not request.entry_point:
            training = replace(training, entry_point="command.sh")
        return driver_findings(request.distribution, training)
    # The generic Estimator never looks at it.
    distribution = dict(request.distribution if request.sender != "Estimator" else {})
    if request.compiler is not None:
        distribution.pop(XLA, None)
    return distribution_findings(distribution, training)


def _check_overwritten(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    if request.compiler is not None or request.sender == "Estimator":
        return
    sent = launch_settings(request.distribution, training_of(request, image)).hyperparameters
    for name in sorted(sent.keys() & request.hyperparameters.keys()):
        if sent[name] != request.hyperparameters[name]:
            message = f"hyperparameter `{name}` is given by hand, and by the distribution, whose value wins"
            findings.add(launch_rules.OVERWRITTEN, message, "leave one of them out")
