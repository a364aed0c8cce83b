"""Canary secrets in every input that carries one, and a search for them in all that Bakehouse writes."""

import base64
import contextlib
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bakehouse.catalog.project import HOME
from bakehouse.trust.keys import PASSPHRASE, PublicKey
from tests.support.data import text_of
from tests.support.ecr import moto_server
from tests.support.file_server import FileServer, serving
from tests.support.index_server import metadata, put_index
from tests.support.proxy import Proxy, Reply, Request
from tests.support.registry import PASSWORD
from tests.support.signing_keys import make_key
from tests.support.wheels import sha256, wheel

CANARIES = {
    name: f"kanary+{name}={number:02d}!Zq"
    for number, name in enumerate(
        (
            *("index", "netrc", "keyring", "mirror", "signed-mirror", "apt", "apt-proxy"),
            *("http-proxy", "https-proxy", "registry", "registry-helper", "git-remote", "git-config"),
            *("aws-key", "aws-session", "passphrase", "settings"),
        ),
        11,
    )
}
"""Secrets by the input that carries them. URLs and base64 spell their characters differently."""
CANARIES["registry-password"] = PASSWORD
CANARIES["aws-session"] = f"IQoJ{'Kanarie25' * 20}=="
"""Session tokens of AWS have hundreds of characters."""


def in_url(name: str) -> str:
    """Return a canary as the password of a URL contains it."""
    return quote(CANARIES[name], safe="")


def with_login(url: str, user: str, name: str) -> str:
    """Return a URL with a user and a canary as the password."""
    return url.replace("//", f"//{user}:{in_url(name)}@")


def spellings(secret: str) -> frozenset[bytes]:
    """Return the spellings of a secret: plain, in a URL, in JSON, and in base64 at any position."""
    encoded = set()
    for shift in range(3):
        # Only whole groups of three bytes are independent of the text around the secret
        start, end = -shift % 3, len(secret.encode())
        part = secret.encode()[start : end - (end - start) % 3]
        encoded |= {base64.b64encode(part), base64.urlsafe_b64encode(part)}
    return frozenset({secret.encode(), quote(secret, safe="").encode(), quote(secret).encode(), *encoded})


_SPELLINGS = {name: spellings(secret) for name, secret in CANARIES.items()}
_STEMS = {form[:5] for forms in _SPELLINGS.values() for form in forms}
"""Canaries begin with the same word, so these are few: layers are searched once for each."""


def canaries_in(content: bytes | str) -> set[str]:
    """Return the names of the canaries in a content, which may be compressed."""
    if isinstance(content, str):
        content = content.encode(errors="surrogateescape")
    if content.startswith(b"\x1f\x8b"):
        with contextlib.suppress(OSError, EOFError):
            content += gzip.decompress(content)
    if not any(stem in content for stem in _STEMS):
        return set()
    return {name for name, forms in _SPELLINGS.items() if any(form in content for form in forms)}


def canaries_below(directory: Path, ignored: Iterable[Path] = ()) -> dict[str, set[str]]:
    """Return the canaries in the files of a directory and in their names, by relative path."""
    sightings = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()):
        if path not in ignored and (names := canaries_in(path.read_bytes()) | canaries_in(str(path))):
            sightings[path.relative_to(directory).as_posix()] = names
    return sightings


