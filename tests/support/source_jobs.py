"""The jobs that AWS's documents describe and measure: instance types, groups and launchers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bakehouse.catalog.project import HOME
from bakehouse.cluster.job import Group
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.ledger.releases import ReleasedComponent, ReleaseRecord
from tests.support.sagemaker_releases import ROLE, released

TENSORFLOW = {"tensorflow": "2.21.0", "horovod-nccl": "0.28.1", "sshd": "1", "mpi4py": "4"}
PYTORCH = {"pytorch": "2.9.1", "sshd": "1", "mpi4py": "4"}
MODEL_PARALLEL = {"pytorch": "1.10.2", "smp": "1.7.0", "smddp": "1.4.0", "sshd": "1", "mpi4py": "4"}
COMPILER = {"aws-training-compiler-pytorch": "1.13.1", "pytorch": "1.13.1"}
EIGHT_EACH = {"enabled": True, "processes_per_host": 8}
MPI_ON_EIGHT = {"sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 8}
NO_MPI = "`distributed.mpi` is not a driver of SDK v3"
NO_LIBRARY = "`distributed.smdistributed` is not a driver of SDK v3"
EFA = "-x FI_EFA_USE_DEVICE_RDMA=1 -x FI_PROVIDER=efa -x RDMAV_FORK_SAFE=1"


@dataclass(frozen=True)
class SourceJob:
    """A job of the documents, with the request that every form makes of it."""

    parts: Mapping[str, str]
    spec: JobSpec
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    """Hyperparameters that start its launcher, except in version 3 of the SDK."""
    not_in_v3: str = ""
    """Why version 3 cannot express it, or empty."""

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that can express the job."""
        return ("v2", "boto3") if self.not_in_v3 else ("v2", "boto3", "v3")

    @property
    def record(self) -> ReleaseRecord:
        parts = tuple(ReleasedComponent(name, version, "") for name, version in self.parts.items())
        framework = "tensorflow" if "tensorflow" in self.parts else "pytorch"
        module = f"sagemaker_{framework}_container.training:main"
        launchers = ("mpirun",) if framework == "tensorflow" else ("mpirun", "torchrun")
        return released(parts=parts, launchers=launchers, training_module=module, gpu=True)

    @property
    def resources(self) -> dict[str, object]:
        """The fields of `ResourceConfig` that name hosts."""
        if not self.spec.groups:
            return {"InstanceType": self.spec.instance_type, "InstanceCount": self.spec.hosts}
        return {
            "InstanceGroups": [
                {
                    "InstanceGroupName": group.name,
                    "InstanceType": group.instance_type,
                    "InstanceCount": group.count,
                }
                for group in self.spec.groups
            ]
        }


def launcher_of(request: Mapping[str, Any], job: SourceJob) -> dict[str, object]:
    """Return the hyperparameters of a request that start a launcher."""
    sent = {name: json.loads(value) for name, value in request["HyperParameters"].items()}
    names = job.hyperparameters.keys() | {name for name in sent if name.endswith(("_enabled", "_groups"))}
    return {name: sent[name] for name in names if sent.get(name)}


def resources_of(request: Mapping[str, Any], job: SourceJob) -> dict[str, object]:
    """Return the fields of a request that name hosts."""
    return {name: request["ResourceConfig"].get(name) for name in job.resources}


def on(instance_type: str, count: int, distribution: Mapping[str, object] | None = None) -> JobSpec:
    return JobSpec(role=ROLE, instance_type=instance_type, instance_count=count, distribution=distribution)


def grouped(framework: str, groups: tuple[Group, ...], distribution: Mapping[str, object]) -> JobSpec:
    return JobSpec(
        role=ROLE,
        source_dir=str(HOME / "examples/heterogeneous"),
        entry_point=f"train_{framework}.py",
        groups=groups,
        distribution=distribution,
    )


SOURCE_JOBS = {
    "resnet50-alone": SourceJob(
        TENSORFLOW, replace(on("ml.p4d.24xlarge", 1), launcher="mpirun", processes_per_host=8), MPI_ON_EIGHT
    ),
    "resnet50-in-groups": SourceJob(
        TENSORFLOW,
        grouped(
            "tensorflow",
            (Group("data", "ml.c5.18xlarge", 2), Group("dnn", "ml.p4d.24xlarge")),
            {"mpi": EIGHT_EACH, "instance_groups": ["dnn"]},
        ),
        {**MPI_ON_EIGHT, "sagemaker_distribution_instance_groups": ["dnn"]},
        NO_MPI,
    ),
    "mnist-alone": SourceJob(PYTORCH, on("ml.p3.2xlarge", 1, {})),
    "mnist-in-groups": SourceJob(
        PYTORCH, grouped("pytorch", (Group("data", "ml.c5.9xlarge"), Group("dnn", "ml.p3.2xlarge")), {})
    ),
    "smp": SourceJob(
        MODEL_PARALLEL,
        on(
            "ml.p3.16xlarge",
            1,
            {
                "smdistributed": {
                    "modelparallel": {
                        "enabled": True,
                        "parameters": {"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": True},
                    }
                },
                "mpi": EIGHT_EACH,
            },
        ),
        {**MPI_ON_EIGHT, "mp_parameters": {"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": True}},
        NO_LIBRARY,
    ),
    "smddp": SourceJob(
        MODEL_PARALLEL,
        on("ml.p4d.24xlarge", 2, {"smdistributed": {"dataparallel": {"enabled": True}}}),
        {"sagemaker_distributed_dataparallel_enabled": True, "sagemaker_instance_type": "ml.p4d.24xlarge"},
        NO_LIBRARY,
    ),
    "mpi-over-efa": SourceJob(
        PYTORCH,
        on("ml.p4d.24xlarge", 2, {"mpi": {**EIGHT_EACH, "custom_mpi_options": EFA}}),
        {**MPI_ON_EIGHT, "sagemaker_mpi_custom_mpi_options": EFA},
        NO_MPI,
    ),
    "horovod": SourceJob(TENSORFLOW, on("ml.p3.16xlarge", 2, {"mpi": EIGHT_EACH}), MPI_ON_EIGHT, NO_MPI),
    "torchrun": SourceJob(
        PYTORCH,
        replace(on("ml.p4d.24xlarge", 2), launcher="torchrun"),
        {"sagemaker_torch_distributed_enabled": True},
    ),
    "parameter-servers": SourceJob(
        TENSORFLOW,
        on("ml.p3.2xlarge", 2, {"parameter_server": {"enabled": True}}),
        {"sagemaker_parameter_server_enabled": True},
        "`distributed.parameter_server` is not a driver of SDK v3",
    ),
    "training-compiler": SourceJob(
        COMPILER,
        on("ml.p3.2xlarge", 1),
        {"sagemaker_training_compiler_enabled": True, "sagemaker_pytorch_xla_multi_worker_enabled": True},
        "SDK v3 does not support SageMaker Training Compiler",
    ),
}
