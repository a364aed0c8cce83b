"""On a base that is pulled and has a lock, steps install files that are known, as its apt chose them."""

import json

import pytest

from bakehouse.catalog.apt_lock import Deb
from bakehouse.errors import RecipeError
from bakehouse.fetch.required_files import required_files
from bakehouse.maintain import stub_plan
from bakehouse.maintain.stub_plan import Stubs
from bakehouse.plan import dockerfile, image_lock
from bakehouse.plan.dockerfile import layer_owners
from bakehouse.plan.model import Image
from tests.support.dockerfiles import stage
from tests.support.errors import refusal
from tests.support.locked_debian import stanza
from tests.support.trees import Tree, templates

DIGEST, DEVEL = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"
RUNTIME_BASE, DEVEL_BASE = f"nvidia/cuda:12.8@{DIGEST}", f"nvidia/cuda:12.8-devel@{DEVEL}"
RUNTIME_LOCK, DEVEL_LOCK = (
    "apt/bases/nvidia-cuda-12.8-abababab.packages",
    "apt/bases/nvidia-cuda-12.8-devel-cdcdcdcd.packages",
)
SITE = {"Site": "http://mirror.example/ubuntu"}
BASE = f"""\
summary: CUDA
releases:
  - version: "12.8"
    facts: {{stale_sources: /etc/apt/sources.list.d/cuda.list}}
    build_packages: [gcc]
    base: {{image: "nvidia/cuda:12.8", digest: "{DIGEST}", build_image: "{DEVEL_BASE}"}}
"""
METIS = """\
summary: METIS
releases:
  - {version: "5.1", build_packages: [cmake]}
"""
METIS_STAGE = """\
{% block build %}
FROM toolchain AS metis
{{ apt(stage.build_apt, debs=stage.packages) }}
RUN make
{% endblock %}
"""
IMAGE = 'summary: x\nbase: {cuda-base: "12.8"}\ncomponents: {metis: "*"}\npackages: [vim]\n'


def lock(base: str, steps: dict[str, str]) -> str:
    """A lock of a base: what each step adds."""
    names = sorted({name for adds in steps.values() for name in adds.split()})
    step_texts = [f"Step: {step}\nAdds: {adds}\n" for step, adds in steps.items()]
    return "\n".join([f"Base: {base}\n", *step_texts, *(stanza(name, SITE) for name in names)])


@pytest.fixture
def pulled(tree: Tree) -> Tree:
    """An image on a base that is pulled, whose build stages start from another one; both have locks."""
    tree.component("cuda-base", BASE)
    tree.component("metis", METIS, METIS_STAGE)
    tree.image(IMAGE)
    tree.write(RUNTIME_LOCK, lock(RUNTIME_BASE, {"vim": "vim vim-common"}))
    tree.write(DEVEL_LOCK, lock(DEVEL_BASE, {"gcc": "gcc libc6-dev", "cmake gcc": "cmake gcc libc6-dev"}))
    return tree


def names(debs: tuple[Deb, ...]) -> list[str]:
    return [deb.name for deb in debs]


def mistakes(tree: Tree) -> str:
    return refusal(RecipeError, tree.plan)


def key(image: Image) -> tuple[str, str]:
    return image.key, image.stages[0].key


def test_each_step_has_what_it_adds_to_those_below(pulled: Tree) -> None:
    image = pulled.planned_image()
    assert image.locks_apt
    assert names(image.toolchain_debs) == ["gcc", "libc6-dev"]
    assert names(image.stages[0].debs) == ["cmake"]
    assert names(image.apt_debs) == ["vim", "vim-common"]


def test_nothing_is_locked_where_no_base_has_a_lock(pulled: Tree) -> None:
    for path in (RUNTIME_LOCK, DEVEL_LOCK):
        (pulled.root / path).unlink()
    image = pulled.planned_image()
    assert (image.locks_apt, image.debs) == (False, ())
    assert pulled.dockerfile().count("apt-get update") == 3


def test_a_locked_step_asks_no_mirror(pulled: Tree) -> None:
    text = pulled.dockerfile()
    assert "apt-get update" not in text
    install = "    apt-get install -q -y --no-install-recommends /mnt/*.deb\n"
    for name, packages in (("toolchain", "gcc"), ("metis", "cmake")):
        assert f"# Locked packages: {packages}\nRUN " in stage(text, name)
        assert install in stage(text, name)
    image = pulled.planned_image()
    [vim, common] = image.apt_debs
    rows = f"{vim.sha256} {vim.path} {vim.site}\n{common.sha256} {common.path} {common.site}\n"
    assert image.inputs[image.apt_list].decode() == rows
    assert f"source=/{image.apt_list}," in stage(text, "image-debs")


def test_the_image_installs_its_packages_in_a_step_that_leaves_no_trace(pulled: Tree) -> None:
    text = stage(pulled.dockerfile(), "image")
    assert text.startswith(
        "FROM base AS image\n"
        "# apt can no longer refresh /etc/apt/sources.list.d/cuda.list of the base image\n"
        "# Locked packages: vim\n"
        "RUN --mount=type=bind,from=image-debs,source=/packages,target=/mnt \\\n"
        "    --mount=type=bind,from=inputs,source=/bin/finish-step,target=/usr/local/bin/finish-step "
        "--mount=type=bind,from=base,target=/run/base \\\n"
        "    export DEBIAN_FRONTEND=noninteractive SOURCE_DATE_EPOCH=1767225600 && \\\n"
        "    rm -f /etc/apt/sources.list.d/cuda.list && \\\n"
        "    apt-get install -q -y --no-install-recommends /mnt/*.deb && \\\n"
        "    finish-step 1767225600\n"
    )
    assert "AS system" not in pulled.dockerfile()
    owners = layer_owners(pulled.planned_image(), templates())
    assert [(owner.name, owner.instruction) for owner in owners] == [("packages", "RUN"), ("metis", "COPY")]


