"""`bake validate`: jobs with images that are not released, with URIs, and from files."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.recipe import Content, Recipe
from bakehouse.catalog.run_steps import RunStep
from bakehouse.catalog.system_packages import SystemPackages
from bakehouse.cluster.job import Group
from bakehouse.errors import UsageError
from bakehouse.jobs import job_check
from bakehouse.jobs.given_job import read_job
from bakehouse.jobs.job_images import find_image, planned_image
from bakehouse.jobs.job_spec import CheckedJob, JobSpec, check_job
from bakehouse.jobs.training_request import LaunchImage, launch_image
from bakehouse.ledger.releases import ReleasedComponent, ReleasedName, ReleaseRecord, append
from bakehouse.plan.workspace import Workspace, open_workspace, select
from tests.support.catalogs import own_file
from tests.support.errors import refusal
from tests.support.launch_cases import PYTORCH, TENSORFLOW
from tests.support.release_records import a_record

AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
COMPILER = f"{AWS}/pytorch-trcomp-training:1.13.1-gpu-py39-cu117-ubuntu20.04-sagemaker"
SMP = "pytorch-1.10-cu113-py38-smp"
ON = {"enabled": True}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    directory = tmp_path_factory.mktemp("project")
    (directory / "pyproject.toml").write_text("[tool.bakehouse]\n")
    return open_workspace(directory)


def check(workspace: Workspace, image: str = "", job: JobSpec | None = None, file: str = "") -> CheckedJob:
    """Check a job as `bake validate IMAGE --job FILE` does."""
    return job_check.check_settings(workspace, read_job(workspace, image, file, job or JobSpec()))


def names(result: CheckedJob) -> list[str]:
    return [finding.rule.name for finding in result.findings]


def in_file(directory: Path, content: object) -> str:
    path = directory / "job.json"
    path.write_text(json.dumps(content))
    return str(path)


def refused(workspace: Workspace, image: str = "", job: JobSpec | None = None, file: str = "") -> str:
    return refusal(UsageError, check, workspace, image, job, file).strip()


def test_an_image_without_a_release_is_checked(workspace: Workspace) -> None:
    result = check(workspace, "pytorch-cpu", JobSpec(instance_type="ml.c5.2xlarge"))

    assert result.findings == ()
    assert (result.title, result.image and result.image.uri) == ("pytorch-cpu", "")


def test_the_parts_of_the_recipe_count(workspace: Workspace) -> None:
    """SMP 1.7 calls it `pipeline_parallel_degree`; its libfabric ignores what AWS's guide sets on P3dn."""
    library = {"modelparallel": {**ON, "parameters": {"pipeline_parallel_degree": 4}}}
    options = "-x FI_EFA_USE_DEVICE_RDMA=1 -x FI_PROVIDER=efa -x RDMAV_FORK_SAFE=1"
    mpi = {**ON, "processes_per_host": 8, "custom_mpi_options": options}
    job = JobSpec(instance_type="ml.p3dn.24xlarge", distribution={"smdistributed": library, "mpi": mpi})

    assert names(check(workspace, SMP, job)) == ["rdma-ignored"]
    result = check(workspace, "mpi-cpu", job)
    assert names(result)[:2] == ["rdma-not-there", "launcher-not-there"]
    assert result.findings[1].rule.source == "the recipe of the image"


def test_the_uri_of_an_image_of_aws(workspace: Workspace) -> None:
    job = JobSpec(instance_type="ml.p3.16xlarge", instance_count=2, distribution={"torch_distributed": ON})
    result = check(workspace, COMPILER, job)

    assert names(result) == ["launcher-not-there", "efa-unused"]
    assert result.findings[0].rule.source == "the base in recipes/components"
    assert result.image is not None
    assert (result.image.framework, result.image.versions["libfabric"]) == ("pytorch", "1.16.0")


def test_the_uri_of_an_unknown_image(workspace: Workspace) -> None:
    job = JobSpec(instance_type="ml.p4d.24xlarge", launcher="torchrun")
    [finding] = check(workspace, "ghcr.io/ada/churn:1", job).findings

    assert (finding.message, finding.hint, finding.is_error) == (
        "the content of `ghcr.io/ada/churn:1` is unknown, so only the settings are checked",
        "use the URI of a release of this project, or of a base in the catalogue",
        False,
    )
    assert refused(workspace, "ghcr.io/ada/churn:1", replace(job, launcher="mpi")) == (
        "error: unknown launcher `mpi`\n\nhint: use `torchrun`, `mpirun`, `tensorflow`, `script`"
    )


