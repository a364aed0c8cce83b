"""An ECR without AWS: moto and a real registry, paired, and what ECR does in front of them."""

import base64
import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

import boto3  # type: ignore[import-untyped]

from tests.integration.proxies import Proxy, Reply, Request, error_body
from tests.integration.registries import PASSWORD, registry_container

ACCOUNT = "123456789012"
REGION = "eu-west-1"


class EcrFront(Proxy):
    """What ECR does in front of a plain registry: its tokens, its repositories, its immutable tags."""

    def __init__(self, registry: int, aws: str) -> None:
        super().__init__(registry)
        self.tokens: set[str] = set()
        self._ecr = boto3.client(
            "ecr", region_name=REGION, endpoint_url=aws, aws_access_key_id="x", aws_secret_access_key="x"
        )
        self.answers += [self._check_token, self._check_repository, self._check_tag]

    def expire_tokens(self) -> None:
        self.tokens = {f"expired {token}" for token in self.tokens}

    def forward(self, request: Request) -> Reply:
        login = base64.b64encode(f"AWS:{PASSWORD}".encode()).decode()
        request.headers = {**request.headers, "Authorization": f"Basic {login}"}
        return super().forward(request)

    def _check_token(self, request: Request) -> Reply | None:
        scheme, _, login = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Basic":
            headers = {"WWW-Authenticate": f'Basic realm="https://{self.host}/",service="ecr.amazonaws.com"'}
            return Reply(401, headers, b"Not Authorized")
        user, _, token = base64.b64decode(login).decode().partition(":")
        if f"expired {token}" in self.tokens:
            text = "Your authorization token has expired. Reauthenticate and try again."
            return Reply(403, {"Content-Type": "application/json"}, error_body("DENIED", text))
        if user != "AWS" or token not in self.tokens:
            return Reply(401, {}, b"Not Authorized")
        return None

    def _repository(self, name: str) -> dict[str, Any] | None:
        try:
            found = self._ecr.describe_repositories(repositoryNames=[name])["repositories"]
        except self._ecr.exceptions.RepositoryNotFoundException:
            return None
        return dict(found[0])

    def _check_repository(self, request: Request) -> Reply | None:
        named = re.match(r"/v2/(.+?)/(?:manifests|blobs|tags)/", request.path)
        if named is None or self._repository(named[1]):
            return None
        text = f"The repository with name '{named[1]}' does not exist in the registry with id '{ACCOUNT}'"
        return Reply(404, {"Content-Type": "application/json"}, error_body("NAME_UNKNOWN", text))

    def _check_tag(self, request: Request) -> Reply | None:
        named = re.match(r"/v2/(.+)/manifests/([^:]+)$", request.path)
        if named is None or request.method != "PUT":
            return None
        name, tag = named.groups()
        repository = self._repository(name) or {}
        excepted = [rule["filter"] for rule in repository.get("imageTagMutabilityExclusionFilters", ())]
        if not repository["imageTagMutability"].startswith("IMMUTABLE") or tag in excepted:
            return None
        try:
            self._ecr.describe_images(repositoryName=name, imageIds=[{"imageTag": tag}])
        except self._ecr.exceptions.ImageNotFoundException:
            return None
        text = f"The image tag '{tag}' already exists in the '{name}' repository and cannot be overwritten"
        body = error_body("TAG_INVALID", f"{text} because the tag is immutable.")
        return Reply(400, {"Content-Type": "application/json"}, body)


class AwsFront(Proxy):
    """In front of moto: every login gets a token of its own, as from AWS; errors can be put in between."""

    def __init__(self, moto: int) -> None:
        super().__init__(moto)
        self.issued: list[str] = []
        self.ecr: EcrFront | None = None
        self.answers.append(self._issue_token)

    def refuse(self, operation: str, code: str, message: str, status: int = 400) -> None:
        """Answer an operation of ECR with an error, as AWS words it."""
        body = json.dumps({"__type": code, "message": message}).encode()

        def answer(request: Request) -> Reply | None:
            target = request.headers.get("X-Amz-Target", "")
            return Reply(status, {}, body) if target.endswith(f".{operation}") else None

        self.answers.insert(0, answer)

    def _issue_token(self, request: Request) -> Reply | None:
        if not request.headers.get("X-Amz-Target", "").endswith(".GetAuthorizationToken"):
            return None
        reply = self.forward(request)
        document = json.loads(reply.body)
        token = f"token-{len(self.issued)}"
        self.issued.append(token)
        if self.ecr:
            self.ecr.tokens.add(token)
        encoded = base64.b64encode(f"AWS:{token}".encode()).decode()
        document["authorizationData"][0]["authorizationToken"] = encoded
        return Reply(reply.status, reply.headers, json.dumps(document).encode())


class Ecr:
    """A registry and moto, paired, each behind its front."""

    def __init__(self, registry: EcrFront, aws: AwsFront, moto: str) -> None:
        self.registry = registry
        self.aws = aws
        self.client = boto3.client(
            "ecr", region_name=REGION, endpoint_url=moto, aws_access_key_id="x", aws_secret_access_key="x"
        )
        self.moto = moto

    @property
    def host(self) -> str:
        return self.registry.host

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to take this for AWS."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.aws.host}",
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def images(self, repository: str) -> dict[str, list[str]]:
        """What ECR's API lists: digests and their tags, once the registry's notifications have arrived."""
        time.sleep(0.5)
        details = self.client.describe_images(repositoryName=repository)["imageDetails"]
        return {image["imageDigest"]: sorted(image.get("imageTags", ())) for image in details}


@contextlib.contextmanager
def moto_server() -> Iterator[int]:
    """AWS without AWS, on a free port of this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield server.get_host_and_port()[1]
    finally:
        server.stop()


@contextlib.contextmanager
def ecr_pair() -> Iterator[Ecr]:
    """An ECR: what is pushed to the registry is known to moto, by way of the registry's notifications."""
    with contextlib.ExitStack() as stack:
        moto = stack.enter_context(moto_server())
        events = _Events()
        stack.enter_context(events.running())
        port = stack.enter_context(registry_container(locked=True, events=events.port))
        address = f"http://127.0.0.1:{moto}"
        aws, front = AwsFront(moto), EcrFront(port, address)
        aws.ecr = front
        events.pair = pair = Ecr(front, aws, address)
        events.registry = port
        stack.enter_context(aws.running())
        stack.enter_context(front.running())
        yield pair


class _Events:
    """Hears from the registry what was pushed, and tells moto."""

    def __init__(self) -> None:
        self.pair: Ecr | None = None
        self.registry = 0
        events = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for event in body["events"]:
                    if event["action"] == "push" and event["target"].get("tag"):
                        events.pushed(event["target"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        # The container reaches it through the bridge's address.
        self._server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        self.port = self._server.server_port

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def pushed(self, target: dict[str, Any]) -> None:
        assert self.pair
        url = f"http://127.0.0.1:{self.registry}/v2/{target['repository']}/manifests/{target['digest']}"
        login = base64.b64encode(f"AWS:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Accept": target["mediaType"]}
        with urlopen(UrlRequest(url, headers=headers)) as answer:
            manifest = answer.read().decode()
        with contextlib.suppress(self.pair.client.exceptions.ImageAlreadyExistsException):
            self.pair.client.put_image(
                repositoryName=target["repository"],
                imageManifest=manifest,
                imageManifestMediaType=target["mediaType"],
                imageTag=target["tag"],
                imageDigest=target["digest"],
            )
