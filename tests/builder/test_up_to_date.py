"""Recognition of up-to-date images without BuildKit."""

from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.up_to_date import find_up_to_date, record_build
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.protocol import StoredImage
from bakehouse.plan.model import Image, RegistryBase
from bakehouse.util.oci import Digest
from tests.support import fake_engine, plans
from tests.support.fake_engine import CONTENT, FakeEngine, Run

BUILT = Digest("sha256:" + "aa" * 32)
OTHER = "sha256:" + "bb" * 32
IMAGE = fake_engine.image("a")


class Engine(FakeEngine):
    """Engine with one image under the given names."""

    def __init__(self) -> None:
        super().__init__(lambda spec: Run())
        self.names = dict.fromkeys(IMAGE.names, str(BUILT))

    def image(self, reference: str) -> StoredImage | None:
        digest = self.names.get(reference)
        return StoredImage(digest, 42) if digest else None


class Machine:
    """Machine on which the image was built once."""

    def __init__(self, root: Path) -> None:
        self.project, self.engine = ProjectSettings(root, ()), Engine()
        self.directory = root / "images/a"
        self.directory.mkdir(parents=True)
        (self.directory / "Dockerfile").write_text("FROM base\n")
        (self.directory / "lock.json").write_text("{}")
        record_build(BuiltImage(IMAGE, BUILT, BUILT, 42, CONTENT), self.project)

    def recall(self, image: Image = IMAGE) -> tuple[BuiltImage, ...]:
        return find_up_to_date([image], self.project, self.engine)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_nothing_has_changed_of_is_known_again(machine: Machine) -> None:
    (machine.directory / "lock.json").write_text('{"said": "in other words"}')
    assert machine.recall() == (BuiltImage(IMAGE, BUILT, BUILT, 42, CONTENT),)


def test_a_file_that_changed_is_built(machine: Machine) -> None:
    (machine.directory / "Dockerfile").write_text("FROM base\nRUN true\n")
    assert machine.recall() == ()


def test_a_file_that_came_to_it_is_built(machine: Machine) -> None:
    (machine.directory / "inputs").mkdir()
    (machine.directory / "inputs/script.sh").write_text("")
    assert machine.recall() == ()


def test_a_file_that_no_build_reads_changes_nothing(machine: Machine) -> None:
    """The page of the image reports runs and releases, so it changes after a build."""
    (machine.directory / "README.md").write_text("built")
    assert machine.recall() != ()


def test_a_checkout_under_another_umask_changes_nothing(machine: Machine) -> None:
    (machine.directory / "Dockerfile").chmod(0o600)
    assert machine.recall() != ()


def test_a_file_that_can_be_run_now_is_built(machine: Machine) -> None:
    (machine.directory / "Dockerfile").chmod(0o755)
    assert machine.recall() == ()


@pytest.mark.parametrize("name", IMAGE.names)
def test_a_name_that_is_gone_or_stands_for_something_else_is_built(machine: Machine, name: str) -> None:
    machine.engine.names[name] = OTHER
    assert machine.recall() == ()
    del machine.engine.names[name]
    assert machine.recall() == ()


def test_an_image_whose_names_have_another_content_is_built(machine: Machine) -> None:
    machine.engine.names = dict.fromkeys(IMAGE.names, OTHER)
    assert machine.recall() == ()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"digest": "sha256:aa"}'])
def test_an_unreadable_record_is_ignored(machine: Machine, content: str) -> None:
    (machine.project.state / "built/a.json").write_text(content)
    assert machine.recall() == ()


def test_what_stands_on_a_tag_is_built(machine: Machine) -> None:
    base = RegistryBase("registry.example/base:1", None)
    pinned = replace(base, digest=Digest(OTHER))
    assert machine.recall(plans.changed(IMAGE, base=base)) == ()
    assert machine.recall(plans.changed(IMAGE, base=pinned, build_base="registry.example/devel:1")) == ()
    devel = f"registry.example/devel:1@{OTHER}"
    assert len(machine.recall(plans.changed(IMAGE, base=pinned, build_base=devel))) == 1
