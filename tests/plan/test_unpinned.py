"""One list of the inputs that nothing pins, for lint, Dockerfiles and the gate."""

import pytest

from bakehouse.catalog.base_image_lock import read_locks
from bakehouse.errors import NotReleasableError
from bakehouse.evidence.gate import check_pinned
from bakehouse.plan.dockerfile import render_image
from bakehouse.plan.model import Image
from bakehouse.plan.planner import make_plan
from bakehouse.plan.unpinned import unpinned_inputs, unpinned_lines
from tests.support.errors import raised
from tests.support.trees import Tree, templates

DIGEST = f"sha256:{'ab' * 32}"
VENDOR = """\
summary: Vendor
releases:
  - version: "1"
    base: {image: house/vendor:1%s}
    provides: {glibc: "2.36", %s}
"""
PYTHON = """\
summary: Tool
releases: [{version: "1", artifacts: {file: {url: "https://x.example/f.tgz", sha256: unknown}}}]
"""
IMAGE = "summary: x\nbase: vendor\n"
MANAGERS = {"apt": 'debian: "12"', "dnf": 'amazon-linux: "2023"'}


def planned(tree: Tree, text: str, manager: str = "apt", digest: str = DIGEST) -> Image:
    tree.component("vendor", VENDOR % (digest and f", digest: {digest}", MANAGERS[manager]))
    tree.component("tool", PYTHON, "{% block build %}\nFROM toolchain AS tool\nRUN make\n{% endblock %}\n")
    tree.image(text)
    [image] = make_plan([tree.resolve("small")], templates(), locks=read_locks([tree.root])).images
    return image


def texts(image: Image) -> list[str]:
    return [item.text for item in unpinned_inputs(image)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("packages: [vim, curl]\n", ["packages of apt: curl vim"]),
        ("packages: [vim=2.1, curl]\n", ["packages of apt: curl"]),
        ("packages: [vim=2.1]\n", []),
        ("run: [make, make install]\n", ["steps 1, 2 of `run`, which may use the network"]),
        (
            "packages: [vim]\nrun: [make]\n",
            ["packages of apt: vim", "step 1 of `run`, which may use the network"],
        ),
    ],
)
def test_packages_without_versions_and_steps_are_named_and_published(
    empty: Tree, text: str, expected: list[str]
) -> None:
    image = planned(empty, IMAGE + text)
    dockerfile = render_image(image, templates())[0].content.decode()

    assert texts(image) == expected
    assert [line[14:] for line in dockerfile.splitlines() if line.startswith("# NOT PINNED: ")] == expected
    assert dockerfile.index("# NOT PINNED") < dockerfile.index("FROM ") if expected else True
    check_pinned(image)


def test_packages_of_a_locked_base_are_pinned(empty: Tree) -> None:
    lock = f"Base: house/vendor:1@{DIGEST}\n\nStep: vim\nAdds:\n"
    empty.write("apt/bases/house-vendor-1-abababab.packages", lock)

    assert texts(planned(empty, IMAGE + "packages: [vim]\n")) == []


def test_packages_of_dnf_are_named(empty: Tree) -> None:
    image = planned(empty, IMAGE + "packages: [make]\nrun: [make]\n", "dnf")
    dockerfile = render_image(image, templates())[0].content.decode()

    assert texts(image) == ["packages of dnf: make", "step 1 of `run`, which may use the network"]
    assert "# NOT PINNED: step 1 of `run`, which may use the network\n" in dockerfile
    assert "# NOT LOCKED: packages of dnf" in dockerfile


def test_bases_and_files_without_checksums_are_refused(empty: Tree) -> None:
    image = planned(empty, IMAGE + "components: {tool: '1'}\n", digest="")

    assert texts(image) == ["base house/vendor:1", "file f.tgz"]
    error = raised(NotReleasableError, check_pinned, image)
    assert [diagnostic.message for diagnostic in error.diagnostics] == [
        "the base of `small`, `house/vendor:1`, is not pinned to a digest",
        "the sha256 of `file` in `small` is unknown",
    ]


def test_lint_names_the_images_with_the_same_inputs_in_one_line(empty: Tree) -> None:
    image = planned(empty, IMAGE + "packages: [vim]\nrun: [make]\n")

    assert unpinned_lines((image, image)) == (
        "not pinned in small, small: packages of apt: vim; step 1 of `run`, which may use the network",
    )


def pinned(image: Image) -> list[bool]:
    return [layer.is_pinned for layer in image.layer_keys]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run: [{command: make, network: false}]\n", [True]),
        ("run: [{command: make, network: false}, make, {command: make, network: false}]\n", [False] * 3),
        ("components: {tool: '*'}\nrun: [{command: make, network: false}]\n", [False, False]),
        ("packages: [vim]\nrun: [{command: make, network: false}]\n", [False, False]),
    ],
)
def test_a_layer_above_what_nothing_pins_has_no_known_result(
    empty: Tree, text: str, expected: list[bool]
) -> None:
    assert pinned(planned(empty, IMAGE + text)) == expected


def test_no_layer_on_a_tag_has_a_known_result(empty: Tree) -> None:
    text = f"{IMAGE}run: [{{command: make, network: false}}]\n"

    assert pinned(planned(empty, text, digest="")) == [False]
