"""Reader of component directories: which components exist, their versions and requirements.

All values are as written, with their locations; `resolve` chooses among them.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.version import Version

from bakehouse.catalog.component import (
    DRIVER,
    WHEELS_TEMPLATE,
    Component,
    Incompatibility,
    Registries,
    Release,
    Requirement,
    Variant,
    VariantSpec,
)
from bakehouse.catalog.matrix import variants
from bakehouse.catalog.pins import Pins, pinned, read_pins
from bakehouse.catalog.python_lock import platform_path
from bakehouse.catalog.spec_reader import evidence, is_version, read_frozen, read_registries, read_spec
from bakehouse.catalog.upstream import read_upstream
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util.directory_handles import LinkError
from bakehouse.util.files import files_below, matching_paths, read_bytes, read_text
from bakehouse.util.oci import PLATFORM, platform_suffix
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import load

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_RESERVED = (
    *("base", "changes", "code", "constraints", "files", "image", "packages"),
    *("requirements", "system", "toolchain", "venv"),
)
"""Names of stages in all Dockerfiles."""
_RESERVED_END = "-packages"
"""Suffix of stages with the Python packages of another stage."""
_NO_VERSION = "0"
_VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_FILE = re.compile(r"[A-Za-z0-9._/+@-]+")


class Links:
    """Index of the names that components may require, recommend, replace or provide, in any version."""

    def __init__(self, components: Iterable[Component]) -> None:
        self._required: dict[str, set[str]] = {}
        self._recommended: dict[str, set[str]] = {}
        self._replaced: dict[str, set[str]] = {}
        self._providers: dict[str, dict[str, set[str]]] = {}
        self._shared: set[str] = set()
        self._bases: set[str] = set()
        self._versions: dict[str, set[str]] = {}
        self._can_provide: dict[tuple[str, frozenset[str]], bool] = {}
        for component in components:
            own = self._versions.setdefault(component.name, set())
            own.update(release.version for release in component.releases)
            recommended = {item.name for spec in component.specs for item in spec.recommends}
            required = {item.name for spec in component.specs for item in spec.requires}
            self._recommended[component.name] = recommended
            self._required[component.name] = required | recommended
            self._replaced[component.name] = {name for spec in component.specs for name in spec.replaces}
            if component.is_base:
                self._bases.add(component.name)
            for name, version in {pair for spec in component.specs for pair in spec.provides.items()}:
                self._versions.setdefault(name, set()).add(version)
                if name != component.name:
                    self._providers.setdefault(name, {}).setdefault(component.name, set()).add(version)
                    if component.name not in self._bases:
                        self._shared.add(name)

    def is_base(self, name: str) -> bool:
        """Return whether a name is the name of a base."""
        return name in self._bases

    @property
    def bases(self) -> tuple[str, ...]:
        """The names of all bases, sorted."""
        return tuple(sorted(self._bases))

    def versions(self, name: str) -> Set[str]:
        """Return every version that a component or name has in the catalogue."""
        return self._versions.get(name, frozenset())

    def recommended(self, component: str) -> Set[str]:
        """Return the names that a component recommends in some version."""
        return self._recommended.get(component, frozenset())

    def replaced(self, component: str) -> Set[str]:
        """Return the packages of the base that a component replaces in some version."""
        return self._replaced.get(component, frozenset())

    def is_shared(self, name: str) -> bool:
        """Return whether a component of another name, other than a base, may provide a name."""
        return name in self._shared

    def providers(self, name: str, demands: Sequence[Requirement]) -> frozenset[str]:
        """Return the components that provide a name in a version that all demands allow."""
        return frozenset(
            component
            for component, versions in self._providers.get(name, {}).items()
            if any(all(demand.allows(version) for demand in demands) for version in versions)
        )

    def can_provide(self, component: str, providers: frozenset[str]) -> bool:
        """Return whether a component is one of `providers`, or needs one in some version."""
        key = component, providers
        if key not in self._can_provide:
            self._can_provide[key] = bool(providers) and not providers.isdisjoint(self.needed([component]))
        return self._can_provide[key]

    def needed(self, components: Iterable[str]) -> set[str]:
        """Return components and all names that they, or what they need, require in some version."""
        seen, left = set(), [*components]
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                left += self._required.get(name, ())
        return seen


@dataclass(frozen=True, slots=True)
class BrokenComponent:
    """A component with mistakes, which is left out."""

    name: str
    directory: Path
    names: frozenset[str]
    """Its own name and those that it alone provides, as far as they are readable."""
    mistakes: tuple[Diagnostic, ...]


@dataclass(frozen=True)
class Catalog:
    """All components without mistakes, by name."""

    components: Mapping[str, Component]
    broken: tuple[BrokenComponent, ...] = ()
    """Recipes may refer to them, but their images fail."""

    @cached_property
    def cache(self) -> dict[str, Any]:
        """Results computed once from this catalogue, for all recipes; other packages add entries."""
        return {}

    @cached_property
    def links(self) -> Links:
        return Links(self.components.values())

    @cached_property
    def provided_names(self) -> frozenset[str]:
        """All names that requirements can refer to: components, names that they provide, and the driver."""
        provided = (spec.provides for component in self.components.values() for spec in component.specs)
        broken = (component.names for component in self.broken)
        return frozenset({*self.components, DRIVER}.union(*provided, *broken))

    def broken_among(self, components: Iterable[str]) -> tuple[BrokenComponent, ...]:
        """Return the components with mistakes in `components`, and those that they need in some version."""
        needed = self.links.needed(components) if self.broken else frozenset()
        return tuple(component for component in self.broken if not component.names.isdisjoint(needed))


def read_directory(directory: Path, problems: Problems) -> Component:
    """Read the component of a directory. Raises RecipeError if its file is not readable YAML."""
    fields = Fields(load(directory / "component.yaml"), f"component `{directory.name}`", problems)
    return read_component(fields, directory)


def component_directories(root: Path) -> list[Path]:
    """Return the directories of the components of a recipe directory, sorted."""
    return [path for path in matching_paths(root / "components", "[!._]*") if path.is_dir()]


def load_catalog(
    roots: Sequence[Path],
    problems: Problems | None = None,
    read: Callable[[Path, Problems], Component] = read_directory,
) -> Catalog:
    """Read the components and pins of all recipe directories; those of later ones replace earlier ones.

    A component with mistakes is left out, and its mistakes are added to `problems`. Without `problems`, the
    mistakes of all components are raised together as RecipeError.
    """
    components: dict[str, Component] = {}
    directories: dict[str, Path] = {}
    mistakes: dict[str, Problems] = {}
    names: dict[str, set[str]] = {}
    for root in roots:
        for directory in component_directories(root):
            name = directory.name
            directories[name], mistakes[name] = directory, Problems()
            try:
                components[name] = read(directory, mistakes[name])
            except RecipeError as error:
                mistakes[name].extend(error.diagnostics)
                components.pop(name, None)
            # Include the names of a component that it replaces
            provided = (spec.provides for spec in components[name].specs) if name in components else ()
            names.setdefault(name, {name}).update(*provided)
    unread = {item for name, own in mistakes.items() if own for item in names[name]} - components.keys()
    every = Problems() if problems is None else problems
    pins = Problems()
    known = checked(components, unread, mistakes, read_pins(roots, pins))
    # A mistake in the pins can affect every image
    pins.raise_as(RecipeError)
    sound = {name: component for name, component in known.components.items() if not mistakes[name]}
    others = Catalog(sound).provided_names
    broken = []
    for name in sorted(name for name, own in mistakes.items() if own):
        every.extend(mistakes[name].all)
        own_names = frozenset({name} | (names[name] - others))
        broken.append(BrokenComponent(name, directories[name], own_names, mistakes[name].all))
    if problems is None:
        every.raise_as(RecipeError)
    return Catalog(sound, tuple(broken)) if broken else known


def checked(
    components: dict[str, Component],
    unread: Collection[str],
    problems: Mapping[str, Problems],
    pins: Pins | None = None,
) -> Catalog:
    """Return a catalogue of components with pins, after checking their references to each other.

    Components may refer to those in `unread`. Mistakes are added to the `problems` of each component.
    """
    for name, component in components.items():
        registries = _registries_of(component, components, unread, problems[name])
        components[name] = replace(component, registries=registries)
        if pins:
            components[name] = pinned(components[name], pins)
    catalog = Catalog(components)
    names = catalog.provided_names.union(unread)
    # A component with mistakes may have default values, so references to it are not checked
    sound = {name: component for name, component in components.items() if not problems[name]}
    faulty = {*unread, *components} - sound.keys()
    for component in components.values():
        _check_names(component, names, problems[component.name])
        problems[component.name].extend(_stage_mistakes(component, sound, faulty))
    for base in [component for component in components.values() if component.is_base]:
        components[base.name] = _add_content_conflicts(base, components)
    return catalog


def _registries_of(
    component: Component, components: Mapping[str, Component], unread: Collection[str], problems: Problems
) -> Registries | None:
    """Return the registries of a component, or of the component that it refers to."""
    own = component.registries
    if own is None or not own.of:
        return own
    other = components.get(own.of)
    if other and other.registries and not other.registries.of:
        return other.registries
    if own.of not in unread:
        owners = [owner.name for owner in components.values() if owner.registries and not owner.registries.of]
        message = f"`{own.of}` has no table of `registries`"
        problems.add(Diagnostic(message, own.location, hint=suggestion(own.of, owners)))
    return None


def _add_content_conflicts(base: Component, components: Mapping[str, Component]) -> Component:
    """Return a base with the known conflicts of the component releases that it contains."""
    releases = [
        replace(
            release,
            variants=tuple(
                replace(variant, spec=replace(variant.spec, conflicts=(*variant.spec.conflicts, *added)))
                if (added := tuple(_content_conflicts(variant.spec.provides, components)))
                else variant
                for variant in release.variants
            ),
        )
        for release in base.releases
    ]
    return replace(base, releases=tuple(releases))


def _content_conflicts(
    provided: Mapping[str, str], components: Mapping[str, Component]
) -> Iterator[Incompatibility]:
    """Yield the known conflicts of the contents of a base.

    A conflict inside the base is a warning, because no recipe can change it, and its vendor tested it.
    """
    contents = {
        name: release.variants
        for name, version in provided.items()
        for release in (components[name].releases if name in components else ())
        if release.version == version
    }
    # Content that other content installs, such as the libfabric of EFA, is not a build of its component.
    installed = {
        pair for builds in contents.values() for build in builds for pair in build.spec.provides.items()
    }
    for name, builds in contents.items():
        if (name, provided[name]) in installed:
            continue
        # A conflict of a component with its own contents, such as EFA with Open MPI, is about a second copy.
        copies = {copy for spec in components[name].specs for copy in spec.provides}
        for conflict in builds[0].spec.conflicts:
            parts = conflict.parts
            is_general = all(conflict in build.spec.conflicts for build in builds)
            if is_general and not any(part.name in copies for part in parts):
                is_inside = all(part.name in provided and part.allows(provided[part.name]) for part in parts)
                is_error = conflict.is_error and not is_inside
                yield replace(conflict, is_error=is_error, content=f"{name} {provided[name]}")


def read_component(fields: Fields, directory: Path) -> Component:
    """Read a component from the fields of its `component.yaml` and the other files of its directory."""
    name_problem = "" if _NAME.fullmatch(directory.name) else "lowercase letters, digits and single hyphens"
    if directory.name in _RESERVED or directory.name.endswith(_RESERVED_END):
        name_problem = "reserved for a stage of every Dockerfile"
    if name_problem:
        fields.report(f"`{directory.name}` is not a component name", fields.location, name_problem)
    summary = fields.text("summary", required=True)
    stage_order = fields.number("stage_order", 50)
    layer_order = fields.number("layer_order", stage_order)
    launchers = fields.texts("launchers")
    builds_on = fields.texts("builds_on")
    registries, frozen = read_registries(fields), read_frozen(fields)
    upstream = read_upstream(fields)
    gpu = directory.parent / _component_name(fields, "gpu_check", directory.name) / "gpu.py"
    for launcher in launchers:
        if launcher not in ("mpirun", "torchrun"):
            fields.report(
                f"`{launcher}` is not a launcher", fields.place("launchers"), "`mpirun` or `torchrun`"
            )
    common = read_spec(fields, directory, VariantSpec())
    releases = [_release(child, directory, common) for child in fields.children("releases", "a release")]
    if not releases:
        fields.report(f"component `{directory.name}` has no releases", fields.place("releases"))
    _check_once(fields, [(release.version, release.location) for release in releases], "release")
    bases = {bool(variant.spec.base) for release in releases for variant in release.variants}
    if len(bases) > 1:
        fields.report(
            f"only some variants of `{directory.name}` are bases", fields.location, "all variants or none"
        )
    fields.finish()
    smoke = directory / "smoke.py"
    _template(smoke, fields.problems)
    template = _template(directory / "install.j2", fields.problems)
    specs = [variant.spec for release in releases for variant in release.variants if not variant.spec.base]
    has_packages = any(spec.lock or any(file.is_wheel for file in spec.artifacts) for spec in specs)
    if "{% block build" not in template and has_packages:
        template += WHEELS_TEMPLATE
    return Component(
        name=directory.name,
        summary=summary,
        stage_order=stage_order,
        directory=directory,
        launchers=launchers,
        releases=tuple(sorted(releases, key=lambda release: Version(release.version), reverse=True)),
        template=template,
        smoke=smoke if smoke.is_file() else None,
        gpu=gpu if gpu.is_file() else None,
        files=_files(directory / "files", fields.problems),
        location=fields.location,
        builds_on=builds_on,
        registries=registries,
        frozen=frozen,
        layer_order=layer_order,
        upstream=upstream,
    )


def _component_name(fields: Fields, key: str, default: str) -> str:
    name = fields.text(key, default)
    if name != default and not _NAME.fullmatch(name):
        fields.report(f"`{name}` is not the name of a component", fields.place(key))
        return default
    return name


def _template(path: Path, problems: Problems) -> str:
    try:
        return read_text(path) if path.is_file() else ""
    except LinkError as error:
        problems.add(Diagnostic(f"cannot read `{path.name}`: {error.strerror}", Location(path, 1, 1)))
        return ""
    except (OSError, UnicodeDecodeError):
        problems.add(Diagnostic(f"cannot read `{path.name}` as UTF-8 text", Location(path, 1, 1)))
        return ""


def _files(directory: Path, problems: Problems) -> dict[str, bytes]:
    """Read the files that the template of a component can copy or mount, by relative path."""
    files = {}
    for path in files_below(directory):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        name = path.relative_to(directory).as_posix()
        try:
            files[name] = read_bytes(path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            problems.add(Diagnostic(f"cannot read `{name}`: {reason}", Location(path, 1, 1)))
            continue
        if not _FILE.fullmatch(name):
            problems.add(Diagnostic(f"`{name}` is not a plain file name", Location(path, 1, 1)))
    return files


def _check_once(fields: Fields, names: Iterable[tuple[str, Location]], what: str) -> None:
    first: dict[str, Location] = {}
    for name, location in names:
        if name not in ("", _NO_VERSION) and first.setdefault(name, location) != location:
            label = f"first on line {first[name].line}"
            fields.report(f"duplicate {what} `{name}` in {fields.what}", location, label)


def _release(fields: Fields, directory: Path, common: VariantSpec) -> Release:
    version = _version(fields, "version")
    fields.what = f"release {version} of `{directory.name}`"
    source = evidence(fields)
    shared = read_spec(fields, directory, common)
    variants = _variants(fields, directory, shared)
    fields.finish()
    if not variants:
        variants = _builds("", shared, fields.place("version"))
    return Release(version, tuple(variants), fields.place("version"), source)


def _variants(fields: Fields, directory: Path, common: VariantSpec) -> list[Variant]:
    all_variants: list[Variant] = []
    for node in fields.nodes("variants"):
        expanded = [
            build
            for cell in variants(node, fields.problems)
            for build in _variant(fields.inner(cell, "a variant"), directory, common)
        ]
        if len({variant.name for variant in expanded}) < len(expanded):
            hint = "use all its variables in `name`"
            fields.report("two variants of one `matrix` have the same name", node.location, hint=hint)
        all_variants += expanded
    _check_once(fields, [(variant.name, variant.location) for variant in all_variants], "variant")
    return all_variants


def _variant(fields: Fields, directory: Path, common: VariantSpec) -> list[Variant]:
    name = fields.text("name", required=True)
    if name and not _VARIANT.fullmatch(name):
        fields.report(f"`{name}` is not a variant name", fields.place("name"), "letters, digits and `._+-`")
    fields.what = f"variant `{name}` of `{directory.name}`"
    evidence(fields)
    own = read_spec(fields, directory, common)
    fields.finish()
    return _builds(name, own, fields.place("name"))


def _builds(name: str, spec: VariantSpec, location: Location) -> list[Variant]:
    """Return the builds of a variant. With two platforms, the name and the lock of one have a suffix."""
    is_one_of_two = len(spec.platforms) > 1
    builds = []
    for platform in spec.platforms:
        suffix = platform_suffix(platform) if is_one_of_two else ""
        lock = spec.lock
        if lock and platform != PLATFORM:
            path = platform_path(lock.path, platform) if is_one_of_two else lock.path
            lock = replace(lock, path=path, platform=platform)
        base = spec.base and replace(spec.base, platform=platform)
        own = spec if platform == PLATFORM else replace(spec, lock=lock, base=base)
        builds.append(Variant(f"{name}{suffix}".removeprefix("-"), own, location, platform))
    return builds


def _version(fields: Fields, key: str) -> str:
    text = fields.text(key, required=True)
    if not is_version(text):
        if text:
            fields.report(f"`{text}` is not a version", fields.place(key))
        return _NO_VERSION
    return text


def _check_names(component: Component, names: Collection[str], problems: Problems) -> None:
    """Report requirements on unknown names, which can never be satisfied or have no effect."""
    seen = set()
    for spec in component.specs:
        conflicts = [part for conflict in spec.conflicts for part in conflict.parts]
        for requirement in (*spec.requires, *spec.recommends, *spec.constraints, *conflicts):
            if requirement.name not in names and requirement.location not in seen:
                seen.add(requirement.location)
                hint = suggestion(requirement.name, names)
                verb = "conflicts with" if requirement in conflicts else "requires"
                message = f"`{component.name}` {verb} unknown component `{requirement.name}`"
                problems.add(Diagnostic(message, requirement.location, hint=hint))


def _stage_mistakes(
    component: Component, components: Mapping[str, Component], unread: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield mistakes in `builds_on`: such a stage must be in the same Dockerfile and come first."""
    for name in component.builds_on:
        below = components.get(name)
        message = hint = ""
        if below is None:
            message = "" if name in unread else f"`{component.name}` builds on unknown component `{name}`"
            hint = suggestion(name, components)
        elif not all(name in {requirement.name for requirement in spec.requires} for spec in component.specs):
            message = f"`{component.name}` builds on `{name}` but does not require it"
        elif (below.stage_order, name) >= (component.stage_order, component.name):
            message = f"`{component.name}` builds on `{name}`, but `{name}` comes later"
            hint = f"give `{name}` a smaller `stage_order`"
        if message:
            yield Diagnostic(message, component.location, hint=hint)
