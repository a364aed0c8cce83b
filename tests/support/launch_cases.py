"""Settings of training jobs by the hundred: most of them mistaken somewhere, the same ones at every run."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from bakehouse.catalog.component import Requirement
from bakehouse.catalog.instance_types import Instance
from bakehouse.errors import Location
from bakehouse.jobs.instance_groups import instance_group
from bakehouse.jobs.sdk_fields import estimator_fields
from bakehouse.jobs.training_request import HostRequirement, LaunchImage, TrainingRequest

SEED = 20261120
HOST = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
URI = f"{HOST}/bakehouse/image@sha256:" + "4f" * 32
SMD_URI = f"{HOST}/bakehouse/image:2.0.1-gpu-py310-cu121"
SCRIPTS = ("train.py", "run.sh")
"""Files in the job's directory, and in its subdirectory `code`."""
ARCHIVE = "s3://code/sourcedir.tar.gz"

FABRIC = {"efa": "1.47.0", "libfabric": "2.4.0", "aws-ofi-nccl": "1.18.0"}
"""Components for NCCL over EFA."""
PYTORCH = LaunchImage(
    "image",
    URI,
    {
        **FABRIC,
        "pytorch": "2.9.1",
        "open-mpi": "4.1.8",
        "smddp": "2.6.0",
        "smp": "1.15.0",
        "sagemaker-training": "5.1.4",
    },
    ("mpirun", "torchrun"),
    "sagemaker_pytorch_container.training:main",
    gpu=True,
    is_complete=True,
)
TENSORFLOW = replace(
    PYTORCH,
    versions={**FABRIC, "tensorflow": "2.21.0", "open-mpi": "4.1.8", "smddp": "1.4.1", "smp": "1.15.0"},
    launchers=("mpirun",),
    training_module="sagemaker_tensorflow_container.training:main",
)
BARE = replace(
    PYTORCH,
    versions={**FABRIC, "open-mpi": "5.0.9", "sagemaker-training": "5.1.4"},
    launchers=("mpirun",),
    training_module="",
)
BAKED = replace(PYTORCH, entry_point="train.py")
_UP_TO_A100 = Requirement("gpu-architecture", "<9", Location(Path("component.yaml"), 1, 1))
IMAGES: Mapping[str, LaunchImage] = {
    "pytorch": PYTORCH,
    "tensorflow": TENSORFLOW,
    "bare": BARE,
    "baked": BAKED,
    "up to A100": replace(
        PYTORCH, host_requirements=(HostRequirement("pytorch 1.13.1 (cu117)", _UP_TO_A100),)
    ),
    "smd": replace(PYTORCH, uri=SMD_URI),
    "needs GPUs": replace(PYTORCH, requires_gpu=True),
    "python": replace(PYTORCH, versions={**PYTORCH.versions, "python": "3.11"}),
    "old toolkit": replace(PYTORCH, versions={**PYTORCH.versions, "sagemaker-pytorch-training": "2.6.2"}),
}

