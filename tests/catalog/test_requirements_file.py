"""Requirements files."""

from pathlib import Path

import pytest

from bakehouse.catalog.requirements_file import (
    Requirements,
    RequirementsFile,
    RequirementsFiles,
    read_requirements,
)
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import Location, RecipeError
from bakehouse.util.git import GitSource
from tests.support.data import text_of
from tests.support.errors import raised
from tests.support.wheels import wheel


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(directory: Path, text: str | bytes) -> Requirements:
    path = directory / "requirements.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_requirements(path)


def mistake(directory: Path, text: str | bytes) -> str:
    return "\n".join(map(failure_text, raised(RecipeError, read, directory, text).diagnostics))


def test_comments_and_empty_lines_are_left_out(directory: Path) -> None:
    text = "# what we need\nsix>=1  # of old\n\ntiny @ https://x.example/tiny-1.whl#sha256=0\n"

    packages = read(directory, text).packages

    assert [package.text for package in packages] == [
        "six>=1",
        "tiny @ https://x.example/tiny-1.whl#sha256=0",
    ]


def test_other_files_are_included_with_their_own_locations(directory: Path) -> None:
    (directory / "more").mkdir()
    (directory / "more/base.txt").write_text("attrs\n-c limits.txt\n")
    (directory / "more/limits.txt").write_text("\nsix<2\n")

    requirements = read(directory, "six\n-r more/base.txt\n")

    assert [str(package.location) for package in requirements.packages] == [
        f"{directory}/requirements.txt:1:1",
        f"{directory}/more/base.txt:1:1",
    ]
    [limit] = requirements.constraints
    assert (limit.name, limit.location.line) == ("six", 2)
    assert requirements.contents == (b"six\n-r more/base.txt\n", b"attrs\n-c limits.txt\n", b"\nsix<2\n")


def test_a_line_continues_after_a_backslash(directory: Path) -> None:
    text = f"six==1.0 \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\nattrs\n"

    six, attrs = read(directory, text).packages

    assert six.text == "six==1.0"
    assert sorted(six.hashes) == ["a" * 64, "b" * 64]
    assert attrs.location.line == 4


def test_a_local_wheel_has_an_absolute_url(directory: Path) -> None:
    path = wheel(directory / "wheels", "own", "1.0")

    texts = [
        read(directory, line).packages[0].text
        for line in (f"wheels/{path.name}", f"./wheels/{path.name}", f"own @ file:wheels/{path.name}")
    ]

    assert set(texts) == {f"own @ {path.as_uri()}"}


def test_a_git_requirement_has_a_repository(directory: Path) -> None:
    [own] = read(directory, "own[x] @ git+https://git.example/own.git@main#subdirectory=py\n").packages

    assert (own.name, own.git) == ("own", GitSource("https://git.example/own.git", "main", "py"))


def test_credentials_in_a_git_url_are_refused_and_not_shown(directory: Path) -> None:
    assert mistake(directory, "six\nown @ git+https://me:secret@git.example/own.git@main\n") == (
        "error: `own` has an invalid git URL\n"
        "  --> requirements.txt:2:1\n"
        "   |\n"
        " 2 | own @ git+https://*********@git.example/own.git@main\n"
        "   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "\n"
        "hint: remove the credentials from the URL: git takes them from its credential helpers\n"
    )


def test_credentials_in_the_url_of_a_file_are_refused_and_not_shown(directory: Path) -> None:
    assert mistake(directory, "own @ https://me:secret@files.example/own-1.0-py3-none-any.whl\n") == (
        "error: the URL of `own` contains credentials, which its lock would repeat\n"
        "  --> requirements.txt:1:1\n"
        "   |\n"
        " 1 | own @ https://*********@files.example/own-1.0-py3-none-any.whl\n"
        "   | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "\n"
        "hint: remove them and put them in ~/.netrc, or in the index URLs of this machine's pip "
        "configuration\n"
    )


def test_credentials_in_an_index_option_are_refused(directory: Path) -> None:
    assert mistake(directory, "--index-url https://${USER}.example/simple\n").startswith(
        "error: the URL of `--index-url` contains credentials or variables\n"
    )


def test_the_login_of_an_index_option_is_not_shown(directory: Path) -> None:
    assert " 1 | --index-url https://*********@index.example/simple\n" in mistake(
        directory, "--index-url https://me:secret@index.example/simple\n"
    )


