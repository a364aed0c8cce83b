"""With a locked suite, each step of an image names the files that it installs."""

import re

import pytest

from bakehouse.catalog.apt_lock import Deb
from bakehouse.errors import RecipeError
from bakehouse.plan.dockerfile import layer_owners, render_image
from bakehouse.plan.model import BootstrappedBase, Image
from tests.support.dockerfiles import stage
from tests.support.errors import raised, refusal
from tests.support.locked_debian import PACKAGES, index
from tests.support.trees import IMAGE, Tree, templates

LOCK = "apt/bookworm.packages"
METIS = """\
summary: METIS
releases:
  - version: "5.1"
    build_packages: [cpp-12, openssl, vim]
    artifacts:
      source: {debian: metis=5.1, file: metis_5.1.orig.tar.xz, sha256: unknown}
"""
METIS_STAGE = """\
{% block build %}
FROM toolchain AS metis
{{ apt(stage.build_apt, debs=stage.packages) }}
{{ download(stage.artifacts.source, "/tmp/source") }}
{% endblock %}
"""
DIVERT = "{% block runtime %}\nRUN dpkg-divert /x\n{% endblock %}\n"
BASE = 9


@pytest.fixture
def locked(tree: Tree) -> Tree:
    """Recipes on a Debian that is locked: an image with an own package and a part that is compiled."""
    tree.write(LOCK, index({**PACKAGES, "vim": {}}))
    tree.component("metis", METIS, METIS_STAGE)
    tree.image(IMAGE.replace("components: {", "packages: [vim]\ncomponents: {metis: '*', "))
    return tree


def names(debs: tuple[Deb, ...]) -> list[str]:
    return [deb.name for deb in debs]


def test_each_step_has_what_it_adds_to_those_below(locked: Tree) -> None:
    image = locked.planned_image()
    assert isinstance(image.base, BootstrappedBase)
    assert len(image.base.debs) == BASE
    assert names(image.toolchain_debs) == ["cpp-12", "gcc", "gcc-12"]
    assert {stage.name: names(stage.debs) for stage in image.stages if stage.debs} == {"metis": ["vim"]}
    assert names(image.apt_debs) == ["vim"]
    assert len(image.debs) == BASE + 4


def test_nothing_is_locked_without_a_lock(tree: Tree) -> None:
    image = tree.planned_image()
    assert (image.debs, image.locks_apt) == ((), False)
    assert "apt-get update" in tree.dockerfile()


def test_a_locked_step_installs_its_files_and_asks_no_mirror(locked: Tree) -> None:
    text = locked.dockerfile()
    assert "apt-get update" not in text
    assert (
        stage(text, "toolchain")
        .partition("\n\n")[0]
        .endswith(
            "\n# Locked packages: gcc\n"
            "RUN --mount=type=bind,from=toolchain-debs,source=/packages,target=/mnt \\\n"
            "    apt-get install -q -y --no-install-recommends /mnt/*.deb"
        )
    )


def test_a_stage_downloads_the_packages_of_a_step(locked: Tree) -> None:
    rows = [f"{deb.sha256} {deb.path}\n" for deb in locked.planned_image().toolchain_debs]
    path = "debs/debian-12/toolchain.txt"
    assert f"source=/{path},target=/mnt/debs.txt" in stage(locked.dockerfile(), "toolchain-debs")
    [content] = [
        file.content for file in render_image(locked.planned_image(), templates()) if file.path.endswith(path)
    ]
    assert content.decode() == "".join(rows)
    order = re.findall(r"(?m)^FROM \S+ AS (\S+)$", locked.dockerfile())
    assert order.index("metis-debs") < order.index("metis")
    assert order.index("image-debs") < order.index("image")


def test_what_the_image_itself_installs_is_linked_as_what_is_new_in_its_base(locked: Tree) -> None:
    text = locked.dockerfile()
    assert stage(text, "system").partition("\n\n")[0] == (
        "FROM base AS system\n"
        "ENV SOURCE_DATE_EPOCH=1767225600 DEBIAN_FRONTEND=noninteractive\n"
        "# Locked packages: vim\n"
        "RUN --mount=type=bind,from=image-debs,source=/packages,target=/mnt \\\n"
        "    apt-get install -q -y --no-install-recommends /mnt/*.deb"
    )
    assert stage(text, "system-layer").startswith(
        "FROM base AS system-layer\n"
        "RUN --mount=type=bind,from=inputs,source=/bin/diff-tree,target=/usr/local/bin/diff-tree \\\n"
        "    --mount=type=bind,from=base,target=/mnt/base "
        "--mount=type=bind,from=system,target=/mnt/system \\\n"
        "    diff-tree /mnt/base /mnt/system /out 1767225600\n"
    )
    assert stage(text, "image").startswith("FROM base AS image\nCOPY --link --from=system-layer /out/ /\n")
    assert "RUN" not in stage(text, "image")
    owners = layer_owners(locked.planned_image(), templates())
    assert [(owner.name, owner.instruction) for owner in owners] == [
        ("packages", "COPY"),
        *((stage.name, "COPY") for stage in locked.planned_image().stages),
    ]


def test_what_a_part_does_with_the_package_database_is_linked_with_the_packages(locked: Tree) -> None:
    locked.component("metis", METIS, METIS_STAGE + DIVERT)
    text = locked.dockerfile()
    assert "dpkg-divert /x" in stage(text, "system")
    assert "RUN" not in stage(text, "image")


