"""A vendor's image that has a framework: its own build of that stays, whatever a recipe adds."""

from pathlib import Path
from types import ModuleType

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.catalog.python_lock import Package
from bakehouse.lock import locking, python
from bakehouse.plan.planner import make_plan
from tests.support.errors import raised
from tests.support.requirements_locks import locked_heading
from tests.support.scripts import load_script
from tests.support.trees import Tree, templates

BASE = """\
summary: A vendor's images
frozen:
  torch: pytorch
  nvidia-*: any
facts: {pip: "python3 -m pip"}
releases:
  - version: "2.5"
    base: {image: vendor/training}
    provides: {python: "3.11", pytorch: "2.5.1"}
"""
IMAGE = "summary: A small image\nbase: vendor\nrequirements: requirements.txt\n"
REQUIREMENTS = b"peft\n"


def line(name: str, version: str) -> str:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return f"{name}=={version} --hash=sha256:{'ab' * 32}  # {file} 10\n"


@pytest.fixture
def vendor(tree: Tree) -> Tree:
    tree.component("vendor", BASE)
    tree.image(IMAGE)
    tree.write("images/requirements.txt", REQUIREMENTS)
    return tree


def lock(tree: Tree, *lines: str) -> None:
    heading = locked_heading(REQUIREMENTS, "small")
    tree.write("images/requirements.txt.lock", "".join([f"{heading}\n", *lines]))


def test_a_lock_with_another_version_is_refused_with_both_places(vendor: Tree) -> None:
    lock(vendor, line("peft", "0.14.0"), line("torch", "2.6.0"))

    text = vendor.conflict()

    assert "vendor 2.5 keeps torch 2.5.1" in text
    assert "components/vendor/component.yaml:3:3" in text
    assert "the image locks torch 2.6.0" in text
    assert "images/requirements.txt.lock:3:1" in text
    assert "hint: run `bake lock small` to update the lock of the requirements" in text


def test_a_package_of_unknown_version_is_refused_too(vendor: Tree) -> None:
    lock(vendor, line("nvidia-nccl-cu12", "2.30.7"))

    assert "vendor 2.5 keeps nvidia-nccl-cu12 as it is" in vendor.conflict()


@pytest.mark.parametrize("version", ["2.5.1", "2.5.1+cu124"])
def test_what_the_base_has_already_is_not_installed_again(vendor: Tree, version: str) -> None:
    lock(vendor, line("peft", "0.14.0"), line("torch", version))

    assert [user_package.name for user_package in vendor.resolve().user_packages] == ["peft"]


def test_a_parts_lock_is_held_to_it_as_well(vendor: Tree) -> None:
    lock(vendor, line("peft", "0.14.0"))
    vendor.write("components/helper/lock.txt", line("torch", "2.6.0"))
    vendor.component("helper", 'summary: Helps\nreleases: [{version: "1.0", lock: lock.txt}]\n', "")
    vendor.image(IMAGE + 'components: {helper: "*"}\n')

    text = vendor.conflict()

    assert "helper 1.0 locks torch 2.6.0" in text
    assert "vendor 2.5 keeps torch 2.5.1" in text


def test_the_dockerfile_compares_before_and_after(vendor: Tree) -> None:
    lock(vendor, line("peft", "0.14.0"))

    text = vendor.dockerfile()

    assert " \\\n    keep-frozen requirements torch 'nvidia-*'\n" in text
    assert "--mount=type=bind,from=requirements,source=/replaced," in text
    assert text.index("source=/replaced") < text.index("COPY --link --from=requirements")


def test_the_comparing_script_is_part_of_the_keys(vendor: Tree) -> None:
    lock(vendor, line("peft", "0.14.0"))
    changed = {**templates(), "bin/keep-frozen": "other"}

    [before], [after] = vendor.planned_image().stages, make_plan([vendor.resolve()], changed).images[0].stages

    assert before.key != after.key


def test_an_image_without_layers_needs_no_comparison(vendor: Tree) -> None:
    vendor.image("summary: A small image\nbase: vendor\n")

    assert "keep-frozen" not in vendor.dockerfile()


def test_names_of_packages_are_plain(vendor: Tree) -> None:
    vendor.component("vendor", BASE.replace("torch:", "Torch 2:"))

    assert "`Torch 2` is not a name or glob of Python packages" in vendor.mistakes()


