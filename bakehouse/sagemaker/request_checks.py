"""Finds what the SDK's classes and SageMaker's API don't take: versions, groups, code, limits."""

import json
import re
from collections.abc import Mapping, Sized
from pathlib import Path

from bakehouse.catalog.instance_gpus import meant
from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.distribution import numbers
from bakehouse.sagemaker.findings import Findings
from bakehouse.sagemaker.training_request import LOCAL, LaunchImage, TrainingRequest

LONGEST_URI = 255
_MOST_PARAMETERS, _LONGEST_NAME, _LONGEST_VALUE = 100, 256, 2500
_MOST_VARIABLES, _LONGEST_VARIABLE = 100, 512
_LONGEST_KEEP_ALIVE = 21600
_NO_MPS_IMAGE = "2.0.1-gpu-py310-cu121"
_OWN = ("sagemaker_program", "sagemaker_submit_directory", "sagemaker_job_name", "sagemaker_region")
_ALL_OWN = (*_OWN, "sagemaker_container_log_level")
_VARIABLE = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_SAFE = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._+-]*(/[A-Za-z0-9._+-]+)*")
"""Names of scripts that the toolkit starts."""
TORCH_DISTRIBUTED = (
    *("1.13.1", "2.0.0", "2.0.1", "2.1.0", "2.1.2", "2.2.0", "2.3.0", "2.3.1", "2.4.1", "2.5.1", "2.6.0"),
    *("2.7.1", "2.8.0"),
)
"""The PyTorch of AWS's own images that the SDK lets torchrun start in, on GPUs."""
TORCH_ON_TRAINIUM = ("1.11", "1.11.0", "1.12", "1.12.0", "1.12.1", "1.13.1", "2.0.0")
SMDDP: Mapping[str, tuple[str, ...]] = {
    "PyTorch": (
        *("1.6", "1.6.0", "1.7", "1.7.1", "1.8", "1.8.0", "1.8.1", "1.9", "1.9.0", "1.9.1", "1.10", "1.10.0"),
        *("1.10.2", "1.11", "1.11.0", "1.12", "1.12.0", "1.12.1", "1.13.1", "2.0.0", "2.0.1", "2.1.0"),
        *("2.1.2", "2.2.0"),
    ),
    "TensorFlow": (
        *("2.3", "2.3.1", "2.3.2", "2.4", "2.4.1", "2.4.3", "2.5", "2.5.0", "2.5.1", "2.6", "2.6.0", "2.6.2"),
        *("2.6.3", "2.7", "2.7.1", "2.8", "2.8.0", "2.9", "2.9.1", "2.9.2", "2.10", "2.10.1", "2.11"),
        "2.11.0",
    ),
}
"""The frameworks of AWS's own images that the SDK lets SMDDP start in."""


