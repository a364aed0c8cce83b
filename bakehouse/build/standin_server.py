"""Serves stand-ins of packages to the steps of a rehearsal, as a repository that apt reads.

Nothing else of the machine can be read, so that nothing needs to be kept secret.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from bakehouse.build import fileserver

HOST = "standins.bakehouse.invalid"
"""What a base's stand-in calls the server; apt reaches it as a proxy for that name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+%~!-]*")


@contextlib.contextmanager
def serve(repository: Path, address: str) -> Iterator[str]:
    """Serve a folder as `/apt/` on a free port of `address`; gives the URL.

    Raises OSError where this machine doesn't have the address.
    """
    handler = type("Handler", (_Handler,), {"repository": repository})
    with fileserver.serve(handler, address) as url:
        yield url


class _Handler(fileserver.Handler):
    repository: Path

    def find(self, path: str) -> str | Path | None:
        match [one for one in unquote(path).split("/") if one not in ("", ".")]:
            case ["apt", name] if _NAME.fullmatch(name):
                file = self.repository / name
                return file if file.is_file() else None
        return None
