"""The selection of files that enter an image or a job."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from bakehouse.catalog import source_tree
from bakehouse.catalog.source_tree import Limits, SourceTree

LIMITS = Limits(files=100, file_bytes=50_000_000, total_bytes=100_000_000, hint="use less")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    return tmp_path / "src"


def read(source: Path, project: Path | None = None, allow: tuple[str, ...] = ()) -> SourceTree:
    inside = ((project or source).resolve(),)
    return source_tree.read_tree(source, LIMITS, project=project, inside=inside, allow=allow)


def names(tree: SourceTree) -> list[str]:
    return [file.name for file in tree.files]


def mistakes(tree: SourceTree) -> list[str]:
    return [problem.message for problem in tree.problems]


def write(directory: Path, *paths: str, content: str = "") -> None:
    for path in paths:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(content)


def test_repositories_environments_and_caches_stay_out(source: Path) -> None:
    write(source, ".git/config", "sub/.git", ".hg/x", ".svn/x", "env/pyvenv.cfg", "conda/conda-meta/history")
    write(source, "a/__pycache__/x.pyc", ".mypy_cache/x", ".ipynb_checkpoints/x", "train.py", "sub/x.py")
    write(source, "my-cache/CACHEDIR.TAG", content="Signature: 8a477f597d28d172789f06886806bc55\n# x")
    tree = read(source)

    assert names(tree) == ["sub/x.py", "train.py"]
    assert tree.left_out_lines == (
        "caches (.ipynb_checkpoints): 1 directory",
        "caches (.mypy_cache): 1 directory",
        "caches (__pycache__): 1 directory",
        "caches (my-cache): 1 directory",
        "version control (.git): 1 file and 1 directory",
        "version control (.hg): 1 directory",
        "version control (.svn): 1 directory",
        "virtual environments (conda): 1 directory",
        "virtual environments (env): 1 directory",
    )


def test_the_project_is_not_copied_into_itself(tmp_path: Path) -> None:
    write(tmp_path, "images/x/Dockerfile", "build/runs/log", "src/images/x.png", "train.py")
    tree = read(tmp_path, project=tmp_path)

    assert names(tree) == ["src/images/x.png", "train.py"]
    assert tree.left_out_lines == (
        "files of Bakehouse (build): 1 directory",
        "files of Bakehouse (images): 1 directory",
    )


def test_the_dockerignore_of_the_project_applies_to_paths_from_there(tmp_path: Path, source: Path) -> None:
    write(source, "a.ckpt", "sub/b.ckpt", "tests/x.py", "train.py")
    write(tmp_path, ".dockerignore", content="**/*.ckpt\nsrc/tests/\n*.py\n")
    tree = read(source, project=tmp_path)

    assert names(tree) == ["train.py"]
    assert tree.left_out_lines == (
        f"{tmp_path}/.dockerignore:1 **/*.ckpt: 2 files",
        f"{tmp_path}/.dockerignore:2 src/tests/: 1 directory",
    )
    assert tree.rule_of("tests/x.py") == f"{tmp_path}/.dockerignore:2 src/tests/"


def test_the_dockerignore_of_the_directory_replaces_that_of_the_project(tmp_path: Path, source: Path) -> None:
    write(source, "a.ckpt", "train.py")
    write(tmp_path, ".dockerignore", content="**/*.ckpt\n")
    write(source, ".dockerignore", content="/train.py\n")

    assert names(read(source, project=tmp_path)) == [".dockerignore", "a.ckpt"]


def test_a_directory_may_stay_out_as_a_whole(tmp_path: Path, source: Path) -> None:
    write(source, "train.py", "deep/more.py")
    write(tmp_path, ".dockerignore", content="src\n")
    tree = read(source, project=tmp_path)
    assert (names(tree), tree.rule_of("deep/more.py")) == ([], f"{tmp_path}/.dockerignore:1 src")

    write(tmp_path, ".dockerignore", content="src\n!src/deep\n")
    assert names(read(source, project=tmp_path)) == ["deep/more.py"]


def test_the_patterns_of_another_directory_are_not_read(source: Path, tmp_path: Path) -> None:
    write(tmp_path, "private", content="[secret\n")
    (source / ".dockerignore").symlink_to(tmp_path / "private")

    assert (
        mistakes(read(source))[0]
        == f"`.dockerignore` links to `{tmp_path}/private`, which is outside the project"
    )


def test_a_repeated_pattern_does_not_undo_an_exception(source: Path) -> None:
    """Docker does not compare a directory that stays out already with further patterns."""
    write(source, "data/keep/a.py", "data/b.py")
    write(source, ".dockerignore", content="data\n!data/keep\ndata\n")

    assert names(read(source)) == [".dockerignore", "data/keep/a.py"]


def test_an_invalid_pattern_is_an_error_with_its_place(source: Path) -> None:
    write(source, ".dockerignore", content="*.ckpt\n  a[\n")
    [problem] = read(source).problems

    assert problem.message == "`a[` is not a valid pattern of `.dockerignore`"
    assert str(problem.location) == f"{source}/.dockerignore:2:3"


def test_all_invalid_patterns_are_reported(source: Path) -> None:
    write(source, ".dockerignore", content="a[\n*.ckpt\nb[\n")

    assert mistakes(read(source)) == [
        "`a[` is not a valid pattern of `.dockerignore`",
        "`b[` is not a valid pattern of `.dockerignore`",
    ]


def test_links_in_the_project_are_followed(tmp_path: Path, source: Path) -> None:
    write(tmp_path, "shared/more.py")
    (source / "lib").symlink_to("../shared")
    (source / "a.py").symlink_to("b.py")
    (source / "b.py").symlink_to("lib/more.py")

    assert names(read(source, project=tmp_path)) == ["a.py", "b.py", "lib/more.py"]


def test_links_that_lead_nowhere_or_outside_are_errors(source: Path, tmp_path: Path) -> None:
    (source / "a").symlink_to("/etc/passwd")
    (source / "b").symlink_to("a")
    (source / "c").symlink_to("/etc")
    (source / "d").symlink_to("missing")
    (source / "e").symlink_to("e")
    (source / "f").symlink_to("g")
    (source / "g").symlink_to("f")
    (source / "h").mkdir()
    (source / "h/top").symlink_to("..")
    (source / "train.py/x").parent.mkdir()
    (source / "i").symlink_to("/proc/self/environ")
    tree = read(source)

    real = Path("/proc/self/environ").resolve()
    assert mistakes(tree) == [
        "`a` links to `/etc/passwd`, which is outside the project",
        "`b` links to `/etc/passwd`, which is outside the project",
        "`c` links to `/etc`, which is outside the project",
        "`d` links to `missing`, which does not exist",
        "`e` links to `e`, which is part of a loop of links",
        "`f` links to `g`, which is part of a loop of links",
        "`g` links to `f`, which is part of a loop of links",
        f"`i` links to `{real}`, which is outside the project",
        "`h/top` links to a directory above it",
    ]
    assert names(tree) == []


def test_links_that_multiply_end(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level has two links to the next.

    Linux refuses more than 40 links of a path. On a busy machine it looks up a path twice, and counts both.
    """
    monkeypatch.setattr(source_tree, "MAX_ENTRIES", 1_000)
    for level in range(15):
        (source / str(level)).mkdir()
        for name in "ab":
            (source / str(level) / name).symlink_to(f"../{level + 1}")
    (source / "15").mkdir()

    assert mistakes(read(source)) == ["`src` contains more than 1,000 files and directories"]


