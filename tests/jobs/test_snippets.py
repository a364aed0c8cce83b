"""The text of the snippets; that they run is shown in tests/integration/test_estimator.py."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.user_smoke import UserSmoke
from bakehouse.cluster.job import Group
from bakehouse.errors import Diagnostic, Location, UsageError
from bakehouse.jobs import snippets
from bakehouse.jobs.api_fields import ApiField, flatten
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.training_request import launch_image
from bakehouse.ledger.releases import ReleasedComponent, ReleaseRecord
from tests.support import own_recipes
from tests.support.errors import raised
from tests.support.release_records import a_record

HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
MPI = replace(a_record(), registry=HOST, image_uri=f"{HOST}/bakehouse/mpi-cpu@sha256:4f1c")
PYTORCH = replace(
    MPI,
    image="pytorch-cpu",
    image_uri=f"{HOST}/bakehouse/pytorch-cpu@sha256:4f1c",
    transport="gloo",
    parts=(ReleasedComponent("pytorch", "2.9.1", "cpu"),),
    launchers=("mpirun", "torchrun"),
    training_module="sagemaker_pytorch_container.training:main",
)


DEFAULTS = JobSpec()


def snippet(record: ReleaseRecord, job: JobSpec = DEFAULTS) -> str:
    return snippets.snippet(record, job).code


TENSORFLOW = replace(
    MPI,
    image="tensorflow-cpu",
    image_uri=f"{HOST}/bakehouse/tensorflow-cpu@sha256:4f1c",
    parts=(ReleasedComponent("tensorflow", "2.21.0", "cpu"),),
    training_module="sagemaker_tensorflow_container.training:main",
)


V2 = JobSpec(sdk="v2")
ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"


def test_an_image_with_torchrun() -> None:
    assert snippet(PYTORCH) == (
        """\
# pytorch-cpu, published 2026-11-20, smoke-tested (gloo); for version 3 of the SageMaker SDK
# pip install 'sagemaker>=3'
# Outside SageMaker, set role to the ARN of an execution role: the default is the caller's role.
# The SDK uploads the whole directory ".". Set source_dir to a directory with code only.
from sagemaker.core.training.configs import Compute, SourceCode, StoppingCondition
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import Torchrun

trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/pytorch-cpu@sha256:4f1c",
    source_code=SourceCode(source_dir=".", entry_script="train.py"),
    distributed=Torchrun(),
    compute=Compute(instance_type="ml.c5.2xlarge", instance_count=1),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=86400),
    base_job_name="pytorch-cpu",
)
trainer.train()
"""
    )


def test_an_image_with_torchrun_in_version_2() -> None:
    assert snippet(PYTORCH, V2) == (
        """\
# pytorch-cpu, published 2026-11-20, smoke-tested (gloo); for version 2 of the SageMaker SDK
# pip install 'sagemaker<3'
# Outside SageMaker, get_execution_role() fails: set role to the ARN of an execution role.
import sagemaker
from sagemaker.pytorch import PyTorch

estimator = PyTorch(
    image_uri="123456789012.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/pytorch-cpu@sha256:4f1c",
    entry_point="train.py",
    role=sagemaker.get_execution_role(),
    instance_type="ml.c5.2xlarge",
    instance_count=1,
    distribution={"torch_distributed": {"enabled": True}},
    base_job_name="pytorch-cpu",
)
estimator.fit()
"""
    )


def test_the_name_of_a_job_has_no_dots() -> None:
    record = replace(PYTORCH, image="pytorch-2.10-cu128_efa")
    assert '    base_job_name="pytorch-2-10-cu128-efa",\n' in snippet(record)


def test_an_image_with_mpi_alone() -> None:
    assert snippet(
        MPI, JobSpec(role="arn:aws:iam::123456789012:role/x", instance_count=2, processes_per_host=8)
    ) == (
        """\
# mpi-cpu, published 2026-11-20, smoke-tested (mpi); for version 2 of the SageMaker SDK
# pip install 'sagemaker<3'
# Not for version 3: the SDK's MPI driver starts 8 processes in total, not on each of 2 hosts.
# The class PyTorch passes `distribution` on; the image needs no PyTorch.
from sagemaker.pytorch import PyTorch

