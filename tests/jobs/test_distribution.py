"""Hyperparameters and errors of `distribution`. Integration tests compare them with the SDKs."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from bakehouse.errors import UsageError
from bakehouse.jobs.distribution import LaunchContext, LaunchSettings, distribution_findings, launch_settings
from bakehouse.jobs.instance_groups import InstanceGroup
from tests.support.errors import error_text, raised

CPU = (InstanceGroup("ml.c5.xlarge", 2, gpus=0),)
A100 = (InstanceGroup("ml.p4d.24xlarge", 2, gpus=8),)
GROUPS = (
    InstanceGroup("ml.c5.18xlarge", 2, "data", gpus=0),
    InstanceGroup("ml.p4d.24xlarge", 1, "dnn", gpus=8),
)
ON: Mapping[str, object] = {"enabled": True}
OFF: Mapping[str, object] = {"enabled": False}


def job(
    groups: tuple[InstanceGroup, ...] = CPU,
    framework: str = "pytorch",
    version: str = "2.9.1",
    entry_point: str = "train.py",
    smp: str = "",
) -> LaunchContext:
    return LaunchContext(groups, framework, version, entry_point, smp)


def settings(distribution: Mapping[str, object], training: LaunchContext | None = None) -> LaunchSettings:
    return launch_settings(distribution, training or job())


def mistakes(distribution: Mapping[str, Any], training: LaunchContext | None = None) -> str:
    return error_text(raised(UsageError, launch_settings, distribution, training or job())).strip()


def test_nothing_is_sent_without_a_distribution() -> None:
    assert settings({}) == LaunchSettings()
    assert settings({}, job(GROUPS)) == LaunchSettings()


def test_mpi() -> None:
    options = "-x NCCL_DEBUG=INFO"
    launch = settings({"mpi": {"enabled": True, "processes_per_host": 2, "custom_mpi_options": options}})

    assert launch.launcher == "mpi"
    assert launch.hyperparameters == {
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": 2,
        "sagemaker_mpi_custom_mpi_options": options,
    }


def test_mpi_on_one_of_two_groups() -> None:
    launch = settings({"mpi": ON, "instance_groups": ["dnn"]}, job(GROUPS))

    assert launch.groups == ("dnn",)
    assert launch.hyperparameters["sagemaker_distribution_instance_groups"] == ["dnn"]


def test_the_only_group_need_not_be_named() -> None:
    assert settings({"mpi": ON}, job(GROUPS[1:])).groups == ("dnn",)


def test_torchrun() -> None:
    assert settings({"torch_distributed": ON}).hyperparameters == {
        "sagemaker_torch_distributed_enabled": True,
        "sagemaker_instance_type": "ml.c5.xlarge",
    }


def test_torchrun_in_a_group_starts_in_all() -> None:
    """The SDK drops the group silently, so Bakehouse reports it."""
    launch = settings({"torch_distributed": ON, "instance_groups": ["dnn"]}, job(GROUPS))

    assert launch.groups == ()
    assert launch.hyperparameters == {"sagemaker_torch_distributed_enabled": True}
    assert launch.warnings == (
        "SDK v2 ignores `instance_groups` with `torch_distributed`, so torchrun starts separately in "
        "each group; to start it in `dnn` only, add the hyperparameter "
        "`sagemaker_distribution_instance_groups`",
    )


def test_pytorchddp_is_smddp() -> None:
    smddp = {"smdistributed": {"dataparallel": ON}}

    assert settings({"pytorchddp": ON}, job(A100)).hyperparameters == (
        settings(smddp, job(A100)).hyperparameters
    )
    assert settings({"pytorchddp": ON}, job(A100)).launcher == "pytorchddp"
    with pytest.raises(UsageError, match="does not support `ml"):
        settings({"pytorchddp": ON})


def smp(parameters: Mapping[str, object] | None, **mpi: object) -> Mapping[str, Any]:
    """Return a distribution for SMP 1."""
    library = {"enabled": True} if parameters is None else {"enabled": True, "parameters": parameters}
    return {
        "smdistributed": {"modelparallel": library},
        "mpi": {"enabled": True, "processes_per_host": 8, **mpi},
    }


def smp_2(parameters: Mapping[str, object]) -> Mapping[str, Any]:
    library = {"enabled": True, "parameters": parameters}
    return {"smdistributed": {"modelparallel": library}, "torch_distributed": ON}


def test_model_parallel() -> None:
    parameters = {"partitions": 2, "default_partition": 0, "auto_partition": False}
    launch = settings(smp(parameters), job(A100))

    assert launch.launcher == "mpi"
    assert launch.hyperparameters["mp_parameters"] == parameters
    assert launch.hyperparameters["sagemaker_distributed_dataparallel_enabled"] is False


@pytest.mark.parametrize("name", ["parameter_server", "multi_worker_mirrored_strategy"])
def test_strategies_of_tensorflow(name: str) -> None:
    launch = settings({name: ON}, job(framework="tensorflow", version="2.21.0"))

    assert launch.hyperparameters == {f"sagemaker_{name}_enabled": True}


def test_one_host_starts_no_parameter_server() -> None:
    groups = (InstanceGroup("ml.p3.8xlarge", 1, gpus=4),)

    assert settings({"parameter_server": ON}, job(groups, "tensorflow", "2.21.0")).warnings == (
        "the toolkit does not start a parameter server on one host",
        "a parameter server's worker uses only one GPU of each instance",
    )


def test_an_image_without_a_framework_is_started_as_pytorch() -> None:
    assert settings({"mpi": ON}, job(framework="", version="")).launcher == "mpi"
    assert "is only for TensorFlow" in mistakes({"parameter_server": ON}, job(framework="", version=""))


@pytest.mark.parametrize(
    "distribution",
    [{"mpi": {"enabled": True, "processes_per_host": 4}}, {"smdistributed": {"dataparallel": ON}}],
)
def test_what_is_sent_is_json(distribution: Mapping[str, object]) -> None:
    sent = settings(distribution, job(A100)).hyperparameters

    assert json.loads(json.dumps(sent)) == sent


MISTAKES: dict[str, tuple[Mapping[str, Any], LaunchContext, str]] = {
    "unknown launcher": (
        {"torchrun": ON},
        job(),
        """\
