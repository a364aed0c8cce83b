"""The recipes of a project as they were at a commit."""

import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from bakehouse.catalog import git_history
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import UsageError
from tests.support.requirements_locks import locked_heading
from tests.support.trees import COMPONENTS, IMAGE, SHA, Tree

CODE = "code: {directory: ../../src, entry_point: train.py}\n"
ELSEWHERE = f"""\
requirements: ../../requirements.txt
files: [{{from: ../../tools/, to: /opt/tools/}}]
{CODE}"""


def git(directory: Path, *arguments: str, content: bytes = b"") -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(directory), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, input=content).stdout.decode().strip()


@pytest.fixture
def repository(empty: Tree) -> Tree:
    """Recipes below `mine`, committed, then changed."""
    for name, text in COMPONENTS.items():
        empty.write(f"mine/components/{name}/component.yaml", text)
    empty.write("mine/images/small.yaml", IMAGE)
    git(empty.root, "init", "--quiet")
    git(empty.root, "add", ".")
    git(empty.root, "commit", "--quiet", "-m", "first")
    empty.write("mine/images/small.yaml", IMAGE.replace("A small image", "Another"))
    return empty


def project(tree: Tree) -> ProjectSettings:
    return ProjectSettings(tree.root, (tree.root / "mine",))


def commit(tree: Tree) -> None:
    git(tree.root, "add", ".")
    git(tree.root, "commit", "--quiet", "-m", "next")


def link(tree: Tree, path: str, target: str) -> None:
    link_path = tree.root / path
    link_path.parent.mkdir(parents=True, exist_ok=True)
    link_path.symlink_to(target)


def laid_out(tree: Tree, revision: str = "HEAD") -> list[str]:
    """Return the files and links of a commit's recipes, without the components."""
    with git_history.past(project(tree), revision) as then:
        directory = then.recipes["small"].location.path.parent.parent.parent
        paths = (path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir())
        return sorted(path for path in paths if not path.endswith("component.yaml"))


