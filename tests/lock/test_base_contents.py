"""Requirements on a vendor base are locked against the Python packages that the base contains."""

import contextlib
from collections.abc import Mapping

import pytest

from bakehouse.catalog.base_contents import DIRECTORY, file_of, read_contents, text_of
from bakehouse.engine import daemon_info
from bakehouse.engine.daemon_info import UnavailableDaemon, UnavailableReason
from bakehouse.errors import BuildError, RecipeError
from bakehouse.fetch import pip_config
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.lock import base_contents, locking
from tests.support.errors import refusal
from tests.support.trees import Tree
from tests.support.wheels import wheel

HOST_KEY = "/etc/ssh/ssh_host_rsa_key"
PINNED = f"vendor/training@sha256:{'ab' * 32}"
BASE = f"""\
summary: A vendor's images
frozen: {{torch: pytorch, nvidia-*: any}}
facts: {{pip: "python3 -m pip"}}
releases:
  - version: "2.5"
    base: {{image: vendor/training, digest: "sha256:{"ab" * 32}"}}
    provides: {{python: "3.11", pytorch: "2.5.1"}}
"""
CONTAINED = {
    "numpy": "1.26.4",
    "nvidia-nccl-cu12": "2.21.5",
    "pandas": "2.2.0+vendor",
    "torch": "2.5.1+cu124",
}


@pytest.fixture
def vendor(tree: Tree, monkeypatch: pytest.MonkeyPatch, own_images_only: None) -> Tree:
    """A project without an engine, and an index with newer packages than those of the base."""
    tree.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    tree.component("vendor", BASE)
    tree.image("summary: A small image\nbase: vendor\nrequirements: requirements.txt\n")
    tree.write("images/requirements.txt", "peft\n")
    wheels = tree.root / "wheels"
    for version in ("1.26.4", "2.1.0"):
        wheel(wheels, "numpy", version)
    wheel(wheels, "pandas", "2.3.0", requires=("numpy",))
    wheel(wheels, "torch", "2.6.0")
    wheel(wheels, "peft", "0.14.0", requires=("torch>=2", "pandas", "numpy", "nvidia-nccl-cu12", "regex"))
    wheel(wheels, "regex", "1.0")
    monkeypatch.setattr(pip_config, "read", lambda: PipConfig(find_links=(str(wheels),), no_index=True))
    silent = UnavailableDaemon(UnavailableReason.NOT_RUNNING, "unix:///none", "")
    monkeypatch.setattr(daemon_info, "probe", lambda: silent)
    return tree


def record(tree: Tree, packages: Mapping[str, str] = CONTAINED) -> None:
    tree.write(f"{DIRECTORY}/{file_of(PINNED)}", text_of(PINNED, packages, {}))


def lock(tree: Tree, *names: str, upgrade: bool = False) -> tuple[str, ...]:
    return locking.run(tree.root, names, lambda _: None, scope=locking.LockScope(upgrade))


def locked(tree: Tree) -> list[str]:
    lines = (tree.root / "images/requirements.txt.lock").read_text().splitlines()
    return [line.split()[0] for line in lines if not line.startswith("#")]


def test_a_lock_leaves_out_packages_of_the_base(vendor: Tree) -> None:
    record(vendor)

    assert lock(vendor, "small") == ("requirements.txt.lock: 2 packages",)

    assert locked(vendor) == ["peft==0.14.0", "regex==1.0"]
    assert [package.name for package in vendor.resolve().user_packages] == ["peft", "regex"]


def test_a_package_of_the_base_that_does_not_fit_is_replaced_alone(vendor: Tree) -> None:
    record(vendor)
    vendor.write("images/requirements.txt", "peft\nnumpy>=2\n")

    assert lock(vendor, "small") == (
        "requirements.txt.lock: 4 packages",
        "requirements.txt.lock: numpy 2.1.0 replaces 1.26.4 of the base",
        "requirements.txt.lock: pandas 2.3.0 replaces 2.2.0+vendor of the base",
    )
    assert locked(vendor) == ["numpy==2.1.0", "pandas==2.3.0", "peft==0.14.0", "regex==1.0"]


