"""Settings of a project that widen trust need consent to their content."""

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bakehouse.catalog import project as projects
from bakehouse.catalog.consent import VARIABLES, policy_record
from bakehouse.catalog.project import ProjectSettings
from bakehouse.cli import main
from bakehouse.errors import TrustError
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.lock.build_backend import index_with_backends
from bakehouse.lock.python import Index
from bakehouse.plan.workspace import open_workspace
from bakehouse.trust.policy import require_consent
from tests.support.errors import error_text, raised
from tests.support.trees import Tree

KMS = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/abc"
OTHERS = {
    *("requires", "commit", "prices", "jobs", "sagemaker_sdk", "ci"),
    # Settings of a team: addresses that get requests without credentials of other hosts
    *("registry", "region", "repository_prefix", "registry_port", "registries", "ledger", "builders"),
    # Files are identified by sha256, and lists of packages by a signature
    *("debian_mirrors", "build_cache"),
    # Compared with the last one
    "policy",
}


def fetcher_of(project: ProjectSettings) -> bool:
    with open_fetcher(project, print, environment={}):
        return True


class Machine:
    """A project, and the user's home."""

    def __init__(self, root: Path) -> None:
        self.home, self.tree = root / "home", Tree(root / "project")
        self.tree.write("ca.pem", "first")
        self.tree.write("own/images/.keep", "")
        Tree(root / "other").write("images/.keep", "")

    def find(self, settings: str, **variables: str) -> ProjectSettings:
        self.tree.write("pyproject.toml", f"[tool.bakehouse]\n{settings}\n")
        return projects.find(self.tree.root, {"HOME": str(self.home), **variables})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("HOME", str(machine.home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return machine


def test_each_setting_is_known_to_widen_trust_or_not() -> None:
    assert VARIABLES.keys() | OTHERS == {*projects._KEYS}
    assert not VARIABLES.keys() & OTHERS


@pytest.mark.parametrize(
    ("key", "value", "other", "read"),
    [
        ("build_on_host", "true", None, lambda project: project.build_on_host),
        ("ca", "'ca.pem'", "'./ca.pem'", lambda project: project.ca.read_text()),
        ("cache", "'/other'", "'/another'", lambda project: str(project.cache)),
        ("cache", "'../other'", "'..'", lambda project: str(project.cache)),
        ("signing_key", f"'{KMS}'", f"'{KMS}d'", lambda project: project.signing_key),
        ("signing_key", "'~/.ssh/key'", "'/root/key'", lambda project: project.signing_key),
        ("recipes", "['../other']", "['..']", lambda project: open_workspace(project.root)),
        ("recipes", "['own', '../other']", "['own', '..']", lambda project: open_workspace(project.root)),
        ("mirrors", "['~/wheels', 'https://m.example']", "['/etc']", fetcher_of),
        ("mirrors", "['file:///srv/wheels']", "['file:///etc']", fetcher_of),
    ],
)
def test_a_setting_counts_with_consent_to_this_value(
    machine: Machine, key: str, value: str, other: str | None, read: Callable[[ProjectSettings], object]
) -> None:
    project = machine.find(f"{key} = {value}")
    assert [*project.unconfirmed] == [key]
    if key == "build_on_host":
        assert read(project) is False
    else:
        with pytest.raises(TrustError):
            read(project)

    project.unconfirmed[key].grant()

    assert read(machine.find(f"{key} = {value}"))
    if other:
        assert [*machine.find(f"{key} = {other}").unconfirmed] == [key]
    moved = machine.tree.root.rename(machine.tree.root.with_name("moved"))
    assert [*projects.find(moved, {"HOME": str(machine.home)}).unconfirmed] == [key]


def test_other_certificates_in_the_same_file_need_consent_again(machine: Machine) -> None:
    machine.find('ca = "ca.pem"').unconfirmed["ca"].grant()
    machine.tree.write("ca.pem", "second")

    assert [*machine.find('ca = "ca.pem"').unconfirmed] == ["ca"]


def test_a_variable_of_the_user_gives_consent(machine: Machine) -> None:
    project = machine.find(
        f"build_on_host = true\nca = 'ca.pem'\nsigning_key = '{KMS}'\ncache = '/other'",
        **{"BAKEHOUSE_CA": "mine.pem", "BAKEHOUSE_SIGNING_KEY": "", "BAKEHOUSE_BUILD_ON_HOST": "0"},
        BAKEHOUSE_CACHE="/mine",
    )

    assert project.unconfirmed == {}
    assert (project.ca, project.signing_key) == (machine.tree.root / "mine.pem", "")
    assert (project.build_on_host, project.cache) == (False, Path("/mine"))
    assert machine.find("", BAKEHOUSE_BUILD_ON_HOST="1").build_on_host


@pytest.mark.parametrize(
    "setting",
    [
        "cache = 'cache'",
        "signing_key = 'keys/signing.pem'",
        "ca = ''",
        "recipes = ['own', '.']",
        "mirrors = ['own', 'https://m.example/x', 's3://bucket/files']",
    ],
)
def test_a_path_of_the_project_needs_no_consent(machine: Machine, setting: str) -> None:
    assert machine.find(setting).unconfirmed == {}


@pytest.mark.parametrize(("given", "is_asked"), [("../other", False), ("/mine", True), ("", True)])
def test_a_variable_gives_consent_to_the_directories_that_it_names(
    machine: Machine, given: str, is_asked: bool
) -> None:
    for key in ("recipes", "mirrors"):
        project = machine.find(f"{key} = ['../other']", **{VARIABLES[key]: given})
        assert ([*project.unconfirmed] == [key]) is is_asked


POLICY = (
    "[tool.bakehouse.policy]\nkeys = ['a.pub', 'b.pub']\nrequire = ['tests', 'signature']\nrebuilds = 1\n"
)


def test_a_project_without_a_policy_leaves_no_record(machine: Machine) -> None:
    project = machine.find("")
    require_consent(project)
    assert not policy_record(project.root, project.user_state).exists()


@pytest.mark.parametrize(
    ("old", "new", "effect"),
    [
        (POLICY, "", "it no longer requires `signature`"),
        ("'tests', ", "", "it no longer requires `tests`"),
        ("rebuilds = 1", "rebuilds = 0", "it requires 0 rebuilds instead of 1"),
        ("'b.pub'", "'c.pub'", "it trusts other keys"),
        ("'tests', ", "'tests', 'sbom', ", ""),
        ("rebuilds = 1", "rebuilds = 2", ""),
        (", 'b.pub'", "", ""),
    ],
)
def test_a_repository_can_tighten_a_policy_and_weaken_it_with_consent(
    machine: Machine, old: str, new: str, effect: str
) -> None:
    for name in "abc":
        machine.tree.write(f"{name}.pub", name)
    require_consent(machine.find(POLICY))

    changed = machine.find(POLICY.replace(old, new))
    if not effect:
        require_consent(changed)
        assert "policy" in machine.find(POLICY).unconfirmed
        return
    [diagnostic] = raised(TrustError, require_consent, changed).diagnostics
    assert effect in [reason.text for reason in diagnostic.reasons]
    [variable, value] = str(diagnostic.hint).split()[11].split("=")
    assert machine.find(POLICY.replace(old, new), **{variable: value}).unconfirmed == {}
    changed.unconfirmed["policy"].grant()
    require_consent(machine.find(POLICY.replace(old, new)))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"require": 1, "keys": [], "rebuilds": 0}', '{"a'])
def test_a_damaged_record_of_a_policy_needs_consent(machine: Machine, content: str) -> None:
    machine.tree.write("a.pub", "a")
    machine.tree.write("b.pub", "b")
    require_consent(machine.find(POLICY))
    [record] = machine.home.rglob("policy-*.json")
    record.write_text(content)

    [effect] = machine.find(POLICY).unconfirmed["policy"].effects
    assert effect == f"the record of the last policy, `{record}`, is damaged"


def test_a_link_out_of_the_project_needs_consent(machine: Machine) -> None:
    machine.tree.root.joinpath("signing.pem").symlink_to(machine.home / "key.pem")

    assert [*machine.find("signing_key = 'signing.pem'").unconfirmed] == ["signing_key"]


def test_a_commit_cannot_contain_the_consent(machine: Machine) -> None:
    machine.home = machine.tree.root
    machine.find("build_on_host = true").unconfirmed["build_on_host"].grant()

    assert not machine.find("build_on_host = true").build_on_host


def test_the_message_names_the_setting_its_effect_and_the_variable(machine: Machine) -> None:
    with pytest.raises(TrustError) as caught:
        _ = machine.find('ca = "ca.pem"').ca

    assert error_text(caught.value).replace(f"{machine.tree.root}/", "") == (
        "error: `ca` in [tool.bakehouse] needs your consent\n"
        '  --> pyproject.toml:2:1\n   |\n 2 | ca = "ca.pem"\n   | ^^\n'
        "  because the owner of these certificates can read and change your downloads and uploads\n"
        "\n"
        "hint: run the command in a terminal, which asks you, or set BAKEHOUSE_CA yourself, such as in the"
        " definition of a job\n"
    )


def test_build_backends_run_in_containers_without_consent(machine: Machine) -> None:
    reported: list[str] = []

    def runs_on_host() -> bool:
        workspace: Any = SimpleNamespace(project=machine.find("build_on_host = true"))
        index: Any = index_with_backends(Index(None, None), workspace, reported.append, print)  # type: ignore[arg-type]
        return index.run_backend is None

    assert not runs_on_host()
    assert reported == ["`build_on_host` needs your consent: build backends run in containers"]
    machine.find("build_on_host = true").unconfirmed["build_on_host"].grant()
    assert runs_on_host()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "asked"), [("y\n", 1), ("\n", 2), ("no\n", 2), ("", 2)])
def test_a_terminal_asks_once_for_all_settings(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, answer: str, asked: int
) -> None:
    machine.find(f"build_on_host = true\nsigning_key = '{KMS}'")
    monkeypatch.chdir(machine.tree.root)
    monkeypatch.setenv("HOME", str(machine.home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    question = (
        "`build_on_host = true` in [tool.bakehouse]: packages run their code on this machine as you\n"
        f'`signing_key = "{KMS}"` in [tool.bakehouse]: statements about images are signed with this key\n'
        "Allow this, until a value changes? [y/N] "
    )
    questions = 0
    for _ in range(2):
        screen = Terminal()
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        monkeypatch.setattr("sys.stderr", screen)
        assert main.run(("releases",)) == 0
        questions += screen.getvalue().startswith(question)

    assert questions == asked
