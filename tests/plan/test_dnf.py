"""Packages on a base with dnf: Dockerfiles, keys, and names that are missing or invalid."""

import pytest

from bakehouse.errors import RecipeError
from bakehouse.plan import dockerfile
from bakehouse.plan.image_lock import text as lock_text
from bakehouse.plan.model import Image
from bakehouse.plan.planner import make_plan
from tests.support.errors import refusal
from tests.support.trees import Tree, templates

VENDOR = """\
summary: A vendor's image
releases:
  - version: "1.0"
    base: {image: "house/amazon:1", digest: unknown}
    provides: {amazon-linux: "2023", python: "3.12"}
  - version: "0.9"
    base: {image: "house/ubuntu:1", digest: unknown}
    provides: {ubuntu: "22.04", python: "3.12"}
"""
TOOL = """\
summary: A tool
packages: {apt: [libtool1]}
releases: [{version: "2.0"}]
"""
IMAGE = 'summary: x\nbase: {vendor: "1.0"}\n'


@pytest.fixture
def tree(empty: Tree) -> Tree:
    empty.component("vendor", VENDOR)
    return empty


def planned(tree: Tree, text: str) -> Image:
    tree.image(text)
    (image,) = make_plan([tree.resolve("small")], templates()).images
    return image


def rendered(tree: Tree, text: str) -> str:
    image = planned(tree, text)
    return dockerfile.render_image(image, templates())[0].content.decode()


def test_the_image_installs_with_dnf(tree: Tree) -> None:
    text = rendered(tree, IMAGE + "packages: {dnf: [make, gcc-c++, SDL2-devel]}\n")

    assert (
        "RUN --mount=type=secret,id=ca,target=/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem \\\n"
        "    --mount=type=bind,from=inputs,source=/bin/finish-step,target=/usr/local/bin/finish-step"
        " --mount=type=bind,from=base,target=/run/base \\\n"
        "    dnf install -y --setopt=install_weak_deps=False \\\n"
        "        SDL2-devel gcc-c++ make && \\\n"
        "    dnf clean all && rm -rf /var/cache/dnf && \\\n"
        "    finish-step 1767225600\n"
    ) in text
    assert "apt" not in text


def test_the_header_says_that_the_packages_are_not_locked(tree: Tree) -> None:
    text = rendered(tree, IMAGE + "packages: [make]\n")

    assert (
        "# NOT PINNED: house/amazon:1 has no recorded digest, so `bake push` refuses this image.\n"
        "# NOT LOCKED: packages of dnf have no recorded sha256. Their versions are those of the release of "
        "Amazon Linux that the\n# package system-release of the base names.\n"
        "# hadolint global ignore=DL3041\n\n# Scripts, package lists"
    ) in text


def test_a_base_can_name_the_release_of_amazon_linux(tree: Tree) -> None:
    release = '    facts: {releasever: "2023.9.20251117"}\n'
    tree.component("vendor", VENDOR.replace('  - version: "0.9"', release + '  - version: "0.9"'))

    text = rendered(tree, IMAGE + "packages: [make]\n")

    assert "dnf install -y --setopt=install_weak_deps=False --releasever=2023.9.20251117 \\\n" in text
    assert "Their versions are those of Amazon Linux 2023.9.20251117.\n" in text


def test_a_build_stage_installs_with_dnf(tree: Tree) -> None:
    template = (
        "{% block build %}\nFROM toolchain AS tool\n{{ apt(stage.build_apt) -}}\nRUN make\n{% endblock %}\n"
    )
    tree.component("tool", TOOL.replace("packages: {apt: [libtool1]}", "build_packages: [make]"), template)

    text = rendered(tree, IMAGE + 'components: {tool: "*"}\n')

    assert (
        "FROM toolchain AS tool\n"
        "RUN --mount=type=secret,id=ca,target=/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem \\\n"
        "    dnf install -y --setopt=install_weak_deps=False \\\n"
        "        make && \\\n"
        "    dnf clean all && rm -rf /var/cache/dnf\nRUN make\n"
    ) in text


def test_an_image_without_packages_is_independent_of_the_macros_of_dnf(tree: Tree) -> None:
    tree.image(IMAGE)
    resolution = tree.resolve("small")
    changed = {**templates(), "dnf.j2": "{# changed #}"}

    assert (
        make_plan([resolution], changed).images[0].key == make_plan([resolution], templates()).images[0].key
    )


def test_an_image_with_packages_depends_on_the_steps_of_dnf(tree: Tree) -> None:
    tree.image(IMAGE + "packages: [make]\n")
    resolution = tree.resolve("small")

    def key(text: str) -> str:
        return make_plan([resolution], {**templates(), "dnf.j2": text}).images[0].key

    text = templates()["dnf.j2"]
    assert key(text + "{# a comment #}") == key(text)
    assert key(text.replace("dnf install", "dnf --quiet install")) != key(text)


@pytest.mark.parametrize(("version", "names"), [("1.0", ("gcc-c++",)), ("0.9", ("g++",))])
def test_each_base_gets_the_names_of_its_manager(tree: Tree, version: str, names: tuple[str, ...]) -> None:
    packages = "packages: {apt: [g++], dnf: [gcc-c++]}\n"

    assert planned(tree, IMAGE.replace("1.0", version) + packages).apt == names


def test_a_recipe_without_names_for_dnf_is_refused(tree: Tree) -> None:
    text = refusal(RecipeError, planned, tree, IMAGE + "packages: {apt: [g++]}\n")
    assert text.startswith("error: `packages` of image `small` has no names for dnf\n")
    assert "`vendor` uses dnf" in text
    assert "hint: add `dnf: [NAMES]`, or `dnf: []` if it needs none\n" in text


def test_a_component_without_names_for_dnf_is_refused(tree: Tree) -> None:
    tree.component("tool", TOOL)

    text = refusal(RecipeError, planned, tree, IMAGE + 'components: {tool: "*"}\n')
    assert text.startswith("error: `packages` of tool 2.0 has no names for dnf\n")
    assert "image `small` contains tool 2.0" in text
    assert "hint: add `dnf: [NAMES]` to the component, or use a base with another manager\n" in text


def test_an_empty_list_says_that_a_component_needs_no_package(tree: Tree) -> None:
    tree.component("tool", TOOL.replace("{apt: [libtool1]}", "{apt: [libtool1], dnf: []}"))

    assert planned(tree, IMAGE + 'components: {tool: "*"}\n').apt == ()


def test_a_version_of_apt_is_refused(tree: Tree) -> None:
    text = refusal(RecipeError, planned, tree, IMAGE + "packages: [vim=9.1]\n")
    assert text.startswith("error: `vim=9.1` is not a valid package name of dnf\n")
    assert "`vendor` uses dnf" in text
    assert "hint: write a version as `vim-9.1`\n" in text


def test_the_lock_lists_the_packages_without_a_version(tree: Tree) -> None:
    lock = lock_text(planned(tree, IMAGE + "packages: [make]\n"))

    assert '"make"' in lock
    assert "null" in lock
