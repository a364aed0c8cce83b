"""The jobs that try each launcher, by module of tests."""

import os

from bakehouse.cluster.job import Group, homogeneous
from tests.integration.jobs import DATA_AND_DNN, EXAMPLES, Case

LAUNCHES = {
    "torch-ddp": Case(
        "pytorch-cpu",
        EXAMPLES / "torch-ddp",
        groups=homogeneous(2),
        distribution={"torch_distributed": {"enabled": True}},
    ),
    "mpi": Case(
        source=EXAMPLES / "mpi",
        groups=homogeneous(2),
        distribution={"mpi": {"enabled": True, "processes_per_host": 2}},
    ),
    "sdk-v3-torchrun": Case(
        "pytorch-cpu",
        EXAMPLES / "torch-ddp",
        groups=homogeneous(2),
        distribution={"Torchrun": {"process_count_per_node": 1}},
        is_daily=True,
    ),
    "sdk-v3-mpi": Case(
        source=EXAMPLES / "mpi",
        groups=homogeneous(2),
        distribution={"MPI": {"process_count_per_node": 2}},
    ),
    "torchrun-without-toolkit": Case(
        "pytorch-cpu",
        EXAMPLES / "torch-ddp",
        groups=homogeneous(2),
        command=(
            *("torchrun", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d"),
            *("--rdzv-endpoint=algo-1:29400", "/opt/ml/code/train.py"),
        ),
        processes=2,
    ),
    "one-process": Case(source=EXAMPLES / "one-process", hyperparameters={"epochs": 500}, is_daily=True),
}

HOROVOD = "tensorflow-2.21-cpu-py311-horovod"
"""Compiled when it is built, for a quarter of an hour: tests use it where it is there."""

TWO_EACH = {"enabled": True, "processes_per_host": 2}

SMALL = {"steps": 4, "warmup": 2, "batch": 4, "rounds": 1}
"""Settings of the heterogeneous examples for a short run."""

MPI_LAUNCHES = {
    "mpi-on-one-group": Case(
        source=EXAMPLES / "heterogeneous",
        entry_point="train_mpi.py",
        groups=(Group("data", "ml.c5.18xlarge"), Group("dnn", "ml.p4d.24xlarge", 2)),
        distribution={"mpi": TWO_EACH, "instance_groups": ["dnn"]},
        is_daily=True,
    ),
    "mpi-options": Case(
        source=EXAMPLES / "mpi",
        groups=homogeneous(2),
        distribution={"mpi": {**TWO_EACH, "custom_mpi_options": "-x OMP_NUM_THREADS=3"}},
    ),
    "mpi5": Case("mpi5-cpu", EXAMPLES / "mpi", groups=homogeneous(2), distribution={"mpi": TWO_EACH}),
    "mpi-one-host": Case(source=EXAMPLES / "mpi", distribution={"mpi": TWO_EACH}),
    "horovod": Case(HOROVOD, EXAMPLES / "horovod", groups=homogeneous(2), distribution={"mpi": TWO_EACH}),
    "horovod-in-groups": Case(
        HOROVOD,
        EXAMPLES / "heterogeneous",
        "train_tensorflow.py",
        DATA_AND_DNN,
        distribution={"mpi": TWO_EACH, "instance_groups": ["dnn"]},
        hyperparameters={**SMALL, "size": 32, "model": "MobileNet"},
    ),
    "horovod-one-host": Case(HOROVOD, EXAMPLES / "horovod", distribution={"mpi": TWO_EACH}),
}

STUBS = f"bakehouse/test-pytorch-cpu-with-stubs:{os.getpid()}"
"""The image pytorch-cpu with stubs for SMDDP and SMP."""

TORCHRUN = {"torch_distributed": {"enabled": True}}

TWO_RANKS = {"sagemaker_mpi_num_of_processes_per_host": 2}
"""As many as an instance with two GPUs has: `distribution` says nothing about it for SMDDP."""

SMP = {"pipeline_parallel_degree": 1, "microbatches": 2, "ddp": True}


def gpu_hosts(count: int) -> tuple[Group, ...]:
    """Hosts that the toolkit takes for instances with EFA."""
    return (Group(instance_type="ml.p4d.24xlarge", count=count),)


PYTORCH_LAUNCHES = {
    "pytorch-lost": Case(
        "pytorch-data-service-cpu",
        EXAMPLES / "heterogeneous",
        "train_pytorch.py",
        DATA_AND_DNN,
        hyperparameters={**SMALL, "steps": 1_000_000},
        kills={"data": " trains\n"},
    ),
    "smddp-two-hosts": Case(
        STUBS,
        EXAMPLES / "smddp",
        groups=gpu_hosts(2),
        distribution={"smdistributed": {"dataparallel": {"enabled": True}}},
        hyperparameters=TWO_RANKS,
        is_daily=True,
    ),
    "pytorch-groups": Case(
        "pytorch-data-service-cpu",
        EXAMPLES / "heterogeneous",
        "train_pytorch.py",
        (Group("data", "ml.c5.9xlarge", 2), Group("dnn", "ml.p3.2xlarge")),
        hyperparameters={**SMALL, "ranks": 2},
    ),
    "deepspeed": Case(
        "pytorch-deepspeed-cpu",
        EXAMPLES / "deepspeed",
        distribution=TORCHRUN,
        processes=2,
    ),
    "fsdp": Case("pytorch-cpu", EXAMPLES / "fsdp", distribution=TORCHRUN, processes=2),
    "torch-ddp-one-host": Case("pytorch-cpu", EXAMPLES / "torch-ddp", distribution=TORCHRUN, processes=2),
    "dali": Case("pytorch-dali-cpu", EXAMPLES / "dali"),
    "smddp": Case(
        STUBS,
        EXAMPLES / "smddp",
        groups=gpu_hosts(1),
        distribution={
            "smdistributed": {
                "dataparallel": {"enabled": True, "custom_mpi_options": "--NCCL_DEBUG WARN -x TRIED=1"}
            }
        },
        hyperparameters=TWO_RANKS,
    ),
    "pytorchddp": Case(
        "pytorch-cpu",
        EXAMPLES / "smddp",
        groups=gpu_hosts(1),
        distribution={"pytorchddp": {"enabled": True}},
        hyperparameters=TWO_RANKS,
    ),
    "smp-1": Case(
        STUBS,
        EXAMPLES / "smp1",
        groups=gpu_hosts(1),
        distribution={
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": SMP}},
            "mpi": {"enabled": True, "processes_per_host": 2},
        },
    ),
    "smp-2": Case(
        STUBS,
        EXAMPLES / "smp2",
        groups=gpu_hosts(1),
        distribution={
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"hybrid_shard_degree": 2}}},
            **TORCHRUN,
        },
        processes=2,
    ),
}

