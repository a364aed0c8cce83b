"""The hyperparameters that SageMaker's SDK v2 sends for an estimator's `distribution`, and its checks.

The classes PyTorch and TensorFlow pass `distribution` on. The generic Estimator ignores it, so `bake
estimator` uses PyTorch for images without a framework. SDK v3 sends no hyperparameters for a launcher; see
`model_trainer`.

Values that the SDK rejects are errors here, and so are values that it silently ignores. Messages name the
path of a key, because the source of the mapping is unknown.
"""

import itertools
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.jobs import rules, smp_parameters
from bakehouse.jobs.instance_groups import InstanceGroup, check_groups, check_processes, check_rdma, numbers
from bakehouse.jobs.rules import Findings, RuleViolation
from bakehouse.jobs.smp_parameters import SmpContext
from bakehouse.ledger.toolkit import legacy_keras
from bakehouse.util.format import format_names
from bakehouse.util.suggest import suggestion

Settings = Mapping[str, object]

GROUPS = "instance_groups"
ENABLED, PROCESSES, OPTIONS, PARAMETERS = "enabled", "processes_per_host", "custom_mpi_options", "parameters"
_MCA_OPTIONS = ("-mca", "--mca", "-gmca", "--gmca")
TOOLKIT_MCA: Mapping[str, str] = {
    "pml": "`ob1`",
    "btl": "`^openib`",
    "btl_tcp_if_include": "the network interface of the host",
    "oob_tcp_if_include": "the network interface of the host",
    "plm_rsh_no_tree_spawn": "`1`",
    "orte_abort_on_non_zero_status": "`1`",
    "btl_vader_single_copy_mechanism": "`none`",
}
"""MCA parameters that mpirun always gets (sagemaker-training 5.1.4), and their values."""
SMDDP_MCA = {**TOOLKIT_MCA, "plm_rsh_num_concurrent": "the number of hosts"}
"""The same with SMDDP, and with the MPI driver of SDK v3 (sagemaker-train 1.27.0)."""
_COUNT_OPTIONS, _HOST_OPTIONS = ("-np", "--np", "-n", "--n", "-c"), ("--host", "-host", "-H")
_SCOPE = f"sagemaker_distribution_{GROUPS}"
LIBRARIES = "smdistributed"
_DATA, _MODEL = "smdistributed.dataparallel", "smdistributed.modelparallel"
MIRRORED = "multi_worker_mirrored_strategy"
_KEYS: Mapping[str, tuple[str, ...]] = {
    "mpi": (ENABLED, PROCESSES, OPTIONS),
    "torch_distributed": (ENABLED,),
    "pytorchddp": (ENABLED, OPTIONS),
    _DATA: (ENABLED, OPTIONS),
    _MODEL: (ENABLED, PARAMETERS),
    "parameter_server": (ENABLED,),
    MIRRORED: (ENABLED,),
}
"""Keys of each strategy."""
_ALTERNATIVES = {
    "Torchrun": "use it with ModelTrainer of SDK v3; an estimator has `torch_distributed`",
    "MPI": "use it with ModelTrainer of SDK v3; an estimator has `mpi`",
    "torchrun": "use `torch_distributed`, which starts torchrun",
    "horovod": "use `mpi`, which starts Horovod",
    "pytorchxla": "use `torch_distributed`; only SageMaker Training Compiler supports `pytorchxla`",
}
"""Hints for names that are not strategies."""
_ORDER: tuple[str, ...] = ("mpi", "torch_distributed", "pytorchddp", _DATA, "parameter_server", MIRRORED)
"""A toolkit starts the first enabled launcher."""
_TOGETHER = ({"torch_distributed", _DATA}, {"torch_distributed", "pytorchddp"})
_FRAMEWORKS = {key: name for name, known in FRAMEWORKS.items() for key in known.strategies}
"""The framework of each strategy that is only for one."""
OLDEST_MIRRORED = (2, 9)
"""Oldest TensorFlow whose toolkit connects hosts with MultiWorkerMirroredStrategy."""
_SMDDP_TYPES = ("ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p4de.24xlarge")
"""Instance types of SMDDP in AWS's guide. P5 has its own rule."""
_DROPPED_TYPE = "ml.p3.16xlarge"
"""In the SDK's list (sagemaker 2.257.7), but no longer in AWS's guide."""
_REFUSES_OTHERS = (2, 3)
"""First SMDDP that refuses other types when it is imported."""


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Facts about a job that the settings of its launcher depend on."""

    groups: tuple[InstanceGroup, ...]
    framework: str = ""
    version: str = ""
    """Version of the framework; empty if unknown."""
    entry_point: str = ""
    smp: str = ""
    """Version of SMP in the image; empty if unknown."""
    libfabric: str = ""
    """Version of libfabric in the image; empty if unknown."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the job."""
    smddp: str = ""
    """Version of SMDDP in the image; empty if unknown."""


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """Settings that a job's launcher receives."""

    launcher: str = ""
    """Launcher of the processes; empty means one process per host."""
    hyperparameters: Mapping[str, object] = field(default_factory=dict)
    """Sent as JSON."""
    groups: tuple[str, ...] = ()
    """Groups in which the launcher starts; empty means separately in each."""
    warnings: tuple[str, ...] = ()
    """Silent actions of the SDK."""


