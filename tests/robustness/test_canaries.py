"""Secrets in all inputs that carry one: no command prints them, writes them or passes them on.

The servers are local. One of them answers each request with an error that repeats its credentials.
"""

import contextlib
import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakehouse.trust.keys import PASSPHRASE
from tests.support.canaries import (
    CANARIES,
    KMS_KEY,
    Run,
    World,
    canaries_below,
    canaries_in,
    in_url,
    spellings,
    with_login,
)
from tests.support.ledgers import CPU, ECR, release

pytestmark = pytest.mark.timeout(900)

TYPE = ("--instance-type", "ml.c5.xlarge")
ROLE = ("--role", "arn:aws:iam::123456789012:role/SageMakerRole")
COMMANDS = (
    ("lock", "tool"),
    ("render",),
    ("lint", "--sarif", "lint.sarif"),
    ("list", "--json"),
    ("resolve", "tool", "--json"),
    ("explain", "tool", "python"),
    ("plan", "tool", "--json"),
    ("outdated", "--json"),
    ("report", "--to", "page"),
    *(("ci", system) for system in ("github", "gitlab", "codebuild")),
    ("uri", "mpi-cpu"),
    ("releases", "--json"),
    *(("estimator", "mpi-cpu", *TYPE, *ROLE, "--sdk", sdk) for sdk in ("v2", "v3", "boto3")),
    ("validate", "mpi-cpu", *TYPE, "--json"),
)
"""Commands that succeed."""
REFUSED = (
    ("doctor",),
    ("doctor", "--json"),
    ("build", "tool", "--download-only", "--to", "files"),
    ("releases", "--verify"),
    ("follow", "job", "--region", "eu-west-1"),
    ("report", "--to", "s3://bucket/report"),
    ("launch", "mpi-cpu", *TYPE, *ROLE, "--entry-point", "own/train.py", "--detach"),
    ("promote", "mpi-cpu", "--fail-on", "HIGH"),
    ("push", "tool", "--registry", "ecr"),
    ("update", "metis"),
    ("lock", "--upgrade", "tool"),
)
"""Commands whose servers repeat the credentials in their errors."""
REFUSED_BY_KMS = ("promote", "mpi-cpu")
"""A command that reads the public key of a signing key of AWS KMS first."""
UV = {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "HTTP_PROXY", "HTTPS_PROXY"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        world = World(tmp_path_factory.mktemp("canaries"), stack)
        _fill_servers(world)
        _write_project(world)
        yield world


@pytest.fixture(scope="module")
def runs(world: World) -> list[Run]:
    succeeded = world.run(*COMMANDS)
    address = f"http://{world.echo.host}"
    index = f"{with_login(address, 'index-user', 'index')}/simple"
    world.environment |= {"AWS_ENDPOINT_URL": address, "PIP_INDEX_URL": index}
    (world.project / "own/requirements.txt").write_text("ours\nx @ git+https://git.example/x.git@main\n")
    refused = world.run(*REFUSED)
    world.environment["BAKEHOUSE_SIGNING_KEY"] = KMS_KEY
    return [*succeeded, *refused, *world.run(REFUSED_BY_KMS)]


def _fill_servers(world: World) -> None:
    world.serve(world.index, "ours")
    world.serve(world.other_index, "theirs")
    packages = (
        f"Package: tiny\nVersion: 1\nArchitecture: amd64\nFilename: t.deb\nSize: 1\nSHA256: {'0' * 64}\n"
    )
    lists = hashlib.sha256(packages.encode()).hexdigest()
    world.debian.files["/debian/dists/bookworm/main/binary-amd64/Packages"] = packages.encode()
    world.debian.files["/debian/dists/bookworm/Release"] = (
        "Origin: Debian\nLabel: Debian\nSuite: bookworm\nCodename: bookworm\nComponents: main\n"
        "Architectures: amd64\nDate: Sat, 01 Nov 2025 00:00:00 UTC\nSHA256:\n"
        f" {lists} {len(packages)} main/binary-amd64/Packages\n"
    ).encode()


def _write_project(world: World) -> None:
    project = world.project
    files = {
        "pyproject.toml": '[tool.bakehouse]\nrecipes = ["own"]\nregion = "eu-west-1"\n'
        '[tool.bakehouse.ci]\nrepository = "owner/name"\n'
        'requirement = "git+https://git.example/x.git@0123456789abcdef0123456789abcdef01234567"\n',
        "own/images/tool.yaml": 'summary: A tool\nbase: {debian: "12"}\ncomponents: {python: "3.11"}\n'
        "requirements: ../requirements.txt\n",
        "own/requirements.txt": "ours\ntheirs\n",
        "own/train.py": "",
    }
    world.write(**files)
    release(project / "images", "mpi-cpu", ECR)
    release(project / "images", "pytorch-cpu", world.echo.host, **CPU)
    release(project / "images", "pytorch-cu126", world.helped.host)
    url = with_login("https://git.example/project.git", "git-user", "git-remote")
    for words in (("init", "-q"), ("remote", "add", "origin", url), ("add", "."), ("commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=project, env=world.environment, check=True)


def test_the_search_finds_each_spelling(tmp_path: Path) -> None:
    for name, secret in CANARIES.items():
        for number, spelling in enumerate(spellings(secret)):
            (tmp_path / f"{name}-{number}").write_bytes(b"x" + spelling + b"y")

    assert len(canaries_below(tmp_path)) == len([*tmp_path.iterdir()])


def test_the_commands_do_what_they_are_tested_for(world: World, runs: list[Run]) -> None:
    """Otherwise the secrets would not come near the places that are searched."""
    succeeded, refused = runs[: len(COMMANDS)], runs[len(COMMANDS) :]

    assert [(run.words, run.output) for run in succeeded if run.code] == []
    assert [run.words for run in refused if not run.code] == [("update", "metis")]
    key = KMS_KEY.removeprefix("awskms:///")
    assert f"could not read the public key of `{key}`" in refused[-1].output
    assert [run.words for run in runs if "Traceback" in run.output] == []
    assert world.received() >= {
        *("index", "netrc", "mirror", "signed-mirror", "http-proxy"),
        *("registry", "registry-helper", "git-config", "aws-session"),
    }


def test_no_secret_is_printed(runs: list[Run]) -> None:
    assert [(run.words, names) for run in runs if (names := canaries_in(run.output))] == []


def test_no_secret_is_written(world: World, runs: list[Run]) -> None:
    sightings = canaries_below(world.project) | canaries_below(world.cache) | canaries_below(world.temporary)

    assert sightings == {".git/config": {"git-remote"}}
    assert (world.project / "page/index.html").is_file()
    assert (world.project / "lint.sarif").is_file()


def test_no_secret_is_passed_to_a_program(world: World, runs: list[Run]) -> None:
    children = world.children()
    added = {
        (child.program, name)
        for child in children
        for name in child.added(world.environment)
        if canaries_in(child.environment[name])
    }

    assert {child.program for child in children} >= {"uv", "git", "docker"}
    assert [child.command for child in children if canaries_in(" ".join(child.command))] == []
    assert {(program, name) for program, name in added if (program, name) != ("uv", name)} == set()
    assert {name for _, name in added} <= UV
    assert [child.command for child in children if PASSPHRASE in child.environment] == []


def test_secrets_in_files_of_a_project_are_not_repeated(world: World) -> None:
    """Each file is refused, and its error quotes the line."""
    login = f"https://me:{in_url('settings')}@host.example/x"
    recipe = 'summary: x\nbase: {{debian: "12"}}\ncomponents: {{python: "3.11"}}\n{}\n'
    settings = '[tool.bakehouse]\nrecipes = ["own"]\n{}\n'
    for name, text in {
        "pyproject.toml": settings.format(f'registry = "{login}"'),
        "pyproject.toml ": settings.format(f'mirrors = "{login}"'),
        "pyproject.toml  ": settings.format(f'build_cache = "{login}"'),
        "pyproject.toml   ": settings.format(f'[tool.bakehouse.ci]\nrequirement = "{login}"'),
        "own/images/tool.yaml": recipe.format(f"apt: ['{login}']"),
        "own/images/tool.yaml ": recipe.format(f"run: ['pip install -i {login} x']"),
        "own/requirements.txt": f"--index-url {login}\n",
        "own/requirements.txt ": f"x @ {login}.whl\n",
        "own/requirements.txt  ": f"x = {login}\n",
    }.items():
        path = world.project / name.strip()
        usual = path.read_text()
        path.write_text(text)
        [lint] = world.run(("lint", "--sarif", "mistake.sarif"))
        path.write_text(usual)

        assert lint.code, text
        assert canaries_in(lint.output) == set(), lint.output
        assert canaries_in((world.project / "mistake.sarif").read_text()) == set()
