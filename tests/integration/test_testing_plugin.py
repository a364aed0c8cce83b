"""The pytest plugin in a project that has nothing else of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bakehouse.catalog.project import HOME

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

TESTS = """
import urllib.error
import urllib.request

import boto3
import pytest


def status(url):
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_registry_fails_as_often_as_it_is_told_to(registry_proxy):
    fault = registry_proxy.fail("GET", "/v2/", 503, times=1)
    assert [status(f"http://{registry_proxy.host}/v2/") for _ in range(2)] == [503, 200]
    assert fault.seen == 1


def test_boto3_takes_the_standin_for_aws(ecr_standin):
    boto3.client("ecr").create_repository(repositoryName="team/image")
    assert ecr_standin.images("team/image") == {}


def test_who_has_no_token_is_not_let_in(ecr_standin):
    assert status(f"http://{ecr_standin.host}/v2/") == 401
"""


def test_another_project_uses_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["bakehouse.testing.plugin"]\n')
    (tmp_path / "test_theirs.py").write_text(TESTS)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}

    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert told.stdout.splitlines()[-1].startswith("3 passed"), told.stdout
