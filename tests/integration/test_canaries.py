"""Secrets in all inputs of a real image, from its lock to its signed release: none leaves a trace."""

import contextlib
import json
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from bakehouse.catalog import project
from bakehouse.catalog.project import HOME, find
from bakehouse.fetch.retry import RetryPolicy
from bakehouse.registry.client import Repository
from bakehouse.registry.manifest import KINDS
from bakehouse.registry.registry import Credentials, NamedRegistry
from bakehouse.util.oci import Digest
from tests.integration.projects import base
from tests.support.canaries import (
    CANARIES,
    KMS_KEY,
    KmsStub,
    Run,
    World,
    canaries_below,
    canaries_in,
    in_url,
    watched,
)
from tests.support.registry import PASSWORD, registry_container

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

IMAGE = """\
summary: With a package of a private index
base: {debian: "12"}
components: {python: "3.11"}
requirements: ../requirements.txt
"""


@dataclass
class Released:
    """A project after its commands, and the registry that it published to."""

    world: World
    name: str
    host: str
    kms: KmsStub
    runs: list[Run]
    command_lines: list[str]
    """Command lines of any process that held a canary."""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, registry_reference: str) -> Iterator[Released]:
    base()
    name = f"canary-{uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(registry_container(registry_reference, locked=True))
        kms = stack.enter_context(KmsStub().running())
        world = World(tmp_path_factory.mktemp("canaries"), stack)
        _prepare(world, f"127.0.0.1:{port}")
        world.write(**{f"own/images/{name}.yaml": IMAGE})
        commands = (
            *(("lock", name), ("render", name), ("build", name, "--json"), ("smoke", name)),
            *(("push", name, "--candidate"), ("promote", name), ("push", name, "--attest")),
            *(("releases", "--verify"), ("sizes", name, "--json"), ("report", "--to", "page")),
        )
        with watched(CANARIES.values) as lines:
            runs = world.run(*commands)
            world.environment |= {
                "BAKEHOUSE_SIGNING_KEY": KMS_KEY,
                "AWS_ENDPOINT_URL_KMS": f"http://{kms.host}",
            }
            runs += world.run(("promote", name))
            assert [(run.words, run.output) for run in runs if run.code] == []
            kms.is_refusing = True
            runs += world.run(("promote", name))
            # The proxies of this machine are in the environment of each step
            world.write(**{f"own/images/{name}.yaml": f"{IMAGE}run: [env; false]\n"})
            runs += world.run(("build", name))
        try:
            yield Released(world, name, f"127.0.0.1:{port}", kms, runs, lines)
        finally:
            # `clean --all` would also remove the base, which other tests use
            list_tags = ["docker", "image", "ls", "--format={{.Repository}}:{{.Tag}}", f"bakehouse/{name}"]
            tags = subprocess.run(list_tags, capture_output=True, text=True, check=True).stdout.split()
            subprocess.run(["docker", "image", "rm", *tags], capture_output=True, check=True)


def _prepare(world: World, host: str) -> None:
    world.serve(world.index, "ours")
    world.add_login(host, "AWS", PASSWORD)
    for variable in ("BAKEHOUSE_MIRRORS", "PIP_EXTRA_INDEX_URL"):
        del world.environment[variable]
    world.environment |= {
        # Debian packages come from the cache or the mirrors of this machine
        "BAKEHOUSE_CACHE": str(project.find(HOME).cache),
        "APT_CONFIG": "/dev/null",
        # Not on loopback, so that it is passed to build steps
        "https_proxy": f"http://proxy-user:{in_url('https-proxy')}@proxy.example:3128",
    }
    del world.environment["http_proxy"]
    world.write(
        **{
            "pyproject.toml": f'[tool.bakehouse]\nrecipes = ["own"]\nregistry = "{host}/team"\n',
            "own/requirements.txt": "ours\n",
        }
    )


def test_no_secret_is_printed(released: Released) -> None:
    assert [(run.words, names) for run in released.runs if (names := canaries_in(run.output))] == []


def test_a_failed_step_shows_its_proxy_without_the_login(released: Released) -> None:
    failed = released.runs[-1]
    [log] = (find(released.world.project, released.world.environment).state / "logs").glob("*.log")

    assert failed.code
    assert "@proxy.example:3128" in log.read_text()


def test_kms_signs_and_its_refusal_does_not_repeat_the_session(released: Released) -> None:
    refused = next(run for run in released.runs if run.code)

    assert released.kms.operations[-1] == "GetPublicKey"
    assert released.kms.operations.count("Sign") == 2
    assert canaries_in(released.kms.requests[-1].headers["X-Amz-Security-Token"]) == {"aws-session"}
    assert refused.words == ("promote", released.name)
    assert "KMSInvalidStateException: " in refused.output


def test_no_secret_is_written(released: Released) -> None:
    world = released.world
    state = find(world.project, world.environment).state
    names = {path.name for directory in (world.project, state) for path in directory.rglob("*")}

    assert names >= {"releases.json", "requirements.txt.lock", "index.html", "builds.json", "smoke"}
    assert canaries_below(world.project) | canaries_below(state) | canaries_below(world.temporary) == {}


def test_no_secret_is_on_a_command_line(released: Released) -> None:
    children = released.world.children()

    assert {child.program for child in children} >= {"docker", "uv"}
    assert [child.command for child in children if canaries_in(" ".join(child.command))] == []
    assert released.command_lines == []


def test_no_secret_is_in_the_image_or_its_history(released: Released, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    [reference] = _references(released.name)
    subprocess.run(["docker", "save", "--output", archive, reference], check=True)
    entries = 0
    with tarfile.open(archive) as content:
        for entry in content:
            if file := content.extractfile(entry):
                entries += 1
                assert canaries_in(file.read()) == set(), entry.name
    history = subprocess.run(["docker", "history", "--no-trunc", reference], capture_output=True, check=True)

    assert entries > 4
    assert canaries_in(history.stdout) == set()


def _references(name: str) -> list[str]:
    command = ["docker", "images", "--format", "{{.Repository}}:{{.Tag}}", f"*/{name}"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in output.split() if line.endswith(":latest")]


def test_no_secret_is_in_the_registry(released: Released) -> None:
    """Configurations, layers, bills of materials, provenance, test results and signatures."""
    registry = NamedRegistry(released.host, lambda _: Credentials("AWS", PASSWORD))
    remote = Repository(registry, f"team/{released.name}", RetryPolicy())
    pending, contents = [*remote.tags()], {}
    while pending:
        reference = pending.pop()
        if reference in contents:
            continue
        response = remote.request("GET", f"manifests/{reference}", {"Accept": ", ".join(KINDS)})
        contents[reference] = response.content
        document = json.loads(response.content)
        pending += [entry["digest"] for entry in document.get("manifests", ())]
        for blob in (document.get("config", {}), *document.get("layers", ())):
            if digest := blob.get("digest"):
                contents[digest] = remote.blob(Digest(digest), max_bytes=blob["size"])

    assert sum(released.kms.hint.encode() in content for content in contents.values()) == 2
    assert sum(b"in-toto" in content or b"dsseEnvelope" in content for content in contents.values()) >= 4
    assert {
        reference: names for reference, content in contents.items() if (names := canaries_in(content))
    } == {}
