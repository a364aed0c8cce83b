"""Inputs of a build's steps from this machine: downloaded files, network settings and certificates.

All inputs are optional and not part of the cache key: the settings of pip and apt, certificates and the list
of mirrors are BuildKit secrets; proxies are predefined build arguments. Files are served over HTTP while the
build runs. Where steps cannot reach this host, they travel with the build: see `sent_files`.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from bakehouse.builder import file_server, step_files
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine.protocol import EngineHost
from bakehouse.fetch import apt_config, pip_config
from bakehouse.fetch.connection import bundle_of, redacted
from bakehouse.fetch.debian_mirrors import debian_mirrors
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.required_files import RequiredFiles
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.files import read_text
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

CA_IN_STEPS = "/run/secrets/ca"
_MAX_SECRET_BYTES = 500 * 1024
"""Maximum size of a BuildKit secret."""
_SERVED_PIP = """\
[global]
index-url = {url}/simple/
trusted-host = {host}
timeout = {seconds}
"""
_SERVED_SECONDS = 86400
"""The response starts when the download of the file is complete, which can take long."""
_SERVED_APT_SECONDS = 600
"""apt has a single time-out, which also applies to the mirrors of packages that are not locked."""
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----")
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")


@dataclass(frozen=True, slots=True)
class Downloads:
    """Files of a plan, and the fetcher that downloads them."""

    required: RequiredFiles
    fetcher: Fetcher
    host: EngineHost = field(default_factory=EngineHost)
    """Addresses at which this host serves the files to steps."""


@dataclass(frozen=True, slots=True)
class BuildInputs:
    """Secrets and arguments of a build."""

    secrets: Mapping[str, Path] = field(default_factory=dict)
    """Secret files by id: `pip`, `ca`, `mirrors`, `apt`, `sources`."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Predefined build arguments: proxies."""
    host: EngineHost = field(default_factory=EngineHost)
    """Address of this host for build steps; empty if it serves no files."""


@dataclass(frozen=True, slots=True)
class StepNeeds:
    """Mirrors and proxies that steps of images need."""

    suites: tuple[str, ...] = ()
    """Debian releases of bases that configure no mirror."""
    suites_of_own_steps: tuple[str, ...] | None = None
    """Debian releases that users' own steps need, if all other steps get served files; None means all."""
    proxies: bool = True
    """Steps may download files that this machine does not serve."""
    has_own_steps: bool = False
    """The images have users' own steps."""

    @classmethod
    def of(cls, images: Sequence[Image], *, offline: bool) -> Self:
        """Return the needs of the steps of images."""
        suites = [
            (image.base.suite, bool(image.content.run))
            for image in images
            if isinstance(image.base, BootstrappedBase) and not offline
        ]
        return cls(
            suites=tuple(suite for suite, _ in suites),
            suites_of_own_steps=tuple(suite for suite, has_own_steps in suites if has_own_steps),
            proxies=any(map(_downloads_more, images)),
            has_own_steps=any(image.content.run for image in images),
        )