@dataclass(frozen=True, slots=True)
class Child:
    """A program that Bakehouse started."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def program(self) -> str:
        """The name of the program; `setpriv` only starts another one."""
        words = self.command
        if words[0] == "setpriv" and "--" in words:
            words = words[words.index("--") + 1 :]
        return Path(words[0]).name

    def added(self, inherited: Mapping[str, str]) -> set[str]:
        """Return the variables that Bakehouse added to those of the user, or changed."""
        return {name for name, value in self.environment.items() if value != inherited.get(name)}


HOOK = text_of(__file__, "hook")
_RUN = text_of(__file__, "run")


@dataclass(frozen=True, slots=True)
class Run:
    """The output of a command, and its exit code."""

    words: tuple[str, ...]
    output: str
    code: int


class World:
    """A project and a home directory whose settings carry canaries, and the servers that they are for."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack) -> None:
        self.home, self.project = directory / "home", directory / "project"
        self.temporary, self.cache = directory / "tmp", directory / "cache"
        self._output, self._children = directory / "output", directory / "children"
        programs, hook = directory / "bin", directory / "hook"
        for path in (self.home, self.project, self.temporary, self.cache, self._output, programs, hook):
            path.mkdir()
        (hook / "sitecustomize.py").write_text(HOOK)
        self.index, self.other_index, self.mirror, self.debian = (
            stack.enter_context(serving()) for _ in range(4)
        )
        self.index.login = f"index-user:{CANARIES['index']}"
        self.other_index.login = f"netrc-user:{CANARIES['netrc']}"
        self.proxy = stack.enter_context(
            _WebProxy({"mirror.example": self.mirror.url, "apt.example": self.debian.url}).running()
        )
        self.echo, self.helped = (stack.enter_context(Echo().running()) for _ in range(2))
        self.aws = f"http://127.0.0.1:{stack.enter_context(moto_server())}"
        key = make_key(self.home, "signing", passphrase=CANARIES["passphrase"])
        self.pem = key.private.read_bytes().splitlines()[1]
        self._write_home(programs)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(("AWS_", "PIP_", "UV_", "BAKEHOUSE_", "GIT_"))
            and not name.lower().endswith("_proxy")
        }
        self.environment = {
            **inherited,
            "HOME": str(self.home),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{hook}:{HOME}",
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(self.cache),
            "UV_CACHE_DIR": str(self.cache / "uv"),
            "CANARY_CHILDREN": str(self._children),
            "NO_COLOR": "1",
            "GITHUB_ACTIONS": "true",
            "APT_CONFIG": str(self.home / "apt.conf"),
            "PIP_CONFIG_FILE": str(self.home / "pip.conf"),
            "PIP_EXTRA_INDEX_URL": f"{self.other_index.url.replace('127.0.0.1', 'localhost')}/simple",
            "BAKEHOUSE_MIRRORS": f"http://mirror-user:{in_url('mirror')}@mirror.example/files "
            f"http://mirror.example/signed?sig={in_url('signed-mirror')}",
            "BAKEHOUSE_SIGNING_KEY": str(key.private),
            PASSPHRASE: CANARIES["passphrase"],
            "http_proxy": f"http://proxy-user:{in_url('http-proxy')}@{self.proxy.host}",
            "https_proxy": f"http://proxy-user:{in_url('https-proxy')}@{self.proxy.host}",
            "no_proxy": ",".join(
                ("localhost", "127.0.0.1", *(front.host.split(":")[0] for front in (self.echo, self.helped)))
            ),
            "AWS_ENDPOINT_URL": self.aws,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": CANARIES["aws-key"],
            "AWS_SESSION_TOKEN": CANARIES["aws-session"],
            "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
        }

    def _write_home(self, programs: Path) -> None:
        login = base64.b64encode(f"registry-user:{CANARIES['registry']}".encode()).decode()
        helped = {"Username": "helper-user", "Secret": CANARIES["registry-helper"]}
        for name, text in {
            "keyring": f"echo '{CANARIES['keyring']}'",
            "docker-credential-kanarie": f"cat >/dev/null; echo '{json.dumps(helped)}'",
        }.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        auths = {host: {"auth": login} for host in ("registry.example", self.echo.host)}
        helpers = {self.helped.host: "kanarie"}
        git = with_login(f"http://{self.echo.host}", "git-user", "git-config")
        files = {
            ".docker/config.json": json.dumps({"auths": auths, "credHelpers": helpers}),
            ".netrc": f"machine localhost login netrc-user password {CANARIES['netrc']}\n",
            ".gitconfig": "[user]\nname = x\nemail = x@example.org\n"
            f'[url "{git}/"]\n'
            "insteadOf = https://git.example/\n",
            "pip.conf": f"[global]\nindex-url = {with_login(self.index.url, 'index-user', 'index')}/simple\n",
            "apt.conf": f'Dir::Etc::sourcelist "{self.home}/sources.list";\nDir::Etc::sourceparts "/none";\n'
            f'Acquire::http::Proxy::apt.example "http://apt-user:{in_url("apt-proxy")}@{self.proxy.host}";\n',
            "sources.list": f"deb [trusted=yes] {with_login('http://apt.example', 'apt-user', 'apt')}/debian "
            "bookworm main\n",
        }
        for name, text in files.items():
            (self.home / name).parent.mkdir(exist_ok=True)
            (self.home / name).write_text(text)

    def add_login(self, host: str, user: str, password: str) -> None:
        """Log docker in to a registry."""
        path = self.home / ".docker/config.json"
        config = json.loads(path.read_text())
        config["auths"][host] = {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}
        path.write_text(json.dumps(config))

    def serve(self, server: FileServer, name: str) -> None:
        """Put a tiny package into an index."""
        file = wheel(self.temporary / "wheels", name, "1.0")
        size = file.stat().st_size
        entry = {"filename": file.name, "hashes": {"sha256": sha256(file)}, "size": size}
        dated = entry | {"upload-time": "2026-11-01"}
        put_index(server, {name: {"files": [dated], "metadata": {"1.0": metadata(name, "1.0")}}})
        server.files[f"/files/{file.name}"] = file.read_bytes()

    def write(self, **files: str) -> None:
        """Write files of the project, by path."""
        for name, text in files.items():
            (self.project / name).parent.mkdir(parents=True, exist_ok=True)
            (self.project / name).write_text(text)

    def run(self, *commands: Sequence[str]) -> list[Run]:
        """Run commands one after another in one process."""
        subprocess.run(
            [sys.executable, "-c", _RUN, str(self._output)],
            cwd=self.project,
            env=self.environment,
            input=json.dumps(commands),
            text=True,
            check=True,
        )
        runs = []
        for number, words in enumerate(commands):
            output = (self._output / str(number)).read_text()
            code = int((self._output / f"{number}.code").read_text())
            runs.append(Run(tuple(words), output, code))
            (self._output / str(number)).unlink()
        return runs

    def received(self) -> set[str]:
        """Return the canaries that the servers received."""
        fronts = (self.echo, self.helped, self.proxy)
        lines = [[request.path, *request.headers.values()] for front in fronts for request in front.requests]
        for server in (self.index, self.other_index, self.mirror, self.debian):
            lines += [[path, *headers.values()] for path, headers in server.requests]
        return {name for line in lines for name in canaries_in(" ".join(line))}

    def children(self) -> list[Child]:
        """Return the programs that all commands started."""
        lines = self._children.read_text().splitlines()
        return [Child(tuple(command), environment) for command, environment in map(json.loads, lines)]


