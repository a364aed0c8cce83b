"""Reader of component directories: which components exist, their versions and requirements.

Everything here is as written, with its place; `resolution` chooses from it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.version import Version

from bakehouse.catalog.component import (
    DRIVER,
    Component,
    Registries,
    Release,
    Requirement,
    Variant,
    VariantSpec,
)
from bakehouse.catalog.matrix import variants
from bakehouse.catalog.spec_reader import evidence, is_version, read_frozen, read_registries, read_spec
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import load

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_RESERVED = (
    *("base", "changes", "files", "image", "packages"),
    *("requirements", "system", "toolchain", "venv"),
)
"""Stages that every Dockerfile has."""
_RESERVED_END = "-packages"
"""Stages with what another one installs."""
_NO_VERSION = "0"
_VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_FILE = re.compile(r"[A-Za-z0-9._/+@-]+")


class Links:
    """Which components may bring or provide which names, in any of their versions."""

    def __init__(self, components: Iterable[Component]) -> None:
        self._brought: dict[str, set[str]] = {}
        self._providers: dict[str, dict[str, set[str]]] = {}
        self._shared: set[str] = set()
        self._bases: set[str] = set()
        self._leads: dict[tuple[str, frozenset[str]], bool] = {}
        for component in components:
            brought = [variant.spec for release in component.releases for variant in release.variants]
            requirements = (one for each in brought for one in (*each.requires, *each.recommends))
            self._brought[component.name] = {one.name for one in requirements}
            if component.is_base:
                self._bases.add(component.name)
            for name, version in {pair for one in brought for pair in one.provides.items()}:
                if name != component.name:
                    self._providers.setdefault(name, {}).setdefault(component.name, set()).add(version)
                    if component.name not in self._bases:
                        self._shared.add(name)

    def is_base(self, name: str) -> bool:
        """Return whether a name is the name of a base."""
        return name in self._bases

    def is_shared(self, name: str) -> bool:
        """Return whether a component of another name, other than a base, may provide a name."""
        return name in self._shared

    def providers(self, name: str, demands: Sequence[Requirement]) -> frozenset[str]:
        """The components that provide a name, in some version that demands allow."""
        found = self._providers.get(name, {})
        return frozenset(
            component
            for component, versions in found.items()
            if any(all(one.allows(version) for one in demands) for version in versions)
        )

    def can_provide(self, component: str, providers: frozenset[str]) -> bool:
        """Return whether a component is one of `providers`, or needs one in some version."""
        key = component, providers
        if key not in self._leads:
            self._leads[key] = self._search(component, providers)
        return self._leads[key]

    def _search(self, component: str, providers: frozenset[str]) -> bool:
        seen, left = set(), [component] if providers else []
        while left:
            one = left.pop()
            if one in providers:
                return True
            if one not in seen:
                seen.add(one)
                left += self._brought.get(one, ())
        return False


@dataclass(frozen=True)
class Catalog:
    """All components, by name."""

    components: Mapping[str, Component]
    unread: frozenset[str] = frozenset()
    """Components that can't be read, which has been told: what asks for them is no mistake of its own."""

    @cached_property
    def cache(self) -> dict[str, Any]:
        """Results computed once from this catalogue, for all recipes; other packages add entries."""
        return {}

    @cached_property
    def links(self) -> Links:
        return Links(self.components.values())

    @cached_property
    def provided_names(self) -> frozenset[str]:
        """Every name a requirement can be about: components, what they provide, the host's driver."""
        names = {*self.components, *self.unread, DRIVER}
        for component in self.components.values():
            for release in component.releases:
                for variant in release.variants:
                    names.update(variant.spec.provides)
        return frozenset(names)


def load_catalog(roots: Iterable[Path], problems: Problems | None = None) -> Catalog:
    """The components of all recipe folders; a later folder's component replaces an earlier one's whole.

    Raises RecipeError with every mistake found in any of them, or adds them to `problems` where it is given.
    """
    found = Problems() if problems is None else problems
    catalog = _load_catalog(roots, found)
    if problems is None:
        found.raise_as(RecipeError)
    return catalog