def forged(tree: Tree, *entries: tuple[str, str, str]) -> str:
    """A commit of entries (mode, name, object) that git itself would not make a tree of."""
    lines = git(tree.root, "ls-tree", "HEAD").splitlines()
    kept_entries = [(line.split()[0], line.split()[3], line.split()[2]) for line in lines]
    data = b"".join(
        f"{mode.lstrip('0')} {name}\0".encode() + bytes.fromhex(digest)
        for mode, name, digest in (*kept_entries, *entries)
    )
    named = git(tree.root, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", content=data)
    return git(tree.root, "commit-tree", named, "-m", "forged")


def written(tree: Tree, text: str) -> str:
    """An object that holds a text."""
    return git(tree.root, "hash-object", "-w", "--stdin", content=text.encode())


def test_the_recipes_are_those_of_the_commit(repository: Tree) -> None:
    with git_history.past(project(repository), "HEAD") as then:
        assert then.recipes["small"].summary == "A small image"
        assert sorted(then.catalog.components) == sorted(COMPONENTS)


def message_of(tree: Tree, revision: str) -> str:
    with pytest.raises(UsageError) as caught, git_history.past(project(tree), revision):
        pass
    return caught.value.diagnostics[0].message


def test_directories_outside_the_repository_are_taken_as_they_are(
    repository: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "images").mkdir()
    (outside / "images" / "large.yaml").write_text(IMAGE)
    both = ProjectSettings(repository.root, (outside, repository.root / "mine"))

    with git_history.past(both, "HEAD") as then:
        assert sorted(then.recipes) == ["large", "small"]


def test_the_pins_are_those_of_the_commit(repository: Tree) -> None:
    base = "  - version: '1'\n    base: {image: x.example/y:1}\n"
    repository.write("mine/components/theirs/component.yaml", f"summary: Theirs\nreleases:\n{base}")
    for digest in ("a", "b"):
        repository.write("mine/pins.yaml", f"images: {{x.example/y:1: sha256:{digest * 64}}}\n")
        if digest == "a":
            commit(repository)

    with git_history.past(project(repository), "HEAD") as then:
        [spec] = then.catalog.components["theirs"].specs

    assert spec.base
    assert spec.base.digest == f"sha256:{'a' * 64}"


@pytest.mark.parametrize("revision", ["nope", "--all"])
def test_a_commit_that_does_not_exist_is_reported(repository: Tree, revision: str) -> None:
    assert message_of(repository, revision) == f"commit `{revision}` does not exist"


def test_recipes_that_can_not_be_read_are_reported_with_the_commit(repository: Tree) -> None:
    repository.write("mine/images/small.yaml", "summary: [")
    git(repository.root, "commit", "--quiet", "-am", "broken")

    assert message_of(repository, "HEAD") == "cannot read the recipes of `HEAD`: this is not YAML"


def test_a_directory_without_git_is_reported(tree: Tree) -> None:
    assert message_of(tree, "HEAD").startswith("git cannot read")


def test_mistakes_of_a_commit_are_placed_as_git_names_the_file(repository: Tree) -> None:
    repository.write("mine/images/small.yaml", "summary: [")
    commit(repository)

    with pytest.raises(UsageError) as caught, git_history.past(project(repository), "HEAD"):
        pass
    location = caught.value.diagnostics[0].location
    assert str(location and location.path) == "HEAD:mine/images/small.yaml"


@pytest.mark.parametrize("target", ["/etc/hostname", "/", "../../../../..", "../../../../../outside"])
def test_links_that_lead_out_of_the_repository_are_left_out(repository: Tree, target: str) -> None:
    link(repository, "mine/components/python/stubs/link", target)
    commit(repository)

    assert laid_out(repository) == ["mine/images/small.yaml"]


def test_links_that_only_together_lead_out_are_left_out(repository: Tree) -> None:
    link(repository, "mine/images/up", "../..")
    link(repository, "mine/images/out", "up/..")
    commit(repository)

    assert "mine/images/out" not in laid_out(repository)


def test_a_link_that_another_one_turns_out_of_the_repository_is_left_out(repository: Tree) -> None:
    link(repository, "mine/images/first", "../../deep/up/../secret")
    link(repository, "mine/images/second", "../../deep/up")
    link(repository, "deep/up", "..")
    commit(repository)

    assert "mine/images/first" not in laid_out(repository)


@pytest.mark.parametrize("target", ["", "a\0b", "a" * 5000])
def test_a_link_that_no_system_can_make_is_left_out(repository: Tree, target: str) -> None:
    named = written(repository, target)
    git(repository.root, "update-index", "--add", "--cacheinfo", f"120000,{named},mine/images/link")
    git(repository.root, "commit", "--quiet", "-m", "link")

    assert laid_out(repository) == ["mine/images/small.yaml"]


def test_what_links_lead_to_within_the_repository_is_there(repository: Tree) -> None:
    repository.write("shared/torch/component.yaml", COMPONENTS["torch"])
    link(repository, "mine/components/again", "../../shared/torch")
    commit(repository)

    with git_history.past(project(repository), "HEAD") as then:
        assert then.catalog.components["again"].releases


def test_a_forged_tree_writes_nothing_beside_its_directory(
    repository: Tree, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = tmp_path_factory.mktemp("around")
    monkeypatch.setattr("tempfile.tempdir", str(around))
    repository.write("mine/images/small.yaml", IMAGE + "files: [{from: ../../, to: /all/}]\n")
    commit(repository)
    evil = written(repository, "evil")
    directory = git(repository.root, "mktree", content=f"100644 blob {evil}\tevil\n".encode())
    link_out = ("120000", "link", written(repository, ".."))
    revision = forged(repository, ("40000", "..", directory), link_out, ("40000", "link", directory))

    with git_history.past(project(repository), revision) as then:
        assert "small" in then.recipes
        assert not [*around.rglob("evil")]


def test_recipes_are_read_with_code_files_and_requirements_that_lie_elsewhere(repository: Tree) -> None:
    repository.write("src/train.py", "print()")
    repository.write("tools/deep/tool", "")
    repository.write("requirements.txt", "numpy\n")
    heading = f"# of requirements.txt sha256:{sha256(b'numpy' + bytes([10])).hexdigest()} for small\n"
    repository.write("requirements.txt.lock", f"{heading}numpy==2.0 --hash=sha256:{SHA}  # numpy.whl 9\n")
    repository.write("mine/images/small.yaml", IMAGE + ELSEWHERE)
    commit(repository)
    git(repository.root, "rm", "--quiet", "-r", "src", "tools", "requirements.txt.lock")

    with git_history.past(project(repository), "HEAD") as then:
        content = then.recipes["small"].content
        assert [file.target for file in content.code] == ["/opt/ml/code/train.py"]
        assert [file.target for file in content.files] == ["/opt/tools/deep/tool"]
        assert [package.name for package in content.packages] == ["numpy"]


@pytest.mark.parametrize("name", ["../../requirements.txt", "requirements.txt"])
def test_included_requirements_are_read_at_the_commit(repository: Tree, name: str) -> None:
    directory = "" if name.startswith("..") else "mine/images/"
    repository.write(f"{directory}requirements.txt", "-r shared/all.txt\n-c shared/limits.txt\n")
    repository.write(f"{directory}shared/all.txt", "-r more.txt\n")
    repository.write(f"{directory}shared/more.txt", "numpy\n")
    repository.write(f"{directory}shared/limits.txt", "numpy<3\n")
    path = repository.root / directory / "requirements.txt"
    line = f"numpy==2.0 --hash=sha256:{SHA}  # numpy.whl 9\n"
    repository.write(f"{directory}requirements.txt.lock", f"{locked_heading(path, 'small')}\n{line}")
    repository.write("mine/images/small.yaml", f"{IMAGE}requirements: {name}\n")
    commit(repository)
    repository.write(f"{directory}shared/more.txt", "pandas\n")

    with git_history.past(project(repository), "HEAD") as then:
        recipe = then.recipes["small"]
        assert recipe.requirements
        assert [package.name for package in recipe.requirements.read().packages] == ["numpy"]
        assert [package.name for package in recipe.content.packages] == ["numpy"]


def test_the_dockerignore_of_the_commit_applies(repository: Tree) -> None:
    repository.write("src/train.py", "print()")
    repository.write("src/model.ckpt", "")
    repository.write(".dockerignore", "**/*.ckpt\n")
    repository.write("mine/images/small.yaml", IMAGE + CODE)
    commit(repository)
    git(repository.root, "rm", "--quiet", ".dockerignore")

    with git_history.past(project(repository), "HEAD") as then:
        assert [file.target for file in then.recipes["small"].content.code] == ["/opt/ml/code/train.py"]


def test_what_no_recipe_is_read_from_is_not_copied(repository: Tree) -> None:
    repository.write("src/train.py", "print()")
    repository.write("data/large", "")
    repository.write("mine/notes", "")
    repository.write("mine/images/small.yaml", IMAGE + CODE)
    commit(repository)

    assert laid_out(repository) == ["mine/images/small.yaml", "src/train.py"]


def test_code_behind_a_link_is_read_from_where_it_leads(repository: Tree) -> None:
    repository.write("lib/app/train.py", "print()")
    link(repository, "src", "lib/app")
    repository.write("mine/images/small.yaml", IMAGE + CODE)
    commit(repository)

    with git_history.past(project(repository), "HEAD") as then:
        assert [file.target for file in then.recipes["small"].content.code] == ["/opt/ml/code/train.py"]


def test_a_matrixs_variable_in_a_path_can_stand_for_any_directory(repository: Tree) -> None:
    repository.write("src/a/train.py", "")
    repository.write("src/b/train.py", "")
    matrix = "name: small-${part}\nmatrix: {part: [a, b]}\n"
    repository.write(
        "mine/images/each.yaml", IMAGE + CODE.replace("../../src", "'../../src/${part}'") + matrix
    )
    commit(repository)

    with git_history.past(project(repository), "HEAD") as then:
        assert sorted(then.recipes) == ["small", "small-a", "small-b"]


def test_what_git_leaves_out_of_archives_is_read(repository: Tree) -> None:
    repository.write(".gitattributes", "mine export-ignore\n")
    commit(repository)

    with git_history.past(project(repository), "HEAD") as then:
        assert sorted(then.recipes) == ["small"]


def test_programs_stay_executable(repository: Tree) -> None:
    (repository.root / "mine/images/tool").write_text("")
    (repository.root / "mine/images/tool").chmod(0o755)
    repository.write(
        "mine/images/small.yaml", IMAGE + "files: [{from: tool, to: /a/}, {from: small.yaml, to: /a/}]\n"
    )
    commit(repository)

    with git_history.past(project(repository), "HEAD") as then:
        assert [file.is_executable for file in then.recipes["small"].content.files] == [True, False]


def test_an_outdated_lock_is_not_a_mistake(repository: Tree) -> None:
    repository.write("mine/images/requirements.txt", "numpy\n")
    repository.write("mine/images/requirements.txt.lock", "# of requirements.txt sha256:1\n")
    repository.write("mine/images/small.yaml", IMAGE + "requirements: requirements.txt\n")
    commit(repository)

    with git_history.past(project(repository), "HEAD") as then:
        assert then.recipes["small"].content.packages == ()


def test_a_repository_within_the_projects_is_taken_as_it_is(repository: Tree) -> None:
    inner = repository.root / "inner"
    repository.write("inner/images/large.yaml", IMAGE)
    git(inner, "init", "--quiet")
    both = ProjectSettings(repository.root, (inner, repository.root / "mine"))

    with git_history.past(both, "HEAD") as then:
        assert sorted(then.recipes) == ["large", "small"]


def test_a_project_may_lie_below_its_repository(repository: Tree) -> None:
    repository.write("deep/mine/images/other.yaml", IMAGE + CODE.replace("../../", "../../../"))
    repository.write("src/train.py", "print()")
    commit(repository)
    below = ProjectSettings(
        repository.root / "deep", (repository.root / "mine", repository.root / "deep/mine")
    )

    with git_history.past(below, "HEAD") as then:
        assert sorted(then.recipes) == ["other", "small"]


def test_a_git_that_hangs_is_reported(repository: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write("bin/git", "#!/bin/sh\nexec sleep 60\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{repository.root}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(git_history, "_SECONDS", 0.05)

    assert message_of(repository, "HEAD") == f"git did not read `{repository.root}` within 0.05 s"


def test_uncommitted_files_are_those_that_the_image_depends_on(repository: Tree) -> None:
    recipe = repository.write("mine/images/small.yaml", IMAGE + ELSEWHERE)
    repository.write("mine/images/other.yaml", IMAGE)
    repository.write("requirements.txt", "-r more.txt\n")
    repository.write("more.txt", "native\n")
    repository.write("src/train.py", "pass\n")
    repository.write("tools/run.sh", "true\n")
    repository.write("README.md", "x\n")
    commit(repository)
    assert git_history.uncommitted(project(repository), recipe) == ()

    for unrelated in ("README.md", "mine/images/other.yaml"):
        repository.write(unrelated, "changed\n")
    assert git_history.uncommitted(project(repository), recipe) == ()

    paths = ("mine/images/small.yaml", "more.txt", "src/train.py", "src/a new file.py", "tools/run.sh")
    for path in paths:
        repository.write(path, (repository.root / path).read_text() + "\n" if "new" not in path else "x\n")
    repository.write("mine/components/python/component.yaml", COMPONENTS["python"] + "\n")
    assert git_history.uncommitted(project(repository), recipe) == tuple(
        sorted((*paths, "mine/components/python/component.yaml"))
    )


def test_a_removed_file_and_one_of_the_index_are_uncommitted(repository: Tree) -> None:
    recipe = repository.write("mine/images/small.yaml", IMAGE + CODE)
    repository.write("src/train.py", "pass\n")
    repository.write("src/old.py", "pass\n")
    commit(repository)
    (repository.root / "src/old.py").unlink()
    repository.write("src/staged.py", "pass\n")
    git(repository.root, "add", "src/staged.py")

    assert git_history.uncommitted(project(repository), recipe) == ("src/old.py", "src/staged.py")


def test_without_a_repository_no_file_is_uncommitted(tree: Tree) -> None:
    assert git_history.uncommitted(project(tree), tree.root / "mine/images/small.yaml") == ()