LAUNCHERS = ("", "torchrun", "mpirun", "tensorflow", "script")
SIMPLE = ("mpi", "torch_distributed", "pytorchddp", "Torchrun", "MPI", "parameter_server")
STRATEGIES: tuple[Any, ...] = (
    *({name: ON} for name in (*SIMPLE, "multi_worker_mirrored_strategy")),
    {"smdistributed": {"dataparallel": ON}},
    {"smdistributed": {"modelparallel": {**ON, "parameters": {}}}, "torch_distributed": ON},
)


def test_no_rule_refuses_a_job_for_what_an_unknown_image_may_have(workspace: Workspace) -> None:
    unknown = LaunchImage("ghcr.io/ada/churn:1", "ghcr.io/ada/churn:1", is_known=False)
    newer = {**TENSORFLOW.versions, "smp": "2.8.0", "tensorflow": "2.15.1"}
    known = (PYTORCH, TENSORFLOW, replace(PYTORCH, gpu=False), replace(TENSORFLOW, versions=newer, gpu=False))
    settings: list[Any] = [{"launcher": name} for name in LAUNCHERS]
    settings += ({"distribution": strategies} for strategies in STRATEGIES)
    types = ("ml.c5.xlarge", "ml.p4d.24xlarge", "ml.trn1.32xlarge")

    def answer(image: LaunchImage, job: JobSpec) -> set[str]:
        try:
            return {finding.message for finding in check_job(image, job, workspace.catalog).errors}
        except UsageError as error:
            return {error.diagnostics[0].message}

    for setting, name, sdk in product(settings, types, ("", "v2", "v3")):
        job = JobSpec(instance_type=name, instance_count=2, sdk=sdk, **setting)
        # One image that the job is valid for shows that its settings alone are valid
        if any(not answer(image, job) for image in known):
            assert not answer(unknown, job), job


def test_the_uri_of_a_release(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.bakehouse]\n")
    project = open_workspace(tmp_path)
    record = a_record()
    path = project.project.images / record.image / "releases.json"
    path.parent.mkdir(parents=True)
    append(path, record, tmp_path / "locks")
    by_tag = f"{record.registry}/{record.repository}:{record.tags[0]}"

    for uri in (record.image_uri, by_tag):
        result = check(project, uri, JobSpec(instance_type="ml.c5.2xlarge"))
        assert result.title == record.image


@pytest.mark.parametrize(
    ("image", "rules"),
    [
        ("pytorch-cu130", ["efa-unused"]),
        ("pytorch-2.9-cu128-py312-efa", []),
        (f"{AWS}/pytorch-training:2.9.0-gpu-py312-cu130-ubuntu22.04-sagemaker", []),
        (f"{AWS}/pytorch-training:1.9.0-gpu-py38-cu111-ubuntu20.04", ["efa-not-known"]),
    ],
)
def test_nccl_uses_efa_of_two_hosts(workspace: Workspace, image: str, rules: list[str]) -> None:
    job = JobSpec(instance_type="ml.p4d.24xlarge", instance_count=2, launcher="torchrun", sdk="v2")

    assert [name for name in names(check(workspace, image, job)) if name.startswith("efa-")] == rules


STEP = Content(run=(RunStep("/opt/aws-efa-installer/efa_installer.sh -y"),))
FILE = Content(files=(own_file("/opt/amazon/efa/lib/libfabric.so.1"),))
OTHER = Content(
    SystemPackages(apt=("libgomp1",)), code=FILE.files, entry_point="train.py", environment=(("A", "b"),)
)


