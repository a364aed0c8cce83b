"""Reads component folders into a Catalog: what parts exist, in which versions, needing what.

Everything here is as written, with its place; `resolution` chooses from it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from bakehouse.component import Component, Face, Release, Variant
from bakehouse.errors import Diagnostic, Location, Problems, RecipeError
from bakehouse.faces import evidence, face, is_version
from bakehouse.fields import Fields
from bakehouse.yamlfile import Node, load, suggestion

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_RESERVED = ("base", "files", "image", "requirements", "toolchain", "venv")
"""Stages that every Dockerfile has."""
_NO_VERSION = "0"
_VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_LONGEST_LINE = 65_535
_FILE = re.compile(r"[A-Za-z0-9._/+@-]+")


@dataclass(frozen=True, slots=True)
class Catalog:
    """All components, by name."""

    components: Mapping[str, Component]

    def provided_names(self) -> frozenset[str]:
        """Every name a requirement can be about: components and what they provide."""
        names = set(self.components)
        for component in self.components.values():
            for release in component.releases:
                for variant in release.variants:
                    names.update(variant.face.provides)
        return frozenset(names)


def load_catalog(roots: Iterable[Path]) -> Catalog:
    """The components of all recipe folders; a later folder's component replaces an earlier one's whole.

    Raises RecipeError with every mistake found in any of them.
    """
    problems = Problems()
    components: dict[str, Component] = {}
    unread = set()
    for root in roots:
        for folder in sorted(path for path in (root / "components").glob("[!._]*") if path.is_dir()):
            try:
                components[folder.name] = _load_component(folder, load(folder / "component.yaml"), problems)
            except RecipeError as error:
                problems.extend(error.diagnostics)
                unread.add(folder.name)
    catalog = Catalog(components)
    _check_names(catalog, unread, problems)
    for component in components.values():
        problems.extend(_stage_mistakes(component, catalog, unread))
    problems.raise_as(RecipeError)
    return catalog


def _load_component(folder: Path, root: Node, problems: Problems) -> Component:
    fields = Fields(root, f"component `{folder.name}`", problems)
    name_problem = "" if _NAME.fullmatch(folder.name) else "small letters, digits, single hyphens"
    if folder.name in _RESERVED:
        name_problem = "a stage of every Dockerfile"
    if name_problem:
        fields.report(f"`{folder.name}` is no component name", fields.location, name_problem)
    summary = fields.text("summary", required=True)
    order = fields.number("order", 50)
    launchers = fields.texts("launchers")
    builds_on = fields.texts("builds_on")
    for launcher in launchers:
        if launcher not in ("mpirun", "torchrun"):
            fields.report(f"`{launcher}` is no launcher", fields.place("launchers"), "`mpirun` or `torchrun`")
    common = face(fields, folder, Face())
    releases = [_release(child, folder, common) for child in fields.children("releases", "a release")]
    if not releases:
        fields.report(f"component `{folder.name}` has no releases", fields.place("releases"))
    _check_once(fields, [(release.version, release.location) for release in releases], "release")
    bases = {bool(variant.face.base) for release in releases for variant in release.variants}
    if len(bases) > 1:
        fields.report(f"only a part of `{folder.name}` is a base", fields.location, "all variants or none")
    fields.finish()
    smoke = folder / "smoke.py"
    return Component(
        name=folder.name,
        summary=summary,
        order=order,
        folder=folder,
        launchers=launchers,
        releases=tuple(sorted(releases, key=lambda release: Version(release.version), reverse=True)),
        template=_template(folder / "install.j2", problems),
        smoke=smoke if smoke.is_file() else None,
        files=_files(folder / "files", problems),
        location=fields.location,
        builds_on=builds_on,
    )


def _template(path: Path, problems: Problems) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        problems.add(Diagnostic(f"can't read `{path.name}` as UTF-8 text", Location(path, 1, 1)))
        return ""


def _files(folder: Path, problems: Problems) -> dict[str, bytes]:
    """What a component's template places: text, because it stands in the Dockerfile itself."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        name = path.relative_to(folder).as_posix()
        try:
            text = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            problems.add(Diagnostic(f"can't read `{name}` as UTF-8 text", Location(path, 1, 1)))
            continue
        if not _FILE.fullmatch(name):
            problems.add(Diagnostic(f"`{name}` is no plain file name", Location(path, 1, 1)))
        elif "\0" in text or "\r" in text or _longest_line(text) >= _LONGEST_LINE:
            message = f"`{name}` has characters or lines that no Dockerfile can hold"
            problems.add(Diagnostic(message, Location(path, 1, 1)))
        found[name] = text.encode()
    return found


