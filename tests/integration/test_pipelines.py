"""Generated pipelines, command by command: clean clones, ECR's address, STS, a ledger in S3, this engine."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
import yaml

from bakehouse.catalog.project import HOME
from tests.integration.ecr_address import at_address
from tests.support import pipelines
from tests.support.ecr import ACCOUNT, REGION, EcrStub
from tests.support.git_repository import commit, git
from tests.support.pipelines import CodeBuild, GitHub, GitLab, Machines
from tests.support.programs import BAKE

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives this machine ECR's name for a while"),
]

HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
SETTINGS = f"""\
[tool.bakehouse]
recipes = ["training-images"]
registry = "team"
region = "{REGION}"
ledger = "s3://ci-ledger/{{system}}"

[tool.bakehouse.registries.team]
account = "{ACCOUNT}"
regions = ["{REGION}"]
prefix = "{{system}}"

[tool.bakehouse.ci]
repository = "example/tiny"
requirement = "-r ci.txt"
create = true
"""
RECIPE = 'summary: A tiny image\nbase: {debian: "12"}\nrun: ["echo {text} > /etc/tiny"]\n'


class Customer:
    """A project in a bare repository with two commits, and AWS as its pipelines see it."""

    def __init__(self, system: str, directory: Path, environment: dict[str, str], ecr: EcrStub) -> None:
        self.root = directory / "project"
        self.environment, self.ecr = environment, ecr
        files = {
            "pyproject.toml": SETTINGS.format(system=system),
            ".gitignore": "/build/\n",
            "ci.txt": pipelines.requirements_file(self.root),
            "training-images/images/tiny.yaml": RECIPE.replace("{text}", f"{system} one"),
        }
        commit(self.root, files)
        self.bake("render")
        self.bake("ci", system)
        self.base = commit(self.root, {})
        (self.root / "training-images/images/tiny.yaml").write_text(RECIPE.replace("{text}", f"{system} two"))
        self.bake("render")
        self.head = commit(self.root, {})
        pipelines.bare_origin(self.root, directory / "origin.git")
        self.machines = Machines(directory / "origin.git", directory, environment)

    def bake(self, *words: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(HOME)}
        subprocess.run([*BAKE, *words], cwd=self.root, env=environment, check=True, capture_output=True)

    def assume(self, directory: str, role: str, subject: str) -> dict[str, str]:
        """Return credentials from STS, as far as the generated trust policy of the role allows."""
        name = role.removeprefix(f"arn:aws:iam::{ACCOUNT}:role/bakehouse-")
        policy = json.loads((self.root / directory / f"{name}-trust.json").read_text())
        return pipelines.assume(self.client("sts"), policy, role, "a-token", subject)

    def client(self, service: str) -> Any:
        return _client(service, self.ecr)

    def released(self, system: str) -> dict[str, list[str]]:
        """Return the tags of each released image; candidates are in a repository of their own."""
        images = self.ecr.images(f"{system}/tiny")
        assert images.keys() == self.ecr.images(f"{system}/candidates/tiny").keys()
        return images


def _client(service: str, ecr: EcrStub) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.client(service, region_name=REGION, endpoint_url=ecr.moto, **keys)


@pytest.fixture(scope="module")
def aws(session_ecr: EcrStub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """ECR at its own address, S3 and STS; without credentials, which the pipelines have to get."""
    session_ecr.reset()
    directory = tmp_path_factory.mktemp("certificate")
    _client("s3", session_ecr).create_bucket(
        Bucket="ci-ledger", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
    environment = {name: text for name, text in session_ecr.environment.items() if name not in keys}
    with at_address(HOST, session_ecr.host, directory) as certificate:
        yield {**environment, "REQUESTS_CA_BUNDLE": str(certificate)}


@pytest.fixture
def customer(
    request: pytest.FixtureRequest, aws: dict[str, str], session_ecr: EcrStub, tmp_path: Path
) -> Iterator[Customer]:
    environment = {**pipelines.stub_programs(tmp_path), **aws}
    yield Customer(request.param, tmp_path, environment, session_ecr)
    lines = subprocess.run(
        ["docker", "images", "bakehouse/tiny", "--format", "{{.Repository}}:{{.Tag}}"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    subprocess.run(["docker", "image", "rm", *lines], check=False, capture_output=True)


def commands(*files: Path) -> set[str]:
    return {each for file in files for each in pipelines.every_command(yaml.safe_load(file.read_text()))}


@pytest.mark.parametrize("customer", ["github"], indirect=True)
def test_every_command_for_github_runs(customer: Customer) -> None:
    def assume(role: str, subject: str, region: str) -> dict[str, str]:
        credentials = customer.assume(".github/bakehouse", role, subject)
        return {**credentials, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}

    workflows = customer.root / ".github/workflows"
    pull = GitHub(
        customer.machines, "pull_request", customer.head, "refs/pull/1/merge", customer.base, fork="a/fork"
    )
    pull.run(workflows / "bakehouse-pull-request.yml")

    assert [job.name for job in customer.machines.jobs] == ["Check", "Build 1/1"]
    assert "tiny" in pull.summary
    assert (pull.artifacts / "smoke-0/junit.xml").exists()

    publish = GitHub(customer.machines, "schedule", customer.head, aws=assume)
    publish.run(workflows / "bakehouse-publish.yml")

    [(digest, tags)] = customer.released("github").items()
    assert len(tags) == 1
    assert f"github/tiny@{digest}" in publish.summary
    ran = {*customer.machines.commands}
    assert commands(*(workflows / f"bakehouse-{name}.yml" for name in ("pull-request", "publish"))) == ran

    # Another run finds nothing to do.
    again = GitHub(customer.machines, "push", customer.head, aws=assume)
    again.run(workflows / "bakehouse-publish.yml")
    assert [*again.results] == ["plan"]


@pytest.mark.release
@pytest.mark.parametrize("customer", ["gitlab"], indirect=True)
def test_every_command_for_gitlab_runs(customer: Customer) -> None:
    def assume(role: str, subject: str) -> str:
        # boto3 exchanges the token itself.
        customer.assume(".gitlab/bakehouse", role, subject)
        return "a-token"

    variables = {
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": customer.base,
        "CI_COMMIT_BRANCH": "",
    }
    GitLab(customer.machines, customer.head, variables, assume).run(".gitlab/bakehouse.yml")
    variables = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main"}
    GitLab(customer.machines, customer.head, variables, assume).run(".gitlab/bakehouse.yml")

    assert [job.name for job in customer.machines.jobs] == ["bakehouse-check", "build", "build", "promote"]
    [tags] = customer.released("gitlab").values()
    assert len(tags) == 1
    files = [customer.root / f".gitlab/bakehouse{name}.yml" for name in ("", "-images", "-publish")]
    jobs = yaml.safe_load(files[0].read_text())
    nightly = {*jobs["bakehouse-upgrade"]["script"], *jobs["bakehouse-propose-upgrade"]["script"]}
    assert commands(*files) - nightly == {*customer.machines.commands}


@pytest.mark.release
@pytest.mark.parametrize("customer", ["codebuild"], indirect=True)
def test_every_command_for_codebuild_runs(customer: Customer) -> None:
    directory = customer.root / ".codebuild"
    role = f"arn:aws:iam::{ACCOUNT}:role/bakehouse-publish"
    base = {"CODEBUILD_WEBHOOK_BASE_REF": "refs/heads/main"}
    git(customer.machines.origin, "update-ref", "refs/heads/main", customer.base)
    CodeBuild(customer.machines, customer.head, base).run(directory / "bakehouse-pull-request.yml")
    service_role = customer.client("sts").assume_role(RoleArn=role, RoleSessionName="AWSCodeBuild")
    session = service_role["Credentials"]
    service = {
        "AWS_ACCESS_KEY_ID": session["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": session["SecretAccessKey"],
        "AWS_SESSION_TOKEN": session["SessionToken"],
        "AWS_DEFAULT_REGION": REGION,
    }
    build = CodeBuild(customer.machines, customer.head, service)
    build.run(directory / "bakehouse-publish.yml")
    build.run_build(directory / "bakehouse-promote.yml")

    names = ["check", "build_1", "build_1", "verify", "bakehouse-promote"]
    assert [job.name for job in customer.machines.jobs] == names
    assert build.reports == ["bakehouse-smoke"]
    [tags] = customer.released("codebuild").values()
    assert len(tags) == 1
    assert commands(*directory.glob("*.yml")) == {*customer.machines.commands}
