"""The snippets, run by the real SageMaker SDK against moto: what it asks AWS for is what counts."""

import contextlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.cluster.job import Group
from bakehouse.errors import UsageError
from bakehouse.jobs import snippets
from bakehouse.jobs.api_fields import ApiField
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.snippets import Snippet
from bakehouse.ledger.releases import ReleasedComponent, ReleaseRecord
from tests.integration.sagemaker_sdk import ROLE, V2, V3, Aws, installed
from tests.support.data import text_of
from tests.support.documents import blocks
from tests.support.ecr import ACCOUNT, REGION
from tests.support.pairwise import pairwise
from tests.support.source_jobs import SOURCE_JOBS, launcher_of, resources_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

DIGEST = "sha256:" + "4f" * 32
HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"


def record(name: str, **changed: Any) -> ReleaseRecord:
    return replace(
        ReleaseRecord(
            image=name,
            key="7c1e44b0" * 8,
            digest=DIGEST,
            registry=HOST,
            repository=f"bakehouse/{name}",
            tags=(f"{name}-20261120-7c1e44b0",),
            image_uri=f"{HOST}/bakehouse/{name}@{DIGEST}",
            date="2026-11-20",
            tested=True,
            transport="gloo",
            checks=(),
            parts=(ReleasedComponent("open-mpi", "4.1.8", "py311"),),
            gpu=False,
            launchers=("mpirun",),
            training_module="",
            entry_point="",
            media_type="application/vnd.docker.distribution.manifest.v2+json",
            bytes=1,
        ),
        **changed,
    )


PYTORCH = {
    "parts": (ReleasedComponent("pytorch", "2.9.1", "cpu"),),
    "launchers": ("mpirun", "torchrun"),
    "training_module": "sagemaker_pytorch_container.training:main",
}
TENSORFLOW = {
    "parts": (ReleasedComponent("tensorflow", "2.21.0", "cpu"),),
    "training_module": "sagemaker_tensorflow_container.training:main",
}


def parts(**versions: str) -> dict[str, Any]:
    """Return the fields of a record of an image with components and the toolkit for PyTorch."""
    names = (ReleasedComponent(name.replace("_", "-"), version, "") for name, version in versions.items())
    return {**PYTORCH, "parts": tuple(names), "gpu": True}


GROUPS = (Group("data", "ml.c5.18xlarge", 2), Group("train", "ml.c5.2xlarge"))
IN_A_GROUP = {"mpi": {"enabled": True, "processes_per_host": 2}, "instance_groups": ["train"]}
DRIVERS = {"parts": tuple(ReleasedComponent(name, "1", "") for name in ("sshd", "mpi4py"))}
MORE: dict[str, Any] = {
    "hyperparameters": {"epochs": 3, "optimizer": "adam"},
    "environment": {"A": "b"},
    "keep_alive": 600,
}
SMP2 = parts(pytorch="2.5.1", smp="2.8.0")

