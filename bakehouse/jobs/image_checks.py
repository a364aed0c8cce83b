"""Checks of a job against its image and instances: launchers, GPUs, EFA and SageMaker Training Compiler."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from bakehouse.catalog.efa import EFA, PLUGIN, EfaGap, efa_gap
from bakehouse.catalog.instance_gpus import is_within, platform_of
from bakehouse.jobs import rules
from bakehouse.jobs.distribution import GROUPS
from bakehouse.jobs.instance_groups import RDMA, InstanceGroup, check_rdma, numbers
from bakehouse.jobs.job_variables import ALL, TOOLKIT, UNKNOWN, job_variables
from bakehouse.jobs.rules import Findings
from bakehouse.jobs.script_arguments import argument_text
from bakehouse.jobs.torchrun import abbreviation_findings
from bakehouse.jobs.training_request import FRAMEWORKS, LOCAL, LaunchImage, TrainingRequest
from bakehouse.ledger import toolkit
from bakehouse.util.format import format_names
from bakehouse.util.oci import ARM64

_MPIRUN = ("mpi", "MPI")
_TORCHRUN = ("torch_distributed", "Torchrun")
_PARAMETER_SERVER = "parameter_server"
_BY_TOOLKIT = (_PARAMETER_SERVER, "multi_worker_mirrored_strategy")
_SMDDP, _DDP = "smdistributed.dataparallel", "pytorchddp"
_SMP = "smdistributed.modelparallel"
_EFA_LAUNCHERS = ("mpi", "torch_distributed", "pytorchddp", "smdistributed.dataparallel")
_STRATEGIES = (*_EFA_LAUNCHERS, *_BY_TOOLKIT)
_IN_QUOTES = frozenset('$`"\\')
"""Characters that a shell interprets within double quotes."""
_MPI_DRIVER_NEEDS = ("sshd", "mpi4py")
_EFA_FILES = {EFA: "`/opt/amazon/efa`", PLUGIN: "`libnccl-net*.so`"}
"""Paths of the components that NCCL needs for EFA."""
_WITH_WRAPPER = frozenset({"open-mpi", "efa"})
"""Components whose `mpirun` of Open MPI 5 also accepts the toolkit's options."""

PROVIDER = "FI_PROVIDER"

XLA = "pytorchxla"
COMPILER_FAMILIES = ("p3", "p3dn", "g4dn", "p4d", "g5")
COMPILER_EFA = (
    "ml.g4dn.12xlarge",
    "ml.g4dn.8xlarge",
    "ml.g5.48xlarge",
    "ml.p3dn.24xlarge",
    "ml.p4d.24xlarge",
)
_COMPILER_PYTORCH = ("1.12.0", "1.13.1")
_COMPILER_HUGGING_FACE = ("1.9.0", "1.10.2", "1.11.0")
_OLDEST_XLA: Mapping[str, str] = {"PyTorch": "1.12", "HuggingFace": "1.11"}
COMPILER_TENSORFLOW = ((2, 9), (2, 11))
"""Oldest and newest TensorFlow with which the SDK accepts a `compiler_config`."""


