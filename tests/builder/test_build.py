"""Whole builds with a fake docker command: bases, the call of buildx, verification."""

import io
import json
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from bakehouse.builder.build import build, build_images, leaders, verify_all
from bakehouse.builder.build_context import BuildContext, BuildOptions
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.disk_estimate import expected_bytes, layer_bytes
from bakehouse.builder.progress import Mode, Progress
from bakehouse.builder.up_to_date import built_content, kept_layers, record_build
from bakehouse.catalog.project import HOME, ProjectSettings
from bakehouse.engine.buildx import BakedImage, Target
from bakehouse.engine.protocol import StoredImage
from bakehouse.errors import BuildError, EngineError
from bakehouse.evidence.versions import VerifiedImages
from bakehouse.plan.model import Image, InstalledComponent, RegistryBase
from bakehouse.plan.workspace import open_workspace, select
from bakehouse.registry.manifest import digest_of
from bakehouse.util.oci import Digest
from tests.support import fake_engine, feeds, plans
from tests.support.errors import raised, refusal
from tests.support.fake_commands import put
from tests.support.fake_engine import CONTENT, FakeEngine, Run

DIGEST, CONFIG = "sha256:" + "aa" * 32, digest_of(b"{}")
BAKE = f"""\
for argument; do case $argument in --metadata-file=*) metadata=${{argument#*=}} ;; esac; done
digests='"containerimage.digest": "{DIGEST}", "containerimage.config.digest": "{CONFIG}"'
echo "{{\\"a\\": {{$digests}}}}" > "$metadata"
"""


# The last arguments are the targets: `b` fails whenever it is among them.
BROKEN = f"""\
case "$*" in
*" b") echo '{{"vertexes": [{{"digest": "d", "name": "[b m 2/2] RUN make", "error": "exit code: 2"}}]}}' >&2
    exit 1 ;;
esac
{BAKE}"""


# As after an interrupted build, until the stage is built without its cache
INTERRUPTED = f"""\
[ "$1 $2" = "buildx bake" ] || exit 1
number=$(ls | grep -c override)
for argument; do case $argument in */override.json) cp "$argument" "override-$number.json" ;; esac; done
if ! grep -q no-cache-filter "override-$number.json"; then
    error="failed to commit 14wp to ikk8 during finalize: snapshot 14wp does not exist: not found"
    step='"digest": "d", "name": "[m 2/2] RUN make"'
    echo "{{\\"vertexes\\": [{{$step, \\"error\\": \\"$error\\"}}]}}" >&2
    exit 1
fi
{BAKE}"""


class Engine(FakeEngine):
    """Engine with the images of a set."""

    def __init__(self, *held: str) -> None:
        super().__init__(lambda spec: Run())
        self.held = set(held)

    def image(self, reference: str) -> StoredImage | None:
        return StoredImage(reference, 42) if reference in self.held else None

    def read_config(self, reference: str) -> bytes:
        return b"{}"


IMAGE = plans.changed(fake_engine.image("a"), base=RegistryBase("registry.example/base:1", None))


