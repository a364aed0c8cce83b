"""What a build's steps may need of this machine: the files of its plan, its way to others, its certificates.

All of it is optional and stays out of the cache key: the settings of pip and apt, certificates and the list
of mirrors are BuildKit secrets, proxies are build arguments of BuildKit's own. Files are served over HTTP
while the build runs. Steps that can't reach this machine fetch by themselves, as it is set up to.
"""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from bakehouse import aptconfig, pipconfig, step_server
from bakehouse.certificates import bundle_of
from bakehouse.errors import Diagnostic, EngineError, Reason
from bakehouse.fetching import Fetcher
from bakehouse.mirrors import Hashes
from bakehouse.pipconfig import PipConfig
from bakehouse.scratch import private_folder
from bakehouse.serving import Shelves, serve
from bakehouse.sources import folder_of
from bakehouse.wanted import Wanted

Say = Callable[[str], None]

CA_IN_STEPS = "/run/secrets/ca"
MOST_SECRET_BYTES = 500 * 1024
"""What BuildKit takes as one secret."""
_FED_PIP = """\
[global]
index-url = {url}/simple/
trusted-host = {host}
timeout = {seconds}
retries = 0
"""
_FED_APT = """\
Acquire::http::Proxy::{host} "DIRECT";
Acquire::http::Timeout "{seconds}";
Acquire::Retries "0";
"""
_FED_SECONDS = 86400
"""A file comes when it is here, however long that takes."""
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----")
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")


@dataclass(frozen=True, slots=True)
class Feed:
    """The files of a plan, and what fetches them."""

    wanted: Wanted
    fetcher: Fetcher
    offline: bool = False
    """Nothing but what is here is to be had."""


@dataclass(frozen=True, slots=True)
class Supplies:
    """What is handed to a build."""

    secrets: Mapping[str, Path] = field(default_factory=dict)
    """Files by the id that RUN steps take them under: `pip`, `ca`, `mirrors`, `apt`, `sources`."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments that BuildKit itself knows: proxies."""
    feed: Feed | None = None
    """What steps are served from while they run; None where they fetch by themselves."""


@contextlib.contextmanager
def supplies(
    *,
    state: Path,
    mirrors: Sequence[str],
    ca: Path | None,
    say: Say,
    suites: Iterable[str] = (),
    environment: Mapping[str, str] = os.environ,
    feed: Feed | None = None,
) -> Iterator[Supplies]:
    """Gather what this machine has, and serve it for as long as the context lasts.

    With a `feed`, steps get its files from this machine, and know of no index and no mirror. Without one, or
    where steps can't reach this machine, they go to the mirrors and indexes themselves: what they can't reach
    is said, and they go without it. `suites` are those whose packages are locked, so that bases name no
    mirror of them. Raises EngineError where nothing but a feed would do.
    """
    with contextlib.ExitStack() as stack:
        if feed and (url := stack.enter_context(_feeding(feed, say))):
            yield stack.enter_context(_fed(url, feed, ca, state, say, environment))
        else:
            yield stack.enter_context(_direct(state, mirrors, ca, say, suites, environment))


@contextlib.contextmanager
def _feeding(feed: Feed, say: Say) -> Iterator[str]:
    """The URL that a feed is served at; empty where steps can't reach it."""
    with contextlib.ExitStack() as stack:
        url = ""
        gateway, why_not = _gateway()
        if gateway:
            try:
                url = stack.enter_context(step_server.serve(feed.wanted, feed.fetcher, gateway))
            except OSError:
                why_not = f"its network's address {gateway} is not this machine's"
        if not url and feed.offline:
            message = "steps of a build can't reach this machine, which has to hand them their files"
            reason = Reason(why_not)
            raise EngineError(Diagnostic(message, reasons=(reason,), hint="build without `--offline`"))
        if not url:
            say(f"the build can't reach this machine, {why_not}: its steps fetch by themselves")
        yield url


