"""Projects of customers, each taken from a changed requirement to a release."""

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bakehouse.catalog.project import HOME
from bakehouse.util.files import write_whole
from tests.support.programs import docker

PROJECTS = HOME / "tests/projects"
RESULTS = PROJECTS / "results.json"
"""The last results of `./bake test --release`."""
IMAGES = {
    "llm-finetune": ("llm-finetune",),
    "tabular": ("tabular",),
    "vision": ("vision",),
    "monorepo": ("ads-features", "ads-ranking", "mpi-cpu", "search-ranking"),
}
ROLE = "arn:aws:iam::123456789012:role/Training"


class Repository:
    """A directory of a user that becomes a git repository, and the installed `bake`."""

    def __init__(self, root: Path, programs: Path, port: int) -> None:
        self.root = root
        self.seconds: dict[str, float] = defaultdict(float)
        """Time that each task took, in total."""
        self._bake = programs / "bake"
        # The environment of the tests must not help.
        hidden = ("PYTHONPATH", "BAKEHOUSE_KEEP_REGISTRY")
        inherited = {name: value for name, value in os.environ.items() if name not in hidden}
        self.environment = {**inherited, "BAKEHOUSE_REGISTRY_PORT": str(port)}

    def git(self, *words: str) -> str:
        author = ("-c", "user.name=Customer", "-c", "user.email=customer@example.com")
        command = ["git", "-C", str(self.root), *author, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def commit(self, subject: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)

    def bake(self, *words: str, code: int = 0) -> str:
        """Run `bake` and return what it prints."""
        command = [str(self._bake), *words]
        began = time.monotonic()
        result = subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False
        )
        self.seconds[words[0]] += time.monotonic() - began
        assert result.returncode == code, f"{command}\n{result.stdout}\n{result.stderr}"
        return result.stdout if code == 0 else result.stderr

    def append(self, path: str, text: str) -> None:
        file = self.root / path
        file.write_text(file.read_text() + text)


class Customer(Repository):
    """A copy of a project in a repository of its own."""

    def __init__(self, name: str, to: Path, programs: Path, port: int) -> None:
        super().__init__(to / name, programs, port)
        self.images = IMAGES.get(name, (name,))
        shutil.copytree(PROJECTS / name, self.root, ignore=shutil.ignore_patterns("build", "__pycache__"))
        self.git("init", "--quiet")
        self.commit("Begin")


SMP_JOB = {
    "smdistributed": {
        "modelparallel": {
            "enabled": True,
            "parameters": {"pipeline_parallel_degree": 2, "partitions": 2, "ddp": True},
        }
    },
    "mpi": {"enabled": True, "processes_per_host": 8},
}


@dataclass(frozen=True)
class Journey:
    """The image of a project that is taken from a changed requirement to a job that names its digest."""

    project: str
    image: str
    requirements: str
    """The file that gets one more line; empty for an image without requirements."""
    run: tuple[str, ...]
    output: str
    """Text that the job prints."""
    moves_base: bool = False
    """The project locks the packages of Debian itself, and begins with an older one."""
    job: tuple[str, ...] = ("--instance-type", "ml.c5.2xlarge")
    """Settings of the job whose code `estimator` prints."""
    code: str = ""
    """Text that the code contains."""

    def __str__(self) -> str:
        return self.project if self.image == self.project else f"{self.project}-{self.image}"


def remove_images(customer: Repository, image: str) -> None:
    """Remove what the journey built and pulled, under all names; other images of that name stay."""
    bake_file = json.loads((customer.root / "images" / image / "docker-bake.json").read_text())
    [target] = bake_file["target"].values()
    for number in docker("image", "ls", "--quiet", "--no-trunc", target["tags"][0]).split():
        docker("image", "rm", "--force", number)


def move_base(customer: Customer, image: str) -> None:
    """Move from an older package of Debian to the present one."""
    recipes = HOME / "recipes"
    shutil.copytree(recipes / "components/debian", customer.root / "recipes/components/debian")
    header, *packages = (recipes / "apt/bookworm.packages").read_text().split("\n\n")
    [package] = [package for package in packages if package.startswith("Package: base-files\n")]
    older = re.sub(r"^Version: .*$", "Version: 1", package, flags=re.M)
    lock = customer.root / "recipes/apt/bookworm.packages"
    lock.parent.mkdir()
    lock.write_text(f"{header}\n\n{older}\n")
    customer.bake("render", image)
    customer.commit("Lock the packages of Debian")

    assert "bookworm: base-files 1 -> " in customer.bake("lock", "--upgrade", "debian")
    assert f"`images/{image}/lock.json` is out of date" in customer.bake("render", "--check", image, code=4)
    customer.bake("render", image)
    customer.commit("Move the base")


def change_requirements(journey: Journey, customer: Customer) -> None:
    image = journey.image
    customer.append(journey.requirements, "emoji\n")
    assert "requirements.txt.lock` is older than" in customer.bake("render", "--check", image, code=2)
    customer.bake("lock", image)
    changes = customer.git("diff", "--unified=0", f"{journey.requirements}.lock")
    assert re.findall(r"^[+-]([^+#=-][^=\n]*)==", changes, re.M) == ["emoji"]
    assert "+ emoji " in customer.bake("diff", image, "--from", "HEAD")
    customer.bake("render", image)
    customer.commit("Add emoji")


def travel(journey: Journey, customer: Customer) -> None:
    image = journey.image
    if journey.moves_base:
        move_base(customer, image)
    if journey.requirements:
        change_requirements(journey, customer)
    customer.bake("build", image)
    if journey.requirements:
        docker("run", "--rm", "--network=none", f"bakehouse/{image}", "python", "-c", "import emoji")
    assert "Completed" in customer.bake("run", image, *journey.run)
    logs = [log.read_text() for log in (customer.root / "build/runs").rglob("*.log")]
    assert any(journey.output in log for log in logs), logs
    image_uri = customer.bake("release", image).strip()
    assert image_uri == customer.bake("uri", image).strip()
    docker("pull", "--quiet", image_uri)
    for sdk in ("v2", "v3", "boto3"):
        code = customer.bake("estimator", image, *journey.job, "--role", ROLE, "--sdk", sdk)
        assert image_uri in code
        assert journey.code in code
        compile(code, sdk, "exec")
    customer.bake("render", "--check", image)


@functools.cache
def checkout_commit() -> str:
    """Return the commit of the checkout when its wheel was made."""
    head = ["git", "rev-parse", "HEAD"]
    return subprocess.run(head, cwd=HOME, capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def recorded(name: str, customer: Repository, config: pytest.Config) -> Iterator[None]:
    """Record the result of a journey, with `--release`. A failed journey keeps the last good result."""
    with (
        record_result(name, customer, RESULTS) if config.getoption("--release") else contextlib.nullcontext()
    ):
        yield


@contextlib.contextmanager
def record_result(name: str, customer: Repository, results: Path) -> Iterator[None]:
    commit = checkout_commit()
    try:
        yield
    except BaseException as error:
        last = _results(results).get(name)
        kept = f"has no result of `{name}`"
        if last:
            kept = f"keeps the last good result of `{name}`, of commit {last['commit']}, {last['date']}"
        error.add_note(f"`{results.name}` {kept}.")
        raise
    result = {
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": {task: round(seconds, 1) for task, seconds in customer.seconds.items()},
    }
    write_whole(results, json.dumps(_results(results) | {name: result}, indent=2, sort_keys=True) + "\n")


def _results(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}
