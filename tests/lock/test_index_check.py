"""Locks are compared with package indexes: a commit can change a lock together with its digests."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.catalog.requirements_lock import digest_line
from bakehouse.cli import main
from bakehouse.errors import BuildError, StaleError
from bakehouse.lock import drift, locking
from bakehouse.lock.drift import DriftKind
from bakehouse.lock.index_check import foreign_hosts, foreign_sites
from bakehouse.resolve.resolver import resolve
from tests.support.errors import error_text, raised, refusal
from tests.support.file_server import FileServer, serving
from tests.support.git_repository import commit, git
from tests.support.index_server import put_index, put_page, wheel_file
from tests.support.locked_debian import index as debian_index
from tests.support.requirements_locks import locked_heading
from tests.support.trees import COMPONENTS, IMAGE, Tree

FILE = "six-1.0-py3-none-any.whl"
SHA256 = hashlib.sha256(FILE.encode()).hexdigest()
OTHER = "0" * 64
TOOL = """\
summary: A tool
stage_order: 60
releases:
  - version: "1.0"
    artifacts:
      source: {{url: "{url}", sha256: unknown}}
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    with serving() as server:
        put_index(server, {"six": {"files": [wheel_file("six", "1.0", "py3-none-any")], "metadata": {}}})
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        yield server


@pytest.fixture
def project(tree: Tree, own_images_only: None, monkeypatch: pytest.MonkeyPatch) -> Tree:
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    tree.component("debian", COMPONENTS["debian"].replace("bookworm", "sid"))
    tree.write("apt/sid.packages", debian_index())
    tree.image(IMAGE + "requirements: requirements.txt\n")
    monkeypatch.setattr(drift, "newer_packages", lambda *_: ())
    monkeypatch.setenv("NO_COLOR", "1")
    return tree


def write_lock(project: Tree, line: str, requirements: str = "six\n") -> Path:
    """Write a lock as an attacker does, who also computes its digests."""
    path = project.write("images/requirements.txt", requirements)
    heading = locked_heading(path, "small")
    return project.write("images/requirements.txt.lock", f"{heading}\n{digest_line([line])}\n{line}\n")


def locked(sha256: str = SHA256, file: str = FILE, origin: str = "") -> str:
    version = file.split("-")[1].removesuffix(".tar.gz")
    return f"six=={version} --hash=sha256:{sha256}  # {file} 1000{origin and f' from {origin}'}"


def kinds(project: Tree) -> list[tuple[DriftKind, str]]:
    return [(item.kind, item.text) for item in locking.check_locks(project.root, ["small"], lambda _: None)]


def test_the_file_of_the_index_is_accepted(project: Tree, server: FileServer) -> None:
    write_lock(project, locked())

    assert kinds(project) == []


def test_another_file_is_reported(project: Tree, server: FileServer) -> None:
    lock = write_lock(project, locked(OTHER))

    differences = locking.check_locks(project.root, ["small"], lambda _: None)
    assert refusal(StaleError, locking.require_locked, differences).replace(f"{project.root}/", "") == (
        f"error: `{FILE}` in the lock of `small` has another sha256 than in the package index\n"
        f"  --> images/{lock.name}:3:1\n   |\n 3 | {locked(OTHER)}\n   | {'^' * len(locked(OTHER))}\n"
        f"  locked  {OTHER}\n"
        "\nhint: restore the lock, or run `bake lock` and review the change\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        locked(file="six-1.1-py3-none-any.whl"),
        locked(OTHER, origin="http://other.invalid/" + FILE),
        locked(
            OTHER, "six-1.0.post1-py3-none-any.whl", "http://other.invalid/six-1.0.post1-py3-none-any.whl"
        ),
        locked(origin="git+https://other.invalid/six@" + "a" * 40),
    ],
)
def test_a_file_from_elsewhere_is_reported(project: Tree, server: FileServer, line: str) -> None:
    write_lock(project, line)

    assert [kind for kind, _ in kinds(project)] == [DriftKind.FOREIGN]
    assert not any("other" in path for path in server.paths)


def test_a_withdrawn_file_is_reported(project: Tree, server: FileServer) -> None:
    files = [wheel_file("six", "1.0", "py3-none-any", yanked="broken")]
    put_index(server, {"six": {"files": files, "metadata": {}}})
    write_lock(project, locked())

    assert kinds(project) == [(DriftKind.YANKED, "six 1.0: broken")]