estimator = PyTorch(
    image_uri="123456789012.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/mpi-cpu@sha256:4f1c",
    entry_point="train.py",
    role="arn:aws:iam::123456789012:role/x",
    instance_type="ml.c5.2xlarge",
    instance_count=2,
    distribution={"mpi": {"enabled": True, "processes_per_host": 8}},
    base_job_name="mpi-cpu",
)
estimator.fit()
"""
    )


def test_an_image_with_tensorflow() -> None:
    code = snippet(TENSORFLOW, JobSpec(instance_count=2))
    assert "from sagemaker.tensorflow import TensorFlow\n" in code
    assert '    distribution={"multi_worker_mirrored_strategy": {"enabled": True}},\n' in code
    assert '    framework_version="2.21.0",\n    model_dir=False,\n' in code


def add_parts(record: ReleaseRecord, **versions: str) -> ReleaseRecord:
    names = {name.replace("_", "-"): version for name, version in versions.items()}
    parts = tuple(ReleasedComponent(name, version, "") for name, version in names.items())
    return replace(record, parts=parts, gpu=True)


SMP = add_parts(PYTORCH, pytorch="1.10.2", smp="1.7.0", smddp="1.4.0")
SMP2 = add_parts(PYTORCH, pytorch="2.5.1", smp="2.8.0")
SMDDP = add_parts(PYTORCH, pytorch="2.5.1", smddp="2.6.0")
XLA = add_parts(PYTORCH, aws_training_compiler_pytorch="1.13.1", pytorch="1.13.1")
TRANSFORMERS = add_parts(
    PYTORCH, aws_training_compiler_pytorch="1.10.2", pytorch="1.10.2", transformers="4.17.0", python="3.8"
)
DISTRIBUTED = " * num_gpus * instance_count"
COMPILED = add_parts(TENSORFLOW, aws_training_compiler_tensorflow="2.11.0", tensorflow="2.11.0")
EXAMPLE = "# The degrees of parallelism are examples: set those of your model.\n"


def test_an_image_with_smp_1_uses_it() -> None:
    code = snippet(SMP)
    assert EXAMPLE in code
    assert '    instance_type="ml.p4d.24xlarge",\n' in code
    assert (
        '    distribution={"smdistributed": {"modelparallel": {"enabled": True, "parameters": '
        '{"pipeline_parallel_degree": 2, "ddp": True}}}, '
        '"mpi": {"enabled": True, "processes_per_host": 8}},\n'
    ) in code
    old = snippet(add_parts(PYTORCH, pytorch="1.8.1", smp="1.3.0"), JobSpec(processes_per_host=4))
    assert '"parameters": {"partitions": 2, "ddp": True}' in old
    assert '"processes_per_host": 4' in old
    assert raised(UsageError, snippet, SMP, JobSpec(sdk="v3")).diagnostics == (
        Diagnostic("SDK v3 does not support SMP 1", hint="use `--sdk v2` or `--sdk boto3`"),
    )


def test_an_image_with_smp_2_uses_it() -> None:
    assert (
        '    distribution={"smdistributed": {"modelparallel": {"enabled": True, "parameters": '
        '{"hybrid_shard_degree": 8}}}, "torch_distributed": {"enabled": True}},\n'
    ) in snippet(SMP2, V2)
    trainer = snippet(SMP2)
    assert EXAMPLE in trainer
    assert "    distributed=Torchrun(smp=SMP(hybrid_shard_degree=8)),\n" in trainer


def test_an_image_with_smddp_uses_it() -> None:
    assert '    distribution={"smdistributed": {"dataparallel": {"enabled": True}}},\n' in snippet(SMDDP)
    assert "    distributed=Torchrun(),\n" in snippet(SMDDP, JobSpec(launcher="torchrun"))
    assert refused(SMDDP, JobSpec(sdk="v3")) == [
        Diagnostic(
            "SDK v3 has no launcher for SMDDP",
            hint="use `--sdk v2`, `--sdk boto3` or `launcher: torchrun` in a job file",
        )
    ]
    error = raised(UsageError, snippet, SMDDP, JobSpec(processes_per_host=4))
    assert error.diagnostics[0].message == "SMDDP starts one process for each GPU"


def test_an_image_with_training_compiler_enables_it() -> None:
    code = snippet(COMPILED)
    assert "from sagemaker.tensorflow import TensorFlow, TrainingCompilerConfig\n" in code
    assert "    compiler_config=TrainingCompilerConfig(),\n" in code
    assert "hyperparameters" not in code
    parameters = (
        '{"sagemaker_training_compiler_enabled": True, "sagemaker_training_compiler_debug_mode": False'
    )
    code = snippet(XLA)
    comment = "# Hyperparameters enable the compiler: the SDK has no `compiler_config` for this image.\n"
    launcher = '"sagemaker_pytorch_xla_multi_worker_enabled": True'
    assert comment in code
    assert f"    hyperparameters={parameters}, {launcher}}},\n" in code
    assert "distribution" not in code
    code = snippet(TRANSFORMERS)
    assert "estimator = PyTorch(\n" in code
    assert f"    hyperparameters={parameters}}},\n" in code
    error = raised(UsageError, snippet, XLA, JobSpec(sdk="v3"))
    assert error.diagnostics[0].message == "SDK v3 does not support SageMaker Training Compiler"


@pytest.mark.parametrize(
    "job", [JobSpec(sdk="boto3", role="arn:aws:iam::123456789012:role/x"), JobSpec(hyperparameters={"a": 1})]
)
def test_training_compiler_in_other_jobs(job: JobSpec) -> None:
    assert ("compiler_config=" in snippet(COMPILED, job)) == (job.sdk != "boto3")
    assert ('"sagemaker_training_compiler_enabled": True' in snippet(COMPILED, job)) == (job.sdk == "boto3")


@pytest.mark.parametrize("image", [COMPILED, XLA, TRANSFORMERS])
@pytest.mark.parametrize(
    ("instance_type", "count", "factor"),
    [("ml.p3.2xlarge", 1, ""), ("ml.p3.8xlarge", 1, DISTRIBUTED), ("ml.p3.2xlarge", 2, DISTRIBUTED)],
)
def test_training_compiler_needs_another_batch_size_and_learning_rate(
    image: ReleaseRecord, instance_type: str, count: int, factor: str
) -> None:
    rate = f"learning_rate = learning_rate_native / batch_size_native * batch_size{factor}.\n"
    job = JobSpec(instance_type=instance_type, instance_count=count, sdk="v2")
    code = snippets.snippet(image, job, own_recipes.catalog()).code
    assert f"use the largest batch_size that fits, and {rate}" in code
    off = replace(job, hyperparameters={"sagemaker_training_compiler_enabled": False})
    assert "batch_size" not in snippet(image, off)


def test_training_compiler_can_be_off() -> None:
    off = JobSpec(hyperparameters={"sagemaker_training_compiler_enabled": False})
    assert "compiler_config=" not in snippet(COMPILED, off)
    assert "sagemaker_pytorch_xla_multi_worker_enabled" not in snippet(XLA, off)


def test_an_image_with_transformers_has_the_class_that_starts_all_libraries() -> None:
    code = snippet(add_parts(PYTORCH, pytorch="2.13.0", transformers="5.23.0", python="3.11"), V2)
    assert "from sagemaker.pytorch import PyTorch\n" in code
    assert '    distribution={"torch_distributed": {"enabled": True}},\n' in code


def test_an_image_with_its_own_training_code() -> None:
    code = snippet(replace(PYTORCH, entry_point="train.py"), replace(V2, launcher="torchrun"))
    assert "estimator = Estimator(\n" in code
    parameters = (
        '{"sagemaker_torch_distributed_enabled": "true", "sagemaker_instance_type": "\\"ml.c5.2xlarge\\""}'
    )
    assert f"    hyperparameters={parameters},\n" in code
    assert "entry_point" not in code
    assert "distribution=" not in code
    assert (
        "# Estimator and not PyTorch or TensorFlow: these upload a script, and the image contains its own. "
        "Estimator ignores `distribution`, so hyperparameters start the launcher.\n"
    ) in code


def test_processes_of_an_image_with_its_own_training_code() -> None:
    code = snippet(replace(MPI, entry_point="train.py"), JobSpec(sdk="v2", processes_per_host=4))
    parameters = (
        '{"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "4", '
        '"sagemaker_mpi_custom_mpi_options": "\\"\\""}'
    )
    assert f"    hyperparameters={parameters},\n" in code


def test_a_gpu_image_gets_gpus() -> None:
    assert 'Compute(instance_type="ml.g5.12xlarge", ' in snippet(replace(PYTORCH, gpu=True))
    assert '    instance_type="ml.g5.12xlarge",\n' in snippet(replace(PYTORCH, gpu=True), V2)


SMOKE = UserSmoke(
    entry_point="train.py",
    hosts=2,
    processes=2,
    launcher="",
    hyperparameters=(("epochs", "1"), ("name", "a b")),
    channels=(("training", Path("data")),),
    expect="",
    timeout=60,
    location=Location(Path("churn.yaml"), 1, 1),
)
OWN = replace(PYTORCH, image="churn", entry_point="train.py")


def own_code(job: JobSpec = DEFAULTS, **smoke: Any) -> str:
    recipe = replace(own_recipes.recipes()["pytorch-cpu"], smoke=replace(SMOKE, **smoke))
    return snippets.snippet(OWN, job, recipe=recipe).code


def test_an_image_with_code_runs_it_once_on_one_host() -> None:
    code = snippet(OWN)
    assert 'compute=Compute(instance_type="ml.c5.2xlarge", instance_count=1),' in code
    assert "hyperparameters" not in code
    assert "input_data_config" not in code


def test_the_job_of_the_smoke_test() -> None:
    code = own_code()
    assert "# Missing settings come from the smoke test of the recipe.\n" in code
    assert "# Set the S3 URI of the channel `training`.\n" in code
    assert "instance_count=2)" in code
    assert '"sagemaker_torch_distributed_enabled": "true"' in code
    assert '"epochs": "1", "name": "\\"a b\\""' in code
    assert (
        'trainer.train(input_data_config=[InputData(channel_name="training", '
        'data_source="s3://your-bucket/training")])\n'
    ) in code


@pytest.mark.parametrize("sdk", ["v3", "v2", "boto3"])
def test_each_form_has_the_job_of_the_smoke_test(sdk: str) -> None:
    code = own_code(JobSpec(sdk=sdk, role=ROLE), launcher="mpirun")
    assert "sagemaker_mpi_enabled" in code
    assert re.search("sagemaker_mpi_num_of_processes_per_host.*2", code)
    assert "epochs" in code
    assert "s3://your-bucket/training" in code


@pytest.mark.parametrize("sdk", ["v3", "v2", "boto3"])
@pytest.mark.parametrize("job", [JobSpec(launcher="script"), JobSpec(distribution={})])
def test_each_form_can_do_without_a_launcher(job: JobSpec, sdk: str) -> None:
    code = own_code(replace(job, sdk=sdk, role=ROLE))
    assert "_enabled" not in code
    assert "distribut" not in code.replace("S3DataDistributionType", "").replace("ignores `distribution`", "")


def test_given_settings_replace_those_of_the_smoke_test() -> None:
    job = JobSpec(instance_count=4, launcher="mpirun", hyperparameters={"epochs": 9})
    code = own_code(replace(job, inputs={"training": "s3://ours/a"}, channels={"training": ()}))
    assert "instance_count=4)" in code
    assert '"epochs": "9"' in code
    assert "your-bucket" not in code
    assert "torch_distributed" not in code


@pytest.mark.parametrize(("launcher", "name"), [("", "torch_distributed"), ("mpirun", "mpi"), ("script", "")])
def test_more_hosts_than_those_of_the_smoke_test_start_a_launcher(launcher: str, name: str) -> None:
    code = own_code(JobSpec(instance_count=2), hosts=1, processes=1, launcher=launcher)

    assert re.findall("sagemaker_(.*?)_enabled", code) == ([name] if name else [])


def test_a_smoke_test_of_another_script_is_not_the_job() -> None:
    assert own_code(entry_point="check.py") == snippet(OWN)


def test_what_a_person_asks_for_comes_first() -> None:
    code = snippet(
        PYTORCH,
        JobSpec(entry_point="go.py", instance_type="ml.p4d.24xlarge", instance_count=4, launcher="mpirun"),
    )
    assert '    entry_point="go.py",\n' in code
    assert '    instance_type="ml.p4d.24xlarge",\n    instance_count=4,\n' in code
    assert '    distribution={"mpi": {"enabled": True}},\n' in code


def test_a_number_of_processes_asks_for_mpi() -> None:
    assert '{"mpi": {"enabled": True, "processes_per_host": 4}}' in snippet(
        PYTORCH, JobSpec(processes_per_host=4)
    )


def test_without_a_launcher_nothing_is_distributed() -> None:
    assert "distribution" not in snippet(replace(MPI, launchers=(), parts=PYTORCH.parts))


def test_the_plain_toolkit_starts_no_torchrun() -> None:
    assert '{"mpi": {"enabled": True}}' in snippet(replace(PYTORCH, training_module=""), V2)
    assert "Torchrun()" in snippet(replace(PYTORCH, training_module=""))


def test_an_untested_release_is_marked() -> None:
    assert snippet(replace(MPI, tested=False)).startswith(
        "# mpi-cpu, published 2026-11-20, NOT smoke-tested; for version 2 of the SageMaker SDK\n"
    )


def test_a_local_release_is_marked_as_unreachable() -> None:
    code = snippet(replace(MPI, registry="127.0.0.1:5050"))
    assert "# 127.0.0.1:5050 is a registry on this machine: SageMaker pulls from Amazon ECR.\n" in code


@pytest.mark.parametrize("record", [MPI, PYTORCH, TENSORFLOW, replace(MPI, entry_point="a.py")])
def test_a_snippet_is_python(record: ReleaseRecord) -> None:
    compile(snippet(record), "snippet.py", "exec")


def test_code_in_a_directory() -> None:
    code = snippet(PYTORCH, JobSpec(entry_point="src/train.py", instance_count=4))
    assert '# The SDK uploads the whole directory "src". ' in code
    assert '    source_code=SourceCode(source_dir="src", entry_script="train.py"),\n' in code


def test_requirements_are_installed_as_version_2_does(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    job = JobSpec(source_dir=str(tmp_path))
    source = f'SourceCode(source_dir="{tmp_path}", entry_script="train.py"'
    assert f"{source})" in snippet(PYTORCH, job)
    (tmp_path / "requirements.txt").touch()
    code = snippet(PYTORCH, job)
    assert f'{source}, requirements="requirements.txt")' in code
    assert "The SDK uploads" not in code
    archive = snippet(PYTORCH, JobSpec(source_dir="s3://code/sourcedir.tar.gz"))
    assert (
        '# If the archive contains requirements.txt, add requirements="requirements.txt" to SourceCode.\n'
    ) in archive


DRIVERS = tuple(ReleasedComponent(name, "1", "") for name in ("sshd", "mpi4py"))
GROUPS = (Group("data", "ml.c5.18xlarge", 2), Group("train", "ml.p4d.24xlarge"))


@pytest.mark.parametrize(
    ("record", "job", "driver"),
    [
        (PYTORCH, DEFAULTS, "Torchrun()"),
        (PYTORCH, JobSpec(launcher="torchrun", processes_per_host=4), "Torchrun(process_count_per_node=4)"),
        (PYTORCH, JobSpec(distribution={"torch_distributed": {"enabled": True}}), "Torchrun()"),
        (
            replace(MPI, parts=DRIVERS),
            JobSpec(instance_count=1, processes_per_host=4),
            "MPI(process_count_per_node=4)",
        ),
        (MPI, JobSpec(distribution={"MPI": {"process_count_per_node": 4}}), "MPI(process_count_per_node=4)"),
        (SMP2, DEFAULTS, "Torchrun(smp=SMP(hybrid_shard_degree=8))"),
        (TENSORFLOW, JobSpec(instance_count=1), ""),
        (replace(PYTORCH, launchers=()), JobSpec(groups=GROUPS), ""),
        (replace(MPI, entry_point="a.py"), DEFAULTS, ""),
        (replace(MPI, entry_point="a.py"), JobSpec(instance_count=8, processes_per_host=8), ""),
    ],
)
def test_version_3_is_the_default(record: ReleaseRecord, job: JobSpec, driver: str) -> None:
    code = snippet(record, job)
    assert code == snippet(record, replace(job, sdk="v3"))
    assert "trainer = ModelTrainer(\n" in code
    assert re.findall("    distributed=(.*),\n", code) == [driver] * bool(driver)


@pytest.mark.parametrize(
    ("record", "job", "reason"),
    [
        (
            MPI,
            JobSpec(instance_count=2),
            "the SDK's MPI driver starts one process for each GPU of one host in total, "
            "not on each of 2 hosts",
        ),
        (
            MPI,
            JobSpec(instance_count=1),
            "the SDK's MPI driver needs `sshd` and `mpi4py`, but no component of `mpi-cpu` provides that",
        ),
        (
            PYTORCH,
            JobSpec(groups=GROUPS, distribution={"mpi": {"enabled": True}, "instance_groups": ["train"]}),
            "`distributed.mpi` is not a driver of SDK v3",
        ),
        (
            TENSORFLOW,
            JobSpec(instance_count=2),
            "SDK v3 does not set TF_CONFIG, which MultiWorkerMirroredStrategy needs on several hosts",
        ),
        (
            TENSORFLOW,
            JobSpec(distribution={"parameter_server": {"enabled": True}}),
            "`distributed.parameter_server` is not a driver of SDK v3",
        ),
        (SMP, DEFAULTS, "SDK v3 does not support SMP 1"),
        (SMDDP, DEFAULTS, "SDK v3 has no launcher for SMDDP"),
        (XLA, DEFAULTS, "SDK v3 does not support SageMaker Training Compiler"),
        (
            PYTORCH,
            JobSpec(instance_type="local", instance_count=1),
            "ModelTrainer of SDK v3 does not support the instance type `local`",
        ),
        (
            replace(PYTORCH, entry_point="a.py"),
            JobSpec(instance_type="local", instance_count=1),
            "SDK v3 has no instance type `local`",
        ),
    ],
)
def test_version_2_starts_what_version_3_cannot(record: ReleaseRecord, job: JobSpec, reason: str) -> None:
    code, of_version_2 = snippet(record, job), snippet(record, replace(job, sdk="v2"))
    line = f"# Not for version 3: {reason}.\n"
    assert code.replace(line, "") == of_version_2 != code
    assert "# pip install 'sagemaker<3'\n" in code


def test_settings_of_version_2_are_checked_by_its_rules() -> None:
    job = JobSpec(distribution={"mpi": {"enabled": True, "processes": 4}})
    assert refused(PYTORCH, job) == refused(PYTORCH, replace(job, sdk="v2"))
    assert [diagnostic.message for diagnostic in refused(PYTORCH, job)] == [
        "`distribution.mpi.processes` is unknown"
    ]


def test_version_3_starts_no_mirrored_workers() -> None:
    assert refused(TENSORFLOW, JobSpec(sdk="v3", launcher="tensorflow", instance_count=2)) == [
        Diagnostic(
            "SDK v3 does not set TF_CONFIG, which MultiWorkerMirroredStrategy needs on several hosts",
            hint="use `--sdk v2`, `--sdk boto3` or `launcher: mpirun` in a job file",
        )
    ]


def test_version_3_has_no_local_jobs_for_code_in_the_image() -> None:
    job = JobSpec(sdk="v3", instance_type="local", instance_count=1)
    assert refused(replace(PYTORCH, entry_point="train.py"), job) == [
        Diagnostic(
            "SDK v3 has no instance type `local`", hint="use `bake run` to run the job on this machine"
        )
    ]


def test_version_3_counts_processes() -> None:
    assert "distributed=MPI(process_count_per_node=4)," in snippet(
        MPI, JobSpec(sdk="v3", processes_per_host=4)
    )


def test_version_3_lets_an_image_start_its_own_code() -> None:
    code = snippet(replace(MPI, entry_point="train.py"), JobSpec(sdk="v3", launcher="mpirun"))
    assert "distributed" not in code
    assert "source_code" not in code
    assert '"sagemaker_mpi_enabled": "true"' in code


def test_a_request_of_boto3() -> None:
    role = "arn:aws:iam::123456789012:role/x"
    assert snippet(PYTORCH, JobSpec(sdk="boto3", role=role, environment={"A": "b"}, keep_alive=600)) == (
        """\
