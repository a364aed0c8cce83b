"""Jobs for Kubernetes, Kubeflow Trainer and Slurm, from the settings of a job."""

import itertools
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.project import HOME
from bakehouse.cli import main
from bakehouse.cli.diagnostics import failure_text
from bakehouse.cluster.job import Group
from bakehouse.errors import UsageError
from bakehouse.jobs.cluster_forms import FORMS, cluster_job
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.training_request import LaunchImage
from bakehouse.plan.workspace import open_workspace
from tests.support.errors import raised
from tests.support.release_records import a_record
from tests.support.sagemaker_releases import put

URI = "registry.example/team/churn@sha256:4f1c"
PYTORCH = LaunchImage(
    "churn",
    URI,
    {"pytorch": "2.9.1", "efa": "1.51.0", "libfabric": "2.7.0", "aws-ofi-nccl": "1.22.0"},
    ("mpirun", "torchrun"),
    entry_point="train.py",
    gpu=True,
    is_complete=True,
)
CPU = replace(PYTORCH, gpu=False, versions={"pytorch": "2.9.1"})
TENSORFLOW = replace(CPU, versions={"tensorflow": "2.21.0"}, launchers=("mpirun",))
P5 = JobSpec(instance_type="p5.48xlarge", instance_count=2)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_workspace(HOME).catalog


@pytest.fixture(autouse=True)
def _in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def container(image: LaunchImage, job: JobSpec, catalog: Catalog) -> Any:
    """Return the container of the Job for Kubernetes."""
    text, _ = cluster_job("kubernetes", image, job, catalog, "released")
    *_, manifest = yaml.safe_load_all(text)
    return manifest["spec"]["template"]["spec"]["containers"][0]


def variables(image: LaunchImage, job: JobSpec, catalog: Catalog) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container(image, job, catalog)["env"]}


def refusal(image: LaunchImage, job: JobSpec, catalog: Catalog, form: str = "kubernetes") -> str:
    return failure_text(raised(UsageError, cluster_job, form, image, job, catalog, "released").diagnostics[0])


@pytest.mark.parametrize("name", ["p5.48xlarge", "ml.p5.48xlarge"])
def test_the_type_gives_gpus_and_interfaces(name: str, catalog: Catalog) -> None:
    node = container(PYTORCH, replace(P5, instance_type=name), catalog)

    assert node["image"] == URI
    assert node["resources"]["limits"] == {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}
    assert "--nproc_per_node=8" in node["args"]


@pytest.mark.parametrize(
    ("image", "job"),
    [
        (replace(PYTORCH, versions={"pytorch": "2.9.1"}), P5),
        (PYTORCH, replace(P5, instance_count=1)),
        (PYTORCH, replace(P5, instance_type="g5.xlarge")),
    ],
    ids=["no EFA in the image", "one host", "no EFA on the host"],
)
def test_interfaces_are_requested_only_if_they_are_used(
    image: LaunchImage, job: JobSpec, catalog: Catalog
) -> None:
    assert list(container(image, job, catalog)["resources"]["limits"]) == ["nvidia.com/gpu"]
    assert "FI_PROVIDER" not in variables(image, job, catalog)


def test_hosts_that_communicate_over_tcp_are_a_warning(catalog: Catalog) -> None:
    _, without = cluster_job("slurm", replace(PYTORCH, versions={}), P5, catalog, "")
    _, elsewhere = cluster_job("slurm", PYTORCH, replace(P5, instance_type="g5.xlarge"), catalog, "")

    assert [warning.message for warning in (*without, *elsewhere)] == [
        "`ml.p5.48xlarge` has EFA, but `churn` has no `efa`, so NCCL uses slower TCP between hosts",
        "`ml.g5.xlarge` has no EFA, so its hosts communicate over TCP",
    ]


def test_open_mpi_needs_efa_on_hosts_without_gpus(catalog: Catalog) -> None:
    job = JobSpec(instance_type="c5n.18xlarge", instance_count=2, launcher="mpirun")

    def warnings(image: LaunchImage, job: JobSpec = job) -> list[tuple[str, str]]:
        _, findings = cluster_job("slurm", image, job, catalog, "")
        return [(finding.message, finding.hint) for finding in findings]

    assert warnings(CPU) == [
        (
            "`ml.c5n.18xlarge` has EFA, but `churn` has no `efa`, so Open MPI uses TCP",
            'add `efa: "*"` to `components` of the recipe',
        )
    ]
    assert warnings(replace(CPU, versions=PYTORCH.versions)) == []
    assert warnings(CPU, replace(job, launcher="torchrun")) == []
    assert warnings(CPU, replace(job, instance_count=1)) == []