Case = tuple[ReleaseRecord, JobSpec]
OF_VERSION_3: dict[str, Case] = {
    "plain": (record("plain", **PYTORCH | {"launchers": ()}), JobSpec(instance_count=1)),
    "torchrun": (record("torchrun", **PYTORCH, gpu=True), JobSpec(role=ROLE, instance_count=2)),
    "hosts": (record("hosts", **PYTORCH), JobSpec(launcher="torchrun", instance_count=4)),
    "processes": (
        record("processes", **PYTORCH),
        JobSpec(distribution={"Torchrun": {"process_count_per_node": 2}}),
    ),
    "mpi-on-one-host": (
        record("mpi-on-one-host", **DRIVERS),
        JobSpec(instance_count=1, processes_per_host=4),
    ),
    "plain-groups": (record("plain-groups", **PYTORCH | {"launchers": ()}), JobSpec(groups=GROUPS)),
    "more": (record("more", **PYTORCH), JobSpec(**MORE)),
    "source": (record("source", **PYTORCH), JobSpec(source_dir="code", entry_point="go.py")),
    "channels": (
        record("channels", **PYTORCH),
        JobSpec(
            request=(
                ApiField(
                    "InputDataConfig",
                    "InputDataConfig",
                    [
                        {
                            "ChannelName": "images",
                            "InputMode": "FastFile",
                            "DataSource": {
                                "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://ours/images"}
                            },
                        },
                        {
                            "ChannelName": "files",
                            "DataSource": {
                                "FileSystemDataSource": {
                                    "FileSystemId": "fs-0123456789abcdef0",
                                    "FileSystemType": "FSxLustre",
                                    "DirectoryPath": "/fsx/data",
                                    "FileSystemAccessMode": "ro",
                                }
                            },
                        },
                    ],
                ),
                ApiField("VpcConfig.Subnets", "VpcConfig.Subnets", ["subnet-1"]),
                ApiField("VpcConfig.SecurityGroupIds", "VpcConfig.SecurityGroupIds", ["sg-1"]),
            )
        ),
    ),
    "efa": (
        record("efa", **PYTORCH, gpu=True),
        JobSpec(instance_type="ml.p4d.24xlarge", environment={"NCCL_DEBUG": "INFO"}),
    ),
    "smp2": (record("smp2", **SMP2), JobSpec(instance_count=2)),
    "huggingface": (
        record("huggingface", **parts(pytorch="2.13.0", transformers="5.23.0", python="3.11")),
        JobSpec(),
    ),
    "baked": (record("baked", entry_point="train.py"), JobSpec(processes_per_host=4)),
    "baked-groups": (
        record("baked-groups", entry_point="train.py"),
        JobSpec(groups=GROUPS, distribution=IN_A_GROUP, hyperparameters={"epochs": 3}),
    ),
}
"""Jobs whose code is for version 3."""
OF_VERSION_2: dict[str, Case] = {
    "mpi": (record("mpi"), JobSpec(instance_count=3, processes_per_host=4)),
    "mirrored": (record("mirrored", **TENSORFLOW), JobSpec(instance_count=2)),
    "groups": (record("groups"), JobSpec(groups=GROUPS, distribution=IN_A_GROUP)),
    "smp": (record("smp", **parts(pytorch="1.10.2", smp="1.7.0")), JobSpec()),
    "smddp": (record("smddp", **parts(pytorch="2.5.1", smddp="2.6.0")), JobSpec()),
    "xla": (
        record("xla", **parts(aws_training_compiler_pytorch="1.13.1", pytorch="1.13.1")),
        JobSpec(),
    ),
    "transformers": (
        record(
            "transformers",
            **parts(
                aws_training_compiler_pytorch="1.10.2", pytorch="1.10.2", transformers="4.17.0", python="3.8"
            ),
        ),
        JobSpec(),
    ),
    "compiled": (
        record(
            "compiled",
            **parts(aws_training_compiler_tensorflow="2.11.0", tensorflow="2.11.0")
            | {"training_module": TENSORFLOW["training_module"]},
        ),
        JobSpec(),
    ),
}
"""Jobs whose code is for version 2, because version 3 cannot start them."""
ASKED = {
    f"{name}-v2": (replace(release, image=f"{name}-v2"), replace(job, sdk="v2"))
    for name, (release, job) in OF_VERSION_3.items()
    if name != "processes"
}
"""The jobs of version 3 that version 2 has too, with `--sdk v2`."""
REQUESTS: dict[str, Case] = {
    "request": (
        record("request"),
        JobSpec(sdk="boto3", role=ROLE, processes_per_host=4, hyperparameters={"epochs": 3}),
    ),
    "request-groups": (
        record("request-groups"),
        JobSpec(sdk="boto3", role=ROLE, groups=GROUPS, distribution=IN_A_GROUP),
    ),
    "request-torchrun": (record("request-torchrun", **PYTORCH), JobSpec(sdk="boto3", role=ROLE)),
    "request-baked": (
        record("request-baked", entry_point="train.py"),
        JobSpec(sdk="boto3", role=ROLE, instance_count=2),
    ),
}
SOURCE = {
    f"source-{name}-{sdk}": (name, sdk)
    for name, job in SOURCE_JOBS.items()
    for sdk in job.forms
    if sdk != "boto3"
}
"""The jobs of AWS's documents, in both versions where these can express them."""
OF_SOURCE: dict[str, Case] = {
    case: (replace(SOURCE_JOBS[name].record, image=case), replace(SOURCE_JOBS[name].spec, sdk=sdk))
    for case, (name, sdk) in SOURCE.items()
}
OPTIONS: dict[str, list[Any]] = {
    "release": [
        record("pair", **PYTORCH),
        record("pair", **TENSORFLOW),
        record("pair"),
        record("pair", entry_point="train.py"),
        record("pair", **parts(pytorch="2.9.1")),
    ],
    "sdk": ["", "v2", "v3", "boto3"],
    "launcher": ["", "torchrun", "mpirun", "script", "tensorflow"],
    "hosts": [
        {"instance_count": 1},
        {"instance_count": 2},
        {"groups": GROUPS},
        {"instance_type": "ml.p4d.24xlarge", "instance_count": 2},
    ],
    "processes_per_host": [None, 2],
    "hyperparameters": [
        {},
        {"epochs": 3, "rate": 1e-4, "flag": True, "name": "a b"},
        {"empty": "", "lines": "a\nb", "json": '{"a": 1}'},
    ],
    "environment": [{}, {"A": "", "B": "x y $HOME"}],
    "keep_alive": [None, 600],
    "max_run": [None, 3600],
    "volume_gib": [None, 100],
    "spot": [None, True],
    "inputs": [{}, {"training": "s3://ours/a"}, {"val-set": "s3://ours/b", "training": "s3://ours/a"}],
    "output": ["", "s3://ours/out"],
    "source_dir": ["", "code"],
    "request": [
        {},
        {"Tags": [{"Key": "team", "Value": ""}]},
        {"VpcConfig.Subnets": ["subnet-1"], "VpcConfig.SecurityGroupIds": ["sg-1"]},
        {"RetryStrategy.MaximumRetryAttempts": 3},
        {"EnableNetworkIsolation": True},
        {"CheckpointConfig.S3Uri": "s3://ours/checkpoints"},
    ],
}
"""Options of jobs. Each possible pair of their values is in a job of `pairs`."""
CASES = {**OF_VERSION_3, **OF_VERSION_2, **ASKED, **REQUESTS, **OF_SOURCE}
DAILY = {
    *(*OF_VERSION_3, *REQUESTS, "mpi", "mirrored", "smddp", "compiled"),
    *("torchrun-v2", "baked-v2", "channels-v2", "smp2-v2", "more-v2"),
    *("source-resnet50-in-groups-v2", "source-mnist-in-groups-v3"),
    *("source-torchrun-v3", "source-parameter-servers-v2"),
}
"""Jobs that `./bake test` sends; `./bake test --release` sends all."""
GUIDE = HOME / "docs/how-to/launch-jobs.md"
RUN = text_of(__file__, "run")
DAILY_PAIRS = 6
"""Pairs of options of the daily test; the first ones have the most new pairs."""
GENERIC, GUIDED = "generic", "guided"
"""An estimator that is not one of ours, and a job with the settings of the guide."""