class Bakehouse:
    """Project with one image, built with a fake buildx."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.verified: list[str] = []
        self.engine = Engine(DIGEST)
        self.expected = 0
        self.project = ProjectSettings(directory, (), state_directory=directory / "state")

    def build(self, *images: Image) -> tuple[BuiltImage, ...]:
        progress = Progress(io.StringIO(), Mode.LINES)
        context = BuildContext(self.project, self.engine, progress, feeds.nothing(self.directory))
        return build(images or [IMAGE], context)

    def expected_bytes(self, images: Sequence[Image], kept: Collection[str]) -> int:
        assert images[0].name == "a"
        return self.expected

    def verify(self, engine: FakeEngine, image: Image, digest: Digest, state: Path) -> None:
        assert (engine, digest, state) == (self.engine, DIGEST, self.project.state)
        self.verified.append(image.name)


@pytest.fixture
def bakehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bakehouse:
    bakehouse = Bakehouse(tmp_path)
    monkeypatch.setattr("bakehouse.builder.build.expected_bytes", bakehouse.expected_bytes)
    monkeypatch.setattr("bakehouse.builder.build.verify_image", bakehouse.verify)
    put(tmp_path, monkeypatch, docker=BAKE)
    directory = tmp_path / "images/a"
    directory.mkdir(parents=True)
    (directory / "docker-bake.json").write_text('{"target": {"a": {"context": "images/a"}}}')
    return bakehouse


def test_a_built_image_has_its_digests_and_bytes(bakehouse: Bakehouse) -> None:
    (built,) = bakehouse.build()
    assert (built.image.name, built.digest, built.stored, built.bytes) == ("a", CONFIG, DIGEST, 42)


def test_what_was_built_is_verified_and_up_to_date(bakehouse: Bakehouse) -> None:
    built = bakehouse.build()
    assert bakehouse.verified == ["a"]
    assert built_content(IMAGE, bakehouse.project) == built[0].content


def test_many_images_are_built_in_several_calls(
    bakehouse: Bakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def bake(targets: Sequence[Target], *_: object) -> dict[str, BakedImage]:
        calls.append([target.name for target in targets])
        return {target.name: BakedImage(Digest(DIGEST), Digest(CONFIG)) for target in targets}

    monkeypatch.setattr("bakehouse.engine.buildx.bake_with_retries", bake)
    monkeypatch.setattr("bakehouse.builder.build.MAX_TARGETS", 2)

    built = bakehouse.build(*(plans.changed(IMAGE, name=name) for name in "abc"))

    assert calls == [["a", "b"], ["c"]]
    assert [item.image.name for item in built] == ["a", "b", "c"]


def test_an_image_that_differs_is_not_up_to_date(
    bakehouse: Bakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*arguments: object) -> None:
        raise BuildError("`a` is not as declared")

    monkeypatch.setattr("bakehouse.builder.build.verify_image", differs)
    with pytest.raises(BuildError, match="`a` is not as declared"):
        bakehouse.build()
    assert built_content(IMAGE, bakehouse.project) is None


def test_a_disk_that_is_too_full(bakehouse: Bakehouse) -> None:
    bakehouse.expected = 10**18
    lines = refusal(EngineError, bakehouse.build).splitlines()
    assert lines[0] == "error: not enough disk space to build `a`"
    assert lines[1] == "  needed  about 2000000000.00 GB"
    assert lines[2] == "  free    1000.00 GB on the engine's disk"
    assert lines[4] == ("hint: check `docker system df`; `docker builder prune` removes unused build cache")


def test_a_full_disk_names_a_few_of_many_images(bakehouse: Bakehouse) -> None:
    bakehouse.expected = 10**18
    images = [
        plans.changed(IMAGE, name="a"),
        *(plans.changed(IMAGE, name=f"b{number}") for number in range(8)),
    ]
    error = raised(EngineError, bakehouse.build, *images)
    message = "not enough disk space to build `a`, `b0`, `b1`, `b2`, `b3` and 4 more"
    assert error.diagnostics[0].message == message


def test_what_the_engine_has_needs_no_room(bakehouse: Bakehouse) -> None:
    bakehouse.expected = 10**18
    bakehouse.engine.held.add(IMAGE.reference)
    bakehouse.build()


def test_an_image_that_was_removed_meanwhile(bakehouse: Bakehouse) -> None:
    bakehouse.engine.held.clear()
    assert refusal(BuildError, bakehouse.build) == (
        """\
error: image `a` was removed from the engine immediately after its build

