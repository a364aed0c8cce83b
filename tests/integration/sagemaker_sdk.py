"""The real SageMaker SDK in a Python of its own, and moto in place of AWS for it."""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]

from bakehouse.catalog.project import HOME
from bakehouse.util.file_lock import exclusive
from tests.integration.ports import kept_port
from tests.support.ecr import ACCOUNT, REGION

V2 = Path(__file__).with_name("sagemaker-sdk.lock")
V3 = Path(__file__).with_name("sagemaker-sdk-v3.lock")
ROLE = f"arn:aws:iam::{ACCOUNT}:role/SageMakerRole"


def installed(lock: Path) -> Path:
    """The directory of a Python with what a lock lists, installed once for each content of it."""
    name = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    directory = HOME / "build" / f"{lock.stem}-{name}"
    with exclusive(directory.with_suffix(".lock")):
        if not (directory / "complete").exists():
            uv = [sys.executable, "-m", "uv"]
            subprocess.run(
                [*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(directory)], check=True
            )
            python = str(directory / "bin" / "python")
            install = [*uv, "pip", "install", "--quiet", "--no-deps", "--python", python, "--require-hashes"]
            subprocess.run([*install, "--requirement", str(lock)], check=True)
            (directory / "complete").touch()
    return directory


class Aws:
    """moto as a proxy in front of all of AWS: the SDK names AWS's own addresses here and there."""

    def __init__(self, port: int, certificates: str, home: Path) -> None:
        self.proxy = f"http://127.0.0.1:{port}"
        self.home = home
        self.certificates = certificates

    def client(self, service: str) -> Any:
        settings = Config(proxies={"https": self.proxy})
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        return boto3.client(service, REGION, verify=self.certificates, config=settings, **keys)

    def environment_of_a_notebook(self) -> dict[str, str]:
        session = self.client("sts").assume_role(RoleArn=ROLE, RoleSessionName="notebook")["Credentials"]
        return self.environment_of_a_user() | {
            "AWS_ACCESS_KEY_ID": session["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": session["SecretAccessKey"],
            "AWS_SESSION_TOKEN": session["SessionToken"],
        }

    def environment_of_a_user(self) -> dict[str, str]:
        return {
            "HTTPS_PROXY": self.proxy,
            "AWS_CA_BUNDLE": self.certificates,
            "REQUESTS_CA_BUNDLE": self.certificates,
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": REGION,
            # moto can't simulate a role's policies, which version 3 asks for first.
            "SAGEMAKER_VALIDATE_ROLE": "false",
        }

    def run(self, sdk: Path, arguments: list[str], directory: Path) -> str:
        """Return the output of Python, run in a directory with the SDK as a notebook of SageMaker."""
        result = self._run(sdk, arguments, directory, self.environment_of_a_notebook())
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
        return result.stdout

    def failure(self, sdk: Path, arguments: list[str], directory: Path) -> str:
        """Return the output of Python that fails, run in a directory with the SDK by an IAM user."""
        result = self._run(sdk, arguments, directory, self.environment_of_a_user())
        assert result.returncode != 0
        return result.stdout + result.stderr

    def _run(
        self, sdk: Path, arguments: list[str], directory: Path, variables: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= variables | {"HOME": str(self.home)}
        command = [str(sdk / "bin" / "python"), *arguments]
        return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return the jobs that SageMaker got, by their names without the time."""
        client = self.client("sagemaker")
        pages = client.get_paginator("list_training_jobs").paginate()
        names = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
        jobs = [client.describe_training_job(TrainingJobName=name) for name in names]
        return {job["TrainingJobName"].partition("-20")[0]: job for job in jobs}


@contextlib.contextmanager
def moto_for_aws(directory: Path) -> Iterator[Aws]:
    """A moto of its own, with SageMaker's execution role."""
    if not shutil.which("openssl"):
        pytest.skip("moto's proxy needs the openssl command")
    from moto.moto_proxy.certificate_creator import CertificateCreator

    with contextlib.ExitStack() as stack:
        port = stack.enter_context(kept_port())
        start = [sys.executable, "-m", "moto.proxy", "-H", "127.0.0.1", "-p", str(port)]
        log = directory / "log"
        with log.open("wb") as output:
            proxy = subprocess.Popen(start, stdout=output, stderr=output)
        stack.callback(proxy.wait)
        stack.callback(proxy.terminate)
        for _ in range(300):
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            assert proxy.poll() is None, log.read_text()
            time.sleep(0.1)
        aws = Aws(port, CertificateCreator.cacert, directory)
        aws.client("iam").create_role(RoleName="SageMakerRole", AssumeRolePolicyDocument="{}")
        yield aws
