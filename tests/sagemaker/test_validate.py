"""What is found of a job before it is sent; what the SDK finds of it is compared in tests/integration."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.instance_types import Instance, instances
from bakehouse.catalog.project import HOME
from bakehouse.publish.releases import ReleasedComponent
from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.findings import Rule
from bakehouse.sagemaker.instance_groups import InstanceGroup, instance_group
from bakehouse.sagemaker.training_request import LaunchImage, TrainingRequest, launch_image
from bakehouse.sagemaker.validate import check
from tests.publish.test_releases import a_record
from tests.support.launch_cases import BAKED, BARE, IMAGES, PYTORCH, TENSORFLOW

ON: Mapping[str, object] = {"enabled": True}
C5 = InstanceGroup("ml.c5.xlarge", 2, gpus=0, rdma_read=False, efa_interfaces=0)
A100 = InstanceGroup("ml.p4d.24xlarge", 2, gpus=8, rdma_read=True, efa_interfaces=4, gpu_architecture="8.0")
H200 = replace(A100, instance_type="ml.p5en.48xlarge", gpu_architecture="9.0")
G4 = replace(A100, instance_type="ml.g4dn.12xlarge", gpus=4, rdma_read=False, gpu_architecture="7.5")
GB200 = replace(A100, instance_type="ml.p6e-gb200.36xlarge", gpus=4, gpu_architecture="10.0")
TWO = (replace(C5, name="data"), replace(A100, name="train"))
TENSORFLOW_2_9 = replace(TENSORFLOW, versions={**TENSORFLOW.versions, "tensorflow": "2.9.1"})
SMP: Mapping[str, object] = {"smdistributed": {"modelparallel": ON}}


def request(*groups: InstanceGroup, **changes: Any) -> TrainingRequest:
    job = TrainingRequest(groups=groups or (A100,), distribution={"mpi": ON}, entry_point="train.py")
    return replace(job, **changes)


Case = tuple[Rule, TrainingRequest, LaunchImage | None, str, str]
CASES: dict[str, Case] = {
    "no toolkit for TensorFlow": (
        launch_rules.LAUNCHER,
        request(C5, sender="TensorFlow", distribution={"parameter_server": ON}, framework_version="2.9.1"),
        replace(PYTORCH, versions={}, gpu=False),
        "`parameter_server` needs the toolkit for TensorFlow, and `image` has none",
        "add the component `sagemaker-tensorflow-training`",
    ),
    "distribution swallowed": (
        launch_rules.SWALLOWED,
        request(sender="Estimator"),
        PYTORCH,
        "the generic Estimator drops `distribution`: one process would start on each host",
        "take the class PyTorch, or TensorFlow, with `image_uri`",
    ),
    "no image": (
        launch_rules.IMAGE_OR_VERSION,
        request(),
        None,
        "there is no image",
        "give `image_uri`, or a framework's version and Python's",
    ),
    "Python 2": (
        launch_rules.PYTHON_2,
        request(framework_version="2.0.1", py_version="py2"),
        None,
        "no image has Python 2",
        "write `py_version` as in `py311`",
    ),
    "SMDDP version": (
        launch_rules.SMDDP_VERSION,
        request(
            distribution={"smdistributed": {"dataparallel": ON}},
            framework_version="2.9.1",
            py_version="py311",
        ),
        None,
        "AWS has no image of PyTorch 2.9.1 with SMDDP",
        "the newest is 2.2.0",
    ),
    "torchrun on CPUs of AWS's": (
        launch_rules.TORCH_VERSION,
        request(C5, distribution={"torch_distributed": ON}, framework_version="2.8.0", py_version="py311"),
        None,
        "`torch_distributed` with an image of AWS's is for GPUs and Trainium, not for `ml.c5.xlarge`",
        "give an `image_uri`: the SDK asks nothing then",
    ),
    "torchrun of a PyTorch too new": (
        launch_rules.TORCH_VERSION,
        request(distribution={"torch_distributed": ON}, framework_version="2.9.1", py_version="py311"),
        None,
        "the SDK knows no image of PyTorch 2.9.1 for `torch_distributed` on `ml.p4d.24xlarge`",
        "the newest is 2.8.0",
    ),
    "an image without SMDDP": (
        launch_rules.SMD_IMAGE,
        request(distribution={**SMP, "mpi": ON}),
        IMAGES["smd"],
        "the SDK takes no `2.0.1-gpu-py310-cu121` with `smdistributed`",
        "",
    ),
    "mirrored without a version": (
        launch_rules.MIRRORED,
        request(sender="TensorFlow", distribution={"multi_worker_mirrored_strategy": ON}),
        TENSORFLOW,
        "`multi_worker_mirrored_strategy` needs `framework_version` beside `image_uri`",
        "the SDK asks whether it is 2.9 or newer",
    ),
    "groups and a type": (
        launch_rules.GROUPS_OR_TYPE,
        request(*TWO[1:], beside_groups="ml.c5.xlarge"),
        PYTORCH,
        "instance groups, and `ml.c5.xlarge` as the type of all instances",
        "leave `instance_type` and `instance_count` out",
    ),
    "groups in a warm pool": (
        launch_rules.GROUPS_WARM,
        request(*TWO[1:], keep_alive=600),
        PYTORCH,
        "instance groups, and a warm pool that they can't be kept in",
        "leave `keep_alive_period_in_seconds` out",
    ),
    "groups in local mode": (
        launch_rules.GROUPS_LOCAL,
        request(InstanceGroup("local", 1, "train")),
        PYTORCH,
        "local mode has no instance groups",
        "`./bake run --group` has",
    ),
    "two local GPUs": (
        launch_rules.LOCAL_GPU,
        request(InstanceGroup("local_gpu", 2)),
        PYTORCH,
        "2 instances of `local_gpu`",
        "there is one",
    ),
    "channels of groups": (
        launch_rules.GROUPS_CHANNELS,
        request(*TWO[1:], channels={"training": ("train",), "other": ()}),
        PYTORCH,
        "channel `training` is for a group, and `other` for no group",
        "say it of all channels, or of none",
    ),
    "no script": (
        launch_rules.NO_SCRIPT,
        request(entry_point=""),
        PYTORCH,
        "the class PyTorch needs an `entry_point`",
        "the generic Estimator needs none",
    ),
    "no script for the toolkit": (
        launch_rules.NO_SCRIPT,
        request(sender="Estimator", distribution={}, entry_point=""),
        PYTORCH,
        "there is no training script: `image` brings none",
        "give an `entry_point`",
    ),
    "a script in S3": (
        launch_rules.CODE,
        request(entry_point="s3://code/train.py"),
        PYTORCH,
        "`entry_point` is `s3://code/train.py`",
        "it is a file here, or in `source_dir`",
    ),
    "a script outside": (
        launch_rules.ENTRY_POINT,
        request(entry_point="../train.py", source_dir="code"),
        PYTORCH,
        "the toolkit starts no `../train.py`",
        "a path below `source_dir`, of letters, digits and `._+-`",
    ),
    "a script with a blank": (
        launch_rules.ENTRY_POINT,
        request(entry_point="my train.py"),
        PYTORCH,
        "the toolkit starts no `my train.py`",
        "a path below `source_dir`, of letters, digits and `._+-`",
    ),
    "a script outside for version 3": (
        launch_rules.ENTRY_POINT,
        request(sender="ModelTrainer", distribution={}, entry_point="/opt/train.py", source_dir="code"),
        PYTORCH,
        "`/opt/train.py` does not lie in `source_dir`",
        "a path below it",
    ),
    "code in the image": (
        launch_rules.CODE_BAKED,
        request(),
        BAKED,
        "`image` brings its own code at /opt/ml/code: what is sent is not unpacked",
        "take the generic Estimator, or SDK v3",
    ),
    "a source that is not said": (
        launch_rules.CODE,
        request(sender="ModelTrainer", distribution={}),
        PYTORCH,
        "`entry_script` without `source_dir`",
        "it is a path below that",
    ),
    "a command and a driver": (
        launch_rules.COMMAND_FIRST,
        request(sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code", command="ls"),
        PYTORCH,
        "a command takes the place of the drivers: `distributed` starts nothing",
        "leave one of them out",
    ),
    "many hyperparameters": (
        launch_rules.LIMITS,
        request(hyperparameters={str(number): 1 for number in range(101)}),
        PYTORCH,
        "hyperparameters, with the SDK's own: 106",
        "SageMaker takes 100",
    ),
    "many hyperparameters with the SDK's": (
        launch_rules.LIMITS,
        request(hyperparameters={str(number): 1 for number in range(96)}),
        PYTORCH,
        "hyperparameters, with the SDK's own: 101",
        "SageMaker takes 100",
    ),
    "a variable that is no name": (
        launch_rules.LIMITS,
        request(environment={"NCCL-DEBUG": "INFO"}),
        PYTORCH,
        "`NCCL-DEBUG` can't be the name of an environment variable",
        "letters, digits and `_`, no digit first",
    ),
    "a long hyperparameter": (
        launch_rules.LIMITS,
        request(hyperparameters={"a": "x" * 2499}),
        PYTORCH,
        "characters of hyperparameter `a`: 2501",
        "SageMaker takes 2500",
    ),
    "a long variable": (
        launch_rules.LIMITS,
        request(environment={"A": "x" * 513}),
        PYTORCH,
        "characters of variable `A`: 513",
        "SageMaker takes 512",
    ),
    "a long address": (
        launch_rules.LIMITS,
        request(),
        replace(PYTORCH, uri="x" * 256),
        "the image_uri of `image` has 256 characters",
        "SageMaker takes 255: publish it with a shorter `repository_prefix`",
    ),
    "a long warm pool": (
        launch_rules.KEEP_ALIVE,
        request(keep_alive=21601),
        PYTORCH,
        "a warm pool is kept for 21601 seconds",
        "0 to 21600",
    ),
    "a hyperparameter of the SDK's": (
        launch_rules.OVERWRITTEN,
        request(hyperparameters={"sagemaker_program": "a.py"}),
        PYTORCH,
        "hyperparameter `sagemaker_program` is the SDK's own: what is given by hand is lost",
        "leave it out",
    ),
    "a hyperparameter of the distribution's": (
        launch_rules.OVERWRITTEN,
        request(hyperparameters={"sagemaker_mpi_enabled": False}),
        PYTORCH,
        "hyperparameter `sagemaker_mpi_enabled` is given by hand, and by the distribution, whose value wins",
        "leave one of them out",
    ),
    "EFA on a type without": (
        launch_rules.EFA,
        request(C5, environment={"FI_PROVIDER": "efa"}),
        replace(PYTORCH, gpu=False),
        "`FI_PROVIDER=efa` is asked for, and `ml.c5.xlarge` has no EFA",
        "leave it out, or take a type that has EFA",
    ),
    "RDMA on a type without": (
        launch_rules.RDMA,
        request(G4, environment={"FI_EFA_USE_DEVICE_RDMA": "1"}),
        PYTORCH,
        "`environment` sets `FI_EFA_USE_DEVICE_RDMA`, and EFA on `ml.g4dn.12xlarge` reads no memory of other "
        "hosts",
        "leave it out on this type",
    ),
    "RDMA for mpirun on a type without": (
        launch_rules.RDMA,
        request(G4, distribution={"mpi": {**ON, "custom_mpi_options": "-x FI_EFA_USE_DEVICE_RDMA=1"}}),
        PYTORCH,
        "`distribution.mpi.custom_mpi_options` sets `FI_EFA_USE_DEVICE_RDMA`, and EFA on "
        "`ml.g4dn.12xlarge` reads no memory of other hosts",
        "leave it out on this type",
    ),
    "EFA that the toolkit does not set": (
        launch_rules.EFA_MISSING,
        request(H200),
        PYTORCH,
        "`ml.p5en.48xlarge` has EFA, and the toolkit doesn't set `FI_PROVIDER=efa` and "
        "`FI_EFA_USE_DEVICE_RDMA=1` there",
        'add it to the environment: `{"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}`',
    ),
    "RDMA that the toolkit does not set": (
        launch_rules.EFA_MISSING,
        request(H200, distribution={"mpi": {**ON, "custom_mpi_options": "-x FI_PROVIDER=efa"}}),
        PYTORCH,
        "`ml.p5en.48xlarge` has EFA, and the toolkit doesn't set `FI_EFA_USE_DEVICE_RDMA=1` there",
        'add it to the environment: `{"FI_EFA_USE_DEVICE_RDMA": "1"}`',
    ),
    "no mpirun": (
        launch_rules.LAUNCHER,
        request(),
        replace(PYTORCH, launchers=("torchrun",)),
        "`mpi` needs `mpirun`, and `image` has none",
        "it has `torchrun`",
    ),
    "no mpi4py for the driver": (
        launch_rules.DRIVER,
        request(replace(A100, count=1), sender="ModelTrainer", distribution={"MPI": {}}, source_dir="code"),
        replace(PYTORCH, versions={**PYTORCH.versions, "sshd": "9.2"}),
        "the SDK's MPI driver needs `mpi4py`, which no part of `image` is",
        "add the component `sagemaker-drivers`, or see that its base has them",
    ),
    "no torchrun": (
        launch_rules.LAUNCHER,
        request(distribution={"torch_distributed": ON}),
        replace(PYTORCH, launchers=("mpirun",)),
        "`torch_distributed` needs `torchrun`, and `image` has none",
        "it has `mpirun`",
    ),
    "no torchrun for the driver": (
        launch_rules.LAUNCHER,
        request(sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code"),
        BARE,
        "`Torchrun` needs `torchrun`, and `image` has none",
        "it has `mpirun`",
    ),
    "no toolkit for PyTorch": (
        launch_rules.LAUNCHER,
        request(distribution={"torch_distributed": ON}),
        replace(PYTORCH, training_module=""),
        "`torch_distributed` needs the toolkit for PyTorch, and `image` has none",
        "add the component `sagemaker-pytorch-training`",
    ),
    "no SMDDP": (
        launch_rules.LAUNCHER,
        request(distribution={"smdistributed": {"dataparallel": ON}}),
        replace(PYTORCH, versions={}),
        "`smdistributed.dataparallel` needs SMDDP, and `image` has none",
        "add the component `smddp`",
    ),
    "no SMP": (
        launch_rules.LAUNCHER,
        request(distribution={**SMP, "mpi": ON}),
        replace(PYTORCH, versions={}),
        "`smdistributed.modelparallel` needs SMP, and `image` has none",
        "take an image with `smp`, or on `aws-smp2`",
    ),
    "SMP 1 with torchrun": (
        launch_rules.SMP_LAUNCHER,
        request(distribution={**SMP, "torch_distributed": ON}),
        PYTORCH,
        "`torch_distributed` doesn't start SMP 1.15.0, which the image has",
        'add `"mpi": {"enabled": true}` instead',
    ),
    "SMP 2 with mpirun": (
        launch_rules.SMP_LAUNCHER,
        request(distribution={**SMP, "mpi": ON}),
        replace(PYTORCH, versions={**PYTORCH.versions, "smp": "2.7.0"}),
        "`mpi` doesn't start SMP 2.7.0, which the image has",
        'add `"torch_distributed": {"enabled": true}` instead',
    ),
    "partitions": (
        launch_rules.PARTITIONS,
        request(
            distribution={
                "smdistributed": {"modelparallel": {**ON, "parameters": {"partitions": 2}}},
                "mpi": ON,
            }
        ),
        PYTORCH,
        "`partitions` is no parameter of SMP 1.15.0 with PyTorch",
        "call it `pipeline_parallel_degree`",
    ),
    "Open MPI 5 of others": (
        launch_rules.OPEN_MPI_5,
        request(),
        BARE,
        "the toolkit starts ranks as Open MPI 4 does, and the image has 5.0.9",
        "add the component `open-mpi`, whose `mpirun` takes both",
    ),
    "a GPU too new": (
        launch_rules.HOST_NEEDS,
        request(H200, environment={"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}),
        IMAGES["up to A100"],
        "pytorch 1.13.1 (cu117) runs on GPU architectures <9, and `ml.p5en.48xlarge` has 9.0",
        "`./bake resolve image --assume instance=ml.p5en.48xlarge` shows what would fit",
    ),
    "a GPU that the release is not for": (
        launch_rules.HOST_NEEDS,
        request(replace(A100, instance_type="ml.p5.48xlarge", gpu_architecture="9.0")),
        replace(PYTORCH, gpu_architecture=">=7,<9"),
        "`image` has code for GPU architectures >=7,<9, and `ml.p5.48xlarge` has 9.0",
        "take a type whose GPUs it has code for",
    ),
    "an Arm processor": (
        launch_rules.PROCESSOR,
        request(GB200),
        PYTORCH,
        "`ml.p6e-gb200.36xlarge` has an Arm processor, and `image` is for x86",
        "take a type with a processor of Intel or AMD",
    ),
    "a mistyped instance type": (
        launch_rules.INSTANCE,
        request(instance_group({"ml.c5.xlarge": Instance("ml.c5.xlarge")}, "ml.c5.xlarg")),
        PYTORCH,
        "unknown instance type `ml.c5.xlarg`",
        "did you mean `ml.c5.xlarge`?",
    ),
    "a type like no other": (
        launch_rules.INSTANCE,
        request(instance_group({"ml.c5.xlarge": Instance("ml.c5.xlarge")}, "g5")),
        PYTORCH,
        "unknown instance type `g5`",
        "SageMaker's types are like `ml.g5.12xlarge`",
    ),
    "a local job of version 3": (
        launch_rules.LOCAL_V3,
        request(
            InstanceGroup("local"), sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code"
        ),
        PYTORCH,
        "a ModelTrainer of version 3 has no instance type `local`",
        "`./bake run` runs a job on this machine; the SDK does with `training_mode=Mode.LOCAL_CONTAINER`",
    ),
    "an image for GPUs without": (
        launch_rules.GPU,
        request(C5),
        PYTORCH,
        "`image` is for GPUs, and no instance of the job has one",
        "",
    ),
    "GPUs without an image for them": (
        launch_rules.GPU,
        request(),
        replace(PYTORCH, gpu=False),
        "the instances have GPUs, and `image` is for CPUs",
        "",
    ),
    "another version": (
        launch_rules.VERSION,
        request(framework_version="2.8.0"),
        PYTORCH,
        "`framework_version` is 2.8.0, and the image has pytorch 2.9.1",
        'write `framework_version="2.9.1"`',
    ),
    "the compiler with an image": (
        launch_rules.COMPILER,
        request(distribution={}, compiler=True),
        PYTORCH,
        "the class PyTorch takes no `image_uri` with a `compiler_config`",
        "give the hyperparameter `sagemaker_training_compiler_enabled` by hand",
    ),
    "the compiler on a type": (
        launch_rules.COMPILER,
        request(H200, sender="TensorFlow", distribution={}, framework_version="2.9.1", compiler=True),
        TENSORFLOW_2_9,
        "Training Compiler does not run on `ml.p5en.48xlarge`",
        "it runs on `p3`, `p3dn`, `g4dn`, `p4d`, `g5`",
    ),
    "the compiler in local mode": (
        launch_rules.COMPILER,
        request(
            InstanceGroup("local_gpu", 1),
            sender="TensorFlow",
            distribution={},
            framework_version="2.9.1",
            compiler=True,
        ),
        TENSORFLOW_2_9,
        "Training Compiler has no local mode",
        "",
    ),
    "the compiler in groups": (
        launch_rules.COMPILER,
        request(*TWO[1:], sender="TensorFlow", distribution={}, framework_version="2.9.1", compiler=False),
        TENSORFLOW_2_9,
        "Training Compiler takes no instance groups",
        "give an instance type and a count",
    ),
    "the compiler with SMDDP": (
        launch_rules.COMPILER,
        request(
            sender="TensorFlow",
            distribution={"smdistributed": {"dataparallel": ON}},
            framework_version="2.9.1",
            compiler=True,
        ),
        TENSORFLOW_2_9,
        "Training Compiler does not go with `smdistributed`",
        "leave one of them out",
    ),
    "the compiler with mirrored workers": (
        launch_rules.COMPILER,
        request(
            sender="TensorFlow",
            distribution={"multi_worker_mirrored_strategy": ON},
            framework_version="2.9.1",
            compiler=True,
        ),
        TENSORFLOW_2_9,
        "Training Compiler does not go with `multi_worker_mirrored_strategy`",
        "leave one of them out",
    ),
    "the compiler of a TensorFlow too new": (
        launch_rules.COMPILER,
        request(sender="TensorFlow", distribution={}, framework_version="2.21.0", compiler=True),
        TENSORFLOW,
        "Training Compiler does not run TensorFlow 2.21.0",
        "it runs 2.9 to 2.11",
    ),
    "the compiler of the generic class": (
        launch_rules.COMPILER,
        request(sender="Estimator", distribution={}, compiler=True),
        PYTORCH,
        "`Estimator` takes no `compiler_config`",
        "the classes PyTorch and TensorFlow do",
    ),
    "the compiler without XLA": (
        launch_rules.COMPILER,
        request(framework_version="1.13.1", py_version="py39", compiler=True),
        None,
        "`pytorchxla` is the only distribution of PyTorch 1.12 and newer with Training Compiler",
        'write `{"pytorchxla": {"enabled": true}}`',
    ),
    "the compiler with an old PyTorch": (
        launch_rules.COMPILER,
        request(distribution={}, framework_version="1.11.0", py_version="py38", compiler=True),
        None,
        "Training Compiler has no image for PyTorch 1.11.0",
        "there is one for `1.12.0`, `1.13.1`",
    ),
    "the compiler without EFA": (
        launch_rules.COMPILER_EFA,
        request(
            replace(A100, instance_type="ml.p3.2xlarge", efa_interfaces=0),
            distribution={"pytorchxla": ON},
            framework_version="1.13.1",
            py_version="py39",
            compiler=True,
        ),
        None,
        "Training Compiler's ranks talk through EFA, which the instances don't have",
        "take one of `ml.g4dn.12xlarge`, `ml.g4dn.8xlarge`, `ml.g5.48xlarge`, `ml.p3dn.24xlarge`, "
        "`ml.p4d.24xlarge`",
    ),
}


def told(request: TrainingRequest, image: LaunchImage | None) -> list[tuple[Rule, str, str]]:
    return [(one.rule, one.message, one.hint) for one in check(request, image)]


@pytest.mark.parametrize("name", CASES)
def test_what_is_found(name: str) -> None:
    rule, asked, image, message, hint = CASES[name]
    assert told(asked, image) == [(rule, message, hint)]


def test_a_job_as_it_should_be() -> None:
    assert check(request(), PYTORCH) == ()
    assert check(request(sender="TensorFlow", framework_version="2.21.0"), TENSORFLOW) == ()
    trainer = request(sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code")
    assert check(trainer, PYTORCH) == ()


def test_everything_is_found_at_once_and_errors_come_first() -> None:
    asked = request(H200, distribution={"mpi": {**ON, "processes_per_host": 16}}, keep_alive=-1)
    assert [(one.rule.name, one.is_error) for one in check(asked, BARE)] == [
        ("processes-above-gpus", True),
        ("keep-alive", True),
        ("open-mpi-5", True),
        ("efa-not-set", False),
    ]


def test_code_is_looked_for_where_it_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    asked = request(source_dir="code", folder=tmp_path)
    message, hint = "`code` holds no `train.py`", "`entry_point` is a path below `source_dir`"
    assert told(asked, PYTORCH) == [(launch_rules.CODE, message, hint)]

    (tmp_path / "code" / "train.py").touch()
    assert told(asked, PYTORCH) == []


def test_the_drivers_of_version_3_know_fewer_types_than_the_toolkit() -> None:
    driver = request(GB200, sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code")
    assert [rule for rule, _, _ in told(request(GB200), None)] == [launch_rules.IMAGE_OR_VERSION]
    assert launch_rules.EFA_MISSING in [rule for rule, _, _ in told(driver, None)]


def test_open_mpi_5_of_our_own_understands_the_toolkit() -> None:
    assert told(request(C5), replace(BARE, gpu=False, parts=frozenset({"open-mpi"}))) == []


def test_xla_is_for_the_compiler() -> None:
    version = {"framework_version": "1.13.1", "py_version": "py39"}
    asked = request(distribution={"pytorchxla": ON}, **version)
    assert [rule for rule, _, _ in told(asked, None)] == [launch_rules.UNKNOWN_STRATEGY]
    assert told(replace(asked, compiler=True), None) == []


def test_what_a_release_has_is_read_from_the_catalogue() -> None:
    """A part can provide what others are: AWS's image for SMP 2 brings PyTorch."""
    catalog = load_catalog([HOME / "recipes"])
    base = catalog.components["aws-smp2"].releases[0]
    part = ReleasedComponent("aws-smp2", base.version, base.variants[0].name)
    image = launch_image(replace(a_record(), parts=(part,)), catalog)

    assert image.framework == "pytorch"
    assert image.versions["smp"].startswith("2.")
    assert launch_image(replace(a_record(), parts=(part,))).framework == ""