# pytorch-cpu, published 2026-11-20, smoke-tested (gloo); for boto3
# pip install boto3
import io
import json
import tarfile
import time

import boto3

region = "eu-west-1"
account = boto3.client("sts", region).get_caller_identity()["Account"]
# The SageMaker SDK creates and uses this bucket. Any other bucket in the region works too.
bucket = f"sagemaker-{region}-{account}"
name = "pytorch-cpu" + time.strftime("-%Y%m%d-%H%M%S")
s3 = boto3.client("s3", region)
try:
    # Another account may have created a bucket of that name.
    s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=account)
except s3.exceptions.ClientError as error:
    if error.response["Error"]["Code"] != "404":
        raise
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})
key = f"{name}/source/sourcedir.tar.gz"
packed = io.BytesIO()
with tarfile.open(fileobj=packed, mode="w:gz", dereference=True) as archive:
    archive.add("train.py", arcname="train.py")
s3.put_object(Bucket=bucket, Key=key, Body=packed.getvalue(), ExpectedBucketOwner=account)
hyperparameters = {
    "sagemaker_torch_distributed_enabled": True,
    "sagemaker_instance_type": "ml.c5.2xlarge",
    "sagemaker_program": "train.py",
    "sagemaker_submit_directory": f"s3://{bucket}/{key}",
    "sagemaker_container_log_level": 20,
    "sagemaker_job_name": name,
    "sagemaker_region": region,
}
request = {
    "TrainingJobName": name,
    "RoleArn": "arn:aws:iam::123456789012:role/x",
    "AlgorithmSpecification": {"TrainingImage": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/pytorch-cpu@sha256:4f1c", "TrainingInputMode": "File"},
    "HyperParameters": {key: json.dumps(value) for key, value in hyperparameters.items()},
    "ResourceConfig": {"InstanceType": "ml.c5.2xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30, "KeepAlivePeriodInSeconds": 600},
    "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/"},
    "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
    "Environment": {"A": "b"},
}
boto3.client("sagemaker", region).create_training_job(**request)
"""  # noqa: E501
    )


def test_code_that_is_in_s3_already_is_not_sent() -> None:
    job = JobSpec(
        sdk="boto3", role="arn:aws:iam::123456789012:role/x", source_dir="s3://code/sourcedir.tar.gz"
    )
    code = snippet(PYTORCH, job)
    assert "packed" not in code
    assert '    "sagemaker_program": "train.py",\n' in code
    assert '    "sagemaker_submit_directory": "s3://code/sourcedir.tar.gz",\n' in code


def test_boto3_needs_a_role() -> None:
    assert refused(PYTORCH, JobSpec(sdk="boto3")) == [
        Diagnostic(
            "a boto3 request needs the execution role",
            hint="set `--role arn:aws:iam::123456789012:role/SageMakerRole`",
        )
    ]


def test_a_local_job_is_not_a_boto3_request() -> None:
    with pytest.raises(UsageError) as caught:
        snippet(
            PYTORCH,
            JobSpec(
                sdk="boto3", role="arn:aws:iam::123456789012:role/R", instance_type="local", instance_count=1
            ),
        )
    assert caught.value.diagnostics == (
        Diagnostic("SageMaker does not run local jobs", hint="use `bake run` to run it on this machine"),
    )


def test_groups_of_version_2() -> None:
    groups = (Group("data", "ml.c5.18xlarge", 2), Group("train", "ml.p4d.24xlarge"))
    distribution = {"mpi": {"enabled": True}, "instance_groups": ["train"]}
    code = snippet(MPI, JobSpec(groups=groups, distribution=distribution))
    assert 'groups = {\n    "data": InstanceGroup("data", "ml.c5.18xlarge", 2),\n' in code
    assert "    instance_groups=list(groups.values()),\n" in code
    assert '"instance_groups": [groups["train"]]}' in code


def test_groups_without_a_launch_group() -> None:
    job = JobSpec(groups=(Group("data", "ml.c5.18xlarge", 2), Group("train", "ml.c5.2xlarge")))
    [diagnostic] = refused(MPI, job)
    assert diagnostic == Diagnostic(
        "`distribution` does not name its instance group",
        facts=(("rule", "group-of-distribution"), ("source", "sagemaker 2.257.7: fw_utils.py, estimator.py")),
        hint='add `"instance_groups": ["data"]`, or another of "data", "train"',
    )


def test_what_is_only_warned_of_comes_with_the_code() -> None:
    job = JobSpec(sdk="v2", hyperparameters={"sagemaker_program": "a.py"})
    snippet = snippets.snippet(PYTORCH, job)
    assert [warning.rule.name for warning in snippet.warnings] == ["hyperparameter-overwritten"]


def refused(record: ReleaseRecord, job: JobSpec) -> list[Diagnostic]:
    return list(raised(UsageError, snippet, record, job).diagnostics)


def test_a_launcher_that_the_image_lacks() -> None:
    assert refused(PYTORCH, JobSpec(launcher="tensorflow")) == [
        Diagnostic("`pytorch-cpu` can't start a job with `tensorflow`", hint="use `torchrun`, `mpirun`")
    ]


def test_a_number_of_processes_is_for_mpi() -> None:
    assert refused(PYTORCH, JobSpec(sdk="v2", launcher="torchrun", processes_per_host=4)) == [
        Diagnostic(
            "`torchrun` starts one process for each GPU, or one on hosts without GPUs",
            hint="use `processes_per_host` with `mpirun` only",
        )
    ]


def test_an_address_too_long_for_sagemaker() -> None:
    [diagnostic] = refused(replace(PYTORCH, image_uri="x" * 256), JobSpec())
    assert diagnostic.message == "the image URI of `pytorch-cpu` has 256 characters, and SageMaker allows 255"
    assert diagnostic.hint == "publish it with a shorter `repository_prefix`"


def test_ledger_values_do_not_end_the_comment() -> None:
    code = snippet(replace(PYTORCH, date="2026-11-20\nimport os; os.abort()  #"))

    assert "\nimport os" not in code


@pytest.mark.parametrize("job", [JobSpec(entry_point="mine.py"), JobSpec(source_dir="src")])
def test_code_in_addition_to_the_image_s_is_an_error(job: JobSpec) -> None:
    assert raised(UsageError, snippet, replace(PYTORCH, entry_point="train.py"), job).diagnostics == (
        Diagnostic(
            "`pytorch-cpu` contains its own code, `train.py`, so no other code is sent",
            hint="remove `--entry-point` and `--source-dir`",
        ),
    )


def test_numbers_that_have_no_literal_are_written_as_python_reads_them() -> None:
    code = snippet(PYTORCH, JobSpec(hyperparameters={"limit": float("inf"), "start": float("nan")}))

    assert '{"limit": float("inf"), "start": float("nan")}' in code


FIELDS = {
    "VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
    "CheckpointConfig": {"S3Uri": "s3://data/checkpoints"},
    "EnableNetworkIsolation": True,
    "ResourceConfig": {"VolumeKmsKeyId": "key"},
    "Tags": [{"Key": "team", "Value": "ads"}],
}
FULL = JobSpec(
    role=ROLE,
    instance_type="ml.p3.16xlarge",
    instance_count=2,
    inputs={"training": "s3://data/flowers"},
    channels={"training": ()},
    max_run=7200,
    volume_gib=100,
    keep_alive=0,
    spot=True,
    output="s3://models/",
    request=tuple(flatten(FIELDS)),
)


def test_further_fields_in_version_3() -> None:
    code = snippet(PYTORCH, FULL)
    assert code[code.index("from sagemaker.core") :] == (
        """\
from sagemaker.core.training.configs import Compute, SourceCode, StoppingCondition, Networking, \
CheckpointConfig, OutputDataConfig, Tag, InputData
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import Torchrun

trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/pytorch-cpu@sha256:4f1c",
    role="arn:aws:iam::123456789012:role/SageMakerRole",
    source_code=SourceCode(source_dir=".", entry_script="train.py"),
    distributed=Torchrun(),
    compute=Compute(instance_type="ml.p3.16xlarge", instance_count=2, keep_alive_period_in_seconds=0, \
volume_size_in_gb=100, enable_managed_spot_training=True, volume_kms_key_id="key"),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=7200, max_wait_time_in_seconds=10800),
    networking=Networking(security_group_ids=["sg-1"], subnets=["subnet-1"], enable_network_isolation=True),
    checkpoint_config=CheckpointConfig(s3_uri="s3://data/checkpoints"),
    output_data_config=OutputDataConfig(s3_output_path="s3://models/"),
    tags=[Tag(key="team", value="ads")],
    base_job_name="pytorch-cpu",
)
trainer.train(input_data_config=[InputData(channel_name="training", data_source="s3://data/flowers")])
"""
    )


def test_further_fields_in_version_2() -> None:
    code = snippet(
        PYTORCH,
        replace(
            FULL,
            sdk="v2",
            channels={"training": ("train",)},
            groups=(Group("train", "ml.p3.16xlarge", 2),),
            instance_type="",
            instance_count=None,
            keep_alive=None,
        ),
    )
    assert code[code.index("estimator = ") :] == (
        """\
