"""Mirrors of Debian: from the settings, otherwise from apt on this machine, otherwise Debian's own.

This machine downloads the indexes, with its proxies, certificates and logins. It does not verify
them; apt does this in a container.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import BuildError, Diagnostic, Reason
from bakehouse.fetch import apt_config, pip_config
from bakehouse.fetch.connection import PORTS, ConnectionSettings, Proxies, bundle_of, redacted
from bakehouse.fetch.faults import Fault, SourceError
from bakehouse.fetch.http_client import HttpClient
from bakehouse.util.files import make_directory

SECURITY = "Debian-Security"
"""Label of the archive of security updates."""
LISTS = Path("/var/lib/apt/lists")
"""Indexes that apt on this machine has downloaded."""
_FILE = re.compile(r"^ (?P<sha256>[0-9a-f]{64})\s+[0-9]+\s+(?P<path>\S+)$", re.MULTILINE)
_COMPRESSED = (".xz", ".gz", "")
_RELEASE_FILES = (("InRelease",), ("Release", "Release.gpg"))
_HINT = "check `debian_mirrors` in [tool.bakehouse], proxies and the network"


@dataclass(frozen=True, slots=True)
class AptSource:
    """A suite on a Debian mirror."""

    label: str
    """`Debian`, or the label of security updates."""
    url: str
    suite: str
    components: tuple[str, ...]
    is_guess: bool = False
    """The suite is not in any configuration, so the mirror may not have it."""

    @property
    def line(self) -> str:
        return f"deb {self.url} {self.suite} {' '.join(self.components)}"


@dataclass(frozen=True)
class DebianMirrors:
    """The mirrors of a project on this machine."""

    client: HttpClient
    named: tuple[str, ...] = ()
    """Root URLs of the settings."""
    failures: dict[str, str] = field(default_factory=dict)
    """Reasons why mirrors do not answer, by URL without credentials."""

    def sources(self) -> tuple[AptSource, ...]:
        """Return the Debian suites of apt's configuration, or the stable release of other mirrors."""
        if not self.named and (configured := self._configured()):
            return configured
        return tuple(self._at_roots(self._roots(), "stable"))

    def for_suite(self, suite: str) -> tuple[AptSource, ...]:
        """Return the sources of a suite, its updates and security updates; empty without a mirror.

        Suites that apt's configuration does not name use the mirrors of other suites.
        """
        configured = () if self.named else self._configured()
        known = configured or tuple(self._at_roots(self._roots(), suite))
        names = (("Debian", suite), ("Debian", f"{suite}-updates"), (SECURITY, f"{suite}-security"))
        selected: list[AptSource] = []
        for label, name in names:
            roots = dict.fromkeys(source.url for source in known if source.label == label)
            exact = [source for source in known if (source.label, source.suite) == (label, name)]
            selected += exact or [AptSource(label, root, name, ("main",), is_guess=True) for root in roots]
        return tuple(selected)

    def roots(self) -> tuple[str, ...]:
        """Return the root URLs of mirrors, whose packages have the same paths everywhere."""
        configured = () if self.named else self._configured()
        return tuple(dict.fromkeys(source.url for source in configured)) or self._roots()

    def download_index(self, source: AptSource, architecture: str, to: Path) -> bool:
        """Write the index of a suite on a mirror to a directory; return whether the mirror has the suite.

        Raises BuildError if the mirror cannot be read, or lacks a suite that is in the configuration.
        """
        try:
            self._download_index(source, architecture, to)
            return True
        except SourceError as error:
            if source.is_guess and error.fault is Fault.MISSING:
                return False
            raise BuildError.of(self._unreadable({redacted(source.url): error.reason})) from error

    def none_for(self, suite: str) -> Diagnostic:
        """Return the error for a suite that no mirror has."""
        return self._unreadable(self.failures, f"no Debian mirror has `{suite}`")

    def _unreadable(
        self, reasons: Mapping[str, str], message: str = "a Debian mirror cannot be read"
    ) -> Diagnostic:
        texts = (f"{url}: {reason}" for url, reason in reasons.items())
        return Diagnostic(message, reasons=tuple(map(Reason, texts)), hint=_HINT)

    def _roots(self) -> tuple[str, ...]:
        return self.named or _debians_own()

    def _configured(self) -> tuple[AptSource, ...]:
        return tuple(
            AptSource(label, entry.url.rstrip("/"), entry.suite, entry.components)
            for entry in apt_config.entries()
            if (label := self._label(entry.url, entry.suite))
        )

    def _at_roots(self, roots: Iterable[str], suite: str) -> Iterator[AptSource]:
        for root in roots:
            for name in (suite, f"{suite}-security"):
                if label := self._label(root, name):
                    yield AptSource(label, root.rstrip("/"), name, ("main",))

    def _label(self, url: str, suite: str) -> str:
        """Return the label of an archive of Debian; empty for other and unreachable archives."""
        text = _downloaded(url, suite)
        try:
            text = text or self._read(f"{url.rstrip('/')}/dists/{suite}/InRelease").decode(errors="replace")
        except SourceError as error:
            if error.fault is not Fault.MISSING:
                self.failures[redacted(url)] = error.reason
            return ""
        fields = dict(line.split(": ", 1) for line in text.splitlines()[:40] if ": " in line)
        return fields.get("Label", "") if fields.get("Origin") == "Debian" else ""

    def _download_index(self, source: AptSource, architecture: str, to: Path) -> None:
        root = f"{source.url}/dists/{source.suite}"
        release = self._release(root)
        text = next(iter(release.values())).decode(errors="replace")
        hashes = {match["path"]: match["sha256"] for match in _FILE.finditer(text)}
        by_hash = "\nAcquire-By-Hash: yes" in text
        files = dict(release)
        for component in source.components:
            plain = f"{component}/binary-{architecture}/Packages"
            paths = [f"{plain}{suffix}" for suffix in _COMPRESSED if f"{plain}{suffix}" in hashes]
            if not paths:
                reason = f"has no index of {source.suite} {component} for {architecture}"
                raise SourceError(reason)
            path = paths[0]
            place = f"{path.rpartition('/')[0]}/by-hash/SHA256/{hashes[path]}" if by_hash else path
            files[path] = self._read(f"{root}/{place}")
        for name, content in files.items():
            file = to / "dists" / source.suite / name
            make_directory(file.parent)
            file.write_bytes(content)

    def _release(self, root: str) -> dict[str, bytes]:
        for names in _RELEASE_FILES[:-1]:
            with contextlib.suppress(SourceError):
                return {name: self._read(f"{root}/{name}") for name in names}
        return {name: self._read(f"{root}/{name}") for name in _RELEASE_FILES[-1]}

    def _read(self, url: str) -> bytes:
        address = urlsplit(url)
        if address.scheme in ("file", "copy"):
            try:
                return Path(url2pathname(address.path)).read_bytes()
            except OSError as error:
                fault = Fault.MISSING if isinstance(error, FileNotFoundError) else Fault.ADDRESS
                raise SourceError(error.strerror or str(error), fault) from error
        if address.scheme not in PORTS:
            reason = f"Bakehouse does not support `{address.scheme}:`"
            raise SourceError(reason, Fault.ADDRESS)
        with self.client.open(url) as response:
            return b"".join(response.chunks())


