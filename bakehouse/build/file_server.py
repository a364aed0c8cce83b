"""Hands the files of a plan to the steps of its build, over HTTP: fetched when a step asks for them.

`sha256/<hash>/<file>` is a file, `simple/<project>/` a page of a package index. What no image of the plan
wants is not there, and nothing else of the machine can be read.
"""

import contextlib
import html
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from bakehouse.build import fileserver
from bakehouse.fetch.downloader import Fetcher, MissingError, StoppedError
from bakehouse.fetch.required_files import Wanted, WantedFile
from bakehouse.fetch.simple_index import normal


@contextlib.contextmanager
def serve(wanted: Wanted, fetcher: Fetcher, address: str) -> Iterator[str]:
    """Serve on a free port of `address`, below a prefix nobody can guess; gives the URL of that prefix.

    Raises OSError where this machine doesn't have the address.
    """
    token = secrets.token_urlsafe(24)
    handler = type("Handler", (_Handler,), {"shelf": FileIndex(wanted, fetcher), "token": token})
    with fileserver.serve(handler, address) as url:
        yield f"{url}/{token}"


class FileIndex:
    """The files of a plan."""

    def __init__(self, wanted: Wanted, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._files = {(str(one.sha256), one.file): one for one in wanted.files if one.sha256}
        self._projects: dict[str, list[WantedFile]] = {}
        for one in self._files.values():
            if one.kind in ("wheel", "sdist"):
                self._projects.setdefault(normal(one.project), []).append(one)
        self._with: dict[WantedFile, list[tuple[WantedFile, ...]]] = {}
        for stage in wanted.stages:
            for one in stage:
                self._with.setdefault(one, []).append(stage)

    def file(self, sha256: str, name: str) -> Path | None:
        """A file's path, once it is here; what its stage needs besides is on its way then too."""
        file = self._files.get((sha256, name))
        if file is None:
            return None
        stages = self._with.get(file, [])
        # One of several stages may have asked, and the others may be built already.
        for beside in stages[0] if len(stages) == 1 else ():
            if beside.sha256 and beside != file:
                self._fetcher.ask(beside)
        try:
            return self._fetcher.get(file)
        except (MissingError, StoppedError, OSError):
            return None

    def page(self, project: str) -> str | None:
        files = self._projects.get(normal(project))
        if files is None:
            return None
        lines = [
            f'<a href="../../sha256/{one.sha256}/{quote(one.file)}#sha256={one.sha256}">'
            f"{html.escape(one.file)}</a><br>\n"
            for one in files
        ]
        return f"<!DOCTYPE html><html><body>\n{''.join(lines)}</body></html>\n"


class _Handler(fileserver.Handler):
    shelf: FileIndex
    token: str

    def find(self, path: str) -> str | Path | None:
        token, *parts = [unquote(part) for part in path.split("/")[1:]] or [""]
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return None
        match parts:
            case ["sha256", sha256, name]:
                return self.shelf.file(sha256, name)
            case ["simple", project, ""]:
                return self.shelf.page(project)
        return None
