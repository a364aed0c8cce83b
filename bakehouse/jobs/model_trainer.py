"""Jobs of SDK v3's ModelTrainer with its drivers `Torchrun` and `MPI`, and the checks of these.

SDK v3 sends no hyperparameters for a launcher and uses neither the image's entry point nor its toolkit. The
job runs `/bin/bash` with a script of the SDK. The channel `sm_drivers` contains the script, the SDK's drivers
and two JSON files that configure them. The channel `code` contains the unpacked training code. The drivers
start processes on every host: they ignore instance groups, and `algo-1` is the leader.

Based on sagemaker-train 1.27.0 and sagemaker-core 2.27.0, the parts of sagemaker 3.27.0.
"""

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bakehouse.jobs import rules, smp_parameters
from bakehouse.jobs.distribution import (
    SMDDP_MCA,
    LaunchContext,
    Settings,
    check_count,
    check_framework_of_groups,
    check_options,
)
from bakehouse.jobs.instance_groups import check_groups, check_processes, check_rdma
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.script_arguments import variable_name
from bakehouse.util import python_source
from bakehouse.util.files import read_bytes, read_text
from bakehouse.util.suggest import suggestion

REQUIREMENTS = "requirements.txt"
CODE_CHANNEL, DRIVERS_CHANNEL = "code", "sm_drivers"
_SCRIPT = f"/opt/ml/input/data/{DRIVERS_CHANNEL}/sm_train.sh"
ENTRYPOINT = ("/bin/bash",)
ARGUMENTS = ("-c", f"chmod +x {_SCRIPT} && {_SCRIPT}")
"""ContainerEntrypoint and ContainerArguments of the job."""

_PROCESSES, _OPTIONS, _SMP = "process_count_per_node", "mpi_additional_options", "smp"
_DRIVERS = {"Torchrun": "torchrun_driver.py", "MPI": "mpi_driver.py"}
_KEYS = {"Torchrun": (_PROCESSES, _SMP), "MPI": (_PROCESSES, _OPTIONS)}
_IGNORED = (".env", ".git", "__pycache__", ".DS_Store", ".cache", ".ipynb_checkpoints")


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Configuration of one of the SDK's drivers."""

    driver: str
    """`Torchrun`, `MPI`, or empty for one process per host."""
    distributed: Mapping[str, object]
    """Content of `distributed.json`."""
    source_code: Mapping[str, object]
    """Content of `sourcecode.json`."""
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def requirements(self) -> str:
        return str(self.source_code["requirements"] or "")


def is_for_model_trainer(distribution: Mapping[str, object]) -> bool:
    """Return whether a mapping names a driver of SDK v3 instead of a strategy of SDK v2."""
    return bool(_DRIVERS.keys() & distribution)


def drivers(distribution: Mapping[str, object]) -> Mapping[str, object]:
    """Return the driver of SDK v3 that replaces a strategy of SDK v2, or the strategy if there is none."""
    return {"Torchrun": {}} if distribution == {"torch_distributed": {"enabled": True}} else distribution


def driver_settings(
    distributed: Mapping[str, object], context: LaunchContext, source_dir: str, requirements: str = ""
) -> DriverSettings:
    """Return the configuration that ModelTrainer sends for `{"Torchrun": {…}}`, `{"MPI": {…}}` or `{}`.

    Raises UsageError with all errors.
    """
    findings = driver_findings(distributed, context)
    findings.raise_errors()
    driver, settings = _driver(distributed)
    smp = settings.get(_SMP)
    dumped: dict[str, object] = {key: settings.get(key) for key in _KEYS.get(driver, ())}
    sent = {}
    if isinstance(smp, Mapping):
        keys = smp_parameters.parameters(2)
        dumped[_SMP] = {key: smp.get(key) for key in keys}
        sent["mp_parameters"] = json.dumps({key: smp[key] for key in keys if smp.get(key) is not None})
    code = {
        "source_dir": source_dir,
        "requirements": requirements or None,
        "entry_script": context.entry_point,
        "command": None,
        "args": None,
        "ignore_patterns": list(_IGNORED),
    }
    warnings = tuple(warning.message for warning in findings.warnings)
    return DriverSettings(driver, dumped, code, sent, warnings)


