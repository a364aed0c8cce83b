"""Entries for new releases, proposed from the answers of a local package index."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.catalog.recipe import read_recipes
from bakehouse.commands.update import update
from bakehouse.commands.update.release_draft import Evidence, ReleaseDrafter, read_copy
from bakehouse.commands.update.release_entry import entry_text, read_entry
from bakehouse.commands.update.update import ComponentUpdate
from bakehouse.errors import BuildError, EngineError, Problems, UsageError
from bakehouse.plan.workspace import Workspace, conflict_text, read_templates
from tests.support import own_recipes
from tests.support.data import text_of
from tests.support.errors import raised
from tests.support.file_server import FileServer, serving
from tests.support.git_repository import commit, git
from tests.support.index_server import metadata, put_index, put_page, wheel_file

LINUX = "manylinux_2_28_x86_64"
COMPONENT = text_of(__file__, "component")
GRID = text_of(__file__, "grid")
DEBIAN = """\
summary: Debian
stage_order: 0
releases:
  - version: "12"
    source: https://www.debian.org/releases/bookworm/
    base: {bootstrap: bookworm, packages: [ca-certificates, python3]}
    provides: {glibc: "2.36"}
"""
PYTHON = """\
summary: Python
stage_order: 10
releases:
  - {version: "3.13", source: https://docs.python.org/3.13/}
  - {version: "3.12", source: https://docs.python.org/3.12/}
  - {version: "3.11", source: https://docs.python.org/3.11/}
"""
RECIPE = """\
summary: An image
base: {debian: "12"}
components: {python: "3.13", fast: "*"}
"""
NEW = text_of(__file__, "new")
REPORT = f"""\
fast 1.1.1, released on 2026-11-02; made from 1.0.0
{"".join(f"+ {line}" for line in NEW.splitlines(keepends=True))}\
  py${{python|tag}}  without Python 3.11  it has no wheels for it
  requires.glibc   >=2.28               fast_lib-1.1.1-cp313-cp313-manylinux_2_28_x86_64.whl
  requires.grid    >=2.0,<2.2           fast_lib-1.1.1-cp313-cp313-{LINUX}.whl: Requires-Dist: grid-lib>=2.0.0
  provides.quick   2.5 (was 1.0)        quick-lib in the lock
  check: notes of 1.0.0 were left out: slow at first
  check: source https://example.org/fast/1.1.1 was not opened
  check: grid is limited to the known 2.1.0; upstream states >=2.0.0
  check: conflict with quick <2 no longer applies: it provides quick 2.5
  check: as in 1.0.0: facts.option
  resolves on: debian
  images: image

nothing was written; add `--write` to write these entries

fast: fast-lib 1.2.0 was withdrawn from the package index: wrong kernels
fast: 3.0.0 was left out: it does not start
fast: older patch releases were left out: 1.1.0
no new release: grid
not checked  debian, python  it has no `upstream`
"""
PROJECTS: dict[str, dict[str, Any]] = {
    "fast-lib": {
        "files": [
            wheel_file("fast_lib", "1.0.0", f"cp313-cp313-{LINUX}", "2026-01-01"),
            wheel_file("fast_lib", "1.1.0", f"cp313-cp313-{LINUX}"),
            wheel_file("fast_lib", "1.1.1", f"cp313-cp313-{LINUX}", "2026-11-02"),
            wheel_file("fast_lib", "1.1.1", "cp311-cp311-win_amd64"),
            wheel_file("fast_lib", "1.2.0", f"cp313-cp313-{LINUX}", yanked="wrong kernels"),
            wheel_file("fast_lib", "2.0.0rc1", f"cp313-cp313-{LINUX}"),
            wheel_file("fast_lib", "3.0.0", f"cp313-cp313-{LINUX}"),
            wheel_file("other_lib", "9.0.0", f"cp313-cp313-{LINUX}"),
        ],
        "metadata": {
            version: metadata("fast-lib", version, "grid-lib>=2.0.0", "quick-lib>=2")
            for version in ("1.0.0", "1.1.0", "1.1.1", "1.2.0", "3.0.0")
        },
    },
    "quick-lib": {
        "files": [wheel_file("quick_lib", "2.5.3", "py3-none-any")],
        "metadata": {"2.5.3": metadata("quick-lib", "2.5.3")},
    },
    "grid-lib": {
        "files": [
            wheel_file("grid_lib", "2.1.0", "py3-none-any"),
            wheel_file("grid_lib", "1.0.0", "py3-none-any"),
        ],
        "metadata": {version: metadata("grid-lib", version) for version in ("1.0.0", "2.1.0")},
    },
}


def lock_line(name: str, version: str, tag: str) -> str:
    file = wheel_file(name.replace("-", "_"), version, tag)
    sha256 = file["hashes"]["sha256"]  # type: ignore[index]
    return f"{name}=={version} --hash=sha256:{sha256}  # {file['filename']} 1000\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A project of its own: a base, Python, and two components with locks."""
    recipes = tmp_path / "recipes"
    copytree(HOME / "recipes" / "apt", recipes / "apt")
    contents = {
        "debian/component.yaml": DEBIAN,
        "python/component.yaml": PYTHON,
        "fast/component.yaml": COMPONENT,
        "fast/locks/1.0.0-py311.txt": lock_line("fast-lib", "1.0.0", f"cp311-cp311-{LINUX}"),
        "fast/locks/1.0.0-py313.txt": lock_line("fast-lib", "1.0.0", f"cp313-cp313-{LINUX}"),
        "grid/component.yaml": GRID,
        "grid/locks/1.0.0.txt": lock_line("grid-lib", "1.0.0", "py3-none-any"),
        "grid/locks/2.1.0.txt": lock_line("grid-lib", "2.1.0", "py3-none-any"),
    }
    for name, text in contents.items():
        path = recipes / "components" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (recipes / "images").mkdir()
    (recipes / "images" / "image.yaml").write_text(RECIPE)
    project = ProjectSettings(tmp_path, (recipes,))
    catalog = load_catalog(project.recipe_roots)
    images = read_recipes(project.recipe_roots, catalog, project=tmp_path).by_name
    return Workspace(project, catalog, images, read_templates(HOME / "templates"))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """The server of the index that pip is set to."""
    with serving() as server:
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
            monkeypatch.delenv(name, raising=False)
        put_index(server, PROJECTS)
        yield server


def files_of(workspace: Workspace) -> dict[str, bytes]:
    root = workspace.project.root / "recipes"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def run(workspace: Workspace, *names: str, write: bool = False) -> list[ComponentUpdate]:
    return update.run(workspace, names, lambda line: None, write=write)


def test_a_new_release_is_reported_with_its_evidence(workspace: Workspace, index: FileServer) -> None:
    before = files_of(workspace)
    assert update.text(run(workspace), written=False) == REPORT
    assert files_of(workspace) == before


def test_a_new_release_moves_a_window(workspace: Workspace, index: FileServer) -> None:
    roots, root = workspace.project.recipe_roots, workspace.project.root
    window = RECIPE.replace('fast: "*"', 'fast: "${fast}"')
    axes = "name: image-${fast}\nmatrix: {fast: {newest: 1}}\n"
    (root / "recipes" / "images" / "image.yaml").write_text(window + axes)
    (root / "recipes/components/fast/component.yaml").write_text(COMPONENT.replace("<2", "<1"))
    catalog = load_catalog(roots)
    images = read_recipes(roots, catalog, project=root, refusal_of=conflict_text).by_name
    report = update.text(run(replace(workspace, catalog=catalog, recipes=images), "fast"), written=False)

    assert list(images) == ["image-1.0.0"]
    assert "  images: image-1.1.1\n" in report


def test_write_adds_the_entry_and_its_locks_and_nothing_else(workspace: Workspace, index: FileServer) -> None:
    before = files_of(workspace)
    run(workspace, "fast", write=True)
    after = files_of(workspace)
    name = "components/fast/component.yaml"
    lock = "components/fast/locks/1.1.1-py313.txt"
    first = '  - version: "1.0.0"'
    assert after[name].decode() == COMPONENT.replace(first, f"{NEW}{first}")
    assert after[lock].decode() == (
        '# Python 3.13: fast-lib==1.1.1, other; python_version < "3"\n'
        + lock_line("fast-lib", "1.1.1", f"cp313-cp313-{LINUX}")
        + lock_line("quick-lib", "2.5.3", "py3-none-any")
    )
    assert {key: value for key, value in after.items() if key not in (name, lock)} == {
        key: value for key, value in before.items() if key != name
    }


def failure_of(updates: list[ComponentUpdate]) -> list[str]:
    return [
        reason.text
        for each in updates
        for failure in each.failures
        for diagnostic in failure.diagnostics
        for reason in diagnostic.reasons
    ]


def changed(
    project: str = "fast-lib", version: str = "1.1.1", text: str = "", **others: Any
) -> dict[str, Any]:
    """The answers of the index with one wheel changed."""
    answers = json.loads(json.dumps(PROJECTS))
    for file in answers[project]["files"]:
        if f"-{version}-cp313" in file["filename"] or f"-{version}-py3" in file["filename"]:
            file.update(others)
    if text:
        answers[project]["metadata"][version] = text
    return dict(answers)


NO_METADATA: dict[str, Any] = {"core-metadata": False}
WRONG_METADATA: dict[str, Any] = {"core-metadata": {"sha256": "0" * 64}}
PAGE = "/simple/fast-lib/"
WHEEL = f"fast_lib-1.1.1-cp313-cp313-{LINUX}.whl"
NO_FILE = "the package index: its page of `fast-lib` lists no file of that project"


def endless_redirect(server: FileServer) -> None:
    server.redirects[PAGE] = PAGE


def whole_wheel_only(server: FileServer) -> None:
    put_index(server, changed(**NO_METADATA, size=2 * 10**9))
    server.files[f"/files/{WHEEL}"] = bytes(2 * 10**6)
    server.knows_ranges = False


HOSTILE: dict[str, tuple[Callable[[FileServer], object], str]] = {
    "HTML error page": (
        lambda server: put_page(server, "fast-lib", b"<a href='/'>sorry</a>", "text/html"),
        NO_FILE,
    ),
    "JSON that is not a page": (lambda server: put_page(server, "fast-lib", b"[]"), NO_FILE),
    "endless redirect": (endless_redirect, "the package index: redirects too often"),
    "endless page": (
        lambda server: put_page(server, "fast-lib", b" " * (64 * 10**6 + 1)),
        "the package index: answered with more than 64.0 MB",
    ),
    "server error": (lambda server: server.statuses.append(500), "the package index: answered with 500"),
    "missing project": (
        lambda server: server.files.pop(PAGE),
        "the package index: no index has the project",
    ),
    "known file with other bytes": (
        lambda server: put_index(server, changed(version="1.0.0", hashes={"sha256": "0" * 64})),
        f"the package index: has another checksum for `{WHEEL.replace('1.1.1', '1.0.0')}` "
        "than the lock of this component",
    ),
    "renamed wheel": (
        lambda server: put_index(server, changed(text=metadata("other-lib", "1.1.1"))),
        f"1.1.1: the package index: has other-lib 1.1.1 in `{WHEEL}`",
    ),
    "wheel of another version": (
        lambda server: put_index(server, changed(text=metadata("fast-lib", "1.1.2"))),
        f"1.1.1: the package index: has fast-lib 1.1.2 in `{WHEEL}`",
    ),
    "metadata with a wrong checksum": (
        lambda server: put_index(server, changed(**WRONG_METADATA)),
        f"1.1.1: the package index: its metadata of `{WHEEL}` does not have the checksum of its page",
    ),
    "metadata that is an error page": (
        lambda server: put_index(server, changed(text="<html>sorry</html>")),
        f"1.1.1: the package index: has no readable metadata of `{WHEEL}`",
    ),
    "marker that cannot be compared": (
        lambda server: put_index(
            server, changed(text=metadata("fast-lib", "1.1.1", "grid-lib; os_name ~= 'posix'"))
        ),
        f"1.1.1: the package index: has no readable metadata of `{WHEEL}`",
    ),
    "2 GB instead of a part": (whole_wheel_only, "1.1.1: the package index: does not send parts of files"),
    "unknown contents": (
        lambda server: put_index(server, changed(text=metadata("fast-lib", "1.1.1", "grid-lib>=2.0.0"))),
        "1.1.1: the package index: leaves out `quick-lib`, by which its contents are known",
    ),
    "component that the catalogue lacks": (
        lambda server: put_index(
            server, changed(text=metadata("fast-lib", "1.1.1", "grid-lib>=7", "quick-lib"))
        ),
        "1.1.1: it needs grid >=7, and the catalogue has none",
    ),
}


@pytest.mark.parametrize("answer", list(HOSTILE))
def test_an_unusable_answer_changes_nothing(workspace: Workspace, index: FileServer, answer: str) -> None:
    spoil, reason = HOSTILE[answer]
    spoil(index)
    before = files_of(workspace)
    updates = run(workspace, "fast", write=True)
    assert failure_of(updates) == [reason]
    assert files_of(workspace) == before
    assert index.paths.count(f"/files/{WHEEL}") < 3


def test_a_withdrawn_release_is_not_proposed_and_a_known_one_is_reported(
    workspace: Workspace, index: FileServer
) -> None:
    answers = changed(yanked="it hangs")
    for file in answers["fast-lib"]["files"]:
        if "-1.0.0-" in file["filename"]:
            file["yanked"] = "it is\x1b[2J\nslow"
    put_index(index, answers)
    [fast] = run(workspace, "fast")
    # 1.1.0 is the newest release that is left
    assert [proposal.version for proposal in fast.proposals] == ["1.1.0"]
    assert fast.remarks == (
        "fast-lib 1.0.0 was withdrawn from the package index: it is [2J slow",
        "fast-lib 1.1.1 was withdrawn from the package index: it hangs",
        "fast-lib 1.2.0 was withdrawn from the package index: wrong kernels",
        "3.0.0 was left out: it does not start",
    )


def with_component(workspace: Workspace, name: str, text: str) -> Workspace:
    """Return the workspace with another text of a component."""
    path = workspace.project.root / "recipes" / "components" / name / "component.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return replace(workspace, catalog=load_catalog(workspace.project.recipe_roots))


def test_requirements_are_those_of_the_target_and_joined(workspace: Workspace, index: FileServer) -> None:
    requires = ('grid-lib>=2.0.0; python_full_version >= "3.13"', "grid-lib!=2.0.1", "quick-lib")
    put_index(index, changed(text=metadata("fast-lib", "1.1.1", *requires)))
    [fast] = run(workspace, "fast")
    assert failure_of([fast]) == []
    [proposal] = fast.proposals
    assert 'requires: {glibc: ">=2.28", grid: ">=2.0,!=2.0.1"}' in proposal.diff


def test_a_source_distribution_does_not_replace_a_wheel(workspace: Workspace, index: FileServer) -> None:
    answers = changed()
    wheel = wheel_file("fast_lib", "1.1.1", "py3-none-any", "2026-11-02")
    answers["fast-lib"]["files"].append({**wheel, "filename": "fast_lib-1.1.1.tar.gz"})
    put_index(index, answers)
    assert update.text(run(workspace), written=False) == REPORT


def test_a_matrix_of_several_variables_is_left_to_a_person(workspace: Workspace, index: FileServer) -> None:
    axis = 'matrix: {build: [{python: "3.11"}, {python: "3.13"}]}'
    text = COMPONENT.replace('matrix: {python: ["3.11", "3.13"]}', axis)
    assert failure_of(run(with_component(workspace, "fast", text), "fast")) == [
        "1.1.1: it has no wheels for Python 3.11; write its entry by hand"
    ]


VARIANTS = text_of(__file__, "variants")
TWO_VARIANTS = COMPONENT.partition("    variants:\n")[0] + VARIANTS


def put_two_versions(server: FileServer) -> None:
    """Serve a release for both Pythons, each with another version of `quick-lib`."""
    answers = changed(text=metadata("fast-lib", "1.1.1", "grid-lib>=2", "quick-lib"))
    answers["fast-lib"]["files"].append(wheel_file("fast_lib", "1.1.1", f"cp311-cp311-{LINUX}"))
    answers["quick-lib"] = {
        "files": [
            wheel_file("quick_lib", "2.5.3", "py3-none-any", **{"requires-python": ">=3.12"}),
            wheel_file("quick_lib", "1.5.0", "py3-none-any"),
        ],
        "metadata": {version: metadata("quick-lib", version) for version in ("2.5.3", "1.5.0")},
    }
    put_index(server, answers)


@pytest.mark.parametrize("style", ["block", "flow"])
def test_a_conflict_of_one_variant_is_kept(workspace: Workspace, index: FileServer, style: str) -> None:
    put_two_versions(index)
    text = TWO_VARIANTS
    if style == "flow":
        keys = 'requires: {python: "%s"}, provides: {quick: "1.0"}, lock: locks/1.0.0-py%s.txt'
        items = ", ".join(f"{{name: py{tag}, {keys % (f'3.{tag[1:]}', tag)}}}" for tag in ("311", "313"))
        text = f"{COMPONENT.partition('    variants:')[0]}    variants: [{items}]\n"
    text = text.replace('{quick: "<2"}', '{quick: "<2", grid: "<1"}')
    [fast] = run(with_component(workspace, "fast", text), "fast")
    assert failure_of([fast]) == []
    [proposal] = fast.proposals
    assert '- with: {quick: "<2", grid: "<1"}' in proposal.diff
    assert "conflict with quick <2 and grid <1 is taken over from 1.0.0" in proposal.checks
    assert "notes" not in proposal.diff
    assert "confidence" not in proposal.diff


def test_a_version_that_variants_share_must_hold_for_all(workspace: Workspace, index: FileServer) -> None:
    put_two_versions(index)
    text = TWO_VARIANTS.replace('        provides: {quick: "1.0"}\n', "")
    shared = text.replace("    variants:\n", '    provides: {quick: "1.0"}\n    variants:\n')
    assert failure_of(run(with_component(workspace, "fast", shared), "fast")) == [
        "1.1.1: its variants differ in quick: 1.5 and 2.5"
    ]
    above = text.replace("stage_order: 50\n", 'stage_order: 50\nprovides: {quick: "1.5"}\n')
    one = above.partition("      - name: py311")[0] + above[above.index("      - name: py313") :]
    assert failure_of(run(with_component(workspace, "fast", one), "fast")) == [
        "1.1.1: it has quick 2.5, but its entry does not set that; write it by hand"
    ]


def test_contents_with_several_versions_are_not_known(workspace: Workspace, index: FileServer) -> None:
    text = COMPONENT.replace("{quick: quick-lib}", '{quick: "*-lib"}')
    assert failure_of(run(with_component(workspace, "fast", text), "fast")) == [
        "1.1.1: the package index: has several versions of `*-lib`: 1.1.1, 2.5.3"
    ]


def test_the_highest_glibc_of_several_projects_is_needed(workspace: Workspace, index: FileServer) -> None:
    tag = "cp311-cp311-manylinux_2_17_x86_64"
    answers = changed()
    answers["old-lib"] = {
        "files": [wheel_file("old_lib", version, tag) for version in ("1.0.0", "1.1.1")],
        "metadata": {"1.1.1": metadata("old-lib", "1.1.1", "quick-lib")},
    }
    put_index(index, answers)
    locks = workspace.project.root / "recipes" / "components" / "fast" / "locks"
    (locks / "1.0.0-py311.txt").write_text(lock_line("old-lib", "1.0.0", tag))
    head, first, last = re.split("(?=      - name)", TWO_VARIANTS)
    text = f"{head}{last}{first}".replace("[fast-lib]", "[fast-lib, old-lib]")
    [fast] = run(with_component(workspace, "fast", text), "fast")
    assert failure_of([fast]) == []
    [proposal] = fast.proposals
    assert 'requires: {glibc: ">=2.28",' in proposal.diff


def test_a_recommended_component_that_cannot_be_read_does_not_matter(
    workspace: Workspace, index: FileServer
) -> None:
    releases = 'releases: [{version: "1.0", requires: {fast: "1.0.0"}}]'
    with_component(workspace, "extra", f"summary: Extras\nupstream: {{pypi: [extra-lib]}}\n{releases}\n")
    text = COMPONENT.replace("    conflicts:\n", '    recommends: {extra: "*"}\n    conflicts:\n')
    [fast] = run(with_component(workspace, "fast", text), "fast")
    assert failure_of([fast]) == []
    [proposal] = fast.proposals
    assert "recommendation of extra was kept, but its new releases are unknown" in proposal.checks
    assert "no known release of a component that it recommends fits it" in proposal.checks


def test_a_lock_keeps_versions_that_other_components_lock(workspace: Workspace, index: FileServer) -> None:
    """An image cannot have both components otherwise."""
    answers = changed(text=metadata("fast-lib", "1.1.1", "grid-lib>=2", "quick-lib"))
    answers["quick-lib"]["files"].append(wheel_file("quick_lib", "2.4.1", "py3-none-any"))
    answers["quick-lib"]["metadata"]["2.4.1"] = metadata("quick-lib", "2.4.1")
    put_index(index, answers)
    extra = """\
summary: Extras
releases:
  - {version: "1.0", source: https://example.org/extra, requires: {python: "3.13"}, lock: py313.txt}
"""
    directory = workspace.project.root / "recipes" / "components" / "extra"
    directory.mkdir()
    (directory / "py313.txt").write_text(lock_line("quick-lib", "2.4.1", "py3-none-any"))
    [fast] = run(with_component(workspace, "extra", extra), "fast")
    assert failure_of([fast]) == []
    [proposal] = fast.proposals
    assert Evidence("provides.quick", "2.4 (was 1.0)", "quick-lib in the lock") in proposal.evidence


def test_a_base_on_which_only_the_release_before_resolves_is_named(
    workspace: Workspace, index: FileServer
) -> None:
    old = """\
summary: An old base
stage_order: 0
releases:
  - version: "1"
    source: https://example.org/old
    base: {image: "old:1", digest: unknown}
    provides: {glibc: "2.17"}
"""
    with_component(workspace, "old", old)
    text = COMPONENT.replace('{quick: "<2"}', '{quick: "<0.5"}')
    [fast] = run(with_component(workspace, "fast", text), "fast")
    assert failure_of([fast]) == []
    [proposal] = fast.proposals
    assert proposal.bases == ("debian",)
    assert "it does not resolve on `old`, where 1.0.0 does" in proposal.checks


SAME = """\
summary: A grid
stage_order: 55
upstream: {pypi: [grid-lib], same: {quick: fast}}
releases:
  - version: "1.0.0"
    source: https://example.org/grid
    requires: {fast: "FAST", quick: "==1.0.*"}
    lock: locks/1.0.0.txt
"""


def test_a_version_provided_by_another_component(workspace: Workspace, index: FileServer) -> None:
    older = NEW.replace("1.1.1", "0.9.0").replace('"2.5"', '"0.9"').replace('grid: ">=2.0,<2.2"', "")
    fast = COMPONENT.replace(', grid: "==1.*"', "").replace('quick: "<2"', 'quick: "<0.5"')
    fast += older.replace(", }", "}")
    lock = workspace.project.root / "recipes" / "components" / "fast" / "locks" / "0.9.0-py313.txt"
    lock.write_text('# Python 3.13: fast-lib==0.9.0, other; python_version < "3"\n')
    changed_workspace = with_component(workspace, "fast", fast)
    [grid] = run(with_component(changed_workspace, "grid", SAME.replace("FAST", "1.0.0")), "grid")
    assert failure_of([grid]) == []
    [proposal] = grid.proposals
    assert (
        Evidence("requires.quick", "==1.0.*", "quick of fast 1.0.0 on the package index") in proposal.evidence
    )
    assert failure_of(run(with_component(changed_workspace, "grid", SAME.replace("FAST", "*")), "grid")) == [
        "2.1.0: fast * provides quick 0.9, 1.0; write its entry by hand"
    ]


def test_a_file_that_was_edited_in_the_meantime_is_not_written(
    workspace: Workspace, index: FileServer
) -> None:
    path = workspace.project.root / "recipes" / "components" / "fast" / "component.yaml"
    edited = COMPONENT.replace("slow at first", "slow")

    before = files_of(workspace)
    reads = ReleaseDrafter.write

    def write(self: ReleaseDrafter, *arguments: Any) -> Any:
        path.write_text(edited)
        return reads(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReleaseDrafter, "write", write)
        updates = run(workspace, "fast", write=True)
    assert failure_of(updates) == ["`component.yaml` has changed in the meantime"]
    assert files_of(workspace) == {**before, "components/fast/component.yaml": edited.encode()}


def test_a_missing_lock_of_another_component_does_not_matter(workspace: Workspace, index: FileServer) -> None:
    for path in (workspace.project.root / "recipes" / "components" / "fast" / "locks").iterdir():
        path.unlink()
    answers = changed()
    answers["grid-lib"]["files"].append(wheel_file("grid_lib", "2.2.0", "py3-none-any"))
    answers["grid-lib"]["metadata"]["2.2.0"] = metadata("grid-lib", "2.2.0")
    put_index(index, answers)
    [grid] = run(workspace, "grid")
    assert [proposal.version for proposal in grid.proposals] == ["2.2.0"]


def test_a_mistake_in_another_component_does_not_matter(workspace: Workspace, index: FileServer) -> None:
    path = workspace.project.root / "recipes" / "components" / "torn" / "component.yaml"
    path.parent.mkdir()
    path.write_text("summary: Torn\nreleases: 7\n")
    catalog = load_catalog(workspace.project.recipe_roots, Problems())
    [fast] = run(replace(workspace, catalog=catalog), "fast")
    assert failure_of([fast]) == []
    assert [proposal.version for proposal in fast.proposals] == ["1.1.1"]


def test_the_lock_of_an_older_release_is_not_replaced(workspace: Workspace, index: FileServer) -> None:
    locks = workspace.project.root / "recipes" / "components" / "fast" / "locks"
    (locks / "1.0.0-py313.txt").rename(locks / "py313.txt")
    (locks / "1.0.0-py311.txt").rename(locks / "py311.txt")
    text = COMPONENT.replace("locks/1.0.0-py", "locks/py")
    before = files_of(fast := with_component(workspace, "fast", text))
    assert failure_of(run(fast, "fast", write=True)) == [
        "1.1.1: its lock would replace `py313.txt`; add the version to the name of the lock"
    ]
    assert files_of(fast) == before


def test_a_project_without_components_of_its_own_has_nothing_to_write(workspace: Workspace) -> None:
    project = replace(workspace.project, recipe_roots=(HOME / "recipes",))
    catalog = own_recipes.catalog()
    for write in (False, True):
        with pytest.raises(UsageError) as caught:
            run(replace(workspace, project=project, catalog=catalog), write=write)
        [diagnostic] = caught.value.diagnostics
        assert diagnostic.message == "this project has no components of its own to update"


def test_only_the_components_of_a_project_are_checked_by_default(tmp_path: Path) -> None:
    text = 'summary: A small image\nbase: {debian: "13"}\ncomponents: {python: "*", extra: "*"}\n'
    component = 'summary: Extra\nstage_order: 90\nreleases: [{version: "1"}]\n'
    for path, content in (
        ("images/small.yaml", text),
        ("components/extra/component.yaml", component),
        ("components/unused/component.yaml", component),
    ):
        file = tmp_path / "recipes" / path
        file.parent.mkdir(parents=True)
        file.write_text(content)
    roots = (HOME / "recipes", tmp_path / "recipes")
    catalog = load_catalog(roots)
    images = read_recipes(roots, catalog, project=tmp_path, refusal_of=conflict_text).by_name
    workspace = Workspace(
        ProjectSettings(tmp_path, roots), catalog, images, read_templates(HOME / "templates")
    )

    def names(*patterns: str) -> list[str]:
        return [component.name for component in update.select(workspace, patterns, write=False)]

    assert names() == ["extra", "unused"]
    assert names("python") == ["python"]
    assert len(names("*")) == len(catalog.components)


def test_a_failure_without_reasons_is_in_the_json_report(workspace: Workspace) -> None:
    failure = EngineError("`ca.pem` contains no readable certificates")
    [grid] = update.as_json([ComponentUpdate(workspace.catalog.components["grid"], failures=[failure])])
    assert grid["failures"] == ["`ca.pem` contains no readable certificates"]


def test_an_unknown_component_is_named(workspace: Workspace) -> None:
    [diagnostic] = raised(UsageError, run, workspace, "fats").diagnostics
    assert (diagnostic.message, diagnostic.hint) == ("unknown component `fats`", "did you mean `fast`?")


def test_failures_are_raised_together(workspace: Workspace, index: FileServer) -> None:
    index.statuses += [500, 500]
    error = raised(BuildError, update.raise_failures, run(workspace, "fast", "grid"))
    assert [each.message for each in error.diagnostics] == [
        "`grid` was not updated",
        "`fast` was not updated",
    ]


@pytest.mark.parametrize("name", sorted(path.name for path in (HOME / "recipes" / "components").iterdir()))
def test_an_entry_keeps_the_style_of_its_file(name: str) -> None:
    """Only the lines of continued flow mappings are joined, which `instance` has."""
    component = read_copy(HOME / "recipes" / "components" / name)
    text = (component.directory / "component.yaml").read_text()
    assert component.upstream
    own, indent = entry_text(text, component.releases[0])
    expected = "".join(line for line in own.splitlines(keepends=True) if not line.lstrip().startswith("#"))
    if name == "instance":
        expected = re.sub(r",\n +", ", ", expected)
    assert read_entry(text, component.releases[0]).text(indent) == expected


GRID_ARCHIVE = text_of(__file__, "grid_archive")


def with_archive(workspace: Workspace, server: FileServer, upstream: str) -> Workspace:
    """Return the workspace with a `grid` that is an archive."""
    path = workspace.project.root / "recipes" / "components" / "grid" / "component.yaml"
    path.write_text(GRID_ARCHIVE.format(upstream=upstream, server=server.url, zeros="0" * 64))
    return replace(workspace, catalog=load_catalog(workspace.project.recipe_roots))


def test_tags_of_a_repository_are_releases(workspace: Workspace, index: FileServer, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    commit(repository, {"file": "text"})
    for tag in ("v1.0-1", "v1.1-1", "v1.2rc1-1", "other", "v2.0"):
        git(repository, "tag", tag)
    index.files["/grid-1.1.tar.gz"] = b"an archive"
    upstream = f'{{git: "{repository.as_uri()}", tag: "v{{version}}-1"}}'
    run(with_archive(workspace, index, upstream), "grid", write=True)
    text = files_of(workspace)["components/grid/component.yaml"].decode()
    sha256 = hashlib.sha256(b"an archive").hexdigest()
    entry = f"""\
  - version: "1.1"
    source: https://example.org/grid/v1.1
    artifacts:
      source:
        url: {index.url}/grid-1.1.tar.gz
        sha256: {sha256}
  - version: "1.0"
"""
    assert entry in text


def test_an_archive_that_is_missing_changes_nothing(
    workspace: Workspace, index: FileServer, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    commit(repository, {"file": "text"})
    for tag in ("1.0", "1.1"):
        git(repository, "tag", tag)
    changed_workspace = with_archive(workspace, index, f'{{git: "{repository.as_uri()}"}}')
    before = files_of(workspace)
    assert failure_of(run(changed_workspace, "grid", write=True)) == [
        f"1.1: `{index.url}/grid-1.1.tar.gz`: does not have the file"
    ]
    assert files_of(workspace) == before


def test_a_page_instead_of_an_archive_changes_nothing(
    workspace: Workspace, index: FileServer, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    commit(repository, {"file": "text"})
    for tag in ("1.0", "1.1"):
        git(repository, "tag", tag)
    changed_workspace = with_archive(workspace, index, f'{{git: "{repository.as_uri()}"}}')
    index.files["/grid-1.1.tar.gz"] = b"<html>log in</html>"
    index.kinds["/grid-1.1.tar.gz"] = "text/html"
    assert failure_of(run(changed_workspace, "grid", write=True)) == [
        f"1.1: `{index.url}/grid-1.1.tar.gz`: answered with a page instead of a file"
    ]


def test_a_checksum_on_a_page_is_not_that_of_two_archives(workspace: Workspace, index: FileServer) -> None:
    upstream = (
        f'{{page: "{index.url}/list", '
        r"pattern: 'grid-(?P<version>[0-9.]+)\.tar\.gz (?P<sha256>[0-9a-f]{64})'}"
    )
    with_archive(workspace, index, upstream)
    path = workspace.project.root / "recipes" / "components" / "grid" / "component.yaml"
    second = f"      data:\n        url: {index.url}/data-1.0.zip\n        sha256: {'0' * 64}\n"
    changed_workspace = with_component(workspace, "grid", path.read_text() + second)
    index.files["/list"] = f"grid-1.0.tar.gz {'0' * 64}, grid-1.1.tar.gz {'1' * 64}".encode()
    index.files["/grid-1.1.tar.gz"], index.files["/data-1.1.zip"] = b"an archive", b"data"
    [grid] = run(changed_workspace, "grid")
    assert failure_of([grid]) == []
    [proposal] = grid.proposals
    assert [each.value for each in proposal.evidence] == [
        f"sha256 {hashlib.sha256(content).hexdigest()[:12]}…" for content in (b"an archive", b"data")
    ]


def test_releases_and_checksums_on_a_page(workspace: Workspace, index: FileServer) -> None:
    upstream = (
        f'{{page: "{index.url}/list", '
        r"pattern: 'grid-(?P<version>[0-9.]+)\.tar\.gz (?P<sha256>[0-9a-f]{64})'}"
    )
    changed_workspace = with_archive(workspace, index, upstream)
    index.files["/list"] = f"grid-1.0.tar.gz {'0' * 64}, grid-1.1.tar.gz {'1' * 64}".encode()
    [grid] = run(changed_workspace, "grid")
    assert [(each.version, each.evidence) for each in grid.proposals] == [
        ("1.1", (Evidence("artifacts.source", "sha256 111111111111…", f"{index.url}/list"),))
    ]
    for answer, reason in (
        (b"<html>sorry</html>", "lists none of the releases that the catalogue has"),
        (f"grid-1.1.tar.gz {'1' * 64} grid-1.1.tar.gz {'2' * 64}".encode(), "states two checksums of 1.1"),
    ):
        index.files["/list"] = answer
        assert failure_of(run(changed_workspace, "grid")) == [f"`{index.url}/list`: {reason}"]


def test_the_address_of_release_notes_is_a_line_to_check(
    workspace: Workspace, index: FileServer, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    commit(repository, {"file": "text"})
    for tag in ("1.0", "1.1"):
        git(repository, "tag", tag)
    index.files["/grid-1.1.tar.gz"] = b"an archive"
    notes = "https://example.org/releases/v{version}"
    archive = with_archive(workspace, index, f'{{git: "{repository.as_uri()}", notes: "{notes}"}}')

    [grid] = run(archive, "grid")

    assert "read its release notes: https://example.org/releases/v1.1" in grid.proposals[0].checks