hint: run the same command again
"""
    )


def test_an_image_that_fails_does_not_keep_others_from_being_built(
    bakehouse: Bakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, docker=BROKEN)
    directory = tmp_path / "images/b"
    directory.mkdir()
    (directory / "docker-bake.json").write_text('{"target": {"b": {"context": "images/b"}}}')

    broken = plans.changed(IMAGE, name="b")
    error = raised(BuildError, bakehouse.build, IMAGE, broken)

    assert bakehouse.verified == ["a"]
    [diagnostic] = error.diagnostics
    assert diagnostic.message == "image `b` failed to build: stage `m` failed with exit code 2"


def test_a_lost_layer_is_made_again_on_an_engine_that_may_not_be_restarted(
    bakehouse: Bakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, docker=INTERRUPTED)

    assert [built.image.name for built in bakehouse.build()] == ["a"]
    calls = (json.loads(path.read_text())["target"]["a"] for path in sorted(tmp_path.glob("override-*")))
    assert [call.get("no-cache-filter") for call in calls] == [None, ["m"]]


def test_all_that_differs_from_what_is_declared_is_reported() -> None:
    def verify(built: BuiltImage) -> None:
        if built.image.name != "b":
            raise BuildError(f"`{built.image.name}` is wrong")

    built = [replace(fake_engine.built(IMAGE), image=plans.changed(IMAGE, name=name)) for name in "abc"]
    error = raised(BuildError, verify_all, built, verify, print)
    assert [diagnostic.message for diagnostic in error.diagnostics] == ["`a` is wrong", "`c` is wrong"]


def test_of_images_that_share_layers_the_one_with_the_fewest_parts_is_exported_first() -> None:
    python = InstalledComponent("python", "3.11", "distribution")
    stage = plans.stage(python)
    small, large = (
        plans.changed(IMAGE, name=name, stages=(stage,) * parts)
        for name, parts in (("small", 1), ("large", 2))
    )
    alone = plans.changed(large, name="alone", apt=("gcc",))
    assert leaders([large, small, alone]) == {"small"}


def test_an_image_that_shares_no_layers_waits_for_none() -> None:
    assert leaders([IMAGE]) == frozenset()


def test_a_stage_that_images_share_is_weighed_once_and_one_that_is_here_not_at_all() -> None:
    plan = select(open_workspace(HOME), ["pytorch-cu130", "pytorch-cpu", "mpi-cpu"]).plan
    images = {image.name: image for image in plan.images}
    mpi, torch, cuda = images["mpi-cpu"], images["pytorch-cpu"], images["pytorch-cu130"]
    alone = expected_bytes([mpi])
    assert 0 < alone < expected_bytes([torch]) < expected_bytes([cuda])
    assert expected_bytes([mpi, torch]) < alone + expected_bytes([torch])
    assert expected_bytes([torch], layer_bytes(mpi)) == expected_bytes([mpi, torch]) - alone


def test_images_on_one_base_with_the_same_stages_need_no_more_space_than_one() -> None:
    image = select(open_workspace(HOME), ["mpi-cpu"]).image
    fleet = [plans.changed(image, name=f"team-{number}") for number in range(12)]

    assert expected_bytes(fleet) == expected_bytes([image]) < 1_000_000_000


def test_layers_of_images_that_the_engine_keeps_need_no_space(tmp_path: Path) -> None:
    image = select(open_workspace(HOME), ["mpi-cpu"]).image
    project, name = ProjectSettings(tmp_path, ()), Digest(image.names[-1])
    record_build(BuiltImage(image, name, name, 42, CONTENT), project)
    (project.state / "built/damaged.json").write_text("{")

    assert expected_bytes([image], kept_layers(project, Engine(name))) == 0
    assert kept_layers(project, Engine()) == frozenset()


def test_an_image_that_differs_keeps_no_other_from_being_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*arguments: object) -> None:
        raise BuildError("`known` is not as declared")

    built: list[str] = []

    def build_new(images: list[Image], context: None, present: list[Image]) -> tuple[BuiltImage, ...]:
        assert present == [old]
        built.extend(image.name for image in images)
        return (BuiltImage(new, fake_engine.DIGEST, fake_engine.DIGEST, 42, CONTENT),)

    old, new = fake_engine.image("known"), fake_engine.image("new")
    recalled = (BuiltImage(old, fake_engine.DIGEST, fake_engine.DIGEST, 42, CONTENT),)
    monkeypatch.setattr("bakehouse.builder.build.up_to_date.find_up_to_date", lambda *arguments: recalled)
    monkeypatch.setattr("bakehouse.builder.build.verify_image", differs)
    monkeypatch.setattr("bakehouse.builder.build.open_context", lambda *arguments: nullcontext())
    monkeypatch.setattr("bakehouse.builder.build.build", build_new)
    with pytest.raises(BuildError, match="`known` is not as declared"):
        build_images(
            ProjectSettings(tmp_path, (), state_directory=tmp_path),
            [old, new],
            FakeEngine(lambda spec: Run()),
            Progress(io.StringIO(), Mode.LINES),
            BuildOptions(),
            VerifiedImages(tmp_path),
        )
    assert built == ["new"]
