"""Connection settings: proxies, certificates, credentials; and URLs without credentials."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import SplitResult, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

_LOGIN = re.compile(r"^(//)?[^/@]*:[^/@]*@")
_NO_PROXY = ("DIRECT", "false")
"""Values of apt for no proxy."""
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxy for each server."""

    by_scheme: Mapping[str, str] = field(default_factory=dict)
    by_host: Mapping[str, str] = field(default_factory=dict)
    """apt's own; they win over `not_for`."""
    not_for: str = ""
    """Value of no_proxy."""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "Proxies":
        def value(name: str) -> str:
            return environment.get(name) or environment.get(name.upper()) or ""

        rest = value("all_proxy")
        found = {scheme: value(f"{scheme}_proxy") or rest for scheme in ("http", "https")}
        return cls({scheme: proxy for scheme, proxy in found.items() if proxy}, {}, value("no_proxy"))

    def to(self, url: SplitResult) -> str:
        """Empty where there is none."""
        host = url.hostname or ""
        proxy = self.by_host.get(host, "")
        if not proxy and not self._is_exempt(host, url.port or PORTS.get(url.scheme)):
            proxy = self.by_scheme.get(url.scheme, "")
        if proxy in ("", *_NO_PROXY):
            return ""
        return proxy if "://" in proxy else f"http://{proxy}"

    def _is_exempt(self, host: str, port: int | None) -> bool:
        """Return whether no_proxy matches, like curl and pip: names, subdomains, ports, networks."""
        if not self.not_for:
            return False
        with contextlib.suppress(ValueError):
            address = ip_address(host)
            for one in re.split(r"[\s,]+", self.not_for):
                with contextlib.suppress(ValueError):
                    if "/" in one and address in ip_network(one, strict=False):
                        return True
        return bool(proxy_bypass_environment(f"{host}:{port}", {"no": self.not_for}))


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of connections to servers."""

    proxies: Proxies = field(default_factory=Proxies)
    certificates: Path | None = None
    """Trusted beside the system's own."""
    unchecked: tuple[str, ...] = ()
    """Hosts, or `host:port`, that need not show who they are; `*` for all."""
    addresses: tuple[str, ...] = ()
    """With credentials in them, which hold for all of their server."""
    apt_logins: tuple[Path, ...] = ()
    """Files in the format of apt_auth.conf(5), asked before the user's netrc."""
    keyring: bool = False
    """The `keyring` program may be asked for passwords."""


def origin(url: SplitResult) -> str:
    """The scheme, host and port of a URL, without credentials."""
    host = url.hostname or ""
    port = url.port if url.port and url.port != PORTS.get(url.scheme) else None
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"


def origin_of(address: str) -> str:
    """The `origin` of an address; empty where it is not an HTTP URL."""
    with contextlib.suppress(ValueError):
        url = urlsplit(address)
        return origin(url) if url.scheme in PORTS and url.hostname else ""
    # The words of that error may be a password's: one with a `/` in it looks like a port.
    return ""


def redacted(address: str) -> str:
    """An address as it may be told: without credentials, nor anything behind the path."""
    if "://" not in address:
        return _LOGIN.sub("", address)
    with contextlib.suppress(ValueError):
        url = urlsplit(address)
        return f"{origin(url)}{url.path}".rstrip("/")
    return f"{address.partition('://')[0]}://…"