def test_a_marker_with_many_parentheses_is_reported(directory: Path) -> None:
    text = mistake(directory, f'six ; {"(" * 3_000}python_version > "3"\n')

    assert text.startswith("error: `six ; ((((")
    assert " too many parentheses\n" in text


def test_an_unsupported_option_is_reported_at_its_line(directory: Path) -> None:
    assert mistake(directory, "six\n  --trusted-host x.example\n") == (
        "error: pip's option `--trusted-host` is not supported here\n"
        "  --> requirements.txt:2:3\n"
        "   |\n"
        " 2 |   --trusted-host x.example\n"
        "   |   ^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "\n"
        "hint: set it in this machine's pip configuration, because builds download files too\n"
    )


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "-e .",
            "write `name @ git+URL@COMMIT`, or build a wheel with `pip wheel --no-deps DIRECTORY` "
            "and name it",
        ),
        (
            "--use-feature=fast-deps",
            "remove it: `bake lock` chooses each package, and builds install the files in the lock",
        ),
    ],
)
def test_the_hint_at_an_option_says_what_to_write(directory: Path, line: str, hint: str) -> None:
    assert mistake(directory, f"{line}\n").endswith(f"\nhint: {hint}\n")


def test_options_that_change_what_is_chosen_are_kept(directory: Path) -> None:
    lines = (
        "-i https://a.example/simple\n--extra-index-url=https://b.example/simple\n-f wheels\n"
        "--find-links https://c.example/page.html\n--pre\n--only-binary=:all:\n--prefer-binary\n"
    )

    assert [option.text for option in read(directory, lines).options] == [
        "--index-url https://a.example/simple",
        "--extra-index-url https://b.example/simple",
        f"--find-links {directory}/wheels",
        "--find-links https://c.example/page.html",
        "--pre",
        "--only-binary :all:",
    ]


@pytest.mark.parametrize(
    ("line", "build"),
    [
        ("--extra-index-url https://download.pytorch.org/whl/cu128", "cu128"),
        ("--index-url=https://download.pytorch.org/whl/cpu/", "cpu"),
        ("-f https://download.pytorch.org/whl/torch_stable.html", ""),
        ("-f https://download.pytorch.org/whl/cu118/torch_stable.html", "cu118"),
        ("--extra-index-url https://download.pytorch.org/whl/nightly/cu130", "nightly/cu130"),
    ],
)
def test_an_index_of_pytorch_names_a_build(directory: Path, line: str, build: str) -> None:
    requirements = read(directory, f"{line}\n")

    assert [index.build for index in requirements.torch_indexes] == [build]
    assert requirements.options == ()


def test_a_file_that_is_a_constraint_and_a_requirement_is_both(directory: Path) -> None:
    (directory / "more.txt").write_text("six<2\n")

    requirements = read(directory, "-c more.txt\n-r more.txt\n")

    assert [package.text for package in (*requirements.packages, *requirements.constraints)] == ["six<2"] * 2


def test_a_line_that_moves_between_files_changes_the_digest(directory: Path) -> None:
    (directory / "limits.txt").write_text("six<2\n")
    limit = read(directory, "six\n-c limits.txt\n").digest
    (directory / "limits.txt").write_text("")

    assert read(directory, "six\n-c limits.txt\nsix<2\n").digest != limit


def test_conflict_markers_are_one_mistake(directory: Path) -> None:
    assert mistake(directory, "six\n<<<<<<< HEAD\nattrs==1\n=======\nattrs==2\n>>>>>>> other\n") == (
        "error: `requirements.txt` contains conflict markers\n"
        "  --> requirements.txt:2:1\n"
        "   |\n"
        " 2 | <<<<<<< HEAD\n"
        "   | ^^^^^^^^^^^^\n"
        "\n"
        "hint: resolve the conflict, then run `bake lock`\n"
    )


PROJECT = text_of(__file__, "project")


def project(
    directory: Path, text: str, *, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()
) -> list[str]:
    path = directory / "pyproject.toml"
    path.write_text(text)
    file = RequirementsFile(path, Location(path, 1, 1), extras, groups)
    return [f"{line.text} {line.location.line}" for line in RequirementsFiles((file,)).read().packages]


