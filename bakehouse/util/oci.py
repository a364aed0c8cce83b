"""Names and constants of OCI images: digests, platform, registry hosts, repositories and tags."""

import ipaddress
import re
from contextlib import suppress
from typing import NewType

from bakehouse.errors import PublishError, Reason

Sha256 = NewType("Sha256", str)
"""64 hex digits over the bytes of a file."""
Digest = NewType("Digest", str)
"""`sha256:` and 64 hex digits, the digest of an OCI object."""
ContentId = NewType("ContentId", str)
"""`sha256:` and 64 hex digits over the layers of an image and its configuration without labels."""

PLATFORM = "linux/amd64"
"""Default platform of images and components."""
ARM64 = "linux/arm64"
PLATFORMS = (PLATFORM, ARM64)
"""Supported platforms, in the order in which their images are listed."""
EPOCH = 1767225600
"""Timestamp of all files and images that Bakehouse makes: 2026-01-01, an arbitrary fixed value."""

DOCKER_HUB = "docker.io"
"""Registry of images without a host in their reference."""

_REPOSITORY = re.compile(
    r"(?:[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
)
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
_HOST = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{1,5})?|\[[0-9a-fA-F:]+\](:[0-9]{1,5})?")
_REPOSITORY_LENGTHS = range(2, 257)
ECR_HOST = re.compile(r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z0-9.-]+")
"""Hosts of Amazon ECR, in all partitions."""


def architecture_of(platform: str) -> str:
    """Return the architecture of a platform, as Debian and OCI name it."""
    return platform.partition("/")[2]


def platform_suffix(platform: str) -> str:
    """Return the suffix of names for a platform, such as `-arm64`; empty for the default platform."""
    return "" if platform == PLATFORM else f"-{architecture_of(platform)}"


def is_loopback(host: str) -> bool:
    """Return whether a registry is on this machine; Docker uses plain HTTP for it."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    with suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost"


def split_reference(reference: str) -> tuple[str, str, str]:
    """Return the host, the repository and the tag of an image."""
    host, slash, rest = reference.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, rest = DOCKER_HUB, reference
    repository, _, tag = rest.partition(":")
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return host, repository, tag or "latest"


def is_named(host: str, registry: str) -> bool:
    """Return whether `registry` (`local`, `ecr` or a host) names this host."""
    match registry:
        case "local":
            return is_loopback(host)
        case "ecr":
            return ECR_HOST.fullmatch(host) is not None
        case _:
            return host == registry


def region_of(host: str) -> str:
    """Return the region of an Amazon ECR registry; empty for other registries."""
    match = ECR_HOST.fullmatch(host)
    return match["region"] if match else ""


ACCOUNT_DIGITS = 12
ACCOUNT_HINT = f"an account number has {ACCOUNT_DIGITS} digits"
_ECR_ACCOUNT = re.compile(r"([0-9]+)\.dkr[.-]ecr[.-]")


def check_names(host: str, repository: str, *tags: str) -> None:
    """Raise PublishError for names that a registry would reject after minutes of pushing."""
    if not _HOST.fullmatch(host):
        raise PublishError(
            f"`{host}` is not a registry host",
            hint="write a host and, if needed, a port, as in `registry.example.com:5000`",
        )
    if (account := _ECR_ACCOUNT.match(host)) and len(account[1]) != ACCOUNT_DIGITS:
        raise PublishError(
            f"`{host}` is not a host of Amazon ECR: `{account[1]}` has {len(account[1])} digits",
            hint=ACCOUNT_HINT,
        )
    if not _REPOSITORY.fullmatch(repository) or len(repository) not in _REPOSITORY_LENGTHS:
        message = f"`{repository}` is not a valid repository name"
        rule = "2 to 256 characters: lower-case letters and digits, joined by `.`, `_`, `-` or `/`"
        raise PublishError(message, reasons=(Reason(f"registries accept {rule}"),))
    for tag in tags:
        if not _TAG.fullmatch(tag):
            message = f"`{tag}` is not a valid tag"
            rule = "at most 128 letters, digits, `.`, `_` and `-`, not beginning with `.` or `-`"
            raise PublishError(message, reasons=(Reason(f"registries accept {rule}"),))