def test_all_instructions_without_effect_are_reported(locked: Tree) -> None:
    locked.component("metis", METIS, METIS_STAGE + DIVERT.replace("RUN", "ENV A=1\nRUN true\nUSER me\nRUN"))
    assert [diagnostic.message for diagnostic in raised(RecipeError, locked.dockerfile).diagnostics] == [
        "`ENV` in the `runtime` block of `metis` has no effect on the image",
        "`USER` in the `runtime` block of `metis` has no effect on the image",
    ]


def test_a_component_names_only_files(locked: Tree) -> None:
    locked.component("metis", METIS, METIS_STAGE + DIVERT.replace("RUN", "ENV A=1\nRUN"))
    assert refusal(RecipeError, locked.dockerfile) == (
        "error: `ENV` in the `runtime` block of `metis` has no effect on the image\n"
        "  --> components/metis/install.j2:1:1\n\n"
        "hint: set `environment` or `path` in its component.yaml instead\n"
    )


def test_a_part_that_needs_nothing_more_installs_nothing(locked: Tree) -> None:
    locked.component("metis", METIS.replace("vim", "openssl"), METIS_STAGE)
    assert "metis-debs" not in locked.dockerfile()
    assert "apt-get" not in stage(locked.dockerfile(), "metis")


def test_an_image_that_needs_nothing_more_has_no_layer_of_packages(locked: Tree) -> None:
    locked.image(IMAGE.replace("components: {", "packages: [openssl]\ncomponents: {"))
    assert not locked.planned_image().installs_apt
    assert "AS system" not in locked.dockerfile()
    assert "system-layer" not in stage(locked.dockerfile(), "image")


def test_sources_of_the_distribution_come_from_the_building_machine(locked: Tree) -> None:
    mount = "--mount=type=secret,id=sources,target=/etc/apt/sources.list.d/machine.list"
    assert mount in stage(locked.dockerfile(), "metis")


def test_an_own_step_finds_the_mirrors_of_the_building_machine(locked: Tree) -> None:
    locked.image(IMAGE + "run: [apt-get update]\n")
    text = stage(locked.dockerfile(), "image")
    assert (
        "RUN --mount=type=secret,id=ca --mount=type=secret,id=apt,target=/etc/apt/apt.conf.d/99bakehouse \\\n"
        '    --mount=type=secret,id=sources,target=/etc/apt/sources.list.d/machine.list <<"END"\n'
        "set -e\napt-get update\nEND\n"
    ) in text


def keys(image: Image) -> tuple[str, str, dict[str, str]]:
    return image.base.reference, image.key, {stage.name: stage.key for stage in image.stages}


def test_a_new_version_of_what_the_image_alone_has_leaves_the_stages_as_they_are(locked: Tree) -> None:
    locked.component("metis", METIS.replace(", vim", ""), METIS_STAGE)
    base, key, stages = keys(locked.planned_image())
    locked.write(LOCK, index({**PACKAGES, "vim": {"Version": "2.0"}}))
    new_base, new_key, new_stages = keys(locked.planned_image())
    assert (new_base, new_stages) == (base, stages)
    assert new_key != key


def test_a_new_version_of_what_one_part_needs_changes_its_stage_alone(locked: Tree) -> None:
    _, _, stages = keys(locked.planned_image())
    locked.write(LOCK, index({**PACKAGES, "vim": {"Version": "2.0"}}))
    _, _, new_stages = keys(locked.planned_image())
    assert {name for name in stages if stages[name] != new_stages[name]} == {"metis"}


def test_a_new_version_of_what_the_base_has_changes_all(locked: Tree) -> None:
    base, key, stages = keys(locked.planned_image())
    locked.write(LOCK, index({**PACKAGES, "vim": {}, "gpgv": {"Version": "2.0"}}))
    new_base, new_key, new_stages = keys(locked.planned_image())
    assert base != new_base
    assert key != new_key
    assert not {*stages.values()} & {*new_stages.values()}


@pytest.mark.parametrize(
    ("packages", "package", "message"),
    [
        ({}, "emacs", "image `small` needs `emacs`, which is not locked for Debian `bookworm`"),
        (
            {"vim": {"Version": "2.0"}},
            "vim=1.0",
            "image `small` needs `vim=1.0`, but 2.0 is locked for Debian `bookworm`",
        ),
    ],
)
def test_a_package_that_is_not_locked_is_a_mistake(
    tree: Tree, packages: dict[str, dict[str, str]], package: str, message: str
) -> None:
    tree.write(LOCK, index({**PACKAGES, **packages}))
    tree.image(IMAGE + f"packages: [{package}]\n")
    text = refusal(RecipeError, tree.plan)
    assert f"error: {message}\n" in text
    assert "hint: run `bake lock small`" in text


def test_packages_of_stages_and_components_are_reported_with_what_needs_them(tree: Tree) -> None:
    tree.write(LOCK, index({name: PACKAGES[name] for name in PACKAGES if name not in ("gcc", "gcc-12")}))
    tree.component("metis", METIS, METIS_STAGE)
    tree.image(IMAGE.replace("components: {", "components: {metis: '*', "))
    assert [diagnostic.message for diagnostic in raised(RecipeError, tree.plan).diagnostics] == [
        "every build stage needs `gcc`, which is not locked for Debian `bookworm`",
        "building `metis` needs `vim`, which is not locked for Debian `bookworm`",
    ]
