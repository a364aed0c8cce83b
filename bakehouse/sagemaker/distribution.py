"""What an estimator's `distribution` turns into: the hyperparameters that SageMaker's SDK sends with a job.

This is version 2 of the SDK. Its classes PyTorch and TensorFlow hand `distribution` on; the generic Estimator
drops it, so an image without a framework is started by PyTorch, as `estimator` writes it. Version 3 sends no
hyperparameters for a launcher: see `model_trainer`.

What the SDK refuses is refused here, and so is what it takes and then silently drops.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bakehouse.sagemaker import launch_rules
from bakehouse.sagemaker.distribution_options import (
    ENABLED,
    GROUPS,
    OPTIONS,
    PARAMETERS,
    PROCESSES,
    Settings,
    read_strategies,
)
from bakehouse.sagemaker.findings import Findings
from bakehouse.sagemaker.instance_groups import InstanceGroup, check_groups, check_processes, check_rdma
from bakehouse.util.suggest import suggestion

Framework = Literal["pytorch", "tensorflow", ""]

_SCOPE = f"sagemaker_distribution_{GROUPS}"
_DATA, _MODEL = "smdistributed.dataparallel", "smdistributed.modelparallel"
_MIRRORED = "multi_worker_mirrored_strategy"
_ORDER: tuple[str, ...] = (
    "mpi",
    "torch_distributed",
    "pytorchddp",
    "smdistributed.dataparallel",
    "parameter_server",
    "multi_worker_mirrored_strategy",
)
"""Which of several a toolkit starts: the first."""
_TOGETHER = ({"torch_distributed", _DATA}, {"torch_distributed", "pytorchddp"})
_FRAMEWORKS: Mapping[str, tuple[Framework, str]] = {
    "torch_distributed": ("pytorch", "PyTorch"),
    "pytorchddp": ("pytorch", "PyTorch"),
    "parameter_server": ("tensorflow", "TensorFlow"),
    _MIRRORED: ("tensorflow", "TensorFlow"),
}
_OLDEST_WITH_GROUPS: Mapping[str, tuple[int, ...]] = {"pytorch": (1, 10), "tensorflow": (2, 6)}
_OLDEST_MIRRORED = (2, 9)


@dataclass(frozen=True, slots=True)
class Training:
    """The job that a `distribution` is for."""

    groups: tuple[InstanceGroup, ...]
    framework: Framework = ""
    version: str = ""
    """The framework's; empty where it is unknown."""
    entry_point: str = ""


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """What a job is told for its launcher."""

    launcher: str = ""
    """What starts the processes; empty: one process a host."""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    """Each is sent as JSON."""
    groups: tuple[str, ...] = ()
    """Where the launcher starts; empty: in every group by itself."""
    warnings: tuple[str, ...] = ()
    """What the SDK does without a word."""


def launch_settings(distribution: Mapping[str, object], training: Training) -> LaunchSettings:
    """The hyperparameters for a `distribution`; raises UsageError with every mistake in it."""
    findings = distribution_findings(distribution, training)
    findings.raise_errors()
    if not distribution:
        return LaunchSettings()
    found = read_strategies(distribution, findings)
    named = _named(distribution.get(GROUPS, []), training.groups, findings)
    launcher = next((name for name in _ORDER if _is_on(found, name)), "")
    sent = _sent(found, named, training.groups)
    warnings = tuple(one.message for one in findings.warnings)
    return LaunchSettings(launcher, sent, named if _SCOPE in sent else (), warnings)


def distribution_findings(distribution: Mapping[str, object], training: Training) -> Findings:
    """What is wrong with a `distribution`, and what the SDK does with it without a word.

    Where its keys can't be read, nothing is said of what they would mean.
    """
    findings = Findings()
    check_groups(training.groups, findings)
    found = read_strategies(distribution, findings)
    if findings.errors or not distribution:
        return findings
    _check_framework(found, training, findings)
    _check_together(found, training, findings)
    named = _named(distribution.get(GROUPS, []), training.groups, findings)
    if findings.errors:
        return findings
    _check_types(found, named, training.groups, GROUPS in distribution, findings)
    if named and (why := _why_without_groups(found)):
        path, hint = f"distribution.{GROUPS}", "leave the groups out, or take `mpi`"
        findings.at(launch_rules.GROUP_OF_DISTRIBUTION, path, why, hint)
    if not findings.errors:
        _warn(found, named, training, findings)
    return findings


def _is_on(found: Mapping[str, Settings], name: str) -> bool:
    return bool(found.get(name, {}).get(ENABLED))


def numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version; none where it has others or is unknown."""
    words = version.split(".")[:2]
    return tuple(int(one) for one in words) if all(one.isdigit() for one in words) else ()


def _below(version: str, oldest: tuple[int, ...]) -> bool:
    """Whether a version that is known is an older one."""
    return bool(numbers(version)) and numbers(version) < oldest


def _check_framework(found: Mapping[str, Settings], training: Training, findings: Findings) -> None:
    for name in found:
        needed, called = _FRAMEWORKS.get(name, ("", ""))
        # The class PyTorch starts images without a framework, too.
        if needed and needed != (training.framework or "pytorch"):
            findings.at(
                launch_rules.FRAMEWORK,
                f"distribution.{name}",
                f"is for {called}",
                "the job is for another framework",
            )
    path = f"distribution.{_MIRRORED}"
    if _is_on(found, _MIRRORED) and _below(training.version, _OLDEST_MIRRORED):
        findings.at(
            launch_rules.MIRRORED, path, f"needs TensorFlow 2.9, and the image has {training.version}"
        )
    oldest = _OLDEST_WITH_GROUPS.get(training.framework, ())
    if len(training.groups) > 1 and _below(training.version, oldest):
        message = f"instance groups need {training.framework} {'.'.join(map(str, oldest))} or newer"
        findings.add(launch_rules.GROUPS_FRAMEWORK, message, f"the image has {training.version}")
    script = training.entry_point
    if _is_on(found, "torch_distributed") and script and not script.endswith(".py"):
        findings.at(
            launch_rules.PYTHON_SCRIPT,
            "distribution.torch_distributed",
            f"starts Python programs, and `{script}` is none",
        )


def _check_together(found: Mapping[str, Settings], training: Training, findings: Findings) -> None:
    on = [name for name in _ORDER if _is_on(found, name)]
    libraries = [name for name in found if name.startswith("smdistributed")]
    if "pytorchddp" in found and libraries and training.framework != "tensorflow":
        hint = "`pytorchddp` is `smdistributed.dataparallel` by another name"
        findings.at(
            launch_rules.DDP_IS_SMDDP, "distribution.pytorchddp", "can't be used with `smdistributed`", hint
        )
    elif len(on) > 1 and set(on) not in _TOGETHER:
        message = f"starts the processes; the toolkit would never look at `{on[1]}`"
        findings.at(launch_rules.ONE_STRATEGY, f"distribution.{on[0]}", message, "enable one of them")
    elif _is_on(found, _MIRRORED) and (others := [*libraries, *(found.keys() & {"parameter_server"})]):
        findings.at(
            launch_rules.MIRRORED,
            f"distribution.{_MIRRORED}",
            f"can't stand beside `{others[0]}`",
            "leave that out",
        )
    if _is_on(found, _MODEL) and not {"mpi", "torch_distributed"} & {*on}:
        hint = 'for SMP 1 add `"mpi": {"enabled": true}`, for SMP 2 `"torch_distributed": {"enabled": true}`'
        findings.at(launch_rules.SMP_LAUNCHER, f"distribution.{_MODEL}", "needs a launcher", hint)


def _named(wanted: object, groups: Sequence[InstanceGroup], findings: Findings) -> tuple[str, ...]:
    """The group that a distribution is for; none where the job has instances of one type and no groups."""
    path = f"distribution.{GROUPS}"
    known = [group.name for group in groups if group.name]
    listed = ", ".join(f'"{name}"' for name in known)
    if not isinstance(wanted, list | tuple) or not all(isinstance(name, str) for name in wanted):
        findings.at(
            launch_rules.GROUP_OF_DISTRIBUTION,
            path,
            "has to be a list of group names",
            f"such as `[{listed}]`" if known else "",
        )
        return ()
    for name in wanted:
        if name not in known:
            hint = suggestion(name, known) or "the job has instances of one type: leave `instance_groups` out"
            findings.at(
                launch_rules.GROUP_OF_DISTRIBUTION,
                path,
                f"names `{name}`, which is no group of this job",
                hint,
            )
    if len(wanted) > 1:
        findings.at(
            launch_rules.GROUP_OF_DISTRIBUTION,
            path,
            f"names {len(wanted)} groups",
            "SageMaker starts a launcher on one group only",
        )
    if len(known) > 1 and not wanted:
        hint = f'add `"{GROUPS}": [{listed.partition(",")[0]}]`, or another of {listed}'
        findings.add(
            launch_rules.GROUP_OF_DISTRIBUTION, "`distribution` doesn't say for which group it is", hint
        )
    return tuple(wanted) or (tuple(known) if len(known) == 1 else ())


def _check_types(
    found: Mapping[str, Settings],
    named: Sequence[str],
    groups: Sequence[InstanceGroup],
    is_named: bool,
    findings: Findings,
) -> None:
    starting = [group for group in groups if group.name in named] or groups
    is_torch = _is_on(found, "torch_distributed")
    for group in starting:
        kind = group.instance_type
        if kind.startswith("ml.trn") and (set(found) != {"torch_distributed"} or is_named):
            findings.at(
                launch_rules.TRAINIUM, "distribution", f"has to be `torch_distributed` alone on `{kind}`"
            )
        processes = found.get("mpi", {}).get(PROCESSES)
        check_processes(f"distribution.mpi.{PROCESSES}", processes, group, findings)
        for name in found:
            options = found[name].get(OPTIONS)
            if isinstance(options, str):
                check_rdma(f"distribution.{name}.{OPTIONS}", shlex.split(options), group, findings)
    if not is_torch and {_DATA, _MODEL, "pytorchddp"} & {*found}:
        for group in groups:
            if "p5.48xlarge" in group.instance_type:
                hint = 'add `"torch_distributed": {"enabled": true}`'
                findings.at(
                    launch_rules.P5,
                    "distribution",
                    f"needs `torch_distributed` on `{group.instance_type}`",
                    hint,
                )


def _why_without_groups(found: Mapping[str, Settings]) -> str:
    """Why the SDK refuses a group, if it does: it counts two launchers only."""
    if _is_on(found, "mpi") or _is_on(found, _DATA) or _is_on(found, "pytorchddp"):
        return ""
    on = [name for name in _ORDER if _is_on(found, name)]
    if not on:
        return "is given, and no launcher is enabled"
    is_dropped = on == ["torch_distributed"] and _MODEL not in found and _DATA not in found
    return "" if is_dropped else f"can't be used with `{on[0]}`: SDK v2 takes it with `mpi` and SMDDP alone"


def _warn(
    found: Mapping[str, Settings], named: Sequence[str], training: Training, findings: Findings
) -> None:
    launcher = next((name for name in _ORDER if _is_on(found, name)), "")
    hosts = sum(group.count for group in training.groups)
    if launcher == "torch_distributed" and len(training.groups) > 1 and _DATA not in found:
        findings.add(
            launch_rules.GROUPS_DROPPED,
            f"SDK v2 drops `{GROUPS}` with `torch_distributed`: torchrun starts in every group, each by "
            f"itself; for `{named[0]}` alone, add the hyperparameter `{_SCOPE}`",
        )
    if launcher == "parameter_server" and hosts == 1:
        message = "the toolkit starts no parameter server on one host"
        findings.add(launch_rules.PARAMETER_SERVER, message)
    if launcher == "parameter_server" and any((group.gpus or 0) > 1 for group in training.groups):
        message = "a parameter server's worker uses one GPU of each instance"
        findings.add(launch_rules.PARAMETER_SERVER, message)


def _sent(
    found: Mapping[str, Settings], named: tuple[str, ...], groups: Sequence[InstanceGroup]
) -> dict[str, object]:
    """The hyperparameters, as the classes of the SDK put them together."""
    unnamed = groups[0].instance_type if not groups[0].name else None
    data = found.get(_DATA, found.get("pytorchddp"))
    is_torch = _is_on(found, "torch_distributed")
    sent: dict[str, object] = {}
    if not is_torch or data is not None or _MODEL in found:
        sent = _general(found, data, named, unnamed)
    if is_torch:
        sent["sagemaker_torch_distributed_enabled"] = True
        if unnamed:
            sent["sagemaker_instance_type"] = unnamed
    return sent


def _general(
    found: Mapping[str, Settings], data: Settings | None, named: tuple[str, ...], unnamed: str | None
) -> dict[str, object]:
    """All but torchrun."""
    sent: dict[str, object] = {_SCOPE: list(named)} if named else {}
    for name in ("parameter_server", _MIRRORED):
        if name in found:
            sent[f"sagemaker_{name}_enabled"] = _is_on(found, name)
    if "mpi" in found:
        settings = found["mpi"]
        sent["sagemaker_mpi_enabled"] = settings[ENABLED]
        if PROCESSES in settings:
            sent["sagemaker_mpi_num_of_processes_per_host"] = settings[PROCESSES]
        sent["sagemaker_mpi_custom_mpi_options"] = settings.get(OPTIONS, "")
    if data is not None or _MODEL in found:
        if _is_on(found, _MODEL) and found[_MODEL].get(PARAMETERS):
            sent["mp_parameters"] = found[_MODEL][PARAMETERS]
        is_data = bool(data and data[ENABLED])
        sent["sagemaker_distributed_dataparallel_enabled"] = is_data
        sent["sagemaker_instance_type"] = unnamed
        if data and is_data:
            sent["sagemaker_distributed_dataparallel_custom_mpi_options"] = data.get(OPTIONS, "")
    return sent
