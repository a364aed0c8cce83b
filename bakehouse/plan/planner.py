"""Plan the images of resolutions: their stages, and the keys of stages and images.

The keys are those of the steps of the rendered Dockerfiles. Images that use a component in the same way share
the stage, its key and its text.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.base_contents import BaseContents
from bakehouse.catalog.base_image_lock import AptLocks
from bakehouse.catalog.build_requirements import with_build_requirements
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import WHEELS_TEMPLATE, BaseSource
from bakehouse.catalog.python_lock import normal_name
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.size_budget import OWN, REQUIREMENTS
from bakehouse.catalog.system_packages import Manager
from bakehouse.catalog.trim import drop_patterns, trim_choices
from bakehouse.catalog.user_files import CODE_DIRECTORY
from bakehouse.catalog.user_smoke import USER_CODE
from bakehouse.errors import Diagnostic, Location, Problems, Reason, RecipeError
from bakehouse.plan import dockerfile
from bakehouse.plan.apt_packages import (
    AptSteps,
    apt_of,
    apt_steps,
    build_packages,
    installs_with_dnf,
    requirements_packages,
)
from bakehouse.plan.known_facts import known_facts
from bakehouse.plan.model import (
    DESCRIPTION_LABEL,
    OWN_PYTHON,
    BootstrappedBase,
    Image,
    InstalledComponent,
    Plan,
    RegistryBase,
    Stage,
    key_of_bootstrapped,
)
from bakehouse.plan.required_imports import required_imports
from bakehouse.resolve.resolver import Choice, Resolution
from bakehouse.util.oci import Digest, platform_suffix
from bakehouse.util.suggest import suggestion

_BUILD_TOOLS = frozenset({"pip", "setuptools", "wheel"})
"""pip before 26.2 also applies constraints to build requirements, and builds need other versions of these."""


def constraints(
    resolution: Resolution, base_contents: Callable[[str], BaseContents | None]
) -> tuple[str, ...]:
    """Return a line `name==version` for each package of a component or of the base; none if switched off.

    Packages of a vendor's base are included only if there is a record of them.
    """
    if not resolution.recipe.constraints:
        return ()
    source = resolution.base.spec.base
    contents = base_contents(source.digest) if source and source.digest else None
    installed = [*(contents.packages if contents else ())]
    for choice in resolution.choices:
        installed += [*resolution.owners[choice.name], *choice.candidate.wheels.values()]
    # Components replace packages of the base
    versions = {normal_name(package.name): package.version for package in installed}
    lines = [f"{name}=={version}" for name, version in versions.items() if name not in _BUILD_TOOLS]
    return tuple(sorted([*lines, *resolution.companions]))


MAX_LAYERS = 120
SDISTS_TEMPLATE = "requirements-sdists.j2"
"""Template of the Python packages of a recipe with locked build requirements."""
_LABEL = "org.bakehouse"


def _no_contents(_digest: str) -> None:
    """Return no record of a base."""


def make_plan(
    resolutions: Iterable[Resolution],
    templates: Mapping[str, str],
    region: str | None = None,
    locks: AptLocks | None = None,
    base_contents: Callable[[str], BaseContents | None] = _no_contents,
) -> Plan:
    """Return the stages and keys of images, which are rendered with the shared `templates`.

    `region` selects the registry of bases that have one in each region; `locks` are the locks of distribution
    packages; `base_contents` returns the record of a vendor's base by its digest. Raises RecipeError if a
    base is unavailable, a package is not locked, a template fails, or an image exceeds the number of layers
    that engines support.
    """
    problems = Problems()
    images = []
    for resolution in resolutions:
        host = registry_host(resolution, region, problems)
        kept = constraints(resolution, base_contents)
        images.append(_image(resolution, templates, host, locks or AptLocks({}, {}), kept, problems))
        _check_layers(images[-1], resolution.recipe, problems)
        _check_packages(images[-1], resolution, problems)
        _check_budgets(images[-1], problems)
        _check_smoke(images[-1], problems)
    problems.raise_as(RecipeError)
    return Plan(dockerfile.with_keys(images, templates))


def registry_host(resolution: Resolution, region: str | None, problems: Problems) -> str:
    """Return the registry host of a base and a slash; empty if its references contain the registry."""
    base = resolution.base.candidate.component
    if base.registries is None:
        return ""
    hosts = base.registries.hosts
    if region is not None and region not in hosts:
        message = f"`{base.name}` is not available in region `{region}`"
        label = f"the base of image `{resolution.recipe.name}`"
        reasons = (Reason(f"`registries` of `{base.name}` does not contain it", base.registries.location),)
        hint = suggestion(region, hosts) or "set `region` in [tool.bakehouse] to a listed one"
        problems.add(Diagnostic(message, resolution.recipe.base.location, label, reasons, hint=hint))
    return f"{hosts.get(region or '') or next(iter(hosts.values()))}/"


def _image(
    resolution: Resolution,
    templates: Mapping[str, str],
    host: str,
    locks: AptLocks,
    kept: tuple[str, ...],
    problems: Problems,
) -> Image:
    recipe, choices = resolution.recipe, resolution.all_choices
    base = resolution.base.spec
    assert base.base is not None
    specs = [choice.spec for choice in choices]
    locked = apt_steps(resolution, locks, problems)
    all_parts = (_part(resolution.base), *(_part(choice) for choice in resolution.choices))
    entrypoints = [spec.entrypoint for spec in specs if spec.entrypoint]
    packages = recipe.content.system_packages.of(base.manager)
    gpu = any(spec.gpu for spec in specs)
    launchers = {name for choice in choices for name in choice.candidate.component.launchers}
    stages = _stages(resolution, all_parts, locked, templates)
    return Image(
        name=recipe.name,
        summary=recipe.summary,
        base=_base(resolution.base, base.base, host, locked),
        all_parts=all_parts,
        content=replace(recipe.content, system_packages=packages),
        build_base=base.base.build_reference and host + base.base.build_reference,
        toolchain=build_packages(resolution, base),
        toolchain_debs=locked.toolchain if stages else (),
        base_facts=base.facts,
        frozen=tuple(package.pattern for package in resolution.base.candidate.component.frozen),
        uses_dnf=installs_with_dnf(resolution),
        stages=stages,
        apt=apt_of(resolution),
        apt_debs=locked.image,
        environment=_environment(choices, recipe),
        path=tuple(dict.fromkeys(directory for spec in specs for directory in spec.path)),
        library_path=tuple(dict.fromkeys(directory for spec in specs for directory in spec.library_path)),
        entrypoint=entrypoints[-1] if entrypoints else (),
        constraints=kept,
        gpu=gpu,
        launchers=tuple(sorted(launchers)),
        labels=_labels(recipe, all_parts),
        recipe_directory=recipe.directory,
        recipe_file=recipe.location.path,
        gpu_architecture=_required_range(choices, "gpu-architecture"),
        neuron_architecture=_required_range(choices, "neuron-architecture"),
        gpu_targets=tuple(
            (target.variant.name, architecture)
            for target in resolution.targets
            if (architecture := target.variant.spec.provides.get("gpu-architecture"))
        ),
        required=_required(recipe, gpu=gpu, launchers=launchers),
        efa_bandwidth=recipe.efa_bandwidth,
        budgets=recipe.budgets,
        smoke=recipe.smoke,
        format=recipe.format,
        unpinned=tuple(artifact for spec in specs for artifact in spec.artifacts if artifact.sha256 is None),
        platform=recipe.platform,
        requirements=required_imports(recipe, problems),
        known=known_facts(resolution),
    )


def _stages(
    resolution: Resolution,
    all_parts: tuple[InstalledComponent, ...],
    locked: AptSteps,
    templates: Mapping[str, str],
) -> tuple[Stage, ...]:
    """Return the stages of an image in build order; `all_parts` are the base and the components on it."""
    selected = resolution.recipe.trim
    base_part, *parts = all_parts
    own_python = _own_python(resolution)
    stages: list[Stage] = []
    for choice, part in zip(resolution.choices, parts, strict=True):
        component, spec, name = choice.candidate.component, choice.spec, choice.name
        template, packages = component.template, resolution.owners[name]
        if not template or ("packages(" in template and not packages and not spec.artifacts):
            # Without a template there is no build stage; without packages, lower layers contain all of them
            continue
        trims = trim_choices(spec.trims.values(), selected, gpu=spec.gpu)
        debs, wheels = locked.stages.get(name, ()), all(file.is_wheel for file in spec.artifacts)
        stages.append(
            Stage(
                part,
                template,
                source=component.directory,
                artifacts={artifact.name: artifact for artifact in spec.artifacts},
                locked=packages,
                build_apt=build_packages(resolution, spec),
                debs=debs,
                facts=spec.facts,
                files=component.files,
                dropped=drop_patterns(trims, selected),
                trims=trims,
                debs_list=f"debs/{base_part.label}/{part.label}.txt" if debs else "",
                layer=component.layer_order,
                is_partial=packages != spec.packages,
                python=own_python if template.endswith(WHEELS_TEMPLATE) and wheels else "",
            )
        )
    if resolution.user_packages:
        debs = locked.stages.get(REQUIREMENTS, ())
        stages.append(_user_stage(resolution, base_part.label, debs, templates))
    return tuple(stages)


def _user_stage(
    resolution: Resolution, base: str, debs: tuple[Deb, ...], templates: Mapping[str, str]
) -> Stage:
    """Return the stage of the Python packages of a recipe."""
    recipe, packages = resolution.recipe, with_build_requirements(resolution.user_packages)
    has_build = any(package.build is not None for package in packages)
    debs = debs if has_build else ()
    return Stage(
        InstalledComponent(REQUIREMENTS, "0", ""),
        templates[SDISTS_TEMPLATE] if has_build else WHEELS_TEMPLATE,
        source=recipe.location.path.parent,
        locked=packages,
        build_apt=requirements_packages(resolution) if has_build else (),
        debs=debs,
        dropped=drop_patterns((), recipe.trim),
        debs_list=f"debs/{base}/{REQUIREMENTS}-{recipe.name}.txt" if debs else "",
        image=recipe.name,
        python=_own_python(resolution),
    )


def _own_python(resolution: Resolution) -> str:
    """Return the version of the image's own Python; empty for that of a vendor's base."""
    is_frozen = bool(resolution.base.candidate.component.frozen)
    own = (choice.version for choice in resolution.choices if choice.name == OWN_PYTHON and not is_frozen)
    return next(own, "")


def _required(recipe: Recipe, *, gpu: bool, launchers: Collection[str]) -> tuple[str, ...]:
    """Return the smoke checks that the recipe requires.

    By default, these are the user's own test and, for GPU images, `gpu`. GPU images with `torchrun` also
    require `nccl_all_reduce`.
    """
    if recipe.required is not None:
        return recipe.required
    own = (USER_CODE,) if recipe.smoke else ()
    between_ranks = ("nccl_all_reduce",) if "torchrun" in launchers else ()
    return (*own, *((*between_ranks, "gpu") if gpu else ()))


def _required_range(choices: Iterable[Choice], name: str) -> str:
    """Return the constraints of all components on one property of the host, as one range."""
    constraints = (item for choice in choices for item in choice.spec.constraints if item.name == name)
    ranges = (text for constraint in constraints for text in constraint.specifier.split(",") if text)
    return ",".join(dict.fromkeys(ranges))


def _base(choice: Choice, source: BaseSource, host: str, locked: AptSteps) -> BootstrappedBase | RegistryBase:
    if source.suite:
        return bootstrapped(choice.name, choice.version, source, locked.base)
    digest = Digest(source.digest) if source.digest else None
    return RegistryBase(host + source.reference, digest, locked.on_pulled)


def bootstrapped(name: str, version: str, source: BaseSource, debs: tuple[Deb, ...]) -> BootstrappedBase:
    """Return a bootstrapped base, named by its key."""
    key = key_of_bootstrapped(source.lock_name, source.packages, debs)
    tag = f"{version}{platform_suffix(source.platform)}-{key[:8]}"
    return BootstrappedBase(f"bakehouse/{name}:{tag}", source.suite, source.packages, debs, source.platform)


def bootstrapped_bases(catalog: Catalog, locks: AptLocks) -> dict[str, BootstrappedBase]:
    """Return the bases that Bakehouse can make, by name and version, such as `debian-12`."""
    return {
        f"{component.name}-{release.version}{platform_suffix(base.platform)}": bootstrapped(
            component.name,
            release.version,
            base,
            locks.suites[base.lock_name].base(base.packages) if base.lock_name in locks.suites else (),
        )
        for component in catalog.components.values()
        for release in component.releases
        for variant in release.variants
        if (base := variant.spec.base) and base.suite
    }


def _part(choice: Choice) -> InstalledComponent:
    variant = choice.candidate.variant.name
    component = choice.candidate.component
    provides = tuple(sorted(choice.spec.provides.items()))
    return InstalledComponent(choice.name, choice.version, variant, component.smoke, provides, component.gpu)


def _environment(choices: tuple[Choice, ...], recipe: Recipe) -> dict[str, str]:
    """Merge variables: later components override earlier ones, and the recipe overrides all."""
    merged: dict[str, str] = {"SAGEMAKER_SUBMIT_DIRECTORY": CODE_DIRECTORY}
    if any(choice.spec.gpu for choice in choices):
        merged |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    for choice in choices:
        merged |= choice.spec.environment
    if recipe.content.entry_point:
        merged["SAGEMAKER_PROGRAM"] = recipe.content.entry_point
    return merged | dict(recipe.content.environment)


def _labels(recipe: Recipe, parts: Iterable[InstalledComponent]) -> dict[str, str]:
    return {
        "org.opencontainers.image.title": recipe.name,
        DESCRIPTION_LABEL: recipe.summary,
        **{f"{_LABEL}.component.{part.component}": part.version_text for part in parts},
    }


def _check_packages(image: Image, resolution: Resolution, problems: Problems) -> None:
    """Report packages without a name that the package manager of the base accepts."""
    recipe, manager = resolution.recipe, resolution.base.spec.manager
    label = f"`{resolution.base.name}` uses {manager}"
    lines = recipe.package_lines
    own = {"packages": recipe.content.system_packages, "build_packages": recipe.build_packages}
    for key, packages in own.items():
        if packages.lacks(manager):
            message = f"`{key}` of image `{image.name}` has no names for {manager}"
            hint = f"add `{manager}: [NAMES]`, or `{manager}: []` if it needs none"
            location = next(iter(lines.values()), recipe.location)
            problems.add(Diagnostic(message, location, label, hint=hint))
        for name in packages.invalid(manager):
            problems.add(_invalid_package(name, manager, lines.get(name, recipe.location), label))
    built = {stage.name for stage in image.stages}
    for choice in resolution.all_choices:
        spec, location = choice.spec, choice.candidate.variant.location
        used = {"packages": spec.system_packages}
        if choice.name in built or choice is resolution.base:
            used["build_packages"] = spec.build_packages
        for key, packages in used.items():
            if packages.lacks(manager):
                message = f"`{key}` of {choice.candidate} has no names for {manager}"
                reasons = (Reason(f"image `{image.name}` contains {choice.candidate}", location),)
                hint = f"add `{manager}: [NAMES]` to the component, or use a base with another manager"
                problems.add(Diagnostic(message, recipe.base.location, label, reasons, hint=hint))
            for name in packages.invalid(manager):
                problems.add(_invalid_package(name, manager, location, label))


def _invalid_package(name: str, manager: Manager, location: Location, label: str) -> Diagnostic:
    package, _, version = name.partition("=")
    hint = f"write a version as `{package}-{version}`" if manager == "dnf" and version else ""
    return Diagnostic(f"`{name}` is not a valid package name of {manager}", location, label, hint=hint)


def _check_layers(image: Image, recipe: Recipe, problems: Problems) -> None:
    # The number of layers of a base is unknown before the pull; no base of the catalog has more than 20.
    layers = 22 + bool(image.constraints) + len(image.content.run)
    layers += sum(len(stage.copied) for stage in image.stages)
    if layers > MAX_LAYERS:
        message = f"image `{image.name}` has {layers} layers; at most {MAX_LAYERS} are allowed"
        hint = "combine several steps of `run`"
        problems.add(Diagnostic(message, recipe.location, hint=hint))


def _check_budgets(image: Image, problems: Problems) -> None:
    parts = {part.component for part in image.all_parts}
    layers = [image.base_part.component, *(stage.name for stage in image.stages)]
    names = [name for name in layers if name in parts]
    for budget in image.budgets:
        if budget.name in parts and budget.name not in names:
            message = f"`{budget.name}` of image `{image.name}` has a budget, but no layer of its own"
            hint = "set a budget for `packages`, which covers the distribution packages of all components"
            problems.add(Diagnostic(message, budget.location, hint=hint))
        elif budget.name not in (*names, *OWN):
            message = f"image `{image.name}` has a budget for `{budget.name}`, but does not contain it"
            problems.add(Diagnostic(message, budget.location, hint=suggestion(budget.name, names)))


def _check_smoke(image: Image, problems: Problems) -> None:
    """Report a launcher of `smoke` that the image does not contain."""
    smoke = image.smoke
    if smoke is None or smoke.launcher == "script":
        return
    if smoke.launcher and smoke.launcher not in image.launchers:
        message = f"`smoke` needs `{smoke.launcher}`, which image `{image.name}` does not contain"
    elif smoke.processes > 1 and not image.launchers:
        message = f"`smoke` needs `torchrun` or `mpirun`, but image `{image.name}` contains neither"
    else:
        return
    problems.add(Diagnostic(message, smoke.location, hint="add a component that provides it"))
