"""Checks for settings that the SDK or SageMaker's API rejects: versions, groups, code and limits."""

import json
import re
from collections.abc import Iterable, Mapping, Sized
from pathlib import Path

from bakehouse.catalog.instance_gpus import instance_type_hint, is_instance_type
from bakehouse.jobs import rules
from bakehouse.jobs.distribution import LIBRARIES
from bakehouse.jobs.instance_groups import check_channels, numbers
from bakehouse.jobs.model_trainer import REQUIREMENTS
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.script_arguments import flag_findings
from bakehouse.jobs.training_request import LOCAL, LaunchImage, TrainingRequest

MAX_URI = 255
_MAX_PARAMETERS, _MAX_NAME, _MAX_VALUE = 100, 256, 2500
_MAX_VARIABLES, _MAX_VARIABLE = 100, 512
_MAX_KEEP_ALIVE = 21600
_NO_MPS_IMAGE = "2.0.1-gpu-py310-cu121"
_SDK_PARAMETERS = (
    "sagemaker_program",
    "sagemaker_submit_directory",
    "sagemaker_job_name",
    "sagemaker_region",
)
"""Hyperparameters that the SDK overwrites."""
_ADDED_PARAMETERS = (*_SDK_PARAMETERS, "sagemaker_container_log_level")
_VARIABLE = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_SAFE = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._+-]*(/[A-Za-z0-9._+-]+)*")
"""Script names that the toolkit can start."""
TORCH_DISTRIBUTED = (
    *("1.13.1", "2.0.0", "2.0.1", "2.1.0", "2.1.2", "2.2.0", "2.3.0", "2.3.1", "2.4.1", "2.5.1", "2.6.0"),
    *("2.7.1", "2.8.0"),
)
"""PyTorch versions of AWS's images in which the SDK allows torchrun on GPUs."""
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
"""Framework versions of AWS's images in which the SDK allows SMDDP."""