def launch_settings(distribution: Mapping[str, object], context: LaunchContext) -> LaunchSettings:
    """Return the hyperparameters for a `distribution`; raise UsageError with all its errors."""
    findings = distribution_findings(distribution, context)
    findings.raise_errors()
    if not distribution:
        return LaunchSettings()
    strategies = _read_strategies(distribution, findings)
    groups = _launch_groups(distribution.get(GROUPS, []), context.groups, findings)
    launcher = next(iter(_enabled(strategies)), "")
    sent = _hyperparameters(strategies, groups, context.groups)
    warnings = tuple(warning.message for warning in findings.warnings)
    return LaunchSettings(launcher, sent, groups if _SCOPE in sent else (), warnings)


def distribution_findings(distribution: Mapping[str, object], context: LaunchContext) -> Findings:
    """Return the errors in a `distribution`, and warnings about silent actions of the SDK.

    Combinations are only checked if all keys are valid.
    """
    findings = Findings()
    check_groups(context.groups, findings)
    check_framework_of_groups(context, findings)
    strategies = _read_strategies(distribution, findings)
    if findings.errors or not distribution:
        return findings
    _check_framework(strategies, context, findings)
    _check_combinations(strategies, context, findings)
    groups = _launch_groups(distribution.get(GROUPS, []), context.groups, findings)
    if findings.errors:
        return findings
    _check_types(strategies, groups, context, GROUPS in distribution, findings)
    if _is_on(strategies, _MODEL):
        _check_model_parallel(strategies, groups, context, findings)
    if groups and (problem := _problem_with_groups(strategies)):
        hint = "remove the groups, or use `mpi`"
        findings.at(rules.GROUP_OF_DISTRIBUTION, f"distribution.{GROUPS}", problem, hint)
    if not findings.errors:
        _warn(strategies, groups, context, findings)
    return findings


def check_framework_of_groups(context: LaunchContext, findings: Findings) -> None:
    """Check that the framework is new enough for several instance groups, with or without a launcher."""
    oldest = FRAMEWORKS[context.framework].oldest_with_groups if context.framework else ()
    if len(context.groups) > 1 and is_below(context.version, oldest):
        message = f"instance groups need {context.framework} {'.'.join(map(str, oldest))} or newer"
        findings.add(rules.GROUPS_FRAMEWORK, f"{message}, but the image has {context.version}")