def each(names: Iterable[str], argument: str = "name", suffix: str = "") -> pytest.MarkDecorator:
    """Parametrize a test with names of cases; `suffix` is that of the case that must be sent."""
    release = pytest.mark.release
    return pytest.mark.parametrize(
        argument,
        [pytest.param(name, marks=() if f"{name}{suffix}" in DAILY else release) for name in names],
    )


@pytest.fixture(scope="module")
def sdk() -> Path:
    return installed(V2)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with training scripts, in which the code runs."""
    directory = tmp_path_factory.mktemp("pasted") / "project"
    directory.mkdir()
    (directory / "train.py").write_text("print('training')\n")
    (directory / "code").mkdir()
    (directory / "code/go.py").write_text("print('training')\n")
    (directory / "code/requirements.txt").write_text("emoji\n")
    return directory


def combined(options: Mapping[str, Any]) -> Case:
    fields = {name: value for name, value in options.items() if name not in ("release", "hosts", "request")}
    request = tuple(ApiField(path, path, value) for path, value in options["request"].items())
    script = "go.py" if options["source_dir"] else ""
    job = JobSpec(role=ROLE, entry_point=script, request=request, **options["hosts"], **fields)
    return options["release"], job


def is_possible(options: Mapping[str, Any]) -> bool:
    """Return whether code for these options is printed, from a directory with training scripts."""
    try:
        snippets.snippet(*combined(options))
    except UsageError:
        return False
    return True


@pytest.fixture(scope="module")
def pairs(directory: Path) -> dict[str, Mapping[str, Any]]:
    """Options by the name of the job."""
    with contextlib.chdir(directory):
        return {f"pair{number}": options for number, options in enumerate(pairwise(OPTIONS, is_possible))}


def print_pairs(directory: Path, pairs: Mapping[str, Mapping[str, Any]]) -> dict[str, Snippet]:
    cases = {name: combined(options) for name, options in pairs.items()}
    with contextlib.chdir(directory):
        return {
            name: snippets.snippet(replace(release, image=name), job)
            for name, (release, job) in cases.items()
        }


@pytest.fixture(scope="module")
def printed(
    directory: Path, pairs: Mapping[str, Mapping[str, Any]], pytestconfig: pytest.Config
) -> dict[str, Snippet]:
    """The code of each case and of some pairs of options, printed next to the training scripts."""
    with contextlib.chdir(directory):
        names = CASES if pytestconfig.getoption("--release") else DAILY
        code = {name: snippets.snippet(*CASES[name]) for name in names}
    return code | print_pairs(directory, dict(islice(pairs.items(), DAILY_PAIRS)))


@pytest.fixture(scope="module")
def jobs(sdk: Path, aws: Aws, directory: Path, printed: dict[str, Snippet]) -> dict[str, Any]:
    """The requests for jobs that the code sent, all of which moto accepted."""
    code = {name: (snippet.sdk, snippet.code) for name, snippet in printed.items()}
    estimator = snippets.snippet(record(GENERIC), JobSpec(sdk="v2")).code
    generic = estimator.replace("sagemaker.pytorch", "sagemaker.estimator").replace("PyTorch", "Estimator")
    code[GENERIC] = ("v2", generic)
    [settings] = [text for _, text in blocks(GUIDE) if "trainer.train(" in text]
    trainer = snippets.snippet(record(GUIDED, **PYTORCH), JobSpec()).code
    code[GUIDED] = ("v3", trainer.replace("trainer.train()\n", settings))
    # Both versions of the SDK would create it at the same time.
    for bucket in (f"sagemaker-{REGION}-{ACCOUNT}", "ours"):
        location = {"LocationConstraint": REGION}
        aws.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=location)
    requests = sent(aws, sdk, directory, code)
    assert len(requests) == len(code) == len(aws.jobs())
    return requests


def sent(aws: Aws, sdk: Path, directory: Path, code: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Run code, given with its SDK by the name of its job, and return the requests by name."""
    for name, (_, text) in code.items():
        # The difference is expected: moto does not run the job, so the test does not wait for it.
        text = text.replace("trainer.train(", "trainer.train(wait=False, ")
        (directory.parent / f"{name}.py").write_text(text)
    names: dict[Path, list[str]] = {sdk: [], installed(V3): []}
    for name, (library, _) in code.items():
        names[installed(V3) if library == "v3" else sdk].append(f"../{name}.py")
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(aws.run, python, ["-c", RUN, f"../{number}.json", *paths], directory)
            for number, (python, paths) in enumerate(names.items())
        ]
        for run in runs:
            run.result()
    texts = [(directory.parent / f"{number}.json").read_text() for number in range(len(names))]
    requests = [request for text in texts for request in json.loads(text)]
    return {request["TrainingJobName"].partition("-20")[0]: request for request in requests}


