"""Effects of the values of variables on a job."""

from dataclasses import replace

import pytest

from bakehouse.jobs import rules
from bakehouse.jobs.image_checks import check_variables
from bakehouse.jobs.instance_groups import InstanceGroup
from bakehouse.jobs.job_variables import UNKNOWN, job_variables
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.training_request import TrainingRequest
from tests.support.launch_cases import PYTORCH

P5EN = InstanceGroup("ml.p5en.48xlarge", 2, gpus=8, rdma_read=True, efa_interfaces=16, gpu_architecture="9.0")
P5 = replace(P5EN, instance_type="ml.p5.48xlarge")
TORCHRUN = {"torch_distributed": {"enabled": True}}


def found(
    *settings: str, group: InstanceGroup = P5EN, is_sagemaker: bool = True
) -> list[tuple[rules.Rule, str]]:
    environment = dict(setting.split("=", 1) for setting in settings)
    request = TrainingRequest(groups=(group,), distribution=TORCHRUN, environment=environment)
    request = replace(request, entry_point="train.py")
    findings = Findings()
    check_variables(request, PYTORCH, findings, is_sagemaker=is_sagemaker)
    return [(finding.rule, finding.message) for finding in (*findings.errors, *findings.warnings)]


@pytest.mark.parametrize(
    ("setting", "effect"),
    [
        ("FI_PROVIDER=tcp", "libfabric does not use EFA"),
        ("FI_PROVIDER=tcp,sockets", "libfabric does not use EFA"),
        ("FI_PROVIDER=^efa", "libfabric does not use EFA"),
        ("NCCL_NET=Socket", "NCCL uses TCP instead of EFA"),
        ("NCCL_NET=socket", "NCCL uses TCP instead of EFA"),
        ("NCCL_NET=IB", "NCCL uses InfiniBand verbs instead of its plugin for EFA"),
        ("NCCL_NET_PLUGIN=none", "NCCL uses its internal networks instead of its plugin for EFA"),
        ("FI_EFA_USE_DEVICE_RDMA=0", "EFA does not read the memory of other hosts directly"),
        ("CUDA_VISIBLE_DEVICES=", "the script sees no GPU"),
        ("CUDA_VISIBLE_DEVICES=-1", "the script sees no GPU"),
    ],
)
def test_a_value_that_changes_what_the_job_uses(setting: str, effect: str) -> None:
    expected = [(rules.VARIABLE, f"with `{setting}` on `ml.p5en.48xlarge`, {effect}")]
    assert found(setting) == expected
    assert found(setting, is_sagemaker=False) == expected


@pytest.mark.parametrize(
    "setting",
    [
        *("FI_PROVIDER=efa", "FI_PROVIDER=efa,tcp", "FI_PROVIDER=shm,efa", "FI_PROVIDER=^tcp"),
        *("NCCL_NET=AWS Libfabric", "NCCL_NET_PLUGIN=ofi", "NCCL_NET_PLUGIN=libnccl-net.so"),
        *("NCCL_IB_DISABLE=0", "CUDA_VISIBLE_DEVICES=0,1", "SAGEMAKER_SUBMIT_DIRECTORY=/opt/ml/code"),
        *("SAGEMAKER_PROGRAM=train.py", "NCCL_DEBUG=INFO", "MY_OWN=none"),
    ],
)
def test_a_value_without_an_effect(setting: str) -> None:
    assert found(setting) == []


@pytest.mark.parametrize(
    "setting", ["NCCL_NET=gIB", "NCCL_NET_PLUGIN=foo", "NCCL_PROTO=LL128", "NCCL_IB_DISABLE=1"]
)
def test_an_effect_that_no_source_states_is_not_known(setting: str) -> None:
    message = f"it is not known what `{setting}` on `ml.p5en.48xlarge` does to the job"
    assert found(setting) == [(rules.VARIABLE_UNKNOWN, message)]
    assert not rules.VARIABLE_UNKNOWN.is_known


def test_a_variable_that_replaces_the_image_s() -> None:
    assert found("SAGEMAKER_SUBMIT_DIRECTORY=/tmp", "LD_LIBRARY_PATH=/lib", "SAGEMAKER_PROGRAM=a.py") == [
        (rules.VARIABLE_UNKNOWN, "it is not known what `SAGEMAKER_SUBMIT_DIRECTORY=/tmp` does to the job"),
        (rules.VARIABLE_UNKNOWN, "it is not known what `LD_LIBRARY_PATH=/lib` does to the job"),
        (
            rules.VARIABLE,
            "with `SAGEMAKER_PROGRAM=a.py`, the toolkit starts it instead of the job's entry point",
        ),
    ]


def test_the_launcher_sets_a_variable_itself() -> None:
    """The toolkit 5.1.4 overwrites it on its list of types (torch_distributed.py), which lacks P5en."""
    message = "`FI_PROVIDER=tcp` has no effect: the launcher sets `FI_PROVIDER` itself on `ml.p5.48xlarge`"
    assert found("FI_PROVIDER=tcp", group=P5) == [(rules.VARIABLE_UNUSED, message)]
    assert [rule for rule, _ in found("FI_PROVIDER=tcp", group=P5, is_sagemaker=False)] == [rules.VARIABLE]
    assert [rule for rule, _ in found("NCCL_NET=Socket", group=P5)] == [rules.VARIABLE]


def test_without_efa_between_hosts_its_variables_change_nothing() -> None:
    for group in (replace(P5EN, count=1), replace(P5EN, efa_interfaces=0), replace(P5EN, gpus=0)):
        assert found("FI_PROVIDER=tcp", "NCCL_NET=Socket", group=group) == []


def test_each_value_that_jobs_over_efa_get_is_fine() -> None:
    needed = {variable.name: variable.efa.value for variable in job_variables().values() if variable.efa}
    assert needed["FI_PROVIDER"] == "efa"
    for name, value in needed.items():
        assert job_variables()[name].effect(value) == "", name
    assert job_variables()["NCCL_NET"].effect("?") == UNKNOWN