def test_files_that_are_not_regular_are_errors_and_do_not_hang(source: Path) -> None:
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "socket"))
    (source / "null").symlink_to("/dev/null")
    (source / "quiet").mkdir()
    for name in ("pipe", "CACHEDIR.TAG", "pyvenv.cfg"):
        os.mkfifo(source / "quiet" / name)
    write(source, ".dockerignore", content="quiet\n")
    tree = source_tree.read_tree(source, LIMITS)

    assert mistakes(tree) == [
        "`null` is a device, not a file",
        "`pipe` is a named pipe, not a file",
        "`socket` is a socket, not a file",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (b"a\xff", r"the name `a\udcff` is not UTF-8"),
        (b".wh.a", "the name `.wh.a` starts with `.wh.`, which marks deleted files in image layers"),
    ],
)
def test_names_that_no_image_can_contain_are_errors(source: Path, name: bytes, message: str) -> None:
    Path(os.fsdecode(os.fsencode(source) + b"/" + name)).write_text("")
    tree = read(source)

    assert mistakes(tree) == [message]
    assert names(tree) == []


def test_limits(source: Path) -> None:
    write(source, *map(str, range(101)))
    assert mistakes(read(source)) == ["`src` contains more than 100 files"]

    for path in source.iterdir():
        path.unlink()
    for name in "abc":
        with (source / name).open("wb") as file:
            file.truncate(40_000_000)
    assert mistakes(read(source)) == ["`src` contains more than 100 MB"]
    with (source / "a").open("wb") as file:
        file.truncate(50_000_001)
    assert mistakes(read(source)) == ["`a` is larger than 50 MB"]


def test_secrets_are_errors_at_their_line_unless_allowed(source: Path) -> None:
    write(source, "conf/.env", content="# Settings\nKEY=value\n")
    write(source, "tests/a.py", "tests/b.py", content="\n\nTOKEN = 'ghp_" + 36 * "a" + "'\n")
    write(source, "tests/c.py")
    tree = read(source, allow=("tests",))

    assert tree.allowed == ("tests/a.py", "tests/b.py")
    [problem] = tree.problems
    assert problem.message == "`conf/.env` contains environment variables, which usually include secrets"
    assert str(problem.location) == f"{source}/conf/.env:2:1"


def test_only_secrets_that_git_tracks_can_be_allowed(source: Path) -> None:
    """A pull request can name a file that only its reviewer has."""
    write(source, "a/.env", "b/.env", content="KEY=value\n")
    subprocess.run(["git", "init", "-q"], cwd=source, check=True)
    subprocess.run(["git", "add", "a"], cwd=source, check=True)
    tree = read(source, allow=("a", "b"))

    assert tree.allowed == ("a/.env",)
    assert [problem.hint for problem in tree.problems] == [
        "remove it, or add it to git: `allow` is only for files that the repository shows anyway"
    ]


def test_many_mistakes_are_counted(source: Path) -> None:
    for number in range(25):
        (source / f"{number:02}").symlink_to("missing")

    assert len(mistakes(read(source))) == 21
    assert mistakes(read(source))[-1] == "`src` has 5 more mistakes"


def test_a_directory_that_contains_credentials_itself(tmp_path: Path) -> None:
    write(tmp_path, ".aws/credentials", content="[default]\n")

    assert mistakes(read(tmp_path / ".aws")) == ["`credentials` contains credentials"]


def test_a_single_file_is_examined_by_the_same_rules(tmp_path: Path) -> None:
    write(tmp_path, ".netrc", content="machine a login b password c\n")
    assert mistakes(read(tmp_path / ".netrc", project=tmp_path)) == ["`.netrc` contains credentials"]

    write(tmp_path, ".dockerignore", content=".netrc\n")
    assert names(read(tmp_path / ".netrc", project=tmp_path)) == []