def _longest_line(text: str) -> int:
    return max(len(line) for line in text.encode().split(b"\n"))


def _check_once(fields: Fields, found: Iterable[tuple[str, Location]], what: str) -> None:
    first: dict[str, Location] = {}
    for name, location in found:
        if name not in ("", _NO_VERSION) and first.setdefault(name, location) != location:
            label = f"first on line {first[name].line}"
            fields.report(f"{what} `{name}` stands twice in {fields.what}", location, label)


def _release(fields: Fields, folder: Path, common: Face) -> Release:
    version = _version(fields, "version")
    fields.what = f"release {version} of `{folder.name}`"
    evidence(fields)
    shared = face(fields, folder, common)
    variants = [_variant(child, folder, shared) for child in fields.children("variants", "a variant")]
    _check_once(fields, [(variant.name, variant.location) for variant in variants], "variant")
    fields.finish()
    if not variants:
        variants = [Variant("", shared, fields.place("version"))]
    return Release(version, tuple(variants), fields.place("version"))


def _variant(fields: Fields, folder: Path, common: Face) -> Variant:
    name = fields.text("name", required=True)
    if name and not _VARIANT.fullmatch(name):
        fields.report(f"`{name}` is no variant name", fields.place("name"), "letters, digits and `._+-`")
    fields.what = f"variant `{name}` of `{folder.name}`"
    evidence(fields)
    own = face(fields, folder, common)
    fields.finish()
    return Variant(name, own, fields.place("name"))


def _version(fields: Fields, key: str) -> str:
    text = fields.text(key, required=True)
    if not is_version(text):
        if text:
            fields.report(f"`{text}` is no version", fields.place(key))
        return _NO_VERSION
    return text


def _check_names(catalog: Catalog, unread: set[str], problems: Problems) -> None:
    """Requirements are about what exists: a misspelt one would never hold or never matter."""
    known = catalog.provided_names() | unread
    seen = set()
    for component in catalog.components.values():
        for release in component.releases:
            for brought in (variant.face for variant in release.variants):
                for one in (*brought.requires, *brought.recommends, *brought.constraints):
                    if one.name not in known and one.location not in seen:
                        seen.add(one.location)
                        hint = suggestion(one.name, known)
                        message = f"`{component.name}` requires unknown component `{one.name}`"
                        problems.add(Diagnostic(message, one.location, hint=hint))


def _stage_mistakes(component: Component, catalog: Catalog, unread: set[str]) -> Iterator[Diagnostic]:
    """A stage that another one builds on has to be in the same Dockerfile, above it."""
    faces = [variant.face for release in component.releases for variant in release.variants]
    for name in component.builds_on:
        below = catalog.components.get(name)
        message = hint = ""
        if below is None:
            message = "" if name in unread else f"`{component.name}` builds on unknown component `{name}`"
            hint = suggestion(name, catalog.components)
        elif not all(name in {one.name for one in brought.requires} for brought in faces):
            message = f"`{component.name}` builds on `{name}` and does not require it"
        elif (below.order, name) >= (component.order, component.name):
            message = f"`{component.name}` builds on `{name}`, which comes after it"
            hint = f"give `{name}` a smaller `order`"
        if message:
            yield Diagnostic(message, component.location, hint=hint)