def check_options(
    path: str, words: Sequence[str], always_set: Mapping[str, str], starter: str, findings: Findings
) -> None:
    """Check options of mpirun, given as words. `starter` sets the MCA parameters of `always_set` itself."""
    names = [name for option, name in itertools.pairwise(words) if option in _MCA_OPTIONS]
    for name in dict.fromkeys(names):
        if name in always_set:
            message = f"sets `{name}`, which {starter} always sets to {always_set[name]}"
            findings.at(rules.MCA_REPEATED, path, message, f"remove `--mca {name}` and its value")
        elif names.count(name) > 1:
            message = f"sets the MCA parameter `{name}` {names.count(name)} times"
            findings.at(rules.MCA_REPEATED, path, message, "keep one of them")
    for word in dict.fromkeys(words):
        if word in (*_COUNT_OPTIONS, *_HOST_OPTIONS):
            hint = f"remove `{word}` and its value"
            if word in _COUNT_OPTIONS:
                hint += "; the ranks of each host are a setting of the launcher"
            findings.at(rules.MPI_RANKS, path, f"sets `{word}`, which {starter} always sets", hint)


def check_count(path: str, value: object, findings: Findings) -> None:
    if type(value) is not int or value < 1:
        findings.at(rules.NUMBER, path, "must be a whole number of at least 1")


def _read_strategies(distribution: Mapping[str, object], findings: Findings) -> dict[str, Settings]:
    """Return the settings of all strategies in a `distribution`, enabled or not."""
    strategies: dict[str, Settings] = {}
    names = {name.partition(".")[0] for name in _KEYS}
    for key, value in distribution.items():
        path = f"distribution.{key}"
        if key == GROUPS:
            continue
        if key not in names:
            hint = _ALTERNATIVES.get(key) or suggestion(key, [*names, GROUPS])
            findings.at(rules.UNKNOWN_STRATEGY, path, "is not a launcher of SageMaker", hint)
        elif not isinstance(value, Mapping):
            inner = '{"dataparallel": {"enabled": true}}' if key == LIBRARIES else '{"enabled": true}'
            findings.at(rules.MAPPING, path, "must be a mapping", f'write `{{"{key}": {inner}}}`')
        elif key == LIBRARIES:
            _read_libraries(path, value, strategies, findings)
        else:
            strategies[key] = value
            _check_settings(path, key, value, findings)
    return strategies


def _read_libraries(path: str, value: Settings, strategies: dict[str, Settings], findings: Findings) -> None:
    libraries = [name.partition(".")[2] for name in _KEYS if name.startswith(LIBRARIES)]
    if len(value) != 1:
        message = f"must have exactly one of {format_names(libraries)}"
        findings.at(rules.ONE_LIBRARY, path, message, "a job uses one of the libraries")
    for name, settings in value.items():
        here = f"{path}.{name}"
        if name not in libraries:
            findings.at(rules.LIBRARY, here, "is not a library of SageMaker", suggestion(name, libraries))
        elif not isinstance(settings, Mapping):
            hint = f'write `{{"{name}": {{"enabled": true}}}}`'
            findings.at(rules.MAPPING, here, "must be a mapping", hint)
        else:
            strategies[f"{LIBRARIES}.{name}"] = settings
            _check_settings(here, f"{LIBRARIES}.{name}", settings, findings)


def _check_settings(path: str, strategy: str, settings: Settings, findings: Findings) -> None:
    for key, value in settings.items():
        here = f"{path}.{key}"
        if key not in _KEYS[strategy]:
            findings.at(rules.UNKNOWN_KEY, here, "is unknown", suggestion(key, _KEYS[strategy]))
        elif key == ENABLED and not isinstance(value, bool):
            findings.at(rules.ENABLED, here, "must be `true` or `false`")
        elif key == PROCESSES:
            check_count(here, value, findings)
        elif key == OPTIONS:
            _check_option_text(here, value, findings)
        elif key == PARAMETERS:
            _check_parameters(here, value, findings)
    if ENABLED not in settings:
        hint = 'add `"enabled": true`; SageMaker treats a missing value as `false`'
        findings.at(rules.ENABLED, path, "has no `enabled`", hint)


def _check_option_text(path: str, value: object, findings: Findings) -> None:
    if not isinstance(value, str):
        findings.at(rules.OPTIONS, path, "must be one string", 'for example `"-x NCCL_DEBUG=INFO"`')
        return
    try:
        shlex.split(value)
    except ValueError as error:
        message = f"can't be split into words: {str(error).lower()}"
        findings.at(rules.OPTIONS, path, message, "close the quote")


