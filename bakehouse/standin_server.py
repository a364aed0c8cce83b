"""Serves stand-ins to the steps of a rehearsal: by sha256, as a page for pip, as a repository for apt.

Nothing else of the machine can be read, so that nothing needs to be kept secret.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from bakehouse import fileserver

HOST = "standins.bakehouse.invalid"
"""What a base's stand-in calls the server; apt reaches it as a proxy for that name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+%~!-]*")


@contextlib.contextmanager
def serve(folder: Path, address: str) -> Iterator[str]:
    """Serve `folder`/files/<sha256>/<file> and `folder`/apt on a free port of `address`; gives the URL.

    Raises OSError where this machine doesn't have the address.
    """
    handler = type("Handler", (_Handler,), {"folder": folder})
    with fileserver.serve(handler, address) as url:
        yield url


class _Handler(fileserver.Handler):
    folder: Path

    def find(self, path: str) -> str | Path | None:
        match [one for one in unquote(path).split("/") if one not in ("", ".")]:
            case ["packages"]:
                return self._page()
            case ["sha256", digest, name] if _NAME.fullmatch(digest) and _NAME.fullmatch(name):
                return self._file(self.folder / "files" / digest / name)
            case ["apt", name] if _NAME.fullmatch(name):
                return self._file(self.folder / "apt" / name)
        return None

    def _page(self) -> str:
        """All packages with their checksums: two of the same name may have different bytes."""
        paths = sorted(
            path for path in self.folder.glob("files/*/*") if path.suffix in (".whl", ".gz", ".zip")
        )
        links = [
            f'<a href="/sha256/{digest}/{quote(name)}#sha256={digest}">{name}</a><br>\n'
            for digest, name in ((path.parent.name, path.name) for path in paths)
        ]
        return f"<!DOCTYPE html><html><body>\n{''.join(links)}</body></html>\n"

    def _file(self, path: Path) -> Path | None:
        return path if path.is_file() else None
