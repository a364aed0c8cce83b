"""The commands of README, the tutorial and the guides, run in an empty directory with the installed `bake`.

Each command is a test: it succeeds, and prints what the page shows. Guides other than the tutorial begin with
its project. moto and a simulated ECR take the place of AWS. Commands that take longer are run by
`./bake test --release`.
"""

import contextlib
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import boto3  # type: ignore[import-untyped]
import pytest

from bakehouse.catalog.project import HOME
from tests.integration.ecr_address import at_address
from tests.integration.ports import kept_port
from tests.integration.sagemaker_sdk import installed
from tests.support.ecr import ACCOUNT, REGION, ecr_stubs
from tests.support.guides import Command, File, Reader, differences, missing_disk_space, steps

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

DOCS = HOME / "docs"
TUTORIAL = DOCS / "tutorial/first-image.md"
README = HOME / "README.md"
PAGES = [page for page in (TUTORIAL, README, *sorted((DOCS / "how-to").glob("*.md"))) if any(steps(page))]
NOT_RUN = (
    (r"^(pip|uv tool|pipx) install \.$", "the wheel is installed already, see test_install.py"),
    (r"^bake resolve pytorch-cu130 ", "shows files of a checkout, see tests/docs/test_samples.py"),
    (r"docker (buildx|context) create|--builder ", "needs a remote builder, see test_remote_build.py"),
    (r"bake clean --build-cache", "needs a build cache in a registry, see test_build_cache.py"),
    (r"curl .*storage\.googleapis|git\+https", "needs a network beyond this machine's"),
    (r"^aws ecr ", "moto does not simulate it"),
    (r"^aws iam ", "needs the files of `bake ci`, see tests/commands/ci/test_pipelines.py"),
    (
        r"pytorch-cu130 (--candidate|--on sagemaker)",
        "needs an image with CUDA, see test_release_to_ecr.py and test_smoke_job.py",
    ),
    (r"registry\.example/", "needs a registry of the reader, see tests/lock/test_base_description.py"),
    (
        r"^pip wheel |requirements-ci|^bake ci ",
        "needs a checkout of Bakehouse, see tests/commands/ci/test_pipelines.py",
    ),
    (r"origin/main|images\.txt", "needs a remote repository"),
    (r"--job v3\.yaml", "needs an environment with SDK v3, see test_launchers.py"),
    (r"bake run mpi-cpu --source-dir src", "needs a script that fails, see test_run_failures.py"),
    *(
        (rf"^{program} |--import {program}", f"needs `{program}`, which is not installed here")
        for program in ("oras", "cosign", "trivy")
    ),
    (r"^(kubectl|enroot) |\bsbatch ", "needs a cluster, see tests/cluster"),
    (r"apt-get install|-arm64", "needs emulation of arm64"),
    (r"^bake smoke .*(--gpus|--check components|cu1\d\d …)|promote .*cu1\d\d", "needs GPUs"),
    (r"bake (rehearse|reproduce) ", "takes long, see test_rehearsal.py and test_reproduction.py"),
    (
        r"bake (registry stop|clean --all)$",
        "removes what the guides begin with, see test_local_registry.py and tests/cli/test_clean.py",
    ),
    (r"^\./bake ", "needs a checkout"),
    (r"^bake shell ", "needs a terminal and a built image, see test_shell.py"),
    (r"^bake security ", "needs the report of a scanner, see tests/commands/security"),
    (r"…", "has a part that the reader fills in"),
)
"""Commands, and why they are not run."""
SLOW = re.compile(r"bake (build|smoke|run|push|release|promote|sizes|reproduce|rehearse|demo)\b")
"""Commands that build an image, or need one."""
AWS = re.compile(
    r"^[^#]*--registry (ecr|team|\d{12})|^[^#]*s3://our-bucket|^aws |^bake launch |--job failed\.json"
    r"|^bake releases( --verify| +#|$)"
)
"""Commands that need the account that the guides show, such as `bake releases` with a ledger in S3."""
BUCKETS = ("our-bucket", "our-data")
"""Buckets of this account."""
AWS_CLI = Path(__file__).with_name("aws-cli.lock")


