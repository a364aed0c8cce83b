"""A job as SageMaker lays it out and runs it."""

import json
from dataclasses import replace
from pathlib import Path

from bakehouse import cluster
from bakehouse.cluster import Job
from bakehouse.engine import ContainerSpec
from tests.fake_engine import DIGEST, FakeEngine, Run

JOB = Job(
    DIGEST,
    "mpi-2x2",
    hosts=2,
    processes=2,
    source={"train.py": b"print()"},
    entry_point="train.py",
    hyperparameters={"sagemaker_mpi_enabled": True, "lr": 0.1, "name": "x"},
    channels={"training": {"part/0.bin": b"\x00"}},
    deadline=0.2,
    grace=0.1,
)


def config(name: str, job: Job = JOB, host: str = "algo-2") -> object:
    return json.loads(cluster.input_files(job, host)[f"/opt/ml/input/config/{name}.json"])


def test_each_host_is_told_who_it_is_and_who_the_others_are() -> None:
    assert config("resourceconfig") == {
        "current_group_name": "homogeneousCluster",
        "current_host": "algo-2",
        "current_instance_type": "ml.c5.xlarge",
        "hosts": ["algo-1", "algo-2"],
        "instance_groups": [
            {
                "hosts": ["algo-1", "algo-2"],
                "instance_group_name": "homogeneousCluster",
                "instance_type": "ml.c5.xlarge",
            }
        ],
        "network_interface_name": "eth0",
    }


def test_hyperparameters_are_strings_of_json() -> None:
    assert config("hyperparameters") == {
        "lr": "0.1",
        "name": '"x"',
        "sagemaker_job_name": '"mpi-2x2"',
        "sagemaker_mpi_enabled": "true",
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"/opt/ml/input/data/code"',
    }


def test_channels_and_code_lie_where_the_toolkit_looks() -> None:
    files = cluster.input_files(JOB, "algo-1")

    assert files["/opt/ml/input/data/training/part/0.bin"] == b"\x00"
    assert files["/opt/ml/input/data/code/train.py"] == b"print()"
    channel = {
        "RecordWrapperType": "None",
        "S3DistributionType": "FullyReplicated",
        "TrainingInputMode": "File",
    }
    assert config("inputdataconfig") == {"code": channel, "training": channel}


def test_code_that_is_baked_in_is_not_delivered() -> None:
    job = replace(JOB, source={}, baked={"more.py": b""})

    assert "sagemaker_submit_directory" not in str(config("hyperparameters", job))
    assert "/opt/ml/code/more.py" in cluster.input_files(job, "algo-1")


def test_hosts_start_as_sagemaker_starts_them(tmp_path: Path) -> None:
    engine = FakeEngine(lambda spec: Run())

    cluster.run(engine, JOB, tmp_path)

    first, second = engine.specs
    assert (first.hostname, second.hostname) == ("algo-1", "algo-2")
    assert (first.command, first.keep_entrypoint) == (("train",), True)
    assert first.mounts == ("/opt/ml/input", "/opt/ml/output", "/opt/ml/model", "/opt/ml/checkpoints")
    assert first.network == second.network == "network of mpi-2x2"
    assert first.environment == {"TRAINING_JOB_NAME": "mpi-2x2"}


def test_what_a_job_left_behind_is_read(tmp_path: Path) -> None:
    left = {
        "/opt/ml/output/success": b"",
        "/opt/ml/model/a/model.bin": b"12345",
        "/opt/ml/output/data/ranks/0.jsonl": b'{"rank": 0, "host": "algo-1", "step": "arrived", "at": 1}\n',
    }

    end = cluster.run(FakeEngine(lambda spec: Run(files=left)), replace(JOB, hosts=1), tmp_path)

    assert end.hosts[0].success
    assert end.hosts[0].failure is None
    assert end.hosts[0].model == {"a/model.bin": 5}
    assert [note.step for note in end.notes] == ["arrived"]


def test_each_rank_gets_a_log_of_its_own_on_the_host_where_it_ran(tmp_path: Path) -> None:
    def behave(spec: ContainerSpec) -> Run:
        return Run(
            prints="map\n[1,0]<stdout>:zero\n[1,3]<stdout>:three\n" if spec.hostname == "algo-1" else ""
        )

    cluster.run(FakeEngine(behave), JOB, tmp_path)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "algo-1.log": "map\n[1,0]<stdout>:zero\n[1,3]<stdout>:three\n",
        "algo-1-rank-0.log": "zero\n",
        "algo-2-rank-3.log": "three\n",
        "algo-2.log": "",
    }


def test_the_failure_of_one_host_ends_the_job(tmp_path: Path) -> None:
    hosts = {"algo-1": Run(exit_code=1), "algo-2": Run(exit_code=None)}

    end = cluster.run(FakeEngine(lambda spec: hosts[spec.hostname]), replace(JOB, deadline=60), tmp_path)

    assert end.exit_codes == (1, None)
    assert hosts["algo-2"].stopped
    assert not end.timed_out
    assert end.seconds < 5


def test_a_job_that_does_not_end_is_stopped_at_its_deadline(tmp_path: Path) -> None:
    hosts = {"algo-1": Run(), "algo-2": Run(exit_code=None)}

    end = cluster.run(FakeEngine(lambda spec: hosts[spec.hostname]), JOB, tmp_path)

    assert end.timed_out
    assert end.exit_codes == (0, None)
    assert hosts["algo-2"].stopped