def check_image(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    """Check that the image contains the job's launcher and libraries, and that the instances can run it."""
    _check_launchers(request, image, findings)
    if request.is_on(_SMP):
        _check_smp(request, image, findings)
    _check_open_mpi(request, image, findings)
    _check_toolkits(request, image, findings)
    _check_arguments(request, image, findings)
    check_instances(request, image, findings)
    if image.is_oci:
        message = f"`{image.name}` has an OCI manifest, which endpoints of SageMaker refuse"
        findings.add(rules.OCI_MANIFEST, message, "set `format: docker` in the recipe, the default")
    framework = image.framework
    version = image.versions.get(framework, "")
    if request.framework_version and version and request.framework_version != version:
        message = (
            f"`framework_version` is {request.framework_version}, but the image has {framework} {version}"
        )
        findings.add(rules.VERSION, message, f'write `framework_version="{version}"`')


def check_efa(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    """Check for EFA that is requested but missing, and for EFA that is not used."""
    words = _mpi_options(request.distribution)
    variables = {**dict(word.partition("=")[::2] for word in words if "=" in word), **request.environment}
    for group in request.groups:
        environment = [f"{name}={value}" for name, value in request.environment.items()]
        libfabric = image.versions.get("libfabric", "") if image else ""
        check_rdma("environment", environment, group, libfabric, findings)
        if variables.get(PROVIDER) == "efa" and group.efa_interfaces == 0:
            message = f"`{PROVIDER}=efa` is set, but `{group.instance_type}` has no EFA"
            findings.add(rules.EFA, message, "remove it, or use a type with EFA")
    gap = None if image is None else find_efa_gap(image)
    is_for_gpus = image is None or image.gpu or not image.is_known
    # Without EFA, its variables change nothing. SMDDP uses them without the plugin of NCCL.
    lacks_efa = gap is not None and gap.missing == EFA and gap.is_certain
    if _has_efa_launcher(request) and is_for_gpus and request.hosts > 1 and not lacks_efa:
        for group in request.groups:
            _check_unused_efa(request, group, variables, image, findings)
    if image is not None and is_for_gpus and not request.is_on(_PARAMETER_SERVER):
        names = request.distribution.get(GROUPS)
        groups = [
            group for group in request.groups if not isinstance(names, list | tuple) or group.name in names
        ]
        check_nccl(groups, image, findings)


def check_torchrun(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    """Check for hyperparameters that torchrun takes for its own options."""
    if not _uses(request, _TORCHRUN) or request.command:
        return
    versions = image.versions if image else {}
    if image is None and request.framework_class == "PyTorch":
        versions = {"pytorch": request.framework_version}
    is_toolkit = request.sender != "ModelTrainer"
    for finding in abbreviation_findings(request.hyperparameters, versions, letters_have_one_dash=is_toolkit):
        findings.add(finding.rule, finding.message, finding.hint)


def find_efa_gap(image: LaunchImage) -> EfaGap | None:
    """Return the component that NCCL lacks in an image to use EFA, which may be unknown; None without one."""
    return efa_gap(image.versions, is_complete=image.is_complete)


def check_nccl(groups: Sequence[InstanceGroup], image: LaunchImage, findings: Findings) -> None:
    """Check that NCCL uses EFA between several hosts with GPUs: otherwise it uses TCP without a message."""
    groups = [group for group in groups if group.gpus]
    if sum(group.count for group in groups) < 2:
        return
    gap = find_efa_gap(image)
    for group in groups:
        name = f"`{group.instance_type}`"
        if group.efa_interfaces == 0 and EFA in image.versions:
            findings.add(rules.EFA_UNUSED, f"{name} has no EFA, so its hosts communicate over TCP")
        if not group.efa_interfaces or gap is None:
            continue
        if gap.is_certain:
            message = f"{name} has EFA, but `{image.name}` has no `{gap.missing}`"
            message += ", so NCCL uses slower TCP between hosts"
            findings.add(rules.EFA_UNUSED, message, efa_hint(gap.missing, image))
        else:
            message = f"{name} has EFA, but it is not known whether `{image.name}` has `{gap.missing}`"
            message += ", without which NCCL uses TCP between hosts"
            findings.add(rules.EFA_UNKNOWN, message, f"look for {_EFA_FILES[gap.missing]} in the image")


def efa_hint(missing: str, image: LaunchImage) -> str:
    """Return what adds a missing component to the recipe; empty if the catalogue has no build of it."""
    if image.platform == ARM64:
        return ""
    add = f'add `{missing}: "*"` to `components` of the recipe'
    return f"use a newer `{EFA}`, which contains it, or {add}" if missing == PLUGIN else add


def check_compiler(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    """Check a `compiler_config`, whether enabled or not, because the SDK checks both."""
    if request.compiler is None:
        return

    def add(message: str, hint: str = "") -> None:
        findings.add(rules.COMPILER, message, hint)

    if request.sender not in FRAMEWORKS:
        add(
            f"`{request.sender}` has no `compiler_config`", "use the class PyTorch, TensorFlow or HuggingFace"
        )
        return
    for group in request.groups:
        instance_type = group.instance_type
        if instance_type in LOCAL:
            add("Training Compiler has no local mode")
        elif instance_type.split(".")[1:2] not in [[family] for family in COMPILER_FAMILIES]:
            message = f"Training Compiler does not support `{instance_type}`"
            add(message, f"use one of {format_names(COMPILER_FAMILIES)}")
        if group.name:
            message = "Training Compiler does not support instance groups"
            add(message, "use an instance type and a count")
    if "smdistributed" in request.distribution or "pytorchddp" in request.distribution:
        add("Training Compiler can't be used with `smdistributed`", "remove one of them")
    if request.sender == "HuggingFace" or request.framework_class == "PyTorch":
        _check_pytorch_compiler(request, image, findings)
        return
    version = numbers(request.framework_version)
    oldest, newest = COMPILER_TENSORFLOW
    if version and not oldest <= version <= newest:
        message = f"Training Compiler does not support TensorFlow {request.framework_version}"
        add(message, "use TensorFlow 2.9 to 2.11")
    if request.is_on("multi_worker_mirrored_strategy"):
        message = "Training Compiler can't be used with `multi_worker_mirrored_strategy`"
        add(message, "remove one of them")


def _check_launchers(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    def report_missing(strategies: Sequence[str], thing: str, hint: str) -> None:
        name = next(name for name in strategies if name.rpartition(".")[2] in str(request.distribution))
        findings.add(rules.LAUNCHER, f"`{name}` needs {thing}, but `{image.name}` has none", hint)

    hint = f"use a launcher of the image: {format_names(image.launchers)}" if image.launchers else ""
    hint = hint or "use an image with a launcher; this one has none"
    if _uses(request, _MPIRUN) and "mpirun" not in image.launchers:
        report_missing(_MPIRUN, "`mpirun`", hint)
    elif "MPI" in request.distribution and (
        missing := [name for name in _MPI_DRIVER_NEEDS if name not in image.versions]
    ):
        needs = format_names(missing, " and ")
        message = f"the SDK's MPI driver needs {needs}, but no component of `{image.name}` provides that"
        add = "add the component `sagemaker-drivers`, or check that the image's base contains it"
        findings.add(rules.DRIVER, message, add)
    if _uses(request, _TORCHRUN) and "torchrun" not in image.launchers:
        report_missing(_TORCHRUN, "`torchrun`", hint)
    elif request.is_on("torch_distributed") and "pytorch" not in image.training_module:
        add = "add the component `sagemaker-pytorch-training`"
        report_missing(_TORCHRUN, "the toolkit for PyTorch", add)
    if _uses(request, _BY_TOOLKIT) and "tensorflow" not in image.training_module:
        add = "add the component `sagemaker-tensorflow-training`"
        report_missing(_BY_TOOLKIT, "the toolkit for TensorFlow", add)
    if request.is_on(_SMDDP) and "smddp" not in image.versions:
        report_missing((_SMDDP,), "SMDDP", "add the component `smddp`")
    if request.is_on(_DDP) and "smddp" not in image.versions:
        if _toolkit_has(image, toolkit.DDP) is False:
            report_missing((_DDP,), "SMDDP", "add the component `smddp`, or use a newer toolkit")
        elif "mpirun" not in image.launchers:
            report_missing((_DDP,), "`mpirun`", hint)
    if request.is_on(_SMP) and "smp" not in image.versions:
        report_missing((_SMP,), "SMP", "use an image with `smp`, or one based on `aws-smp2`")


def _uses(request: TrainingRequest, names: Iterable[str]) -> bool:
    """Return whether one of these strategies or drivers starts the job."""
    return any(request.is_on(name) or (name[0].isupper() and name in request.distribution) for name in names)


def _check_smp(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    version = image.versions.get("smp", "")
    if not version:
        return
    launcher, other = (
        ("torch_distributed", "mpi") if numbers(version) >= (2,) else ("mpi", "torch_distributed")
    )
    if request.is_on(other) and not request.is_on(launcher):
        message = f"`{other}` can't start SMP {version}, which the image has"
        findings.add(rules.SMP_LAUNCHER, message, f'use `"{launcher}": {{"enabled": true}}` instead')


def _check_open_mpi(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    version = image.versions.get("open-mpi", "")
    has_wrapper = bool(image.components & _WITH_WRAPPER)
    if version and numbers(version) >= (5,) and not has_wrapper and _uses(request, ("mpi", _SMDDP, _DDP)):
        message = f"the toolkit uses options of Open MPI 4, but the image has {version}"
        findings.add(
            rules.OPEN_MPI_5, message, "add the component `open-mpi`, whose `mpirun` accepts both versions"
        )


def _check_toolkits(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    """Check that the toolkits of the image know the launcher, and that they report the status of the script.

    A base of AWS without known releases has the launchers that the catalogue names for it.
    """
    if request.sender == "ModelTrainer":
        return
    enabled = [name for name in _STRATEGIES if request.is_on(name)]
    wanted = [*enabled, toolkit.GROUPS] if enabled and len(request.groups) > 1 else enabled
    for name in toolkit.TOOLKITS:
        version = image.versions.get(name, "")
        launchers = toolkit.toolkit_rules(name).launchers if version else {}
        for strategy in wanted:
            releases = launchers.get(strategy)
            if releases is None or releases.contains(version) is not False:
                continue
            message = f"`{name}` {version} of the image does not know `{strategy}`"
            findings.add(rules.TOOLKIT, message, f"use an image with `{name}` {releases.since} or newer")
    if image.training_module and _toolkit_has(image, toolkit.LOST_STATUS):
        version = image.versions[toolkit.NAME]
        message = f"the toolkit {version} of the image may report a failed script as a success"
        findings.add(rules.LOST_STATUS, message, "use an image with 4.1.2 or newer")


def _toolkit_has(image: LaunchImage, fact: str) -> bool | None:
    """Return whether a fact holds for the toolkit of the image; None if its release is unknown."""
    return toolkit.toolkit_rules().processes[fact].contains(image.versions.get(toolkit.NAME, ""))


def _check_arguments(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    """Check that the toolkit of the image passes hyperparameters on as they are.

    Without a framework's toolkit, SageMaker's own starts the script without a shell.
    """
    version = image.versions.get(toolkit.NAME, "")
    has_shell = _toolkit_has(image, toolkit.SHELL)
    if request.sender == "ModelTrainer" or not image.training_module or has_shell is False:
        return
    arguments = {
        name: value
        for name, value in request.hyperparameters.items()
        if not name.startswith("sagemaker_") and name != "mp_parameters"
    }
    script = request.entry_point or image.entry_point
    is_python = not script or script.endswith(".py")
    if arguments and not is_python and _toolkit_has(image, toolkit.NO_ARGUMENTS):
        message = f"the toolkit {version} of the image starts `{script}` without the hyperparameters"
        findings.add(rules.SHELL, message, "read them from SM_HPS in the script")
        return
    for name, value in arguments.items():
        text = argument_text(value)
        # The toolkit quotes the arguments of other scripts for one shell, but two read them.
        is_changed = shlex.quote(text) != text if is_python else bool(_IN_QUOTES.intersection(text))
        if not is_changed:
            continue
        message = f"the toolkit {version} of the image gives the hyperparameter `{name}` to a shell, unquoted"
        if has_shell is None:
            message = f"toolkits before 5.1.3 give the hyperparameter `{name}` to a shell, unquoted"
            message += ", and the one of the image is unknown"
        hint = "use letters, digits and `@%+=:,./-` only, or read the value from SM_HPS in the script"
        findings.add(rules.SHELL, message, hint)


def check_instances(request: TrainingRequest, image: LaunchImage, findings: Findings) -> None:
    """Check that the hosts can run the image, and have the devices that it uses."""
    for group in request.groups:
        platform = platform_of(group.instance_type)
        is_remote = group.instance_type and group.instance_type not in LOCAL
        if is_remote and image.is_known and platform != image.platform:
            message = f"`{group.instance_type}` is {platform}, but `{image.name}` is for {image.platform}"
            processor = "a Graviton or Grace processor" if image.platform == ARM64 else "an x86 processor"
            hint = f"use a type with {processor}, or an image for {platform}"
            findings.add(rules.PROCESSOR, message, hint)
        _check_architecture(group, image, findings)
        if is_remote and group.is_listed:
            _check_facts(group, image, request.hosts, findings)
    _check_targets(request.groups, image, findings)
    if image.gpu and request.groups and all(group.gpus == 0 for group in request.groups):
        message = f"`{image.name}` is for GPUs, but the job's instances have none"
        hint = "use a type with GPUs, or an image for CPUs"
        findings.add(rules.TARGETS if image.requires_gpu else rules.GPU, message, hint)
    is_for_cpus = not image.gpu and not image.neuron_architecture
    if is_for_cpus and any(group.gpus for group in request.groups):
        findings.add(rules.GPU, f"the instances have GPUs, but `{image.name}` is for CPUs")
    have_neuron = [bool(group.neuron_architecture) for group in request.groups if group.is_known]
    if image.neuron_architecture and have_neuron and not any(have_neuron):
        message = f"`{image.name}` is for Neuron devices, but the job's instances have none"
        findings.add(rules.NEURON, message, "use a type with Trainium, such as `ml.trn1.32xlarge`")
    if not image.neuron_architecture and any(have_neuron):
        findings.add(rules.NEURON, f"the instances have Neuron devices, but `{image.name}` does not use them")


def _check_facts(group: InstanceGroup, image: LaunchImage, hosts: int, findings: Findings) -> None:
    """Name the facts about an instance type that the checks need, but the catalogue lacks."""
    missing = ["gpus"] if group.gpus is None else []
    if group.gpus != 0 and not group.gpu_architecture and not group.neuron_cores:
        missing.append("gpu-architecture")
    if group.neuron_cores and not group.neuron_architecture:
        missing.append("neuron-architecture")
    if hosts > 1 and group.efa_interfaces is None:
        missing.append("efa-interfaces")
    elif hosts > 1 and group.efa_interfaces and group.rdma_read is None and EFA in image.versions:
        missing.append("rdma-read")
    if missing:
        message = f"it is not known whether `{group.instance_type}` suits `{image.name}`"
        message += f": the catalogue lacks its {format_names(missing, ' and ')}"
        findings.add(rules.INSTANCE_FACTS, message, "add it to the component `instance`, with its source")


def _check_targets(groups: Sequence[InstanceGroup], image: LaunchImage, findings: Findings) -> None:
    """Compare the job's instance types with those that the recipe is for."""
    names = [group.instance_type for group in groups if group.instance_type not in ("", *LOCAL)]
    is_target = any(fnmatchcase(name, glob) for name in names for glob in image.targets)
    if image.targets and names and not is_target:
        targets, others = format_names(image.targets), format_names(names)
        message = f"the recipe of `{image.name}` targets {targets}, not {others}"
        hint = "use one of them, or add the type to `targets` of the recipe"
        findings.add(rules.OTHER_TARGET, message, hint)


def _check_architecture(group: InstanceGroup, image: LaunchImage, findings: Findings) -> None:
    """Check that the image supports the GPUs or the NeuronCores of a group."""
    for name, architecture, supported, noun, accelerator in (
        ("gpu-architecture", group.gpu_architecture, image.gpu_architecture, "GPU architectures", "GPU"),
        (
            "neuron-architecture",
            group.neuron_architecture,
            image.neuron_architecture,
            "NeuronCore versions",
            "Neuron device",
        ),
    ):
        if not architecture:
            continue
        # The catalogue may no longer have a component of the release, but the release itself is complete.
        if not image.host_requirements and not is_within(architecture, supported):
            message = (
                f"`{image.name}` supports {noun} {supported}, but `{group.instance_type}` has {architecture}"
            )
            findings.add(rules.HOST_NEEDS, message, f"use a type with a supported {accelerator}")
        for host in image.host_requirements:
            requirement = host.requirement
            if requirement.name == name and not is_within(architecture, requirement.specifier):
                message = (
                    f"{host.component} supports {noun} {requirement.specifier}, "
                    f"but `{group.instance_type}` has {architecture}"
                )
                command = f"bake resolve {image.name} --assume instance={group.instance_type}"
                findings.add(rules.HOST_NEEDS, message, f"run `{command}` to find versions for it")


def _mpi_options(distribution: Mapping[str, object]) -> list[str]:
    """Return the words of all mpirun options in a distribution. Invalid options are skipped."""
    words: list[str] = []
    for key, value in distribution.items():
        if isinstance(value, Mapping):
            words += _mpi_options(value)
        elif key == "custom_mpi_options" and isinstance(value, str):
            try:
                words += shlex.split(value)
            except ValueError:
                continue
        elif key == "mpi_additional_options" and isinstance(value, list):
            words += [word for word in value if isinstance(word, str)]
    return words


def _set_by_launcher(
    request: TrainingRequest, instance_type: str, image: LaunchImage | None
) -> Mapping[str, bool | None]:
    """Return whether a launcher sets a variable itself; None if that depends on its unknown release."""
    is_driver = request.sender == "ModelTrainer"
    version = image.versions.get(toolkit.NAME, "") if image else ""
    component, release = (toolkit.DRIVERS, toolkit.DRIVERS_RELEASE) if is_driver else (toolkit.NAME, version)
    facts = toolkit.toolkit_rules(component)
    return {
        name: types[instance_type].contains(release) if instance_type in types else False
        for name, types in ((PROVIDER, facts.provider), (RDMA, facts.rdma))
    }


def check_variables(
    request: TrainingRequest, image: LaunchImage | None, findings: Findings, *, is_sagemaker: bool = True
) -> None:
    """Check what the values of variables do to the job, which they may change without a message."""
    options = dict(word.partition("=")[::2] for word in _mpi_options(request.distribution) if "=" in word)
    for name, value in {**options, **request.environment}.items():
        variable = job_variables().get(name)
        effect = variable.effect(value) if variable else ""
        if not variable or not effect or (name == "SAGEMAKER_PROGRAM" and value == request.entry_point):
            continue
        setting, source = f"`{name}={value}`", f"read {variable.source}"
        if variable.on in (ALL, TOOLKIT):
            if variable.on == ALL or (is_sagemaker and request.sender != "ModelTrainer"):
                _add_effect(setting, effect, source, findings)
            continue
        for group in request.groups:
            where = f"on `{group.instance_type}`"
            if not group.gpus or (variable.on == EFA and not (group.efa_interfaces and request.hosts > 1)):
                continue
            launched = is_sagemaker and _has_efa_launcher(request)
            settings = _set_by_launcher(request, group.instance_type, image) if launched else {}
            is_set = settings.get(name, False)
            if is_set:
                message = f"{setting} has no effect: the launcher sets `{name}` itself {where}"
                findings.add(rules.VARIABLE_UNUSED, message, "remove it")
            else:
                effect = UNKNOWN if is_set is None else effect
                _add_effect(f"{setting} {where}", effect, source, findings)


def _add_effect(setting: str, effect: str, source: str, findings: Findings) -> None:
    if effect == UNKNOWN:
        message = f"it is not known what {setting} does to the job"
        findings.add(rules.VARIABLE_UNKNOWN, message, f"{source}, or remove it")
    else:
        findings.add(rules.VARIABLE, f"with {setting}, {effect}", "remove it, or set another value")


def _has_efa_launcher(request: TrainingRequest) -> bool:
    is_driver = bool(request.distribution.keys() & {"Torchrun", "MPI"})
    return is_driver or any(request.is_on(name) for name in _EFA_LAUNCHERS)


def _check_unused_efa(
    request: TrainingRequest,
    group: InstanceGroup,
    variables: Mapping[str, str],
    image: LaunchImage | None,
    findings: Findings,
) -> None:
    is_driver = request.sender == "ModelTrainer"
    version = image.versions.get(toolkit.NAME, "") if image else ""
    instance_type, missing = group.instance_type, {}
    are_set = _set_by_launcher(request, instance_type, image)
    is_known = True
    if group.efa_interfaces and group.gpus:
        for name, value in ((PROVIDER, "efa"), *([(RDMA, "1")] if group.rdma_read else ())):
            if name not in variables and not are_set[name]:
                missing[name] = value
                is_known &= are_set[name] is not None
    if missing:
        launcher = "the SDK's driver" if is_driver else f"the toolkit {version}".strip()
        settings = " and ".join(f"`{name}={value}`" for name, value in missing.items())
        pairs = ", ".join(f'"{name}": "{value}"' for name, value in missing.items())
        message = f"`{instance_type}` has EFA, but {launcher} does not set {settings} there"
        if not is_known:
            message = (
                f"`{instance_type}` has EFA, but only newer releases of the toolkit set {settings} there"
            )
            message += ", and the one of the image is unknown"
        findings.add(rules.EFA_MISSING, message, f"add it to the environment: `{{{pairs}}}`")


def _check_pytorch_compiler(request: TrainingRequest, image: LaunchImage | None, findings: Findings) -> None:
    version = numbers(request.framework_version)
    is_hugging_face = request.sender == "HuggingFace"
    is_pytorch = request.framework_class == "PyTorch"
    supported = _COMPILER_HUGGING_FACE if is_hugging_face else _COMPILER_PYTORCH
    if image is not None:
        message = f"the class {request.sender} does not support `image_uri` with a `compiler_config`"
        hint = "set the hyperparameter `sagemaker_training_compiler_enabled` instead"
        findings.add(rules.COMPILER, message, hint)
    elif is_pytorch and request.framework_version not in supported:
        message = f"Training Compiler does not support PyTorch {request.framework_version}"
        message += " in the class HuggingFace" if is_hugging_face else ""
        findings.add(rules.COMPILER, message, f"use PyTorch {format_names(supported)}")
    xla = request.distribution.get(XLA)
    is_on = isinstance(xla, Mapping) and bool(xla.get("enabled"))
    oldest = _OLDEST_XLA[request.sender]
    if is_on and (not is_pytorch or (version and version < numbers(oldest))):
        findings.add(rules.COMPILER, f"`{XLA}` needs PyTorch {oldest} or newer")
    if request.distribution and xla is None and is_pytorch and version >= numbers(oldest):
        message = f"with PyTorch {oldest} and newer, Training Compiler only supports the distribution `{XLA}`"
        findings.add(rules.COMPILER, message, f'write `{{"{XLA}": {{"enabled": true}}}}`')
    if is_on and any(group.instance_type not in COMPILER_EFA for group in request.groups):
        message = "ranks of Training Compiler communicate through EFA, which the instances don't have"
        findings.add(rules.COMPILER_EFA, message, f"use one of {format_names(COMPILER_EFA)}")
