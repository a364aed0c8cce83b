"""What a build's steps may need of this machine: the files of its plan, its way to others, its certificates.

All of it is optional and stays out of the cache key: the settings of pip and apt, certificates and the list
of mirrors are BuildKit secrets, proxies are build arguments of BuildKit's own. Files are served over HTTP
while the build runs. Steps that can't reach this machine fetch by themselves, as it is set up to, and go
without what lies on it.
"""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from bakehouse.build import file_server
from bakehouse.errors import Diagnostic, EngineError, Reason
from bakehouse.fetch import apt_config, pip_config
from bakehouse.fetch.certificates import bundle_of
from bakehouse.fetch.connection import redacted
from bakehouse.fetch.downloader import Fetcher
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.required_files import RequiredFiles
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

CA_IN_STEPS = "/run/secrets/ca"
MOST_SECRET_BYTES = 500 * 1024
"""What BuildKit takes as one secret."""
_FED_PIP = """\
[global]
index-url = {url}/simple/
trusted-host = {host}
timeout = {seconds}
"""
_FED_SECONDS = 86400
"""A file comes when it is here, however long that takes."""
_FED_APT_SECONDS = 600
"""apt asks mirrors too, for what is not locked, and has one patience for all."""
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----")
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")


@dataclass(frozen=True, slots=True)
class Downloads:
    """The files of a plan, and what fetches them."""

    wanted: RequiredFiles
    fetcher: Fetcher
    required_hint: str = ""
    """What to do where steps can't be served them; empty: they fetch by themselves then."""


@dataclass(frozen=True, slots=True)
class BuildInputs:
    """What is handed to a build."""

    secrets: Mapping[str, Path] = field(default_factory=dict)
    """Files by the id that RUN steps take them under: `pip`, `ca`, `mirrors`, `apt`, `sources`."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments that BuildKit itself knows: proxies."""
    address: str = ""
    """Of this machine, as steps reach it; empty where they fetch by themselves."""


@contextlib.contextmanager
def build_inputs(
    *,
    state: Path,
    mirrors: Sequence[str],
    ca: Path | None,
    report: Reporter,
    suites: Iterable[str] = (),
    environment: Mapping[str, str] = os.environ,
    downloads: Downloads | None = None,
) -> Iterator[BuildInputs]:
    """Collect the inputs of a build's steps, and serve `downloads` while the context lasts.

    With `downloads`, steps get files only from this machine and use no index and no mirror. Without, or if
    steps cannot reach this machine, they use the mirrors and indexes directly; unreachable ones are reported
    and left out. `suites` belong to bases that configure no mirror: users' own steps find packages there.
    Raises EngineError if steps need the served files but cannot reach this machine.
    """
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(_served(downloads, report)) if downloads else ""
        if downloads and url:
            texts, proxies = _fed(url, downloads, ca, report, environment)
        else:
            texts, proxies = _direct(mirrors, ca, report, environment)
        texts["sources"] = _source_list(suites)
        address = urlsplit(url).hostname or ""
        secrets = stack.enter_context(_secrets(texts, state))
        yield BuildInputs(secrets, _arguments(proxies, address), address)


@contextlib.contextmanager
def apt_inputs(
    *, state: Path, ca: Path | None, report: Reporter, environment: Mapping[str, str] = os.environ
) -> Iterator[BuildInputs]:
    """What steps need that ask the mirrors of a distribution, and nothing else."""
    bundle = bundle_of(ca, pip_config.read(environment), environment)
    certificates = _certificates(bundle, report) if bundle else ""
    texts = {"ca": certificates, "apt": _apt_conf(report, has_ca=bool(ca and certificates))}
    with _secrets(texts, state) as secrets:
        yield BuildInputs(secrets, _arguments(_proxies(environment, report), ""))


@contextlib.contextmanager
def _served(downloads: Downloads, report: Reporter) -> Iterator[str]:
    """The URL that a downloads is served at; empty where steps can't reach it."""
    with contextlib.ExitStack() as stack:
        url = ""
        gateway, why_not = _gateway()
        if gateway:
            try:
                url = stack.enter_context(file_server.serve(downloads.wanted, downloads.fetcher, gateway))
            except OSError:
                why_not = f"its network's address {gateway} is not this machine's"
        if not url and downloads.required_hint:
            message = "steps of a build can't reach this machine, which has to hand them their files"
            raise EngineError(Diagnostic(message, reasons=(Reason(why_not),), hint=downloads.required_hint))
        if not url:
            report(f"the build can't reach this machine, {why_not}: its steps fetch by themselves")
        yield url