@contextlib.contextmanager
def _fed(
    url: str, feed: Feed, ca: Path | None, state: Path, say: Say, environment: Mapping[str, str]
) -> Iterator[Supplies]:
    """What steps need that are served by this machine."""
    bundle = bundle_of(ca, pipconfig.read(environment), environment)
    certificates = _certificates(bundle, say) if bundle else ""
    proxies = {
        name: value
        for name, value in _proxies(environment).items()
        if name == "no_proxy" or _leads_out(value, say)
    }
    texts = {
        "pip": _FED_PIP.format(url=url, host=urlsplit(url).netloc, seconds=_FED_SECONDS),
        "ca": certificates,
        "mirrors": f"{url}/sha256\n",
        "apt": _apt_conf(say, has_ca=bool(ca and certificates))
        + _FED_APT.format(host=urlsplit(url).hostname, seconds=_FED_SECONDS),
    }
    with _secrets(texts, state) as secrets:
        yield Supplies(secrets, _arguments(proxies, url), feed)


@contextlib.contextmanager
def _secrets(texts: Mapping[str, str], state: Path) -> Iterator[dict[str, Path]]:
    """Texts as files that nobody else may read; none for an empty one."""
    with private_folder(state) as folder:
        secrets = {name: folder / name for name, text in texts.items() if text}
        for name, path in secrets.items():
            path.touch(mode=0o600)
            path.write_text(texts[name])
        yield secrets


def _arguments(proxies: Mapping[str, str], url: str) -> dict[str, str]:
    given = dict(proxies)
    if given and url:
        given["no_proxy"] = ",".join(filter(None, (given.get("no_proxy"), urlsplit(url).hostname)))
    # Some programs read the capital names only, some the small ones.
    return given | {name.upper(): value for name, value in given.items()}


@contextlib.contextmanager
def _direct(
    state: Path,
    mirrors: Sequence[str],
    ca: Path | None,
    say: Say,
    suites: Iterable[str],
    environment: Mapping[str, str],
) -> Iterator[Supplies]:
    """What steps need that fetch by themselves."""
    pip, mirrors, proxies = _reachable(pipconfig.read(environment), mirrors, _proxies(environment), say)
    bundle = bundle_of(ca, pip, environment)
    certificates = _certificates(bundle, say) if bundle else ""
    shelves = _shelves(mirrors, pip)
    with _serving(shelves, state, say) as url:
        texts = {
            "pip": _pip_conf(pip, shelves, url, has_ca=bool(certificates)),
            "ca": certificates,
            "mirrors": "".join(f"{mirror}\n" for mirror in _mirror_urls(mirrors, shelves, url)),
            "apt": _apt_conf(say, has_ca=bool(ca and certificates)),
            "sources": _sources(suites),
        }
        with _secrets(texts, state) as secrets:
            yield Supplies(secrets, _arguments(proxies, url))


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    names = (*_PROXIES, "no_proxy")
    given = {name: environment.get(name) or environment.get(name.upper()) or "" for name in names}
    return {name: value for name, value in given.items() if value}


def _reachable(
    pip: PipConfig, mirrors: Sequence[str], proxies: Mapping[str, str], say: Say
) -> tuple[PipConfig, tuple[str, ...], dict[str, str]]:
    """The same without what steps of a build can't reach."""
    leads_out = partial(_leads_out, say=say)
    pip = replace(
        pip,
        index_url=pip.index_url if leads_out(pip.index_url) else "",
        extra_index_urls=tuple(filter(leads_out, pip.extra_index_urls)),
        find_links=tuple(filter(leads_out, pip.find_links)),
        proxy=pip.proxy if leads_out(pip.proxy) else "",
    )
    proxies = {name: value for name, value in proxies.items() if name == "no_proxy" or leads_out(value)}
    for mirror in mirrors:
        if not urlsplit(mirror).scheme and not folder_of(mirror):
            say(f"mirror `{mirror}` is no folder: left out")
    return pip, tuple(filter(leads_out, mirrors)), proxies


def _leads_out(place: str, say: Say) -> bool:
    """Whether an address is not one that means this machine here, and a step's own container there."""
    url = urlsplit(place if "://" in place else f"//{place}")
    if url.scheme == "file" or not _LOOPBACK.fullmatch(url.hostname or ""):
        return True
    say(f"steps of a build can't reach `{url.hostname}:{url.port or 80}`, this machine's own: left out")
    return False


