"""Connection settings: proxies, certificates, credentials; and URLs without credentials."""

import contextlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from urllib.parse import SplitResult, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from bakehouse.errors import EngineError
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.util.files import is_file

_LOGIN = re.compile(r"^(//)?[^/@]*:[^/@]*@")
_NO_PROXY = ("DIRECT", "false")
"""Values in apt's configuration that mean no proxy."""
PORTS = {"http": 80, "https": 443}
_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_REGISTRY_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Bundles for registries, even if another variable or setting names the bundle for downloads."""
_LINK_LOCAL = tuple(map(ip_network, ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32")))
"""Networks of metadata services, which give credentials; the last one is that of Amazon EC2."""
_NAT64 = ip_network("64:ff9b::/96")
_SYSTEM_CA = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxy for each server."""

    by_scheme: Mapping[str, str] = field(default_factory=dict)
    by_host: Mapping[str, str] = field(default_factory=dict)
    """Proxies of single hosts, from apt's configuration; they take precedence over `not_for`."""
    not_for: str = ""
    """Value of no_proxy."""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "Proxies":
        def value(name: str) -> str:
            return environment.get(name) or environment.get(name.upper()) or ""

        default = value("all_proxy")
        proxies = {scheme: value(f"{scheme}_proxy") or default for scheme in ("http", "https")}
        return cls({scheme: proxy for scheme, proxy in proxies.items() if proxy}, {}, value("no_proxy"))

    def to(self, url: SplitResult) -> str:
        """Return the proxy for a URL; empty without one."""
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
            for network in re.split(r"[\s,]+", self.not_for):
                with contextlib.suppress(ValueError):
                    if "/" in network and address in ip_network(network, strict=False):
                        return True
        return bool(proxy_bypass_environment(f"{host}:{port}", {"no": self.not_for}))


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings of connections to servers."""

    proxies: Proxies = field(default_factory=Proxies)
    certificates: tuple[Path, ...] = ()
    """Files or directories that are trusted in addition to those of the system."""
    unchecked: tuple[str, ...] = ()
    """`host` or `host:port` of servers whose certificates are not verified; `*` for all."""
    addresses: tuple[str, ...] = ()
    """URLs with credentials, which are valid for the whole server."""
    apt_logins: tuple[Path, ...] = ()
    """Files in the format of apt_auth.conf(5), read before the user's netrc."""
    keyring: bool = False
    """Get passwords from the `keyring` program."""


def machine_settings(
    ca: Path | None, pip: PipConfig, environment: Mapping[str, str] = os.environ
) -> ConnectionSettings:
    """Return the settings for servers that are neither mirrors nor package indexes, such as registries."""
    named = (Path(path) for name in _REGISTRY_CA_VARIABLES if (path := environment.get(name)))
    paths = (bundle_of(ca, pip, environment), *(path for path in named if path.exists()))
    return ConnectionSettings(
        Proxies.of_environment(environment), tuple(dict.fromkeys(path for path in paths if path))
    )


def bundle_of(ca: Path | None, pip: PipConfig, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file of trusted certificates: from the settings, pip, the environment or the system."""
    if ca and not is_file(ca):
        raise EngineError(
            f"certificate file `{ca}` does not exist",
            hint="correct `ca` in [tool.bakehouse], or BAKEHOUSE_CA",
        )
    paths = (str(ca or ""), pip.cert, *(environment.get(name, "") for name in _CA_VARIABLES), *_SYSTEM_CA)
    return next((Path(path) for path in paths if path and is_file(Path(path))), None)


def origin(url: SplitResult) -> str:
    """Return the scheme, host and port of a URL, without credentials."""
    host = url.hostname or ""
    port = url.port if url.port and url.port != PORTS.get(url.scheme) else None
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"


def origin_of(address: str) -> str:
    """Return the `origin` of a URL; empty if it is not an HTTP URL."""
    with contextlib.suppress(ValueError):
        url = urlsplit(address)
        return origin(url) if url.scheme in PORTS and url.hostname else ""
    # The error text may contain a password, because one with a `/` is parsed as a port.
    return ""


def redacted(address: str) -> str:
    """Return a URL for messages: without credentials, query and fragment."""
    if "://" not in address:
        return _LOGIN.sub("", address)
    with contextlib.suppress(ValueError):
        url = urlsplit(address)
        return f"{origin(url)}{url.path}".rstrip("/")
    return f"{address.partition('://')[0]}://…"


def is_link_local(host: str) -> bool:
    """Return whether a host is a link-local address or that of a metadata service, in any notation."""
    address = _address_of(host)
    return address is not None and any(address in network for network in _LINK_LOCAL)


def refusal(source: str, target: str) -> str:
    """Return why a response from `source` may not lead to `target`; empty if it may."""
    try:
        start, end = urlsplit(source), urlsplit(target)
        host = end.hostname or ""
    except ValueError:
        # It is refused as an invalid URL.
        return ""
    if start.scheme == "https" and end.scheme == "http":
        return f"leads from https to `http://{host}`"
    if is_link_local(host):
        return f"leads to `{host}`, a link-local address"
    if _is_this_machine(host) and not _is_this_machine(start.hostname or ""):
        return f"leads to `{host}`, which is this machine"
    return ""


def _is_this_machine(host: str) -> bool:
    address = _address_of(host)
    if address is None:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is; None for a name. IPv4 has the notations of inet_aton(3), too."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(address.packed[12:])
        return address.ipv4_mapped or address.sixtofour or address
    return address