def _load_catalog(roots: Iterable[Path], problems: Problems) -> Catalog:
    components: dict[str, Component] = {}
    unread = set()
    for root in roots:
        for folder in sorted(path for path in (root / "components").glob("[!._]*") if path.is_dir()):
            try:
                components[folder.name] = _load_component(folder, problems)
            except RecipeError as error:
                problems.extend(error.diagnostics)
                unread.add(folder.name)
    return checked(components, frozenset(unread), problems)


def checked(components: dict[str, Component], unread: frozenset[str], problems: Problems) -> Catalog:
    """A catalogue of components as they were read, with what they say of one another."""
    for component in components.values():
        registries = _registries_of(component, components, unread, problems)
        components[component.name] = replace(component, registries=registries)
    catalog = Catalog(components, unread)
    _check_names(catalog, problems)
    for component in components.values():
        problems.extend(_stage_mistakes(component, catalog))
    return catalog


def _registries_of(
    component: Component, components: Mapping[str, Component], unread: Collection[str], problems: Problems
) -> Registries | None:
    """The registries of a component, or those of the component that it names."""
    own = component.registries
    if own is None or not own.of:
        return own
    other = components.get(own.of)
    if other and other.registries and not other.registries.of:
        return other.registries
    if own.of not in unread:
        known = [one.name for one in components.values() if one.registries and not one.registries.of]
        message = f"`{own.of}` has no table of `registries`"
        problems.add(Diagnostic(message, own.location, hint=suggestion(own.of, known)))
    return None


def _load_component(folder: Path, problems: Problems) -> Component:
    root = load(folder / "component.yaml")
    return read_component(Fields(root, f"component `{folder.name}`", problems), folder)


def read_component(fields: Fields, folder: Path) -> Component:
    """The component that a folder's `component.yaml` and the files beside it describe."""
    name_problem = "" if _NAME.fullmatch(folder.name) else "lowercase letters, digits and single hyphens"
    if folder.name in _RESERVED or folder.name.endswith(_RESERVED_END):
        name_problem = "a stage of every Dockerfile"
    if name_problem:
        fields.report(f"`{folder.name}` is not a component name", fields.location, name_problem)
    summary = fields.text("summary", required=True)
    stage_order = fields.number("stage_order", 50)
    layer_order = fields.number("layer_order", stage_order)
    launchers = fields.texts("launchers")
    builds_on = fields.texts("builds_on")
    hosts, kept = read_registries(fields), read_frozen(fields)
    for launcher in launchers:
        if launcher not in ("mpirun", "torchrun"):
            fields.report(
                f"`{launcher}` is not a launcher", fields.place("launchers"), "`mpirun` or `torchrun`"
            )
    common = read_spec(fields, folder, VariantSpec())
    releases = [_release(child, folder, common) for child in fields.children("releases", "a release")]
    if not releases:
        fields.report(f"component `{folder.name}` has no releases", fields.place("releases"))
    _check_once(fields, [(release.version, release.location) for release in releases], "release")
    bases = {bool(variant.spec.base) for release in releases for variant in release.variants}
    if len(bases) > 1:
        fields.report(
            f"only some variants of `{folder.name}` are bases", fields.location, "all variants or none"
        )
    fields.finish()
    smoke = folder / "smoke.py"
    return Component(
        name=folder.name,
        summary=summary,
        stage_order=stage_order,
        folder=folder,
        launchers=launchers,
        releases=tuple(sorted(releases, key=lambda release: Version(release.version), reverse=True)),
        template=_template(folder / "install.j2", fields.problems),
        smoke=smoke if smoke.is_file() else None,
        files=_files(folder / "files", fields.problems),
        location=fields.location,
        builds_on=builds_on,
        registries=hosts,
        frozen=kept,
        layer_order=layer_order,
    )


def _template(path: Path, problems: Problems) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        problems.add(Diagnostic(f"cannot read `{path.name}` as UTF-8 text", Location(path, 1, 1)))
        return ""