def _check_parameters(path: str, value: object, findings: Findings) -> None:
    """Apply the SDK's own rules for the model parallel library."""

    def add(key: str, message: str, hint: str = "") -> None:
        findings.at(rules.MP_PARAMETERS, f"{path}.{key}" if key else path, message, hint)

    if not isinstance(value, Mapping):
        add("", "must be a mapping", "insert the file's content" if isinstance(value, str) else "")
        return
    for name, setting in value.items():
        smp_parameters.check_value(f"{path}.{name}", name, setting, findings)
    default, partitions = value.get("default_partition"), value.get("partitions")
    if "default_partition" not in value:
        if value.get("auto_partition") is False:
            message = "has no `default_partition` although `auto_partition` is off"
            add("", message, "add `default_partition`")
    elif not (isinstance(default, int) and isinstance(partitions, int) and default < partitions):
        hint = ""
        if "pipeline_parallel_degree" in value and partitions is None:
            hint = "add `partitions` with the value of `pipeline_parallel_degree`: the SDK reads only that"
        add("default_partition", "must be a number less than `partitions`", hint)
    for name in ("ddp_port", "ddp_dist_backend"):
        if name in value and "ddp" not in value:
            add(name, "needs `ddp`", 'add `"ddp": true`')
    if value.get("ddp") and value.get("horovod"):
        add("", "has both `ddp` and `horovod`", "remove one of them")


def _is_on(strategies: Mapping[str, Settings], name: str) -> bool:
    return bool(strategies.get(name, {}).get(ENABLED))


def _enabled(strategies: Mapping[str, Settings]) -> list[str]:
    """Return the enabled launchers; the toolkit starts the first."""
    return [name for name in _ORDER if _is_on(strategies, name)]


def is_below(version: str, oldest: tuple[int, ...]) -> bool:
    """Return whether a version is known to be older."""
    return bool(numbers(version)) and numbers(version) < oldest


def is_for_tensorflow(strategies: Iterable[str]) -> bool:
    """Return whether a distribution has only strategies of TensorFlow's toolkit."""
    frameworks = {_FRAMEWORKS[name] for name in strategies if name in _FRAMEWORKS}
    return frameworks == {_FRAMEWORKS[MIRRORED]}


def _check_framework(strategies: Mapping[str, Settings], context: LaunchContext, findings: Findings) -> None:
    for name in strategies:
        framework = _FRAMEWORKS.get(name, "")
        # The class PyTorch also starts images without a framework.
        if framework and framework != (context.framework or next(iter(FRAMEWORKS))):
            title = FRAMEWORKS[framework].title
            hint = "remove it, because the job uses another framework"
            findings.at(rules.FRAMEWORK, f"distribution.{name}", f"is only for {title}", hint)
    if _is_on(strategies, MIRRORED) and is_below(context.version, OLDEST_MIRRORED):
        message = f"needs TensorFlow 2.9, but the image has {context.version}"
        findings.at(rules.MIRRORED, f"distribution.{MIRRORED}", message)
    script = context.entry_point
    if _is_on(strategies, "torch_distributed") and script and not script.endswith(".py"):
        message = f"starts only Python programs, not `{script}`"
        findings.at(rules.PYTHON_SCRIPT, "distribution.torch_distributed", message)


