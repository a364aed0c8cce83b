"""Finds what SageMaker Training Compiler is not for: it is frozen, and few settings run with it."""

from collections.abc import Mapping

from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.distribution import numbers
from bakehouse.sagemaker.findings import Findings
from bakehouse.sagemaker.training_request import LOCAL, LaunchImage, TrainingRequest

FAMILIES = ("p3", "p3dn", "g4dn", "p4d", "g5")
EFA = frozenset(
    {"ml.g4dn.8xlarge", "ml.g4dn.12xlarge", "ml.g5.48xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"}
)
XLA = "pytorchxla"
_PYTORCH = ("1.12.0", "1.13.1")
_OLDEST_TENSORFLOW, _NEWEST_TENSORFLOW = (2, 9), (2, 11)


def compiler_findings(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    """What is wrong with a `compiler_config`, enabled or not: the SDK looks at both."""
    if request.compiler is None:
        return

    def add(message: str, hint: str = "") -> None:
        findings.add(launch_rules.COMPILER, message, hint)

    if request.sender not in ("PyTorch", "TensorFlow"):
        add(f"`{request.sender}` takes no `compiler_config`", "the classes PyTorch and TensorFlow do")
        return
    for group in request.groups:
        kind = group.instance_type
        if kind in LOCAL:
            add("Training Compiler has no local mode")
        elif kind.split(".")[1:2] not in [[family] for family in FAMILIES]:
            add(f"Training Compiler does not run on `{kind}`", f"it runs on {_list(FAMILIES)}")
        if group.name:
            add("Training Compiler takes no instance groups", "give an instance type and a count")
    if "smdistributed" in request.distribution or "pytorchddp" in request.distribution:
        add("Training Compiler does not go with `smdistributed`", "leave one of them out")
    if request.sender == "PyTorch":
        _check_pytorch(request, image, findings)
    else:
        _check_tensorflow(request, findings)


def _check_pytorch(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    version = numbers(request.framework_version)
    if image is not None:
        hint = "give the hyperparameter `sagemaker_training_compiler_enabled` by hand"
        message = "the class PyTorch takes no `image_uri` with a `compiler_config`"
        findings.add(launch_rules.COMPILER, message, hint)
    elif request.framework_version not in _PYTORCH:
        message = f"Training Compiler has no image for PyTorch {request.framework_version}"
        findings.add(launch_rules.COMPILER, message, f"there is one for {_list(_PYTORCH)}")
    xla = request.distribution.get(XLA)
    is_on = isinstance(xla, Mapping) and bool(xla.get("enabled"))
    if is_on and version and version < (1, 12):
        findings.add(launch_rules.COMPILER, f"`{XLA}` needs PyTorch 1.12 or newer")
    if request.distribution and xla is None and version >= (1, 12):
        message = f"`{XLA}` is the only distribution of PyTorch 1.12 and newer with Training Compiler"
        findings.add(launch_rules.COMPILER, message, f'write `{{"{XLA}": {{"enabled": true}}}}`')
    if is_on and any(group.instance_type not in EFA for group in request.groups):
        message = "Training Compiler's ranks talk through EFA, which the instances don't have"
        findings.add(launch_rules.COMPILER_EFA, message, f"take one of {_list(sorted(EFA))}")


def _check_tensorflow(request: TrainingRequest, findings: Findings) -> None:
    version = numbers(request.framework_version)
    if version and not _OLDEST_TENSORFLOW <= version <= _NEWEST_TENSORFLOW:
        message = f"Training Compiler does not run TensorFlow {request.framework_version}"
        findings.add(launch_rules.COMPILER, message, "it runs 2.9 to 2.11")
    if request.is_on("multi_worker_mirrored_strategy"):
        message = "Training Compiler does not go with `multi_worker_mirrored_strategy`"
        findings.add(launch_rules.COMPILER, message, "leave one of them out")


def _list(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
