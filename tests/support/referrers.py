"""Gives a registry behind a proxy the referrers API of OCI distribution 1.1, which Debian's has not."""

import json
import re
import threading
from collections.abc import Callable
from typing import Any

from tests.support.proxy import Reply, Request

_MANIFEST = re.compile(r"/v2/(?P<repository>.+)/manifests/[^/]+")
_REFERRERS = re.compile(r"/v2/(?P<repository>.+)/referrers/(?P<digest>sha256:[0-9a-f]{64})(\?.*)?")
_INDEX = "application/vnd.oci.image.index.v1+json"


class Referrers:
    """The lists of what names an image as its subject; `answer` goes into the answers of a proxy."""

    def __init__(self, forward: Callable[[Request], Reply]) -> None:
        self._forward = forward
        self._lists: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self._changing = threading.Lock()

    def answer(self, request: Request) -> Reply | None:
        """Lists, and notes what is pushed; nothing to all else."""
        if request.method == "GET" and (match := _REFERRERS.fullmatch(request.path)):
            return self._list(match["repository"], match["digest"])
        stored = _MANIFEST.fullmatch(request.path) if request.method == "PUT" else None
        subject = json.loads(request.body).get("subject") if stored else None
        if stored is None or subject is None:
            return None
        reply = self._forward(request)
        if reply.status != 201:
            return reply
        self._note(stored["repository"], subject["digest"], request.body, reply)
        return Reply(reply.status, {**reply.headers, "OCI-Subject": subject["digest"]}, reply.body)

    def _list(self, repository: str, subject: str) -> Reply:
        with self._changing:
            entries = list(self._lists.get((repository, subject), {}).values())
        document = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}
        return Reply(200, {"Content-Type": _INDEX}, json.dumps(document).encode())

    def _note(self, repository: str, subject: str, manifest: bytes, reply: Reply) -> None:
        document = json.loads(manifest)
        digest = reply.headers["Docker-Content-Digest"]
        entry = {
            "mediaType": document["mediaType"],
            "digest": digest,
            "size": len(manifest),
            "artifactType": document.get("artifactType") or document["config"]["mediaType"],
            "annotations": document.get("annotations") or {},
        }
        with self._changing:
            self._lists.setdefault((repository, subject), {})[digest] = entry