def _check_combinations(
    strategies: Mapping[str, Settings], context: LaunchContext, findings: Findings
) -> None:
    enabled = _enabled(strategies)
    libraries = [name for name in strategies if name.startswith(LIBRARIES)]
    if "pytorchddp" in strategies and libraries and context.framework != _FRAMEWORKS[MIRRORED]:
        hint = "remove one of them: `pytorchddp` is another name of `smdistributed.dataparallel`"
        message = "can't be used with `smdistributed`"
        findings.at(rules.DDP_IS_SMDDP, "distribution.pytorchddp", message, hint)
    elif len(enabled) > 1 and set(enabled) not in _TOGETHER:
        message = f"starts the processes, so the toolkit ignores `{enabled[1]}`"
        findings.at(rules.ONE_STRATEGY, f"distribution.{enabled[0]}", message, "enable only one of them")
    elif _is_on(strategies, MIRRORED) and (
        others := [*libraries, *(strategies.keys() & {"parameter_server"})]
    ):
        message = f"can't be used with `{others[0]}`"
        findings.at(rules.MIRRORED, f"distribution.{MIRRORED}", message, f"remove `{others[0]}`")
    if _is_on(strategies, _MODEL) and not {"mpi", "torch_distributed"} & {*enabled}:
        hint = 'add `"mpi": {"enabled": true}` for SMP 1, `"torch_distributed": {"enabled": true}` for SMP 2'
        findings.at(rules.SMP_LAUNCHER, f"distribution.{_MODEL}", "needs a launcher", hint)


def _launch_groups(names: object, groups: Sequence[InstanceGroup], findings: Findings) -> tuple[str, ...]:
    """Return the group that a distribution is for; empty if the job has no instance groups."""
    path = f"distribution.{GROUPS}"
    group_names = [group.name for group in groups if group.name]
    quoted = ", ".join(f'"{name}"' for name in group_names)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        hint = f"for example `[{quoted}]`" if group_names else ""
        findings.at(rules.GROUP_OF_DISTRIBUTION, path, "must be a list of group names", hint)
        return ()
    for name in names:
        if name not in group_names:
            hint = suggestion(name, group_names) or f"remove `{GROUPS}`: the job has no instance groups"
            message = f"contains `{name}`, which is not a group of this job"
            findings.at(rules.GROUP_OF_DISTRIBUTION, path, message, hint)
    if len(names) > 1:
        hint = "keep one, because SageMaker starts a launcher in one group only"
        findings.at(rules.GROUP_OF_DISTRIBUTION, path, f"contains {len(names)} groups", hint)
    if len(group_names) > 1 and not names:
        hint = f'add `"{GROUPS}": [{quoted.partition(",")[0]}]`, or another of {quoted}'
        findings.add(rules.GROUP_OF_DISTRIBUTION, "`distribution` does not name its instance group", hint)
    return tuple(names) or (tuple(group_names) if len(group_names) == 1 else ())


def _check_types(
    strategies: Mapping[str, Settings],
    launch_groups: Sequence[str],
    context: LaunchContext,
    has_groups_key: bool,
    findings: Findings,
) -> None:
    for group in _launching(launch_groups, context):
        instance_type = group.instance_type
        is_only_torch = set(strategies) == {"torch_distributed"} and not has_groups_key
        if instance_type.startswith("ml.trn") and not is_only_torch:
            message = f"must contain only `torch_distributed` on `{instance_type}`"
            findings.at(rules.TRAINIUM, "distribution", message)
        processes = strategies.get("mpi", {}).get(PROCESSES)
        check_processes(f"distribution.mpi.{PROCESSES}", processes, group, findings)
        for name in strategies:
            options = strategies[name].get(OPTIONS)
            if isinstance(options, str):
                path, words = f"distribution.{name}.{OPTIONS}", shlex.split(options)
                always_set = TOOLKIT_MCA if name == "mpi" else SMDDP_MCA
                check_options(path, words, always_set, "the toolkit", findings)
                check_rdma(path, words, group, context.libfabric, findings)
        is_smddp_type = instance_type in (*_SMDDP_TYPES, "local_gpu") or instance_type.startswith("ml.p5")
        # Both classes of SDK v2 and a request start SMDDP's launcher for `pytorchddp`.
        is_ddp = _is_on(strategies, "pytorchddp") and not _is_on(strategies, "torch_distributed")
        if not (is_ddp or _is_on(strategies, _DATA)):
            continue
        path = f"distribution.{'pytorchddp' if is_ddp else _DATA}"
        hint = f"use one of {format_names(_SMDDP_TYPES)}"
        if instance_type == _DROPPED_TYPE and not numbers(context.smddp) >= _REFUSES_OTHERS:
            message = f"is not known to work on `{instance_type}`"
            findings.at(rules.SMDDP_UNLISTED, path, message, hint)
        elif not is_smddp_type:
            findings.at(rules.SMDDP_INSTANCE, path, f"does not support `{instance_type}`", hint)
    if not _is_on(strategies, "torch_distributed") and {_DATA, _MODEL, "pytorchddp"} & {*strategies}:
        for group in context.groups:
            if "p5.48xlarge" in group.instance_type:
                message = f"needs `torch_distributed` on `{group.instance_type}`"
                findings.at(rules.P5, "distribution", message, 'add `"torch_distributed": {"enabled": true}`')


