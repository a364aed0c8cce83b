"""Credentials for servers, from URLs, apt's files, netrc and the keyring."""

import contextlib
import netrc
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from bakehouse.fetch.connection import ConnectionSettings, origin, origin_of
from bakehouse.util.files import expand_home

_KEYRING_SECONDS = 10.0

Login = tuple[str, str]


class LoginStore:
    """User names and passwords by URL; thread-safe."""

    def __init__(self, settings: ConnectionSettings, environment: Mapping[str, str]) -> None:
        self._settings, self._environment = settings, environment
        self._passwords: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def of(self, url: SplitResult) -> Login | None:
        """Find credentials like pip: in the URL, an index URL of the same server, netrc, the keyring.

        apt's files come before netrc.
        """
        addresses = self._settings.addresses
        urls = [url, *(urlsplit(address) for address in addresses if origin_of(address) == origin(url))]
        users = [unquote(known.username) for known in urls if known.username]
        for known in urls:
            if known.username and known.password is not None:
                return unquote(known.username), unquote(known.password)
        if self._settings.keyring and users and (password := self._of_keyring(url, users[0])):
            return users[0], password
        if users:
            return users[0], ""
        for path in self._settings.apt_logins:
            with contextlib.suppress(OSError):
                if login := apt_login(path.read_text(errors="replace"), url):
                    return login
        return self._of_netrc(url)

    def _of_netrc(self, url: SplitResult) -> Login | None:
        path = self._environment.get("NETRC") or Path(self._environment.get("HOME", "~"), ".netrc")
        with contextlib.suppress(OSError, UnicodeDecodeError, netrc.NetrcParseError):
            entries = netrc.netrc(str(expand_home(str(path))))
            if entry := entries.authenticators(url.hostname or ""):
                return entry[0], entry[2] or ""
        return None

    def _of_keyring(self, url: SplitResult, user: str) -> str:
        """Return a password from the keyring, like pip."""
        key = (origin(url), user)
        with self._lock:
            if key not in self._passwords:
                self._passwords[key] = ""
                program = shutil.which("keyring", path=self._environment.get("PATH"))
                if program:
                    command = [program, "get", origin(url), user]
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process = subprocess.run(
                            command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            check=False, timeout=_KEYRING_SECONDS,
                        )  # fmt: skip
                        self._passwords[key] = process.stdout.strip("\r\n") if process.returncode == 0 else ""
            return self._passwords[key]


def apt_login(text: str, url: SplitResult) -> Login | None:
    """Return the first login for a URL in a file in the format of apt_auth.conf(5)."""
    for machine, values in _entries(text):
        if _is_for(machine, url) and "login" in values:
            return values["login"], values.get("password", "")
    return None


def _entries(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = iter(" ".join(lines).split())
    machine, values = "", dict[str, str]()
    for word in words:
        if word == "machine":
            yield machine, values
            machine, values = next(words, ""), {}
        elif word in ("login", "password"):
            values[word] = next(words, "")
    yield machine, values


def _is_for(machine: str, url: SplitResult) -> bool:
    """Return whether `[protocol://]host[:port][/path]` matches; the default protocol is https."""
    scheme, mark, rest = machine.rpartition("://")
    host, _, path = rest.partition("/")
    name, _, port = host.partition(":")
    return (
        url.scheme == (scheme if mark else "https")
        and name.lower() == url.hostname
        and port in ("", str(url.port))
        and url.path.startswith(f"/{path}")
    )