@contextlib.contextmanager
def build_inputs(
    project: ProjectSettings,
    report: Reporter,
    needs: StepNeeds = StepNeeds(),
    downloads: Downloads | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[BuildInputs]:
    """Collect the inputs of a build's steps, and serve `downloads` while the context lasts.

    With `downloads`, steps get files only from this machine and use neither indexes nor mirrors. Without it,
    they use mirrors and indexes directly; unreachable ones are reported and left out. If files are served,
    steps get only the mirrors that users' own steps need. They get proxies only if they need them, because
    proxies are variables of all steps and can contain credentials.
    """
    with contextlib.ExitStack() as stack:
        url, host = "", EngineHost()
        if downloads:
            host = downloads.host
            url = stack.enter_context(file_server.serve(downloads.required, downloads.fetcher, host))
            texts, proxies = _served_inputs(url, downloads, project.ca, report, environment)
            proxies = proxies if needs.proxies else {}
        else:
            texts, proxies = _direct_inputs(project.mirrors, project.ca, report, environment)
        # This may query the mirrors, which takes seconds.
        suites = needs.suites if not url or needs.suites_of_own_steps is None else needs.suites_of_own_steps
        texts["sources"] = _source_list(project, suites)
        secrets = stack.enter_context(_secrets(texts, project.state))
        yield BuildInputs(secrets, _arguments(proxies, host.address), host)


@contextlib.contextmanager
def remote_inputs(
    project: ProjectSettings, report: Reporter, needs: StepNeeds, environment: Mapping[str, str] = os.environ
) -> Iterator[BuildInputs]:
    """Collect the inputs of steps that cannot reach this host. The build sends their files as contexts.

    Settings of this machine, which may contain credentials, are passed only if users' own steps need them.
    """
    texts: dict[str, str] = {}
    proxies: dict[str, str] = {}
    if needs.has_own_steps:
        texts, proxies = _network_inputs(project.ca, pip_config.read(environment), report, environment)
        texts["sources"] = _source_list(project, needs.suites_of_own_steps or ())
    texts |= {"pip": step_files.PIP, "mirrors": step_files.MIRRORS}
    with _secrets(texts, project.state) as secrets:
        yield BuildInputs(secrets, _arguments(proxies, ""))


@contextlib.contextmanager
def apt_inputs(
    project: ProjectSettings, report: Reporter, environment: Mapping[str, str] = os.environ
) -> Iterator[BuildInputs]:
    """Collect the inputs of steps that only use Debian mirrors."""
    texts, proxies = _network_inputs(project.ca, pip_config.read(environment), report, environment)
    with _secrets(texts, project.state) as secrets:
        yield BuildInputs(secrets, _arguments(proxies, ""))


def _downloads_more(image: Image) -> bool:
    """Return whether steps of an image may download files that are not locked."""
    return bool(image.content.run or not image.locks_apt or not isinstance(image.base, BootstrappedBase))


def _served_inputs(
    url: str, downloads: Downloads, ca: Path | None, report: Reporter, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return secrets and proxies of steps that get their files from this machine."""
    apt = {f"Acquire::http::Proxy::{urlsplit(url).hostname}": "DIRECT"}
    if any(file.kind == "deb" for file in downloads.required.files):
        apt["Acquire::http::Timeout"] = str(_SERVED_APT_SECONDS)
    texts, proxies = _network_inputs(ca, pip_config.read(environment), report, environment)
    texts["pip"] = _SERVED_PIP.format(url=url, host=urlsplit(url).netloc, seconds=_SERVED_SECONDS)
    texts["mirrors"] = f"{url}/sha256\n"
    texts["apt"] += apt_config.written(apt)
    return texts, proxies


def _direct_inputs(
    mirrors: Sequence[str], ca: Path | None, report: Reporter, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return secrets and proxies of steps that download directly."""
    pip, mirrors = _reachable(pip_config.read(environment), mirrors, report)
    texts, proxies = _network_inputs(ca, pip, report, environment)
    texts["pip"] = _pip_conf(pip, has_ca=bool(texts["ca"]))
    texts["mirrors"] = "".join(f"{mirror.rstrip('/')}\n" for mirror in mirrors)
    return texts, proxies


def _network_inputs(
    ca: Path | None, pip: PipConfig, report: Reporter, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return this machine's certificates and apt settings as secrets, and its proxies."""
    certificates = _certificates(bundle_of(ca, pip, environment), report)
    texts = {"ca": certificates, "apt": _apt_conf(report, has_ca=bool(ca and certificates))}
    return texts, _proxies(environment, report)


@contextlib.contextmanager
def _secrets(texts: Mapping[str, str], state: Path) -> Iterator[dict[str, Path]]:
    """Write texts to files that other users cannot read; empty texts get no file."""
    with private_directory(state) as directory:
        secrets = {name: directory / name for name, text in texts.items() if text}
        for name, path in secrets.items():
            path.touch(mode=0o600)
            path.write_text(texts[name])
        yield secrets


def _arguments(proxies: Mapping[str, str], address: str) -> dict[str, str]:
    arguments = dict(proxies)
    if arguments and address:
        arguments["no_proxy"] = ",".join(filter(None, (arguments.get("no_proxy"), address)))
    # Some programs read only upper-case names, others only lower-case names.
    return arguments | {name.upper(): value for name, value in arguments.items()}


def _proxies(environment: Mapping[str, str], report: Reporter) -> dict[str, str]:
    """Return the proxies of this machine that steps can reach."""
    names = (*_PROXIES, "no_proxy")
    proxies = {name: environment.get(name) or environment.get(name.upper()) or "" for name in names}
    return {
        name: value
        for name, value in proxies.items()
        if value and (name == "no_proxy" or _is_reachable(value, report))
    }


def _reachable(pip: PipConfig, mirrors: Sequence[str], report: Reporter) -> tuple[PipConfig, tuple[str, ...]]:
    """Return pip's settings and the mirrors, without URLs that steps cannot reach."""

    @cache
    def is_usable(url: str) -> bool:
        if urlsplit(url).scheme in ("http", "https"):
            return _is_reachable(url, report)
        if url:
            report(f"build steps cannot reach `{redacted(url)}`; skipped")
        return False

    pip = replace(
        pip,
        index_url=pip.index_url if is_usable(pip.index_url) else "",
        extra_index_urls=tuple(filter(is_usable, pip.extra_index_urls)),
        find_links=tuple(filter(is_usable, pip.find_links)),
        proxy=pip.proxy if _is_reachable(pip.proxy, report) else "",
    )
    return pip, tuple(filter(is_usable, mirrors))


def _is_reachable(url: str, report: Reporter) -> bool:
    """Return False for loopback addresses, which are the step's own container inside a build."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    if not _LOOPBACK.fullmatch(parts.hostname or ""):
        return True
    report(f"build steps cannot reach the loopback address `{parts.hostname}:{parts.port or 80}`; skipped")
    return False


def _pip_conf(pip: PipConfig, *, has_ca: bool) -> str:
    """Return this machine's pip settings for use inside a step."""
    settings = {
        "index-url": pip.index_url,
        "extra-index-url": " ".join(pip.extra_index_urls),
        "find-links": " ".join(pip.find_links),
        "no-index": "true" if pip.no_index else "",
        "trusted-host": " ".join(pip.trusted_hosts),
        "cert": CA_IN_STEPS if has_ca else "",
        "proxy": pip.proxy,
        "timeout": pip.timeout,
    }
    lines = [f"{key} = {value}\n" for key, value in settings.items() if value]
    return f"[global]\n{''.join(lines)}" if lines else ""


def _apt_conf(report: Reporter, *, has_ca: bool) -> str:
    settings = {
        key: value
        for key, value in apt_config.settings().items()
        if "::proxy" not in key.lower() or _is_reachable(value, report)
    }
    own = [key for key in settings if "::cainfo" in key.lower()]
    if has_ca or own:
        settings |= dict.fromkeys(own or ["Acquire::https::CaInfo"], CA_IN_STEPS)
        # apt downloads as a user that cannot read secrets.
        settings["APT::Sandbox::User"] = "root"
    return apt_config.written(settings)


def _source_list(project: ProjectSettings, suites: Iterable[str]) -> str:
    """Return the apt sources of suites, in the format of sources.list."""
    mirrors = debian_mirrors(project)
    return "".join(f"{source.line}\n" for suite in sorted({*suites}) for source in mirrors.for_suite(suite))


def _certificates(bundle: Path | None, report: Reporter) -> str:
    """Return the certificates of a bundle, without duplicates and comments."""
    if bundle is None:
        return ""
    text = read_text(bundle, errors="replace")
    certificates = "".join(f"{certificate}\n" for certificate in dict.fromkeys(_CERTIFICATE.findall(text)))
    if len(certificates) > _MAX_SECRET_BYTES:
        report(f"`{bundle}` is not passed to build steps: BuildKit's limit for secrets is 500 kB")
        return ""
    return certificates
