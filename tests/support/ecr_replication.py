"""Replication of ECR: pushed images are copied to another region."""

import base64
import contextlib
import hashlib
import json
from collections.abc import Iterator
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

from tests.support.ecr import ACCOUNT, EcrStub
from tests.support.proxy import Reply, Request
from tests.support.registry import PASSWORD


@contextlib.contextmanager
def replicated(stub: EcrStub, region: str, prefix: str, outcome: str = "COMPLETE") -> Iterator[None]:
    """Carry what is pushed below a prefix to another region, until the block ends.

    With the outcome `FAILED` or `IN_PROGRESS` nothing arrives.
    """
    statuses: dict[tuple[str, str], str] = {}

    def carry(repository: str, reference: str, request: Request) -> None:
        if not repository.startswith(prefix):
            return
        if outcome == "COMPLETE":
            _copy(stub, region, repository, reference, request)
        statuses[repository, _digest(request.body)] = outcome

    def answer(request: Request) -> Reply | None:
        if not request.headers.get("X-Amz-Target", "").endswith(".DescribeImageReplicationStatus"):
            return None
        query = json.loads(request.body)
        status = statuses.get((query["repositoryName"], query["imageId"]["imageDigest"]))
        replication = {"region": region, "registryId": ACCOUNT, "status": status}
        if status == "FAILED":
            replication["failureCode"] = "REPOSITORY_NOT_FOUND"
        document = {**query, "replicationStatuses": [replication] if status else []}
        return Reply(200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(document).encode())

    rule = {
        "destinations": [{"region": region, "registryId": ACCOUNT}],
        "repositoryFilters": [{"filter": prefix, "filterType": "PREFIX_MATCH"}],
    }
    stub.client.put_replication_configuration(replicationConfiguration={"rules": [rule]})
    stub.registry.stored.append(carry)
    stub.aws.answers.insert(0, answer)
    try:
        yield
    finally:
        stub.client.put_replication_configuration(replicationConfiguration={"rules": []})


def _copy(stub: EcrStub, region: str, repository: str, reference: str, request: Request) -> None:
    """Put a manifest into the other region, with what it names."""
    source, destination = (f"{name}/{repository}" for name in (stub.region, region))
    manifest = json.loads(request.body)
    for blob in (manifest["config"], *manifest["layers"]):
        mount = f"{destination}/blobs/uploads/?mount={blob['digest']}&from={source.replace('/', '%2F')}"
        _ask(stub, "POST", mount)
    client = stub.client_in(region)
    with contextlib.suppress(client.exceptions.RepositoryAlreadyExistsException):
        client.create_repository(repositoryName=repository)
    kind = {"Content-Type": request.headers["Content-Type"]}
    _ask(stub, "PUT", f"{destination}/manifests/{reference}", request.body, kind)
    client.put_image(
        repositoryName=repository,
        imageManifest=request.body.decode(),
        imageDigest=_digest(request.body),
        imageTag=reference,
    )


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _ask(
    stub: EcrStub, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> None:
    """A request to the registry behind all regions."""
    login = base64.b64encode(f"AWS:{PASSWORD}".encode()).decode()
    url = f"http://127.0.0.1:{stub.registry.upstream}/v2/{path}"
    all_headers = {"Authorization": f"Basic {login}", **(headers or {})}
    urlopen(UrlRequest(url, body, all_headers, method=method)).close()
