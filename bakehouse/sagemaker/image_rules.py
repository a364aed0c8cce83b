"""Finds what a job asks of an image that it doesn't have, and of instances that the image can't run on."""

from collections.abc import Mapping

from bakehouse.catalog.instance_gpus import is_arm, is_within
from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.distribution import numbers
from bakehouse.sagemaker.findings import Findings
from bakehouse.sagemaker.training_request import LaunchImage, TrainingRequest

_MPIRUN = ("mpi", "MPI")
_TORCHRUN = ("torch_distributed", "Torchrun")
_BY_TOOLKIT = ("parameter_server", "multi_worker_mirrored_strategy")
_SMDDP = ("smdistributed.dataparallel", "pytorchddp")
_SMP = "smdistributed.modelparallel"
_DRIVER = ("sshd", "mpi4py")
_WRAPPED_HERE = frozenset({"open-mpi", "efa"})
"""Components whose `mpirun` of Open MPI 5 understands what the toolkit says."""


def image_findings(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    """What a request and an image have against each other."""
    _check_launchers(request, image, findings)
    if request.is_on(_SMP):
        _check_smp(request, image, findings)
    _check_open_mpi(request, image, findings)
    _check_instances(request, image, findings)
    framework = image.framework
    version = image.versions.get(framework, "")
    if request.framework_version and version and request.framework_version != version:
        message = (
            f"`framework_version` is {request.framework_version}, and the image has {framework} {version}"
        )
        findings.add(launch_rules.VERSION, message, f'write `framework_version="{version}"`')


def is_asked(request: TrainingRequest, names: tuple[str, ...]) -> bool:
    """Whether one of these strategies or drivers starts the job."""
    return any(request.is_on(name) or (name[0].isupper() and name in request.distribution) for name in names)


def _check_launchers(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    def lacks(names: tuple[str, ...], what: str, hint: str) -> None:
        name = next(one for one in names if one.rpartition(".")[2] in str(request.distribution))
        findings.add(launch_rules.LAUNCHER, f"`{name}` needs {what}, and `{image.name}` has none", hint)

    there = ", ".join(f"`{one}`" for one in image.launchers)
    has = f"it has {there}" if there else "it has no launcher"
    if is_asked(request, _MPIRUN) and "mpirun" not in image.launchers:
        lacks(_MPIRUN, "`mpirun`", has)
    elif "MPI" in request.distribution and (missing := [one for one in _DRIVER if one not in image.versions]):
        message = f"the SDK's MPI driver needs {' and '.join(f'`{one}`' for one in missing)}"
        hint = "add the component `sagemaker-drivers`, or see that its base has them"
        findings.add(launch_rules.DRIVER, f"{message}, which no part of `{image.name}` is", hint)
    if is_asked(request, _TORCHRUN) and "torchrun" not in image.launchers:
        lacks(_TORCHRUN, "`torchrun`", has)
    elif request.is_on("torch_distributed") and "pytorch" not in image.training_module:
        lacks(_TORCHRUN, "the toolkit for PyTorch", "add the component `sagemaker-pytorch-training`")
    if is_asked(request, _BY_TOOLKIT) and "tensorflow" not in image.training_module:
        lacks(_BY_TOOLKIT, "the toolkit for TensorFlow", "add the component `sagemaker-tensorflow-training`")
    if is_asked(request, _SMDDP) and "smddp" not in image.versions:
        lacks(_SMDDP, "SMDDP", "add the component `smddp`")
    if request.is_on(_SMP) and "smp" not in image.versions:
        lacks((_SMP,), "SMP", "take an image with `smp`, or on `aws-smp2`")


def _check_smp(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    version = image.versions.get("smp", "")
    if not version:
        return
    is_second = numbers(version) >= (2,)
    wanted, other = ("torch_distributed", "mpi") if is_second else ("mpi", "torch_distributed")
    if request.is_on(other) and not request.is_on(wanted):
        message = f"`{other}` doesn't start SMP {version}, which the image has"
        findings.add(launch_rules.SMP_LAUNCHER, message, f'add `"{wanted}": {{"enabled": true}}` instead')
    parameters = _smp_parameters(request.distribution)
    if image.framework == "pytorch" and "partitions" in parameters and numbers(version) >= (1, 6):
        message = f"`partitions` is no parameter of SMP {version} with PyTorch"
        findings.add(launch_rules.PARTITIONS, message, "call it `pipeline_parallel_degree`")


def _smp_parameters(distribution: Mapping[str, object]) -> Mapping[str, object]:
    found: object = distribution
    for key in (*_SMP.split("."), "parameters"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _check_open_mpi(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    version = image.versions.get("open-mpi", "")
    is_theirs = not image.parts & _WRAPPED_HERE
    if version and numbers(version) >= (5,) and is_theirs and is_asked(request, ("mpi", *_SMDDP)):
        message = f"the toolkit starts ranks as Open MPI 4 does, and the image has {version}"
        findings.add(
            launch_rules.OPEN_MPI_5, message, "add the component `open-mpi`, whose `mpirun` takes both"
        )


def _check_instances(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    for group in request.groups:
        if is_arm(group.instance_type):
            message = f"`{group.instance_type}` has an Arm processor, and `{image.name}` is for x86"
            findings.add(launch_rules.PROCESSOR, message, "take a type with a processor of Intel or AMD")
        has = group.gpu_architecture
        # The catalogue may have lost a part since; the release tells of all.
        if has and not image.needs and not is_within(has, image.gpu_architecture):
            message = (
                f"`{image.name}` has code for GPU architectures {image.gpu_architecture}, "
                f"and `{group.instance_type}` has {has}"
            )
            findings.add(launch_rules.HOST_NEEDS, message, "take a type whose GPUs it has code for")
        for need in image.needs:
            asked = need.requirement
            if has and asked.name == "gpu-architecture" and not is_within(has, asked.specifier):
                message = (
                    f"{need.part} runs on GPU architectures {asked.specifier}, "
                    f"and `{group.instance_type}` has {has}"
                )
                question = f"./bake resolve {image.name} --assume instance={group.instance_type}"
                hint = f"`{question}` shows what would fit"
                findings.add(launch_rules.HOST_NEEDS, message, hint)
    if image.gpu and request.groups and all(group.gpus == 0 for group in request.groups):
        findings.add(launch_rules.GPU, f"`{image.name}` is for GPUs, and no instance of the job has one")
    if not image.gpu and any(group.gpus for group in request.groups):
        findings.add(launch_rules.GPU, f"the instances have GPUs, and `{image.name}` is for CPUs")