@contextlib.contextmanager
def watched(secrets: Callable[[], Iterable[str]]) -> Iterator[list[str]]:
    """Yield the command lines that held a secret, of any process of the machine that polling met."""
    lines: list[str] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    lines.extend(line for secret in secrets() if secret in line)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        ended.set()
        thread.join()


class _WebProxy(Proxy):
    """A proxy for the web that needs a login, with the servers of its hosts."""

    def __init__(self, servers: Mapping[str, str]) -> None:
        super().__init__(1)
        self._servers = servers
        self.answers.append(self._check)

    def _check(self, request: Request) -> Reply | None:
        if not any(name.lower() == "proxy-authorization" for name in request.headers):
            return Reply(407)
        parts = urlsplit(request.path)
        if (host := parts.hostname or "") not in self._servers:
            return Reply(502)
        with self._lock:
            self.upstream = _port(self._servers[host])
            return self.forward(replace(request, path=request.path.partition(parts.netloc)[2]))


class Echo(Proxy):
    """A server of any kind whose errors repeat the credentials of a request, decoded too."""

    def __init__(self) -> None:
        super().__init__(1)
        self.answers.append(self._repeat)

    def _repeat(self, request: Request) -> Reply:
        if "/info/refs" in request.path and "Authorization" not in request.headers:
            # git sends a login only to a server that asks for one
            return Reply(401, {"WWW-Authenticate": 'Basic realm="git"'})
        words = [request.path, *request.headers.values()]
        scheme, _, login = request.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            words += base64.b64decode(login).decode().split(":")
        text = " ".join(words)
        body: bytes = json.dumps(
            {
                "__type": "ValidationException",
                "message": text,
                "errors": [{"code": "DENIED", "message": text}],
            }
        ).encode()
        is_xml = scheme.startswith("AWS4") and "X-Amz-Target" not in request.headers
        if is_xml:
            body = f"<Error><Code>Invalid</Code><Message>{escape(text)}</Message></Error>".encode()
        kind = "application/xml" if is_xml else "application/json"
        return Reply(400, {"Content-Type": kind}, body)


KMS_KEY = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/kanarie"


class KmsStub(Proxy):
    """A stub of the HTTP API of AWS KMS, which signs with a local key or repeats the credentials."""

    def __init__(self) -> None:
        super().__init__(1)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.is_refusing = False
        self.answers.append(self._answer)

    @property
    def hint(self) -> str:
        """The identifier of the key in bundles."""
        return PublicKey(self._der(), "").hint

    @property
    def operations(self) -> list[str]:
        return [request.headers["X-Amz-Target"].removeprefix("TrentService.") for request in self.requests]

    def _der(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def _answer(self, request: Request) -> Reply:
        values, name = json.loads(request.body), "PublicKey"
        content = self._der()
        if self.is_refusing:
            text = " ".join(request.headers.values())
            return self._reply(400, {"__type": "KMSInvalidStateException", "message": text})
        if request.headers["X-Amz-Target"] == "TrentService.Sign":
            digest = base64.b64decode(values["Message"])
            name, content = "Signature", self._key.sign(digest, ec.ECDSA(Prehashed(SHA256())))
        return self._reply(200, {"KeyId": values["KeyId"], name: base64.b64encode(content).decode()})

    def _reply(self, status: int, answer: object) -> Reply:
        return Reply(status, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(answer).encode())


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])
