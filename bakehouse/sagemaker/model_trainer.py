"""What version 3 of SageMaker's SDK makes of `Torchrun` and `MPI`, the drivers that its ModelTrainer takes.

It sends no hyperparameters for a launcher, and neither the image's own start nor a toolkit in it is used:
the job runs `/bin/bash` with a script of the SDK. That lies in a channel `sm_drivers`, with the SDK's drivers
and two JSON files that say what to start; the training code is a channel `code`, unpacked. The drivers start
their processes on every host of a job: they know no instance groups, and take `algo-1` for the leader.

Written after sagemaker-train 1.27.0 and sagemaker-core 2.27.0, which sagemaker 3.27.0 is made of.
"""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.distribution import Training
from bakehouse.sagemaker.distribution_options import Settings, count, read_options
from bakehouse.sagemaker.findings import Findings
from bakehouse.sagemaker.instance_groups import check_groups, check_processes, check_rdma
from bakehouse.util.suggest import suggestion

CODE_CHANNEL, DRIVERS_CHANNEL = "code", "sm_drivers"
_SCRIPT = f"/opt/ml/input/data/{DRIVERS_CHANNEL}/sm_train.sh"
ENTRYPOINT = ("/bin/bash",)
ARGUMENTS = ("-c", f"chmod +x {_SCRIPT} && {_SCRIPT}")
"""The job's ContainerEntrypoint and ContainerArguments."""

_PROCESSES, _OPTIONS, _SMP = "process_count_per_node", "mpi_additional_options", "smp"
_DRIVERS = {"Torchrun": "torchrun_driver.py", "MPI": "mpi_driver.py"}
_KEYS = {"Torchrun": (_PROCESSES, _SMP), "MPI": (_PROCESSES, _OPTIONS)}
_SMP_KEYS = (
    "hybrid_shard_degree",
    "sm_activation_offloading",
    "activation_loading_horizon",
    "fsdp_cache_flush_warnings",
    "allow_empty_shards",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
    "random_seed",
)
_SMP_FLAGS = ("sm_activation_offloading", "fsdp_cache_flush_warnings", "allow_empty_shards")
_IGNORED = (".env", ".git", "__pycache__", ".DS_Store", ".cache", ".ipynb_checkpoints")


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """How one of the SDK's drivers is told what to start."""

    driver: str
    """`Torchrun`, `MPI`, or empty: one process a host."""
    distributed: Mapping[str, object]
    """What `distributed.json` says."""
    source_code: Mapping[str, object]
    """What `sourcecode.json` says."""
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def requirements(self) -> str:
        return str(self.source_code["requirements"] or "")


def is_for_model_trainer(distribution: Mapping[str, object]) -> bool:
    """Whether a mapping names a driver of version 3, instead of a strategy of version 2."""
    return bool(_DRIVERS.keys() & distribution)


def driver_settings(
    distributed: Mapping[str, object], training: Training, source_dir: str, requirements: str = ""
) -> DriverSettings:
    """What ModelTrainer sends for `{"Torchrun": {…}}`, `{"MPI": {…}}` or nothing.

    Raises UsageError with every mistake.
    """
    findings = driver_findings(distributed, training)
    findings.raise_errors()
    driver, values = next(iter(distributed.items()), ("", {}))
    settings = values if isinstance(values, Mapping) else {}
    smp = settings.get(_SMP)
    dumped: dict[str, object] = {key: settings.get(key) for key in _KEYS.get(driver, ())}
    sent = {}
    if isinstance(smp, Mapping):
        dumped[_SMP] = {key: smp.get(key) for key in _SMP_KEYS}
        sent["mp_parameters"] = json.dumps({key: smp[key] for key in _SMP_KEYS if smp.get(key) is not None})
    code = {
        "source_dir": source_dir,
        "requirements": requirements or None,
        "entry_script": training.entry_point,
        "command": None,
        "args": None,
        "ignore_patterns": list(_IGNORED),
    }
    warnings = tuple(one.message for one in findings.warnings)
    return DriverSettings(driver, dumped, code, sent, warnings)


def driver_findings(distributed: Mapping[str, object], training: Training) -> Findings:
    """What is wrong with the drivers that a job asks for, and what they do without a word."""
    findings = Findings()
    check_groups(training.groups, findings)
    for name, value in distributed.items():
        if name not in _DRIVERS:
            hint = suggestion(name, _DRIVERS)
            findings.at(launch_rules.UNKNOWN_STRATEGY, f"distributed.{name}", "is no driver of SDK v3", hint)
        elif not isinstance(value, Mapping):
            hint = f"such as `{{{_PROCESSES!r}: 2}}`"
            findings.at(launch_rules.MAPPING, f"distributed.{name}", "has to be a mapping", hint)
    if len(distributed) > 1:
        findings.at(launch_rules.ONE_STRATEGY, "distributed", "takes one driver", "leave the others out")
    if findings.errors:
        return findings
    driver, values = next(iter(distributed.items()), ("", {}))
    settings = values if isinstance(values, Mapping) else {}
    _check(driver, settings, training, findings)
    if not findings.errors:
        _warn(driver, settings, training, findings)
    return findings


