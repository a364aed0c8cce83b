"""A registry in memory, and an image that it can hold."""

import json
import re
from urllib.parse import parse_qs, urlsplit

from bakehouse.registry.manifest import DOCKER_MANIFEST, GZIP_LAYER, digest_of
from tests.support.proxy import Reply, Request

IMAGE = json.dumps({"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": None, "layers": []}).encode()


_RANGE = re.compile("bytes=([0-9]+)-([0-9]+)")
_PATH = re.compile(r"/v2/team/(candidates/)?image/(?P<kind>manifests|blobs|blobs/uploads)/(?P<name>[^/]*)")


class FakeRegistry:
    """A registry in memory; it has no referrers API."""

    def __init__(self) -> None:
        self.manifests: dict[str, tuple[str, bytes]] = {"v1": (DOCKER_MANIFEST, IMAGE)}
        self.manifests[digest_of(IMAGE)] = self.manifests["v1"]
        self.blobs: dict[str, bytes] = {}

    def answer(self, request: Request) -> Reply:
        address = urlsplit(request.path)
        match = _PATH.fullmatch(address.path)
        if address.path == "/v2/":
            return Reply(200, {}, b"{}")
        if match is None:
            return Reply(404)
        if match["kind"] == "blobs/uploads":
            return self._upload(request, parse_qs(address.query).get("digest", [""])[0])
        if match["kind"] == "blobs":
            blob = self.blobs.get(match["name"])
            if blob is None:
                return Reply(404)
            if part := _RANGE.fullmatch(request.headers.get("Range", "")):
                first, last = int(part[1]), int(part[2])
                headers = {"Content-Range": f"bytes {first}-{last}/{len(blob)}"}
                return Reply(206, headers, blob[first : last + 1])
            return Reply(200, {"Content-Length": str(len(blob))}, blob)
        if request.method == "PUT":
            stored = request.headers["Content-Type"], request.body
            self.manifests[match["name"]] = self.manifests[digest_of(request.body)] = stored
            return Reply(201, {"Docker-Content-Digest": digest_of(request.body)})
        if match["name"] not in self.manifests:
            return Reply(404)
        kind, content = self.manifests[match["name"]]
        return Reply(200, {"Content-Type": kind, "Docker-Content-Digest": digest_of(content)}, content)

    def _upload(self, request: Request, digest: str) -> Reply:
        if request.method == "POST":
            return Reply(202, {"Location": "/v2/team/image/blobs/uploads/1?state=a%2Fb"})
        assert parse_qs(urlsplit(request.path).query)["state"] == ["a/b"]
        if request.method == "DELETE":
            return Reply(204)
        assert digest == digest_of(request.body)
        self.blobs[digest] = request.body
        return Reply(201)


CONFIG, LAYER = b'{"os": "linux", "architecture": "amd64"}', b"a layer"


def described(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST,
        "config": described("application/vnd.docker.container.image.v1+json", CONFIG),
        "layers": [described(GZIP_LAYER, LAYER)],
    }
).encode()
DIGEST = digest_of(MANIFEST)


def holding(shelf: FakeRegistry) -> None:
    """Let a registry in memory hold the image."""
    shelf.manifests[DIGEST] = (DOCKER_MANIFEST, MANIFEST)
    shelf.blobs |= {digest_of(blob): blob for blob in (CONFIG, LAYER)}
