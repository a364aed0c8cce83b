"""Locks of requirements of several images, with uv and a directory of wheels."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from uv import find_uv_bin

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.python_lock import normal_name
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.requirements_file import RequirementsFile
from bakehouse.errors import BakehouseError, ConflictError, Diagnostic, Location, RecipeError, UndecidedError
from bakehouse.lock import apt_suite, locking
from bakehouse.lock.project_locks import check_python
from bakehouse.resolve.resolver import Resolution, resolve
from tests.support.errors import raised
from tests.support.trees import Tree
from tests.support.wheels import sha256, use_only, wheel

MATRIX = """\
summary: Two Pythons
name: ${python|tag}-image
matrix: {python: ["3.11", "3.12"]}
base: debian
components: {python: "${python}"}
requirements: requirements.txt
"""
ONE = MATRIX.replace("name: ${python|tag}-image\n", "").replace('matrix: {python: ["3.11", "3.12"]}\n', "")
HEAD = ONE.replace("${python}", "3.11").replace("requirements: requirements.txt\n", "")


@pytest.fixture
def with_bakehouse(empty: Tree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tree:
    """A project without components, with Bakehouse's own recipes; no files and Debian packages are locked."""
    empty.write("pyproject.toml", '[tool.bakehouse]\nrecipes = ["."]\n')
    wheels = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        wheel(wheels, "plain", version)
        wheel(wheels, "other", version)
        for python in ("311", "312"):
            wheel(wheels, "native", version, tag=f"cp{python}-cp{python}-manylinux_2_17_x86_64")
    use_only(wheels, monkeypatch)
    monkeypatch.setattr(locking, "pin", lambda *_, **__: ())
    monkeypatch.setattr(apt_suite, "lock", lambda *_, **__: ())
    monkeypatch.setattr(apt_suite, "drift", lambda *_, **__: {})
    return empty


@pytest.fixture
def project(with_bakehouse: Tree, tree: Tree, own_images_only: None) -> Tree:
    """A project with components of its own."""
    return tree


def run(tree: Tree, *images: str, failures: list[BakehouseError] | None = None) -> tuple[str, ...]:
    return locking.run(tree.root, images, lambda _: None, failures=failures)


def rows(tree: Tree, name: str = "requirements.txt") -> list[str]:
    """Return the packages and sections of a lock."""
    lines = (tree.root / f"images/{name}.lock").read_text().splitlines()
    return [line.partition(" --hash")[0] for line in lines if not line.startswith(("# of ", "# packages"))]


def kinds(tree: Tree) -> list[str]:
    return [
        f"{drift.kind.value}: {drift.where}" for drift in locking.check_locks(tree.root, (), lambda _: None)
    ]