estimator = PyTorch(
    image_uri="123456789012.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/pytorch-cpu@sha256:4f1c",
    entry_point="train.py",
    role="arn:aws:iam::123456789012:role/SageMakerRole",
    instance_groups=list(groups.values()),
    distribution={"torch_distributed": {"enabled": True}},
    max_run=7200,
    volume_size=100,
    use_spot_instances=True,
    max_wait=10800,
    volume_kms_key="key",
    security_group_ids=["sg-1"],
    subnets=["subnet-1"],
    tags=[{"Key": "team", "Value": "ads"}],
    enable_network_isolation=True,
    checkpoint_s3_uri="s3://data/checkpoints",
    output_path="s3://models/",
    base_job_name="pytorch-cpu",
)
estimator.fit({"training": TrainingInput("s3://data/flowers", instance_groups=["train"])})
"""
    )


def test_fields_without_an_argument_need_boto3() -> None:
    job = replace(FULL, request=tuple(flatten({"InputDataConfig": [{"ChannelName": "a"}]})))
    for sdk, name in (("v2", "version 2"), ("v3", "version 3")):
        assert raised(UsageError, snippet, PYTORCH, replace(job, sdk=sdk)).diagnostics == (
            Diagnostic(
                f"{name} of the SageMaker SDK has no argument for `InputDataConfig`",
                hint="use `--sdk boto3`, or `bake launch`",
            ),
        )
    code = snippet(PYTORCH, job)
    assert (
        "# Not for version 3: version 3 of the SageMaker SDK has no argument for `InputDataConfig`." in code
    )
    assert "create_training_job(**request)" in code
    assert '"OutputDataConfig": {"S3OutputPath": "s3://models/"},' in code


CHANNELS = [
    {
        "ChannelName": "training",
        "InputMode": "FastFile",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://ours/a"}},
    },
    {
        "ChannelName": "fsx",
        "DataSource": {
            "FileSystemDataSource": {
                "FileSystemId": "fs-0123456789abcdef0",
                "FileSystemType": "FSxLustre",
                "DirectoryPath": "/x/y",
                "FileSystemAccessMode": "ro",
            }
        },
    },
]


def with_channels(*channels: object) -> JobSpec:
    return JobSpec(request=(ApiField("InputDataConfig", "InputDataConfig", list(channels)),))


def test_channels_of_a_request_in_version_3() -> None:
    code = snippet(PYTORCH, with_channels(*CHANNELS))
    assert "import Compute, SourceCode, StoppingCondition, Channel, DataSource, S3DataSource, " in code
    assert (
        'Channel(channel_name="training", input_mode="FastFile", data_source=DataSource(s3_data_source='
        'S3DataSource(s3_data_type="S3Prefix", s3_uri="s3://ours/a")))'
    ) in code
    assert "file_system_data_source=FileSystemDataSource(file_system_id=" in code


def test_channels_of_a_request_in_version_2() -> None:
    code = snippet(PYTORCH, replace(with_channels(*CHANNELS), sdk="v2"))
    assert (
        "from sagemaker.inputs import TrainingInput\nfrom sagemaker.inputs import FileSystemInput\n" in code
    )
    training = 'TrainingInput(s3_data_type="S3Prefix", s3_data="s3://ours/a", input_mode="FastFile")'
    assert f'estimator.fit({{"training": {training}, "fsx": FileSystemInput(' in code


def test_a_channel_that_an_sdk_cannot_express() -> None:
    source = {"DatasetSource": {"DatasetArn": "arn"}}
    job = with_channels({"ChannelName": "a", "DataSource": source})
    for sdk, version in (("v3", 3), ("v2", 2)):
        [error] = refused(PYTORCH, replace(job, sdk=sdk))
        assert error.message == (
            f"version {version} of the SageMaker SDK has no argument for `InputDataConfig`"
        )


def test_a_preview_is_marked() -> None:
    image = replace(launch_image(OWN), uri="")
    code = snippets.preview(
        image, JobSpec(), Catalog({}), "000000000000.dkr.ecr.x.amazonaws.com/b/churn"
    ).code
    assert code.startswith("# churn, NOT RELEASED: its URI is a placeholder; for version 3 of")
    assert '    training_image="000000000000.dkr.ecr.x.amazonaws.com/b/churn:NOT-RELEASED",\n' in code