@dataclass
class Walk:
    """A reader on a page, who has done the steps up to some command."""

    reader: Reader
    left: list[File | Command]
    aws: Callable[[], Mapping[str, str]] = dict
    """Environment of a reader with an AWS account."""
    results: dict[Command, "subprocess.CompletedProcess[str]"] = field(default_factory=dict)

    def go_to(self, command: Command) -> "subprocess.CompletedProcess[str]":
        """Do all steps up to a command; return its result."""
        while command not in self.results:
            step = self.left.pop(0)
            if isinstance(step, File):
                self.reader.write(step)
            elif not reason_not_to_run(step):
                if AWS.search(step.text):
                    self.reader.variables = {**self.reader.variables, **self.aws()}
                self.results[step] = self.reader.run(step)
        return self.results[command]


def reason_not_to_run(command: Command) -> str:
    reason = next((reason for pattern, reason in NOT_RUN if re.search(pattern, command.text)), "")
    if not reason and AWS.search(command.text) and os.geteuid() != 0:
        return "needs root: it gives this machine the name of Amazon ECR for a while"
    return reason


def commands() -> Iterator[object]:
    for page in PAGES:
        is_slow = False
        for step in steps(page):
            if isinstance(step, Command):
                is_slow = is_slow or bool(SLOW.search(step.text))
                marks = [pytest.mark.release] if is_slow or page != TUTORIAL else []
                yield pytest.param(page, step, id=f"{page.stem}:{step}", marks=marks)


@contextlib.contextmanager
def aws_account(registry: str, directory: Path) -> Iterator[dict[str, str]]:
    """The account that the guides show: moto, and a simulated ECR at its own address."""
    address = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
    with ecr_stubs(registry, REGION) as ecr, at_address(address, ecr.host, directory) as certificate:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        s3 = boto3.client("s3", region_name=REGION, endpoint_url=ecr.moto, **keys)
        for bucket in BUCKETS:
            s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield {**ecr.environment, "REQUESTS_CA_BUNDLE": str(certificate)}


@pytest.fixture(scope="module")
def walks(
    programs: Path, registry_reference: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Path, Walk]]:
    with kept_port() as port, contextlib.ExitStack() as stack:

        @functools.cache
        def aws() -> dict[str, str]:
            (programs / "aws").symlink_to(installed(AWS_CLI) / "bin/aws")
            return stack.enter_context(aws_account(registry_reference, tmp_path_factory.mktemp("aws")))

        variables = {
            "BAKEHOUSE_REGISTRY_PORT": str(port),
            "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state")),
            "GIT_CONFIG_GLOBAL": os.devnull,
            **{
                f"GIT_{who}_{what}": "reader@example.com"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }
        reader = Reader(tmp_path_factory.mktemp("reader"), programs, variables)
        own = Reader(tmp_path_factory.mktemp("readme"), programs, variables)
        yield {
            TUTORIAL: Walk(reader, list(steps(TUTORIAL)), aws),
            README: Walk(own, [*takewhile(lambda step: not is_init(step), steps(TUTORIAL)), *steps(README)]),
        }
        subprocess.run(
            [programs / "bake", "registry", "stop"],
            env=os.environ | variables,
            check=False,
            capture_output=True,
        )


def is_init(step: File | Command) -> bool:
    return isinstance(step, Command) and step.text.startswith("bake init ")


def walk_of(page: Path, walks: dict[Path, Walk], directory: Path) -> Walk:
    """Return the walk of a page; a guide begins with the project that the tutorial made."""
    if page not in walks:
        tutorial = walks[TUTORIAL]
        last = [
            step for step in steps(TUTORIAL) if isinstance(step, Command) and not reason_not_to_run(step)
        ][-1]
        tutorial.go_to(last)
        project = shutil.copytree(tutorial.reader.directory, directory / tutorial.reader.directory.name)
        reader = Reader(project, tutorial.reader.programs, tutorial.reader.variables)
        walks[page] = Walk(reader, list(steps(page)), tutorial.aws)
    return walks[page]


@pytest.mark.parametrize(("page", "command"), list(commands()))
def test_the_command_works_and_prints_what_the_page_shows(
    page: Path, command: Command, walks: dict[Path, Walk], tmp_path_factory: pytest.TempPathFactory
) -> None:
    if reason := reason_not_to_run(command):
        pytest.skip(reason)

    result = walk_of(page, walks, tmp_path_factory.mktemp("guide")).go_to(command)

    if reason := missing_disk_space(result.stderr):
        pytest.skip(reason)
    is_error = bool(re.search("(?m)^error: ", command.output))
    printed = result.stdout + result.stderr
    assert (result.returncode != 0) == is_error, printed
    # Most pages show no progress
    streams = (printed, result.stdout, result.stderr)
    assert [] in [differences(command.output, stream) for stream in streams], printed