def test_dependencies_of_a_project_have_their_lines(directory: Path) -> None:
    assert project(directory, PROJECT) == ["six>=1 4"]
    assert project(directory, PROJECT, extras=("Train",), groups=("gpu",)) == [
        "six>=1 4",
        "iniconfig 7",
        "attrs 6",
        "einops 9",
        "idna 10",
    ]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (PROJECT, "`pyproject.toml` has no extra `trian`", "did you mean `train`?"),
        (
            "[tool.poetry.dependencies]\nsix = '*'\n",
            "`pyproject.toml` has no static `[project] dependencies`",
            "install poetry-plugin-export, run `poetry export --without-urls --output requirements.txt` "
            "and name that file",
        ),
        (
            PROJECT + "[tool.uv.sources]\nsix = {path = 'six'}\n",
            "`[tool.uv.sources]` of `pyproject.toml` changes the source of `six>=1`",
            "run `uv lock` and name `uv.lock` instead, which has the files of all sources",
        ),
        ("[project\n", "`pyproject.toml` is not a valid TOML file: ", ""),
    ],
)
def test_mistakes_in_a_project_file(directory: Path, text: str, message: str, hint: str) -> None:
    extras = ("trian",) if "trian" in message else ()
    [diagnostic] = raised(RecipeError, project, directory, text, extras=extras).diagnostics
    assert diagnostic.message.startswith(message)
    assert diagnostic.hint == hint


def test_a_line_that_is_not_a_requirement_is_reported(directory: Path) -> None:
    text = mistake(directory, "six\nnumpy = 1.26\n")

    assert text.startswith("error: `numpy = 1.26` is not a requirement\n  --> requirements.txt:2:1\n")
    assert "hint: write packages as `name>=1.2` or `name @ URL`\n" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-r more.txt", "file `more.txt` does not exist"),
        ("./own-1.0-py3-none-any.whl", "`own-1.0-py3-none-any.whl` does not exist"),
        ("./more", "`more` is a directory, not a wheel"),
        ("./more/own.whl", "`own.whl` is not a wheel"),
    ],
)
def test_files_have_to_exist(directory: Path, line: str, message: str) -> None:
    if line.startswith("./more"):
        (directory / "more").mkdir()
        (directory / "more/own.whl").touch()

    assert mistake(directory, f"six\n{line}\n").startswith(f"error: {message}\n  --> requirements.txt:2:1\n")


def test_bytes_that_are_not_text_are_reported_with_their_position(directory: Path) -> None:
    assert mistake(directory, b"six\ntiny\xff\n").splitlines()[:2] == [
        "error: `requirements.txt` is not UTF-8 text",
        "  --> requirements.txt:2:1",
    ]


@pytest.mark.parametrize("name", ["x" * 5_000, "a\0b"])
def test_a_path_that_cannot_exist(directory: Path, name: str) -> None:
    assert "does not exist" in mistake(directory, f"./{name}.whl\n")
    assert "does not exist" in mistake(directory, f"-r {name}\n")


@pytest.mark.parametrize(
    ("name", "kind", "hint"),
    [
        (
            "poetry.lock",
            "a lock of Poetry",
            "install poetry-plugin-export, run `poetry export --without-urls --output requirements.txt`",
        ),
        ("pdm.lock", "a lock of PDM", "run `pdm export --prod --output requirements.txt`"),
        ("Pipfile", "a file of Pipenv", "run `pipenv requirements --exclude-index > requirements.txt`"),
        ("Pipfile.lock", "a lock of Pipenv", "run `pipenv requirements --exclude-index > requirements.txt`"),
        ("setup.py", "a build script", "run `uv pip compile setup.py --output-file requirements.txt`"),
        (
            "setup.cfg",
            "a build configuration",
            "run `uv pip compile setup.cfg --output-file requirements.txt`",
        ),
        (
            "environment.yml",
            "a file of conda",
            "activate the environment, run `pip list --format=freeze > requirements.txt`",
        ),
        (
            "conda-lock.yml",
            "a file of conda",
            "activate the environment, run `pip list --format=freeze > requirements.txt`",
        ),
    ],
)
def test_another_format_is_one_mistake_with_the_command_that_exports_it(
    directory: Path, name: str, kind: str, hint: str
) -> None:
    (directory / name).write_text("[[package]]\n" * 500)
    (directory / "more.txt").write_text(f"six\n-r {name}\n")

    for path, place in ((directory / name, (name, 1)), (directory / "more.txt", ("more.txt", 2))):
        [problem] = raised(RecipeError, read_requirements, path).diagnostics
        assert problem.message == f"`{name}` is {kind}, not a requirements file"
        assert problem.hint == f"{hint} and name that file"
        assert problem.location
        assert (problem.location.path.name, problem.location.line) == place


def test_a_file_with_another_format_must_exist(directory: Path) -> None:
    assert mistake(directory, "-r poetry.lock\n").startswith("error: file `poetry.lock` does not exist\n")