error: `distribution.torchrun` is not a launcher of SageMaker

hint: use `torch_distributed`, which starts torchrun""",
    ),
    "misspelt launcher": (
        {"torch_distribute": ON},
        job(),
        """\
error: `distribution.torch_distribute` is not a launcher of SageMaker

hint: did you mean `torch_distributed`?""",
    ),
    "a driver of version 3": (
        {"Torchrun": {}},
        job(),
        """\
error: `distribution.Torchrun` is not a launcher of SageMaker

hint: use it with ModelTrainer of SDK v3; an estimator has `torch_distributed`""",
    ),
    "unknown key": (
        {"mpi": {"enabled": True, "process_per_host": 2}},
        job(),
        """\
error: `distribution.mpi.process_per_host` is unknown

hint: did you mean `processes_per_host`?""",
    ),
    "no mapping": (
        {"mpi": True},
        job(),
        """\
error: `distribution.mpi` must be a mapping

hint: write `{"mpi": {"enabled": true}}`""",
    ),
    "not enabled": (
        {"mpi": {"processes_per_host": 2}},
        job(),
        """\
error: `distribution.mpi` has no `enabled`

hint: add `"enabled": true`; SageMaker treats a missing value as `false`""",
    ),
    "enabled in words": (
        {"mpi": {"enabled": "true"}},
        job(),
        "error: `distribution.mpi.enabled` must be `true` or `false`",
    ),
    "processes in words": (
        {"mpi": {"enabled": True, "processes_per_host": "2"}},
        job(),
        "error: `distribution.mpi.processes_per_host` must be a whole number of at least 1",
    ),
    "more processes than GPUs": (
        {"mpi": {"enabled": True, "processes_per_host": 9}},
        job(A100),
        """\