def test_bakehouses_images_are_not_resolved_if_a_project_has_no_components(
    with_bakehouse: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bakehouse.write("images/requirements.txt", "plain\n")
    with_bakehouse.write("images/own.yaml", ONE.replace("${python}", "3.11"))
    resolved: set[str] = set()

    def recorded(recipe: Recipe, catalog: Catalog) -> Resolution:
        resolved.add(recipe.name)
        return resolve(recipe, catalog)

    monkeypatch.setattr(locking, "resolve", recorded)

    run(with_bakehouse, "own")

    assert rows(with_bakehouse) == ["plain==2.0"]
    assert resolved == {"own"}


def test_one_file_is_locked_for_two_pythons(project: Tree) -> None:
    project.write("images/requirements.txt", "plain\nnative\n")
    project.write("images/images.yaml", MATRIX)

    assert run(project) == ("requirements.txt.lock: 2 packages for 2 images",)

    assert rows(project) == ["plain==2.0", "# for 311-image", "native==2.0", "# for 312-image", "native==2.0"]
    recipes = project.recipes()
    files = {name: [each.file for each in recipe.content.packages] for name, recipe in recipes.items()}
    assert ["cp311" in files["311-image"][1], "cp312" in files["312-image"][1]] == [True, True]
    assert run(project) == ("everything is locked",)


def test_the_lock_of_one_image_keeps_that_of_the_others(project: Tree) -> None:
    project.write("images/requirements.txt", "native==1.0\n")
    project.write("images/images.yaml", MATRIX)
    run(project)
    before = (project.root / "images/requirements.txt.lock").read_text()

    assert run(project, "311-image") == ("everything is locked",)

    assert (project.root / "images/requirements.txt.lock").read_text() == before


def test_an_image_that_shares_outdated_requirements_is_locked_too(project: Tree) -> None:
    project.write("images/requirements.txt", "native==1.0\n")
    project.write("images/images.yaml", MATRIX)
    run(project)
    project.write("images/requirements.txt", "native==2.0\n")

    assert run(project, "311-image") == ("native 1.0 -> 2.0 in 2 images",)


def test_a_change_in_an_included_file_is_seen_and_named(project: Tree) -> None:
    project.write("images/requirements.txt", "-r more.txt\n-c limits.txt\n")
    project.write("images/more.txt", "plain\n")
    project.write("images/limits.txt", "plain<2\n")
    project.write("images/images.yaml", MATRIX)
    run(project)
    assert rows(project) == ["plain==1.0"]
    project.write("images/limits.txt", "")
    project.write("images/more.txt", "plain>1\nother\n")

    older = "older than its requirements"
    assert kinds(project) == [f"{older}: 311-image", f"{older}: 312-image"]
    assert run(project) == ("other 2.0 added in 2 images", "plain 1.0 -> 2.0 in 2 images")


def test_locking_goes_on_after_a_bad_recipe_and_reports_each_mistake_once(project: Tree) -> None:
    project.write("images/requirements.txt", "plain>=3\n")
    project.write("images/images.yaml", MATRIX)
    project.write("images/broken.txt", "plain = 1\n")
    project.write("images/zz.yaml", HEAD + "requirements: good.txt\n")
    project.write("images/good.txt", "plain\n")
    for name in ("first", "second"):
        project.write(f"images/{name}.yaml", HEAD + "requirements: broken.txt\n")
    changes: list[str] = []

    error = raised(RecipeError, locking.run, project.root, (), lambda _: None, changes=changes)

    assert changes == ["good.txt.lock: 1 package"]
    assert sorted(each.message for each in error.diagnostics) == [
        "`plain = 1` is not a requirement",
        "no version satisfies `plain>=3`",
    ]


def test_one_mistake_of_several_images_names_them(project: Tree) -> None:
    project.write("images/requirements.txt", "plain==1.0\nneeds\n")
    project.write("images/images.yaml", MATRIX)
    wheel(project.root / "wheels", "needs", "1.0", requires=("plain>=2",))

    assert [each.message for each in raised(ConflictError, run, project).diagnostics] == [
        "`needs` does not fit the other requirements"
    ]


def test_an_image_that_cannot_be_locked_keeps_its_packages(project: Tree) -> None:
    project.write("images/requirements.txt", "native\n")
    project.write("images/images.yaml", MATRIX)
    run(project)
    project.write("images/requirements.txt", "native<3\n")
    for path in (project.root / "wheels").glob("native-*-cp312-*"):
        path.unlink()

    with pytest.raises(ConflictError):
        run(project)

    text = (project.root / "images/requirements.txt.lock").read_text()
    assert rows(project) == ["# for 311-image", "native==2.0", "# for 312-image", "native==2.0"]
    assert text.count("# of requirements.txt") == 2
    assert kinds(project) == ["older than its requirements: 312-image"]


@pytest.mark.parametrize("text", ["# format 3\n", "another: format\n"])
def test_a_file_of_another_format_is_not_replaced(project: Tree, text: str) -> None:
    project.write("images/requirements.txt", "plain\n")
    project.image(HEAD + "requirements: requirements.txt\n")
    lock = project.write("images/requirements.txt.lock", text)

    with pytest.raises(RecipeError):
        run(project)

    assert lock.read_text() == text


def test_a_conflict_of_git_is_merged_without_upgrades(project: Tree) -> None:
    project.write("images/requirements.txt", "plain\nother\n")
    project.image(HEAD + "requirements: requirements.txt\n")
    project.write("images/requirements.txt", "plain<2\nother<2\n")
    run(project)
    lock = project.root / "images/requirements.txt.lock"
    project.write("images/requirements.txt", "plain\nother\n")
    lines = lock.read_text().splitlines()
    ours = [*lines[:2], "=======", *lines[:2]]
    lock.write_text("\n".join(["<<<<<<< HEAD", *ours, ">>>>>>> theirs", *lines[2:], ""]))

    assert kinds(project) == ["contains conflict markers: small"]
    assert run(project) == ("requirements.txt.lock: 2 packages",)
    assert rows(project) == ["other==1.0", "plain==1.0"]


def test_several_files_have_one_lock(project: Tree) -> None:
    project.write("images/first.txt", "plain\n")
    project.write("images/second.txt", "other\n-c limits.txt\n")
    project.write("images/limits.txt", "plain==1.0\n")
    project.image(HEAD + "requirements: [first.txt, second.txt]\n")

    run(project)

    assert rows(project, "first.txt") == ["other==2.0", "plain==1.0"]


def test_packages_of_another_directory_record_their_place(project: Tree) -> None:
    wheel(project.root / "extra", "special", "1.0")
    project.write("images/requirements.txt", "-f ../extra\nspecial\nplain\n")
    project.image(HEAD + "requirements: requirements.txt\n")

    run(project)

    lines = (project.root / "images/requirements.txt.lock").read_text().splitlines()
    [special] = [line for line in lines if line.startswith("special")]
    assert special.endswith(" from ../extra/special-1.0-py3-none-any.whl")


PROJECT = """\
[project]
name = "mine"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["torch", "native"]
[project.optional-dependencies]
train = ["other<2"]
[dependency-groups]
gpu = ["plain<2"]
"""
TORCH = """\
summary: PyTorch
releases:
  - version: "2.9.0"
    requires: {python: "3.11"}
    artifacts:
      wheel: {url: "https://x.example/torch-2.9.0%2Bcpu-cp311-cp311-linux_x86_64.whl", sha256: unknown}
"""


@pytest.fixture
def locked_project(project: Tree) -> Tree:
    wheels = project.root / "wheels"
    wheel(wheels, "torch", "2.9.0", requires=("cublas",))
    wheel(wheels, "cublas", "13.0")
    project.component("torch", TORCH)
    project.write("app/pyproject.toml", PROJECT)
    lock_project(project)
    recipe = HEAD.replace('{python: "3.11"}', '{python: "3.11", torch: "*"}')
    project.image(recipe + "requirements: {file: ../app/uv.lock, extras: [train], groups: [gpu]}\n")
    return project


def lock_project(project: Tree) -> None:
    command = [find_uv_bin(), "lock", "--quiet", "--no-index", "--find-links", str(project.root / "wheels")]
    subprocess.run(command, cwd=project.root / "app", check=True)


def test_the_versions_and_hashes_are_those_of_the_lock_of_uv(locked_project: Tree) -> None:
    for name in ("native", "other", "plain"):
        wheel(locked_project.root / "wheels", name, "2.5", tag="py3-none-any")

    lines = run(locked_project)

    assert lines == (
        "uv.lock.lock: 3 packages",
        "small: torch 2.9.0 of uv.lock is left out: torch 2.9.0 installs 2.9.0+cpu",
    )
    [recipe] = locked_project.recipes().values()
    content = tomllib.loads((locked_project.root / "app/uv.lock").read_text())
    stated = {
        normal_name(each["name"]): (
            each["version"],
            {Path(wheel["path"]).name for wheel in each.get("wheels", ())},
        )
        for each in content["package"]
    }
    packages = {each.name: each for each in recipe.content.packages}
    assert packages.keys() == {"native", "other", "plain", "torch"}
    for name, package in packages.items():
        version, files = stated[name]
        if package.file:
            assert (package.version, package.file in files) == (version, True)
            assert package.sha256 == sha256(locked_project.root / "wheels" / package.file)
    assert [packages[name].version for name in ("native", "other", "plain")] == ["2.0", "1.0", "1.0"]
    assert not packages["torch"].file


def test_a_lock_of_uv_with_another_version_of_a_component_is_a_conflict(locked_project: Tree) -> None:
    wheel(locked_project.root / "wheels", "torch", "2.8.0")
    locked_project.write("app/pyproject.toml", PROJECT.replace('"torch"', '"torch<2.9"'))
    lock_project(locked_project)

    [diagnostic] = raised(ConflictError, run, locked_project).diagnostics
    assert diagnostic.message == "`torch==2.8.0` does not fit the components of image `small`"
    assert [reason.text for reason in diagnostic.reasons] == ["torch 2.9.0 installs torch==2.9.0+cpu"]
    assert diagnostic.hint == "lock `torch==2.9.0`, which fits, or use another version of the component"
    assert diagnostic.location
    assert diagnostic.location.text == 'name = "torch"'


def test_a_lock_of_pep_751_is_taken_as_it_is(locked_project: Tree) -> None:
    command = [find_uv_bin(), "export", "--quiet", "--frozen", "--format=pylock.toml", "--no-emit-project"]
    text = subprocess.run(
        [*command, "--prune=torch"],
        cwd=locked_project.root / "app",
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    locked_project.write("app/pylock.toml", text)
    wheel(locked_project.root / "wheels", "native", "2.5", tag="py3-none-any")
    locked_project.image(HEAD + "requirements: ../app/pylock.toml\n")

    assert run(locked_project) == ("pylock.toml.lock: 1 package",)
    [recipe] = locked_project.recipes().values()
    assert [(each.name, each.version) for each in recipe.content.packages] == [("native", "2.0")]


def test_further_requirements_fit_a_lock_of_uv(locked_project: Tree) -> None:
    wheel(locked_project.root / "wheels", "needs", "1.0", requires=("plain", "torch"))
    locked_project.write("images/more.txt", "needs\n")
    recipe = HEAD.replace('{python: "3.11"}', '{python: "3.11", torch: "*"}')
    locked_project.image(recipe + "requirements: [{file: ../app/uv.lock, groups: [gpu]}, more.txt]\n")

    run(locked_project)

    [image] = locked_project.recipes().values()
    versions = {each.name: each.version for each in image.content.packages}
    assert versions == {"native": "2.0", "plain": "1.0", "needs": "1.0", "torch": "2.9.0+cpu"}


TORCH_BUILD = """\
summary: PyTorch
releases:
  - version: "2.9.0"
    variants:
      - {name: cpu-py311, requires: {python: "3.11"}}
"""
VISION = """\
summary: torchvision
releases:
  - {version: "0.24.0", requires: {pytorch: "2.9.0"}}
"""


@pytest.mark.parametrize("line", ["torchvision\n", "models\n"])
def test_a_package_that_a_component_compiles_is_refused_with_the_line_to_add(
    project: Tree, line: str
) -> None:
    wheel(project.root / "wheels", "torchvision", "0.25.0")
    wheel(project.root / "wheels", "models", "1.0", requires=("torchvision",))
    project.component("pytorch", TORCH_BUILD)
    project.component("torchvision", VISION)
    project.write("images/requirements.txt", line)
    recipe = HEAD.replace('{python: "3.11"}', '{python: "3.11", pytorch: "*"}')
    project.image(recipe + "requirements: requirements.txt\n")

    [diagnostic] = raised(ConflictError, run, project).diagnostics
    assert diagnostic.message == (
        "`torchvision` of the package index may be built for another PyTorch than image `small`"
    )
    assert [reason.text for reason in diagnostic.reasons] == [
        "component `torchvision` 0.24.0 is built for the PyTorch of the image"
    ]
    assert diagnostic.hint == 'add `torchvision: "0.24.0"` to `components` of small.yaml'
    assert diagnostic.location
    assert diagnostic.location.path.name == ("requirements.txt" if "vision" in line else "small.yaml")


def test_another_version_than_that_of_the_component_is_locked_from_the_index(project: Tree) -> None:
    wheel(project.root / "wheels", "torchvision", "0.25.0")
    project.component("pytorch", TORCH_BUILD)
    project.component("torchvision", VISION)
    project.write("images/requirements.txt", "torchvision==0.25.0\n")
    recipe = HEAD.replace('{python: "3.11"}', '{python: "3.11", pytorch: "*"}')
    project.image(recipe + "requirements: requirements.txt\n")

    run(project)

    assert rows(project) == ["torchvision==0.25.0"]


def test_an_index_of_pytorch_is_not_searched_if_a_component_installs_it(project: Tree) -> None:
    project.component("pytorch", TORCH_BUILD)
    text = "--extra-index-url https://download.pytorch.org/whl/cu128\nplain\n"
    project.write("images/requirements.txt", text)
    recipe = HEAD.replace('{python: "3.11"}', '{python: "3.11", pytorch: "*"}')
    project.image(recipe + "requirements: requirements.txt\n")

    assert run(project) == (
        "requirements.txt.lock: 1 package",
        "small: PyTorch is for cpu; the index for cu128 in line 1 of requirements.txt is not searched",
    )


def resolved_images(tree: Tree, *images: str) -> list[str]:
    """Lock, and return the images that were resolved again."""
    lines: list[str] = []
    locking.run(tree.root, images, lines.append)
    return sorted({line.partition(":")[0] for line in lines if ": locking " in line})


def test_an_image_whose_inputs_are_unchanged_is_not_resolved_again(project: Tree) -> None:
    project.write("images/requirements.txt", "-r more.txt\n")
    project.write("images/more.txt", "native==1.0\n")
    project.write("images/images.yaml", MATRIX)
    both = ["311-image", "312-image"]

    assert (resolved_images(project), resolved_images(project)) == (both, [])

    project.write("images/more.txt", "native==2.0\n")
    assert (resolved_images(project), resolved_images(project)) == (both, [])

    component = project.root / "components/python/component.yaml"
    component.write_text(component.read_text() + "# a comment\n")
    assert (resolved_images(project), resolved_images(project)) == (both, [])

    (Path(os.environ["PIP_FIND_LINKS"]) / "native-3.0-py3-none-any.whl").touch()
    assert resolved_images(project) == both

    project.write("images/requirements.txt.lock", "")
    assert resolved_images(project) == both


def test_an_image_is_resolved_again_if_a_page_of_a_local_index_changes_or_has_no_checksums(
    project: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("images/requirements.txt", "plain\n")
    project.write("images/images.yaml", ONE.replace("${python}", "3.11"))
    file = tmp_path / "wheels/plain-1.0-py3-none-any.whl"
    page = tmp_path / "index/plain/index.html"
    page.parent.mkdir(parents=True)
    link = f'<a href="{file}#sha256={sha256(file)}">{file.name}</a>'
    page.write_text(link)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{tmp_path}/index")

    assert (resolved_images(project), resolved_images(project)) == (["images"], [])
    page.write_text(f"<!-- changed -->{link}")
    assert (resolved_images(project), resolved_images(project)) == (["images"], [])
    page.write_text(f'<a href="{file}">{file.name}</a>')
    assert (resolved_images(project), resolved_images(project)) == (["images"], ["images"])


def test_an_image_with_requirements_outside_the_index_is_always_resolved(project: Tree) -> None:
    project.write("images/requirements.txt", "../wheels/plain-1.0-py3-none-any.whl\n")
    project.write("images/images.yaml", ONE.replace("${python}", "3.11"))

    assert (resolved_images(project), resolved_images(project)) == (["images"], ["images"])


def test_without_the_packages_of_the_base_no_requirement_is_refused(with_bakehouse: Tree) -> None:
    """The base may contain what no index has, such as NVIDIA's build of PyTorch."""
    with_bakehouse.write("images/requirements.txt", "plain==9\n")
    base = 'summary: x\nbase: {nvidia-ngc-pytorch: "26.03"}\nrequirements: requirements.txt\n'
    with_bakehouse.write("images/own.yaml", base)

    [diagnostic] = raised(UndecidedError, run, with_bakehouse, "own").diagnostics
    assert diagnostic.message == "it is not known whether the requirements of image `own` fit its base"
    reasons = [reason.text for reason in diagnostic.reasons]
    assert reasons == ["the Python packages of nvidia-ngc-pytorch 26.03 are not known"]
    assert diagnostic.hint == "run `bake lock own` where the base can be read"


@pytest.mark.parametrize(
    ("allowed", "is_refused"),
    [(">=3.12", True), ("<3.11", True), (">=3.11.4", False), ("==3.11.*", False), ("==3.11.4", False)],
)
@pytest.mark.parametrize("name", ["pyproject.toml", "uv.lock", "pylock.toml"])
def test_a_project_for_another_python_is_refused_before_anything_is_locked(
    tmp_path: Path, name: str, allowed: str, *, is_refused: bool
) -> None:
    table = "[project]\n" if name == "pyproject.toml" else ""
    (tmp_path / name).write_text(f'{table}requires-python = "{allowed}"\n')
    file = RequirementsFile(tmp_path / name, Location(tmp_path / "own.yaml", 3, 15))
    if not is_refused:
        check_python([file], "3.11", "own")
        return
    error = raised(RecipeError, check_python, [file], "3.11", "own")
    hint = "set `python` in `components` of the recipe, or change `requires-python`"
    message = f"`{name}` is for Python {allowed}, but image `own` has 3.11"
    assert error.diagnostics == (Diagnostic(message, file.location, hint=hint),)