def driver_findings(distributed: Mapping[str, object], context: LaunchContext) -> Findings:
    """Return the errors in a job's drivers, and warnings about their silent actions."""
    findings = Findings()
    check_groups(context.groups, findings)
    check_framework_of_groups(context, findings)
    for name, value in distributed.items():
        if name not in _DRIVERS:
            hint = suggestion(name, _DRIVERS)
            findings.at(rules.UNKNOWN_STRATEGY, f"distributed.{name}", "is not a driver of SDK v3", hint)
        elif not isinstance(value, Mapping):
            hint = f"for example `{{{_PROCESSES!r}: 2}}`"
            findings.at(rules.MAPPING, f"distributed.{name}", "must be a mapping", hint)
    if len(distributed) > 1:
        findings.at(rules.ONE_STRATEGY, "distributed", "has several drivers", "keep one of them")
    if findings.errors:
        return findings
    driver, settings = _driver(distributed)
    _check_driver(driver, settings, context, findings)
    if not findings.errors:
        _warn(driver, settings, context, findings)
    return findings


def variable_findings(
    hyperparameters: Mapping[str, object], channels: Iterable[str], entry_script: str = ""
) -> Findings:
    """Return errors for settings that end the job's script when its shell reads the variables of the job.

    The script changes hyphens of hyperparameters, but no other characters, and puts values in single quotes.
    """
    findings = Findings()
    start, other = "the start script of SDK v3 can't", "or use `--sdk v2` or `--sdk boto3`"
    for name in channels:
        if (variable := f"SM_CHANNEL_{name.upper()}") != variable_name("SM_CHANNEL_", name):
            message = f"{start} set `{variable}` for the channel `{name}`"
            findings.add(rules.VARIABLES_V3, message, f"use letters, digits and `_`, {other}")
    for name, value in hyperparameters.items():
        variable = f"SM_HP_{name.replace('-', '_').upper()}"
        text = value if isinstance(value, str) else json.dumps(value)
        if variable != variable_name("SM_HP_", name):
            message = f"{start} set `{variable}` for the hyperparameter `{name}`"
            findings.add(rules.VARIABLES_V3, message, f"use letters, digits, `_` and `-`, {other}")
        elif "'" in text:
            message = f"{start} read the quote in the hyperparameter `{name}`"
            findings.add(rules.VARIABLES_V3, message, f"use a value without `'`, {other}")
    if "'" in entry_script:
        findings.add(rules.VARIABLES_V3, f"{start} read the quote in `{entry_script}`", "rename the script")
    return findings