MIRRORED = {"multi_worker_mirrored_strategy": {"enabled": True}}

KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}

KERAS_3_FAILS = "`fit` of Keras 3 does not train on several hosts"

TENSORFLOW_LAUNCHES = {
    "tensorflow-lost": Case(
        "tensorflow-cpu",
        EXAMPLES / "heterogeneous",
        "train_tensorflow.py",
        DATA_AND_DNN,
        hyperparameters={**SMALL, "steps": 100_000, "size": 32, "model": "MobileNet"},
        kills={"data": " trains\n"},
    ),
    "tensorflow-groups": Case(
        "tensorflow-cpu",
        EXAMPLES / "heterogeneous",
        "train_tensorflow.py",
        DATA_AND_DNN,
        hyperparameters={**SMALL, "size": 32, "model": "MobileNet", "devices": 2},
    ),
    "tensorflow-parameter-server": Case(
        "tensorflow-cpu",
        EXAMPLES / "tensorflow-parameter-server",
        groups=homogeneous(2),
        distribution={"parameter_server": {"enabled": True}},
        environment=KERAS_2,
    ),
    "tensorflow-parameter-server-keras-3": Case(
        "tensorflow-cpu",
        EXAMPLES / "tensorflow-parameter-server",
        groups=homogeneous(2),
        distribution={"parameter_server": {"enabled": True}},
        fails=KERAS_3_FAILS,
    ),
    "tensorflow-mirrored": Case(
        "tensorflow-cpu",
        EXAMPLES / "tensorflow-mirrored",
        groups=homogeneous(2),
        distribution=MIRRORED,
        environment=KERAS_2,
        is_daily=True,
    ),
    "tensorflow-mirrored-keras-3": Case(
        "tensorflow-cpu",
        EXAMPLES / "tensorflow-mirrored",
        groups=homogeneous(2),
        distribution=MIRRORED,
        fails=KERAS_3_FAILS,
    ),
}


ALL_LAUNCHES = {
    "test_launchers": LAUNCHES,
    "test_mpi_launchers": MPI_LAUNCHES,
    "test_pytorch_launchers": PYTORCH_LAUNCHES,
    "test_tensorflow_launchers": TENSORFLOW_LAUNCHES,
}
"""The jobs of each module of tests."""
