"""SageMaker without AWS: moto, and in front of it what moto can't do: jobs that take their time, and stop."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3  # type: ignore[import-untyped]

from bakehouse.sagemaker.client import LOG_GROUP
from tests.support.ecr import ACCOUNT, moto_server
from tests.support.proxy import LOST, Proxy, Reply, Request

REGION = "eu-west-1"
_KEYS = {"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": "secret-canary-4711"}


@dataclass
class Played:
    """The state of a job that the front reports."""

    status: str = "InProgress"
    changes: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)


class TrainingFront(Proxy):
    """Passes on to moto; what a test plays of a job takes the place of what moto says of it."""

    def __init__(self, moto: int) -> None:
        super().__init__(moto)
        self.played: dict[str, Played] = {}
        self.sent = threading.Event()
        """A job was sent."""
        self.stopped: list[str] = []
        self.lose_create = False
        """The first answer to CreateTrainingJob gets lost."""
        self.stops_at_once = True
        self.refuse_log_of = ""
        """A host whose log is throttled."""
        self._refused: dict[str, list[tuple[str, str, int]]] = {}
        self._began = int(time.time() * 1000)
        self.answers.append(self._answer)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a process that uses this as AWS."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.host}",
            "AWS_ACCESS_KEY_ID": _KEYS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": _KEYS["aws_secret_access_key"],
            "AWS_MAX_ATTEMPTS": "2",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def client(self, service: str) -> Any:
        """One of moto's own, past this."""
        return boto3.client(service, REGION, endpoint_url=f"http://127.0.0.1:{self.upstream}", **_KEYS)

    def play(self, job: str, status: str, message: str = "", **more: Any) -> None:
        """Let a job change its status; of the end, `more` is what SageMaker says besides."""
        played = self.played[job]
        if status in ("Completed", "Failed", "Stopped"):
            played.status = status
            played.more |= {"TrainingEndTime": time.time(), **more}
        played.changes.append({"Status": status, "StartTime": time.time(), "StatusMessage": message})

    def print(self, job: str, host: str, *lines: str, at: int | None = None) -> None:
        """Let a host print lines, `at` so many milliseconds after all began."""
        logs, stream = self.client("logs"), f"{job}/{host}-1763766000"
        with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_group(logGroupName=LOG_GROUP)
        with contextlib.suppress(logs.exceptions.ResourceAlreadyExistsException):
            logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
        now = int(time.time() * 1000) if at is None else self._began + at
        events = [{"timestamp": now, "message": line} for line in lines]
        logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=events)

    def refuse(self, operation: str, code: str, message: str = "", times: int = 1, status: int = 400) -> None:
        """Answer the next requests for an operation with an error; without a code, with none at all."""
        self._refused.setdefault(operation, []).extend([(code, message, status)] * times)

    def forgive(self) -> None:
        """Answer again as before."""
        self._refused.clear()

    def job(self, name: str) -> dict[str, Any]:
        """The requests that moto received."""
        return dict(self.client("sagemaker").describe_training_job(TrainingJobName=name))

    def jobs(self) -> list[str]:
        summaries = self.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
        return [summary["TrainingJobName"] for summary in summaries]

    def calls(self, operation: str) -> int:
        """How often an operation was called."""
        return sum(_operation(request) == operation for request in self.requests)

    def _answer(self, request: Request) -> Reply | None:
        operation = _operation(request)
        if self._refused.get(operation):
            code, message, status = self._refused[operation].pop(0)
            return _error(code, message, status) if code else LOST
        if operation == "CreateTrainingJob":
            name = json.loads(request.body)["TrainingJobName"]
            if name in self.played:
                return _error("ResourceInUse", "Training job names must be unique", 400)
            reply = self.forward(request)
            self.played[name] = Played()
            self.sent.set()
            if self.lose_create:
                self.lose_create = False
                return LOST
            return reply
        if operation == "StopTrainingJob":
            name = json.loads(request.body)["TrainingJobName"]
            self.stopped.append(name)
            self.play(name, "Stopping", "Stopping the training job")
            if self.stops_at_once:
                self.play(name, "Stopped", "Training job stopped")
            return Reply(200, {"Content-Type": "application/x-amz-json-1.1"}, b"{}")
        if operation == "GetLogEvents" and self.refuse_log_of and self.refuse_log_of in str(request.body):
            return _error("ThrottlingException", "Rate exceeded", 400)
        if operation == "DescribeTrainingJob":
            return self._described(request)
        return None

    def _described(self, request: Request) -> Reply:
        played = self.played.get(json.loads(request.body)["TrainingJobName"])
        if played is None:
            return _error("ValidationException", "Requested resource not found.", 400)
        reply = self.forward(request)
        document = json.loads(reply.body)
        del document["TrainingEndTime"]
        document |= {"TrainingJobStatus": played.status, "SecondaryStatusTransitions": played.changes}
        document |= played.more
        return Reply(200, reply.headers, json.dumps(document).encode())


def _error(code: str, message: str, status: int) -> Reply:
    body = json.dumps({"__type": code, "message": message}).encode()
    return Reply(status, {"Content-Type": "application/x-amz-json-1.1"}, body)


def _operation(request: Request) -> str:
    return request.headers.get("X-Amz-Target", "").rpartition(".")[2]


@contextlib.contextmanager
def training_front() -> Iterator[TrainingFront]:
    """SageMaker, CloudWatch, S3 and STS, on this machine."""
    with moto_server() as moto, TrainingFront(moto).running() as front:
        assert isinstance(front, TrainingFront)
        yield front


__all__ = ["ACCOUNT", "REGION", "TrainingFront", "training_front"]
