"""Jobs that failed on SageMaker: their causes, with texts that programs wrote, and their repetition."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.cluster.job_report import JobReport, Status
from bakehouse.cluster.nccl_log import Transports
from bakehouse.sagemaker.failed_job import Verdict, differences, log_text, read_failure, verdict

LOGS = {
    # github.com/aws/amazon-sagemaker-examples/issues/3046
    "memory": (
        "RuntimeError: CUDA out of memory. Tried to allocate 288.00 MiB (GPU 0; 15.78 GiB total capacity; "
        "14.45 GiB already allocated; 282.75 MiB free; 14.47 GiB reserved in total by PyTorch)",
        "a GPU of the host ran out of memory",
    ),
    # github.com/mindverse/Second-Me/issues/209
    "memory of newer releases": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 28.00 MiB. GPU 1 has a total capacity",
        "a GPU of the host ran out of memory",
    ),
    # github.com/XPixelGroup/BasicSR/issues/737
    "NCCL": (
        "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, NumelOut=9801523, "
        "Timeout(ms)=600000) ran for 600020 milliseconds before timing out.",
        "NCCL timed out in ALLREDUCE: a rank did not take part",
    ),
    # github.com/open-mpi/ompi/issues/11830
    "ORTE": (
        "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[32679,0],0] on node algo-1",
        "mpirun lost its connection to a host",
    ),
    # github.com/kubeflow/mpi-operator/issues/152
    "ORTE at the start": (
        "ORTE was unable to reliably start one or more daemons.\nThis usually is caused by:",
        "mpirun could not start its daemon on a host",
    ),
    "module": (
        'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 1, in <module>\n'
        "ModuleNotFoundError: No module named 'peft'",
        "ModuleNotFoundError: No module named 'peft'",
    ),
    "disk": (
        "OSError: [Errno 28] No space left on device: '/opt/ml/checkpoints/step-1'",
        "no space is left for /opt/ml/checkpoints/step-1",
    ),
    # github.com/aws/amazon-sagemaker-examples/issues/1931
    "denied": (
        "botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation: "
        "Forbidden",
        "AWS denied HeadObject",
    ),
    # github.com/aws/sagemaker-python-sdk/issues/835
    "code archive": (
        "botocore.exceptions.ClientError: An error occurred (404) when calling the HeadObject operation: Not "
        "Found",
        "the code archive or another object in S3 does not exist",
    ),
    # github.com/aws/sagemaker-python-sdk, session.py
    "capacity": (
        "CapacityError: Unable to provision requested ML compute capacity.",
        "AWS has no capacity for the instance type",
    ),
    # torchrun of PyTorch 2.13.0
    "torchrun": (
        "torchrun: error: ambiguous option: --log could match --log-dir, --log_dir, --logs-specs",
        "torchrun takes the argument --log of the script for one of its own options",
    ),
}
ANSWER: dict[str, Any] = {
    "TrainingJobStatus": "Failed",
    "FailureReason": "AlgorithmError: ExecuteUserScriptError:\nExitCode 1, exit code: 1",
}
REPORT = JobReport(
    *("churn", Status.FAILED, "AlgorithmError: , exit code: 1", 1.0, None, (), None, "algo-1"),
    *("AWS denied HeadObject", "", (), None, (), 2, 0),
    Transports(),
    "",
    Path(),
)


@pytest.mark.parametrize("name", LOGS)
def test_a_known_cause_is_found_in_the_log_and_in_the_reason(name: str) -> None:
    text, cause = LOGS[name]
    in_log = read_failure(ANSWER, f"epoch 1\n{text}\n")
    in_reason = read_failure({**ANSWER, "FailureReason": f"AlgorithmError: {text}, exit code: 1"}, "")

    for failed in (in_log, in_reason):
        assert failed
        assert failed.cause
        assert failed.cause.message == cause
        assert failed.cause.hint or name == "module"
        assert f"  cause: {cause}" in [*failed.lines]


def test_an_unknown_cause_is_not_known() -> None:
    failed = read_failure(ANSWER, "")

    assert failed
    assert [*failed.lines] == [
        "failed on SageMaker: AlgorithmError: ExecuteUserScriptError: ExitCode 1, exit code: 1",
        "  cause: not known; the log of the job would decide it, with `--log FILE`",
    ]
    assert read_failure({**ANSWER, "TrainingJobStatus": "Completed"}, "") is None


def test_a_job_that_spot_ended_has_its_secondary_status() -> None:
    transitions = [{"Status": status} for status in ("Training", "Interrupted", "Training", "Interrupted")]
    stopped = {"TrainingJobStatus": "Stopped", "SecondaryStatus": "MaxWaitTimeExceeded"}
    failed = read_failure({**stopped, "SecondaryStatusTransitions": transitions}, "")

    assert failed
    assert [*failed.lines] == [
        "failed on SageMaker: MaxWaitTimeExceeded",
        "  cause: Spot instances were interrupted or not available until the wait time was over",
        "  Spot interrupted its instances 2 times",
        "  hint: raise MaxWaitTimeInSeconds, or use no Spot instances; let the script resume from "
        "/opt/ml/checkpoints, which CheckpointConfig copies to S3 and back; "
        "`bake run --kill algo-1@60s` tests an interruption",
    ]


@pytest.mark.parametrize(
    "data",
    [
        "a\nb",
        json.dumps({"events": [{"timestamp": 1, "message": "a"}, {"timestamp": 2, "message": "b"}]}),
        "timestamp,message\n1,a\n2,b\n",
        "2026-11-29T09:00:00.000000+00:00 churn/algo-1-1764406800 a\n"
        "2026-11-29T09:00:01.000000+00:00 churn/algo-1-1764406800 b",
    ],
)
def test_exports_of_cloudwatch_are_read(data: str) -> None:
    assert log_text(data) == "a\nb"


def test_the_verdict_compares_causes() -> None:
    failed = read_failure(ANSWER, LOGS["denied"][0])

    assert failed
    assert verdict(failed, REPORT) is Verdict.REPRODUCED
    assert verdict(failed, replace(REPORT, cause="exited with 1")) is Verdict.OTHER
    assert verdict(failed, replace(REPORT, status=Status.COMPLETED)) is Verdict.NOT_REPRODUCED
    unknown = read_failure(ANSWER, "")
    assert unknown
    assert verdict(unknown, replace(REPORT, cause="")) is Verdict.UNKNOWN


def test_what_was_not_imitated_is_named() -> None:
    answer = {
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge"},
        "RoleArn": "role",
        "EnableNetworkIsolation": False,
        "EnableManagedSpotTraining": True,
        "InputDataConfig": [{"ChannelName": "train", "InputMode": "Pipe"}],
    }
    assert [*differences(answer, REPORT, 16)] == [
        "16 ranks on SageMaker became 2 here",
        "the hosts had the cores and memory of this machine and no GPU instead of ml.p4d.24xlarge",
        "the code had no execution role, so AWS answered it as without one",
        "no Spot instance was interrupted; `--kill algo-1@60s` imitates it",
        "the channel train was a directory instead of Pipe",
    ]
    assert [*differences({}, REPORT, None)] == ["the number of ranks on SageMaker is not known"]
    assert [*differences({}, REPORT, 2)] == []