def sending_findings(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    """What is wrong with a request by itself, whatever its distribution says."""
    if request.sender == "Estimator" and request.distribution:
        message = "the generic Estimator drops `distribution`: one process would start on each host"
        findings.add(
            launch_rules.SWALLOWED, message, "take the class PyTorch, or TensorFlow, with `image_uri`"
        )
    is_smd = bool({"smdistributed", "pytorchddp"} & request.distribution.keys())
    is_torch = request.is_on("torch_distributed")
    if image is None:
        _check_versions(request, findings)
    elif _NO_MPS_IMAGE in image.uri and is_smd and not is_torch and request.sender != "Estimator":
        findings.add(launch_rules.SMD_IMAGE, f"the SDK takes no `{_NO_MPS_IMAGE}` with `smdistributed`")
    is_mirrored = request.sender == "TensorFlow" and request.is_on("multi_worker_mirrored_strategy")
    if is_mirrored and not request.framework_version:
        message = "`multi_worker_mirrored_strategy` needs `framework_version` beside `image_uri`"
        findings.add(launch_rules.MIRRORED, message, "the SDK asks whether it is 2.9 or newer")
    _check_groups(request, findings)
    _check_code(request, image, findings)
    _check_limits(request, image, findings)


def _check_versions(request: TrainingRequest, findings: Findings) -> None:
    """The SDK's lists: it looks at them where it is to find the image itself."""
    version, python = request.framework_version, request.py_version
    if not version or not python or request.sender in ("Estimator", "ModelTrainer"):
        message = "there is no image"
        findings.add(
            launch_rules.IMAGE_OR_VERSION, message, "give `image_uri`, or a framework's version and Python's"
        )
        return
    if python == "py2":
        findings.add(launch_rules.PYTHON_2, "no image has Python 2", "write `py_version` as in `py311`")
    known = SMDDP[request.sender]
    is_smddp = request.is_on("smdistributed.dataparallel") or request.is_on("pytorchddp")
    if is_smddp and version not in known:
        message = f"AWS has no image of {request.sender} {version} with SMDDP"
        findings.add(launch_rules.SMDDP_VERSION, message, f"the newest is {max(known, key=numbers)}")
    if request.sender == "PyTorch" and request.is_on("torch_distributed"):
        for group in request.groups:
            _check_torch(group.instance_type, version, findings)


def _check_torch(kind: str, version: str, findings: Findings) -> None:
    is_gpu = kind.startswith(("ml.p", "ml.g")) or kind == "local_gpu"
    if not is_gpu and not kind.startswith("ml.trn"):
        message = f"`torch_distributed` with an image of AWS's is for GPUs and Trainium, not for `{kind}`"
        findings.add(launch_rules.TORCH_VERSION, message, "give an `image_uri`: the SDK asks nothing then")
    elif version not in (TORCH_DISTRIBUTED if is_gpu else TORCH_ON_TRAINIUM):
        message = f"the SDK knows no image of PyTorch {version} for `torch_distributed` on `{kind}`"
        newest = (TORCH_DISTRIBUTED if is_gpu else TORCH_ON_TRAINIUM)[-1]
        findings.add(launch_rules.TORCH_VERSION, message, f"the newest is {newest}")


def _check_groups(request: TrainingRequest, findings: Findings) -> None:
    has_groups = any(group.name for group in request.groups)
    if request.beside_groups and has_groups:
        message = f"instance groups, and `{request.beside_groups}` as the type of all instances"
        findings.add(launch_rules.GROUPS_OR_TYPE, message, "leave `instance_type` and `instance_count` out")
    if request.keep_alive is not None and has_groups:
        message = "instance groups, and a warm pool that they can't be kept in"
        findings.add(launch_rules.GROUPS_WARM, message, "leave `keep_alive_period_in_seconds` out")
    if has_groups and request.is_local:
        findings.add(
            launch_rules.GROUPS_LOCAL, "local mode has no instance groups", "`./bake run --group` has"
        )
    if request.is_local and request.sender == "ModelTrainer":
        message = "a ModelTrainer of version 3 has no instance type `local`"
        hint = (
            "`./bake run` runs a job on this machine; the SDK does with `training_mode=Mode.LOCAL_CONTAINER`"
        )
        findings.add(launch_rules.LOCAL_V3, message, hint)
    for group in request.groups:
        if not group.is_known and group.instance_type not in LOCAL:
            hint = meant(group.instance_type) or "SageMaker's types are like `ml.g5.12xlarge`"
            findings.add(launch_rules.INSTANCE, f"unknown instance type `{group.instance_type}`", hint)
        if group.instance_type == "local_gpu" and group.count > 1 and not group.name:
            findings.add(launch_rules.LOCAL_GPU, f"{group.count} instances of `local_gpu`", "there is one")
    for_groups = [name for name, groups in request.channels.items() if groups]
    if for_groups and len(for_groups) < len(request.channels):
        others = ", ".join(f"`{name}`" for name in request.channels if name not in for_groups)
        message = f"channel `{for_groups[0]}` is for a group, and {others} for no group"
        findings.add(launch_rules.GROUPS_CHANNELS, message, "say it of all channels, or of none")


def _check_code(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    script, sender = request.entry_point, request.sender
    if sender == "ModelTrainer":
        _check_source(request, findings)
    elif not script and sender != "Estimator":
        message, hint = f"the class {sender} needs an `entry_point`", "the generic Estimator needs none"
        findings.add(launch_rules.NO_SCRIPT, message, hint)
    elif (
        not script and image is not None and not image.entry_point and "sagemaker-training" in image.versions
    ):
        told = {*request.hyperparameters, *(name.lower() for name in request.environment)}
        if "sagemaker_program" not in told:
            message = f"there is no training script: `{image.name}` brings none"
            findings.add(launch_rules.NO_SCRIPT, message, "give an `entry_point`")
    if script.startswith("s3://"):
        findings.add(
            launch_rules.CODE, f"`entry_point` is `{script}`", "it is a file here, or in `source_dir`"
        )
    elif script:
        _check_reach(request, image, findings)


def _check_source(request: TrainingRequest, findings: Findings) -> None:
    for name, value in (("entry_script", request.entry_point), ("requirements", request.requirements)):
        if value and not request.source_dir:
            findings.add(launch_rules.CODE, f"`{name}` without `source_dir`", "it is a path below that")
        elif value and _is_missing(request, f"{request.source_dir}/{value}"):
            findings.add(launch_rules.CODE, f"`{request.source_dir}` holds no `{value}`")
    if request.command and request.distribution:
        message = "a command takes the place of the drivers: `distributed` starts nothing"
        findings.add(launch_rules.COMMAND_FIRST, message, "leave one of them out")


def _check_reach(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    script, rule = request.entry_point, launch_rules.ENTRY_POINT
    if request.sender == "ModelTrainer":
        if script.startswith("/") or ".." in script.split("/"):
            findings.add(rule, f"`{script}` does not lie in `source_dir`", "a path below it")
        return
    sent = script if request.source_dir else Path(script).name
    if not _SAFE.fullmatch(sent) or {"..", "."} & {*sent.split("/")}:
        message = f"the toolkit starts no `{sent}`"
        findings.add(rule, message, "a path below `source_dir`, of letters, digits and `._+-`")
    where = f"{request.source_dir}/{script}" if request.source_dir else script
    if _is_missing(request, where):
        place = f"`{request.source_dir}` holds" if request.source_dir else "there is"
        findings.add(
            launch_rules.CODE, f"{place} no `{script}`", "`entry_point` is a path below `source_dir`"
        )
    if image is not None and image.entry_point:
        message = f"`{image.name}` brings its own code at /opt/ml/code: what is sent is not unpacked"
        findings.add(launch_rules.CODE_BAKED, message, "take the generic Estimator, or SDK v3")


def _is_missing(request: TrainingRequest, path: str) -> bool:
    if request.folder is None or path.startswith("s3://") or request.source_dir.endswith(".tar.gz"):
        return False
    return not (request.folder / path).is_file()


def _check_limits(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    def check(what: str, there: Mapping[str, object] | Sized, most: int) -> None:
        if len(there) > most:
            findings.add(launch_rules.LIMITS, f"{what}: {len(there)}", f"SageMaker takes {most}")

    own = _ALL_OWN if request.sends_code and request.sender != "ModelTrainer" else ()
    check("hyperparameters, with the SDK's own", {*request.hyperparameters, *own}, _MOST_PARAMETERS)
    check("environment variables", request.environment, _MOST_VARIABLES)
    for name, value in request.hyperparameters.items():
        check(f"characters of a hyperparameter's name `{name[:20]}…`", name, _LONGEST_NAME)
        check(f"characters of hyperparameter `{name[:20]}`", json.dumps(value), _LONGEST_VALUE)
    for name, text in request.environment.items():
        if not _VARIABLE.fullmatch(name):
            message = f"`{name}` can't be the name of an environment variable"
            findings.add(launch_rules.LIMITS, message, "letters, digits and `_`, no digit first")
        check(f"characters of a variable's name `{name[:20]}…`", name, _LONGEST_VARIABLE)
        check(f"characters of variable `{name[:20]}`", text, _LONGEST_VARIABLE)
    if image is not None and len(image.uri) > LONGEST_URI:
        message = f"the image_uri of `{image.name}` has {len(image.uri)} characters"
        hint = f"SageMaker takes {LONGEST_URI}: publish it with a shorter `repository_prefix`"
        findings.add(launch_rules.LIMITS, message, hint)
    if request.keep_alive is not None and not 0 <= request.keep_alive <= _LONGEST_KEEP_ALIVE:
        message = f"a warm pool is kept for {request.keep_alive} seconds"
        findings.add(launch_rules.KEEP_ALIVE, message, f"0 to {_LONGEST_KEEP_ALIVE}")
    if request.sends_code and request.sender != "ModelTrainer":
        for name in sorted(request.hyperparameters.keys() & {*_OWN}):
            message = f"hyperparameter `{name}` is the SDK's own: what is given by hand is lost"
            findings.add(launch_rules.OVERWRITTEN, message, "leave it out")