def channel(packages: Path, settings: DriverSettings) -> dict[str, bytes]:
    """Return the files of the channel `sm_drivers`, from a directory with the installed SDK."""
    drivers = packages / "sagemaker/train/container_drivers"
    files = {
        path.relative_to(drivers).as_posix(): read_bytes(path)
        for path in sorted(drivers.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    installer = packages / "sagemaker/core/utils/install_requirements.py"
    files["scripts/install_requirements.py"] = read_bytes(installer)
    files["sourcecode.json"] = json.dumps(settings.source_code).encode()
    files["distributed.json"] = json.dumps(settings.distributed).encode()
    templates = read_text(packages / "sagemaker/train/templates.py")
    files["sm_train.sh"] = train_script(templates, settings).encode()
    return files


def train_script(templates: str, settings: DriverSettings) -> str:
    """Return the job's script, made with the SDK's templates, given as the text of their module."""
    texts = {
        target.id: ast.literal_eval(node.value)
        for node in python_source.parse(templates).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    start, install = texts["EXECUTE_BASIC_SCRIPT_DRIVER"], ""
    if settings.driver:
        driver = {"driver_name": settings.driver, "driver_script": _DRIVERS[settings.driver]}
        # The SDK spells the name like this.
        start = texts["EXEUCTE_DISTRIBUTED_DRIVER"].format(**driver)
    if settings.requirements:
        install = texts["INSTALL_REQUIREMENTS"].format(requirements_file=settings.requirements)
    script: str = texts["TRAIN_SCRIPT_TEMPLATE"].format(
        working_dir=f"cd /opt/ml/input/data/{CODE_CHANNEL} \n",
        install_requirements=install,
        execute_driver=start,
    )
    return script


def _driver(distributed: Mapping[str, object]) -> tuple[str, Settings]:
    """Return the driver and its settings; empty without one."""
    driver, settings = next(iter(distributed.items()), ("", {}))
    return driver, settings if isinstance(settings, Mapping) else {}


def _check_driver(driver: str, settings: Settings, context: LaunchContext, findings: Findings) -> None:
    path = f"distributed.{driver}"
    script = context.entry_point
    if not script:
        findings.at(
            rules.NO_SCRIPT,
            "entry_script",
            "is missing",
            "set it to a script in `source_dir`, which the SDK's drivers start",
        )
    elif not script.endswith((".py",) if driver else (".py", ".sh")):
        starter, kinds = (f"`{driver}`", "Python programs") if driver else ("the SDK", "`.py` and `.sh`")
        message = f"is `{script}`, but {starter} only starts {kinds}"
        findings.at(rules.PYTHON_SCRIPT, "entry_script", message)
    for key, value in settings.items():
        here = f"{path}.{key}"
        if key not in _KEYS[driver]:
            findings.at(rules.UNKNOWN_KEY, here, "is unknown", suggestion(key, _KEYS[driver]))
        elif key == _PROCESSES and value is not None:
            check_count(here, value, findings)
            for group in context.groups:
                check_processes(here, value, group, findings)
        elif key == _OPTIONS and value is not None:
            _check_options(here, value, context, findings)
        elif key == _SMP and isinstance(value, Mapping):
            _check_smp(here, value, context, findings)
        elif key == _SMP and value is not None:
            findings.at(rules.MAPPING, here, "must be a mapping")


def _check_smp(path: str, value: Settings, context: LaunchContext, findings: Findings) -> None:
    known = smp_parameters.parameters(2)
    for name, setting in value.items():
        if name not in known:
            findings.at(rules.UNKNOWN_KEY, f"{path}.{name}", "is unknown", suggestion(name, known))
        elif setting is not None:
            smp_parameters.check_value(f"{path}.{name}", name, setting, findings)
    gpus = {group.gpus for group in context.groups}
    hosts = sum(group.count for group in context.groups)
    ranks = hosts * (next(iter(gpus)) or 0) if len(gpus) == 1 else 0
    job = smp_parameters.SmpContext(context.smp, 2, context.framework, ranks or None)
    if not findings.errors:
        smp_parameters.check_degrees(path, value, job, findings)


def _check_options(path: str, value: object, context: LaunchContext, findings: Findings) -> None:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        findings.at(
            rules.OPTIONS, path, "must be a list of strings", 'for example `["-x", "NCCL_DEBUG=INFO"]`'
        )
        return
    for word in value:
        if word.startswith("-") and " " in word:
            words = ", ".join(f'"{part}"' for part in word.split())
            findings.at(rules.OPTIONS, path, f"has `{word}` as one word", f"write {words}")
    check_options(path, value, SMDDP_MCA, "the SDK's driver", findings)
    for group in context.groups:
        check_rdma(path, value, group, context.libfabric, findings)


def _warn(driver: str, settings: Settings, context: LaunchContext, findings: Findings) -> None:
    hosts = sum(group.count for group in context.groups)
    if driver and len(context.groups) > 1:
        message = f"`{driver}` starts processes on the hosts of all instance groups"
        findings.add(rules.GROUPS_V3, message)
    if driver == "MPI" and hosts > 1:
        count = settings.get(_PROCESSES)
        processes = f"{count} processes" if count else "one process for each GPU of one host"
        message = f"the SDK's MPI driver starts {processes} in total, not on each of {hosts} hosts"
        findings.add(rules.RANKS_V3, message)
