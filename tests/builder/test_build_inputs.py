"""Inputs of a build: files with modes and contents, and reports of skipped ones."""

import urllib.request
from pathlib import Path

import pytest

from bakehouse.builder.build_inputs import BuildInputs, Downloads, StepNeeds, build_inputs
from bakehouse.catalog.project import ProjectSettings
from bakehouse.catalog.recipe import Content
from bakehouse.catalog.run_steps import RunStep
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import EngineError
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.required_files import RequiredFile, RequiredFiles
from bakehouse.plan.model import RegistryBase
from tests.support import fake_engine, plans
from tests.support.apt_configuration import AptConfiguration
from tests.support.fake_engine import HOST
from tests.support.file_server import required_file

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


class Machine:
    """Machine with a CA bundle, a pip.conf, an index and a directory of wheels."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.messages: list[str] = []
        (directory / "ca.pem").write_text(f"# words\n{CERTIFICATE}\n# more\n{CERTIFICATE}")
        (directory / "wheels").mkdir()
        (directory / "wheels/six-1-py3-none-any.whl").write_bytes(b"six")
        (directory / "simple").mkdir()
        self.environment = {"PIP_CONFIG_FILE": str(directory / "pip.conf"), "HOME": str(directory)}
        self.apt = AptConfiguration(directory, monkeypatch)

    def pip(self, text: str) -> None:
        (self.directory / "pip.conf").write_text(f"[global]\nno-index = false\n{text}")

    def inputs(
        self,
        *mirrors: str,
        ca: Path | None = None,
        feed: Downloads | None = None,
        suites: tuple[str, ...] = (),
    ) -> "InputFiles":
        return InputFiles(self, mirrors, ca or self.directory / "ca.pem", feed, suites)


class InputFiles:
    """Contents of the inputs, with a short prefix in the URL."""

    def __init__(
        self,
        machine: Machine,
        mirrors: tuple[str, ...],
        ca: Path,
        feed: Downloads | None = None,
        suites: tuple[str, ...] = (),
    ) -> None:
        project = ProjectSettings(
            machine.directory, (), mirrors=mirrors, ca_file=ca, state_directory=machine.directory
        )
        self._context = build_inputs(
            project, machine.messages.append, StepNeeds(suites), feed, machine.environment
        )
        self.machine = machine

    def __enter__(self) -> "InputFiles":
        self.inputs: BuildInputs = self._context.__enter__()
        self.texts = {name: path.read_text() for name, path in self.inputs.secrets.items()}
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(None, None, None)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


class FakeFeed:
    """Downloads of one wheel from a mirror on this machine."""

    def __init__(self, machine: Machine, *more: RequiredFile) -> None:
        self.file = required_file(b"six", "six-1-py3-none-any.whl", "wheel", "six==1")
        files = (self.file, *more)
        plan = RequiredFiles(files, dict.fromkeys(files, ("image",)), (files,))
        store = FileCache(machine.directory / "store", machine.messages.append)
        local = LocalMirrors((machine.directory / "wheels",), HashCache(machine.directory / "hashes.json"))
        self.feed = Downloads(plan, Fetcher(store, local), HOST)


def test_with_a_feed_steps_know_of_this_machine_alone(machine: Machine) -> None:
    machine.pip("index-url = https://user:word@index.example/simple\nproxy = http://u:word@proxy.example\n")
    machine.environment["PIP_EXTRA_INDEX_URL"] = "https://user:word@other.example/simple"
    fed = FakeFeed(machine)
    with machine.inputs("https://user:word@mirror.example", feed=fed.feed) as files:
        url = files.texts["mirrors"].removesuffix("/sha256\n")
        assert files.texts["pip"] == (
            f"[global]\nindex-url = {url}/simple/\ntrusted-host = {url.split('/')[2]}\ntimeout = 86400\n"
        )
        assert "word" not in "".join(files.texts.values())
        with urllib.request.urlopen(f"{url}/sha256/{fed.file.sha256}/{fed.file.file}") as response:
            assert response.read() == b"six"
    assert machine.messages == []


@pytest.mark.parametrize("is_fed", [True, False])
def test_users_own_steps_find_the_packages_of_a_base_that_names_no_mirror(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, is_fed: bool
) -> None:
    machine.apt.suite("https://mirror.example/debian", "bookworm")
    feed = FakeFeed(machine).feed if is_fed else None
    with machine.inputs(feed=feed, suites=("bookworm",)) as files:
        assert "https://mirror.example/debian bookworm main\n" in files.texts["sources"]


@pytest.mark.parametrize("is_served", [True, False])
def test_served_steps_need_only_the_mirrors_of_users_own_steps(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, is_served: bool
) -> None:
    machine.apt.suite("https://mirror.example/debian", "trixie")
    inputs = build_inputs(
        ProjectSettings(machine.directory, (), state_directory=machine.directory),
        machine.messages.append,
        StepNeeds(suites=("bookworm", "trixie"), suites_of_own_steps=("trixie",)),
        FakeFeed(machine).feed if is_served else None,
        machine.environment,
    )
    with inputs as files:
        suites = files.secrets["sources"].read_text().split()[2::4]

    assert (
        [suite for suite in suites if "-" not in suite] == ["trixie"] if is_served else ["bookworm", "trixie"]
    )


def test_secrets_are_private_and_gone_afterwards(machine: Machine) -> None:
    machine.pip("index-url = https://user:word@index.example/simple\n")
    with machine.inputs() as files:
        paths = list(files.inputs.secrets.values())
        assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
        assert {path.parent.stat().st_mode & 0o777 for path in paths} == {0o700}
        assert "https://user:word@index.example/simple" in files.texts["pip"]
    assert not any(path.exists() for path in paths)
    assert machine.messages == []


def test_pips_settings_as_they_hold_in_a_step(machine: Machine) -> None:
    machine.pip(
        "extra-index-url = https://index.example/simple\nfind-links = https://links.example/\n"
        "trusted-host = index.example\ntimeout = 90\n"
    )
    with machine.inputs() as files:
        assert files.texts["pip"] == (
            "[global]\n"
            "extra-index-url = https://index.example/simple\n"
            "find-links = https://links.example/\n"
            "trusted-host = index.example\n"
            "cert = /run/secrets/ca\n"
            "timeout = 90\n"
        )


def test_steps_that_fetch_by_themselves_do_not_use_local_files(machine: Machine) -> None:
    machine.pip(
        f"extra-index-url = file://{machine.directory}/simple https://index.example/simple\n"
        f"find-links = {machine.directory}/wheels\n"
    )
    mirrors = ("https://mirror.example/by-hash/", str(machine.directory / "wheels"), "s3://bucket/files")
    with machine.inputs(*mirrors) as files:
        assert files.texts["mirrors"] == "https://mirror.example/by-hash\n"
        assert files.texts["pip"] == (
            "[global]\nextra-index-url = https://index.example/simple\ncert = /run/secrets/ca\n"
        )
    sources = [f"file://{machine.directory}/simple", f"{machine.directory}/wheels", "s3://bucket/files"]
    assert machine.messages == [f"build steps cannot reach `{source}`; skipped" for source in sources]


def test_certificates_come_once_and_alone(machine: Machine) -> None:
    machine.pip("")
    with machine.inputs() as files:
        assert files.texts["ca"] == CERTIFICATE


def test_missing_settings_are_not_passed_as_secrets(machine: Machine) -> None:
    machine.pip("")
    with machine.inputs() as files:
        assert sorted(files.texts) == ["apt", "ca", "pip"]
        assert files.texts["pip"] == "[global]\ncert = /run/secrets/ca\n"


def test_more_certificates_than_a_secret_takes(machine: Machine) -> None:
    machine.pip("")
    large = machine.directory / "large.pem"
    large.write_text("".join(CERTIFICATE.replace("MIIB", f"{number:060}") for number in range(5000)))
    with machine.inputs(ca=large) as files:
        assert list(files.texts) == []
    assert machine.messages == [
        f"`{large}` is not passed to build steps: BuildKit's limit for secrets is 500 kB"
    ]


def test_apt_goes_through_its_proxy_and_trusts_the_same(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.pip("")
    machine.apt.settings('Acquire::http::Proxy "http://proxy.example:3142";')
    with machine.inputs() as files:
        assert files.texts["apt"] == (
            'Acquire::http::Proxy "http://proxy.example:3142";\n'
            'Acquire::https::CaInfo "/run/secrets/ca";\n'
            'APT::Sandbox::User "root";\n'
        )


def test_apt_waits_long_where_it_gets_packages_from_this_machine_and_tries_again_as_ever(
    machine: Machine,
) -> None:
    deb = required_file(b"deb", "one_1_all.deb", "deb", "pool/main/o/one/one_1_all.deb")
    with machine.inputs(feed=FakeFeed(machine).feed) as files:
        assert "Timeout" not in files.texts["apt"]
    with machine.inputs(feed=FakeFeed(machine, deb).feed) as files:
        assert files.texts["apt"] == (
            'Acquire::https::CaInfo "/run/secrets/ca";\nAPT::Sandbox::User "root";\n'
            'Acquire::http::Proxy::127.0.0.1 "DIRECT";\nAcquire::http::Timeout "600";\n'
        )


def test_proxies_are_arguments_and_not_for_what_is_served_here(machine: Machine) -> None:
    machine.pip("")
    machine.environment |= {
        "https_proxy": "http://user:word@proxy.example:3128",
        "NO_PROXY": "intern.example",
    }
    with machine.inputs(feed=FakeFeed(machine).feed) as files:
        assert files.inputs.arguments == {
            "https_proxy": "http://user:word@proxy.example:3128",
            "HTTPS_PROXY": "http://user:word@proxy.example:3128",
            "no_proxy": "intern.example,127.0.0.1",
            "NO_PROXY": "intern.example,127.0.0.1",
        }


def test_steps_that_download_only_what_is_served_get_no_proxies(machine: Machine) -> None:
    """Build backends could put the credentials of a proxy into an image."""
    machine.pip("")
    machine.environment |= {"https_proxy": "http://user:word@proxy.example:3128"}
    with build_inputs(
        ProjectSettings(machine.directory, (), state_directory=machine.directory),
        machine.messages.append,
        StepNeeds(proxies=False),
        FakeFeed(machine).feed,
        machine.environment,
    ) as inputs:
        assert inputs.arguments == {}
        assert "word" not in "".join(path.read_text() for path in inputs.secrets.values())


def test_what_means_another_machine_inside_a_step_is_left_out(machine: Machine) -> None:
    machine.pip("index-url = http://localhost:3141/root/pypi\n")
    machine.environment["HTTP_PROXY"] = "http://127.0.0.1:3128"
    with machine.inputs() as files:
        assert files.inputs.arguments == {}
        assert files.texts["pip"] == "[global]\ncert = /run/secrets/ca\n"
    assert machine.messages == [
        "build steps cannot reach the loopback address `localhost:3141`; skipped",
        "build steps cannot reach the loopback address `127.0.0.1:3128`; skipped",
    ]


def test_missing_certificates(machine: Machine) -> None:
    with pytest.raises(EngineError) as caught, machine.inputs(ca=Path("no.pem")):
        pass
    assert failure_text(caught.value.diagnostics[0]) == (
        """\
error: certificate file `no.pem` does not exist

hint: correct `ca` in [tool.bakehouse], or BAKEHOUSE_CA
"""
    )


def test_users_own_steps_need_mirrors_and_proxies() -> None:
    locked = fake_engine.image("a")
    own = plans.changed(locked, content=Content(run=(RunStep("apt-get install tree"),)))
    vendor = plans.changed(own, base=RegistryBase("registry.example/base:1", None))

    assert StepNeeds.of([locked], offline=False) == StepNeeds(("bookworm",), (), False, False)
    assert StepNeeds.of([locked, own], offline=False) == StepNeeds(
        ("bookworm", "bookworm"), ("bookworm",), True, True
    )
    assert StepNeeds.of([own], offline=True) == StepNeeds((), (), True, True)
    assert StepNeeds.of([vendor], offline=False) == StepNeeds((), (), True, True)