def check_request(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    """Check a request, except for the content of its distribution."""
    if request.sender == "Estimator" and request.distribution:
        message = "the generic Estimator ignores `distribution`, so one process starts on each host"
        findings.add(rules.SWALLOWED, message, "use the class PyTorch or TensorFlow with `image_uri`")
    # HuggingFace, unlike PyTorch, does not start SMDDP for `pytorchddp`.
    starts_smd = {LIBRARIES} if request.sender == "HuggingFace" else {LIBRARIES, "pytorchddp"}
    is_smd = bool(starts_smd & request.distribution.keys())
    is_torch = request.is_on("torch_distributed")
    if image is None:
        _check_versions(request, findings)
    elif _NO_MPS_IMAGE in image.uri and is_smd and not is_torch and request.sender != "Estimator":
        findings.add(rules.SMD_IMAGE, f"the SDK rejects the image `{_NO_MPS_IMAGE}` with `smdistributed`")
    if request.sender == "HuggingFace":
        _check_hugging_face(request, image, findings)
    is_mirrored = request.sender == "TensorFlow" and request.is_on("multi_worker_mirrored_strategy")
    if is_mirrored and not request.framework_version:
        message = "`multi_worker_mirrored_strategy` needs `framework_version` in addition to `image_uri`"
        findings.add(rules.MIRRORED, message, "set it to 2.9 or newer")
    _check_groups(request, findings)
    _check_code(request, image, findings)
    _check_isolation(request, findings)
    _check_limits(request, image, findings)


def _check_versions(request: TrainingRequest, findings: Findings) -> None:
    """Check the SDK's lists of versions, which it uses to select an image."""
    version, python = request.framework_version, request.py_version
    if request.sender == "HuggingFace" and not (version and request.transformers_version):
        message = "the job has no image"
        hint = "set `image_uri`, or `transformers_version` and `pytorch_version` or `tensorflow_version`"
        findings.add(rules.IMAGE_OR_VERSION, message, hint)
        return
    if not version or not python or request.sender in ("Estimator", "ModelTrainer"):
        message = "the job has no image"
        hint = "set `image_uri`, or `framework_version` and `py_version`"
        findings.add(rules.IMAGE_OR_VERSION, message, hint)
        return
    if python == "py2":
        findings.add(
            rules.PYTHON_2,
            "images no longer contain Python 2",
            "set `py_version` to a newer one, such as `py311`",
        )
    framework = request.framework_class
    versions = SMDDP[framework]
    is_smddp = request.is_on("smdistributed.dataparallel") or request.is_on("pytorchddp")
    if is_smddp and version not in versions:
        message = f"AWS has no image of {framework} {version} with SMDDP"
        findings.add(rules.SMDDP_VERSION, message, f"use {max(versions, key=numbers)} or older")
    if framework == "PyTorch" and request.is_on("torch_distributed"):
        for group in request.groups:
            _check_torch(group.instance_type, version, findings)


def _check_hugging_face(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    """Check the versions of the class HuggingFace, which requires a Python version with every image."""
    if not request.py_version:
        message = "the class HuggingFace needs `py_version`, also with `image_uri`"
        findings.add(rules.IMAGE_OR_VERSION, message, "set it, for example to `py311`")
    if LIBRARIES in request.distribution and request.is_on("torch_distributed"):
        message = "the class HuggingFace ignores `smdistributed` with `torch_distributed`"
        findings.add(rules.SWALLOWED, message, "use the class PyTorch with `image_uri`")
    if request.is_on("multi_worker_mirrored_strategy"):
        message = "the class HuggingFace does not support `multi_worker_mirrored_strategy`"
        findings.add(rules.MIRRORED, message, "use the class TensorFlow with `image_uri`")
    versions = (request.transformers_version, request.framework_version)
    if image is None and all(versions) and len({version.count(".") for version in versions}) > 1:
        name = f"{request.framework_class.lower()}_version"
        message = f"one of `transformers_version` and `{name}` is shortened: {' and '.join(versions)}"
        findings.add(rules.IMAGE_OR_VERSION, message, "write both in full, such as 4.17.0 and 1.10.2")


def _check_torch(instance_type: str, version: str, findings: Findings) -> None:
    is_gpu = instance_type.startswith(("ml.p", "ml.g")) or instance_type == "local_gpu"
    if not is_gpu and not instance_type.startswith("ml.trn"):
        message = f"`torch_distributed` with AWS's images needs GPUs or Trainium: `{instance_type}` has none"
        findings.add(
            rules.TORCH_VERSION, message, "set `image_uri`, because the SDK does not check other images"
        )
    elif version not in (TORCH_DISTRIBUTED if is_gpu else TORCH_ON_TRAINIUM):
        message = f"the SDK has no image with PyTorch {version} for `torch_distributed` on `{instance_type}`"
        newest = (TORCH_DISTRIBUTED if is_gpu else TORCH_ON_TRAINIUM)[-1]
        findings.add(rules.TORCH_VERSION, message, f"use {newest} or older")


def _check_groups(request: TrainingRequest, findings: Findings) -> None:
    has_groups = any(group.name for group in request.groups)
    if request.extra_instance_type and has_groups:
        message = f"the job has instance groups and also the instance type `{request.extra_instance_type}`"
        findings.add(rules.GROUPS_OR_TYPE, message, "remove `instance_type` and `instance_count`")
    if request.keep_alive is not None and has_groups:
        message = "warm pools do not support instance groups"
        findings.add(rules.GROUPS_WARM, message, "remove `keep_alive_period_in_seconds`")
    if has_groups and request.is_local:
        findings.add(
            rules.GROUPS_LOCAL, "local mode does not support instance groups", "use `bake run --group`"
        )
    if request.is_local and request.sender == "ModelTrainer":
        message = "ModelTrainer of SDK v3 does not support the instance type `local`"
        hint = "use `bake run`, or `training_mode=Mode.LOCAL_CONTAINER` of the SDK"
        findings.add(rules.LOCAL_V3, message, hint)
    for group in request.groups:
        if not group.is_known and group.instance_type not in LOCAL:
            hint = (
                instance_type_hint(group.instance_type) or "use a type of SageMaker, such as `ml.g5.12xlarge`"
            )
            rule = rules.INSTANCE if is_instance_type(group.instance_type) else rules.INSTANCE_NAME
            findings.add(rule, f"unknown instance type `{group.instance_type}`", hint)
        if group.instance_type == "local_gpu" and group.count > 1 and not group.name:
            findings.add(rules.LOCAL_GPU, f"the job has {group.count} instances of `local_gpu`", "use one")
    check_channels(request.channels, request.groups, findings)


def _check_code(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    script, sender = request.entry_point, request.sender
    if sender == "ModelTrainer":
        _check_source(request, findings)
    elif not script and sender not in ("Estimator", "API"):
        message, hint = f"the class {sender} needs an `entry_point`", "set it, or use the generic Estimator"
        findings.add(rules.NO_SCRIPT, message, hint)
    elif (
        not script and image is not None and not image.entry_point and "sagemaker-training" in image.versions
    ):
        settings = {*request.hyperparameters, *(name.lower() for name in request.environment)}
        if "sagemaker_program" not in settings:
            message = f"the job has no training script, and `{image.name}` contains none"
            findings.add(rules.NO_SCRIPT, message, "set `entry_point`")
    if script.startswith("s3://"):
        findings.add(
            rules.CODE, f"`entry_point` is `{script}`", "set it to a local file or a file in `source_dir`"
        )
    elif script:
        _check_reach(request, image, findings)
    if script and request.code_root is not None:
        path = request.code_root / request.source_dir / script
        for finding in flag_findings(path, request.hyperparameters):
            findings.add(finding.rule, finding.message, finding.hint)


def _check_isolation(request: TrainingRequest, findings: Findings) -> None:
    """Check for requirements that a job without a network would install."""
    isolation = next((field for field in request.fields if field.path == "EnableNetworkIsolation"), None)
    name = request.requirements or ("" if request.sender == "ModelTrainer" else REQUIREMENTS)
    if not (isolation and isolation.value is True and name and request.source_dir):
        return
    path = f"{request.source_dir}/{name}"
    if request.requirements or ((request.code_root or Path()) / path).is_file():
        message = f"cuts the network off, but the job installs `{path}` before it starts the script"
        hint = "name the packages in `requirements` of the recipe, so that the image has them"
        findings.at(rules.ISOLATED, isolation.name, message, hint)


def _check_source(request: TrainingRequest, findings: Findings) -> None:
    for name, value in (("entry_script", request.entry_point), ("requirements", request.requirements)):
        if value and not request.source_dir:
            hint = f"set `source_dir`; `{name}` is a path below it"
            findings.add(rules.CODE, f"`{name}` is set without `source_dir`", hint)
        elif value and _is_missing(request, f"{request.source_dir}/{value}"):
            findings.add(rules.CODE, f"`{request.source_dir}` contains no `{value}`")
    if request.command and request.distribution:
        message = "a command replaces the drivers, so `distributed` has no effect"
        findings.add(rules.COMMAND_FIRST, message, "remove one of them")


def _check_reach(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    script, rule = request.entry_point, rules.ENTRY_POINT
    if request.sender == "ModelTrainer":
        if script.startswith("/") or ".." in script.split("/"):
            findings.add(rule, f"`{script}` is not in `source_dir`", "use a path below it")
        return
    sent = script if request.source_dir else Path(script).name
    if not _SAFE.fullmatch(sent) or {"..", "."} & {*sent.split("/")}:
        message = f"the toolkit can't start `{sent}`"
        findings.add(rule, message, "use a path below `source_dir` with letters, digits and `._+-`")
    path = f"{request.source_dir}/{script}" if request.source_dir else script
    if _is_missing(request, path):
        in_source = f"`{request.source_dir}` contains no `{script}`"
        message = in_source if request.source_dir else f"`{script}` does not exist"
        findings.add(rules.CODE, message, "set `entry_point` to a path below `source_dir`")
    if image is not None and image.entry_point:
        message = f"`{image.name}` contains code in /opt/ml/code, so the toolkit does not unpack yours"
        findings.add(rules.CODE_BAKED, message, "use the generic Estimator, or SDK v3")


def _is_missing(request: TrainingRequest, path: str) -> bool:
    if request.code_root is None or path.startswith("s3://") or request.source_dir.endswith(".tar.gz"):
        return False
    return not (request.code_root / path).is_file()


def check_variable_names(environment: Iterable[str], findings: Findings) -> None:
    """Check that names of variables are valid in a shell."""
    for name in environment:
        if not _VARIABLE.fullmatch(name):
            message = f"`{name}` is not a valid name of an environment variable"
            findings.add(rules.LIMITS, message, "use letters, digits and `_`, and no digit first")


def _check_limits(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    def check(name: str, values: Sized, maximum: int) -> None:
        if len(values) > maximum:
            findings.add(rules.LIMITS, f"too many {name}: {len(values)}", f"use at most {maximum}")

    # The fields of a request are checked as they are written.
    is_request = request.sender == "API"
    hyperparameters = {} if is_request else request.hyperparameters
    environment = {} if is_request else request.environment
    added = _ADDED_PARAMETERS if request.sends_code and request.sender not in ("ModelTrainer", "API") else ()
    check("hyperparameters (with the SDK's)", {*hyperparameters, *added}, _MAX_PARAMETERS)
    check("environment variables", environment, _MAX_VARIABLES)
    for name, value in hyperparameters.items():
        check(f"characters in the name of hyperparameter `{name[:20]}…`", name, _MAX_NAME)
        check(f"characters in hyperparameter `{name[:20]}`", json.dumps(value), _MAX_VALUE)
    check_variable_names(environment, findings)
    for name, text in environment.items():
        check(f"characters in the name of variable `{name[:20]}…`", name, _MAX_VARIABLE)
        check(f"characters in variable `{name[:20]}`", text, _MAX_VARIABLE)
    if image is not None and len(image.uri) > MAX_URI:
        message = (
            f"the image URI of `{image.name}` has {len(image.uri)} characters, and SageMaker allows {MAX_URI}"
        )
        hint = "publish it with a shorter `repository_prefix`"
        findings.add(rules.LIMITS, message, hint)
    if request.keep_alive is not None and not 0 <= request.keep_alive <= _MAX_KEEP_ALIVE:
        message = f"invalid keep-alive period of {request.keep_alive} seconds"
        findings.add(rules.KEEP_ALIVE, message, f"use 0 to {_MAX_KEEP_ALIVE}")
    if request.sends_code and request.sender not in ("ModelTrainer", "API"):
        for name in sorted(request.hyperparameters.keys() & {*_SDK_PARAMETERS}):
            message = f"the SDK overwrites the hyperparameter `{name}`"
            findings.add(rules.OVERWRITTEN, message, "remove it")