@pytest.mark.parametrize(
    ("content", "rule"),
    [(STEP, "efa-not-known"), (FILE, "efa-not-known"), (OTHER, "efa-unused")],
    ids=["a step", "a file", "other content"],
)
def test_steps_and_files_of_a_recipe_can_add_efa(workspace: Workspace, content: Content, rule: str) -> None:
    [image] = select(workspace, ["pytorch-cu130"]).plan.images
    image = replace(image, content=content)
    job = JobSpec(instance_type="ml.p4d.24xlarge", instance_count=2, launcher="torchrun", sdk="v2")
    checked = check_job(planned_image(image, workspace.catalog), job, workspace.catalog)

    assert [name for name in names(checked) if name.startswith("efa-")] == [rule]


def test_the_release_says_whether_an_image_has_efa(workspace: Workspace) -> None:
    parts = (ReleasedComponent("debian", "12", ""), ReleasedComponent("open-mpi", "4.1.8", "py311"))
    record = replace(a_record(), gpu=True, parts=parts, provides=(ReleasedName("glibc", "2.36"),))
    own_base = (ReleasedComponent("our-base", "1", ""), *parts[1:])
    fabric = tuple(ReleasedName(name, "2.0.0") for name in ("efa", "libfabric", "aws-ofi-nccl"))
    job = JobSpec(instance_type="ml.p4d.24xlarge", instance_count=2, launcher="mpirun", sdk="v2")
    known = workspace.recipes["pytorch-cu130"]

    def rules_of(record: ReleaseRecord, recipe: Recipe | None = known) -> list[str]:
        image = launch_image(record, workspace.catalog, recipe)
        found = names(check_job(image, job, workspace.catalog))
        return [name for name in found if name in ("efa-unused", "efa-not-known")]

    assert rules_of(record) == ["efa-unused"]
    assert rules_of(replace(record, provides=fabric)) == []
    assert rules_of(replace(record, provides=())) == ["efa-not-known"]
    assert rules_of(replace(record, parts=own_base)) == ["efa-not-known"]
    assert rules_of(record, replace(known, content=STEP)) == ["efa-not-known"]
    assert rules_of(record, None) == ["efa-not-known"]


@pytest.mark.parametrize(
    ("image", "job", "file", "message"),
    [
        (
            "",
            JobSpec(),
            "",
            "error: `validate` needs an image\n\n"
            "hint: name one, or set `image` in the job file; `--job` also takes a CreateTrainingJob request",
        ),
        (
            "pytorch-cpu",
            JobSpec(sdk="boto3"),
            "",
            "error: `--sdk boto3` has no settings of its own to check\n\n"
            "hint: save the request as JSON, and run `bake validate --job request.json`",
        ),
        (
            "some.example/image:1",
            JobSpec(sdk="v3", launcher="tensorflow", instance_count=2),
            "",
            "error: SDK v3 does not set TF_CONFIG, which MultiWorkerMirroredStrategy needs on several hosts"
            "\n\n"
            "hint: use `--sdk v2`, `--sdk boto3` or `launcher: mpirun` in a job file",
        ),
        (
            "pytorch-cp",
            JobSpec(),
            "",
            "error: unknown image `pytorch-cp`\n\nhint: did you mean `pytorch-cpu`?",
        ),
        (
            "",
            JobSpec(),
            "missing.json",
            "error: cannot read `missing.json`: no such file or directory\n\n"
            "hint: set `--job` to a YAML or JSON file",
        ),
    ],
)
def test_what_cannot_be_checked_is_refused(
    workspace: Workspace, image: str, job: JobSpec, file: str, message: str
) -> None:
    assert refused(workspace, image, job, file) == message


def test_one_image_is_checked(workspace: Workspace) -> None:
    images = sorted(name for name in workspace.recipes if name.startswith("pytorch-1."))

    assert refused(workspace, "pytorch-1.*") == (
        f"error: `pytorch-1.*` names {len(images)} images\n\nhint: name one of them, such as `{images[-1]}`"
    )


ESTIMATOR: dict[str, Any] = {
    "entry_point": "train.py",
    "role": "arn:aws:iam::123456789012:role/SageMakerRole",
    "image_uri": "ghcr.io/ada/churn:1",
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 2,
    "distribution": {"smdistributed": {"dataparallel": ON}},
}


