"""Jobs on a fake engine: files, faults, stops and results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

from bakehouse.cluster import job_runner
from bakehouse.cluster.job import Group, TrainingJob, homogeneous, input_files
from bakehouse.engine.protocol import Container, ContainerSpec
from tests.support.fake_engine import DIGEST, FakeEngine, Run

JOB = TrainingJob(
    DIGEST,
    "mpi-2x2",
    groups=homogeneous(2),
    processes_per_host=2,
    source={"train.py": b"print()"},
    entry_point="train.py",
    hyperparameters={"sagemaker_mpi_enabled": True, "lr": 0.1, "name": "x"},
    channels={"training": {"part/0.bin": b"\x00"}},
    deadline=0.2,
    grace=0.1,
)


def config(name: str, job: TrainingJob = JOB, host: str = "algo-2") -> object:
    return json.loads(input_files(job, host)[f"/opt/ml/input/config/{name}.json"])


def test_each_host_gets_its_name_and_those_of_the_others() -> None:
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


def test_without_a_toolkit_hyperparameters_are_the_users_texts() -> None:
    job = replace(JOB, has_toolkit=False, hyperparameters={"lr": 0.1, "name": "x"})

    assert config("hyperparameters", job) == {"lr": "0.1", "name": "x"}


def test_a_gpu_belongs_to_one_host() -> None:
    job = replace(JOB, groups=(Group("data"), Group("dnn", count=2, gpus=2)), seed=1)
    data, dnn = job.hosts_by_group["data"], job.hosts_by_group["dnn"]

    assert [job.gpus_of(host) for host in (*data, *dnn)] == [(), ("0", "1"), ("2", "3")]


def test_named_gpus_are_dealt_out_in_their_order() -> None:
    job = replace(JOB, groups=homogeneous(2, gpus=1), gpu_ids=("0", "GPU-5c1e"))

    assert [job.gpus_of(host) for host in job.host_names] == [("0",), ("GPU-5c1e",)]


def test_channels_and_code_lie_where_the_toolkit_looks() -> None:
    files = input_files(JOB, "algo-1")

    assert files["/opt/ml/input/data/training/part/0.bin"] == b"\x00"
    assert files["/opt/ml/input/data/code/train.py"] == b"print()"
    channel = {
        "RecordWrapperType": "None",
        "S3DistributionType": "FullyReplicated",
        "TrainingInputMode": "File",
    }
    assert config("inputdataconfig") == {"code": channel, "training": channel}


def test_code_that_is_baked_in_is_not_delivered() -> None:
    job = replace(JOB, source={}, baked_code={"more.py": b""})

    assert "sagemaker_submit_directory" not in str(config("hyperparameters", job))
    assert "/opt/ml/code/more.py" in input_files(job, "algo-1")


def test_hosts_start_as_sagemaker_starts_them(tmp_path: Path) -> None:
    engine = FakeEngine(lambda spec: Run())

    job_runner.run(engine, JOB, tmp_path)

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

    end = job_runner.run(
        FakeEngine(lambda spec: Run(files=left)), replace(JOB, groups=homogeneous()), tmp_path
    )

    assert end.hosts[0].success
    assert end.hosts[0].failure is None
    assert end.hosts[0].model == {"a/model.bin": 5}
    assert [note.step for note in end.events] == ["arrived"]


def test_each_rank_gets_a_log_of_its_own_on_the_host_where_it_ran(tmp_path: Path) -> None:
    def behave(spec: ContainerSpec) -> Run:
        return Run(
            prints="map\n[1,0]<stdout>:zero\n[1,3]<stdout>:three\n" if spec.hostname == "algo-1" else ""
        )

    job_runner.run(FakeEngine(behave), JOB, tmp_path)

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "algo-1.log": "map\n[1,0]<stdout>:zero\n[1,3]<stdout>:three\n",
        "algo-1-rank-0.log": "zero\n",
        "algo-2-rank-3.log": "three\n",
        "algo-2.log": "",
    }


def test_the_failure_of_one_host_ends_the_job(tmp_path: Path) -> None:
    hosts = {"algo-1": Run(exit_code=1), "algo-2": Run(exit_code=None)}

    end = job_runner.run(FakeEngine(lambda spec: hosts[spec.hostname]), replace(JOB, deadline=60), tmp_path)

    assert end.exit_codes == (1, None)
    assert hosts["algo-2"].stopped
    assert not end.timed_out
    assert end.seconds < 5


def test_a_job_that_does_not_end_is_stopped_at_its_deadline(tmp_path: Path) -> None:
    hosts = {"algo-1": Run(), "algo-2": Run(exit_code=None)}

    end = job_runner.run(FakeEngine(lambda spec: hosts[spec.hostname]), JOB, tmp_path)

    assert end.timed_out
    assert end.exit_codes == (0, None)
    assert hosts["algo-2"].stopped


def test_a_job_ends_with_mpirun_once_the_other_hosts_know(tmp_path: Path) -> None:
    job = replace(JOB, deadline=0.5, ends_with_mpirun=True)
    for files, ended in (({"/tmp/done.algo-1": b""}, True), ({"/tmp/done.algo-2": b""}, False)):
        hosts = {"algo-1": Run(None), "algo-2": Run(None, files=files)}

        def host(spec: ContainerSpec, hosts: dict[str, Run] = hosts) -> Run:
            return hosts[spec.hostname]

        result = job_runner.run(FakeEngine(host), job, tmp_path)

        assert (result.mpirun_ended, result.timed_out) == (ended, not ended)
        assert result.exit_codes == (None, None)
        assert hosts["algo-2"].stopped


def test_a_failure_does_not_extend_the_deadline_of_the_job(tmp_path: Path) -> None:
    hosts = {"algo-1": Run(exit_code=1), "algo-2": Run(exit_code=None)}
    job = replace(JOB, deadline=0.2, grace=60.0)

    end = job_runner.run(FakeEngine(lambda spec: hosts[spec.hostname]), job, tmp_path)

    assert hosts["algo-2"].stopped
    assert end.seconds < 5


GROUPS = (Group("data", "ml.c5.18xlarge", 2), Group("dnn", "ml.p4d.24xlarge", 1))


def test_hosts_are_dealt_to_groups_at_random_and_the_same_way_for_a_seed() -> None:
    job = replace(JOB, groups=GROUPS, seed=1)

    dealt = {frozenset(replace(job, seed=seed).hosts_by_group["dnn"]) for seed in range(20)}

    assert dealt == {frozenset({host}) for host in ("algo-1", "algo-2", "algo-3")}
    assert job.hosts_by_group == replace(job).hosts_by_group
    assert sorted(host for hosts in job.hosts_by_group.values() for host in hosts) == [*job.host_names]


def test_each_host_gets_its_group_and_all_others() -> None:
    job = replace(JOB, groups=GROUPS, seed=3)
    [trainer] = job.hosts_by_group["dnn"]
    document = json.loads(input_files(job, trainer)["/opt/ml/input/config/resourceconfig.json"])

    assert (document["current_group_name"], document["current_instance_type"]) == ("dnn", "ml.p4d.24xlarge")
    assert {group["instance_group_name"]: tuple(group["hosts"]) for group in document["instance_groups"]} == (
        job.hosts_by_group
    )


def test_ranks_are_those_of_the_groups_that_the_launcher_starts_in() -> None:
    job = replace(JOB, groups=GROUPS, seed=3, launcher_groups=("data",), processes_per_host=2)

    assert job.ranks == 4
    assert [job.host_of(rank) for rank in range(4)] == [
        host for host in job.hosts_by_group["data"] for _ in range(2)
    ]


def test_a_code_archive_is_a_file_of_each_host_and_not_a_channel() -> None:
    job = replace(JOB, source={}, code_archive=b"archive")
    parameters = json.loads(input_files(job, "algo-2")["/opt/ml/input/config/hyperparameters.json"])

    assert parameters["sagemaker_submit_directory"] == '"/opt/ml/sourcedir.tar.gz"'
    assert input_files(job, "algo-2")["/opt/ml/sourcedir.tar.gz"] == b"archive"
    assert list(json.loads(input_files(job, "algo-2")["/opt/ml/input/config/inputdataconfig.json"])) == [
        "training"
    ]


def test_a_copy_of_a_directory_is_a_channel(tmp_path: Path) -> None:
    engine = FakeEngine(lambda spec: Run())
    job_runner.run(engine, replace(JOB, channel_directories={"more": "/data"}), tmp_path)

    assert engine.volumes == [Path("/data")]
    assert {volume for spec in engine.specs for volume in spec.volumes.items()} == {
        ("/opt/ml/input/data/more", "copy of /data")
    }
    assert "more" in str(config("inputdataconfig", replace(JOB, channel_directories={"more": "/data"})))


def test_a_channel_of_a_group_is_on_its_hosts_alone(tmp_path: Path) -> None:
    channels = {"images": "/images", "labels": "/labels"}
    job = replace(
        JOB,
        groups=(Group("data"), Group("dnn")),
        channel_directories=channels,
        channel_groups={"images": ("data",)},
    )
    engine = FakeEngine(lambda spec: Run())
    job_runner.run(engine, job, tmp_path)

    assert {spec.hostname: {*spec.volumes.values()} for spec in engine.specs} == {
        "algo-1": {"copy of /images", "copy of /labels"},
        "algo-2": {"copy of /labels"},
    }
    names = [
        json.loads(input_files(job, host)["/opt/ml/input/config/inputdataconfig.json"])
        for host in ("algo-1", "algo-2")
    ]
    assert [("images" in content, "labels" in content) for content in names] == [(True, True), (False, True)]


def test_a_job_that_is_stopped_gets_sigterm_first(tmp_path: Path) -> None:
    runs = [Run(None), Run(None)]
    engine = FakeEngine(lambda spec: runs[len(engine.specs) - 1])

    end = job_runner.run(engine, replace(JOB, stop_after=0.0, stop_grace=5.0, deadline=9.0), tmp_path)

    assert [run.signals for run in runs] == [["SIGTERM"], ["SIGTERM"]]
    assert (end.stopped, end.timed_out, end.exit_codes) == (True, False, (143, 143))


def test_a_job_that_does_not_heed_is_ended_after_the_grace(tmp_path: Path) -> None:
    runs = [Run(None, heeds_sigterm=False), Run()]
    engine = FakeEngine(lambda spec: runs[len(engine.specs) - 1])

    end = job_runner.run(engine, replace(JOB, stop_after=0.0, stop_grace=0.1, deadline=9.0), tmp_path)

    assert runs[0].stopped
    assert end.exit_codes == (None, 0)


def test_a_host_that_is_killed_gives_the_others_their_time_to_notice(tmp_path: Path) -> None:
    runs = [Run(None), Run(None)]
    engine = FakeEngine(lambda spec: runs[len(engine.specs) - 1])

    end = job_runner.run(engine, replace(JOB, kills={"algo-2": 0.0}, deadline=1.0, grace=0.0), tmp_path)

    assert [run.signals for run in runs] == [[], ["SIGKILL"]]
    assert end.exit_codes == (None, 137)
    assert end.seconds >= 1.0


def test_a_host_is_killed_once_a_text_is_in_the_log_of_any_host(tmp_path: Path) -> None:
    hosts = {"algo-1": Run(None, prints="epoch 2\n"), "algo-2": Run(None)}
    job = replace(JOB, kills={"algo-1": "epoch 3", "algo-2": "epoch 2"}, deadline=0.5)

    job_runner.run(FakeEngine(lambda spec: hosts[spec.hostname]), job, tmp_path)

    assert [run.signals for run in hosts.values()] == [[], ["SIGKILL"]]


def test_a_log_is_searched_for_a_text_from_where_the_last_search_ended(tmp_path: Path) -> None:
    monitor = job_runner._Monitor({"algo-1": cast("Container", None)}, JOB, tmp_path)
    assert not monitor._has_come("epoch 2", 0.0)
    with (tmp_path / "algo-1.log").open("wb", buffering=0) as log:
        log.write(b"epoch 1\nepo")
        assert not monitor._has_come("epoch 2", 0.0)
        # Written over, because what was searched is not read again.
        log.seek(0)
        log.write(b"epoch 2\n")
        assert not monitor._has_come("epoch 2", 0.0)
        log.seek(11)
        log.write(b"ch 2\n")
        assert monitor._has_come("epoch 2", 0.0)


def test_what_hosts_print_is_heard_with_their_names(tmp_path: Path) -> None:
    output: list[tuple[str, bytes]] = []
    job_runner.run(
        FakeEngine(lambda spec: Run(prints=f"I am {spec.hostname}\n")),
        JOB,
        tmp_path,
        on_output=lambda host, data: output.append((host, data)),
    )

    assert output == [("algo-1", b"I am algo-1\n"), ("algo-2", b"I am algo-2\n")]


def test_what_hosts_leave_is_kept_by_their_names(tmp_path: Path) -> None:
    left = {"/opt/ml/model/a/weights": b"x"}
    job_runner.run(
        FakeEngine(lambda spec: Run(files=left)), JOB, tmp_path, collect={"/opt/ml/model": tmp_path / "model"}
    )

    assert (tmp_path / "model/algo-2/a/weights").read_bytes() == b"x"


def test_a_loss_is_noted_with_those_who_could_notice(tmp_path: Path) -> None:
    hosts = {"algo-1": Run(None), "algo-2": Run(None), "algo-3": Run()}
    job = replace(JOB, groups=homogeneous(3), kills={"algo-2": 0.1}, deadline=0.6)

    end = job_runner.run(FakeEngine(lambda spec: hosts[spec.hostname]), job, tmp_path)

    [loss] = end.faults
    assert (loss.description, loss.killed_host, loss.witnesses) == (
        "algo-2 was killed",
        "algo-2",
        ("algo-1",),
    )


def test_what_a_job_fills_has_only_so_much_room(tmp_path: Path) -> None:
    engine = FakeEngine(lambda spec: Run(full=("/opt/ml/model", "/opt/ml/input")))

    end = job_runner.run(engine, replace(JOB, volume_bytes=2**20), tmp_path)

    assert engine.specs[0].room == {
        "/opt/ml/model": 2**20,
        "/opt/ml/output": 2**20,
        "/opt/ml/checkpoints": 2**20,
    }
    assert end.hosts[0].full == ("/opt/ml/model",)


def test_a_host_that_fails_before_its_kill_is_a_failure_of_the_job(tmp_path: Path) -> None:
    hosts = {"algo-1": Run(exit_code=None), "algo-2": Run(exit_code=1)}
    job = replace(JOB, deadline=60, kills={"algo-2": 30.0})

    end = job_runner.run(FakeEngine(lambda spec: hosts[spec.hostname]), job, tmp_path)

    assert (end.exit_codes, end.faults, end.timed_out) == ((None, 1), (), False)
    assert end.seconds < 5