def test_an_instance_that_a_part_cannot_run_on() -> None:
    catalog = load_catalog([HOME / "recipes"])
    smddp = catalog.components["smddp"].releases[0]
    record = replace(
        a_record(), gpu=True, parts=(ReleasedComponent("smddp", smddp.version, smddp.variants[0].name),)
    )
    known = instances(catalog)

    def rules(kind: str) -> list[Rule]:
        asked = request(instance_group(known, kind), sender="Estimator", distribution={})
        return [rule for rule, _, _ in told(asked, launch_image(record, catalog))]

    assert rules("ml.p4d.24xlarge") == []
    assert rules("ml.p5.48xlarge") == [launch_rules.HOST_NEEDS]


def test_every_rule_has_a_name_of_its_own_and_a_source() -> None:
    names = [one.name for one in launch_rules.ALL]
    assert len({*names}) == len(names) > 50
    assert all(one.source for one in launch_rules.ALL)


def listed(rules: Iterable[Rule]) -> str:
    return "".join(f"| `{one.name}` | {one.beyond} | {one.source} |\n" for one in rules)


def test_the_docs_list_what_is_refused_beyond_the_sdk() -> None:
    head = "|---|---|---|\n"
    *_, errors, warnings = (HOME / "docs/reference/job-checks.md").read_text().split(head)
    beyond = [one for one in launch_rules.ALL if one.beyond]
    assert errors.partition("\n\n")[0] + "\n" == listed(one for one in beyond if one.is_error)
    assert warnings.partition("\n\n")[0] + "\n" == listed(one for one in beyond if not one.is_error)