def debian_mirrors(project: ProjectSettings, environment: Mapping[str, str] = os.environ) -> DebianMirrors:
    """Return the mirrors of a project, with the connection settings of this machine."""
    bundle = bundle_of(project.ca, pip_config.read(environment), environment)
    own = ConnectionSettings(Proxies.of_environment(environment), (bundle,) if bundle else ())
    return DebianMirrors(
        HttpClient(apt_connection(apt_config.settings(), own), environment), project.debian_mirrors
    )


def apt_connection(values: Mapping[str, str], own: ConnectionSettings) -> ConnectionSettings:
    """Return the connection settings that apt's configuration sets."""
    by_scheme, by_host = dict(own.proxies.by_scheme), dict[str, str]()
    certificates, unchecked = own.certificates, own.unchecked
    for key, value in values.items():
        match key.lower().split("::") if value else ():
            case ["acquire", "http", "proxy"]:
                # apt uses it for https too, unless https has its own proxy.
                by_scheme = {"https": value, **by_scheme, "http": value}
            case ["acquire", "https", "proxy"]:
                by_scheme["https"] = value
            case ["acquire", "http" | "https", "proxy", host]:
                by_host[host] = value
            case ["acquire", "https", "cainfo", *_]:
                certificates = (Path(value),)
            case ["acquire", "https", "verify-peer"] if value.lower() in ("false", "no", "0", "off"):
                unchecked = ("*",)
    proxies = replace(own.proxies, by_scheme=by_scheme, by_host=by_host)
    return replace(
        own, proxies=proxies, certificates=certificates, unchecked=unchecked, apt_logins=apt_config.logins()
    )


def _debians_own() -> tuple[str, ...]:
    """Return the roots of Debian's own archives, from packageurl's URL of a package."""
    from packageurl.contrib.purl2url import get_download_url

    url = get_download_url("pkg:deb/debian/apt@1")  # type: ignore[no-untyped-call]
    root = str(url).partition("/pool/")[0]
    return (root, f"{root}-security")


def _downloaded(url: str, suite: str) -> str:
    """Return the release file that apt on this machine has downloaded; empty without one."""
    name = unquote(redacted(url).partition("://")[2]).replace("/", "_")
    for file in ("InRelease", "Release"):
        with contextlib.suppress(OSError):
            return (LISTS / f"{name}_dists_{suite}_{file}").read_text(errors="replace")
    return ""
