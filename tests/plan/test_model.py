"""Stages and images addressed by what goes into them."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.plan.model import BootstrappedBase, RegistryBase
from bakehouse.plan.planner import make_plan
from tests.support.trees import COMPONENTS, IMAGE, SHA, Tree, keys, templates

Edit = Callable[[Tree], object]
TORCH = COMPONENTS["torch"].replace(
    "requires: {glibc",
    """\
artifacts:
      wheel: {url: "https://example.org/torch.whl", sha256: SHA}
    lock: lock.txt
    build_packages: [cmake]
    facts: {jobs: "2"}
    requires: {glibc""".replace("SHA", SHA),
)
TORCH_STEPS = """\
{% block build %}
FROM {{ package_stage }} AS torch
RUN {{ mount(stage.file("tool"), "/mnt/tool") }} /mnt/tool {{ version }} {{ stage.facts.jobs }}
{{ packages(stage, pip) }}
{% endblock %}
"""
PYTHON_STEPS = """\
{% block build %}
FROM toolchain AS venv
RUN python3 -m venv /opt/venv

FROM venv AS python
RUN finish python
{% endblock %}
"""
LOCK = (
    f"numpy==2.0 --hash=sha256:{SHA}  # numpy-2.0.whl 20\nscipy==1.0 --hash=sha256:{SHA}  # scipy.tar.gz 22\n"
)


@pytest.fixture
def rich(tree: Tree) -> Tree:
    """An image with something of every kind in it."""
    tree.component("torch", TORCH, TORCH_STEPS)
    tree.component("python", COMPONENTS["python"], PYTHON_STEPS)
    tree.write("components/torch/lock.txt", LOCK)
    tree.write("components/torch/files/tool", "#!/bin/sh\n")
    tree.write("images/src/train.py", "pass\n")
    tree.write("images/own.lock", f"mine==1 --hash=sha256:{SHA}  # mine.whl 5\n")
    tree.image(
        IMAGE
        + """\
packages: [htop]
environment: {A: "1", B: "2"}
run: [echo a]
files: [{from: src/train.py, to: /opt/train.py}]
code: {directory: src, entry_point: train.py}
requirements: own.lock
"""
    )
    return tree


def edit(path: str, old: str, new: str) -> Edit:
    def change(tree: Tree) -> None:
        text = (tree.root / path).read_text()
        assert old in text
        tree.write(path, text.replace(old, new))

    return change


def changed(tree: Tree, change: Edit) -> set[str]:
    """Return the stages and images whose keys a change moves."""
    before = keys(tree.planned_image())
    change(tree)
    after = keys(tree.planned_image())
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


IN_TORCH: dict[str, Edit] = {
    "sha256 of an artifact": edit("components/torch/component.yaml", SHA, SHA[::-1]),
    "address of an artifact": edit("components/torch/component.yaml", "org/torch.whl", "org/a/torch.whl"),
    "file of an artifact": edit("components/torch/component.yaml", "torch.whl", "torch2.whl"),
    "version of a package": edit("components/torch/lock.txt", "2.0 --", "2.1 --"),
    "sha256 of a package": edit("components/torch/lock.txt", SHA, SHA[::-1]),
    "one package less": edit("components/torch/lock.txt", LOCK.splitlines(keepends=True)[0], ""),
    "template": edit("components/torch/install.j2", "RUN", "RUN true &&"),
    "content of a file": edit("components/torch/files/tool", "sh", "bash"),
    "fact": edit("components/torch/component.yaml", 'jobs: "2"', 'jobs: "3"'),
    "apt package of the build": edit("components/torch/component.yaml", "[cmake]", "[cmake, git]"),
    "version": edit("components/torch/component.yaml", '"2.9.0"', '"2.9.1"'),
}


@pytest.mark.parametrize("what", IN_TORCH)
def test_what_goes_into_a_stage_moves_its_key_and_the_images(rich: Tree, what: str) -> None:
    assert changed(rich, IN_TORCH[what]) == {"torch", "image"}


IN_ALL: dict[str, Edit] = {
    "suite of the base": edit("components/debian/component.yaml", "bookworm", "trixie"),
    "package of the base": edit("components/debian/component.yaml", "ca-certificates", "python3"),
    "toolchain": edit("components/debian/component.yaml", "[gcc]", "[gcc, g++]"),
}


@pytest.mark.parametrize("what", IN_ALL)
def test_what_all_stages_start_from_moves_all_keys(rich: Tree, what: str) -> None:
    assert changed(rich, IN_ALL[what]) == {"python", "torch", "toolkit", "requirements", "image"}


IN_IMAGE: dict[str, Edit] = {
    "variant with GPUs": edit("images/small.yaml", '"cpu-*"', '"cu*"'),
    "environment": edit("images/small.yaml", 'A: "1"', 'A: "2"'),
    "apt": edit("images/small.yaml", "[htop]", "[htop, vim]"),
    "step": edit("images/small.yaml", "echo a", "echo b"),
    "code": edit("images/src/train.py", "pass", "print()"),
    "mode of a file": lambda tree: (tree.root / "images/src/train.py").chmod(0o755),
    "target of a file": edit("images/small.yaml", "/opt/train.py", "/opt/run.py"),
    "environment of a part": edit(
        "components/toolkit/component.yaml", "TRAINING_MODULE: toolkit", "X: toolkit"
    ),
    "path of a part": edit("components/python/component.yaml", "[/opt/venv/bin]", "[/opt/venv/bin, /opt/b]"),
    "library path of a part": edit(
        "components/python/component.yaml", "path:", "library_path: [/opt/lib]\n    path:"
    ),
    "apt of a part": edit("components/python/component.yaml", "path:", "packages: [libffi8]\n    path:"),
    "place of a part's layer": edit(
        "components/torch/component.yaml", "stage_order:", "layer_order: 1\nstage_order:"
    ),
    "entrypoint of a part": edit("components/python/component.yaml", "path:", "entrypoint: [a]\n    path:"),
}


@pytest.mark.parametrize("what", IN_IMAGE)
def test_what_the_image_alone_has_moves_its_key_and_no_stages(rich: Tree, what: str) -> None:
    assert changed(rich, IN_IMAGE[what]) == {"image"}


def test_own_packages_are_a_stage_of_their_own(rich: Tree) -> None:
    assert changed(rich, edit("images/own.lock", "mine==1", "mine==2")) == {"requirements", "image"}


NOWHERE: dict[str, Edit] = {
    "summary": edit("images/small.yaml", "A small image", "Another image"),
    "name of an artifact": edit("components/torch/component.yaml", "wheel: {", "weel: {"),
    "a file that no step reads": lambda tree: tree.write("components/torch/files/other", ""),
    "name of a file": lambda tree: [
        (tree.root / "components/torch/files/tool").rename(tree.root / "components/torch/files/new"),
        edit("components/torch/install.j2", 'file("tool")', 'file("new")')(tree),
    ],
    "format of a template": edit("components/torch/install.j2", "\nRUN", "\n\n# A comment\nRUN"),
    "comment of a template": edit("components/torch/install.j2", "\nRUN", "\n{# A comment #}RUN"),
    "a comment above": lambda tree: [
        tree.write(path, b"# moved\n\n" + (tree.root / path).read_bytes())
        for path in (
            "components/torch/component.yaml",
            "components/torch/lock.txt",
            "images/small.yaml",
            "images/own.lock",
        )
    ],
    "evidence": edit(
        "components/torch/component.yaml", "lock: lock.txt", "lock: lock.txt\n    notes: sure\n    source: x"
    ),
    "another component": lambda tree: tree.component("stranger", 'summary: x\nreleases: [{version: "1"}]\n'),
    "another image": lambda tree: tree.image(IMAGE, "other"),
    "an older release": lambda tree: tree.component("toolkit", COMPONENTS["toolkit"] + '  - version: "4"\n'),
    "a variant that is not chosen": edit("components/torch/component.yaml", 'cuda: "12.8"', 'cuda: "12.9"'),
    "smoke checks": lambda tree: tree.write("components/torch/smoke.py", "def check_x() -> None: ...\n"),
    "summary of a part": edit("components/torch/component.yaml", "summary: PyTorch", "summary: Torch"),
    "order in the recipe": edit(
        "images/small.yaml",
        '{python: "3.11", torch: "*", toolkit: "*"}',
        '{toolkit: "*", torch: "*", python: "3.11"}',
    ),
    "files that stay out": lambda tree: [
        tree.write("images/src/.git/HEAD", ""),
        tree.write("images/src/__pycache__/x.pyc", ""),
    ],
    "who asks": edit("images/small.yaml", 'torch: "*"', 'torch: ">=2"'),
}


@pytest.mark.parametrize("what", NOWHERE)
def test_what_changes_nothing_moves_no_key(rich: Tree, what: str) -> None:
    assert changed(rich, NOWHERE[what]) == set()


def test_the_user_s_smoke_test_moves_no_key(rich: Tree) -> None:
    smoke = "requirements: own.lock\nsmoke: {processes: 1, expect: done}\n"

    assert not changed(rich, edit("images/small.yaml", "requirements: own.lock\n", smoke))
    assert rich.planned_image().required == ("user_code",)
    edit("images/small.yaml", "smoke:", "required: []\nsmoke:")(rich)
    assert rich.planned_image().required == ()


def test_comments_and_blank_lines_of_shared_templates_move_no_key_and_steps_those_that_have_them(
    rich: Tree,
) -> None:
    resolution, before = rich.resolve(), keys(rich.planned_image())

    def moved(name: str, old: str, new: str) -> set[str]:
        assert old in templates()[name]
        image = make_plan([resolution], {**templates(), name: templates()[name].replace(old, new)}).images[0]
        return {stage for stage, key in keys(image).items() if key != before[stage]}

    for name in ("Dockerfile.j2", "macros.j2"):
        assert moved(name, "\nFROM ", "\n# A comment{# of two kinds #}\n\n\nFROM ") == set()
        assert moved(name, "{% ", "{# another #}{% ") == set()
    assert moved("macros.j2", "--no-compile", "--compile") == {"torch", "image"}
    assert moved("macros.j2", "--dest /tmp/wheels", "--dest=/tmp/wheels") == {"requirements", "image"}


def test_images_that_use_a_part_in_the_same_way_share_its_stage(tree: Tree) -> None:
    tree.image(IMAGE.replace("A small image", "Another"), "other")
    tree.image(IMAGE.replace('torch: "*"', 'torch: "2.8.0"').partition("variants")[0], "third")
    plan = tree.plan("small", "other", "third")
    small, other, third = (keys(image) for image in plan.images)

    assert small == other
    assert {name for name in small if small[name] == third[name]} == {"python", "toolkit"}
    assert sorted(stage.name for stage in plan.stages.values()) == ["python", "toolkit", "torch", "torch"]


def test_keys_are_the_same_in_every_process(rich: Tree) -> None:
    code = (
        "from pathlib import Path; from tests.support.trees import Tree, keys\n"
        f"print(keys(Tree(Path({str(rich.root)!r})).planned_image()))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=HOME,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == str(keys(rich.planned_image()))


def test_plans_can_be_made_of_any_iterable(tree: Tree) -> None:
    assert len(make_plan((tree.resolve() for _ in range(2)), templates()).images) == 2


def test_an_image_knows_what_it_carries(rich: Tree) -> None:
    image = rich.planned_image()

    assert (image.name, image.summary, image.reference) == (
        "small",
        "A small image",
        f"bakehouse/small:{image.key[:8]}",
    )
    assert [(part.component, part.version, part.variant) for part in image.parts] == [
        ("python", "3.11", ""),
        ("torch", "2.9.0", "cpu-py311"),
        ("toolkit", "5.1", ""),
    ]
    assert (image.base_part.component, image.base_part.provides) == ("debian", (("glibc", "2.36"),))
    assert (image.launchers, image.training_module, image.entry_point) == (
        ("torchrun",),
        "toolkit",
        "train.py",
    )
    assert (image.gpu, image.apt, image.path, image.toolchain) == (
        False,
        ("htop",),
        ("/opt/venv/bin",),
        ("gcc",),
    )
    assert image.wheel_bytes == 47


def test_layers_follow_the_order_of_their_components_with_user_packages_on_top(rich: Tree) -> None:
    assert [stage.name for stage in rich.planned_image().layers] == [
        "python",
        "torch",
        "toolkit",
        "requirements",
    ]
    edit("components/toolkit/component.yaml", "summary:", "layer_order: 1\nsummary:")(rich)
    image = rich.planned_image()
    assert [stage.name for stage in image.layers] == ["toolkit", "python", "torch", "requirements"]
    assert [stage.name for stage in image.stages] == ["python", "torch", "toolkit", "requirements"]


def test_a_stage_knows_wheels_from_what_has_to_be_compiled(rich: Tree) -> None:
    torch = rich.planned_image().stages[1]

    assert ([wheel.name for wheel in torch.wheels], [wheel.name for wheel in torch.sdists]) == (
        ["numpy"],
        ["scipy"],
    )
    assert torch.source == rich.root / "components/torch"


def test_the_environment_of_an_image_is_the_recipes_above_its_parts_above_ours(rich: Tree) -> None:
    edit("images/small.yaml", 'B: "2"}', "SAGEMAKER_TRAINING_MODULE: mine}")(rich)

    assert rich.planned_image().environment == {
        "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/code",
        "SAGEMAKER_TRAINING_MODULE": "mine",
        "SAGEMAKER_PROGRAM": "train.py",
        "A": "1",
    }


def test_an_image_with_a_gpu_part_sees_the_gpus_on_a_plain_base(tree: Tree) -> None:
    tree.image(IMAGE.replace("cpu-*", "cu*"))
    image = tree.planned_image()

    assert image.gpu
    assert image.environment is not None
    assert image.environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert image.environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"


def test_an_image_has_the_gpus_of_its_targets(tree: Tree) -> None:
    key = tree.planned_image().key
    names = {"ml.p4d.24xlarge": 'gpu-architecture: "8.0"', "ml.c5.xlarge": 'vcpus: "4"', "ml.p5.48xlarge": ""}
    variants = "".join(f"      - {{name: {name}, provides: {{{text}}}}}\n" for name, text in names.items())
    release = f'summary: x\nreleases:\n  - version: "1"\n    variants:\n{variants}'
    tree.component("instance", release)
    tree.image(f"{IMAGE}targets: {{instances: [{', '.join(names)}]}}\n")

    image = tree.planned_image()

    assert (image.gpu_targets, image.key) == ((("ml.p4d.24xlarge", "8.0"),), key)


def test_labels_name_the_image_and_every_version(tree: Tree) -> None:
    image = tree.planned_image()

    assert image.labels == {
        "org.opencontainers.image.title": "small",
        "org.opencontainers.image.description": "A small image",
        "org.bakehouse.component.debian": "12",
        "org.bakehouse.component.python": "3.11",
        "org.bakehouse.component.torch": "2.9.0 (cpu-py311)",
        "org.bakehouse.component.toolkit": "5.1",
    }


def test_the_highest_part_with_an_entrypoint_has_it(tree: Tree) -> None:
    for name, value in (("python", "low"), ("torch", "high")):
        edit(f"components/{name}/component.yaml", "stage_order:", f"entrypoint: [{value}]\nstage_order:")(
            tree
        )

    assert tree.planned_image().entrypoint == ("high",)


def test_a_bootstrapped_base_is_named_by_what_it_is_made_of(tree: Tree) -> None:
    base = tree.planned_image().base

    assert isinstance(base, BootstrappedBase)
    assert (base.suite, base.packages) == ("bookworm", ("ca-certificates",))
    assert base.reference.startswith("bakehouse/debian:12-")
    edit("components/debian/component.yaml", "ca-certificates", "python3")(tree)
    other = tree.planned_image().base
    assert other.reference.startswith("bakehouse/debian:12-")
    assert other.reference != base.reference


def test_a_pulled_base_is_pinned_where_its_digest_is_known(tree: Tree) -> None:
    tree.component(
        "cuda-base",
        f"""\
summary: CUDA
releases:
  - version: "13.0"
    base: {{image: "nvidia/cuda:13.0", digest: "sha256:{SHA}", build_image: "nvidia/cuda:13.0-devel"}}
  - version: "12.8"
    base: {{image: "nvidia/cuda:12.8"}}
""",
    )
    tree.image('summary: x\nbase: {cuda-base: "13.0"}\n')
    tree.image('summary: x\nbase: {cuda-base: "12.8"}\n', "other")
    [pinned, unpinned] = tree.plan("small", "other").images

    assert isinstance(pinned.base, RegistryBase)
    assert isinstance(unpinned.base, RegistryBase)
    assert (pinned.base.pinned, pinned.build_base) == (
        f"nvidia/cuda:13.0@sha256:{SHA}",
        "nvidia/cuda:13.0-devel",
    )
    assert (unpinned.base.pinned, unpinned.build_base) == ("nvidia/cuda:12.8", "")


def test_artifacts_of_unknown_content_are_remembered(rich: Tree) -> None:
    edit("components/torch/component.yaml", SHA, "unknown")(rich)

    assert [artifact.file for artifact in rich.planned_image().unpinned] == ["torch.whl"]


def test_layers_are_counted_before_the_engine_does(tree: Tree) -> None:
    steps = "".join(f"- echo {number}\n" for number in range(95))
    tree.image(IMAGE + "run:\n" + steps)
    assert len(tree.planned_image().content.run) == 95

    tree.image(IMAGE + "run:\n" + steps + "- echo one more\n")
    with pytest.raises(Exception, match="image `small` has 121 layers; at most 120 are allowed"):
        tree.planned_image()


def test_what_bakehouse_brings_shares_its_stages() -> None:
    """One `torch` for all images of a variant, one `open-mpi` for the whole fleet."""
    plan = Tree(HOME / "recipes").plan("mpi-cpu", "pytorch-cpu", "pytorch-cu130", "tensorflow-cpu")
    stages = [{stage.name: stage.key for stage in image.stages} for image in plan.images]

    for name in ("python", "sshd", "open-mpi", "mpi4py"):
        assert len({stage[name] for stage in stages}) == 1


def test_a_new_python_moves_the_keys_of_what_is_installed_into_it(rich: Tree) -> None:
    newer = edit("components/python/install.j2", "python3 -m", "python3.11 -m")

    assert changed(rich, newer) == {"python", "torch", "requirements", "image"}


def test_the_version_of_a_base_that_gives_the_same_bytes_moves_no_key(tree: Tree) -> None:
    tree.component("ground", 'summary: G\nreleases: [{version: "1", base: {image: "a:1"}}]\n')
    tree.image('summary: x\nbase: ground\ncomponents: {torch: "2.8.0"}\n')

    def renamed(changed: Tree) -> None:
        changed.component("ground", 'summary: G\nreleases: [{version: "2", base: {image: "a:1"}}]\n')

    assert changed(tree, renamed) == set()


def test_what_is_compiled_against_packages_moves_with_each_of_them(rich: Tree) -> None:
    torch = (
        "{% block build %}\nFROM {{ package_stage }} AS torch\n{{ packages(stage, pip) }}\n{% endblock %}\n"
    )
    rich.write("components/torch/install.j2", torch)
    rich.component("ring", 'summary: R\nstage_order: 60\nreleases: [{version: "1"}]\n')
    rich.write(
        "components/ring/install.j2",
        """\
{% block build %}
FROM toolchain AS ring
{% for name in packages_below %}
COPY --from={{ name }} /out/opt/ /opt/
{% endfor %}
RUN finish ring
{% endblock %}
""",
    )
    edit("images/small.yaml", 'toolkit: "*"}', 'toolkit: "*", ring: "*"}')(rich)
    newer = edit("components/torch/component.yaml", SHA, SHA[::-1])

    assert changed(rich, newer) == {"torch", "ring", "image"}
    assert "AS ring\nCOPY --from=torch /out/opt/ /opt/\nRUN finish ring" in rich.dockerfile()


UNKEYED: Mapping[str, Edit] = {
    "required": edit("images/small.yaml", "requirements:", "required: [gpu]\nrequirements:"),
    "efa_bandwidth": edit("images/small.yaml", "requirements:", "efa_bandwidth: 9\nrequirements:"),
    "budgets": edit("images/small.yaml", "requirements:", "budget: {image: 1 GB}\nrequirements:"),
    "smoke": edit("images/small.yaml", "requirements:", "smoke: {processes: 1}\nrequirements:"),
    "format": edit("images/small.yaml", "requirements:", "format: oci\nrequirements:"),
    "launchers": edit("components/torch/component.yaml", "launchers: [torchrun]", "launchers: [mpirun]"),
}


@pytest.mark.parametrize("name", UNKEYED)
def test_the_fields_outside_change_no_key(rich: Tree, name: str) -> None:
    before = rich.planned_image()
    UNKEYED[name](rich)
    after = rich.planned_image()

    assert getattr(after, name) != getattr(before, name)
    assert keys(after) == keys(before)