def hyperparameters(job: dict[str, Any]) -> dict[str, Any]:
    """Hyperparameters as the toolkit in the image, or a driver of version 3, reads them."""
    return {name: value_of(text) for name, text in job.get("HyperParameters", {}).items()}


def value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@each(CASES)
def test_the_job_uses_the_released_image(jobs: dict[str, Any], name: str) -> None:
    job = jobs[name]
    assert job["AlgorithmSpecification"]["TrainingImage"] == CASES[name][0].image_uri
    assert job["RoleArn"] == ROLE


@each(CASES)
def test_the_code_is_for_the_sdk_that_can_start_the_job(printed: dict[str, Snippet], name: str) -> None:
    asked = CASES[name][1].sdk
    assert printed[name].sdk == (asked or ("v3" if name in OF_VERSION_3 else "v2"))


def settings(job: dict[str, Any]) -> dict[str, Any]:
    """Settings of a job that do not depend on the SDK that sends it."""
    return {
        "resources": job["ResourceConfig"],
        "limits": job["StoppingCondition"],
        "environment": job.get("Environment") or {},
        "mode": job["AlgorithmSpecification"]["TrainingInputMode"],
        "hyperparameters": {
            key: value for key, value in hyperparameters(job).items() if not key.startswith("sagemaker_")
        },
    }


