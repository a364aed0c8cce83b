"""Launcher settings of jobs, compared with the requests of the real SDKs to moto."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bakehouse.cluster.job import encode_hyperparameters
from bakehouse.errors import UsageError
from bakehouse.jobs.distribution import LaunchContext, launch_settings
from bakehouse.jobs.instance_groups import InstanceGroup
from bakehouse.jobs.model_trainer import (
    ARGUMENTS,
    CODE_CHANNEL,
    DRIVERS_CHANNEL,
    ENTRYPOINT,
    DriverSettings,
    channel,
    driver_settings,
)
from tests.integration.sagemaker_sdk import ROLE, V2, V3, Aws, installed
from tests.support.data import text_of
from tests.support.ecr import ACCOUNT, REGION

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/bakehouse/image@sha256:" + "4f" * 32
SCRIPT = "train.py"

ONE = (InstanceGroup("ml.c5.xlarge", 2),)
A100 = (InstanceGroup("ml.p4d.24xlarge", 2, gpus=8),)
P5 = (InstanceGroup("ml.p5.48xlarge", 2, gpus=8),)
TRAINIUM = (InstanceGroup("ml.trn1.32xlarge", 2),)
ONE_GROUP = (InstanceGroup("ml.p4d.24xlarge", 2, "dnn", gpus=8),)
TWO_GROUPS = (
    InstanceGroup("ml.c5.18xlarge", 2, "data"),
    InstanceGroup("ml.p4d.24xlarge", 1, "dnn", gpus=8),
)
ON: Mapping[str, object] = {"enabled": True}
OFF: Mapping[str, object] = {"enabled": False}
MPI = {"enabled": True, "processes_per_host": 8, "custom_mpi_options": "--NCCL_DEBUG WARN -x FOO='a b'"}
PIPELINE = {"partitions": 2, "microbatches": 4, "pipeline": "interleaved", "ddp": True, "ddp_port": 8123}

Case = tuple[Mapping[str, Any], tuple[InstanceGroup, ...], str]
ESTIMATORS: dict[str, Case] = {
    "none": ({}, ONE, "pytorch"),
    "mpi": ({"mpi": ON}, ONE, "pytorch"),
    "mpi-off": ({"mpi": OFF}, ONE, "pytorch"),
    "mpi-settings": ({"mpi": MPI}, A100, "pytorch"),
    "mpi-tensorflow": ({"mpi": MPI}, A100, "tensorflow"),
    "mpi-in-one-group": ({"mpi": MPI}, ONE_GROUP, "pytorch"),
    "mpi-in-a-group": ({"mpi": MPI, "instance_groups": ["dnn"]}, TWO_GROUPS, "pytorch"),
    "mpi-in-a-group-tensorflow": ({"mpi": MPI, "instance_groups": ["data"]}, TWO_GROUPS, "tensorflow"),
    "torchrun": ({"torch_distributed": ON}, ONE, "pytorch"),
    "torchrun-off": ({"torch_distributed": OFF}, ONE, "pytorch"),
    "torchrun-trainium": ({"torch_distributed": ON}, TRAINIUM, "pytorch"),
    "torchrun-in-a-group": ({"torch_distributed": ON, "instance_groups": ["dnn"]}, TWO_GROUPS, "pytorch"),
    "torchrun-without-mpi": ({"torch_distributed": ON, "mpi": OFF}, A100, "pytorch"),
    "ddp": ({"pytorchddp": {"enabled": True, "custom_mpi_options": "-verbose"}}, A100, "pytorch"),
    "ddp-off": ({"pytorchddp": OFF}, A100, "pytorch"),
    "ddp-in-a-group": ({"pytorchddp": ON, "instance_groups": ["dnn"]}, TWO_GROUPS, "pytorch"),
    "smddp": ({"smdistributed": {"dataparallel": ON}}, A100, "pytorch"),
    "smddp-tensorflow": ({"smdistributed": {"dataparallel": ON}}, A100, "tensorflow"),
    "smddp-torchrun": ({"smdistributed": {"dataparallel": ON}, "torch_distributed": ON}, P5, "pytorch"),
    "smddp-in-one-group": ({"smdistributed": {"dataparallel": ON}}, ONE_GROUP, "pytorch"),
    "smp-1": (
        {"smdistributed": {"modelparallel": {"enabled": True, "parameters": PIPELINE}}, "mpi": MPI},
        A100,
        "pytorch",
    ),
    "smp-1-in-a-group": (
        {
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"partitions": 2}}},
            "mpi": MPI,
            "instance_groups": ["dnn"],
        },
        TWO_GROUPS,
        "pytorch",
    ),
    "smp-2": (
        {
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"hybrid_shard_degree": 4}}},
            "torch_distributed": ON,
        },
        P5,
        "pytorch",
    ),
    "parameter-server": ({"parameter_server": ON}, ONE, "tensorflow"),
    "parameter-server-off": ({"parameter_server": OFF}, ONE, "tensorflow"),
    "mirrored": ({"multi_worker_mirrored_strategy": ON}, ONE, "tensorflow"),
}
REFUSED: dict[str, Case] = {
    "groups-unknown-to-the-job": ({"mpi": ON, "instance_groups": ["dnn"]}, ONE, "pytorch"),
    "no-such-group": ({"mpi": ON, "instance_groups": ["gpu"]}, TWO_GROUPS, "pytorch"),
    "two-groups": ({"mpi": ON, "instance_groups": ["data", "dnn"]}, TWO_GROUPS, "pytorch"),
    "group-not-said": ({"mpi": ON}, TWO_GROUPS, "pytorch"),
    "nothing-enabled": ({"mpi": OFF, "instance_groups": ["dnn"]}, TWO_GROUPS, "pytorch"),
    "parameter-server-in-a-group": ({"parameter_server": ON}, ONE_GROUP, "tensorflow"),
    "mirrored-in-a-group": ({"multi_worker_mirrored_strategy": ON}, ONE_GROUP, "tensorflow"),
    "smp-2-in-a-group": (
        {"smdistributed": {"modelparallel": ON}, "torch_distributed": ON},
        ONE_GROUP,
        "pytorch",
    ),
    "both-libraries": (
        {"smdistributed": {"modelparallel": ON, "dataparallel": ON}, "mpi": ON},
        A100,
        "pytorch",
    ),
    "no-such-library": ({"smdistributed": {"tensorparallel": ON}}, A100, "pytorch"),
    "ddp-and-smddp": ({"pytorchddp": ON, "smdistributed": {"dataparallel": ON}}, A100, "pytorch"),
    "smddp-on-p5": ({"smdistributed": {"dataparallel": ON}}, P5, "pytorch"),
    "mpi-on-trainium": ({"mpi": ON}, TRAINIUM, "pytorch"),
    "mirrored-pytorch": ({"multi_worker_mirrored_strategy": ON}, ONE, "pytorch"),
    "mirrored-and-parameter-server": (
        {"multi_worker_mirrored_strategy": ON, "parameter_server": OFF},
        ONE,
        "tensorflow",
    ),
    "compiler": ({"pytorchxla": ON}, A100, "pytorch"),
    "partition": (
        {
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"auto_partition": False}}},
            "mpi": ON,
        },
        A100,
        "pytorch",
    ),
}
TRAINERS: dict[str, tuple[Mapping[str, Any], tuple[InstanceGroup, ...]]] = {
    "basic": ({}, ONE),
    "torchrun-count": ({"Torchrun": {"process_count_per_node": 4}}, TWO_GROUPS),
    "torchrun-smp": ({"Torchrun": {"smp": {"hybrid_shard_degree": 8, "random_seed": 7}}}, A100),
    "mpi": ({"MPI": {"process_count_per_node": 2, "mpi_additional_options": ["-x", "FOO=a b"]}}, ONE),
}
OWN = {"sagemaker_mpi_num_of_processes_per_host": 5}
"""Hyperparameters that users may set by hand; the distribution overrides them."""
USERS = {"epochs": 3, "optimizer": "adam", "sizes": [1, 2]}

ASK_V2 = text_of(__file__, "ask_v2")
ASK_V3 = text_of(__file__, "ask_v3")


def group_rows(groups: tuple[InstanceGroup, ...]) -> list[tuple[str, str, int]]:
    return [(group.name, group.instance_type, group.count) for group in groups]


def training(groups: tuple[InstanceGroup, ...], framework: str) -> LaunchContext:
    versions = {"pytorch": "2.9.1", "tensorflow": "2.21.0"}
    return LaunchContext(groups, framework, versions[framework], SCRIPT)


class SdkResults:
    """Answers of the SDK, and the jobs that it requested from SageMaker."""

    def __init__(self, answers: dict[str, str], jobs: dict[str, Any]) -> None:
        self.answers = answers
        self.jobs = jobs


@pytest.fixture(scope="module")
def estimators(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> SdkResults:
    directory = tmp_path_factory.mktemp("v2")
    cases = {
        name: {"distribution": distribution, "groups": group_rows(groups), "framework": framework}
        for name, (distribution, groups, framework) in (ESTIMATORS | REFUSED).items()
    }
    content = {"cases": cases, "image": IMAGE, "role": ROLE, "hyperparameters": OWN}
    (directory / "cases.json").write_text(json.dumps(content))
    (directory / "source.tar.gz").write_bytes(b"")
    aws.run(installed(V2), ["-c", ASK_V2], directory)
    return SdkResults(json.loads((directory / "answers.json").read_text()), aws.jobs())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_job_gets_the_settings_of_version_2(estimators: SdkResults, name: str) -> None:
    distribution, groups, framework = ESTIMATORS[name]
    settings = launch_settings(distribution, training(groups, framework)).hyperparameters
    assert estimators.answers[name] == ""
    sent = estimators.jobs[name].get("HyperParameters", {})
    beside = {
        "sagemaker_program",
        "sagemaker_submit_directory",
        "sagemaker_container_log_level",
        "sagemaker_job_name",
        "sagemaker_region",
    }

    assert beside <= sent.keys()
    assert {key: json.loads(value) for key, value in sent.items() if key not in beside} == OWN | dict(
        settings
    )


@pytest.mark.parametrize("name", REFUSED)
def test_what_version_2_refuses_is_refused(estimators: SdkResults, name: str) -> None:
    distribution, groups, framework = REFUSED[name]
    assert estimators.answers[name]
    with pytest.raises(UsageError):
        launch_settings(distribution, training(groups, framework))


@pytest.fixture(scope="module")
def trainers(aws: Aws, estimators: SdkResults, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("v3")
    cases = {
        f"v3-{name}": {"distributed": distributed, "groups": group_rows(groups)}
        for name, (distributed, groups) in TRAINERS.items()
    }
    content = {"cases": cases, "image": IMAGE, "role": ROLE, "hyperparameters": USERS}
    (directory / "cases.json").write_text(json.dumps(content))
    (directory / "source").mkdir()
    (directory / "source" / SCRIPT).write_text("print('training')\n")
    (directory / "source" / "requirements.txt").write_text("")
    aws.run(installed(V3), ["-c", ASK_V3], directory)
    return {name.removeprefix("v3-"): job for name, job in aws.jobs().items() if name.startswith("v3-")}


def ours_of(name: str) -> DriverSettings:
    distributed, groups = TRAINERS[name]
    return driver_settings(distributed, training(groups, "pytorch"), "source", "requirements.txt")


def uploaded(aws: Aws, job: Mapping[str, Any], name: str) -> dict[str, bytes]:
    """The files that a channel brings."""
    [source] = [
        channel["DataSource"]["S3DataSource"]["S3Uri"]
        for channel in job["InputDataConfig"]
        if channel["ChannelName"] == name
    ]
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    prefix = prefix.rstrip("/") + "/"
    client = aws.client("s3")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    return {
        key.removeprefix(prefix): client.get_object(Bucket=bucket, Key=key)["Body"].read()
        for key in keys
        if "__pycache__" not in key
    }


@pytest.mark.parametrize("name", TRAINERS)
def test_a_job_of_version_3_starts_the_sdks_driver(trainers: dict[str, Any], name: str) -> None:
    job = trainers[name]
    assert job["AlgorithmSpecification"]["ContainerEntrypoint"] == list(ENTRYPOINT)
    assert job["AlgorithmSpecification"]["ContainerArguments"] == list(ARGUMENTS)
    assert job["HyperParameters"] == encode_hyperparameters(USERS) | dict(ours_of(name).hyperparameters)


@pytest.mark.parametrize("name", TRAINERS)
def test_the_channels_of_version_3(aws: Aws, trainers: dict[str, Any], name: str) -> None:
    """File by file and byte by byte: what a run here hands to a host is what S3 would."""
    [packages] = installed(V3).glob("lib/python*/site-packages")
    assert uploaded(aws, trainers[name], DRIVERS_CHANNEL) == channel(packages, ours_of(name))
    assert uploaded(aws, trainers[name], CODE_CHANNEL).keys() == {SCRIPT, "requirements.txt"}


def test_the_mpi_driver_starts_its_processes_once(tmp_path: Path) -> None:
    """Should this fail one day, a warning can go: version 3 would start them on each host."""
    [packages] = installed(V3).glob("lib/python*/site-packages")
    code = (
        f"import sys; sys.path.insert(0, {str(packages / 'sagemaker/train/container_drivers')!r})\n"
        "from distributed_drivers.mpi_utils import get_mpirun_command\n"
        "print(*get_mpirun_command(2, ['algo-1:2', 'algo-2:2'], 2, [], 'train.py'))\n"
    )
    environment = {"SM_CURRENT_INSTANCE_TYPE": "ml.c5.xlarge", "HOME": str(tmp_path)}
    command = [str(installed(V3) / "bin" / "python"), "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert "mpirun --host algo-1:2,algo-2:2 -np 2 " in result.stdout
