"""Drivers of SDK v3: their settings and their errors."""

from collections.abc import Mapping
from typing import Any

import pytest

from bakehouse.errors import UsageError
from bakehouse.jobs.distribution import LaunchContext
from bakehouse.jobs.instance_groups import InstanceGroup
from bakehouse.jobs.model_trainer import (
    driver_settings,
    is_for_model_trainer,
    train_script,
    variable_findings,
)
from tests.support.errors import refusal

CPU = (InstanceGroup("ml.c5.xlarge", 2, gpus=0),)
A100 = (InstanceGroup("ml.p4d.24xlarge", 2, gpus=8),)
GROUPS = (
    InstanceGroup("ml.c5.18xlarge", 2, "data", gpus=0),
    InstanceGroup("ml.p4d.24xlarge", 1, "dnn", gpus=8),
)


def job(groups: tuple[InstanceGroup, ...] = CPU, entry_point: str = "train.py") -> LaunchContext:
    return LaunchContext(groups, "pytorch", "2.9.1", entry_point)


def test_a_driver_of_version_3() -> None:
    assert is_for_model_trainer({"Torchrun": {}})
    assert not is_for_model_trainer({"torch_distributed": {"enabled": True}})
    launch = driver_settings({"Torchrun": {"process_count_per_node": 2}}, job(), "src")

    assert launch.distributed == {"process_count_per_node": 2, "smp": None}
    assert launch.source_code["entry_script"] == "train.py"
    assert launch.hyperparameters == {}
    assert launch.warnings == ()


def test_smp_is_a_hyperparameter_of_version_3() -> None:
    launch = driver_settings({"Torchrun": {"smp": {"hybrid_shard_degree": 4}}}, job(A100), "src")

    assert launch.hyperparameters == {"mp_parameters": '{"hybrid_shard_degree": 4}'}


def test_silent_actions_of_the_drivers_of_sdk_v3() -> None:
    assert driver_settings({"MPI": {"process_count_per_node": 2}}, job(GROUPS), "src").warnings == (
        "`MPI` starts processes on the hosts of all instance groups",
        "the SDK's MPI driver starts 2 processes in total, not on each of 3 hosts",
    )


def test_the_script_of_version_3_is_made_of_its_templates() -> None:
    templates = (
        '"""Templates."""\n'
        'EXECUTE_BASIC_SCRIPT_DRIVER = "basic"\n'
        'EXEUCTE_DISTRIBUTED_DRIVER = "{driver_name} {driver_script}"\n'
        'INSTALL_REQUIREMENTS = "install {requirements_file}"\n'
        'TRAIN_SCRIPT_TEMPLATE = "{working_dir}{install_requirements}; {execute_driver}; ${{x}}"\n'
    )
    mpi = driver_settings({"MPI": {}}, job(), "src", "requirements.txt")

    assert train_script(templates, mpi) == (
        "cd /opt/ml/input/data/code \ninstall requirements.txt; MPI mpi_driver.py; ${x}"
    )
    assert train_script(templates, driver_settings({}, job(), "src")).endswith("; basic; ${x}")