def test_an_own_step_finds_the_mirrors_of_the_base(pulled: Tree) -> None:
    pulled.image(IMAGE + "run: [apt-get update]\n")
    assert '\nRUN <<"END"\nset -e\napt-get update\nEND\n' in stage(pulled.dockerfile(), "image")


def test_files_are_fetched_from_where_apt_of_the_base_found_them(pulled: Tree) -> None:
    files = {file.file: file for file in required_files([pulled.planned_image()]).files}
    address = "http://mirror.example/ubuntu/pool/main/v/vim/vim_1.0_amd64.deb"
    assert (files["vim_1.0_amd64.deb"].kind, files["vim_1.0_amd64.deb"].address) == ("deb", address)
    assert len(files) == 5


def test_the_lock_of_the_image_names_each_file(pulled: Tree) -> None:
    rows = json.loads(image_lock.text(pulled.planned_image()))["system"]
    assert [row["name"] for row in rows] == ["cmake", "gcc", "libc6-dev", "vim", "vim-common"]
    assert all(row["sha256"] and row["bytes"] for row in rows)


def test_a_lock_changes_the_keys_of_what_it_is_about(pulled: Tree) -> None:
    before = key(pulled.planned_image())
    pulled.write(RUNTIME_LOCK, lock(RUNTIME_BASE, {"vim": "vim vim-common vim-runtime"}))
    after = key(pulled.planned_image())
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_an_image_with_a_lock_has_another_key_also_where_its_steps_add_nothing(pulled: Tree) -> None:
    pulled.write(RUNTIME_LOCK, lock(RUNTIME_BASE, {"vim": ""}))
    pulled.write(DEVEL_LOCK, lock(DEVEL_BASE, {"gcc": "", "cmake gcc": ""}))
    with_lock = key(pulled.planned_image())
    for path in (RUNTIME_LOCK, DEVEL_LOCK):
        (pulled.root / path).unlink()
    assert {*with_lock}.isdisjoint(key(pulled.planned_image()))


def test_a_step_that_is_not_locked_is_a_mistake(pulled: Tree) -> None:
    pulled.image(IMAGE.replace("vim", "emacs"))
    assert mistakes(pulled) == (
        "error: image `small` needs packages on `nvidia/cuda:12.8` that are not locked: emacs\n"
        "  --> images/small.yaml:1:1\n   |\n 1 | summary: x\n   | ^\n\n"
        "hint: run `bake lock small`\n"
    )


def test_an_image_is_locked_where_all_of_its_bases_are(pulled: Tree) -> None:
    (pulled.root / DEVEL_LOCK).unlink()
    image = pulled.planned_image()
    assert (image.locks_apt, image.debs) == (False, ())


def test_an_image_without_build_stages_needs_no_lock_of_their_base(pulled: Tree) -> None:
    (pulled.root / DEVEL_LOCK).unlink()
    pulled.image(IMAGE.replace('components: {metis: "*"}\n', ""))
    image = pulled.planned_image()
    assert image.locks_apt
    assert names(image.debs) == ["vim", "vim-common"]


def test_a_lock_of_another_digest_is_a_mistake(pulled: Tree) -> None:
    pulled.component("cuda-base", BASE.replace(DIGEST, f"sha256:{'ef' * 32}"))
    text = mistakes(pulled)
    assert "error: image `small` needs packages on `nvidia/cuda:12.8` that are not locked: vim\n" in text
    assert f"`nvidia-cuda-12.8-abababab.packages` locks {DIGEST}" in text
    assert "hint: run `bake lock small`\n" in text


def test_a_lock_of_a_base_without_a_digest_is_a_mistake(pulled: Tree) -> None:
    pulled.component("cuda-base", BASE.replace(f', digest: "{DIGEST}"', ""))
    assert (
        "hint: add the digest of the base to its component, because a lock is valid for one digest only\n"
    ) in mistakes(pulled)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (DEVEL, "sha256:12", f"`{DEVEL_BASE.replace(DEVEL, 'sha256:12')}` has no digest after `@`"),
        ("nvidia/cuda:12.8", f"nvidia/cuda:12.8@{DIGEST}", "write the digest of a base as `digest`"),
    ],
)
def test_a_digest_in_the_wrong_place_or_form_is_a_mistake(
    pulled: Tree, old: str, new: str, message: str
) -> None:
    pulled.component(
        "cuda-base", BASE.replace(f'"{old}"', f'"{new}"') if "@" in new else BASE.replace(old, new)
    )
    assert f"error: {message}" in mistakes(pulled)


def test_a_rehearsal_uses_the_mirrors_of_the_stub(pulled: Tree) -> None:
    real = pulled.planned_image()
    needs = stub_plan.required_bases(real)
    stubs = Stubs({}, {need: f"stub/{number}:1" for number, need in enumerate(needs)})
    image = stub_plan.rehearse(real, {"metis": []}, stubs).image
    text = dockerfile.render_image(image, templates())[0].content.decode()
    assert not image.locks_apt
    assert text.count("apt-get update") == 3
    assert "-debs" not in text
