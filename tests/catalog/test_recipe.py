"""Images as their authors ask for them."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from bakehouse.catalog import user_files
from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.project import HOME
from bakehouse.catalog.recipe import Content, Recipe, load_recipes, read_recipes
from bakehouse.errors import RecipeError
from bakehouse.plan.workspace import conflict_text
from tests.support.errors import error_text, raised
from tests.support.trees import IMAGE, SHA, Tree

HEAD = 'summary: A small image\nbase: {debian: "12"}\n'


def read(tree: Tree, text: str) -> Recipe:
    tree.image(HEAD + text)
    return tree.recipes()["small"]


def content(tree: Tree, text: str) -> Content:
    return read(tree, text).content


def refusal(tree: Tree, text: str) -> str:
    tree.image(HEAD + text)
    return raised(RecipeError, tree.recipes).diagnostics[0].message


def test_a_recipe_says_what_an_image_is_made_of(tree: Tree) -> None:
    recipe = read(
        tree,
        'purpose: several-hosts\ncomponents: {python: "3.11", torch: "*"}\n'
        'variants: {torch: "cpu-*"}\nexclude: [python]\n',
    )

    assert (recipe.name, recipe.summary, recipe.purpose) == ("small", "A small image", "several-hosts")
    assert (recipe.base.name, recipe.base.specifier) == ("debian", "==12.*")
    assert [(component.name, component.specifier) for component in recipe.components] == [
        ("python", "==3.11.*"),
        ("torch", ""),
    ]
    assert recipe.variants["torch"].text == "cpu-*"
    assert recipe.exclude == {"python"}
    assert recipe.content == Content()


def test_a_base_of_any_version_is_named_alone(tree: Tree) -> None:
    tree.image("summary: x\nbase: debian\n")
    base = tree.recipes()["small"].base

    assert (base.name, base.specifier) == ("debian", "")


def test_root_may_be_named_as_the_user(tree: Tree) -> None:
    assert read(tree, "user: root\n")
    assert read(tree, "user: 0\n")


def test_own_files_keep_their_bytes_and_mode(tree: Tree) -> None:
    tree.write("images/data/a b.bin", b"\x00\xff")
    tree.write("images/data/sub/é", "e")
    tree.write("images/data/__pycache__/x.pyc", "")
    tree.write("images/run.sh", "#!/bin/sh\n").chmod(0o755)
    own = content(
        tree,
        "files:\n- {from: data/, to: /opt/data}\n- {from: run.sh, to: /usr/local/bin/}\n"
        "- {from: run.sh, to: /opt/start}\n",
    )

    assert [(file.target, file.read(), file.is_executable) for file in own.files] == [
        ("/opt/data/a b.bin", b"\x00\xff", False),
        ("/opt/data/sub/é", b"e", False),
        ("/usr/local/bin/run.sh", b"#!/bin/sh\n", True),
        ("/opt/start", b"#!/bin/sh\n", True),
    ]


def test_training_code_is_where_sagemaker_looks(tree: Tree) -> None:
    tree.write("images/src/train.py", "pass\n")
    tree.write("images/src/lib/model.py", "pass\n")
    own = content(tree, "code: {directory: src, entry_point: lib/model.py}\n")

    assert [file.target for file in own.code] == ["/opt/ml/code/lib/model.py", "/opt/ml/code/train.py"]
    assert own.entry_point == "lib/model.py"


def test_code_and_files_must_not_meet(tree: Tree) -> None:
    tree.write("images/src/train.py", "pass\n")
    text = "code: {directory: src, entry_point: train.py}\nfiles: [{from: src/train.py, to: /opt/ml/code/}]\n"

    assert refusal(tree, text) == "two files have the target `/opt/ml/code/train.py`"


def test_sources_may_lie_beside_the_recipes_but_not_at_a_place_of_this_machine(tree: Tree) -> None:
    tree.write("src/train.py", "pass\n")

    assert content(tree, "code: {directory: ../src, entry_point: train.py}\n").code
    text = f"code: {{directory: {tree.root}/src, entry_point: train.py}}\n"
    assert refusal(tree, text) == "`directory` must be relative to the recipe's directory"


def test_a_directory_of_very_many_files_is_refused_before_they_are_read(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        tree.write(f"images/src/{number}", "")
    text = "files: [{from: src, to: /opt/src}]\n"
    monkeypatch.setattr(user_files, "LIMITS", replace(user_files.LIMITS, files=4))
    assert len(content(tree, text).files) == 4

    monkeypatch.setattr(user_files, "LIMITS", replace(user_files.LIMITS, files=3))
    assert refusal(tree, text) == "`src` contains more than 3 files"


def test_a_very_large_file_is_refused_before_it_is_read(tree: Tree) -> None:
    with tree.write("images/model.bin", "").open("wb") as file:
        file.truncate(200_000_001)

    assert refusal(tree, "files: [{from: model.bin, to: /opt/}]\n") == "`model.bin` is larger than 200 MB"


def test_the_whole_machine_is_not_read(tree: Tree) -> None:
    text = "code: {directory: /, entry_point: init}\n"

    assert refusal(tree, text) == "`directory` must be relative to the recipe's directory"


def test_a_lock_may_be_the_requirements_themselves(tree: Tree) -> None:
    tree.write("images/own.lock", f"numpy==2.0 --hash=sha256:{SHA}  # numpy-2.0.whl 10\n")
    recipe = read(tree, "requirements: own.lock\n")

    assert [package.name for package in recipe.content.packages] == ["numpy"]
    assert recipe.requirements is None


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_requirements_are_installed_from_their_lock(tree: Tree, end: str) -> None:
    requirements = tree.write("images/requirements.txt", "numpy\n")
    first = f"# of requirements.txt sha256:{sha256(requirements.read_bytes()).hexdigest()} for small"
    tree.write(
        "images/requirements.txt.lock", f"{first}{end}numpy==2.0 --hash=sha256:{SHA}  # numpy-2.0.whl 10{end}"
    )
    recipe = read(tree, "requirements: requirements.txt\n")

    assert [package.version for package in recipe.content.packages] == ["2.0"]
    assert recipe.requirements
    assert recipe.requirements.path == requirements


def test_a_list_of_packages_is_for_each_manager_and_may_have_versions(tree: Tree) -> None:
    packages = content(tree, 'packages: ["vim=2:9.0-1+b1", "g++", libstdc++6]\n').system_packages

    assert packages.apt == packages.dnf == ("vim=2:9.0-1+b1", "g++", "libstdc++6")


def test_packages_can_have_a_list_for_each_manager(tree: Tree) -> None:
    packages = content(tree, "packages: {apt: [g++], dnf: [gcc-c++]}\n").system_packages

    assert (packages.names("apt"), packages.names("dnf")) == (("g++",), ("gcc-c++",))
    assert not packages.lacks("dnf")


def test_a_mapping_of_packages_without_a_manager_has_no_names_for_it(tree: Tree) -> None:
    packages = content(tree, "packages: {apt: [g++]}\n").system_packages

    assert (packages.lacks("apt"), packages.lacks("dnf")) == (False, True)


def test_a_name_that_only_dnf_accepts_needs_a_list_of_its_own(tree: Tree) -> None:
    text = error_text(raised(RecipeError, content, tree, "packages: [SDL2]\n"))
    assert text.startswith("error: `SDL2` is not a valid package name\n")
    assert "hint: write `packages: {dnf: [SDL2]}`\n" in text


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        ("{apt: [Git]}", "`Git` is not a valid package name of apt"),
        ("{dnf: ['@development']}", "`@development` is not a valid package name of dnf"),
        ("{dnf: ['jq*']}", "`jq*` is not a valid package name of dnf"),
        ("{dnf: [--nogpgcheck]}", "`--nogpgcheck` is not a valid package name of dnf"),
        ("{yum: [jq]}", "unknown key `yum` in `packages`"),
        ("[a b]", "`a b` is not a valid package name"),
    ],
)
def test_invalid_packages_are_refused(tree: Tree, packages: str, message: str) -> None:
    error = raised(RecipeError, content, tree, f"packages: {packages}\n")

    assert error_text(error).startswith(f"error: {message}\n")


def test_environment_and_steps_are_kept_as_written(tree: Tree) -> None:
    own = content(
        tree, 'environment: {A: "1", B: " $HOME\\t\\"x\\" "}\nrun:\n- echo a\n- |\n  echo b\n  echo c\n'
    )

    assert own.environment == (("A", "1"), ("B", ' $HOME\t"x" '))
    assert [*map(str, own.run)] == ["echo a", "echo b\necho c\n"]


@pytest.mark.parametrize(
    "target", ["/opt/./x", "/..", "/opt/..", "/opt/x/../y", "/a//b", "/a/", "/.", "/ä", "/$x"]
)
def test_an_unclear_target_is_refused_unless_it_is_a_directory(tree: Tree, target: str) -> None:
    tree.write("images/note", "")
    text = f'files: [{{from: note, to: "{target}"}}]\n'
    if target == "/a/":
        assert content(tree, text).files[0].target == "/a/note"
    else:
        assert refusal(tree, text) == f"`{target}` is not a plain absolute path"


@pytest.mark.parametrize(
    "entry_point", ["/opt/train.py", "../train.py", "a/../../train.py", "a b.py", "$(id).py", "."]
)
def test_an_entry_point_is_below_its_directory(tree: Tree, entry_point: str) -> None:
    tree.write("images/src/train.py", "")
    text = f'code: {{directory: src, entry_point: "{entry_point}"}}\n'

    assert refusal(tree, text) == f"`{entry_point}` is not a plain relative path"


@pytest.mark.parametrize("name", ["a", "pytorch-cu130", "a_b", "1"])
def test_image_names_are_what_registries_and_bake_take(tree: Tree, name: str) -> None:
    tree.image(IMAGE, name)

    assert name in tree.recipes()


@pytest.mark.parametrize("name", ["A", "a..b", "a--b", "-a", "a-", "a b", "ä", "a" * 101, "a_-b"])
def test_others_are_refused(tree: Tree, name: str) -> None:
    tree.image(IMAGE, name)
    with pytest.raises(RecipeError, match="is not an image name"):
        tree.recipes()


def test_a_later_directory_replaces_a_recipe_whole(tmp_path: Path, tree: Tree) -> None:
    later = Tree(tmp_path / "later")
    later.image("summary: Theirs\nbase: debian\n")
    later.image("summary: New\nbase: debian\n", "new")
    recipes = load_recipes([tree.root, later.root], tree.catalog())

    assert (recipes["small"].summary, recipes["small"].components) == ("Theirs", ())
    assert recipes["new"].summary == "New"


def test_a_recipe_has_its_directory_in_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    roots = [HOME / "recipes", tmp_path / "shared", project / "teams/ads"]
    for root in roots[1:]:
        Tree(root).image("summary: Ours\nbase: debian\n", root.name)
    catalog = load_catalog(roots)
    recipes = read_recipes(roots, catalog, project=project, refusal_of=conflict_text).by_name

    assert {name: recipes[name].directory for name in ("mpi-cpu", "shared", "ads")} == {
        "mpi-cpu": "recipes",
        "shared": "shared",
        "ads": "teams/ads",
    }


def test_what_bakehouse_brings_can_be_read() -> None:
    catalog = load_catalog([HOME / "recipes"])

    recipes = load_recipes([HOME / "recipes"], catalog, refusal_of=conflict_text)
    assert {"mpi-cpu", "pytorch-cpu", "pytorch-cu130", "tensorflow-cpu"} <= recipes.keys()


def test_required_checks_are_jobs_or_what_components_answer(tree: Tree) -> None:
    recipe = read(tree, "required: [gpu, nccl_all_reduce, gpu, components.pytorch.computes_on_gpu]\n")

    assert recipe.required == ("gpu", "nccl_all_reduce", "components.pytorch.computes_on_gpu")


def test_a_required_check_that_there_is_not_is_refused(tree: Tree) -> None:
    assert refusal(tree, "required: [nccl]\n") == "unknown smoke check `nccl`"


def test_required_checks_are_not_part_of_the_key(tree: Tree) -> None:
    tree.image(HEAD)
    key = tree.planned_image().key
    tree.image(HEAD + "required: [gpu]\n")

    assert (tree.planned_image().key, tree.planned_image().required) == (key, ("gpu",))


@pytest.mark.parametrize(("text", "required"), [("", ("nccl_all_reduce", "gpu")), ("required: []\n", ())])
def test_an_image_for_gpus_has_to_be_seen_on_some_unless_its_recipe_says_otherwise(
    tree: Tree, text: str, required: tuple[str, ...]
) -> None:
    tree.component(
        "torch",
        "summary: x\nstage_order: 20\nlaunchers: [torchrun]\nreleases:\n  - version: '2.13'\n    gpu: true\n",
        "{% block build %}\nFROM toolchain AS torch\nRUN finish torch\n{% endblock %}\n",
    )
    tree.image(HEAD + "components: {torch: '*'}\n" + text)

    assert (tree.planned_image().gpu, tree.planned_image().required) == (True, required)