TYPES = (
    *("ml.c5.xlarge", "ml.c5n.18xlarge", "ml.g4dn.12xlarge", "ml.g5.12xlarge", "ml.g5.48xlarge"),
    *("ml.p3.2xlarge", "ml.p3.16xlarge", "ml.p4d.24xlarge", "ml.p5.48xlarge", "ml.p5en.48xlarge"),
    *("ml.trn1.32xlarge", "ml.g6.12xlarge"),
)
OPTIONS: tuple[Any, ...] = (
    *(
        "",
        "-x NCCL_DEBUG=INFO",
        "--mca btl_vader_single_copy_mechanism none",
        "-x FOO='a",
        "-x FI_PROVIDER=efa",
    ),
    *("-x FI_EFA_USE_DEVICE_RDMA=1", ["-x", "A=b"]),
)
PARAMETERS: tuple[Any, ...] = (
    *({"partitions": 2, "microbatches": 4}, {"pipeline_parallel_degree": 2, "ddp": True, "ddp_port": 8123}),
    *({"partitions": 0}, {"microbatches": "4"}, {"pipeline": "fast"}, {"placement_strategy": "cluster"}),
    *({"optimize": "size"}, {"auto_partition": False}, {"auto_partition": False, "default_partition": 0}),
    *(
        {"auto_partition": False, "default_partition": 0, "partitions": 2},
        {"partitions": 2, "default_partition": 2},
    ),
    *({"memory_weight": 1.5}, {"memory_weight": 0.5}, {"ddp_port": 8123}, {"ddp_dist_backend": "nccl"}),
    *({"ddp": True, "ddp_port": -1}, {"ddp": True, "horovod": True}, {"partition_file": 3}, "nowhere.json"),
    *({"ddp": True, "ddp_port": "8123"}, {"contiguous": "yes"}, {"hybrid_shard_degree": 4}, {"horovod": 2}),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One job, as JSON can say it."""

    sender: str
    image: str
    """A name of IMAGES; empty: one of AWS's."""
    groups: tuple[tuple[str, str, int], ...]
    distribution: Any = None
    entry_point: str = "train.py"
    source_dir: str = ""
    requirements: str = ""
    command: str = ""
    framework_version: str = ""
    py_version: str = ""
    extra_instance_type: str = ""
    keep_alive: int | None = None
    compiler: bool | None = None
    hyperparameters: Any = None
    environment: Any = None
    channels: Any = None
    arguments: Any = None
    """Further arguments of a class of version 2."""
    transformers_version: str = ""
    has_tensorflow_version: bool = False

    @property
    def is_local(self) -> bool:
        return any(kind.startswith("local") for _, kind, _ in self.groups)

    def request(self, instances: Mapping[str, Instance], directory: Path) -> TrainingRequest:
        """The same, as we are asked."""
        request = TrainingRequest(
            self.sender,  # type: ignore[arg-type]
            tuple(instance_group(instances, kind, count, name) for name, kind, count in self.groups),
            self.extra_instance_type,
            json.loads(json.dumps(self.distribution or {})),
            self.entry_point,
            self.source_dir,
            self.requirements,
            self.command,
            self.hyperparameters or {},
            self.environment or {},
            self.framework_version,
            self.py_version,
            self.keep_alive,
            self.compiler,
            self.channels or {},
            directory,
        )
        return replace(
            request,
            fields=tuple(estimator_fields(self.arguments or {})),
            transformers_version=self.transformers_version,
            has_tensorflow_version=self.has_tensorflow_version,
        )


_ON: Mapping[str, Any] = {"enabled": True}
_ONE = (("", "ml.p4d.24xlarge", 2),)
_TWO = (("data", "ml.c5.xlarge", 1), ("train", "ml.p4d.24xlarge", 1))
RARE = (
    Case("PyTorch", "pytorch", _ONE, {"mpi": _ON}, "../train.py", ARCHIVE),
    Case(
        "PyTorch", "pytorch", _ONE, {"mpi": _ON}, hyperparameters={f"a{number}": 1 for number in range(101)}
    ),
    Case("PyTorch", "up to A100", (("", "ml.p5.48xlarge", 2),), {"mpi": _ON}),
    Case("PyTorch", "python", _ONE, {"torch_distributed": _ON}, hyperparameters={"max": 1}),
    Case("PyTorch", "pytorch", (("", "ml.p6e-gb200.36xlarge", 2),), {"mpi": _ON}),
    Case("PyTorch", "pytorch", (("", "ml.c5", 2),), {"mpi": _ON}),
    Case("PyTorch", "old toolkit", (("", "ml.p4d.24xlarge", 2),), {"torch_distributed": _ON}),
    Case("PyTorch", "pytorch", _TWO, {"mpi": _ON, "instance_groups": ["train"]}, framework_version="1.9.1"),
    Case(
        "PyTorch",
        "pytorch",
        _TWO,
        {"mpi": _ON, "instance_groups": ["train"]},
        channels={"training": ["train"], "other": []},
    ),
    Case(
        "PyTorch",
        "pytorch",
        _ONE,
        {"smdistributed": {"modelparallel": {**_ON, "parameters": {"partitions": 2}}}, "mpi": _ON},
    ),
    Case(
        "PyTorch",
        "pytorch",
        _ONE,
        {
            "smdistributed": {"modelparallel": {**_ON, "parameters": {"pipeline_parallel_degree": 3}}},
            "mpi": {**_ON, "processes_per_host": 8},
        },
    ),
    Case(
        "PyTorch",
        "pytorch",
        _ONE,
        {
            "smdistributed": {
                "modelparallel": {**_ON, "parameters": {"pipeline_degree": 2, "partitions": 2}}
            },
            "mpi": {**_ON, "processes_per_host": 8},
        },
    ),
    Case("PyTorch", "pytorch", (("", "ml.g4dn.12xlarge", 2),), {"smdistributed": {"dataparallel": _ON}}),
    Case("PyTorch", "needs GPUs", (("", "ml.c5.xlarge", 1),)),
    Case("PyTorch", "pytorch", _ONE, {"mpi": {**_ON, "custom_mpi_options": "-np 4"}}),
    Case("TensorFlow", "tensorflow", _ONE, {"mpi": _ON, "torch_distributed": True}),
    Case("PyTorch", "", _ONE, {"mpi": _ON}, framework_version="1.6.0", py_version="py2"),
    *(
        Case("PyTorch", "pytorch", _ONE, {"mpi": _ON}, arguments=arguments)
        for arguments in (
            {"base_job_name": "a_b"},
            {"max_run": 30 * 86400},
            {"use_spot_instances": True, "max_run": 3600},
            {"max_run": 60, "max_wait": 90},
            {"checkpoint_local_path": "/opt/ml/checkpoints"},
            {"training_repository_access_mode": "Vpc"},
            {"training_repository_credentials_provider_arn": "arn:aws:lambda:a:123456789012:function:a"},
        )
    ),
)
"""Settings that the SDK accepts and that are unlikely to be drawn."""
RARE_TRAINERS = (
    Case("ModelTrainer", "pytorch", (("", "local", 1),), source_dir="code"),
    Case("ModelTrainer", "pytorch", _ONE, source_dir="code", hyperparameters={"model.lr": 1}),
)


def estimators(count: int) -> Iterator[Case]:
    """Jobs of version 2 of the SDK."""
    dice = Random(SEED)
    for _ in range(count):
        sender = dice.choices(("PyTorch", "TensorFlow", "Estimator"), (60, 32, 8))[0]
        fitting = {"PyTorch": "pytorch", "TensorFlow": "tensorflow"}.get(sender, "pytorch")
        names = (fitting, "bare", "baked", "smd", "tensorflow", "")
        image = dice.choices(names, (62, 6, 4, 6, 6, 16 if sender != "Estimator" else 0))[0]
        groups = _groups(dice)
        is_tensorflow = sender == "TensorFlow"
        case = Case(
            sender,
            image,
            groups,
            _distribution(dice, is_tensorflow, [name for name, _, _ in groups if name]),
            entry_point=_often(dice, "train.py", "run.sh", "missing.py", "s3://code/train.py", ""),
            source_dir=dice.choices(("", "code", "nowhere", ARCHIVE), (60, 20, 4, 16))[0],
            keep_alive=_often(dice, None, 600, -1, chance=0.12),
            compiler=_often(dice, None, True, False, chance=0.14),
            hyperparameters=_often(dice, None, {"epochs": 3}, {"sagemaker_mpi_enabled": False}),
            environment=_often(dice, None, {"FI_PROVIDER": "efa"}, {"FI_EFA_USE_DEVICE_RDMA": "1"}),
            extra_instance_type="ml.c5.xlarge" if dice.random() < 0.05 else "",
        )
        versions: tuple[str, ...]
        versions = ("2.21.0", "2.8.0", "2.11.0", "2.9.1", "") if is_tensorflow else ("", "2.9.1", "1.9.1")
        if not image:
            # Versions that AWS has an image of, so that it is the class that speaks.
            versions = ("2.11.0", "2.13.0", "2.8.0", "2.9.2") if is_tensorflow else _PYTORCHES
        version = dice.choice(versions)
        python = dice.choice(("py39", "py310", "py311"))
        if not image and dice.random() < 0.12:
            version, python = dice.choice((("", python), (version, ""), ("", ""), (version, "py2")))
        yield replace(case, framework_version=version, py_version=python if not image else "")


def hugging_faces(count: int) -> Iterator[Case]:
    """Jobs of the class HuggingFace."""
    dice = Random(SEED + 1)
    others = (case for case in estimators(10 * count) if case.sender != "Estimator")
    for case in itertools.islice(others, count):
        is_tensorflow = case.sender == "TensorFlow"
        version = case.framework_version
        if case.compiler is not None and not case.image:
            version = dice.choice(("2.6.3",) if is_tensorflow else ("1.9.0", "1.10.2", "1.11.0", "1.13.1"))
        yield replace(
            case,
            sender="HuggingFace",
            framework_version=version,
            transformers_version=_often(dice, "4.17.0", "", "4.17"),
            has_tensorflow_version=is_tensorflow and bool(version),
            py_version=_often(dice, "py38", "", chance=0.05),
        )


_PYTORCHES = ("1.12.0", "1.13.1", "2.0.0", "2.2.0", "2.5.1", "2.8.0", "2.9.1", "1.11.0")


def trainers(count: int) -> Iterator[Case]:
    """Jobs of version 3."""
    dice = Random(SEED)
    for _ in range(count):
        driver = dice.choice(("", "Torchrun", "MPI"))
        yield Case(
            "ModelTrainer",
            dice.choices(("pytorch", "bare", ""), (90, 6, 4))[0],
            _groups(dice, local=False),
            {driver: _driver(dice, driver)} if driver else None,
            entry_point=_often(dice, "train.py", "run.sh", "missing.py", "train.txt", "", "../train.py"),
            source_dir=dice.choices(("code", "", "nowhere"), (88, 6, 6))[0],
            requirements=_often(dice, "", "requirements.txt", "missing.txt"),
            command=_often(dice, "", "python train.py", chance=0.1),
            keep_alive=_often(dice, None, 600, chance=0.1),
            extra_instance_type="ml.c5.xlarge" if dice.random() < 0.05 else "",
            environment=_often(dice, None, {"FI_PROVIDER": "efa"}, {"FI_EFA_USE_DEVICE_RDMA": "1"}),
        )


def _often(dice: Random, usual: Any, *others: Any, chance: float = 0.16) -> Any:
    return dice.choice(others) if dice.random() < chance else usual


def _groups(dice: Random, *, local: bool = True) -> tuple[tuple[str, str, int], ...]:
    draw = dice.random()
    if draw < 0.06 and local:
        return ((dice.choice(("", "", "data")), dice.choice(("local", "local_gpu")), dice.choice((1, 2))),)
    if draw < 0.66:
        return (("", dice.choice(TYPES), dice.choice((1, 2, 2, 4))),)
    names = dice.choice(
        (("train",), ("data", "train"), ("data", "train"), ("train", "train"), tuple("abcdef"))
    )
    return tuple((name, dice.choice(TYPES), dice.choice((1, 2))) for name in names)


def _on(dice: Random, **more: Any) -> Any:
    """A strategy's settings: on, off, or not quite what they should be."""
    return _often(dice, {"enabled": True, **more}, {"enabled": False, **more}, {**more}, {"enabled": "true"})


def _distribution(dice: Random, is_tensorflow: bool, groups: list[str]) -> Any:
    if dice.random() < 0.06:
        return None
    distribution: dict[str, Any] = {}
    usual = ("mpi", "mpi", "smddp", "smp-mpi")
    own = ("parameter_server", "multi_worker_mirrored_strategy")
    pytorch_names = ("torch_distributed", "torch_distributed", "pytorchddp", "smp-torch", "smddp-torch")
    first, other = (own, pytorch_names) if is_tensorflow else (pytorch_names, own)
    name = dice.choices((*usual, *first, *other), [6] * (len(usual) + len(first)) + [1] * len(other))[0]
    for launcher in (name, *((dice.choice((*usual, *own, *pytorch_names)),) if dice.random() < 0.15 else ())):
        _add(dice, launcher, distribution)
    if dice.random() < 0.05:
        distribution[dice.choice(("pytorchxla", "horovod", "torchrun"))] = {"enabled": True}
    if dice.random() < 0.04:
        distribution[dice.choice(list(distribution))] = dice.choice((True, [], "mpi"))
    if groups and dice.random() < 0.75:
        distribution["instance_groups"] = _often(dice, groups[-1:], groups[:2], ["nowhere"], [])
    elif dice.random() < 0.04:
        distribution["instance_groups"] = ["train"]
    return distribution


def _add(dice: Random, name: str, distribution: dict[str, Any]) -> None:
    if name.startswith("smp"):
        # At a time several mistakes would hide each other.
        parameters = dice.choice(PARAMETERS) if dice.random() < 0.7 else {}
        distribution["smdistributed"] = {"modelparallel": _on(dice, parameters=parameters)}
        name = {"smp-mpi": "mpi", "smp-torch": "torch_distributed"}[name]
        if dice.random() < 0.15:
            return
    if name.startswith("smddp"):
        libraries = {"dataparallel": _on(dice, custom_mpi_options=dice.choice(OPTIONS))}
        distribution["smdistributed"] = _often(
            dice,
            libraries,
            libraries | {"modelparallel": {"enabled": True}},
            {},
            {"tensorparallel": {}},
            chance=0.1,
        )
        if name == "smddp-torch":
            distribution["torch_distributed"] = {"enabled": True}
    elif name == "mpi":
        number = _often(dice, 1, 8, 0, "4", chance=0.3)
        more: dict[str, Any] = {"custom_mpi_options": dice.choice(OPTIONS)} if dice.random() < 0.4 else {}
        more |= {"process_per_host": 1} if dice.random() < 0.05 else {}
        distribution["mpi"] = _on(dice, processes_per_host=number, **more)
    else:
        distribution[name] = _on(dice)


def _driver(dice: Random, name: str) -> dict[str, Any]:
    driver: dict[str, Any] = {}
    if dice.random() < 0.6:
        driver["process_count_per_node"] = _often(dice, 1, 8, 0, "many", 1.5, chance=0.4)
    if name == "MPI" and dice.random() < 0.5:
        options: tuple[Any, ...] = (
            ["-x", "A=b"],
            ["-x A=b"],
            "-x A=b",
            ["-x", "FI_EFA_USE_DEVICE_RDMA=1"],
            [1],
        )
        options = (*options, ["--mca", "btl_vader_single_copy_mechanism", "none"])
        driver["mpi_additional_options"] = dice.choice(options)
    if name == "Torchrun" and dice.random() < 0.4:
        smps: tuple[Any, ...] = ({"hybrid_shard_degree": 4}, {"random_seed": "x"}, {"shard_degree": 4}, "smp")
        driver["smp"] = dice.choice(smps)
    if dice.random() < 0.06:
        driver["processes"] = 4
    return driver
