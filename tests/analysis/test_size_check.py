"""Images of an engine's store, weighed and held to their budgets."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bakehouse.analysis.size_check import SizeReader, layer_names, require_budgets, stored_images
from bakehouse.builder.built_image import BuiltImage
from bakehouse.builder.pack import Packer
from bakehouse.engine.protocol import StoredImage
from bakehouse.errors import BuildError, EngineError, UsageError
from bakehouse.plan import dockerfile
from bakehouse.plan.model import Image
from bakehouse.registry.manifest import FORMS, content_id, digest_of
from bakehouse.util import terminal
from tests.support import plans
from tests.support.dockerfiles import instructions
from tests.support.errors import error_text, raised, refusal
from tests.support.fake_engine import CONTENT, DIGEST, FakeEngine, Run, image
from tests.support.layer_archives import Form, Member, config_of, layer, saved
from tests.support.trees import IMAGE, Tree, templates

BASE = layer(Member("bin/sh", b"1" * 1000))
RANDOM = bytes(range(256)) * 16
LAYERS = (
    BASE,
    layer(Member("python", b"p")),
    layer(Member("opt/torch/lib/libtorch.so", RANDOM), Member("opt/torch/a.h", b"12")),
    layer(Member("toolkit", b"t")),
)
MADE_BY = ("Debian bookworm", *["COPY /out/ / # buildkit"] * 3)

CONFIG = config_of(LAYERS, MADE_BY)


class Machine:
    """An engine with the one image, and its progress messages."""

    def __init__(self, state: Path, form: Form = "none", made_by: Sequence[str] = MADE_BY) -> None:
        self.engine = FakeEngine(lambda spec: Run())
        self.engine.archives[DIGEST] = saved(LAYERS, made_by, form)
        self.messages: list[str] = []
        self.packer = Packer(self.engine, state)
        self.scale = SizeReader(self.packer, templates(), self.messages.append)

    def documents(self) -> int:
        """The bytes of manifest and configuration."""
        packed = self.packer.pack(built(image()), FORMS["docker"], print)
        return len(packed.manifest.content) + len(packed.config)


def built(image: Image) -> BuiltImage:
    return BuiltImage(image, digest_of(config_of(LAYERS, MADE_BY)), DIGEST, 1, CONTENT)


@pytest.mark.parametrize("form", ["none", "gzip", "zstd"])
def test_an_image_is_measured_by_its_parts(tree: Tree, tmp_path: Path, form: Form) -> None:
    """However the engine stores it."""
    machine = Machine(tmp_path, form)
    size = machine.scale.size(built(tree.planned_image()))

    assert [(layer.owner, layer.unpacked) for layer in size.layers] == [
        ("debian", 1000),
        ("python", 1),
        ("torch", 4098),
        ("toolkit", 1),
    ]
    assert size.stored == sum(layer.stored for layer in size.layers) + machine.documents()


def test_everything_that_makes_a_layer_has_its_owner(tree: Tree) -> None:
    tree.component(
        "toolkit",
        (tree.root / "components/toolkit/component.yaml").read_text(),
        "{% block build %}\nFROM toolchain AS toolkit\nRUN finish toolkit\n{% endblock %}\n"
        '{% block runtime %}\nRUN <<"END"\nset -e\nCOPY no instruction\nEND\n'
        'ENV A=1\nCOPY --chmod=755 <<"END" /x\n'
        "RUN neither\nEND\nWORKDIR /y\n{% endblock %}\n",
    )
    tree.write("images/tool", "x")
    extra = "packages: [htop]\nrun: [echo a, echo b]\nfiles: [{from: tool, to: /opt/tool}]\n"
    tree.image(IMAGE + extra)

    owners = dockerfile.layer_owners(tree.planned_image(), templates())

    assert [(owner.name, owner.instruction) for owner in owners] == [
        ("packages", "RUN"),
        ("toolkit", "RUN"),
        ("toolkit", "COPY"),
        ("toolkit", "WORKDIR"),
        ("python", "COPY"),
        ("torch", "COPY"),
        ("toolkit", "COPY"),
        ("files", "COPY"),
        ("run", "RUN"),
        ("run", "RUN"),
    ]
    words = [instruction.word for instruction in instructions(tree.dockerfile())]
    last_stage = words[len(words) - 1 - words[::-1].index("FROM") :]
    assert [owner.instruction for owner in owners] == [
        word for word in last_stage if word in ("RUN", "COPY", "ADD", "WORKDIR")
    ]


def test_all_layers_below_the_dockerfiles_are_the_bases(tree: Tree) -> None:
    made_by = ("ADD file:1", "RUN apt-get", *["COPY /out/ / # buildkit"] * 3)

    names = layer_names(tree.planned_image(), made_by, templates())

    assert names == ("debian", "debian", "python", "torch", "toolkit")


@pytest.mark.parametrize("made_by", [MADE_BY[2:], (*MADE_BY[:3], "RUN /bin/sh -c evil")])
def test_layers_that_do_not_match_the_dockerfile_are_not_guessed(
    tree: Tree, made_by: tuple[str, ...]
) -> None:
    assert refusal(EngineError, layer_names, tree.planned_image(), made_by, templates()) == (
        "error: the layers of image `small` in the engine do not match its Dockerfile\n"
        f"  in the engine      {len(made_by)}\n"
        "  in the Dockerfile  3, without those of the base\n"
        "\n"
        "hint: run `bake build small`\n"
    )


def test_long_reading_is_reported(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_is_verbose", True)
    machine, times = Machine(tmp_path), iter([0.0, 5.0, 5.0, 6.0])
    machine.scale.clock = lambda: next(times)

    machine.scale.size(built(tree.planned_image()))

    assert len([message for message in machine.messages if "compressed layer" in message]) == len(LAYERS)
    assert machine.messages[len(LAYERS) :] == [
        f"small: {len(machine.engine.archives[DIGEST]) / 1000:.0f} kB read"
    ]


def test_an_image_that_is_not_built_is_reported_with_the_command(tree: Tree, tmp_path: Path) -> None:
    class Empty(FakeEngine):
        def image(self, reference: str) -> StoredImage | None:
            return None

    with pytest.raises(UsageError) as caught:
        stored_images(Packer(Empty(lambda spec: Run()), tmp_path), [tree.planned_image()], ["small"], print)

    assert error_text(caught.value) == (
        "error: image `small` is missing: it was not built from its current recipe\n"
        "\n"
        "hint: run `bake build small`\n"
    )


def test_of_a_glob_what_is_not_built_is_left_out(tree: Tree, tmp_path: Path) -> None:
    class One(FakeEngine):
        def image(self, reference: str) -> StoredImage | None:
            return StoredImage(DIGEST, 1) if "other" in reference else None

        def read_config(self, reference: str) -> bytes:
            return CONFIG

    image = tree.planned_image()
    messages: list[str] = []
    other = plans.changed(image, name="other")

    packer = Packer(One(lambda spec: Run()), tmp_path)

    stored = stored_images(packer, [image, other], ["*"], messages.append)

    assert stored == (BuiltImage(other, digest_of(CONFIG), DIGEST, 1, content_id(CONFIG)),)
    assert messages == ["1 of 2 images are missing: not built from their current recipes"]


def budget(tree: Tree, text: str) -> Image:
    tree.image(f"{IMAGE}budget: {text}\n")
    return tree.planned_image()


def test_an_image_within_its_budget_is_fine(tree: Tree, tmp_path: Path) -> None:
    image = budget(tree, "{torch: 1 MB, image: 1 MB, requirements: 0 kB}")

    require_budgets(Machine(tmp_path).scale, [built(image)])


def test_a_component_over_its_budget_is_reported_with_its_directories(tree: Tree, tmp_path: Path) -> None:
    image = budget(tree, "{python: 1 MB, torch: 0.1 kB}")
    machine = Machine(tmp_path)
    weight = machine.scale.pushed_sizes(built(image))["torch"]

    error = raised(BuildError, require_budgets, machine.scale, [built(image)])

    assert error_text(error) == (
        "error: `torch` of image `small` exceeds its size budget\n"
        "  --> images/small.yaml:5:31\n"
        "   |\n"
        " 5 | budget: {python: 1 MB, torch: 0.1 kB}\n"
        f"   |                               ^^^^^^ the size as pushed is {weight} bytes,"
        f" {weight - 100} bytes more\n"
        "\n"
        "largest directories, unpacked:\n"
        "  /opt/torch/lib  4 kB\n"
        "\n"
        "hint: run `bake sizes small` for details\n"
    )
    assert error.exit_code == 5


def test_an_image_over_its_budget_is_reported_with_its_components(tree: Tree, tmp_path: Path) -> None:
    image = budget(tree, "{image: 0.1 kB}")
    weights = Machine(tmp_path).scale.pushed_sizes(built(image))

    error = raised(BuildError, require_budgets, Machine(tmp_path).scale, [built(image)])

    ordered = sorted((name for name in weights if name != "image"), key=lambda name: -weights[name])
    width = max(map(len, ordered))
    rows = "".join(f"  {name.ljust(width)}  {weights[name]} bytes\n" for name in ordered)
    assert "error: image `small` exceeds its size budget\n" in error_text(error)
    assert f"\nlargest components as pushed:\n{rows}" in error_text(error)


def test_what_was_compressed_once_is_not_read_again(tree: Tree, tmp_path: Path) -> None:
    require_budgets(Machine(tmp_path).scale, [built(budget(tree, "{torch: 1 MB}"))])
    machine = Machine(tmp_path)
    machine.engine.archives.clear()

    require_budgets(machine.scale, [built(budget(tree, "{torch: 1 MB}"))])


def test_an_image_without_a_budget_is_not_read(tree: Tree, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.engine.archives.clear()

    require_budgets(machine.scale, [built(tree.planned_image())])
