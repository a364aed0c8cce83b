"""Local package indexes over HTTP for handwritten Dockerfiles: build steps cannot read directories."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from bakehouse.fetch import pip_config
from bakehouse.fetch.sources import directory_of

GATEWAY = "{{(index .IPAM.Config 0).Gateway}}"
"""Format of `docker network inspect bridge` that prints the address of this machine for build steps."""


@contextlib.contextmanager
def over_http(gateway: str) -> Iterator[dict[str, str]]:
    """Yield this machine's environment, with pip's local directories served over HTTP to build steps."""
    pip = pip_config.read(os.environ)
    with contextlib.ExitStack() as stack:

        def reachable(url: str) -> str:
            directory = directory_of(url)
            if directory is None:
                return url
            # An index links to files in its directory
            handler = partial(QuietFiles, directory=str(directory.parent))
            server = stack.enter_context(ThreadingHTTPServer((gateway, 0), handler))
            Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            return f"http://{gateway}:{server.server_address[1]}/{directory.name}/"

        yield {
            **os.environ,
            "PIP_EXTRA_INDEX_URL": " ".join(map(reachable, pip.extra_index_urls)),
            "PIP_FIND_LINKS": " ".join(map(reachable, pip.find_links)),
            "PIP_TRUSTED_HOST": " ".join((*pip.trusted_hosts, gateway)),
        }


class QuietFiles(SimpleHTTPRequestHandler):
    """Handler for the files of a directory that logs no requests."""

    def log_message(self, format: str, *arguments: object) -> None: ...