def _launching(launch_groups: Sequence[str], context: LaunchContext) -> list[InstanceGroup]:
    """Return the groups in which the launcher starts."""
    named = [group for group in context.groups if group.name in launch_groups]
    return named or list(context.groups)


def _check_model_parallel(
    strategies: Mapping[str, Settings],
    launch_groups: Sequence[str],
    context: LaunchContext,
    findings: Findings,
) -> None:
    """Check the parameters for the release of SMP. The launcher implies it if the image is unknown."""
    version = numbers(context.smp)
    is_torch = _is_on(strategies, "torch_distributed")
    major = 2 if version >= (2,) or (is_torch and not version) else 1
    groups = _launching(launch_groups, context)
    processes = strategies.get("mpi", {}).get(PROCESSES)
    per_host = processes if major == 1 and processes is not None else groups[0].gpus
    ranks = per_host * sum(group.count for group in groups) if isinstance(per_host, int) else None
    job = SmpContext(context.smp, major, context.framework, ranks or None)
    path = f"distribution.{_MODEL}"
    values = strategies[_MODEL].get(PARAMETERS)
    values = values if isinstance(values, Mapping) else {}
    smp_parameters.check_names(f"{path}.{PARAMETERS}", values, job, findings)
    if major == 1:
        names = (smp_parameters.PIPELINE, smp_parameters.PARTITIONS)
        hint = f'add `"{job.degree}": 2`, or how many parts the model is split into'
        if not values:
            hint = f'add `"{PARAMETERS}": {{"{job.degree}": 2}}`'
            findings.at(rules.SMP_REQUIRED, path, f"has no `{PARAMETERS}`", hint)
        elif not {*names, "sharded_data_parallel_degree"} & values.keys():
            findings.at(rules.SMP_REQUIRED, f"{path}.{PARAMETERS}", f"has no `{job.degree}`", hint)
        if _is_on(strategies, "mpi") and processes is None:
            count = groups[0].gpus or 8
            hint = f'add `"{PROCESSES}": {count}`, the number of GPUs of each instance'
            findings.at(rules.SMP_REQUIRED, "distribution.mpi", f"has no `{PROCESSES}`", hint)
    smp_parameters.check_degrees(f"{path}.{PARAMETERS}", values, job, findings)


def _problem_with_groups(strategies: Mapping[str, Settings]) -> str:
    """Return why the SDK rejects groups with these strategies; empty if it does not."""
    if _is_on(strategies, "mpi") or _is_on(strategies, _DATA) or _is_on(strategies, "pytorchddp"):
        return ""
    enabled = _enabled(strategies)
    if not enabled:
        return "is set, but no launcher is enabled"
    is_ignored = enabled == ["torch_distributed"] and _MODEL not in strategies and _DATA not in strategies
    if is_ignored:
        return ""
    return f"can't be used with `{enabled[0]}`: SDK v2 supports it only with `mpi` and SMDDP"