def test_arguments_of_an_estimator(workspace: Workspace, tmp_path: Path) -> None:
    result = check(workspace, "", JobSpec(), in_file(tmp_path, ESTIMATOR))
    assert names(result) == ["efa-not-known", "image-unknown"]

    mistaken = {**ESTIMATOR, "instance_type": "ml.g4dn.12xlarge", "instance_cont": 2}
    result = check(workspace, "", JobSpec(), in_file(tmp_path, mistaken))
    assert [(finding.rule.name, finding.message, finding.hint) for finding in result.findings[:1]] == [
        ("unknown-argument", "`instance_cont` is unknown", "did you mean `instance_count`?")
    ]
    assert names(result) == ["unknown-argument", "smddp-instance", "efa-not-known", "image-unknown"]


def test_an_image_replaces_the_one_in_the_file(workspace: Workspace, tmp_path: Path) -> None:
    content = {**ESTIMATOR, "distribution": {"torch_distributed": ON}}
    result = check(workspace, "mpi-cpu", JobSpec(), in_file(tmp_path, content))

    assert result.title == "mpi-cpu"
    assert names(result) == ["launcher-not-there", "gpu-unused"]


def test_groups_and_channels_of_an_estimator(workspace: Workspace, tmp_path: Path) -> None:
    groups = [
        {"instance_group_name": "data", "instance_type": "ml.c5.18xlarge", "instance_count": 2},
        {"instance_group_name": "train", "instance_type": "ml.p4d.24xlarge", "instance_count": 1},
    ]
    content = {
        "class": "TensorFlow",
        "framework_version": "2.5.1",
        "py_version": "py37",
        "entry_point": "train.py",
        "instance_groups": groups,
        "inputs": {"training": {"s3_data": "s3://our-data/flowers", "instance_groups": ["trian"]}},
    }
    result = check(workspace, "", JobSpec(), in_file(tmp_path, content))

    assert (result.title, names(result)) == ("image of AWS", ["groups-framework", "groups-channels"])


def test_arguments_of_a_model_trainer(workspace: Workspace, tmp_path: Path) -> None:
    content = {
        "training_image": "ghcr.io/ada/churn:1",
        "compute": {"instance_type": "ml.p4d.24xlarge", "instance_count": 1},
        "source_code": {"source_dir": "src", "entry_script": "train.py"},
        "distributed": {"Torchrun": {"smp": {"hybrid_shard_degree": 16}}},
    }
    result = check(workspace, "", JobSpec(), in_file(tmp_path, content))

    assert [finding.message for finding in result.findings if finding.is_error] == [
        "`distributed.Torchrun.smp.hybrid_shard_degree` is 16, but the job has 8 ranks"
    ]