error: `distribution.mpi.processes_per_host` is 9, but `ml.p4d.24xlarge` has 8 GPUs

hint: use at most 8""",
    ),
    "options as a list": (
        {"mpi": {"enabled": True, "custom_mpi_options": ["-x", "A=1"]}},
        job(),
        """\
error: `distribution.mpi.custom_mpi_options` must be one string

hint: for example `"-x NCCL_DEBUG=INFO"`""",
    ),
    "an open quote": (
        {"mpi": {"enabled": True, "custom_mpi_options": "-x A='1"}},
        job(),
        """\
error: `distribution.mpi.custom_mpi_options` can't be split into words: no closing quotation

hint: close the quote""",
    ),
    "what is always set": (
        {"mpi": {"enabled": True, "custom_mpi_options": "--mca btl_vader_single_copy_mechanism none"}},
        job(),
        """\
error: `distribution.mpi.custom_mpi_options` sets `btl_vader_single_copy_mechanism`, \
which the toolkit always sets to `none`

hint: remove `--mca btl_vader_single_copy_mechanism` and its value""",
    ),
    "what is always set to something else": (
        {"mpi": {"enabled": True, "custom_mpi_options": "-mca pml cm --mca btl_tcp_if_include eth1"}},
        job(),
        """\
error: `distribution.mpi.custom_mpi_options` sets `pml`, which the toolkit always sets to `ob1`

hint: remove `--mca pml` and its value

error: `distribution.mpi.custom_mpi_options` sets `btl_tcp_if_include`, which the toolkit always sets to \
the network interface of the host

hint: remove `--mca btl_tcp_if_include` and its value""",
    ),
    "an MCA parameter twice": (
        {"mpi": {"enabled": True, "custom_mpi_options": "--mca coll ^hcoll -x A=1 -mca coll ^hcoll"}},
        job(),
        """\
error: `distribution.mpi.custom_mpi_options` sets the MCA parameter `coll` 2 times

hint: keep one of them""",
    ),
    "ranks and hosts": (
        {"mpi": {"enabled": True, "custom_mpi_options": "-np 4 --host algo-1:2"}},
        job(),
        """\
error: `distribution.mpi.custom_mpi_options` sets `-np`, which the toolkit always sets

hint: remove `-np` and its value; the ranks of each host are a setting of the launcher

error: `distribution.mpi.custom_mpi_options` sets `--host`, which the toolkit always sets

hint: remove `--host` and its value""",
    ),
    "what is always set with SMDDP": (
        {"smdistributed": {"dataparallel": {**ON, "custom_mpi_options": "--mca plm_rsh_num_concurrent 4"}}},
        job(A100),
        """\
error: `distribution.smdistributed.dataparallel.custom_mpi_options` sets `plm_rsh_num_concurrent`, \
which the toolkit always sets to the number of hosts

hint: remove `--mca plm_rsh_num_concurrent` and its value""",
    ),
    "SMDDP on a type that it rejects": (
        {"smdistributed": {"dataparallel": ON}},
        job((InstanceGroup("ml.g4dn.12xlarge", 2, gpus=4),)),
        """\
error: `distribution.smdistributed.dataparallel` does not support `ml.g4dn.12xlarge`

hint: use one of `ml.p3dn.24xlarge`, `ml.p4d.24xlarge`, `ml.p4de.24xlarge`""",
    ),
    "SMDDP on a small P3": (
        {"smdistributed": {"dataparallel": ON}},
        job((InstanceGroup("ml.p3.8xlarge", 2, gpus=4),)),
        """\
error: `distribution.smdistributed.dataparallel` does not support `ml.p3.8xlarge`