def _files(folder: Path, problems: Problems) -> dict[str, bytes]:
    """The files that a component's template can place or mount, by path."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        name = path.relative_to(folder).as_posix()
        try:
            files[name] = path.read_bytes()
        except OSError:
            problems.add(Diagnostic(f"cannot read `{name}`", Location(path, 1, 1)))
            continue
        if not _FILE.fullmatch(name):
            problems.add(Diagnostic(f"`{name}` is not a plain file name", Location(path, 1, 1)))
    return files


def _check_once(fields: Fields, found: Iterable[tuple[str, Location]], what: str) -> None:
    first: dict[str, Location] = {}
    for name, location in found:
        if name not in ("", _NO_VERSION) and first.setdefault(name, location) != location:
            label = f"first on line {first[name].line}"
            fields.report(f"duplicate {what} `{name}` in {fields.what}", location, label)


def _release(fields: Fields, folder: Path, common: VariantSpec) -> Release:
    version = _version(fields, "version")
    fields.what = f"release {version} of `{folder.name}`"
    evidence(fields)
    shared = read_spec(fields, folder, common)
    variants = _variants(fields, folder, shared)
    fields.finish()
    if not variants:
        variants = [Variant("", shared, fields.place("version"))]
    return Release(version, tuple(variants), fields.place("version"))


def _variants(fields: Fields, folder: Path, common: VariantSpec) -> list[Variant]:
    found = []
    for node in fields.nodes("variants"):
        made = [
            _variant(fields.inner(one, "a variant"), folder, common)
            for one in variants(node, fields.problems)
        ]
        if len({variant.name for variant in made}) < len(made):
            hint = "use all its variables in `name`"
            fields.report("two variants of one `matrix` have the same name", node.location, hint=hint)
        found += made
    _check_once(fields, [(variant.name, variant.location) for variant in found], "variant")
    return found


def _variant(fields: Fields, folder: Path, common: VariantSpec) -> Variant:
    name = fields.text("name", required=True)
    if name and not _VARIANT.fullmatch(name):
        fields.report(f"`{name}` is not a variant name", fields.place("name"), "letters, digits and `._+-`")
    fields.what = f"variant `{name}` of `{folder.name}`"
    evidence(fields)
    own = read_spec(fields, folder, common)
    fields.finish()
    return Variant(name, own, fields.place("name"))


def _version(fields: Fields, key: str) -> str:
    text = fields.text(key, required=True)
    if not is_version(text):
        if text:
            fields.report(f"`{text}` is not a version", fields.place(key))
        return _NO_VERSION
    return text


def _check_names(catalog: Catalog, problems: Problems) -> None:
    """Requirements are about what exists: a misspelt one would never hold or never matter."""
    known = catalog.provided_names
    seen = set()
    for component in catalog.components.values():
        for release in component.releases:
            for brought in (variant.spec for variant in release.variants):
                parts = [part for one in brought.conflicts for part in one.parts]
                for one in (*brought.requires, *brought.recommends, *brought.constraints, *parts):
                    if one.name not in known and one.location not in seen:
                        seen.add(one.location)
                        hint = suggestion(one.name, known)
                        verb = "conflicts with" if one in parts else "requires"
                        message = f"`{component.name}` {verb} unknown component `{one.name}`"
                        problems.add(Diagnostic(message, one.location, hint=hint))


def _stage_mistakes(component: Component, catalog: Catalog) -> Iterator[Diagnostic]:
    """A stage that another one builds on must be in the same Dockerfile, above it."""
    specs = [variant.spec for release in component.releases for variant in release.variants]
    for name in component.builds_on:
        below = catalog.components.get(name)
        message = hint = ""
        if below is None:
            message = (
                "" if name in catalog.unread else f"`{component.name}` builds on unknown component `{name}`"
            )
            hint = suggestion(name, catalog.components)
        elif not all(name in {one.name for one in brought.requires} for brought in specs):
            message = f"`{component.name}` builds on `{name}` but does not require it"
        elif (below.stage_order, name) >= (component.stage_order, component.name):
            message = f"`{component.name}` builds on `{name}`, but `{name}` comes later"
            hint = f"give `{name}` a smaller `stage_order`"
        if message:
            yield Diagnostic(message, component.location, hint=hint)
