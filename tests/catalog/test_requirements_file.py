"""Requirements files."""

from pathlib import Path

import pytest

from bakehouse.catalog.requirements_file import Requirements, read_requirements
from bakehouse.cli.diagnostics import failure_text
from bakehouse.errors import RecipeError
from bakehouse.util.git import GitSource
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
    with pytest.raises(RecipeError) as caught:
        read(directory, text)
    return "\n".join(map(failure_text, caught.value.diagnostics))


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
    assert requirements.content == b"six\n-r more/base.txt\nattrs\n-c limits.txt\n\nsix<2\n"


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


def test_the_login_of_an_index_option_is_not_shown(directory: Path) -> None:
    assert " 1 | --index-url https://*********@index.example/simple\n" in mistake(
        directory, "--index-url https://me:secret@index.example/simple\n"
    )


def test_a_marker_with_many_parentheses_is_reported(directory: Path) -> None:
    text = mistake(directory, f'six ; {"(" * 3_000}python_version > "3"\n')

    assert text.startswith("error: `six ; ((((")
    assert " too many parentheses\n" in text


def test_other_options_are_reported_at_their_line(directory: Path) -> None:
    assert mistake(directory, "six\n  --pre\n") == (
        "error: this pip option is not supported here\n"
        "  --> requirements.txt:2:3\n"
        "   |\n"
        " 2 |   --pre\n"
        "   |   ^^^^^\n"
        "\n"
        "hint: use packages, `-r` and `-c` only; indexes and proxies come from this machine's pip "
        "configuration\n"
    )


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
            "uv.lock",
            "a lock of uv",
            "run `uv export --no-dev --no-emit-project --output-file requirements.txt`",
        ),
        (
            "poetry.lock",
            "a lock of Poetry",
            "install poetry-plugin-export, run `poetry export --without-urls --output requirements.txt`",
        ),
        ("pdm.lock", "a lock of PDM", "run `pdm export --prod --output requirements.txt`"),
        ("Pipfile", "a file of Pipenv", "run `pipenv requirements --exclude-index > requirements.txt`"),
        ("Pipfile.lock", "a lock of Pipenv", "run `pipenv requirements --exclude-index > requirements.txt`"),
        (
            "pylock.gpu.toml",
            "a lock of PEP 751",
            "run `uv venv`, `uv pip sync pylock.gpu.toml` and `uv pip freeze > requirements.txt`",
        ),
        (
            "pyproject.toml",
            "a project file",
            "run `uv pip compile pyproject.toml --output-file requirements.txt`",
        ),
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
        with pytest.raises(RecipeError) as caught:
            read_requirements(path)

        [problem] = caught.value.diagnostics
        assert problem.message == f"`{name}` is {kind}, not a requirements file"
        assert problem.hint == f"{hint} and name that file"
        assert problem.location
        assert (problem.location.path.name, problem.location.line) == place


def test_a_file_with_another_format_must_exist(directory: Path) -> None:
    assert mistake(directory, "-r uv.lock\n").startswith("error: file `uv.lock` does not exist\n")