@each([name.removesuffix("-v2") for name in ASKED], suffix="-v2")
def test_version_3_asks_for_the_job_of_version_2(jobs: dict[str, Any], name: str) -> None:
    assert settings(jobs[name]) == settings(jobs[f"{name}-v2"])


def test_some_pairs_of_options_reach_the_api(
    jobs: dict[str, Any], pairs: Mapping[str, Mapping[str, Any]], printed: dict[str, Snippet]
) -> None:
    chosen = dict(islice(pairs.items(), DAILY_PAIRS))
    assert {printed[name].sdk for name in chosen} == {"v2", "v3", "boto3"}
    for name, options in chosen.items():
        check_options(name, options, jobs[name])


@pytest.mark.release
def test_each_pair_of_options_reaches_the_api(
    jobs: dict[str, Any], pairs: Mapping[str, Mapping[str, Any]], aws: Aws, sdk: Path, directory: Path
) -> None:
    assert len(pairs) > 30
    others = dict(islice(pairs.items(), DAILY_PAIRS, None))
    code = {name: (snippet.sdk, snippet.code) for name, snippet in print_pairs(directory, others).items()}
    requests = sent(aws, sdk, directory, code)
    for name, options in others.items():
        check_options(name, options, requests[name])


def check_options(name: str, options: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """Check that a request has the values of all options."""
    asked = {
        ("ResourceConfig", "VolumeSizeInGB"): options["volume_gib"],
        ("ResourceConfig", "KeepAlivePeriodInSeconds"): options["keep_alive"],
        ("StoppingCondition", "MaxRuntimeInSeconds"): options["max_run"],
        ("OutputDataConfig", "S3OutputPath"): options["output"] or None,
    }
    for (section, key), value in asked.items():
        assert value is None or job[section][key] == value, (name, key)
    assert bool(options["spot"]) == bool(job.get("EnableManagedSpotTraining")), name
    channels = {channel["ChannelName"] for channel in job.get("InputDataConfig", ())}
    assert {*options["inputs"]} <= channels, name
    assert options["environment"].items() <= job.get("Environment", {}).items(), name
    for key, value in options["hyperparameters"].items():
        # Version 3 sends a text as it is, and version 2 as JSON
        text = job["HyperParameters"][key]
        assert value in (text, value_of(text)), (name, key)
    for path, value in options["request"].items():
        section, _, key = path.partition(".")
        found = job[section][key] if key else job[section]
        assert value[0] in found if section == "Tags" else found == value, (name, path)


def test_an_mpi_job(jobs: dict[str, Any]) -> None:
    resources = jobs["mpi"]["ResourceConfig"]
    assert (resources["InstanceType"], resources["InstanceCount"]) == ("ml.c5.2xlarge", 3)
    parameters = hyperparameters(jobs["mpi"])
    assert parameters["sagemaker_mpi_enabled"] is True
    assert parameters["sagemaker_mpi_num_of_processes_per_host"] == 4
    assert parameters["sagemaker_program"] == "train.py"
    assert parameters["sagemaker_submit_directory"].startswith("s3://")


def test_a_job_under_torchrun(jobs: dict[str, Any]) -> None:
    resources = jobs["torchrun-v2"]["ResourceConfig"]
    assert (resources["InstanceType"], resources["InstanceCount"]) == ("ml.g5.12xlarge", 2)
    parameters = hyperparameters(jobs["torchrun-v2"])
    assert parameters["sagemaker_torch_distributed_enabled"] is True
    assert "sagemaker_mpi_enabled" not in parameters


def test_mirrored_workers_of_tensorflow(jobs: dict[str, Any]) -> None:
    parameters = hyperparameters(jobs["mirrored"])
    assert parameters["sagemaker_multi_worker_mirrored_strategy_enabled"] is True
    assert "model_dir" not in parameters


DDP_TOLD = {
    "sagemaker_distributed_dataparallel_enabled": True,
    "sagemaker_distributed_dataparallel_custom_mpi_options": "",
    "sagemaker_instance_type": "ml.p4d.24xlarge",
}
COMPILER_TOLD = {
    "sagemaker_training_compiler_enabled": True,
    "sagemaker_training_compiler_debug_mode": False,
}
LIBRARIES: dict[str, dict[str, Any]] = {
    "smp": {
        "mp_parameters": {"pipeline_parallel_degree": 2, "ddp": True},
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": 8,
        "sagemaker_instance_type": "ml.p4d.24xlarge",
    },
    "smp2-v2": {"mp_parameters": {"hybrid_shard_degree": 16}, "sagemaker_torch_distributed_enabled": True},
    "smddp": DDP_TOLD,
    "xla": {**COMPILER_TOLD, "sagemaker_pytorch_xla_multi_worker_enabled": True},
    "transformers": COMPILER_TOLD,
    "huggingface-v2": {"sagemaker_torch_distributed_enabled": True},
    "compiled": COMPILER_TOLD,
}


@each(LIBRARIES)
def test_a_job_uses_the_library_that_its_image_is_for(jobs: dict[str, Any], name: str) -> None:
    parameters = hyperparameters(jobs[name])
    assert {key: parameters[key] for key in LIBRARIES[name]} == LIBRARIES[name]


def test_a_trainer_sends_the_parameters_of_smp_2(jobs: dict[str, Any]) -> None:
    assert hyperparameters(jobs["smp2"]) == {"mp_parameters": {"hybrid_shard_degree": 16}}


MPI_TOLD = {
    "sagemaker_mpi_enabled": True,
    "sagemaker_mpi_num_of_processes_per_host": 4,
    "sagemaker_mpi_custom_mpi_options": "",
}


def test_an_image_with_its_own_training_code_gets_none(jobs: dict[str, Any]) -> None:
    assert hyperparameters(jobs["baked"]) == hyperparameters(jobs["baked-v2"]) == MPI_TOLD


GROUPS_ASKED = [
    {"InstanceGroupName": "data", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 2},
    {"InstanceGroupName": "train", "InstanceType": "ml.c5.2xlarge", "InstanceCount": 1},
]


@each(["groups", "baked-groups", "baked-groups-v2", "request-groups"])
def test_a_job_with_groups(jobs: dict[str, Any], name: str) -> None:
    assert jobs[name]["ResourceConfig"]["InstanceGroups"] == GROUPS_ASKED
    parameters = hyperparameters(jobs[name])
    assert parameters["sagemaker_distribution_instance_groups"] == ["train"]
    assert parameters["sagemaker_mpi_num_of_processes_per_host"] == 2


@each(SOURCE, "case")
def test_a_job_of_the_documents_has_its_hosts_and_launcher(jobs: dict[str, Any], case: str) -> None:
    name, sdk = SOURCE[case]
    job = SOURCE_JOBS[name]

    assert resources_of(jobs[case], job) == job.resources
    if sdk == "v2":
        assert launcher_of(jobs[case], job) == job.hyperparameters


@each(["more", "more-v2"])
def test_other_settings_of_a_job(jobs: dict[str, Any], name: str) -> None:
    job = jobs[name]
    assert hyperparameters(job)["epochs"] == 3
    assert job["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 600
    assert job["Environment"] == {"A": "b"}


@each(["channels", "channels-v2"])
def test_channels_of_s3_and_of_a_file_system(jobs: dict[str, Any], name: str) -> None:
    images, files = (
        channel
        for channel in jobs[name]["InputDataConfig"]
        if channel["ChannelName"] not in ("code", "sm_drivers")
    )
    assert (images["ChannelName"], images["InputMode"]) == ("images", "FastFile")
    assert images["DataSource"]["S3DataSource"]["S3Uri"] == "s3://ours/images"
    assert files["DataSource"]["FileSystemDataSource"] == {
        "FileSystemId": "fs-0123456789abcdef0",
        "FileSystemType": "FSxLustre",
        "DirectoryPath": "/fsx/data",
        "FileSystemAccessMode": "ro",
    }


DRIVEN = {
    "plain": ("", {}),
    "torchrun": ("torchrun", {"process_count_per_node": None, "smp": None}),
    "processes": ("torchrun", {"process_count_per_node": 2, "smp": None}),
    "mpi-on-one-host": ("mpi", {"process_count_per_node": 4, "mpi_additional_options": None}),
    "source": ("torchrun", {"process_count_per_node": None, "smp": None}),
}


@each(DRIVEN)
def test_a_trainer_starts_a_driver(jobs: dict[str, Any], aws: Aws, name: str) -> None:
    """Version 3 sends no hyperparameters for a launcher: its drivers are in a channel."""
    job, (driver, distributed) = jobs[name], DRIVEN[name]
    assert job.get("HyperParameters", {}) == {}
    assert [channel["ChannelName"] for channel in job["InputDataConfig"]] == ["code", "sm_drivers"]
    assert job["AlgorithmSpecification"]["ContainerEntrypoint"] == ["/bin/bash"]
    script = content(aws, job, "sm_drivers", "sm_train.sh")
    assert f"/distributed_drivers/{driver or 'basic_script'}_driver.py\n" in script
    assert json.loads(content(aws, job, "sm_drivers", "distributed.json")) == distributed
    assert content(aws, job, "code", "go.py" if name == "source" else "train.py") == "print('training')\n"
    assert ("install_requirements.py requirements.txt" in script) == (name == "source")


def content(aws: Aws, job: dict[str, Any], channel: str, name: str) -> str:
    """Return a file of a channel."""
    [source] = [one["DataSource"] for one in job["InputDataConfig"] if one["ChannelName"] == channel]
    bucket, _, prefix = source["S3DataSource"]["S3Uri"].removeprefix("s3://").partition("/")
    key = f"{prefix.rstrip('/')}/{name}"
    return str(aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode())


@each(["plain-groups", "plain-groups-v2"])
def test_a_job_without_a_launcher_in_groups(jobs: dict[str, Any], name: str) -> None:
    assert jobs[name]["ResourceConfig"]["InstanceGroups"] == GROUPS_ASKED


@each(["baked", "baked-groups"])
def test_a_trainer_lets_an_image_start_its_own_code(jobs: dict[str, Any], name: str) -> None:
    assert "ContainerEntrypoint" not in jobs[name]["AlgorithmSpecification"]
    assert "InputDataConfig" not in jobs[name]


def test_the_settings_in_the_guide(jobs: dict[str, Any]) -> None:
    job = jobs[GUIDED]
    assert job["EnableManagedSpotTraining"] is True
    assert job["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400, "MaxWaitTimeInSeconds": 172800}
    assert job["CheckpointConfig"]["S3Uri"] == "s3://our-data/checkpoints"
    assert job["VpcConfig"] == {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}
    channels = {channel["ChannelName"]: channel["DataSource"] for channel in job["InputDataConfig"]}
    assert channels.keys() == {"training", "code", "sm_drivers"}
    assert channels["training"]["S3DataSource"]["S3Uri"] == "s3://our-data/flowers"


FAILURES = {"torchrun": "No IAM role", "torchrun-v2": "The current AWS identity is not a role"}


@pytest.mark.parametrize("name", FAILURES)
def test_outside_sagemaker_a_role_is_needed(aws: Aws, sdk: Path, directory: Path, name: str) -> None:
    """As the comment in the code says."""
    release, job = CASES[name]
    with contextlib.chdir(directory):
        snippet = snippets.snippet(release, replace(job, role=""))
    assert "\n# Outside SageMaker, " in snippet.code
    (directory.parent / "outside.py").write_text(snippet.code)
    python = installed(V3) if snippet.sdk == "v3" else sdk
    assert FAILURES[name] in aws.failure(python, ["../outside.py"], directory)


BESIDE = {"sagemaker_job_name", "sagemaker_submit_directory"}


def test_a_request_tells_a_job_what_the_sdk_does(jobs: dict[str, Any]) -> None:
    request, sdk = hyperparameters(jobs["request"]), hyperparameters(jobs["mpi"])
    assert request.keys() == sdk.keys() | {"epochs"}
    assert {key: value for key, value in request.items() if key not in BESIDE} == {
        **MPI_TOLD,
        "epochs": 3,
        "sagemaker_program": "train.py",
        "sagemaker_container_log_level": 20,
        "sagemaker_region": REGION,
    }
    assert {key: sdk[key] for key in sdk.keys() - BESIDE} == {
        key: request[key] for key in sdk.keys() - BESIDE
    }


def test_a_request_under_torchrun(jobs: dict[str, Any]) -> None:
    parameters = hyperparameters(jobs["request-torchrun"])
    assert parameters["sagemaker_torch_distributed_enabled"] is True
    assert parameters["sagemaker_instance_type"] == "ml.c5.2xlarge"


def test_a_request_for_an_image_with_its_own_training_code(jobs: dict[str, Any]) -> None:
    assert hyperparameters(jobs["request-baked"]) == {
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_custom_mpi_options": "",
    }


def test_a_request_sends_the_script(jobs: dict[str, Any], aws: Aws) -> None:
    """As an archive with the script at its top, where the toolkit unpacks it."""
    address = hyperparameters(jobs["request"])["sagemaker_submit_directory"]
    bucket, _, key = address.removeprefix("s3://").partition("/")
    content = aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["train.py"]


def test_the_generic_estimator_still_drops_the_distribution(jobs: dict[str, Any]) -> None:
    """Should this fail one day, the snippets can name `Estimator` for every image."""
    assert "sagemaker_mpi_enabled" not in hyperparameters(jobs[GENERIC])