def test_an_unreachable_index_is_not_a_yes(
    project: Tree, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    write_lock(project, locked())
    differences = locking.check_locks(project.root, ["small"], lambda _: None)

    assert [item.kind for item in differences] == [DriftKind.NOT_COMPARED]
    error = raised(BuildError, locking.require_locked, differences)
    assert "error: the lock of `small` was not compared with the package index\n" in error_text(error)


def test_a_package_that_no_index_of_this_machine_has_is_not_a_yes(project: Tree, server: FileServer) -> None:
    del server.files["/simple/six/"]
    write_lock(project, locked())

    text = "no package index of this machine has `six`"
    assert kinds(project) == [(DriftKind.NOT_COMPARED, text)]


def test_a_page_without_checksums_is_compared_by_the_bytes(project: Tree, server: FileServer) -> None:
    put_page(server, "six", f'<a href="/files/{FILE}">{FILE}</a>'.encode(), "text/html")
    server.files[f"/files/{FILE}"] = FILE.encode()
    write_lock(project, locked())
    assert kinds(project) == []
    server.files[f"/files/{FILE}"] = b"other"
    assert [kind for kind, _ in kinds(project)] == [DriftKind.FOREIGN]


def test_a_url_of_the_requirements_is_compared_by_its_bytes(project: Tree, server: FileServer) -> None:
    url = f"{server.url}/direct/{FILE}"
    put_page(server, "six", b"", "text/html")
    server.files[f"/direct/{FILE}"] = FILE.encode()
    write_lock(project, locked(origin=url), f"six @ {url}\n")
    assert kinds(project) == []
    write_lock(project, locked(OTHER, origin=url), f"six @ {url}\n")
    assert [kind for kind, _ in kinds(project)] == [DriftKind.FOREIGN]


@pytest.mark.parametrize(
    ("origin", "requirements", "refused"),
    [
        ("git+https://other.invalid/six@" + "a" * 40, "six\n", "other.invalid"),
        ("https://files.example/" + FILE, "--extra-index-url https://files.example/simple\nsix\n", ""),
        ("https://files.example/" + FILE, "# https://files.example\nsix\n", ""),
        ("https://index.example/" + FILE, "six\n", ""),
        (
            "https://files.example.other.invalid/" + FILE,
            "# https://files.example\nsix\n",
            "files.example.other.invalid",
        ),
        ("https://download-r2.pytorch.org/x/" + FILE, "six\n", "download-r2.pytorch.org"),
    ],
)
def test_hosts_are_those_of_the_requirements_and_of_this_machine(
    project: Tree, monkeypatch: pytest.MonkeyPatch, origin: str, requirements: str, refused: str
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    write_lock(project, locked(origin=origin), requirements)
    workspace = locking.unlocked_workspace(project.root)
    resolutions = [resolve(workspace.recipes["small"], workspace.catalog)]

    messages = [item.message for item in foreign_hosts(locking.locked_files(workspace, resolutions, ()))]

    expected = f"`six` comes from `{refused}`, which its requirements do not name"
    assert messages == ([expected] if refused else [])


@pytest.mark.parametrize(
    ("site", "recipe", "refused"),
    [
        ("http://mirror.example/debian", "", False),
        ("http://other.invalid/debian", "", True),
        ("http://mirror.example.other.invalid/debian", "", True),
        ("https://files.example/debian", "# https://files.example/x\n", False),
    ],
)
def test_mirrors_of_an_apt_lock_are_those_of_the_project(
    project: Tree, site: str, recipe: str, refused: bool
) -> None:
    mirrors = '[tool.bakehouse]\nrecipes = ["."]\ndebian_mirrors = ["http://mirror.example/debian"]\n'
    project.write("pyproject.toml", mirrors)
    project.image(recipe + IMAGE)
    lock = debian_index().replace("Filename:", f"Site: {site}\nFilename:", 1)
    project.write("apt/sid.packages", lock)

    host = site.split("/")[2]
    message = f"packages come from `{host}`, which neither a mirror nor a recipe names"
    found = [item.message for item in foreign_sites(locking.unlocked_workspace(project.root))]
    assert found == ([message] if refused else [])


@pytest.mark.parametrize(
    ("revision", "is_accepted"), [("main", True), ("v1", True), ("", True), ("COMMIT", True), ("v0", False)]
)
def test_a_commit_is_in_the_history_of_the_branch_or_tag_that_the_requirements_name(
    project: Tree, tmp_path: Path, server: FileServer, revision: str, is_accepted: bool
) -> None:
    upstream = tmp_path / "upstream"
    commit(upstream, {"a": "0"})
    git(upstream, "tag", "v0")
    locked_commit = commit(upstream, {"a": "1"})
    git(upstream, "tag", "v1")
    commit(upstream, {"a": "2"})
    at = f"@{revision.replace('COMMIT', locked_commit)}" if revision else ""
    url = f"git+file://{upstream}"
    line = locked(file="six-1.0.tar.gz", origin=f"{url}@{locked_commit}")
    write_lock(project, line, f"six @ {url}{at}\n")

    name = revision or "HEAD"
    text = f"six 1.0 is of a commit that is not in the history of `{name}`"
    assert kinds(project) == ([] if is_accepted else [(DriftKind.FOREIGN, text)])


@pytest.mark.parametrize(
    ("sha256", "expected"),
    [
        (hashlib.sha256(b"published").hexdigest(), []),
        (OTHER, [(DriftKind.FOREIGN, "tool.tar.gz has another sha256")]),
    ],
)
def test_a_pinned_file_is_that_of_its_publisher(
    project: Tree, server: FileServer, sha256: str, expected: list[tuple[DriftKind, str]]
) -> None:
    """Another mirror and another sha256 can come with one commit."""
    url = f"{server.url}/tool.tar.gz"
    server.files["/tool.tar.gz"] = b"published"
    project.component("tool", TOOL.format(url=url))
    project.write("pins.yaml", f"files:\n  {url}: {{sha256: {sha256}, bytes: 9}}\n")
    project.image(IMAGE.replace("{python", "{tool: '*', python"))

    assert kinds(project) == expected


@pytest.mark.parametrize("command", ["lint", "build --download-only", "build"])
def test_a_lock_from_another_host_is_refused_before_anything_is_downloaded(
    project: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(project.root)
    monkeypatch.setattr("bakehouse.pipeline.build.open_engine", None)
    line = locked(origin="http://other.invalid/" + FILE)
    write_lock(project, line)

    assert main.run((*command.split(), "small")) == 2
    error = capsys.readouterr().err.partition("error: ")[2].splitlines()
    assert error[:2] == [
        "`six` comes from `other.invalid`, which its requirements do not name",
        "  --> images/requirements.txt.lock:3:1",
    ]
    hint = "hint: restore the lock, or run `bake lock` and review the change; if an index links to files on"
    assert error[-1] == f"{hint} this host, name its URL in a comment"
