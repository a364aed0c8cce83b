"""Preparation of local jobs: launcher, instance types, names, errors."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog import source_tree
from bakehouse.catalog.source_tree import SourceTree
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster.job import Group, TrainingJob, homogeneous, job_name
from bakehouse.errors import UsageError
from bakehouse.jobs import code_archive
from bakehouse.sagemaker.local_job import RunRequest, check_code, efa_types, prepare
from tests.support.errors import refusal
from tests.support.trees import Tree

MPI = {"mpi": {"enabled": True, "processes_per_host": 2}}
TORCH = {"torch_distributed": {"enabled": True}}
INSTANCE = """\
summary: Instance types
releases:
  - version: "1"
    variants:
      - name: ml.p4d.24xlarge
        provides: {gpus: "8", efa-interfaces: "4"}
      - name: ml.c5.xlarge
        provides: {gpus: "0", efa-interfaces: "0"}
      - name: ml.new
"""


GROUPS = (Group("data", "ml.c5.xlarge"), Group("dnn", "ml.p4d.24xlarge", 2))
TEMPLATES = """\
EXEUCTE_DISTRIBUTED_DRIVER = "{driver_name} {driver_script}"
EXECUTE_BASIC_SCRIPT_DRIVER = "basic"
INSTALL_REQUIREMENTS = "{requirements_file}"
TRAIN_SCRIPT_TEMPLATE = "{working_dir}{install_requirements}{execute_driver}"
"""


@pytest.fixture
def sdk(tmp_path: Path) -> Path:
    """The few files of the SDK that are read, with contents of our own."""
    root = tmp_path / "sdk/sagemaker"
    files = {
        "train/container_drivers/distributed_drivers/torchrun_driver.py": "",
        "train/templates.py": TEMPLATES,
        "core/utils/install_requirements.py": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root.parent


@pytest.fixture
def instance_tree(tree: Tree) -> Tree:
    tree.component("instance", INSTANCE)
    return tree


def prepared(tree: Tree, framework: str = "", version: str = "", **fields: Any) -> TrainingJob:
    names = ("source_dir", "distribution", "sdk", "processes_per_host")
    arguments = {name: fields.pop(name) for name in names if name in fields}
    report = fields.pop("report", print)
    job = TrainingJob(**{"groups": homogeneous(2), "hyperparameters": {"lr": 0.1}} | fields)
    return prepare(RunRequest(job, **arguments), "some-image", tree.catalog(), framework, version, report)


def test_a_distribution_becomes_the_hyperparameters_of_the_sdk(instance_tree: Tree) -> None:
    job = prepared(instance_tree, distribution=MPI)

    assert job.processes_per_host == 2
    assert {name: job.hyperparameters[name] for name in ("lr", "sagemaker_mpi_enabled")} == {
        "lr": 0.1,
        "sagemaker_mpi_enabled": True,
    }


def test_the_distribution_wins_over_hyperparameters_given_by_hand(instance_tree: Tree) -> None:
    own = {"sagemaker_mpi_num_of_processes_per_host": 3}

    assert prepared(instance_tree, hyperparameters=own, distribution=MPI).processes_per_host == 2


def test_ranks_a_host_can_be_asked_for_apart(instance_tree: Tree) -> None:
    job = prepared(instance_tree, "pytorch", "2.9.0", distribution=TORCH, processes_per_host=2)

    assert (job.processes_per_host, job.hyperparameters["sagemaker_mpi_num_of_processes_per_host"]) == (2, 2)


def test_without_a_distribution_there_is_one_process_a_host(instance_tree: Tree) -> None:
    lines: list[str] = []
    job = prepared(instance_tree, report=lines.append)

    assert (job.processes_per_host, job.hyperparameters, lines) == (1, {"lr": 0.1}, [])


def test_a_value_of_a_variable_that_changes_the_job_is_reported(instance_tree: Tree) -> None:
    values = {
        "FI_PROVIDER": "tcp",
        "NCCL_DEBUG": "INFO",
        "LD_LIBRARY_PATH": "/lib",
        "CUDA_VISIBLE_DEVICES": "",
    }
    library = "note: it is not known what `LD_LIBRARY_PATH=/lib` does to the job"

    def notes(*groups: Group) -> list[str]:
        lines: list[str] = []
        prepared(instance_tree, groups=groups, environment=values, report=lines.append)
        return lines

    assert notes(*homogeneous(2)) == [library]
    where = "on `ml.p4d.24xlarge`"
    assert notes(*GROUPS) == [
        f"note: with `FI_PROVIDER=tcp` {where}, libfabric does not use EFA",
        library,
        f"note: with `CUDA_VISIBLE_DEVICES=` {where}, the script sees no GPU",
    ]
    assert notes(*homogeneous(1, gpus=2))[1].endswith(", the script sees no GPU")


def test_ranks_start_in_the_group_that_the_distribution_names(instance_tree: Tree) -> None:
    distribution = {**MPI, "instance_groups": ["dnn"]}
    job = prepared(instance_tree, groups=GROUPS, distribution=distribution)

    assert (job.launcher_groups, job.ranks) == (("dnn",), 4)


def test_more_ranks_than_gpus_are_refused(instance_tree: Tree) -> None:
    groups = (Group(instance_type="ml.p4d.24xlarge"),)

    with pytest.raises(UsageError, match=r"is 9, but `ml\.p4d\.24xlarge` has 8 GPUs"):
        prepared(
            instance_tree, groups=groups, distribution={"mpi": {"enabled": True, "processes_per_host": 9}}
        )


def test_which_instance_types_have_efa(instance_tree: Tree) -> None:
    assert efa_types(instance_tree.catalog()) == {"ml.p4d.24xlarge"}


def test_hosts_are_dealt_to_groups_anew_unless_a_seed_is_given(instance_tree: Tree) -> None:
    seeds = {prepared(instance_tree, groups=GROUPS).seed for _ in range(20)}

    assert len(seeds) > 1
    assert prepared(instance_tree, groups=GROUPS, seed=7).seed == 7
    assert prepared(instance_tree).seed is None


def test_a_group_without_gpus_on_sagemaker_has_none_here(instance_tree: Tree) -> None:
    groups = tuple(replace(group, gpus=1) for group in GROUPS)

    assert [group.gpus for group in prepared(instance_tree, groups=groups).groups] == [0, 1]


def test_a_host_that_is_not_there_can_not_be_killed(instance_tree: Tree) -> None:
    assert refusal(UsageError, prepared, instance_tree, kills={"algo-3": 1.0}) == (
        "error: can't kill `algo-3`, which is not a host of this job\n\nhint: choose from algo-1, algo-2\n"
    )


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            {"images": ("dat",), "labels": ("dnn",)},
            "error: channel `images` names `dat`, which is not a group of this job\n"
            "\nhint: did you mean `data`?\n",
        ),
        (
            {"images": ("data",)},
            "error: channel `images` has instance groups, but `labels` has none\n"
            "\nhint: set groups for all channels, or for none\n",
        ),
    ],
)
def test_channels_of_groups_are_checked(
    instance_tree: Tree, groups: dict[str, tuple[str, ...]], message: str
) -> None:
    channels = {"images": "/images", "labels": "/labels"}
    with pytest.raises(UsageError) as caught:
        prepared(instance_tree, groups=GROUPS, channel_directories=channels, channel_groups=groups)

    assert failure_text(caught.value.diagnostics[0]) == message


def test_a_command_takes_the_place_of_the_toolkit(instance_tree: Tree, tmp_path: Path) -> None:
    source = tmp_path / "code"
    source.mkdir()
    (source / "train.py").write_text("print()")
    prepared_job = prepared(
        instance_tree, command=("torchrun", "/opt/ml/code/train.py"), source_dir=source, processes_per_host=2
    )

    assert prepared_job.command == ("torchrun", "/opt/ml/code/train.py")
    assert prepared_job.baked_code == {"train.py": b"print()"}
    assert (prepared_job.has_toolkit, prepared_job.processes_per_host) == (False, 2)
    assert prepared_job.code_archive == b""


@pytest.mark.parametrize(
    ("framework", "version", "distribution"),
    [
        ("", "", {}),
        ("", "", MPI),
        ("pytorch", "2.9.0", TORCH),
        ("tensorflow", "2.20.0", {"parameter_server": {"enabled": True}}),
    ],
)
def test_code_for_the_toolkit_is_an_archive_in_the_job(
    instance_tree: Tree, tmp_path: Path, framework: str, version: str, distribution: dict[str, object]
) -> None:
    (tmp_path / "train.py").write_text("print()")
    source = tmp_path / "train.py"
    options: dict[str, Any] = {"source_dir": source, "entry_point": "train.py", "distribution": distribution}
    job = prepared(instance_tree, framework, version, **options)

    with tarfile.open(fileobj=io.BytesIO(job.code_archive), mode="r:gz") as archive:
        assert archive.getnames() == ["train.py"]


@pytest.mark.parametrize(
    "options", [{}, {"distribution": MPI}, {"command": ("sh", "-c", "python train.py")}, {"sdk": True}]
)
def test_the_directory_of_the_code_is_searched_once(
    instance_tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sdk: Path, options: dict[str, Any]
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text("print()")
    (source / "note.txt").write_text("")
    (source / ".dockerignore").write_text("note.txt\n.dockerignore\n")
    searched: list[Path] = []
    read_tree = source_tree.read_tree

    def count(path: Path, *arguments: Any, **options: Any) -> SourceTree:
        searched.append(path)
        return read_tree(path, *arguments, **options)

    monkeypatch.setattr(source_tree, "read_tree", count)
    lines: list[str] = []
    if "sdk" in options:
        options = {"sdk": sdk, "distribution": {"Torchrun": {}}}
    prepared(instance_tree, source_dir=source, entry_point="train.py", report=lines.append, **options)

    assert searched == [source]
    assert lines == [
        "not sent: src/.dockerignore:1 note.txt: 1 file",
        "not sent: src/.dockerignore:2 .dockerignore: 1 file",
    ]


def test_code_that_is_too_big_is_refused_before_anything_is_built(
    instance_tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_archive, "LIMITS", replace(code_archive.LIMITS, total_bytes=2, file_bytes=2))
    (tmp_path / "train.py").write_text("print()")

    with pytest.raises(UsageError, match=r"`train\.py` is larger than 0 MB"):
        prepared(instance_tree, source_dir=tmp_path / "train.py", entry_point="train.py")


def test_a_job_has_a_region_and_no_address_or_login_of_a_server(instance_tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    job = prepared(instance_tree, source_dir=tmp_path / "train.py", environment={"AWS_REGION": "eu-west-1"})

    assert job.environment == {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-1"}


def test_a_command_and_a_distribution_exclude_each_other(instance_tree: Tree) -> None:
    with pytest.raises(UsageError, match="a command and a distribution both start the job"):
        prepared(instance_tree, command=("torchrun",), distribution=TORCH)


def test_version_3_of_the_sdk_starts_its_own_drivers(instance_tree: Tree, sdk: Path, tmp_path: Path) -> None:
    source = tmp_path / "code"
    source.mkdir()
    (source / "train.py").write_text("print()")
    job = prepared(
        instance_tree,
        source_dir=source,
        entry_point="train.py",
        distribution={"Torchrun": {"process_count_per_node": 2}},
        sdk=sdk,
    )

    assert job.command[0] == "/bin/bash"
    assert job.channels["code"] == {"train.py": b"print()"}
    assert json.loads(job.channels["sm_drivers"]["distributed.json"])["process_count_per_node"] == 2
    assert "torchrun_driver.py" in job.channels["sm_drivers"]["sm_train.sh"].decode()
    assert (job.hyperparameters, job.has_toolkit, job.processes_per_host) == ({"lr": 0.1}, False, 2)


@pytest.mark.parametrize(
    ("directory", "why"), [("", "`local.sdk` is not set"), ("empty", "`empty` does not contain them")]
)
def test_drivers_of_an_sdk_that_is_not_there(instance_tree: Tree, directory: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        prepared(instance_tree, distribution={"MPI": {}}, sdk=Path(directory) if directory else None)

    assert failure_text(caught.value.diagnostics[0]) == (
        "error: `MPI` needs the drivers of SageMaker SDK v3\n"
        f"  because  {why}\n"
        "\n"
        "hint: run `pip install --target sdk sagemaker-train sagemaker-core`, and set `local.sdk`\n"
    )


def test_drivers_start_no_code_of_the_image(instance_tree: Tree, sdk: Path) -> None:
    with pytest.raises(UsageError, match="`MPI` needs a script, which is sent with the job"):
        prepared(instance_tree, distribution={"MPI": {}}, sdk=sdk)


def test_a_job_name_is_valid() -> None:
    name = job_name("registry.example/team/pytorch-2.9_efa" + "x" * 60, 0.0)

    assert name == "pytorch-2-9-efaxxxxxxxxxxxxxxxxxxxxxxx-1970-01-01-00-00-00-000"
    assert len(name) <= 63


def test_processes_per_host_need_a_launcher(instance_tree: Tree) -> None:
    with pytest.raises(UsageError, match="`processes_per_host` needs a launcher"):
        prepared(instance_tree, processes_per_host=2)


def test_a_host_without_a_launcher_has_one_process_whatever_its_gpus(instance_tree: Tree) -> None:
    assert prepared(instance_tree, groups=homogeneous(1, gpus=2)).processes_per_host == 1


def test_ranks_are_counted_by_the_gpus_of_the_group_that_has_them(instance_tree: Tree) -> None:
    groups = tuple(replace(group, gpus=2) for group in GROUPS)
    distribution = {"mpi": {"enabled": True}, "instance_groups": ["dnn"]}
    job = prepared(instance_tree, groups=groups, distribution=distribution)

    assert (job.processes_per_host, job.ranks) == (2, 4)


def test_the_sdks_mpi_driver_counts_the_ranks_of_the_whole_job(
    instance_tree: Tree, sdk: Path, tmp_path: Path
) -> None:
    source = tmp_path / "code"
    source.mkdir()
    (source / "train.py").write_text("print()")
    distribution = {"MPI": {"process_count_per_node": 2}}
    options: dict[str, Any] = {"source_dir": source, "entry_point": "train.py", "sdk": sdk}

    assert prepared(instance_tree, distribution=distribution, **options).ranks == 2
    with pytest.raises(UsageError, match="`processes_per_host` cannot be combined with `MPI`"):
        prepared(instance_tree, distribution=distribution, processes_per_host=2, **options)


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (
            RunRequest(TrainingJob(entry_point="other.py")),
            "the job would not start `other.py`",
            "use `--environment SAGEMAKER_PROGRAM=other.py` for a script of the image's code",
        ),
        (
            RunRequest(TrainingJob(entry_point="train.py"), source_dir=Path("src")),
            "the job would not start the code in `src`",
            "omit `--source-dir`: `run` builds the image again after an edit of its code",
        ),
    ],
)
def test_code_that_the_toolkit_would_not_start_is_an_error(
    given: RunRequest, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_code(given, "train.py")

    reason = "the image contains code in /opt/ml/code, so the toolkit would start its `train.py`"
    assert [(error.message, error.hint) for error in caught.value.diagnostics] == [(message, hint)]
    assert [reason.text for error in caught.value.diagnostics for reason in error.reasons] == [reason]


@pytest.mark.parametrize(
    "given",
    [
        RunRequest(TrainingJob(entry_point="train.py")),
        RunRequest(TrainingJob()),
        RunRequest(TrainingJob(entry_point="other.py", environment={"SAGEMAKER_PROGRAM": "other.py"})),
        RunRequest(TrainingJob(command=("python3", "other.py")), source_dir=Path("src")),
    ],
)
def test_code_that_the_job_starts_is_accepted(given: RunRequest) -> None:
    check_code(given, "train.py")
