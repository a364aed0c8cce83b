"""An ECR without AWS: a real registry and moto, and in front of both what ECR does beyond them.

Repositories must exist, immutable tags stay, logins are tokens that expire; what is pushed to the registry is
listed by ECR's API. Nothing here was compared with AWS itself but by its documentation.
"""

import base64
import contextlib
import fnmatch
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.support.proxy import Proxy, Reply, Request, error_body
from tests.support.referrers import Referrers
from tests.support.registry import PASSWORD, registry_container

ACCOUNT = "123456789012"
REGION = "eu-west-1"
REGIONS = (REGION, "us-east-1")
_MANIFEST = re.compile(r"/v2/(?P<repository>.+)/manifests/(?P<reference>[^/]+)")


class EcrFront(Proxy):
    """Stub of ECR in front of a plain registry: its tokens, its repositories, its immutable tags.

    Each region has one. All store in one registry, below the name of their region.
    """

    def __init__(self, registry: int, moto: str, region: str) -> None:
        super().__init__(registry)
        self.region = region
        self.tokens: set[str] = set()
        self.stored: list[Callable[[str, str, Request], None]] = []
        """Called with a repository, a digest and the request after a manifest was stored."""
        self._ecr = _client(moto, region)
        self._storing = threading.Lock()
        self.answers += [self._check_token, self._check_repository, Referrers(self.forward).answer]

    def expire_tokens(self) -> None:
        """Let the registry refuse every token that was issued."""
        self.tokens = {f"expired {token}" for token in self.tokens}

    def forward(self, request: Request) -> Reply:
        login = base64.b64encode(f"AWS:{PASSWORD}".encode()).decode()
        request.headers = {**request.headers, "Authorization": f"Basic {login}"}
        stored = _MANIFEST.fullmatch(request.path) if request.method == "PUT" else None
        if stored is None:
            return self._pass_below(request)
        repository, reference = stored["repository"], stored["reference"]
        # Whether a tag is free and its being taken are one step: of two pushers at once one wins.
        with self._storing:
            if refused := self._refuse_tag(repository, reference):
                return refused
            reply = self._pass_below(request)
            if reply.status == 201 and "subject" not in json.loads(request.body):
                self._list(repository, reference, request, reply)
        if reply.status == 201:
            for callback in self.stored:
                callback(repository, reference, request)
        return reply

    def _pass_below(self, request: Request) -> Reply:
        """Ask the registry for what is below the region's name there; its answers don't tell of it."""
        path = request.path
        if path.startswith("/v2/") and path != "/v2/":
            path = re.sub(r"([?&]from=)", rf"\1{self.region}%2F", f"/v2/{self.region}/{path[4:]}")
        reply = super().forward(replace(request, path=path))
        below = f"/v2/{self.region}/"
        headers = {name: value.replace(below, "/v2/") for name, value in reply.headers.items()}
        return replace(reply, headers=headers)

    def _list(self, repository: str, reference: str, request: Request, reply: Reply) -> None:
        """Let moto know what the registry has stored: without its digest, it would make one up."""
        tag = {} if reference.startswith("sha256:") else {"imageTag": reference}
        settings = self._repository(repository) or {}
        if not tag and settings.get("imageTagMutabilityExclusionFilters"):
            return  # moto fails at it; the tag follows
        with contextlib.suppress(self._ecr.exceptions.ImageAlreadyExistsException):
            self._ecr.put_image(
                repositoryName=repository,
                imageManifest=request.body.decode(),
                imageManifestMediaType=request.headers["Content-Type"],
                imageDigest=reply.headers["Docker-Content-Digest"],
                **tag,
            )

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
            repositories = self._ecr.describe_repositories(repositoryNames=[name])["repositories"]
        except self._ecr.exceptions.RepositoryNotFoundException:
            return None
        return dict(repositories[0])

    def _check_repository(self, request: Request) -> Reply | None:
        named = re.match(r"/v2/(.+?)/(?:manifests|blobs|tags)/", request.path)
        if named is None or self._repository(named[1]):
            return None
        text = f"The repository with name '{named[1]}' does not exist in the registry with id '{ACCOUNT}'"
        return Reply(404, {"Content-Type": "application/json"}, error_body("NAME_UNKNOWN", text))

    def _refuse_tag(self, repository: str, reference: str) -> Reply | None:
        settings = self._repository(repository) or {}
        filters = [rule["filter"] for rule in settings.get("imageTagMutabilityExclusionFilters", ())]
        is_excepted = any(fnmatch.fnmatchcase(reference, pattern) for pattern in filters)
        immutable = str(settings.get("imageTagMutability", "")).startswith("IMMUTABLE") and not is_excepted
        if reference.startswith("sha256:") or not immutable:
            return None
        try:
            self._ecr.describe_images(repositoryName=repository, imageIds=[{"imageTag": reference}])
        except self._ecr.exceptions.ImageNotFoundException:
            return None
        text = f"The image tag '{reference}' already exists in the '{repository}' repository and cannot be"
        body = error_body("TAG_INVALID", f"{text} overwritten because the tag is immutable.")
        return Reply(400, {"Content-Type": "application/json"}, body)