hint: use one of `ml.p3dn.24xlarge`, `ml.p4d.24xlarge`, `ml.p4de.24xlarge`""",
    ),
    "SMP without anything": (
        {"smdistributed": {"modelparallel": ON}, "mpi": ON},
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel` has no `parameters`

hint: add `"parameters": {"pipeline_parallel_degree": 2}`

error: `distribution.mpi` has no `processes_per_host`

hint: add `"processes_per_host": 8`, the number of GPUs of each instance""",
    ),
    "SMP without a degree": (
        smp({"microbatches": 4}),
        job(A100, smp="1.5.0"),
        """\
error: `distribution.smdistributed.modelparallel.parameters` has no `partitions`

hint: add `"partitions": 2`, or how many parts the model is split into""",
    ),
    "degrees that are not numbers": (
        smp({"pipeline_parallel_degree": 0, "tensor_parallel_degree": "2"}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree` must be a whole \
number of at least 1

error: `distribution.smdistributed.modelparallel.parameters.tensor_parallel_degree` must be a whole number \
of at least 1""",
    ),
    "a degree above the ranks": (
        smp({"pipeline_parallel_degree": 32}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree` is 32, but the job \
has 16 ranks

hint: use at most 16""",
    ),
    "a degree for very many ranks": (
        smp({"pipeline_parallel_degree": 3}),
        job((InstanceGroup("ml.p4d.24xlarge", 1_000_000_000, gpus=8),)),
        """\
error: `distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree` is 3, which does not \
divide the job's 8000000000 ranks

hint: use a divisor, such as 2""",
    ),
    "a degree that does not divide the ranks": (
        smp({"pipeline_parallel_degree": 3}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree` is 3, which does not \
divide the job's 16 ranks

hint: use a divisor, such as 2""",
    ),
    "a product that does not divide the ranks": (
        smp({"pipeline_parallel_degree": 4, "tensor_parallel_degree": 8, "ddp": True}),
        job(A100),
        """\
error: `pipeline_parallel_degree` times `tensor_parallel_degree` is 32, which does not divide 16 ranks

hint: reduce one of them""",
    ),
    "shards that do not divide the replicas": (
        smp({"pipeline_parallel_degree": 2, "sharded_data_parallel_degree": 3, "ddp": True}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.sharded_data_parallel_degree` is 3, which does \
not divide the job's 8 replicas

hint: use a divisor, such as 2""",
    ),
    "tensor parallelism without ddp": (
        smp({"pipeline_parallel_degree": 1, "tensor_parallel_degree": 4}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.tensor_parallel_degree` needs `ddp`

hint: add `"ddp": true`""",
    ),
    "a misspelt parameter of SMP": (
        smp({"pipeline_parallel_degre": 2, "partitions": 2}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degre` is unknown

hint: did you mean `pipeline_parallel_degree`?""",
    ),
    "the new name before SMP 1.6": (
        smp({"pipeline_parallel_degree": 2}),
        job(A100, smp="1.5.0"),
        """\
error: `distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree` needs SMP 1.6.0, but \
the image has 1.5.0

hint: use `partitions`, the name in older releases""",
    ),
    "a parameter that came later": (
        smp({"pipeline_parallel_degree": 2, "fp16": True}),
        job(A100, smp="1.9.0"),
        """\
error: `distribution.smdistributed.modelparallel.parameters.fp16` needs SMP 1.10.0, but the image has 1.9.0

hint: remove it""",
    ),
    "a parameter of the other framework": (
        smp({"pipeline_parallel_degree": 2}),
        job(A100, "tensorflow", "2.6.0"),
        """\
error: `distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree` is only for PyTorch

hint: use `partitions`""",
    ),
    "pipelines with SMP 2": (
        smp_2({"pipeline_parallel_degree": 2, "microbatches": 4}),
        job(A100, smp="2.8.0"),
        """\
error: `distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree` is a parameter of SMP \
1, but the image has 2.8.0

hint: remove it: SMP 2 has no pipeline parallelism

error: `distribution.smdistributed.modelparallel.parameters.microbatches` is a parameter of SMP 1, but the \
image has 2.8.0

hint: remove it""",
    ),
    "a parameter of SMP 2": (
        smp({"pipeline_parallel_degree": 2, "hybrid_shard_degree": 8}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.hybrid_shard_degree` is a parameter of SMP 2, \
but the job uses SMP 1

hint: remove it""",
    ),
    "degrees of SMP 2": (
        smp_2({"hybrid_shard_degree": 2, "context_parallel_degree": 4, "expert_parallel_degree": 32}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.expert_parallel_degree` is 32, but the job has \
16 ranks

hint: use at most 16

error: `distribution.smdistributed.modelparallel.parameters.context_parallel_degree` is 4, but \
`hybrid_shard_degree` is 2

hint: use at most 2""",
    ),
    "a degree of SMP 2 that does not divide the ranks": (
        smp_2({"hybrid_shard_degree": 6, "tensor_parallel_degree": 3}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.tensor_parallel_degree` is 3, which does not \
divide the job's 16 ranks

hint: use a divisor, such as 2""",
    ),
    "the SDK's default partition": (
        smp({"pipeline_parallel_degree": 2, "auto_partition": False, "default_partition": 0}),
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.default_partition` must be a number less than \
`partitions`

hint: add `partitions` with the value of `pipeline_parallel_degree`: the SDK reads only that""",
    ),
    "RDMA where there is none": (
        {"mpi": {"enabled": True, "custom_mpi_options": "-x FI_PROVIDER=efa -x FI_EFA_USE_DEVICE_RDMA=1"}},
        job((InstanceGroup("ml.p3dn.24xlarge", 2, gpus=8, rdma_read=False),)),
        """\
error: `distribution.mpi.custom_mpi_options` sets `FI_EFA_USE_DEVICE_RDMA`, but EFA on `ml.p3dn.24xlarge` \
cannot read the memory of other hosts

hint: remove it for this type""",
    ),
    "two launchers": (
        {"mpi": ON, "torch_distributed": ON},
        job(),
        """\
error: `distribution.mpi` starts the processes, so the toolkit ignores `torch_distributed`

hint: enable only one of them""",
    ),
    "both libraries": (
        {"smdistributed": {"dataparallel": ON, "modelparallel": ON}, "mpi": ON},
        job(A100),
        """\
error: `distribution.smdistributed` must have exactly one of `dataparallel`, `modelparallel`

hint: a job uses one of the libraries""",
    ),
    "a library without a launcher": (
        {"smdistributed": {"modelparallel": ON}},
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel` needs a launcher

hint: add `"mpi": {"enabled": true}` for SMP 1, `"torch_distributed": {"enabled": true}` for SMP 2""",
    ),
    "a library twice": (
        {"pytorchddp": ON, "smdistributed": {"dataparallel": ON}},
        job(A100),
        """\
error: `distribution.pytorchddp` can't be used with `smdistributed`

hint: remove one of them: `pytorchddp` is another name of `smdistributed.dataparallel`""",
    ),
    "parameters in a file": (
        {"smdistributed": {"modelparallel": {"enabled": True, "parameters": "smp.json"}}, "mpi": ON},
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters` must be a mapping

hint: insert the file's content""",
    ),
    "parameters that can't be": (
        {
            "smdistributed": {
                "modelparallel": {
                    "enabled": True,
                    "parameters": {"partitions": 0, "pipeline": "fast", "ddp_port": 1, "memory_weight": 2},
                }
            },
            "mpi": ON,
        },
        job(A100),
        """\
error: `distribution.smdistributed.modelparallel.parameters.partitions` must be a whole number of at least 1

error: `distribution.smdistributed.modelparallel.parameters.pipeline` must be one of `simple`, \
`interleaved`, `_only_forward`

error: `distribution.smdistributed.modelparallel.parameters.memory_weight` must be between 0 and 1

error: `distribution.smdistributed.modelparallel.parameters.ddp_port` needs `ddp`

hint: add `"ddp": true`""",
    ),
    "the other framework's": (
        {"multi_worker_mirrored_strategy": ON},
        job(),
        """\
error: `distribution.multi_worker_mirrored_strategy` is only for TensorFlow

hint: remove it, because the job uses another framework""",
    ),
    "too old for mirrored workers": (
        {"multi_worker_mirrored_strategy": ON},
        job(framework="tensorflow", version="2.8.4"),
        "error: `distribution.multi_worker_mirrored_strategy` needs TensorFlow 2.9, but the image has 2.8.4",
    ),
    "too old for groups": (
        {"mpi": ON, "instance_groups": ["dnn"]},
        job(GROUPS, version="1.9.1"),
        """\
error: instance groups need pytorch 1.10 or newer, but the image has 1.9.1""",
    ),
    "too old for groups, without a launcher": (
        {},
        job(GROUPS, "tensorflow", version="2.5.1"),
        """\
error: instance groups need tensorflow 2.6 or newer, but the image has 2.5.1""",
    ),
    "a shell script under torchrun": (
        {"torch_distributed": ON},
        job(entry_point="train.sh"),
        "error: `distribution.torch_distributed` starts only Python programs, not `train.sh`",
    ),
    "no such group": (
        {"mpi": ON, "instance_groups": ["dnnn"]},
        job(GROUPS),
        """\
error: `distribution.instance_groups` contains `dnnn`, which is not a group of this job

hint: did you mean `dnn`?""",
    ),
    "a group where there are none": (
        {"mpi": ON, "instance_groups": ["dnn"]},
        job(),
        """\
error: `distribution.instance_groups` contains `dnn`, which is not a group of this job

hint: remove `instance_groups`: the job has no instance groups""",
    ),
    "two groups": (
        {"mpi": ON, "instance_groups": ["data", "dnn"]},
        job(GROUPS),
        """\
error: `distribution.instance_groups` contains 2 groups

hint: keep one, because SageMaker starts a launcher in one group only""",
    ),
    "no group said": (
        {"mpi": ON},
        job(GROUPS),
        """\
error: `distribution` does not name its instance group

hint: add `"instance_groups": ["data"]`, or another of "data", "dnn\"""",
    ),
    "a group as a text": (
        {"mpi": ON, "instance_groups": "dnn"},
        job(GROUPS),
        """\
error: `distribution.instance_groups` must be a list of group names

hint: for example `["data", "dnn"]`""",
    ),
    "a group, and nothing enabled": (
        {"mpi": OFF, "instance_groups": ["dnn"]},
        job(GROUPS),
        """\
error: `distribution.instance_groups` is set, but no launcher is enabled

hint: remove the groups, or use `mpi`""",
    ),
    "a group for a parameter server": (
        {"parameter_server": ON},
        job(GROUPS[1:], "tensorflow", "2.21.0"),
        """\
error: `distribution.instance_groups` can't be used with `parameter_server`: SDK v2 supports it only with \
`mpi` and SMDDP

hint: remove the groups, or use `mpi`""",
    ),
    "Trainium": (
        {"mpi": ON},
        job((InstanceGroup("ml.trn1.32xlarge"),)),
        "error: `distribution` must contain only `torch_distributed` on `ml.trn1.32xlarge`",
    ),
    "SMDDP on P5": (
        {"smdistributed": {"dataparallel": ON}},
        job((InstanceGroup("ml.p5.48xlarge", gpus=8),)),
        """\
error: `distribution` needs `torch_distributed` on `ml.p5.48xlarge`

hint: add `"torch_distributed": {"enabled": true}`""",
    ),
    "groups of one name": (
        {},
        job((InstanceGroup("ml.c5.xlarge", 1, "a"), InstanceGroup("ml.c5.xlarge", 1, "a"))),
        """\
error: two instance groups are named `a`

hint: give each group its own name""",
    ),
    "too many groups": (
        {},
        job(tuple(InstanceGroup("ml.c5.xlarge", 1, name) for name in "abcdef")),
        """\
error: the job has 6 instance groups

hint: use at most 5""",
    ),
    "several at once": (
        {"mpi": {"enabled": 1, "hosts": 2}, "torch": ON},
        job(),
        """\
error: `distribution.mpi.enabled` must be `true` or `false`

error: `distribution.mpi.hosts` is unknown

hint: use one of `custom_mpi_options`, `enabled`, `processes_per_host`

error: `distribution.torch` is not a launcher of SageMaker

hint: use one of `instance_groups`, `mpi`, `multi_worker_mirrored_strategy`, `parameter_server`, \
`pytorchddp`, `smdistributed`, `torch_distributed`""",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_its_answer(name: str) -> None:
    distribution, training, messages = MISTAKES[name]

    assert mistakes(distribution, training) == messages


def test_torchrun_on_trainium_in_its_only_group() -> None:
    """Seen with the SDK: it refuses a group that is named, and takes one that is not."""
    trainium = (InstanceGroup("ml.trn1.32xlarge", 2, "train"),)

    assert settings({"torch_distributed": ON}, job(trainium)).launcher == "torch_distributed"
    refusal = mistakes({"torch_distributed": ON, "instance_groups": ["train"]}, job(trainium))
    assert "error: `distribution` must contain only `torch_distributed` on `ml.trn1.32xlarge`" in refusal


@pytest.mark.parametrize(
    ("parameters", "messages"),
    [
        ({"partition_file": 3}, "error: `{}.partition_file` must be a string"),
        ({"ddp": True, "ddp_port": -1}, "error: `{}.ddp_port` must be a whole number of at least 0"),
    ],
)
def test_model_parallel_hyperparameters(parameters: Mapping[str, Any], messages: str) -> None:
    smp = {"modelparallel": {"enabled": True, "parameters": parameters}}
    path = "distribution.smdistributed.modelparallel.parameters"

    assert mistakes({"smdistributed": smp, "mpi": ON}, job(A100)) == messages.format(path)


@pytest.mark.parametrize(
    ("version", "hosts", "environment", "is_warned"),
    [
        ("2.21.0", 2, {}, True),
        ("2.16.1", 2, {"TF_USE_LEGACY_KERAS": "0"}, True),
        ("2.16.1", 2, {"TF_USE_LEGACY_KERAS": "1"}, False),
        ("2.16.1", 2, {"TF_USE_LEGACY_KERAS": "True"}, False),
        ("2.16.1", 2, {"TF_USE_LEGACY_KERAS": "yes"}, True),
        ("2.15.1", 2, {}, False),
        ("2.21.0", 1, {}, False),
        ("", 2, {}, False),
    ],
)
def test_keras_3_does_not_fit_on_several_hosts(
    version: str, hosts: int, environment: dict[str, str], is_warned: bool
) -> None:
    group = InstanceGroup("ml.c5.xlarge", hosts, gpus=0)
    context = LaunchContext((group,), "tensorflow", version, "train.py", environment=environment)
    findings = distribution_findings({"multi_worker_mirrored_strategy": ON}, context).warnings

    assert [(finding.message, finding.hint) for finding in findings] == (
        [
            (
                "`fit` of Keras 3 fails on several hosts with `multi_worker_mirrored_strategy`, in "
                "TensorFlow 2.16 and newer",
                f"set `TF_USE_LEGACY_KERAS=1` in the job's environment, with `tf_keras=={version[:4]}.*` "
                "in the image, or train in a loop of your own",
            )
        ]
        if is_warned
        else []
    )