def test_a_libfabric_without_efa_gets_no_interfaces(catalog: Catalog) -> None:
    image = replace(PYTORCH, versions={"pytorch": "2.9.1", "libfabric": "2.6.0"})

    assert "FI_PROVIDER" not in variables(image, P5, catalog)


def test_an_image_that_may_have_efa_gets_the_interfaces(catalog: Catalog) -> None:
    image = replace(PYTORCH, versions={"pytorch": "1.9.0"}, is_complete=False)

    assert variables(image, P5, catalog)["FI_PROVIDER"] == "efa"


def test_libraries_get_the_variables_that_they_need(catalog: Catalog) -> None:
    old = replace(PYTORCH, versions={**PYTORCH.versions, "libfabric": "1.17.0", "aws-ofi-nccl": "1.5.0"})

    def fabric(image: LaunchImage) -> dict[str, str]:
        values = variables(image, P5, catalog)
        return {name: value for name, value in values.items() if name.startswith(("FI_", "NCCL_"))}

    assert fabric(PYTORCH) == {"FI_PROVIDER": "efa", "FI_EFA_FORK_SAFE": "1", "FI_EFA_USE_HUGE_PAGE": "0"}
    assert fabric(old).items() - fabric(PYTORCH).items() == {
        ("FI_EFA_USE_DEVICE_RDMA", "1"),
        ("NCCL_PROTO", "simple"),
    }


def test_rdma_is_not_requested_where_it_would_abort(catalog: Catalog) -> None:
    old = replace(PYTORCH, versions={**PYTORCH.versions, "libfabric": "1.17.0"})
    job = replace(P5, instance_type="p3dn.24xlarge")

    assert "FI_EFA_USE_DEVICE_RDMA" not in variables(old, job, catalog)
    asked = replace(job, environment={"FI_EFA_USE_DEVICE_RDMA": "1"})
    assert refusal(old, asked, catalog).startswith(
        "error: `environment` sets `FI_EFA_USE_DEVICE_RDMA`, but EFA on `ml.p3dn.24xlarge` cannot read"
    )


def test_the_job_s_own_variables_win(catalog: Catalog) -> None:
    job = replace(P5, environment={"FI_PROVIDER": "tcp"})

    assert variables(PYTORCH, job, catalog)["FI_PROVIDER"] == "tcp"


def test_the_script_gets_arguments_and_directories_as_on_sagemaker(catalog: Catalog) -> None:
    job = JobSpec(
        hyperparameters={"epochs": 3, "n": 1, "shape": {"a": 1, "b": 2}},
        inputs={"training": "s3://our-data/churn"},
    )

    node = container(CPU, job, catalog)

    arguments = ["--epochs", "3", "-n", "1", "--shape", "a=1,b=2"]
    assert node["args"] == ["python3", "/opt/ml/code/train.py", *arguments]
    values = variables(CPU, job, catalog)
    assert values["SM_CHANNEL_TRAINING"] == "/opt/ml/input/data/training"
    assert values["SM_MODEL_DIR"] == "/opt/ml/model"
    assert {"name": "data", "mountPath": "/opt/ml/model", "subPath": "model"} in node["volumeMounts"]


@pytest.mark.parametrize(
    ("image", "job", "words"),
    [
        (CPU, JobSpec(), ["python3"]),
        (CPU, JobSpec(instance_count=2), ["torchrun"]),
        (CPU, JobSpec(processes_per_host=2), ["torchrun"]),
        (CPU, JobSpec(launcher="mpirun", processes_per_host=2), ["mpirun", "-np", "2"]),
        (CPU, JobSpec(instance_count=2, launcher="script"), ["python3"]),
        (CPU, JobSpec(instance_count=2, distribution={}), ["python3"]),
        (CPU, JobSpec(instance_count=2, distribution={"torch_distributed": {"enabled": False}}), ["python3"]),
        (
            CPU,
            JobSpec(distribution={"mpi": {"enabled": True, "processes_per_host": 3}}),
            ["mpirun", "-np", "3"],
        ),
        (CPU, JobSpec(distribution={"Torchrun": {}}), ["torchrun"]),
        (TENSORFLOW, JobSpec(instance_count=2), ["python3"]),
    ],
)
def test_the_launcher_is_that_of_the_job_or_the_image(
    image: LaunchImage, job: JobSpec, words: list[str], catalog: Catalog
) -> None:
    assert container(image, job, catalog)["args"][: len(words)] == words


