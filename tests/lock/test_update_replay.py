"""A catalogue as it was six months before the index was recorded, brought up to date without a person.

`tests/support/index_recorder.py` made the record, without wheels of other hosts, such as PyTorch for CPUs.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.project import HOME, Project
from bakehouse.lock import update
from bakehouse.lock.release_draft import read_copy
from bakehouse.lock.release_entry import entry_text, read_entry
from bakehouse.plan.workspace import Workspace
from tests.support.file_server import serving
from tests.support.index_recorder import REPLAYED
from tests.support.index_server import put_index

RECORD = Path(__file__).with_name("recorded") / "index.json"
COMPONENTS = HOME / "recipes" / "components"


def remove_releases(directory: Path, versions: tuple[str, ...]) -> None:
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


def entries(directory: Path, versions: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The entries of releases, as data."""
    text = (directory / "component.yaml").read_text()
    releases = {release.version: release for release in read_copy(directory).releases}
    return {
        version: json.loads(json.dumps(read_entry(text, releases[version]).fields))
        for version in versions
        if version in releases
    }


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The fields of an entry. Variants go by name; the order of lists does not count."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            name = item["name"] if isinstance(item, Mapping) and "name" in item else ""
            yield from leaves(item, f"{path}[{name}]")
    else:
        yield path, str(value)


def is_of_index(variant: Mapping[str, Any]) -> bool:
    return "wheel" not in variant.get("artifacts", {})


def test_six_months_are_caught_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = tmp_path / "recipes"
    (recipes / "components").mkdir(parents=True)
    for component in COMPONENTS.iterdir():
        if component.name not in REPLAYED:
            (recipes / "components" / component.name).symlink_to(component)
    for name, versions in REPLAYED.items():
        copytree(COMPONENTS / name, recipes / "components" / name)
        remove_releases(recipes / "components" / name, versions)
    catalog = load_catalog([recipes])
    workspace = Workspace(Project(tmp_path, (recipes,)), catalog, {}, {})
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(variable, raising=False)
    with serving() as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        put_index(server, json.loads(RECORD.read_text()))
        updates = update.run(workspace, list(REPLAYED), lambda line: None, write=True)

    failures = [failure.diagnostics for each in updates for failure in each.failures]
    assert failures == []
    same, missed = 0, []
    for name, versions in REPLAYED.items():
        reached = entries(recipes / "components" / name, versions)
        for version, entry in entries(COMPONENTS / name, versions).items():
            if "variants" in entry:
                entry["variants"] = [each for each in entry["variants"] if is_of_index(each)]
            expected, proposed = [*leaves(entry)], [*leaves(reached[version])]
            for field in expected:
                if field in proposed:
                    same += 1
                else:
                    missed.append((name, version, *field))
    assert same / (same + len(missed)) >= 0.9, missed