class AwsFront(Proxy):
    """In front of moto: every login gets a token of its own, as from AWS; errors can be put in between."""

    def __init__(self, moto: int, registries: Mapping[str, EcrFront]) -> None:
        super().__init__(moto)
        self.issued: list[str] = []
        self._registries = registries
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
        token = f"token-{secrets.token_hex(16)}"
        self.issued.append(token)
        # A token is good for the region that it was asked in.
        self._registries[_region_of(request)].tokens.add(token)
        encoded = base64.b64encode(f"AWS:{token}".encode()).decode()
        document["authorizationData"][0]["authorizationToken"] = encoded
        return Reply(reply.status, reply.headers, json.dumps(document).encode())


class EcrStub:
    """A registry and moto, each behind what ECR does in front of it; a stub, not AWS."""

    def __init__(self, registries: Mapping[str, EcrFront], aws: AwsFront, moto: str) -> None:
        self.registries = registries
        """The registry of each region."""
        self.region = next(iter(registries))
        self.registry = registries[self.region]
        self.aws = aws
        self.moto = moto
        self.client = _client(moto, self.region)
        """A client of the API that no test's faults reach."""
        self._answers = list(aws.answers)

    @property
    def host(self) -> str:
        """The registry's address; it has not the form of ECR's own."""
        return self.registry.host

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a process that uses this as AWS."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.aws.host}",
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def client_in(self, region: str) -> Any:
        """A client of the API of one region."""
        return _client(self.moto, region)

    def images(self, repository: str, region: str = "") -> dict[str, list[str]]:
        """Return the images that the API of ECR lists: digests and their tags."""
        client = self.client_in(region or self.region)
        details = client.describe_images(repositoryName=repository)["imageDetails"]
        return {image["imageDigest"]: sorted(image.get("imageTags", ())) for image in details}

    def reset(self) -> None:
        """Take back faults, refusals and logins."""
        self.aws.answers[:] = self._answers
        self.aws.issued.clear()
        self.aws.faults.clear()
        for registry in self.registries.values():
            registry.tokens.clear()
            registry.faults.clear()
            registry.stored.clear()


@contextlib.contextmanager
def moto_server() -> Iterator[int]:
    """AWS without AWS, on a free port of 127.0.0.1 until the block ends."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield server.get_host_and_port()[1]
    finally:
        server.stop()


@contextlib.contextmanager
def ecr_stubs(image: str, *regions: str) -> Iterator[EcrStub]:
    """An ECR without AWS in some regions, until the block ends; its registry is started from `image`."""
    with contextlib.ExitStack() as stack:
        moto = stack.enter_context(moto_server())
        port = stack.enter_context(registry_container(image, locked=True))
        address = f"http://127.0.0.1:{moto}"
        fronts = {
            region: stack.enter_context(EcrFront(port, address, region).running())
            for region in regions or REGIONS
        }
        aws = stack.enter_context(AwsFront(moto, fronts).running())
        yield EcrStub(fronts, aws, address)


def _region_of(request: Request) -> str:
    """The region that a request to AWS is signed for."""
    return request.headers["Authorization"].split("Credential=")[1].split("/")[2]


def _client(moto: str, region: str) -> Any:
    import boto3  # type: ignore[import-untyped]

    return boto3.client(
        "ecr", region_name=region, endpoint_url=moto, aws_access_key_id="x", aws_secret_access_key="x"
    )