def test_a_lock_is_made_for_the_bases_version_and_without_it(
    vendor: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    calls = []

    def resolve_beside(
        requirements: list[str],
        constraints: list[str],
        index: python.Index,
        installed: object,
        without: object = (),
        preferred: object = (),
    ) -> object:
        calls.append((requirements, constraints, index.python_version, installed, without))
        names = ["peft"] if without else ["nvidia-nccl-cu12", "peft", "torch"]
        files = [Package(name, "1", "ab" * 32, f"{name}-1-py3-none-any.whl", 1) for name in names]
        return tuple(files), ()

    monkeypatch.setattr(python, "resolve_beside", resolve_beside)

    # The vendor's registry does not exist
    monkeypatch.setattr(locking, "pin", lambda *_, **__: ())
    locking.run(vendor.root, ["small"], lambda _: None)

    assert calls == [
        (["peft"], ["torch==2.5.1"], "3.11", (), ()),
        (["peft"], [], "3.11", (), ["nvidia-nccl-cu12", "torch"]),
    ]
    assert "torch" not in (vendor.root / "images/requirements.txt.lock").read_text()


def test_a_list_of_the_base_s_packages_constrains_a_lock(
    vendor: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    vendor.write("images/requirements.txt", "-c base.txt\npeft\n")
    vendor.write("images/base.txt", "numpy==1.26.4\ntorch==2.5.1+cu124\n")
    calls = []

    def resolve_beside(
        requirements: list[str], constraints: list[str], *_: object, preferred: object
    ) -> object:
        calls.append((requirements, constraints))
        return (), ()

    monkeypatch.setattr(python, "resolve_beside", resolve_beside)

    # The vendor's registry does not exist
    monkeypatch.setattr(locking, "pin", lambda *_, **__: ())
    locking.run(vendor.root, ["small"], lambda _: None)

    assert calls == [(["peft"], ["numpy==1.26.4", "torch==2.5.1"])]


SITE = Path("opt/conda/lib/python3.11/site-packages")


@pytest.fixture
def keep() -> ModuleType:
    return load_script(HOME / "templates/bin/keep-frozen")


def install(root: Path, name: str, version: str, *files: str) -> None:
    info = root / SITE / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    names = [*files, f"{info.name}/METADATA", f"{info.name}/RECORD"]
    for file in names:
        (root / SITE / file).parent.mkdir(parents=True, exist_ok=True)
        (root / SITE / file).touch()
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))


def test_a_layer_that_replaces_what_has_to_stay_fails(keep: ModuleType, tmp_path: Path) -> None:
    install(tmp_path / "base", "torch", "2.5.1")
    install(tmp_path / "out", "torch", "2.6.0")

    assert raised(
        SystemExit, keep.main, tmp_path / "base", tmp_path / "out", "requirements", ["torch", "nvidia-*"]
    ).code == (
        "keep-frozen: requirements would replace torch 2.5.1 of the base by 2.6.0; "
        "packages of the base image must stay: lock again without it"
    )


def test_a_layer_that_adds_what_the_base_has_otherwise_fails(keep: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "base" / SITE).mkdir(parents=True)
    install(tmp_path / "out", "nvidia_nccl_cu12", "2.30.7")

    with pytest.raises(SystemExit, match=r"would add nvidia-nccl-cu12 2\.30\.7"):
        keep.main(tmp_path / "base", tmp_path / "out", "requirements", ["torch", "nvidia-*"])


def test_a_conda_package_is_one_as_well(keep: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "base" / SITE / "torch-2.0.1-py3.11.egg-info").mkdir(parents=True)
    install(tmp_path / "out", "torch", "2.6.0")

    with pytest.raises(SystemExit, match=r"would replace torch 2\.0\.1 of the base"):
        keep.main(tmp_path / "base", tmp_path / "out", "requirements", ["torch"])


def test_what_else_is_replaced_is_listed_to_be_taken_out(keep: ModuleType, tmp_path: Path) -> None:
    install(tmp_path / "base", "numpy", "1.26.4", "numpy/core.py", "numpy/old.py")
    install(tmp_path / "base", "six", "1.17.0", "six.py")
    install(tmp_path / "out", "numpy", "2.1.0", "numpy/core.py")
    install(tmp_path / "out", "six", "1.17.0", "six.py")

    keep.main(tmp_path / "base", tmp_path / "out", "requirements", ["torch"])

    assert (tmp_path / "replaced").read_text().splitlines() == [
        f"/{SITE}/numpy/old.py",
        f"/{SITE}/numpy-1.26.4.dist-info/METADATA",
        f"/{SITE}/numpy-1.26.4.dist-info/RECORD",
    ]


def test_a_layer_without_python_packages_replaces_nothing(keep: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    keep.main(tmp_path / "base", tmp_path / "out", "metis", ["torch"])

    assert (tmp_path / "replaced").read_text() == ""