MISTAKES: dict[str, tuple[Mapping[str, Any], LaunchContext, str]] = {
    "unknown driver": (
        {"torchrun": {}},
        job(),
        """\
error: `distributed.torchrun` is not a driver of SDK v3

hint: did you mean `Torchrun`?""",
    ),
    "two drivers": (
        {"Torchrun": {}, "MPI": {}},
        job(),
        """\
error: `distributed` has several drivers

hint: keep one of them""",
    ),
    "unknown key": (
        {"MPI": {"processes_per_host": 2}},
        job(),
        """\
error: `distributed.MPI.processes_per_host` is unknown

hint: use one of `mpi_additional_options`, `process_count_per_node`""",
    ),
    "more processes than GPUs": (
        {"Torchrun": {"process_count_per_node": 16}},
        job(A100),
        """\
error: `distributed.Torchrun.process_count_per_node` is 16, but `ml.p4d.24xlarge` has 8 GPUs

hint: use at most 8""",
    ),
    "options as one text": (
        {"MPI": {"mpi_additional_options": "-x A=1"}},
        job(),
        """\
error: `distributed.MPI.mpi_additional_options` must be a list of strings

hint: for example `["-x", "NCCL_DEBUG=INFO"]`""",
    ),
    "two options in one": (
        {"MPI": {"mpi_additional_options": ["-x A=1"]}},
        job(),
        """\
error: `distributed.MPI.mpi_additional_options` has `-x A=1` as one word

hint: write "-x", "A=1\"""",
    ),
    "RDMA where there is none": (
        {"MPI": {"mpi_additional_options": ["-x", "FI_EFA_USE_DEVICE_RDMA=1"]}},
        job((InstanceGroup("ml.p3dn.24xlarge", 2, gpus=8, rdma_read=False),)),
        """\
error: `distributed.MPI.mpi_additional_options` sets `FI_EFA_USE_DEVICE_RDMA`, but EFA on `ml.p3dn.24xlarge` \
cannot read the memory of other hosts

hint: remove it for this type""",
    ),
    "no script": (
        {"MPI": {}},
        job(entry_point=""),
        """\
error: `entry_script` is missing

hint: set it to a script in `source_dir`, which the SDK's drivers start""",
    ),
    "a shell script": (
        {"Torchrun": {}},
        job(entry_point="train.sh"),
        """\
error: `entry_script` is `train.sh`, but `Torchrun` only starts Python programs""",
    ),
    "unknown parameter": (
        {"Torchrun": {"smp": {"shard_degree": 4}}},
        job(),
        """\
error: `distributed.Torchrun.smp.shard_degree` is unknown

hint: did you mean `hybrid_shard_degree`?""",
    ),
    "a degree that is not a number": (
        {"Torchrun": {"smp": {"random_seed": "7"}}},
        job(),
        "error: `distributed.Torchrun.smp.random_seed` must be a whole number of at least 0",
    ),
    "a flag that is none": (
        {"Torchrun": {"smp": {"allow_empty_shards": 1}}},
        job(),
        "error: `distributed.Torchrun.smp.allow_empty_shards` must be `true` or `false`",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_about_drivers_gets_its_answer(name: str) -> None:
    distributed, context, messages = MISTAKES[name]

    assert refusal(UsageError, driver_settings, distributed, context or job(), "src").strip() == messages


@pytest.mark.parametrize(
    ("parameters", "channels", "script", "message", "hint"),
    [
        (
            {},
            ("val-set",),
            "train.py",
            "the start script of SDK v3 can't set `SM_CHANNEL_VAL-SET` for the channel `val-set`",
            "use letters, digits and `_`, or use `--sdk v2` or `--sdk boto3`",
        ),
        (
            {"model.lr": 1},
            (),
            "train.py",
            "the start script of SDK v3 can't set `SM_HP_MODEL.LR` for the hyperparameter `model.lr`",
            "use letters, digits, `_` and `-`, or use `--sdk v2` or `--sdk boto3`",
        ),
        (
            {"prompt": {"text": "it's"}},
            (),
            "train.py",
            "the start script of SDK v3 can't read the quote in the hyperparameter `prompt`",
            "use a value without `'`, or use `--sdk v2` or `--sdk boto3`",
        ),
        (
            {},
            (),
            "it's.py",
            "the start script of SDK v3 can't read the quote in `it's.py`",
            "rename the script",
        ),
    ],
)
def test_the_start_script_of_version_3_reads_variables_with_a_shell(
    parameters: Mapping[str, object], channels: tuple[str, ...], script: str, message: str, hint: str
) -> None:
    [finding] = variable_findings(parameters, channels, script).errors

    assert (finding.message, finding.hint) == (message, hint)
    assert variable_findings({"lr-max": 1, "a": "b c"}, ["val_set", "Train2"], "train.py").errors == ()
