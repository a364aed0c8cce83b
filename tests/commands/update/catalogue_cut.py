"""The catalogue as it was before some releases, and the entries that it reaches again."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

from packaging.version import Version

from bakehouse.catalog.catalog import load_catalog, read_directory
from bakehouse.catalog.component import Component
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.commands.update.release_draft import read_copy
from bakehouse.commands.update.release_entry import entry_text, read_entry
from bakehouse.errors import Problems
from bakehouse.plan.workspace import Workspace
from tests.support import own_recipes

COMPONENTS = HOME / "recipes" / "components"
Cut = Mapping[str, tuple[str, ...]]
"""Removed releases by component."""


def newer_than(name: str, version: str) -> tuple[str, ...]:
    """Return the releases of one of Bakehouse's components above a version."""
    releases = (release.version for release in read_copy(COMPONENTS / name).releases)
    return tuple(each for each in releases if Version(each) > Version(version))


def cut_workspace(directory: Path, cut: Cut, change: Callable[[str], str] = lambda text: text) -> Workspace:
    """Return a project with Bakehouse's components, some of them without releases and with other text."""
    components = directory / "recipes" / "components"
    components.mkdir(parents=True)
    for component in COMPONENTS.iterdir():
        if component.name not in cut:
            (components / component.name).symlink_to(component)
    for name, versions in cut.items():
        copytree(COMPONENTS / name, components / name)
        _remove_releases(components / name, versions)
        path = components / name / "component.yaml"
        path.write_text(change(path.read_text()))
    recipes = directory / "recipes"

    def read(component: Path, problems: Problems) -> Component:
        if component.is_symlink():
            return own_recipes.catalog().components[component.name]
        return read_directory(component, problems)

    return Workspace(ProjectSettings(directory, (recipes,)), load_catalog([recipes], read=read), {}, {})


def _remove_releases(directory: Path, versions: tuple[str, ...]) -> None:
    """Remove releases and their locks from a copy of a component."""
    path = directory / "component.yaml"
    before = after = path.read_text()
    removed = [release for release in read_copy(directory).releases if release.version in versions]
    assert len(removed) == len(versions)
    for release in removed:
        for variant in release.variants:
            if variant.spec.lock:
                variant.spec.lock.path.unlink(missing_ok=True)
        after = after.replace(entry_text(before, release)[0], "")
    path.write_text(after)


def missed_fields(workspace: Workspace, name: str, versions: tuple[str, ...]) -> tuple[int, list[str]]:
    """Return the number of fields in the entries of releases, and those that the project did not reach."""
    reached = _entries(workspace.project.root / "recipes" / "components" / name, versions)
    count, missed = 0, []
    for version, entry in _entries(COMPONENTS / name, versions).items():
        if "variants" in entry:
            entry["variants"] = [
                each for each in entry["variants"] if _is_of_index(each) and not _is_for_arm64(each)
            ]
        expected = [*_leaves(entry)]
        proposed = [*_leaves(reached[version])] if version in reached else []
        count += len(expected)
        missed += [
            f"{name} {version} {path}: {text}" for path, text in expected if (path, text) not in proposed
        ]
    return count, missed


def _entries(directory: Path, versions: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The entries of releases, as data."""
    text = (directory / "component.yaml").read_text()
    releases = {release.version: release for release in read_copy(directory).releases}
    return {
        version: json.loads(json.dumps(read_entry(text, releases[version]).fields))
        for version in versions
        if version in releases
    }


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The fields of an entry. Variants go by name; the order of lists does not count."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            name = item["name"] if isinstance(item, Mapping) and "name" in item else ""
            yield from _leaves(item, f"{path}[{name}]")
    else:
        yield path, str(value)


def _is_of_index(variant: Mapping[str, Any]) -> bool:
    return "wheel" not in variant.get("artifacts", {})


def _is_for_arm64(variant: Mapping[str, Any]) -> bool:
    """Return whether only arm64 has the variant: no older release has one that `update` could carry over."""
    return variant.get("platforms") == ["linux/arm64"]
