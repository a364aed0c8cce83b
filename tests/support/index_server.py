"""A package index on a local server, made from what an index answers about its projects."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bakehouse.fetch.simple_index import JSON
from tests.support.file_server import FileServer


def put_index(server: FileServer, projects: Mapping[str, Mapping[str, Any]]) -> None:
    """Serve projects below `/simple`, each with its `files` and the `metadata` of its wheels by version."""
    for project, answer in projects.items():
        files = []
        for file in answer["files"]:
            path = f"/files/{file['filename']}"
            metadata = answer["metadata"].get(_version(file["filename"]), "").encode()
            if metadata:
                server.files[f"{path}.metadata"] = metadata
            core = {"sha256": hashlib.sha256(metadata).hexdigest()} if metadata else False
            # uv does not read a day alone
            time = f"{file['upload-time']:T<11}00:00:00Z"[:20]
            files.append({"url": path, "core-metadata": core, **file, "upload-time": time})
        page = {"meta": {"api-version": "1.1"}, "name": project, "files": files}
        put_page(server, project, json.dumps(page).encode())


def put_page(server: FileServer, project: str, content: bytes, kind: str = JSON) -> None:
    """Serve any bytes as the page of a project."""
    server.files[f"/simple/{project}/"] = content
    server.kinds[f"/simple/{project}/"] = kind


def _version(file: str) -> str:
    return file.split("-")[1] if file.endswith(".whl") else ""


def wheel_file(
    name: str, version: str, tag: str, day: str = "2026-11-01", **others: object
) -> dict[str, object]:
    """An entry of a page, for a wheel whose bytes nothing asks for."""
    file = f"{name}-{version}-{tag}.whl"
    sha256 = hashlib.sha256(file.encode()).hexdigest()
    return {
        "filename": file,
        "hashes": {"sha256": sha256},
        "size": 1000,
        "upload-time": f"{day}T00:00:00Z",
        **others,
    }


def metadata(name: str, version: str, *requires: str, python: str = ">=3.10") -> str:
    """The fields of METADATA."""
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {python}\n"]
    return "".join([*lines, *(f"Requires-Dist: {requirement}\n" for requirement in requires)])