def test_files_that_the_sdk_uploads_are_warnings(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", ".git/config", "venv/pyvenv.cfg", "runs/a.ckpt", "runs/b.ckpt"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).touch()
    (tmp_path / "src/.dockerignore").write_text("**/*.ckpt\n")
    (tmp_path / "src/.env").write_text("A=b\n")
    (tmp_path / "src/token.py").write_text("\nTOKEN = 'ghp_" + 36 * "a" + "'\n")
    job = JobSpec(source_dir="src", instance_type="ml.c5.xlarge")
    token = "the SDK uploads `src`, in which `token.py` contains a GitHub token on line 2"

    def messages(job: JobSpec | None = None, content: object = None) -> list[str]:
        image, file = ("", in_file(tmp_path, content)) if content else ("pytorch-cpu", "")
        result = check(workspace, image, job or JobSpec(), file)
        return [each.message for each in result.findings if each.rule.name == "uploaded-files"]

    assert messages(replace(job, sdk="v2")) == [
        "the SDK also uploads `src/.git/`, `src/runs/a.ckpt`, `src/runs/b.ckpt` and 1 more",
        "the SDK uploads `src`, in which `.env` contains environment variables, "
        "which usually include secrets on line 1",
        token,
    ]
    ignored = ["the SDK also uploads `src/runs/a.ckpt`, `src/runs/b.ckpt`, `src/venv/`", token]
    assert messages(job) == ignored
    trainer: dict[str, Any] = {
        "training_image": "ghcr.io/ada/churn:1",
        "compute": {"instance_type": "ml.c5.xlarge", "instance_count": 1},
        "source_code": {"source_dir": "src", "entry_script": "train.py"},
    }
    assert messages(content=trainer) == ignored
    trainer["source_code"]["ignore_patterns"] = ["*.ckpt", "venv", ".*", "token.py"]
    assert messages(content=trainer) == []
    assert messages(content={**ESTIMATOR, "source_dir": "src"}) == messages(replace(job, sdk="v2"))


REQUEST: dict[str, Any] = {
    "TrainingJobName": "churn",
    "RoleArn": "arn:aws:iam::123456789012:role/SageMakerRole",
    "AlgorithmSpecification": {"TrainingImage": COMPILER, "TrainingInputMode": "File"},
    "HyperParameters": {
        "sagemaker_program": "train.py",
        "sagemaker_submit_directory": "s3://our-code/sourcedir.tar.gz",
        "sagemaker_mpi_enabled": "true",
        "sagemaker_distribution_instance_groups": '["train"]',
    },
    "ResourceConfig": {
        "InstanceGroups": [
            {"InstanceGroupName": "data", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 1},
            {"InstanceGroupName": "train", "InstanceType": "ml.p3.16xlarge", "InstanceCount": 2},
        ],
        "VolumeSizeInGB": 30,
    },
    "OutputDataConfig": {"S3OutputPath": "s3://our-models/"},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}


def test_a_request_of_the_api(workspace: Workspace, tmp_path: Path) -> None:
    assert names(check(workspace, "", JobSpec(), in_file(tmp_path, REQUEST))) == ["efa-unused"]

    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://our-data/", "InstanceGroupNames": ["trian"]}
    channel = {"ChannelName": "training", "DataSource": {"S3DataSource": source}}
    options = {"sagemaker_mpi_custom_mpi_options": '"--mca pml ob1"'}
    content = {
        **REQUEST,
        "InputDataConfig": [channel],
        "HyperParameters": {**REQUEST["HyperParameters"], **options},
    }
    del content["RoleArn"]
    result = check(workspace, "", JobSpec(), in_file(tmp_path, content))
    assert [finding.message for finding in result.findings if finding.is_error] == [
        'missing required parameter in input: "RoleArn"',
        "`distribution.mpi.custom_mpi_options` sets `pml`, which the toolkit always sets to `ob1`",
        "channel `training` names `trian`, which is not a group of this job",
    ]


def test_each_limit_of_a_request_is_reported_once(workspace: Workspace, tmp_path: Path) -> None:
    content = {
        **REQUEST,
        "StoppingCondition": {"MaxRuntimeInSeconds": 0},
        "Tags": [{"Key": "", "Value": 1}],
        "HyperParameters": {"a" * 257: "b"},
    }
    result = check(workspace, "", JobSpec(), in_file(tmp_path, content))
    assert [
        finding.message for finding in result.findings if finding.rule.name in ("request", "api-field")
    ] == [
        "invalid type for parameter Tags[0].Value, value: 1, type: <class 'int'>, valid types: <class 'str'>",
        "`HyperParameters (name)` has 257 characters",
        "`StoppingCondition.MaxRuntimeInSeconds` is 0",
        "`Tags[0].Key` has 0 characters",
    ]


@pytest.mark.parametrize("sdk", ["", "v2", "boto3"])
def test_the_default_launcher_of_tensorflow_suits_groups(workspace: Workspace, sdk: str) -> None:
    groups = (Group("data", "ml.c5n.18xlarge", 1), Group("train", "ml.p4d.24xlarge", 2))
    image = find_image(workspace, "tensorflow-2.21-cu129-py312-data-service")
    result = check_job(
        image, JobSpec(groups=groups, sdk=sdk, role="arn:aws:iam::123456789012:role/R"), workspace.catalog
    )
    assert result.errors == ()
    assert result.request.distribution == {"mpi": ON, "instance_groups": ["train"]}


def test_a_request_may_prefer_instance_types(workspace: Workspace, tmp_path: Path) -> None:
    preferences = [{"InstanceType": "ml.p3.16xlarge", "InstanceCount": 2}]
    content = {
        **REQUEST,
        "ResourceConfig": {"InstancePreferences": preferences, "VolumeSizeInGB": 30},
        "HyperParameters": {"sagemaker_program": "train.py"},
    }
    result = check(workspace, "", JobSpec(), in_file(tmp_path, content))
    assert result.errors == ()
    assert [group.count for group in result.request.groups] == [2]


@pytest.mark.parametrize(
    ("hyperparameters", "rules"),
    [
        ({"sagemaker_torch_distributed_enabled": "true"}, ["launcher-not-there", "efa-unused"]),
        ({"sagemaker_parameter_server_enabled": "true"}, ["framework", "launcher-not-there"]),
        (
            {"sagemaker_distributed_dataparallel_enabled": "true"},
            ["smddp-instance", "launcher-not-there", "efa-unused"],
        ),
        (
            {"sagemaker_mpi_enabled": "true", "mp_parameters": "{}"},
            ["smp-required"] * 2 + ["launcher-not-there", "efa-unused"],
        ),
    ],
)
def test_the_launcher_of_a_request(
    workspace: Workspace, tmp_path: Path, hyperparameters: dict[str, str], rules: list[str]
) -> None:
    resources = {"InstanceType": "ml.p3.8xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30}
    content = {**REQUEST, "ResourceConfig": resources, "HyperParameters": hyperparameters}

    assert names(check(workspace, "", JobSpec(), in_file(tmp_path, content))) == rules


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "`{}` is not a mapping"),
        ({"environment": {"A": 1}}, "`environment.A` must be a text"),
        ({**ESTIMATOR, "instance_count": "2"}, "`instance_count` in `{}` must be a whole number"),
        ({**ESTIMATOR, "distribution": "mpi"}, "`distribution` in `{}` must be a mapping"),
        ({**ESTIMATOR, "environment": {"A": 1}}, "`A` in `{}` must be a string"),
        ({"instance_groups": ["train"]}, "`instance_groups` in `{}` must be a list of mappings"),
        ({"inputs": {"train": {"instance_groups": 5}}}, "`instance_groups` in `{}` must be a list"),
        ({**REQUEST, "InputDataConfig": 5}, "`InputDataConfig` in `{}` must be a list"),
        (
            {**REQUEST, "InputDataConfig": [{"DataSource": {"S3DataSource": {"InstanceGroupNames": 5}}}]},
            "`InstanceGroupNames` in `{}` must be a list",
        ),
        ({"class": "Pytorch"}, "`class` in `{}` is `Pytorch`, which Bakehouse does not know"),
        ({"class": "XGBoost"}, "`class` in `{}` is `XGBoost`, which Bakehouse does not know"),
    ],
)
def test_values_of_wrong_types_are_refused(
    workspace: Workspace, tmp_path: Path, content: object, message: str
) -> None:
    path = in_file(tmp_path, content)

    assert refused(workspace, file=path).startswith("error: " + message.format(path))