def _fed(
    url: str, downloads: Downloads, ca: Path | None, report: Reporter, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """What steps need that are served by this machine: secrets and proxies."""
    apt = {f"Acquire::http::Proxy::{urlsplit(url).hostname}": "DIRECT"}
    if any(one.kind == "deb" for one in downloads.wanted.files):
        apt["Acquire::http::Timeout"] = str(_FED_APT_SECONDS)
    bundle = bundle_of(ca, pip_config.read(environment), environment)
    certificates = _certificates(bundle, report) if bundle else ""
    texts = {
        "pip": _FED_PIP.format(url=url, host=urlsplit(url).netloc, seconds=_FED_SECONDS),
        "ca": certificates,
        "mirrors": f"{url}/sha256\n",
        "apt": _apt_conf(report, has_ca=bool(ca and certificates)) + apt_config.written(apt),
    }
    return texts, _proxies(environment, report)


def _direct(
    mirrors: Sequence[str], ca: Path | None, report: Reporter, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """What steps need that fetch by themselves: secrets and proxies."""
    pip, mirrors = _reachable(pip_config.read(environment), mirrors, report)
    bundle = bundle_of(ca, pip, environment)
    certificates = _certificates(bundle, report) if bundle else ""
    texts = {
        "pip": _pip_conf(pip, has_ca=bool(certificates)),
        "ca": certificates,
        "mirrors": "".join(f"{mirror.rstrip('/')}\n" for mirror in mirrors),
        "apt": _apt_conf(report, has_ca=bool(ca and certificates)),
    }
    return texts, _proxies(environment, report)


@contextlib.contextmanager
def _secrets(texts: Mapping[str, str], state: Path) -> Iterator[dict[str, Path]]:
    """Texts as files that nobody else may read; none for an empty one."""
    with private_directory(state) as folder:
        secrets = {name: folder / name for name, text in texts.items() if text}
        for name, path in secrets.items():
            path.touch(mode=0o600)
            path.write_text(texts[name])
        yield secrets


def _arguments(proxies: Mapping[str, str], address: str) -> dict[str, str]:
    given = dict(proxies)
    if given and address:
        given["no_proxy"] = ",".join(filter(None, (given.get("no_proxy"), address)))
    # Some programs read the capital names only, some the small ones.
    return given | {name.upper(): value for name, value in given.items()}


def _proxies(environment: Mapping[str, str], report: Reporter) -> dict[str, str]:
    """This machine's proxies, without those that steps can't reach."""
    names = (*_PROXIES, "no_proxy")
    given = {name: environment.get(name) or environment.get(name.upper()) or "" for name in names}
    return {
        name: value
        for name, value in given.items()
        if value and (name == "no_proxy" or _leads_out(value, report))
    }


def _reachable(pip: PipConfig, mirrors: Sequence[str], report: Reporter) -> tuple[PipConfig, tuple[str, ...]]:
    """pip's settings and the mirrors without what steps of a build can't reach."""

    @cache
    def asks(place: str) -> bool:
        if urlsplit(place).scheme in ("http", "https"):
            return _leads_out(place, report)
        if place:
            report(f"steps of a build can't reach `{redacted(place)}`: left out")
        return False

    pip = replace(
        pip,
        index_url=pip.index_url if asks(pip.index_url) else "",
        extra_index_urls=tuple(filter(asks, pip.extra_index_urls)),
        find_links=tuple(filter(asks, pip.find_links)),
        proxy=pip.proxy if _leads_out(pip.proxy, report) else "",
    )
    return pip, tuple(filter(asks, mirrors))


def _leads_out(place: str, report: Reporter) -> bool:
    """Whether an address is not one that means this machine here, and a step's own container there."""
    url = urlsplit(place if "://" in place else f"//{place}")
    if not _LOOPBACK.fullmatch(url.hostname or ""):
        return True
    report(f"steps of a build can't reach `{url.hostname}:{url.port or 80}`, this machine's own: left out")
    return False


def _gateway() -> tuple[str, str]:
    """The address at which steps of a build reach this machine; or empty, and why there is none."""
    host = _docker("context", "inspect", "--format", "{{.Endpoints.docker.Host}}").strip()
    if not host.startswith(("unix://", "npipe://")):
        return "", "the engine runs on another machine"
    networks = _docker("network", "inspect", "bridge", "--format", "{{json .IPAM.Config}}")
    for network in json.loads(networks or "[]") or ():
        if gateway := network.get("Gateway"):
            return str(gateway), ""
    return "", "the engine has no default bridge network"


def _docker(*arguments: str) -> str:
    try:
        return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


def _pip_conf(pip: PipConfig, *, has_ca: bool) -> str:
    """This machine's pip settings as they hold inside a step."""
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
        if "::proxy" not in key.lower() or _leads_out(value, report)
    }
    own = [key for key in settings if "::cainfo" in key.lower()]
    if has_ca or own:
        settings |= dict.fromkeys(own or ["Acquire::https::CaInfo"], CA_IN_STEPS)
        # apt fetches as a user who may not read a secret.
        settings["APT::Sandbox::User"] = "root"
    return apt_config.written(settings)


def _source_list(suites: Iterable[str]) -> str:
    """Where this machine gets suites from, as a list that apt reads."""
    wanted = sorted({*suites})
    known = apt_config.sources() if wanted else ()
    return "".join(f"{one.line}\n" for suite in wanted for one in apt_config.for_suite(suite, known))


def _certificates(bundle: Path, report: Reporter) -> str:
    """A bundle's certificates, each once and without the words around them."""
    text = bundle.read_text(errors="replace")
    certificates = "".join(f"{one}\n" for one in dict.fromkeys(_CERTIFICATE.findall(text)))
    if len(certificates) > MOST_SECRET_BYTES:
        report(f"`{bundle}` is larger than the 500 kB that BuildKit takes as a secret: steps go without it")
        return ""
    return certificates
