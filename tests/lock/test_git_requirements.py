"""Git requirements are locked by commit, and their archives are made again from the lock."""

import hashlib
import re
from pathlib import Path

import pytest

from bakehouse.engine import daemon_info
from bakehouse.errors import BakehouseError
from bakehouse.fetch import pip_config
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.required_files import RequiredFile
from bakehouse.fetch.sources import DownloadConfig
from bakehouse.lock import locking
from bakehouse.util.oci import Sha256
from tests.support.errors import refusal
from tests.support.git_repository import commit, project
from tests.support.sdists import WITNESS, hostile
from tests.support.trees import Tree
from tests.support.wheels import wheel


@pytest.fixture
def own(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A project whose index has only `six`."""
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    tree.image(
        "summary: A small image\nbase: debian\ncomponents: {python: '3.11'}\nrequirements: requirements.txt\n"
    )
    wheel(tree.root / "wheels", "six", "1.17.0")
    pip = PipConfig(find_links=(str(tree.root / "wheels"),), no_index=True)
    monkeypatch.setattr(pip_config, "read", lambda: pip)
    monkeypatch.setattr(daemon_info, "probe", lambda: None)
    monkeypatch.setenv("UV_CACHE_DIR", str(tree.root / "cache"))
    return tree


def lock(tree: Tree, line: str) -> str:
    """Lock a requirement, and return the lines of the lock."""
    tree.write("images/requirements.txt", f"{line}\n")
    locking.run(tree.root, ["small"], lambda _: None)
    return (tree.root / "images/requirements.txt.lock").read_text()


def mistake(tree: Tree, line: str) -> str:
    return re.sub(r"(?m)^.*\^+\n", "", refusal(BakehouseError, lock, tree, line))


def test_a_commit_is_locked_as_a_source_distribution(own: Tree, tmp_path: Path) -> None:
    up = tmp_path / "up"
    head = commit(up, {f"libs/own/{name}": text for name, text in project("1.2").items()})
    url = f"git+{up.as_uri()}@{head}#subdirectory=libs/own"

    text = lock(own, f"own-lib @ {url} ; python_version > '3.8'")

    _, _, ours, six = text.splitlines()
    assert six.startswith("six==1.17.0 ")
    match = re.fullmatch(r"own-lib==1\.2 --hash=sha256:(\w+)  # own_lib-1\.2\.tar\.gz (\d+) from (\S+)", ours)
    assert match
    assert match[3] == url
    [package] = [each for each in own.resolve().user_packages if each.name == "own-lib"]
    assert (package.is_sdist, package.origin) == (True, url)

    file = RequiredFile("sdist", package.file, Sha256(package.sha256), package.bytes, "own-lib==1.2", url)
    config = DownloadConfig((), PipConfig(no_index=True), None, {})
    [offer] = config.offers(file)
    assert (offer.name, [*config.here(file)]) == (f"`{up.as_uri()}`", [])
    with offer.open(0, "") as reply:
        data = b"".join(reply.chunks())
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (match[1], int(match[2]))


def test_a_branch_is_refused_with_its_commit(own: Tree, tmp_path: Path) -> None:
    up = tmp_path / "up"
    head = commit(up, project())

    assert mistake(own, f"own-lib @ git+{up.as_uri()}@main") == (
        "error: `main` is not a commit\n"
        "  --> images/requirements.txt:1:1\n"
        "   |\n"
        f" 1 | own-lib @ git+{up.as_uri()}@main\n"
        "\n"
        f"hint: pin a commit: write `git+{up.as_uri()}@{head}`\n"
    )
    assert mistake(own, f"own-lib @ git+{up.as_uri()}").startswith("error: the commit is missing\n")
    text = mistake(own, f"own-lib @ git+{up.as_uri()}@v1")
    assert text.startswith(f"error: `{up.as_uri()}` has no branch or tag `v1`\n")
    assert text.endswith(f"hint: pin a commit: write `git+{up.as_uri()}@COMMIT`\n")


def test_projects_that_build_steps_cannot_build_are_refused(own: Tree, tmp_path: Path) -> None:
    up = tmp_path / "up"
    first = commit(up, {"libs/own/setup.py": ""})
    url = f"git+{up.as_uri()}@{first}"
    text = mistake(own, f"own-lib @ {url}")
    assert text.startswith(f"error: `{up.as_uri()}` has no pyproject.toml or setup.py\n")
    assert text.endswith("hint: add `#subdirectory=libs/own` to the URL\n")

    second = commit(up, {"pyproject.toml": '[build-system]\nrequires = ["hatchling>=1", "wheel"]\n'})
    url = f"git+{up.as_uri()}@{second}"
    text = mistake(own, f"own-lib @ {url}")
    assert text.startswith("error: building `own-lib` needs hatchling, which build steps do not have\n")
    assert text.endswith(f"hint: run `pip wheel --no-deps {url}` and name the wheel\n")


def test_repositories_that_cannot_be_read(own: Tree, tmp_path: Path) -> None:
    up = tmp_path / "up"
    commit(up, project())

    text = mistake(own, f"own-lib @ git+{up.as_uri()}@{'a' * 40}")

    assert text.startswith(f"error: `{up.as_uri()}` does not have the commit {'a' * 40}\n  --> ")
    hint = "check the URL and the commit; only git's own credential helpers supply credentials"
    assert text.endswith(f"hint: {hint}\n")


def test_conflicts_name_the_repository(own: Tree, tmp_path: Path) -> None:
    up = tmp_path / "up"
    head = commit(up, project())

    [six] = (own.root / "wheels").iterdir()
    six.unlink()
    text = mistake(own, f"own-lib @ git+{up.as_uri()}@{head}")

    assert text.startswith(f"error: no version satisfies `own-lib @ git+{up.as_uri()}@{head}`\n")
    assert "/bakehouse-" not in text


def test_a_project_of_another_name_is_refused(own: Tree, tmp_path: Path) -> None:
    up = tmp_path / "up"
    url = f"git+{up.as_uri()}@{commit(up, project())}"

    assert mistake(own, f"other @ {url}") == (
        f"error: `{up.as_uri()}` is the project `own-lib`, not `other`\n"
        "  --> images/requirements.txt:1:1\n"
        "   |\n"
        f" 1 | other @ {url}\n"
        f"\nhint: write `own-lib @ {url}`\n"
    )


def test_a_setup_py_does_not_run_on_this_machine(
    own: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    up = tmp_path / "up"
    url = f"git+{up.as_uri()}@{commit(up, hostile('own_lib', '1.0', tmp_path))}"

    text = mistake(own, f"own-lib @ {url}")

    assert text.startswith(f"error: the requirements of `own-lib @ {url}` are unknown\n")
    assert not (tmp_path / WITNESS).exists()