def test_a_former_lock_over_the_base_is_dropped(vendor: Tree) -> None:
    record(vendor, {name: version for name, version in CONTAINED.items() if name != "numpy"})
    lock(vendor, "small")
    assert "numpy==2.1.0" in locked(vendor)

    record(vendor)
    lock(vendor, "small")

    assert locked(vendor) == ["peft==0.14.0", "regex==1.0"]


def test_without_an_engine_the_packages_are_unknown(vendor: Tree) -> None:
    vendor.write("images/requirements.txt", "regex\n")

    unknown = "the Python packages of vendor/training are unknown"
    assert lock(vendor, "small")[0] == f"{unknown}; run `bake lock small` where a container engine runs"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that runs steps in bases, as far as a test says."""
    daemon = object.__new__(daemon_info.Daemon)
    monkeypatch.setattr(daemon_info, "probe", lambda: daemon)
    monkeypatch.setattr(base_contents, "build_settings", lambda *_: contextlib.nullcontext())


def test_a_base_is_pulled_only_for_a_named_image(vendor: Tree, engine: None) -> None:
    vendor.write("images/requirements.txt", "regex\n")

    assert lock(vendor)[0] == "the Python packages of vendor/training are unknown; run `bake lock small`"


def test_packages_are_recorded_once(vendor: Tree, engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []

    def run_step(name: str, dockerfile: str, *_: object) -> dict[str, str]:
        steps.append((name, dockerfile.partition("\n")[0]))
        rows = [f"{each.title()} {version}\n" for each, version in CONTAINED.items()]
        return {"packages": "".join([*rows, "tz 2021-a-b\n"]), "keys": f"{HOST_KEY} {'cd' * 32}\n"}

    monkeypatch.setattr(base_contents, "run_step", run_step)
    former = PINNED.replace("ab", "ef")
    vendor.write(f"{DIRECTORY}/{file_of(former)}", text_of(former, {}, {}))

    first, second = lock(vendor, "small"), lock(vendor, "small")

    assert steps == [(PINNED, f"FROM {PINNED} AS base")]
    assert first[0] == f"{file_of(PINNED)}: 4 packages"
    assert second == ("everything is locked",)
    assert [path.name for path in (vendor.root / DIRECTORY).iterdir()] == [file_of(PINNED)]
    text = text_of(PINNED, CONTAINED, {HOST_KEY: "cd" * 32})
    assert (vendor.root / DIRECTORY / file_of(PINNED)).read_text() == text
    contents = read_contents([vendor.root], PINNED.partition("@")[2])
    assert contents is not None
    assert contents.private_keys == {"cd" * 32}
    assert locked(vendor) == ["peft==0.14.0", "regex==1.0"]


def test_a_base_that_cannot_be_pulled_is_reported(
    vendor: Tree, engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_step(*_: object) -> dict[str, str]:
        raise BuildError("cannot pull `vendor/training`")

    monkeypatch.setattr(base_contents, "run_step", run_step)
    vendor.write("images/requirements.txt", "regex\n")

    assert lock(vendor, "small")[0] == (
        "the Python packages of vendor/training are unknown: cannot pull `vendor/training`"
    )


def test_an_invalid_record_is_a_mistake(vendor: Tree) -> None:
    vendor.write(f"{DIRECTORY}/{file_of(PINNED)}", "# Contents of other\nnumpy 1.26.4\n")

    text = refusal(RecipeError, lock, vendor, "small")
    heading = f"# Contents of <base>@{PINNED.partition('@')[2]}"
    assert f"invalid record of a base: `{file_of(PINNED)}` begins with `{heading}`" in text
    assert "invalid record of a base: a line is `name==version`" in text
    assert "hint: restore the file from version control, or delete it and run `bake lock IMAGE`" in text
