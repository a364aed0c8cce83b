"""Finds what a job asks of EFA and its instances don't have, and what its launcher won't ask by itself."""

import shlex
from collections.abc import Mapping

from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.findings import Findings
from bakehouse.sagemaker.instance_groups import RDMA, InstanceGroup, check_rdma
from bakehouse.sagemaker.training_request import LaunchImage, TrainingRequest

PROVIDER = "FI_PROVIDER"
DRIVERS_EFA = frozenset(
    {
        "ml.g4dn.8xlarge",
        "ml.g4dn.12xlarge",
        "ml.g5.48xlarge",
        "ml.p3dn.24xlarge",
        "ml.p4d.24xlarge",
        "ml.p4de.24xlarge",
        "ml.p5.48xlarge",
        "ml.p5e.48xlarge",
        "ml.trn1.32xlarge",
    }
)
"""Where the drivers of SDK v3 set FI_PROVIDER, as sagemaker-train 1.27.0 has it."""
DRIVERS_RDMA = DRIVERS_EFA - {"ml.g4dn.8xlarge", "ml.g4dn.12xlarge", "ml.g5.48xlarge", "ml.p3dn.24xlarge"}
TOOLKIT_EFA = DRIVERS_EFA | {"ml.p6e-gb200.36xlarge"}
"""Where the toolkit in the image does, as sagemaker-training 5.1.4 has it."""
TOOLKIT_RDMA = DRIVERS_RDMA | {"ml.p6e-gb200.36xlarge"}
_WITH_LAUNCHER = ("mpi", "torch_distributed", "pytorchddp", "smdistributed.dataparallel")


def efa_findings(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    """EFA that is asked for and not there, or there and not asked for."""
    words = options(request.distribution)
    asked = {**dict(word.partition("=")[::2] for word in words if "=" in word), **request.environment}
    for group in request.groups:
        environment = [f"{name}={value}" for name, value in request.environment.items()]
        check_rdma("environment", environment, group, findings)
        if asked.get(PROVIDER) == "efa" and group.efa_interfaces == 0:
            message = f"`{PROVIDER}=efa` is asked for, and `{group.instance_type}` has no EFA"
            findings.add(launch_rules.EFA, message, "leave it out, or take a type that has EFA")
    is_launched = bool(request.distribution.keys() & {"Torchrun", "MPI"})
    is_launched |= any(request.is_on(name) for name in _WITH_LAUNCHER)
    if is_launched and request.hosts > 1 and (image is None or image.gpu):
        for group in request.groups:
            _check_missing(request, group, asked, findings)


def options(distribution: Mapping[str, object]) -> list[str]:
    """The words that a distribution gives to mpirun, as far as they can be read."""
    words: list[str] = []
    for key, value in distribution.items():
        if isinstance(value, Mapping):
            words += options(value)
        elif key == "custom_mpi_options" and isinstance(value, str):
            try:
                words += shlex.split(value)
            except ValueError:
                continue
        elif key == "mpi_additional_options" and isinstance(value, list):
            words += [word for word in value if isinstance(word, str)]
    return words


def _check_missing(
    request: TrainingRequest, group: InstanceGroup, asked: Mapping[str, str], findings: Findings
) -> None:
    is_driver = request.sender == "ModelTrainer"
    providing, reading = (DRIVERS_EFA, DRIVERS_RDMA) if is_driver else (TOOLKIT_EFA, TOOLKIT_RDMA)
    kind, missing = group.instance_type, []
    if group.efa_interfaces and group.gpus:
        if PROVIDER not in asked and kind not in providing:
            missing.append(f"{PROVIDER}=efa")
        if RDMA not in asked and group.rdma_read and kind not in reading:
            missing.append(f"{RDMA}=1")
    if missing:
        whose = "the SDK's driver" if is_driver else "the toolkit"
        told = " and ".join(f"`{one}`" for one in missing)
        pairs = ", ".join(
            f'"{name}": "{value}"' for name, _, value in (one.partition("=") for one in missing)
        )
        message = f"`{kind}` has EFA, and {whose} doesn't set {told} there"
        findings.add(launch_rules.EFA_MISSING, message, f"add it to the environment: `{{{pairs}}}`")