def test_tensorflow_on_two_hosts_gets_its_configuration(catalog: Catalog) -> None:
    node = container(TENSORFLOW, JobSpec(instance_count=2), catalog)

    assert "TF_CONFIG" in [item["name"] for item in node["env"]]


def test_code_of_the_job_is_a_config_map(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "src/nets").mkdir(parents=True)
    (tmp_path / "src/main.py").write_text("import nets\n")
    (tmp_path / "src/nets/__init__.py").write_text("")
    job = JobSpec(source_dir="src", entry_point="main.py")

    text, _ = cluster_job("kubernetes", replace(CPU, entry_point=""), job, catalog, "")

    config_map, manifest = yaml.safe_load_all(text)
    assert config_map["data"] == {"file-0": "import nets\n", "file-1": ""}
    assert manifest["spec"]["template"]["spec"]["containers"][0]["args"] == ["torchrun", *ARGUMENTS]


ARGUMENTS = ["--nproc_per_node=1", "--standalone", "--nnodes=1", "/opt/ml/code/main.py"]


@pytest.mark.parametrize(
    ("job", "mount"),
    [
        (JobSpec(source_dir="src", entry_point="main.py"), "{}/src:/opt/ml/code,"),
        (JobSpec(entry_point="src/main.py"), "{}/src/main.py:/opt/ml/code/main.py,"),
    ],
)
def test_code_of_the_job_is_mounted_by_slurm(
    job: JobSpec, mount: str, tmp_path: Path, catalog: Catalog
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.py").write_text("")

    text, _ = cluster_job("slurm", replace(CPU, entry_point=""), job, catalog, "")

    assert f"--container-mounts={mount.format(tmp_path)}" in text
    assert "/opt/ml/code/main.py" in text.splitlines()[-1]


def test_comments_say_what_the_cluster_needs(catalog: Catalog) -> None:
    job = JobSpec(inputs={"training": "s3://our-data/churn"}, role="arn:x", spot=True, origin="jobs.nightly")

    text, _ = cluster_job("kubernetes", CPU, job, catalog, "published\n2026-11-20")

    assert text.partition("---")[0] == (
        "# churn, published 2026-11-20; for Kubernetes\n"
        "# Start it with: kubectl create -f FILE\n"
        "# Missing settings come from jobs.nightly.\n"
        "# It needs the PersistentVolumeClaim churn-data, which gets `model` and `output`.\n"
        "# Channel training: copy s3://our-data/churn to the directory input/data/training there.\n"
        "# Not used, because only SageMaker has them: role, spot.\n"
    )


def test_names_are_valid_labels(catalog: Catalog) -> None:
    image = replace(CPU, name="PyTorch_2.13-" + 60 * "x")

    text, _ = cluster_job("kubernetes", image, JobSpec(instance_count=2), catalog, "")

    [name] = {manifest["metadata"]["name"] for manifest in yaml.safe_load_all(text)}
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(f"{name}-99") <= 63


MPI_ON_TWO = JobSpec(instance_count=2, launcher="mpirun")


@pytest.mark.parametrize(
    ("image", "job", "form", "message"),
    [
        (
            CPU,
            JobSpec(),
            "nomad",
            "error: unknown cluster `nomad`\n\nhint: use `kubernetes`, `kubeflow`, `hyperpod`, `slurm`\n",
        ),
        (
            CPU,
            JobSpec(groups=(Group("data", "ml.c5.large", 1),)),
            "slurm",
            "error: a job of a cluster has hosts of one type\n\n"
            "hint: replace `--group` by `--instance-type`\n",
        ),
        (
            PYTORCH,
            JobSpec(),
            "slurm",
            "error: `churn` is for GPUs, and the hosts are not known\n\n"
            "hint: set `--instance-type`, such as `p5.48xlarge`, which gives the number of GPUs\n",
        ),
        (
            PYTORCH,
            JobSpec(instance_type="x9.large"),
            "slurm",
            "error: the GPUs of `x9.large` are not known\n\n"
            "hint: use a type of recipes/components/instance\n",
        ),
        (
            CPU,
            MPI_ON_TWO,
            "kubernetes",
            "error: a Job of Kubernetes has no list of hosts for `mpirun`\n\n"
            "hint: use `--for kubeflow`, whose controller makes it, or one host\n",
        ),
        (
            replace(TENSORFLOW, versions={"tensorflow": "2.21.0", "horovod-nccl": "0.28.1"}),
            JobSpec(instance_count=2),
            "kubernetes",
            "error: a Job of Kubernetes has no list of hosts for `mpirun`\n\n"
            "hint: use `--for kubeflow`, whose controller makes it, or one host\n",
        ),
        (
            CPU,
            MPI_ON_TWO,
            "kubeflow",
            "error: `mpirun` needs ssh on several hosts, but `churn` has no component `sshd`\n\n"
            "hint: add the component `sshd`, or use one host\n",
        ),
        (
            TENSORFLOW,
            JobSpec(launcher="mpirun"),
            "hyperpod",
            "error: HyperPod's training operator starts PyTorch as torchrun does, not `mpirun`\n\n"
            "hint: set `launcher: torchrun` in a job file, or use `--for kubernetes`\n",
        ),
        (
            CPU,
            JobSpec(distribution={"smdistributed": {"dataparallel": {"enabled": True}}}),
            "slurm",
            "error: only SageMaker starts the strategy `smdistributed`\n\n"
            "hint: use `torch_distributed`, `mpi` or `multi_worker_mirrored_strategy`, or `bake launch`\n",
        ),
        (
            CPU,
            JobSpec(distribution={"mpi": {"enabled": True, "custom_mpi_options": "-x A"}}),
            "slurm",
            "error: jobs of clusters have no `mpi.custom_mpi_options`\n\n"
            "hint: remove it, or use `bake launch`\n",
        ),
        (
            CPU,
            JobSpec(distribution={"mpi": {"enabled": True, "processes_per_host": 0}}),
            "slurm",
            "error: `mpi` has 0 ranks on each host\n\nhint: use a number of at least 1\n",
        ),
        (
            replace(CPU, components=frozenset({"smddp"})),
            JobSpec(),
            "slurm",
            "error: only SageMaker starts the library that `churn` was made for\n\n"
            "hint: use `bake launch`, or set `launcher: torchrun` in a job file\n",
        ),
        (
            TENSORFLOW,
            JobSpec(launcher="torchrun"),
            "slurm",
            "error: `churn` can't start a job with `torchrun`\n\nhint: use `mpirun`\n",
        ),
        (
            CPU,
            JobSpec(launcher="tensorflow"),
            "slurm",
            "error: `churn` has no TensorFlow\n\nhint: use `mpirun`, `torchrun`, `script`\n",
        ),
        (
            CPU,
            JobSpec(launcher="script", processes_per_host=2),
            "slurm",
            "error: `script` starts one process on each host\n\n"
            "hint: use `processes_per_host` with a launcher\n",
        ),
        (
            replace(CPU, neuron_architecture="2"),
            JobSpec(),
            "slurm",
            "error: `churn` is for Neuron devices, which jobs of clusters do not request yet\n\n"
            "hint: use `bake launch`\n",
        ),
        (
            replace(CPU, entry_point="run.sh"),
            JobSpec(),
            "slurm",
            "error: `run.sh` is not a Python script\n\nhint: jobs of clusters start Python scripts only\n",
        ),
        (
            CPU,
            JobSpec(source_dir="src"),
            "slurm",
            "error: `churn` contains its own code, `train.py`, so no other code is sent\n\n"
            "hint: remove `--entry-point` and `--source-dir`\n",
        ),
        (
            replace(CPU, entry_point=""),
            JobSpec(source_dir="s3://code/sourcedir.tar.gz"),
            "slurm",
            "error: a cluster does not unpack archives in S3\n\nhint: set `--source-dir` to a directory\n",
        ),
        (
            replace(CPU, entry_point=""),
            JobSpec(),
            "slurm",
            "error: `churn` contains no script, and `train.py` does not exist\n\n"
            "hint: set `--source-dir` and `--entry-point`, or `code` in the recipe\n",
        ),
    ],
)
def test_what_a_form_cannot_express_is_an_error(
    image: LaunchImage, job: JobSpec, form: str, message: str, catalog: Catalog
) -> None:
    assert refusal(image, job, catalog, form) == message


def test_an_image_for_other_gpus_is_an_error(catalog: Catalog) -> None:
    image = replace(PYTORCH, gpu_architecture=">=7,<9")

    assert refusal(image, P5, catalog).startswith(
        "error: `churn` supports GPU architectures >=7,<9, but `ml.p5.48xlarge` has 9.0\n"
    )


def test_more_ranks_than_gpus_are_an_error(catalog: Catalog) -> None:
    assert refusal(PYTORCH, replace(P5, processes_per_host=9), catalog).startswith(
        "error: `processes_per_host` is 9, but `ml.p5.48xlarge` has 8 GPUs\n"
    )


def test_names_of_variables_that_no_shell_takes_are_an_error(catalog: Catalog) -> None:
    assert refusal(CPU, JobSpec(environment={"A-B": "1"}), catalog, "slurm").startswith(
        "error: `A-B` is not a valid name of an environment variable\n"
    )


@pytest.mark.parametrize(
    ("files", "job", "message"),
    [
        (
            ("src/train.py", "src/requirements.txt"),
            JobSpec(source_dir="src"),
            "error: `src/requirements.txt` would not be installed\n\n"
            "hint: name it in `requirements` of the recipe, so that the image has the packages\n",
        ),
        (
            ("src/main.py",),
            JobSpec(source_dir="src"),
            "error: `src` does not contain `train.py`\n\n"
            "hint: set `--entry-point` to a file of `--source-dir`\n",
        ),
    ],
)
def test_code_that_would_not_run_is_an_error(
    files: tuple[str, ...], job: JobSpec, message: str, tmp_path: Path, catalog: Catalog
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    assert refusal(replace(CPU, entry_point=""), job, catalog) == message


def test_paths_that_pyxis_cannot_mount_are_refused(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "a,b").mkdir()
    (tmp_path / "a,b/train.py").write_text("")

    assert refusal(replace(CPU, entry_point=""), JobSpec(source_dir="a,b"), catalog, "slurm") == (
        f"error: the path `{tmp_path}/a,b` has a comma or colon, which pyxis does not mount\n\n"
        "hint: move the code\n"
    )


@pytest.fixture
def released(tmp_path: Path) -> str:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    record = replace(a_record(), launchers=("mpirun",), entry_point="train.py")
    put(tmp_path, record)
    return record.image_uri


@pytest.mark.parametrize("form", [form for form in FORMS if form != "hyperpod"])
def test_estimator_prints_the_job_of_a_release(
    form: str, released: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(("estimator", "mpi-cpu", "--for", form)) == 0

    text = capsys.readouterr().out
    assert released.partition("@")[2] in text
    assert text.splitlines()[0 if form != "slurm" else 1].endswith(f"; for {FORMS[form]}")


def test_a_form_has_no_sdk(released: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(("estimator", "mpi-cpu", "--for", "slurm", "--sdk", "v2")) == 64
    assert capsys.readouterr().err == (
        "error: `--for` cannot be combined with `--sdk`\n\nhint: remove one of them\n"
    )


def test_a_shell_exports_the_variable_of_each_channel_that_the_api_allows(
    catalog: Catalog, tmp_path: Path
) -> None:
    pairs = ["".join(pair) for pair in itertools.product("aZ9._-", repeat=2)]
    names = {pair.lower(): pair for pair in pairs if pair.strip(".")}
    own = {re.sub("[._-]", "_", name): name for name in (*names.values(), "val-set", "0.5")}
    job = replace(P5, inputs={name: f"s3://bucket/{name}" for name in own.values()})
    script, _ = cluster_job("slurm", PYTORCH, job, catalog, "released")
    exports = [line for line in script.splitlines() if line.startswith("export SM_CHANNEL_")]
    check = "\n".join(["set -eu", *exports, "env"])
    shell = subprocess.run(["bash", "-c", check], capture_output=True, text=True)

    assert (shell.returncode, shell.stderr) == (0, "")
    assert len(exports) == len(own) > 15
    assert "SM_CHANNEL_VAL_SET=/opt/ml/input/data/val-set\n" in shell.stdout
    assert "the directory input/data/val-set there. Its variable is SM_CHANNEL_VAL_SET.\n" in script


def test_two_channels_with_one_variable_are_refused(catalog: Catalog) -> None:
    job = replace(P5, inputs={"val-set": "s3://a/b", "val.set": "s3://a/c"})
    assert refusal(PYTORCH, job, catalog, "slurm").startswith(
        "error: the channels `val-set` and `val.set` have the same variable, `SM_CHANNEL_VAL_SET`\n"
    )


def test_torchrun_on_a_cluster_ends_at_an_abbreviation(catalog: Catalog) -> None:
    image = replace(PYTORCH, versions={**PYTORCH.versions, "python": "3.11"})
    job = replace(P5, launcher="torchrun", hyperparameters={"max": 3, "n": 4})
    assert refusal(image, job, catalog, "kubeflow").startswith(
        "error: torchrun ends at `--max`, the name of the hyperparameter `max`, because it could mean "
        "its own `--max_restarts` or `--max-restarts`\n"
    )
    cluster_job("kubeflow", image, replace(job, hyperparameters={"n": 4}), catalog, "released")