def test_a_finding_is_told_with_its_rule() -> None:
    [found] = check(request(sender="Estimator"), PYTORCH)
    assert found.diagnostic.facts == (
        ("rule", "distribution-swallowed"),
        ("known from", "sagemaker 2.257.7: estimator.py"),
    )


def test_requirements_are_looked_for_as_well(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    trainer = request(sender="ModelTrainer", distribution={}, source_dir="code", folder=tmp_path)
    asked = replace(trainer, requirements="requirements.txt")
    assert told(asked, PYTORCH) == [(launch_rules.CODE, "`code` holds no `requirements.txt`", "")]


def test_xla_came_with_pytorch_1_12() -> None:
    old = {"framework_version": "1.11.0", "py_version": "py38", "compiler": True}
    group = replace(A100, instance_type="ml.p4d.24xlarge")
    messages = [
        message for _, message, _ in told(request(group, distribution={"pytorchxla": ON}, **old), None)
    ]
    assert messages == [
        "Training Compiler has no image for PyTorch 1.11.0",
        "`pytorchxla` needs PyTorch 1.12 or newer",
    ]


@pytest.mark.parametrize(
    ("sender", "distribution", "messages"),
    [
        ("ModelTrainer", {"Torchrun": 2}, ["`distributed.Torchrun` has to be a mapping"]),
        ("ModelTrainer", {"Torchrun": {"smp": 2}}, ["`distributed.Torchrun.smp` has to be a mapping"]),
        (
            "PyTorch",
            {"smdistributed": {"tensorparallel": {}}},
            ["`distribution.smdistributed.tensorparallel` is no library of SageMaker"],
        ),
        (
            "PyTorch",
            {"smdistributed": {"dataparallel": True}},
            ["`distribution.smdistributed.dataparallel` has to be a mapping"],
        ),
        (
            "TensorFlow",
            {"multi_worker_mirrored_strategy": ON, "parameter_server": {"enabled": False}},
            ["`distribution.multi_worker_mirrored_strategy` can't stand beside `parameter_server`"],
        ),
    ],
)
def test_what_a_mapping_must_not_say(sender: str, distribution: Any, messages: list[str]) -> None:
    asked = request(
        C5, sender=sender, distribution=distribution, source_dir="code", framework_version="2.21.0"
    )
    image = replace(PYTORCH, gpu=False, versions={**PYTORCH.versions, "pytorch": "2.21.0"})
    image = image if sender != "TensorFlow" else replace(TENSORFLOW, gpu=False)
    assert [message for _, message, _ in told(asked, image)] == messages


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"ddp": "yes"}, "`{}.ddp` is `true` or `false`"),
        ({"auto_partition": False}, "`{}` has no `default_partition`, and `auto_partition` is off"),
        ({"default_partition": 2}, "`{}.default_partition` has to be a number less than `partitions`"),
    ],
)
def test_what_the_model_parallel_library_is_not_told(parameters: Any, message: str) -> None:
    smp = {"smdistributed": {"modelparallel": {**ON, "parameters": parameters}}, "mpi": ON}
    path = "distribution.smdistributed.modelparallel.parameters"
    assert [one for _, one, _ in told(request(distribution=smp), PYTORCH)] == [message.format(path)]