def test_a_channel_without_groups_may_be_null(workspace: Workspace, tmp_path: Path) -> None:
    content = {**ESTIMATOR, "inputs": {"train": {"instance_groups": None}}}
    without = in_file(tmp_path, ESTIMATOR)
    expected = names(check(workspace, "", JobSpec(), without))
    assert names(check(workspace, "", JobSpec(), in_file(tmp_path, content))) == expected


def test_a_file_that_is_not_json(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text("{'a': 1}")

    assert refused(workspace, file=str(path)).startswith(f"error: `{path}` is not valid JSON: ")


def test_flags_and_oci_manifests_are_warnings(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("p.add_argument('--amp', action='store_true')\n")
    job = JobSpec(source_dir="src", instance_type="ml.c5.2xlarge", hyperparameters={"amp": True, "lr": 1})
    assert names(check(workspace, "pytorch-cpu", job)) == ["flag-with-a-value"]
    assert names(check(workspace, "pytorch-cpu", replace(job, hyperparameters={"lr": 1}))) == []

    image = replace(find_image(workspace, "pytorch-cpu"), is_oci=True)
    [finding] = check_job(image, JobSpec(instance_type="ml.c5.2xlarge")).warnings
    assert (finding.message, finding.hint, finding.rule.source) == (
        "`pytorch-cpu` has an OCI manifest, which endpoints of SageMaker refuse",
        "set `format: docker` in the recipe, the default",
        "github.com/aws/amazon-sagemaker-feedback/issues/180",
    )