def channel(packages: Path, settings: DriverSettings) -> dict[str, bytes]:
    """The files of the channel `sm_drivers`, from a folder where the SDK is installed or unpacked."""
    drivers = packages / "sagemaker/train/container_drivers"
    files = {
        path.relative_to(drivers).as_posix(): path.read_bytes()
        for path in sorted(drivers.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    installer = packages / "sagemaker/core/utils/install_requirements.py"
    files["scripts/install_requirements.py"] = installer.read_bytes()
    files["sourcecode.json"] = json.dumps(settings.source_code).encode()
    files["distributed.json"] = json.dumps(settings.distributed).encode()
    templates = (packages / "sagemaker/train/templates.py").read_text(encoding="utf-8")
    files["sm_train.sh"] = train_script(templates, settings).encode()
    return files


def train_script(templates: str, settings: DriverSettings) -> str:
    """The script that the job starts, made with the SDK's own templates, a module's text."""
    texts = {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(templates).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    start, install = texts["EXECUTE_BASIC_SCRIPT_DRIVER"], ""
    if settings.driver:
        driver = {"driver_name": settings.driver, "driver_script": _DRIVERS[settings.driver]}
        # The name is spelt so in the SDK.
        start = texts["EXEUCTE_DISTRIBUTED_DRIVER"].format(**driver)
    if settings.requirements:
        install = texts["INSTALL_REQUIREMENTS"].format(requirements_file=settings.requirements)
    script: str = texts["TRAIN_SCRIPT_TEMPLATE"].format(
        working_dir=f"cd /opt/ml/input/data/{CODE_CHANNEL} \n",
        install_requirements=install,
        execute_driver=start,
    )
    return script


def _check(driver: str, settings: Settings, training: Training, findings: Findings) -> None:
    path = f"distributed.{driver}"
    script = training.entry_point
    if not script:
        findings.at(
            launch_rules.NO_SCRIPT,
            "entry_script",
            "is missing",
            "the SDK's drivers start a script of `source_dir`",
        )
    elif not script.endswith((".py",) if driver else (".py", ".sh")):
        starts = f"`{driver}` starts Python programs" if driver else "the SDK starts `.py` and `.sh`"
        findings.at(launch_rules.PYTHON_SCRIPT, "entry_script", f"is `{script}`", starts)
    for key, value in settings.items():
        here = f"{path}.{key}"
        if key not in _KEYS[driver]:
            findings.at(launch_rules.UNKNOWN_KEY, here, "is unknown", suggestion(key, _KEYS[driver]))
        elif key == _PROCESSES and value is not None:
            count(here, value, findings)
            for group in training.groups:
                check_processes(here, value, group, findings)
        elif key == _OPTIONS and value is not None:
            _check_options(here, value, training, findings)
        elif key == _SMP and isinstance(value, Mapping):
            _check_smp(here, value, findings)
        elif key == _SMP and value is not None:
            findings.at(launch_rules.MAPPING, here, "has to be a mapping")


def _check_smp(path: str, value: Settings, findings: Findings) -> None:
    for name, one in value.items():
        here = f"{path}.{name}"
        if name not in _SMP_KEYS:
            findings.at(launch_rules.UNKNOWN_KEY, here, "is unknown", suggestion(name, _SMP_KEYS))
        elif name in _SMP_FLAGS and not isinstance(one, bool | None):
            findings.at(launch_rules.MP_PARAMETERS, here, "is `true` or `false`")
        elif name not in _SMP_FLAGS and (isinstance(one, bool) or not isinstance(one, int | None)):
            findings.at(launch_rules.MP_PARAMETERS, here, "has to be a whole number")


def _check_options(path: str, value: object, training: Training, findings: Findings) -> None:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        findings.at(
            launch_rules.OPTIONS, path, "has to be a list of texts", 'such as `["-x", "NCCL_DEBUG=INFO"]`'
        )
        return
    for word in value:
        if word.startswith("-") and " " in word:
            halves = ", ".join(f'"{half}"' for half in word.split())
            findings.at(launch_rules.OPTIONS, path, f"has `{word}` as one word", f"write {halves}")
    read_options(path, value, findings)
    for group in training.groups:
        check_rdma(path, value, group, findings)


def _warn(driver: str, settings: Settings, training: Training, findings: Findings) -> None:
    hosts = sum(group.count for group in training.groups)
    if driver and len(training.groups) > 1:
        message = f"`{driver}` starts its processes on the hosts of all instance groups"
        findings.add(launch_rules.GROUPS_V3, message)
    if driver == "MPI" and hosts > 1:
        number = settings.get(_PROCESSES) or "as many processes as one host has GPUs"
        message = f"the SDK's MPI driver starts {number} in all, not on each of {hosts} hosts"
        findings.add(launch_rules.RANKS_V3, message)
