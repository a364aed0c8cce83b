"""Findings about jobs. Integration tests compare them with the SDK."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.instance_types import Instance, instances
from bakehouse.catalog.project import HOME
from bakehouse.jobs import rules
from bakehouse.jobs.api_fields import ApiField
from bakehouse.jobs.instance_groups import InstanceGroup, instance_group
from bakehouse.jobs.rules import Rule
from bakehouse.jobs.training_request import LaunchImage, TrainingRequest, launch_image
from bakehouse.jobs.validate import validate
from bakehouse.ledger.releases import ReleasedComponent
from bakehouse.util.oci import ARM64
from tests.support import own_recipes
from tests.support.launch_cases import BAKED, BARE, FABRIC, IMAGES, PYTORCH, TENSORFLOW
from tests.support.release_records import a_record

ON: Mapping[str, object] = {"enabled": True}
TRN1 = InstanceGroup("ml.trn1.2xlarge", gpus=0, efa_interfaces=0, neuron_architecture="2")
C5 = InstanceGroup("ml.c5.xlarge", 2, gpus=0, rdma_read=False, efa_interfaces=0)
A100 = InstanceGroup("ml.p4d.24xlarge", 2, gpus=8, rdma_read=True, efa_interfaces=4, gpu_architecture="8.0")
P3DN = replace(A100, instance_type="ml.p3dn.24xlarge", rdma_read=False, gpu_architecture="7.0")
AWS_FLAGS = "-x FI_EFA_USE_DEVICE_RDMA=1 -x FI_PROVIDER=efa -x RDMAV_FORK_SAFE=1"
H200 = replace(A100, instance_type="ml.p5en.48xlarge", gpu_architecture="9.0")
H100 = replace(A100, instance_type="ml.p5.48xlarge", gpu_architecture="9.0")
G4 = replace(A100, instance_type="ml.g4dn.12xlarge", gpus=4, rdma_read=False, gpu_architecture="7.5")
GB200 = replace(A100, instance_type="ml.p6e-gb200.36xlarge", gpus=4, gpu_architecture="10.0")
TWO = (replace(C5, name="data"), replace(A100, name="train"))
TENSORFLOW_2_9 = replace(TENSORFLOW, versions={**TENSORFLOW.versions, "tensorflow": "2.9.1"})
MPI: Mapping[str, object] = {"enabled": True, "processes_per_host": 8}


def smp(**parameters: object) -> Mapping[str, object]:
    return {"smdistributed": {"modelparallel": {**ON, "parameters": parameters}}}


def with_toolkit(version: str) -> LaunchImage:
    return replace(PYTORCH, versions={**PYTORCH.versions, "sagemaker-training": version})


def without(*names: str) -> LaunchImage:
    """Return the image for PyTorch without some of its contents."""
    kept = {name: version for name, version in PYTORCH.versions.items() if name not in names}
    return replace(PYTORCH, versions=kept)


SMP = smp(pipeline_parallel_degree=2)


def request(*groups: InstanceGroup, **changes: Any) -> TrainingRequest:
    job = TrainingRequest(groups=groups or (A100,), distribution={"mpi": ON}, entry_point="train.py")
    return replace(job, **changes)


XLA_ON = {"pytorchxla": ON}
HUGGING_FACE: Mapping[str, Any] = {
    "sender": "HuggingFace",
    "transformers_version": "4.17.0",
    "py_version": "py38",
}
Case = tuple[Rule, TrainingRequest, LaunchImage | None, str, str]
CASES: dict[str, Case] = {
    "no toolkit for TensorFlow": (
        rules.LAUNCHER,
        request(C5, sender="TensorFlow", distribution={"parameter_server": ON}, framework_version="2.9.1"),
        replace(PYTORCH, versions={}, gpu=False),
        "`parameter_server` needs the toolkit for TensorFlow, but `image` has none",
        "add the component `sagemaker-tensorflow-training`",
    ),
    "distribution swallowed": (
        rules.SWALLOWED,
        request(sender="Estimator"),
        PYTORCH,
        "the generic Estimator ignores `distribution`, so one process starts on each host",
        "use the class PyTorch or TensorFlow with `image_uri`",
    ),
    "no image": (
        rules.IMAGE_OR_VERSION,
        request(),
        None,
        "the job has no image",
        "set `image_uri`, or `framework_version` and `py_version`",
    ),
    "Python 2": (
        rules.PYTHON_2,
        request(framework_version="2.0.1", py_version="py2"),
        None,
        "images no longer contain Python 2",
        "set `py_version` to a newer one, such as `py311`",
    ),
    "SMDDP version": (
        rules.SMDDP_VERSION,
        request(
            distribution={"smdistributed": {"dataparallel": ON}},
            framework_version="2.9.1",
            py_version="py311",
        ),
        None,
        "AWS has no image of PyTorch 2.9.1 with SMDDP",
        "use 2.2.0 or older",
    ),
    "torchrun on CPUs of AWS's": (
        rules.TORCH_VERSION,
        request(C5, distribution={"torch_distributed": ON}, framework_version="2.8.0", py_version="py311"),
        None,
        "`torch_distributed` with AWS's images needs GPUs or Trainium: `ml.c5.xlarge` has none",
        "set `image_uri`, because the SDK does not check other images",
    ),
    "torchrun of a PyTorch too new": (
        rules.TORCH_VERSION,
        request(distribution={"torch_distributed": ON}, framework_version="2.9.1", py_version="py311"),
        None,
        "the SDK has no image with PyTorch 2.9.1 for `torch_distributed` on `ml.p4d.24xlarge`",
        "use 2.8.0 or older",
    ),
    "an image without SMDDP": (
        rules.SMD_IMAGE,
        request(distribution={**SMP, "mpi": MPI}),
        IMAGES["smd"],
        "the SDK rejects the image `2.0.1-gpu-py310-cu121` with `smdistributed`",
        "",
    ),
    "mirrored without a version": (
        rules.MIRRORED,
        request(
            sender="TensorFlow",
            distribution={"multi_worker_mirrored_strategy": ON},
            environment={"TF_USE_LEGACY_KERAS": "1"},
        ),
        TENSORFLOW,
        "`multi_worker_mirrored_strategy` needs `framework_version` in addition to `image_uri`",
        "set it to 2.9 or newer",
    ),
    "groups and a type": (
        rules.GROUPS_OR_TYPE,
        request(*TWO[1:], extra_instance_type="ml.c5.xlarge"),
        PYTORCH,
        "the job has instance groups and also the instance type `ml.c5.xlarge`",
        "remove `instance_type` and `instance_count`",
    ),
    "groups in a warm pool": (
        rules.GROUPS_WARM,
        request(*TWO[1:], keep_alive=600),
        PYTORCH,
        "warm pools do not support instance groups",
        "remove `keep_alive_period_in_seconds`",
    ),
    "groups in local mode": (
        rules.GROUPS_LOCAL,
        request(InstanceGroup("local", 1, "train")),
        PYTORCH,
        "local mode does not support instance groups",
        "use `bake run --group`",
    ),
    "two local GPUs": (
        rules.LOCAL_GPU,
        request(InstanceGroup("local_gpu", 2)),
        PYTORCH,
        "the job has 2 instances of `local_gpu`",
        "use one",
    ),
    "channels of groups": (
        rules.GROUPS_CHANNELS,
        request(*TWO[1:], channels={"training": ("train",), "other": ()}),
        PYTORCH,
        "channel `training` has instance groups, but `other` has none",
        "set groups for all channels, or for none",
    ),
    "channels of unknown groups": (
        rules.GROUPS_CHANNELS,
        request(*TWO[1:], channels={"training": ("trian",)}),
        PYTORCH,
        "channel `training` names `trian`, which is not a group of this job",
        "did you mean `train`?",
    ),
    "channels of groups without groups": (
        rules.GROUPS_CHANNELS,
        request(channels={"training": ("train",)}),
        PYTORCH,
        "channel `training` names `train`, which is not a group of this job",
        "remove it: the job has no instance groups",
    ),
    "groups too old for a generic Estimator": (
        rules.GROUPS_FRAMEWORK,
        request(*TWO, sender="Estimator", distribution={}),
        replace(TENSORFLOW, versions={**TENSORFLOW.versions, "tensorflow": "2.5.1"}),
        "instance groups need tensorflow 2.6 or newer, but the image has 2.5.1",
        "",
    ),
    "no script": (
        rules.NO_SCRIPT,
        request(entry_point=""),
        PYTORCH,
        "the class PyTorch needs an `entry_point`",
        "set it, or use the generic Estimator",
    ),
    "no script for the toolkit": (
        rules.NO_SCRIPT,
        request(sender="Estimator", distribution={}, entry_point=""),
        PYTORCH,
        "the job has no training script, and `image` contains none",
        "set `entry_point`",
    ),
    "a script in S3": (
        rules.CODE,
        request(entry_point="s3://code/train.py"),
        PYTORCH,
        "`entry_point` is `s3://code/train.py`",
        "set it to a local file or a file in `source_dir`",
    ),
    "a script outside": (
        rules.ENTRY_POINT,
        request(entry_point="../train.py", source_dir="code"),
        PYTORCH,
        "the toolkit can't start `../train.py`",
        "use a path below `source_dir` with letters, digits and `._+-`",
    ),
    "a script with a blank": (
        rules.ENTRY_POINT,
        request(entry_point="my train.py"),
        PYTORCH,
        "the toolkit can't start `my train.py`",
        "use a path below `source_dir` with letters, digits and `._+-`",
    ),
    "a script outside for version 3": (
        rules.ENTRY_POINT,
        request(sender="ModelTrainer", distribution={}, entry_point="/opt/train.py", source_dir="code"),
        PYTORCH,
        "`/opt/train.py` is not in `source_dir`",
        "use a path below it",
    ),
    "code in the image": (
        rules.CODE_BAKED,
        request(),
        BAKED,
        "`image` contains code in /opt/ml/code, so the toolkit does not unpack yours",
        "use the generic Estimator, or SDK v3",
    ),
    "a source that is not said": (
        rules.CODE,
        request(sender="ModelTrainer", distribution={}),
        PYTORCH,
        "`entry_script` is set without `source_dir`",
        "set `source_dir`; `entry_script` is a path below it",
    ),
    "a command and a driver": (
        rules.COMMAND_FIRST,
        request(sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code", command="ls"),
        PYTORCH,
        "a command replaces the drivers, so `distributed` has no effect",
        "remove one of them",
    ),
    "many hyperparameters": (
        rules.LIMITS,
        request(hyperparameters={str(number): 1 for number in range(101)}),
        PYTORCH,
        "too many hyperparameters (with the SDK's): 106",
        "use at most 100",
    ),
    "many hyperparameters with the SDK's": (
        rules.LIMITS,
        request(hyperparameters={str(number): 1 for number in range(96)}),
        PYTORCH,
        "too many hyperparameters (with the SDK's): 101",
        "use at most 100",
    ),
    "a variable that is not a name": (
        rules.LIMITS,
        request(environment={"NCCL-DEBUG": "INFO"}),
        PYTORCH,
        "`NCCL-DEBUG` is not a valid name of an environment variable",
        "use letters, digits and `_`, and no digit first",
    ),
    "a long hyperparameter": (
        rules.LIMITS,
        request(hyperparameters={"a": "x" * 2499}),
        PYTORCH,
        "too many characters in hyperparameter `a`: 2501",
        "use at most 2500",
    ),
    "a long variable": (
        rules.LIMITS,
        request(environment={"A": "x" * 513}),
        PYTORCH,
        "too many characters in variable `A`: 513",
        "use at most 512",
    ),
    "a long address": (
        rules.LIMITS,
        request(),
        replace(PYTORCH, uri="x" * 256),
        "the image URI of `image` has 256 characters, and SageMaker allows 255",
        "publish it with a shorter `repository_prefix`",
    ),
    "a long warm pool": (
        rules.KEEP_ALIVE,
        request(keep_alive=21601),
        PYTORCH,
        "invalid keep-alive period of 21601 seconds",
        "use 0 to 21600",
    ),
    "a hyperparameter of the SDK's": (
        rules.OVERWRITTEN,
        request(hyperparameters={"sagemaker_program": "a.py"}),
        PYTORCH,
        "the SDK overwrites the hyperparameter `sagemaker_program`",
        "remove it",
    ),
    "a hyperparameter of the distribution's": (
        rules.OVERWRITTEN,
        request(hyperparameters={"sagemaker_mpi_enabled": False}),
        PYTORCH,
        "`distribution` overwrites the hyperparameter `sagemaker_mpi_enabled`",
        "remove one of them",
    ),
    "EFA on a type without": (
        rules.EFA,
        request(C5, environment={"FI_PROVIDER": "efa"}),
        replace(PYTORCH, gpu=False),
        "`FI_PROVIDER=efa` is set, but `ml.c5.xlarge` has no EFA",
        "remove it, or use a type with EFA",
    ),
    "RDMA on a type without": (
        rules.RDMA,
        request(G4, environment={"FI_EFA_USE_DEVICE_RDMA": "1"}),
        PYTORCH,
        "`environment` sets `FI_EFA_USE_DEVICE_RDMA`, but EFA on `ml.g4dn.12xlarge` cannot read the "
        "memory of other hosts",
        "remove it for this type",
    ),
    "RDMA for mpirun on a type without": (
        rules.RDMA,
        request(G4, distribution={"mpi": {**ON, "custom_mpi_options": "-x FI_EFA_USE_DEVICE_RDMA=1"}}),
        PYTORCH,
        "`distribution.mpi.custom_mpi_options` sets `FI_EFA_USE_DEVICE_RDMA`, but EFA on "
        "`ml.g4dn.12xlarge` cannot read the memory of other hosts",
        "remove it for this type",
    ),
    "EFA that the toolkit does not set": (
        rules.EFA_MISSING,
        request(H200),
        PYTORCH,
        "`ml.p5en.48xlarge` has EFA, but the toolkit 5.1.4 does not set `FI_PROVIDER=efa` and "
        "`FI_EFA_USE_DEVICE_RDMA=1` there",
        'add it to the environment: `{"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}`',
    ),
    "RDMA that the toolkit does not set": (
        rules.EFA_MISSING,
        request(H200, distribution={"mpi": {**ON, "custom_mpi_options": "-x FI_PROVIDER=efa"}}),
        PYTORCH,
        "`ml.p5en.48xlarge` has EFA, but the toolkit 5.1.4 does not set `FI_EFA_USE_DEVICE_RDMA=1` there",
        'add it to the environment: `{"FI_EFA_USE_DEVICE_RDMA": "1"}`',
    ),
    "RDMA that an older toolkit does not set": (
        rules.EFA_MISSING,
        request(H100),
        with_toolkit("5.1.1"),
        "`ml.p5.48xlarge` has EFA, but the toolkit 5.1.1 does not set `FI_EFA_USE_DEVICE_RDMA=1` there",
        'add it to the environment: `{"FI_EFA_USE_DEVICE_RDMA": "1"}`',
    ),
    "EFA that an unknown toolkit may not set": (
        rules.EFA_MISSING,
        request(H100),
        with_toolkit(""),
        "`ml.p5.48xlarge` has EFA, but only newer releases of the toolkit set `FI_PROVIDER=efa` and "
        "`FI_EFA_USE_DEVICE_RDMA=1` there, and the one of the image is unknown",
        'add it to the environment: `{"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}`',
    ),
    "a hyperparameter that a shell splits": (
        rules.SHELL,
        request(hyperparameters={"name": "a b", "plain": "a-b", "sagemaker_x": "a b"}),
        with_toolkit("5.1.2"),
        "the toolkit 5.1.2 of the image gives the hyperparameter `name` to a shell, unquoted",
        "use letters, digits and `@%+=:,./-` only, or read the value from SM_HPS in the script",
    ),
    "a mapping that a shell cuts": (
        rules.SHELL,
        request(hyperparameters={"urls": {"a": "http://x/?a=1&b=2"}, "list": 5}),
        with_toolkit("4.8.3"),
        "the toolkit 4.8.3 of the image gives the hyperparameter `urls` to a shell, unquoted",
        "use letters, digits and `@%+=:,./-` only, or read the value from SM_HPS in the script",
    ),
    "a hyperparameter for a shell of an unknown toolkit": (
        rules.SHELL,
        request(hyperparameters={"name": "a b"}),
        with_toolkit(""),
        "toolkits before 5.1.3 give the hyperparameter `name` to a shell, unquoted, and the one of the image "
        "is unknown",
        "use letters, digits and `@%+=:,./-` only, or read the value from SM_HPS in the script",
    ),
    "a hyperparameter that two shells read": (
        rules.SHELL,
        request(distribution={}, entry_point="train.sh", hyperparameters={"name": "a b", "price": "$5"}),
        with_toolkit("5.1.1"),
        "the toolkit 5.1.1 of the image gives the hyperparameter `price` to a shell, unquoted",
        "use letters, digits and `@%+=:,./-` only, or read the value from SM_HPS in the script",
    ),
    "a launcher that the toolkit does not know": (
        rules.TOOLKIT,
        request(distribution={"torch_distributed": ON}),
        replace(PYTORCH, versions={**PYTORCH.versions, "sagemaker-pytorch-training": "2.6.2"}),
        "`sagemaker-pytorch-training` 2.6.2 of the image does not know `torch_distributed`",
        "use an image with `sagemaker-pytorch-training` 2.7.0 or newer",
    ),
    "EFA in the image but not on the instances": (
        rules.EFA_UNUSED,
        request(
            replace(A100, instance_type="ml.p3.16xlarge", efa_interfaces=0, rdma_read=False),
            InstanceGroup("ml.c5.18xlarge", 2, "data", gpus=0, rdma_read=False, efa_interfaces=0),
        ),
        PYTORCH,
        "`ml.p3.16xlarge` has no EFA, so its hosts communicate over TCP",
        "",
    ),
    "EFA on the instances but not in the image": (
        rules.EFA_UNUSED,
        request(),
        without(*FABRIC),
        "`ml.p4d.24xlarge` has EFA, but `image` has no `efa`, so NCCL uses slower TCP between hosts",
        'add `efa: "*"` to `components` of the recipe',
    ),
    "no EFA in the image for hosts without a launcher": (
        rules.EFA_UNUSED,
        request(H200, distribution={}),
        without(*FABRIC),
        "`ml.p5en.48xlarge` has EFA, but `image` has no `efa`, so NCCL uses slower TCP between hosts",
        'add `efa: "*"` to `components` of the recipe',
    ),
    "no build of EFA for the platform": (
        rules.EFA_UNUSED,
        request(GB200),
        replace(without(*FABRIC), platform=ARM64),
        "`ml.p6e-gb200.36xlarge` has EFA, but `image` has no `efa`, so NCCL uses slower TCP between hosts",
        "",
    ),
    "EFA without the plugin of NCCL": (
        rules.EFA_UNUSED,
        request(),
        without("aws-ofi-nccl"),
        "`ml.p4d.24xlarge` has EFA, but `image` has no `aws-ofi-nccl`, so NCCL uses slower TCP between hosts",
        'use a newer `efa`, which contains it, or add `aws-ofi-nccl: "*"` to `components` of the recipe',
    ),
    "a release of EFA that the catalogue lacks": (
        rules.EFA_UNKNOWN,
        request(),
        without("aws-ofi-nccl", "libfabric"),
        "`ml.p4d.24xlarge` has EFA, but it is not known whether `image` has `aws-ofi-nccl`, without which "
        "NCCL uses TCP between hosts",
        "look for `libnccl-net*.so` in the image",
    ),
    "an image of which not all is known": (
        rules.EFA_UNKNOWN,
        request(),
        replace(without(*FABRIC), is_complete=False),
        "`ml.p4d.24xlarge` has EFA, but it is not known whether `image` has `efa`, without which NCCL uses "
        "TCP between hosts",
        "look for `/opt/amazon/efa` in the image",
    ),
    "one of two groups with EFA, which the image lacks": (
        rules.EFA_UNUSED,
        request(
            replace(G4, name="small", count=1, efa_interfaces=0),
            replace(A100, name="large", count=1),
            distribution={},
        ),
        without(*FABRIC),
        "`ml.p4d.24xlarge` has EFA, but `image` has no `efa`, so NCCL uses slower TCP between hosts",
        'add `efa: "*"` to `components` of the recipe',
    ),
    "no mpirun": (
        rules.LAUNCHER,
        request(),
        replace(PYTORCH, launchers=("torchrun",)),
        "`mpi` needs `mpirun`, but `image` has none",
        "use a launcher of the image: `torchrun`",
    ),
    "no mpi4py for the driver": (
        rules.DRIVER,
        request(replace(A100, count=1), sender="ModelTrainer", distribution={"MPI": {}}, source_dir="code"),
        replace(PYTORCH, versions={**PYTORCH.versions, "sshd": "9.2"}),
        "the SDK's MPI driver needs `mpi4py`, but no component of `image` provides that",
        "add the component `sagemaker-drivers`, or check that the image's base contains it",
    ),
    "no torchrun": (
        rules.LAUNCHER,
        request(distribution={"torch_distributed": ON}),
        replace(PYTORCH, launchers=("mpirun",)),
        "`torch_distributed` needs `torchrun`, but `image` has none",
        "use a launcher of the image: `mpirun`",
    ),
    "no torchrun for the driver": (
        rules.LAUNCHER,
        request(sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code"),
        BARE,
        "`Torchrun` needs `torchrun`, but `image` has none",
        "use a launcher of the image: `mpirun`",
    ),
    "no toolkit for PyTorch": (
        rules.LAUNCHER,
        request(distribution={"torch_distributed": ON}),
        replace(PYTORCH, training_module=""),
        "`torch_distributed` needs the toolkit for PyTorch, but `image` has none",
        "add the component `sagemaker-pytorch-training`",
    ),
    "no SMDDP": (
        rules.LAUNCHER,
        request(distribution={"smdistributed": {"dataparallel": ON}}),
        replace(PYTORCH, versions=FABRIC),
        "`smdistributed.dataparallel` needs SMDDP, but `image` has none",
        "add the component `smddp`",
    ),
    "no SMDDP for an old toolkit": (
        rules.LAUNCHER,
        request(distribution={"pytorchddp": ON}),
        replace(PYTORCH, versions={**FABRIC, "pytorch": "2.9.1", "sagemaker-training": "4.7.0"}),
        "`pytorchddp` needs SMDDP, but `image` has none",
        "add the component `smddp`, or use a newer toolkit",
    ),
    "no mpirun for DDP": (
        rules.LAUNCHER,
        request(distribution={"pytorchddp": ON}),
        replace(PYTORCH, versions={**FABRIC, "pytorch": "2.9.1"}, launchers=("torchrun",)),
        "`pytorchddp` needs `mpirun`, but `image` has none",
        "use a launcher of the image: `torchrun`",
    ),
    "no SMP": (
        rules.LAUNCHER,
        request(distribution={**SMP, "mpi": MPI}),
        replace(PYTORCH, versions=FABRIC),
        "`smdistributed.modelparallel` needs SMP, but `image` has none",
        "use an image with `smp`, or one based on `aws-smp2`",
    ),
    "SMP 1 with torchrun": (
        rules.SMP_LAUNCHER,
        request(distribution={**SMP, "torch_distributed": ON}),
        PYTORCH,
        "`torch_distributed` can't start SMP 1.15.0, which the image has",
        'use `"mpi": {"enabled": true}` instead',
    ),
    "SMP 2 with mpirun": (
        rules.SMP_LAUNCHER,
        request(distribution={**smp(hybrid_shard_degree=8), "mpi": MPI}),
        replace(PYTORCH, versions={**PYTORCH.versions, "smp": "2.7.0"}),
        "`mpi` can't start SMP 2.7.0, which the image has",
        'use `"torch_distributed": {"enabled": true}` instead',
    ),
    "partitions": (
        rules.PARTITIONS,
        request(distribution={**smp(partitions=2), "mpi": MPI}),
        PYTORCH,
        "SMP 1.15.0 calls `partitions` `pipeline_parallel_degree`",
        "rename it to `pipeline_parallel_degree`",
    ),
    "an undocumented parameter of SMP": (
        rules.SMP_UNDOCUMENTED,
        request(distribution={**smp(pipeline_parallel_degree=2, fast_mode=True), "mpi": MPI}),
        PYTORCH,
        "`distribution.smdistributed.modelparallel.parameters.fast_mode` is not a documented parameter of "
        "SMP 1",
        "remove it, unless you know that this release has it",
    ),
    "the new name in an old image": (
        rules.SMP_PARAMETER,
        request(distribution={**SMP, "mpi": MPI}),
        replace(PYTORCH, versions={**PYTORCH.versions, "smp": "1.4.0"}),
        "`distribution.smdistributed.modelparallel.parameters.pipeline_parallel_degree` needs SMP 1.6.0, but "
        "the image has 1.4.0",
        "use `partitions`, the name in older releases",
    ),
    "AWS's flags on P3dn with an old libfabric": (
        rules.RDMA_IGNORED,
        request(P3DN, distribution={**SMP, "mpi": {**MPI, "custom_mpi_options": AWS_FLAGS}}),
        replace(PYTORCH, versions={**PYTORCH.versions, "libfabric": "1.13.2"}),
        "`distribution.mpi.custom_mpi_options` sets `FI_EFA_USE_DEVICE_RDMA`, but EFA on "
        "`ml.p3dn.24xlarge` cannot read the memory of other hosts",
        "remove it: libfabric 1.13.2 of the image ignores it, but newer releases abort",
    ),
    "AWS's flags on P3dn with a newer libfabric": (
        rules.RDMA,
        request(P3DN, distribution={**SMP, "mpi": {**MPI, "custom_mpi_options": AWS_FLAGS}}),
        replace(PYTORCH, versions={**PYTORCH.versions, "libfabric": "1.17.0"}),
        "`distribution.mpi.custom_mpi_options` sets `FI_EFA_USE_DEVICE_RDMA`, but EFA on "
        "`ml.p3dn.24xlarge` cannot read the memory of other hosts",
        "remove it for this type",
    ),
    "Open MPI 5 of others": (
        rules.OPEN_MPI_5,
        request(),
        BARE,
        "the toolkit uses options of Open MPI 4, but the image has 5.0.9",
        "add the component `open-mpi`, whose `mpirun` accepts both versions",
    ),
    "a GPU too new": (
        rules.HOST_NEEDS,
        request(H200, environment={"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}),
        IMAGES["up to A100"],
        "pytorch 1.13.1 (cu117) supports GPU architectures <9, but `ml.p5en.48xlarge` has 9.0",
        "run `bake resolve image --assume instance=ml.p5en.48xlarge` to find versions for it",
    ),
    "a GPU that the release is not for": (
        rules.HOST_NEEDS,
        request(replace(A100, instance_type="ml.p5.48xlarge", gpu_architecture="9.0")),
        replace(PYTORCH, gpu_architecture=">=7,<9"),
        "`image` supports GPU architectures >=7,<9, but `ml.p5.48xlarge` has 9.0",
        "use a type with a supported GPU",
    ),
    "an Arm processor": (
        rules.PROCESSOR,
        request(GB200),
        PYTORCH,
        "`ml.p6e-gb200.36xlarge` is linux/arm64, but `image` is for linux/amd64",
        "use a type with an x86 processor, or an image for linux/arm64",
    ),
    "an x86 processor under an arm64 image": (
        rules.PROCESSOR,
        request(A100),
        replace(PYTORCH, platform="linux/arm64"),
        "`ml.p4d.24xlarge` is linux/amd64, but `image` is for linux/arm64",
        "use a type with a Graviton or Grace processor, or an image for linux/amd64",
    ),
    "a mistyped instance type": (
        rules.INSTANCE_NAME,
        request(instance_group({"ml.c5.xlarge": Instance("ml.c5.xlarge")}, "ml.c5.xlarg")),
        PYTORCH,
        "unknown instance type `ml.c5.xlarg`",
        "did you mean `ml.c5.xlarge`?",
    ),
    "a family without a size": (
        rules.INSTANCE_NAME,
        request(instance_group({"ml.c5.xlarge": Instance("ml.c5.xlarge")}, "c5")),
        PYTORCH,
        "unknown instance type `c5`",
        "use one of `ml.c5.xlarge`, `ml.c5.2xlarge`, `ml.c5.4xlarge`, `ml.c5.9xlarge`, `ml.c5.18xlarge`",
    ),
    "a type without its prefix": (
        rules.INSTANCE_NAME,
        request(instance_group({"ml.c5.xlarge": Instance("ml.c5.xlarge")}, "g5.12xlarge")),
        PYTORCH,
        "unknown instance type `g5.12xlarge`",
        "did you mean `ml.g5.12xlarge`?",
    ),
    "a type like no other": (
        rules.INSTANCE_NAME,
        request(instance_group({"ml.c5.xlarge": Instance("ml.c5.xlarge")}, "big")),
        PYTORCH,
        "unknown instance type `big`",
        "use a type of SageMaker, such as `ml.g5.12xlarge`",
    ),
    "a type that may be newer than the catalogue": (
        rules.INSTANCE,
        request(instance_group({"ml.c5.xlarge": Instance("ml.c5.xlarge")}, "ml.q9.128xlarge")),
        PYTORCH,
        "unknown instance type `ml.q9.128xlarge`",
        "use a type of SageMaker, such as `ml.g5.12xlarge`",
    ),
    "a local job of version 3": (
        rules.LOCAL_V3,
        request(
            InstanceGroup("local"), sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code"
        ),
        PYTORCH,
        "ModelTrainer of SDK v3 does not support the instance type `local`",
        "use `bake run`, or `training_mode=Mode.LOCAL_CONTAINER` of the SDK",
    ),
    "an image for GPUs without": (
        rules.GPU,
        request(C5),
        PYTORCH,
        "`image` is for GPUs, but the job's instances have none",
        "use a type with GPUs, or an image for CPUs",
    ),
    "an image for Neuron devices without": (
        rules.NEURON,
        request(C5),
        replace(PYTORCH, gpu=False, neuron_architecture=">=2,<5"),
        "`image` is for Neuron devices, but the job's instances have none",
        "use a type with Trainium, such as `ml.trn1.32xlarge`",
    ),
    "an image for Neuron devices on GPUs": (
        rules.NEURON,
        request(),
        replace(PYTORCH, gpu=False, neuron_architecture=">=2,<5"),
        "`image` is for Neuron devices, but the job's instances have none",
        "use a type with Trainium, such as `ml.trn1.32xlarge`",
    ),
    "Neuron devices without an image for them": (
        rules.NEURON,
        request(TRN1, distribution={}),
        replace(PYTORCH, gpu=False),
        "the instances have Neuron devices, but `image` does not use them",
        "",
    ),
    "Neuron devices of another version": (
        rules.HOST_NEEDS,
        request(TRN1, distribution={}),
        replace(PYTORCH, gpu=False, neuron_architecture=">=3"),
        "`image` supports NeuronCore versions >=3, but `ml.trn1.2xlarge` has 2",
        "use a type with a supported Neuron device",
    ),
    "GPUs without an image for them": (
        rules.GPU,
        request(),
        replace(PYTORCH, gpu=False),
        "the instances have GPUs, but `image` is for CPUs",
        "",
    ),
    "another version": (
        rules.VERSION,
        request(framework_version="2.8.0"),
        PYTORCH,
        "`framework_version` is 2.8.0, but the image has pytorch 2.9.1",
        'write `framework_version="2.9.1"`',
    ),
    "the compiler with an image": (
        rules.COMPILER,
        request(distribution={}, compiler=True),
        PYTORCH,
        "the class PyTorch does not support `image_uri` with a `compiler_config`",
        "set the hyperparameter `sagemaker_training_compiler_enabled` instead",
    ),
    "the compiler on a type": (
        rules.COMPILER,
        request(H200, sender="TensorFlow", distribution={}, framework_version="2.9.1", compiler=True),
        TENSORFLOW_2_9,
        "Training Compiler does not support `ml.p5en.48xlarge`",
        "use one of `p3`, `p3dn`, `g4dn`, `p4d`, `g5`",
    ),
    "the compiler in local mode": (
        rules.COMPILER,
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
        rules.COMPILER,
        request(*TWO[1:], sender="TensorFlow", distribution={}, framework_version="2.9.1", compiler=False),
        TENSORFLOW_2_9,
        "Training Compiler does not support instance groups",
        "use an instance type and a count",
    ),
    "the compiler with SMDDP": (
        rules.COMPILER,
        request(
            sender="TensorFlow",
            distribution={"smdistributed": {"dataparallel": ON}},
            framework_version="2.9.1",
            compiler=True,
        ),
        TENSORFLOW_2_9,
        "Training Compiler can't be used with `smdistributed`",
        "remove one of them",
    ),
    "the compiler with mirrored workers": (
        rules.COMPILER,
        request(
            sender="TensorFlow",
            distribution={"multi_worker_mirrored_strategy": ON},
            framework_version="2.9.1",
            compiler=True,
        ),
        TENSORFLOW_2_9,
        "Training Compiler can't be used with `multi_worker_mirrored_strategy`",
        "remove one of them",
    ),
    "the compiler of a TensorFlow too new": (
        rules.COMPILER,
        request(sender="TensorFlow", distribution={}, framework_version="2.21.0", compiler=True),
        TENSORFLOW,
        "Training Compiler does not support TensorFlow 2.21.0",
        "use TensorFlow 2.9 to 2.11",
    ),
    "the compiler of the generic class": (
        rules.COMPILER,
        request(sender="Estimator", distribution={}, compiler=True),
        PYTORCH,
        "`Estimator` has no `compiler_config`",
        "use the class PyTorch, TensorFlow or HuggingFace",
    ),
    "the compiler of HuggingFace with an image": (
        rules.COMPILER,
        request(distribution={}, compiler=True, **HUGGING_FACE),
        PYTORCH,
        "the class HuggingFace does not support `image_uri` with a `compiler_config`",
        "set the hyperparameter `sagemaker_training_compiler_enabled` instead",
    ),
    "the compiler of HuggingFace with a new version": (
        rules.COMPILER,
        request(framework_version="1.13.1", distribution=XLA_ON, compiler=True, **HUGGING_FACE),
        None,
        "Training Compiler does not support PyTorch 1.13.1 in the class HuggingFace",
        "use PyTorch `1.9.0`, `1.10.2`, `1.11.0`",
    ),
    "the compiler of HuggingFace without XLA": (
        rules.COMPILER,
        request(framework_version="1.11.0", compiler=True, **HUGGING_FACE),
        None,
        "with PyTorch 1.11 and newer, Training Compiler only supports the distribution `pytorchxla`",
        'write `{"pytorchxla": {"enabled": true}}`',
    ),
    "the compiler of HuggingFace with XLA of TensorFlow": (
        rules.COMPILER,
        request(
            framework_version="2.6.3",
            distribution=XLA_ON,
            compiler=True,
            has_tensorflow_version=True,
            **HUGGING_FACE,
        ),
        None,
        "`pytorchxla` needs PyTorch 1.11 or newer",
        "",
    ),
    "HuggingFace without a version": (
        rules.IMAGE_OR_VERSION,
        request(py_version="py38", sender="HuggingFace", framework_version="1.10.2"),
        None,
        "the job has no image",
        "set `image_uri`, or `transformers_version` and `pytorch_version` or `tensorflow_version`",
    ),
    "HuggingFace without Python": (
        rules.IMAGE_OR_VERSION,
        request(sender="HuggingFace"),
        PYTORCH,
        "the class HuggingFace needs `py_version`, also with `image_uri`",
        "set it, for example to `py311`",
    ),
    "a shortened version of HuggingFace": (
        rules.IMAGE_OR_VERSION,
        request(framework_version="1.10", **HUGGING_FACE),
        None,
        "one of `transformers_version` and `pytorch_version` is shortened: 4.17.0 and 1.10",
        "write both in full, such as 4.17.0 and 1.10.2",
    ),
    "SMP of HuggingFace": (
        rules.SWALLOWED,
        request(
            distribution={"torch_distributed": ON, "smdistributed": {"modelparallel": ON}}, **HUGGING_FACE
        ),
        replace(PYTORCH, versions={**PYTORCH.versions, "smp": "2.6.0"}),
        "the class HuggingFace ignores `smdistributed` with `torch_distributed`",
        "use the class PyTorch with `image_uri`",
    ),
    "MultiWorkerMirroredStrategy of HuggingFace": (
        rules.MIRRORED,
        request(
            distribution={"multi_worker_mirrored_strategy": ON},
            framework_version="2.9.1",
            has_tensorflow_version=True,
            **HUGGING_FACE,
        ),
        TENSORFLOW_2_9,
        "the class HuggingFace does not support `multi_worker_mirrored_strategy`",
        "use the class TensorFlow with `image_uri`",
    ),
    "the compiler without XLA": (
        rules.COMPILER,
        request(framework_version="1.13.1", py_version="py39", compiler=True),
        None,
        "with PyTorch 1.12 and newer, Training Compiler only supports the distribution `pytorchxla`",
        'write `{"pytorchxla": {"enabled": true}}`',
    ),
    "the compiler with an old PyTorch": (
        rules.COMPILER,
        request(distribution={}, framework_version="1.11.0", py_version="py38", compiler=True),
        None,
        "Training Compiler does not support PyTorch 1.11.0",
        "use PyTorch `1.12.0`, `1.13.1`",
    ),
    "the compiler without EFA": (
        rules.COMPILER_EFA,
        request(
            replace(A100, instance_type="ml.p3.2xlarge", efa_interfaces=0),
            distribution={"pytorchxla": ON},
            framework_version="1.13.1",
            py_version="py39",
            compiler=True,
        ),
        None,
        "ranks of Training Compiler communicate through EFA, which the instances don't have",
        "use one of `ml.g4dn.12xlarge`, `ml.g4dn.8xlarge`, `ml.g5.48xlarge`, `ml.p3dn.24xlarge`, "
        "`ml.p4d.24xlarge`",
    ),
}


def findings(request: TrainingRequest, image: LaunchImage | None) -> list[tuple[Rule, str, str]]:
    return [(finding.rule, finding.message, finding.hint) for finding in validate(request, image)]


@pytest.mark.parametrize("name", CASES)
def test_findings(name: str) -> None:
    rule, training_request, image, message, hint = CASES[name]
    assert findings(training_request, image) == [(rule, message, hint)]


def test_a_job_as_it_should_be() -> None:
    assert validate(request(), PYTORCH) == ()
    assert validate(request(sender="TensorFlow", framework_version="2.21.0"), TENSORFLOW) == ()
    trainer = request(sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code")
    assert validate(trainer, PYTORCH) == ()


def test_an_image_without_efa_suits_hosts_that_nccl_does_not_connect() -> None:
    image = without(*FABRIC)
    one = replace(A100, count=1)
    data = replace(C5, name="data")
    launcher = {"mpi": ON, "instance_groups": ["train"]}
    others = replace(one, name="other")
    mirrored = {"sender": "TensorFlow", "framework_version": "2.21.0"}
    tensorflow = replace(TENSORFLOW, versions={"tensorflow": "2.21.0"})

    assert findings(request(one), image) == []
    assert findings(request(data, replace(one, name="train"), distribution=launcher), image) == []
    assert findings(request(others, replace(one, name="train"), distribution=launcher), image) == []
    assert findings(request(C5), replace(image, gpu=False)) == []
    servers = request(distribution={"parameter_server": ON}, **mirrored)
    assert [rule for rule, _, _ in findings(servers, tensorflow)] == [
        rules.LEGACY_KERAS,
        rules.PARAMETER_SERVER,
    ]


def test_smddp_needs_the_variables_of_efa_without_the_plugin_of_nccl() -> None:
    image = without("aws-ofi-nccl")
    image = replace(image, versions={**image.versions, "sagemaker-training": "4.2.0"})
    found = findings(request(distribution={"smdistributed": {"dataparallel": ON}}), image)

    assert [rule for rule, _, _ in found] == [rules.EFA_MISSING, rules.EFA_UNUSED]
    assert found[0][1:] == (
        "`ml.p4d.24xlarge` has EFA, but the toolkit 4.2.0 does not set `FI_PROVIDER=efa` and "
        "`FI_EFA_USE_DEVICE_RDMA=1` there",
        'add it to the environment: `{"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}`',
    )


@pytest.mark.parametrize("names", [["train"], ("train",)], ids=["list", "tuple"])
def test_nccl_connects_the_groups_of_the_launcher(names: Sequence[str]) -> None:
    groups = (replace(A100, name="other", count=1), replace(A100, name="train", count=1))
    job = request(*groups, distribution={"mpi": ON, "instance_groups": names})

    assert findings(job, without(*FABRIC)) == []


def test_all_findings_are_returned_errors_first() -> None:
    training_request = request(H200, distribution={"mpi": {**ON, "processes_per_host": 16}}, keep_alive=-1)
    assert [(finding.rule.name, finding.is_error) for finding in validate(training_request, BARE)] == [
        ("processes-above-gpus", True),
        ("keep-alive", True),
        ("open-mpi-5", True),
        ("efa-not-set", False),
    ]


def test_code_is_checked_below_the_code_root(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    training_request = request(source_dir="code", code_root=tmp_path)
    message, hint = "`code` contains no `train.py`", "set `entry_point` to a path below `source_dir`"
    assert findings(training_request, PYTORCH) == [(rules.CODE, message, hint)]

    (tmp_path / "code" / "train.py").touch()
    assert findings(training_request, PYTORCH) == []


def test_the_drivers_of_version_3_know_fewer_types_than_the_toolkit() -> None:
    driver = request(GB200, sender="ModelTrainer", distribution={"Torchrun": {}}, source_dir="code")
    assert findings(request(GB200), replace(PYTORCH, platform=ARM64)) == []
    assert [rule for rule, _, _ in findings(request(GB200), None)] == [
        rules.IMAGE_OR_VERSION,
        rules.EFA_MISSING,
    ]
    assert rules.EFA_MISSING in [rule for rule, _, _ in findings(driver, None)]


def test_an_old_toolkit_loses_arguments_and_the_status() -> None:
    job = request(C5, distribution={}, entry_point="train.sh", hyperparameters={"name": "a"})
    image = replace(with_toolkit("4.1.0"), gpu=False)
    status = "the toolkit 4.1.0 of the image may report a failed script as a success"
    arguments = "the toolkit 4.1.0 of the image starts `train.sh` without the hyperparameters"
    assert findings(job, image) == [
        (rules.LOST_STATUS, status, "use an image with 4.1.2 or newer"),
        (rules.SHELL, arguments, "read them from SM_HPS in the script"),
    ]


def test_the_toolkit_alone_starts_scripts_without_a_shell() -> None:
    image = replace(with_toolkit("5.1.1"), training_module="")
    job = request(hyperparameters={"name": "a b"})
    assert rules.SHELL not in [rule for rule, _, _ in findings(job, image)]


def test_ddp_runs_without_smddp() -> None:
    image = replace(PYTORCH, versions={**FABRIC, "pytorch": "2.9.1", "sagemaker-training": "5.1.4"})
    assert findings(request(distribution={"pytorchddp": ON}), image) == []


def test_the_open_mpi_5_component_supports_the_toolkit() -> None:
    assert findings(request(C5), replace(BARE, gpu=False, components=frozenset({"open-mpi"}))) == []


def test_xla_is_for_the_compiler() -> None:
    version = {"framework_version": "1.13.1", "py_version": "py39"}
    training_request = request(distribution={"pytorchxla": ON}, **version)
    assert [rule for rule, _, _ in findings(training_request, None)] == [rules.UNKNOWN_STRATEGY]
    assert findings(replace(training_request, compiler=True), None) == []


def test_an_instance_that_a_component_does_not_support() -> None:
    catalog = own_recipes.catalog()
    smddp = catalog.components["smddp"].releases[0]
    record = replace(
        a_record(), gpu=True, parts=(ReleasedComponent("smddp", smddp.version, smddp.variants[0].name),)
    )
    types = instances(catalog)

    def violations(kind: str) -> list[Rule]:
        training_request = request(instance_group(types, kind), sender="Estimator", distribution={})
        return [rule for rule, _, _ in findings(training_request, launch_image(record, catalog))]

    assert violations("ml.p4d.24xlarge") == []
    assert violations("ml.p5.48xlarge") == [rules.HOST_NEEDS]


def listed(listed_rules: Iterable[Rule]) -> str:
    rows = "".join(f"| `{rule.name}` | {rule.beyond} | {rule.source} |\n" for rule in listed_rules)
    for text, short in (
        ("SageMaker rejects the job after the code is uploaded", "rejected late"),
        ("docs.aws.amazon.com/sagemaker/latest/dg/", ""),
        ("botocore 1.44.5, documentation of ", "botocore: "),
        ("the API's model in botocore 1.44.5", "botocore"),
        ("sagemaker 2.257.7: ", "v2: "),
        ("sagemaker-train 1.27.0: ", "v3: "),
        ("sagemaker-training 5.1.4: ", "toolkit: "),
    ):
        rows = rows.replace(text, short)
    return rows


def test_the_docs_list_the_rules_that_the_sdk_lacks() -> None:
    head = "|---|---|---|\n"
    *_, errors, warnings = (HOME / "docs/reference/job-checks.md").read_text().split(head)
    beyond = [rule for rule in rules.ALL if rule.beyond]
    assert errors.partition("\n\n")[0] + "\n" == listed(rule for rule in beyond if rule.is_error)
    assert warnings.partition("\n\n")[0] + "\n" == listed(rule for rule in beyond if not rule.is_error)


def test_a_finding_is_reported_with_its_rule() -> None:
    [finding] = validate(request(sender="Estimator"), PYTORCH)
    assert finding.diagnostic.facts == (
        ("rule", "distribution-swallowed"),
        ("source", "sagemaker 2.257.7: estimator.py, huggingface/estimator.py"),
    )


def test_requirements_are_looked_for_as_well(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    trainer = request(sender="ModelTrainer", distribution={}, source_dir="code", code_root=tmp_path)
    training_request = replace(trainer, requirements="requirements.txt")
    assert findings(training_request, PYTORCH) == [(rules.CODE, "`code` contains no `requirements.txt`", "")]


def test_xla_came_with_pytorch_1_12() -> None:
    old = {"framework_version": "1.11.0", "py_version": "py38", "compiler": True}
    group = replace(A100, instance_type="ml.p4d.24xlarge")
    messages = [
        message for _, message, _ in findings(request(group, distribution={"pytorchxla": ON}, **old), None)
    ]
    assert messages == [
        "Training Compiler does not support PyTorch 1.11.0",
        "`pytorchxla` needs PyTorch 1.12 or newer",
    ]


@pytest.mark.parametrize(
    ("sender", "distribution", "messages"),
    [
        ("ModelTrainer", {"Torchrun": 2}, ["`distributed.Torchrun` must be a mapping"]),
        ("ModelTrainer", {"Torchrun": {"smp": 2}}, ["`distributed.Torchrun.smp` must be a mapping"]),
        (
            "PyTorch",
            {"smdistributed": {"tensorparallel": {}}},
            ["`distribution.smdistributed.tensorparallel` is not a library of SageMaker"],
        ),
        (
            "PyTorch",
            {"smdistributed": {"dataparallel": True}},
            ["`distribution.smdistributed.dataparallel` must be a mapping"],
        ),
        (
            "TensorFlow",
            {"multi_worker_mirrored_strategy": ON, "parameter_server": {"enabled": False}},
            ["`distribution.multi_worker_mirrored_strategy` can't be used with `parameter_server`"],
        ),
    ],
)
def test_what_a_mapping_must_not_say(sender: str, distribution: Any, messages: list[str]) -> None:
    training_request = request(
        C5, sender=sender, distribution=distribution, source_dir="code", framework_version="2.21.0"
    )
    image = replace(PYTORCH, gpu=False, versions={**PYTORCH.versions, "pytorch": "2.21.0"})
    image = image if sender != "TensorFlow" else replace(TENSORFLOW, gpu=False)
    assert [message for _, message, _ in findings(training_request, image)] == messages


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"ddp": "yes"}, "`{}.ddp` must be `true` or `false`"),
        ({"auto_partition": False}, "`{}` has no `default_partition` although `auto_partition` is off"),
        ({"default_partition": 2}, "`{}.default_partition` must be a number less than `partitions`"),
    ],
)
def test_settings_that_the_model_parallel_library_does_not_get(parameters: Any, message: str) -> None:
    smp = {"smdistributed": {"modelparallel": {**ON, "parameters": parameters}}, "mpi": ON}
    path = "distribution.smdistributed.modelparallel.parameters"
    assert [finding for _, finding, _ in findings(request(distribution=smp), PYTORCH)] == [
        message.format(path)
    ]


@pytest.mark.parametrize("sender", ["PyTorch", "ModelTrainer"])
def test_a_job_without_a_network_installs_no_requirements(tmp_path: Path, sender: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").touch()
    (tmp_path / "src/requirements.txt").touch()
    isolated = ApiField("EnableNetworkIsolation", "enable_network_isolation", True)
    job = request(C5, sender=sender, distribution={}, source_dir="src", code_root=tmp_path)
    requirements = "requirements.txt" if sender == "ModelTrainer" else ""
    job = replace(job, requirements=requirements, fields=(isolated,))
    cpu = replace(PYTORCH, gpu=False)

    assert findings(job, cpu) == [
        (
            rules.ISOLATED,
            "`enable_network_isolation` cuts the network off, but the job installs `src/requirements.txt` "
            "before it starts the script",
            "name the packages in `requirements` of the recipe, so that the image has them",
        )
    ]
    assert findings(replace(job, fields=()), cpu) == []
    (tmp_path / "src/requirements.txt").unlink()
    assert findings(replace(job, requirements=""), cpu) == []