def _warn(
    strategies: Mapping[str, Settings],
    launch_groups: Sequence[str],
    context: LaunchContext,
    findings: Findings,
) -> None:
    launcher = next(iter(_enabled(strategies)), "")
    hosts = sum(group.count for group in context.groups)
    if launcher == "torch_distributed" and len(context.groups) > 1 and _DATA not in strategies:
        findings.add(
            rules.GROUPS_DROPPED,
            f"SDK v2 ignores `{GROUPS}` with `torch_distributed`, so torchrun starts separately in each "
            f"group; to start it in `{launch_groups[0]}` only, add the hyperparameter `{_SCOPE}`",
        )
    check_keras(launcher, hosts, context.version, context.environment, findings)
    if launcher == "parameter_server" and hosts == 1:
        message = "the toolkit does not start a parameter server on one host"
        findings.add(rules.PARAMETER_SERVER, message)
    if launcher == "parameter_server" and any((group.gpus or 0) > 1 for group in context.groups):
        message = "a parameter server's worker uses only one GPU of each instance"
        findings.add(rules.PARAMETER_SERVER, message)


def check_keras(
    launcher: str, hosts: int, tensorflow: str, environment: Mapping[str, str], findings: Findings
) -> None:
    """Warn of a strategy with which `fit` of the image's Keras does not train."""
    fact = legacy_keras()
    is_old = not numbers(tensorflow) or is_below(tensorflow, numbers(fact.since))
    if (
        launcher not in fact.strategies
        or hosts == 1
        or is_old
        or environment.get(fact.variable) in fact.values
    ):
        return
    release = ".".join(map(str, numbers(tensorflow)))
    findings.add(
        rules.LEGACY_KERAS, fact.message.format(strategy=launcher), fact.hint.format(release=release)
    )


def keras_findings(
    version_of: Callable[[str], str | None], components: Collection[str], environment: Mapping[str, str]
) -> tuple[RuleViolation, ...]:
    """Return the warning that jobs on several hosts get, for an image with some components."""
    findings = Findings()
    if "tensorflow" in components:
        for strategy in legacy_keras().strategies:
            check_keras(strategy, 2, version_of("tensorflow") or "", environment, findings)
    return findings.warnings


def _hyperparameters(
    strategies: Mapping[str, Settings], launch_groups: tuple[str, ...], groups: Sequence[InstanceGroup]
) -> dict[str, object]:
    """Return the hyperparameters as the SDK's classes build them."""
    instance_type = groups[0].instance_type if not groups[0].name else None
    data = strategies.get(_DATA, strategies.get("pytorchddp"))
    is_torch = _is_on(strategies, "torch_distributed")
    sent: dict[str, object] = {}
    if not is_torch or data is not None or _MODEL in strategies:
        sent = _library_hyperparameters(strategies, data, launch_groups, instance_type)
    if is_torch:
        sent["sagemaker_torch_distributed_enabled"] = True
        if instance_type:
            sent["sagemaker_instance_type"] = instance_type
    return sent


def _library_hyperparameters(
    strategies: Mapping[str, Settings],
    data: Settings | None,
    launch_groups: tuple[str, ...],
    instance_type: str | None,
) -> dict[str, object]:
    """Return the hyperparameters of all strategies except torchrun."""
    sent: dict[str, object] = {_SCOPE: list(launch_groups)} if launch_groups else {}
    for name in ("parameter_server", MIRRORED):
        if name in strategies:
            sent[f"sagemaker_{name}_enabled"] = _is_on(strategies, name)
    if "mpi" in strategies:
        settings = strategies["mpi"]
        sent["sagemaker_mpi_enabled"] = settings[ENABLED]
        if PROCESSES in settings:
            sent["sagemaker_mpi_num_of_processes_per_host"] = settings[PROCESSES]
        sent["sagemaker_mpi_custom_mpi_options"] = settings.get(OPTIONS, "")
    if data is not None or _MODEL in strategies:
        if _is_on(strategies, _MODEL) and strategies[_MODEL].get(PARAMETERS):
            sent["mp_parameters"] = strategies[_MODEL][PARAMETERS]
        is_data = bool(data and data[ENABLED])
        sent["sagemaker_distributed_dataparallel_enabled"] = is_data
        sent["sagemaker_instance_type"] = instance_type
        if data and is_data:
            sent["sagemaker_distributed_dataparallel_custom_mpi_options"] = data.get(OPTIONS, "")
    return sent