def _shelves(mirrors: Sequence[str], pip: PipConfig) -> Shelves:
    links = tuple(path for one in pip.find_links if (path := folder_of(one)))
    named = tuple(path for one in mirrors if (path := folder_of(one)))
    indexes = tuple(path for one in (pip.index_url, *pip.extra_index_urls) if (path := folder_of(one)))
    return Shelves(tuple(dict.fromkeys((*named, *links))), indexes, links)


@contextlib.contextmanager
def _serving(shelves: Shelves, state: Path, say: Say) -> Iterator[str]:
    """The URL that the shelves are served at; empty where there are none or the build can't reach it."""
    if not shelves:
        yield ""
        return
    with contextlib.ExitStack() as stack:
        url = ""
        gateway, why_not = _gateway()
        if gateway:
            try:
                url = stack.enter_context(serve(shelves, gateway, Hashes(state / "hashes.json")))
            except OSError:
                why_not = f"its network's address {gateway} is not this machine's"
        if not url:
            folders = ", ".join(f"`{path}`" for path in dict.fromkeys((*shelves.mirrors, *shelves.indexes)))
            say(f"the build can't reach folders of this machine, {why_not}: going on without {folders}")
        yield url


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


def _pip_conf(pip: PipConfig, shelves: Shelves, url: str, *, has_ca: bool) -> str:
    """This machine's pip settings as they hold inside a step: folders by the URLs they are served at."""

    def served(place: str, kind: str, folders: Sequence[Path]) -> str:
        path = folder_of(place)
        if path in folders:
            return f"{url}/{kind}/{folders.index(path)}/" if url else ""
        return place if urlsplit(place).scheme in ("http", "https") else ""

    indexes = [served(one, "index", shelves.indexes) for one in pip.extra_index_urls]
    links = [served(one, "links", shelves.links) for one in pip.find_links]
    # pip takes a plain http server for a danger unless it is named.
    hosts = [*pip.trusted_hosts, *([urlsplit(url).netloc] if url else [])]
    settings = {
        "index-url": served(pip.index_url, "index", shelves.indexes),
        "extra-index-url": " ".join(filter(None, indexes)),
        "find-links": " ".join(filter(None, links)),
        "no-index": "true" if pip.no_index else "",
        "trusted-host": " ".join(hosts),
        "cert": CA_IN_STEPS if has_ca else "",
        "proxy": pip.proxy,
        "timeout": pip.timeout,
    }
    lines = [f"{key} = {value}\n" for key, value in settings.items() if value]
    return f"[global]\n{''.join(lines)}" if lines else ""


def _mirror_urls(mirrors: Sequence[str], shelves: Shelves, url: str) -> list[str]:
    """Prefixes under which a file lies at `<sha256>/<name>`; this machine's own folders first."""
    remote = [one.rstrip("/") for one in mirrors if urlsplit(one).scheme in ("http", "https")]
    return [*([f"{url}/sha256"] if url and shelves.mirrors else []), *remote]


def _apt_conf(say: Say, *, has_ca: bool) -> str:
    settings = {
        key: value
        for key, value in aptconfig.settings().items()
        if "::proxy" not in key.lower() or _leads_out(value, say)
    }
    own = [key for key in settings if "::cainfo" in key.lower()]
    if has_ca or own:
        settings |= dict.fromkeys(own or ["Acquire::https::CaInfo"], CA_IN_STEPS)
        # apt fetches as a user who may not read a secret.
        settings["APT::Sandbox::User"] = "root"
    return aptconfig.written(settings)


def _sources(suites: Iterable[str]) -> str:
    """Where this machine gets suites from, as a list that apt reads."""
    wanted = sorted({*suites})
    known = aptconfig.sources() if wanted else ()
    return "".join(f"{one.line}\n" for suite in wanted for one in aptconfig.for_suite(suite, known))


def _certificates(bundle: Path, say: Say) -> str:
    """A bundle's certificates, each once and without the words around them."""
    text = bundle.read_text(errors="replace")
    certificates = "".join(f"{one}\n" for one in dict.fromkeys(_CERTIFICATE.findall(text)))
    if len(certificates) > MOST_SECRET_BYTES:
        say(f"`{bundle}` is larger than the 500 kB that BuildKit takes as a secret: steps go without it")
        return ""
    return certificates
