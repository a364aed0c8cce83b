"""A job for the scheduler of a cluster: Kubernetes, Kubeflow Trainer or Slurm."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Launcher = Literal["", "torchrun", "mpirun", "tensorflow"]
"""Starts the ranks; empty means one process on each host."""
PORT = 29500
"""Port on which the ranks meet, the default of torchrun."""
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Containers may not read the memory of other processes. SageMaker's toolkit sets it too.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """One program on hosts of one type, all with the same image."""

    name: str
    """Valid as a DNS label, also with a number after it."""
    uri: str
    """Image URI by digest."""
    command: tuple[str, ...]
    """Program of each rank; for torchrun its script and arguments."""
    seconds: int
    hosts: int = 1
    launcher: Launcher = ""
    processes: int = 1
    """Ranks of each host."""
    gpus: int = 0
    """GPUs of each host."""
    efa_interfaces: int = 0
    """Interfaces of each host that the job uses."""
    instance_type: str = ""
    """EC2 instance type; empty means any host."""
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/opt/ml/code"
    """Directory of `files` in the container."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files for schedulers that copy them, by path in `directory`."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Path in the container of each file or directory that all hosts share."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Path in the container of each directory of the job's data."""
    shared_memory_mib: int | None = None
    """None means the host's default."""
    hostname: str = ""
    """Name of the only host."""
    replaces_entrypoint: bool = False

    @property
    def all_variables(self) -> dict[str, str]:
        """The environment, with the settings of the launcher."""
        return {**(OPEN_MPI if self.launcher == "mpirun" else {}), **self.environment}


def tensorflow_configuration(workers: str, index: str) -> str:
    """Return TF_CONFIG; `workers` is a JSON list, and `index` a text that will be the number of the host."""
    return f'{{"cluster": {{"worker": {workers}}}, "task": {{"type": "worker", "index": {index}}}}}'
