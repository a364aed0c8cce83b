"""Repositories with links to outside, special files and hostile texts, and the commands that read them.

Each repository is next to a marked tree. No command may read or change it, print a secret of the environment,
hang or fail with a traceback.
"""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from bakehouse.cli import main
from bakehouse.lock import apt_suite, locking
from bakehouse.util import files
from tests.support.ledgers import release
from tests.support.wheels import wheel

SECRET = "canary-7f3a9c"
"""In the environment, and in each file of the marked tree."""
SAMPLE = {
    "pyproject.toml": """\
[tool.bakehouse]
recipes = ["own"]
[tool.bakehouse.ci]
repository = "owner/name"
requirement = "git+https://git.example/x.git@0123456789abcdef0123456789abcdef01234567"
[tool.bakehouse.registries.team]
host = "registry.example"
[tool.bakehouse.jobs.nightly]
image = "tool"
instance_type = "ml.c5.xlarge"
entry_point = "src/train.py"
role = "arn:aws:iam::123456789012:role/Role"
""",
    "own/images/tool.yaml": """\
summary: A tool
base: {debian: "12"}
components: {python: "3.11", extra: "*"}
files: [{from: ../files/, to: /opt/x/}]
code: {directory: ../../src, entry_point: train.py}
""",
    "own/images/locked.yaml": """\
summary: An image with requirements
base: {debian: "12"}
components: {python: "3.11"}
requirements: ../requirements.txt
""",
    "own/images/uv.yaml": """\
summary: An image with a lock of uv
base: {debian: "12"}
components: {python: "3.11"}
requirements: ../uv/uv.lock
""",
    "own/components/extra/component.yaml": """\
summary: An own component
stage_order: 50
releases: [{version: "1"}]
""",
    "own/components/extra/install.j2": """\
{% block build %}
FROM toolchain AS extra
{{ place(stage.file("setting"), "/out/usr/local/share/setting") }}
RUN {{ mount("bin/finish-layer") }} {{ stage.finish }}
{% endblock %}
""",
    "own/components/extra/smoke.py": "def check_extra(): pass\n",
    "own/components/extra/files/setting": "a setting\n",
    "own/requirements.txt": "-r more.txt\n-c constraints.txt\neinops\n",
    "own/requirements.txt.lock": "",
    "own/more.txt": "tqdm\n",
    "own/constraints.txt": "tqdm<5\n",
    "own/uv/pyproject.toml": '[project]\nname = "x"\nversion = "1"\ndependencies = []\n',
    "own/uv/uv.lock": 'version = 1\nrequires-python = ">=3.11"\n[[package]]\nname = "x"\n'
    'version = "1"\nsource = { virtual = "." }\n',
    "own/files/data": "data\n",
    "src/train.py": "print()\n",
    ".dockerignore": "*.csv\n",
    ".gitignore": "build/\n",
    "job.yaml": "image: locked\ninstance_type: ml.c5.xlarge\nentry_point: src/train.py\n",
    "Dockerfile": "FROM debian:12\nCOPY app.txt /tmp/\nRUN pip install -r /tmp/app.txt\nCOPY src/ /opt/\n",
    "app.txt": "einops\n",
}
COMMANDS = (
    ("lint", "--sarif", "build/ci/lint.sarif"),
    ("ci", "github", "--check"),
    ("render", "--check"),
    ("plan", "--from", "HEAD", "--names"),
    ("diff", "tool", "--from", "HEAD"),
    ("lock", "locked", "uv", "--check"),
)
"""The commands that a generated pipeline runs on a pull request before it builds."""
OTHERS = (
    ("lock", "locked", "uv"),
    ("render",),
    *(("ci", system) for system in ("github", "gitlab", "codebuild")),
    ("list", "--json"),
    ("resolve", "tool"),
    ("explain", "tool", "python"),
    ("validate", "locked", "--job", "job.yaml"),
    ("estimator", "--job", "nightly"),
    ("releases",),
    ("report", "--to", "page"),
    ("init", "--from-dockerfile", "Dockerfile", "new"),
)
ENGINE_COMMANDS = (COMMANDS[0], ("build", "tool"), ("smoke", "tool"), ("sizes", "tool"))
"""The commands with which a pipeline builds and tests a pull request."""
_HOSTILE = (
    *("{{ cycler.__init__.__globals__.os.environ }}", "{% include '/etc/passwd' %}", "${{ secrets.TOKEN }}"),
    *("$(env)", "`env`", "../../../../outside/file", "/proc/self/environ", "\x1b]0;x\x07", "\u202e", "%n%s"),
    *("-f ../../outside", "--find-links file:///proc/self", "Site: http://other.invalid/debian"),
    *("!!python/object/apply:os.system [env]", "&a [*a]", "\x00", "-r ../../outside/file", "[" * 5000),
)
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Attack:
    """A change of a repository."""

    kind: str
    path: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at {self.path} {self.text[:40]!r}"


def opened_paths(directory: Path) -> list[str]:
    """Return the files of the sample that the commands open, which all may be attacked."""
    top, paths = _project(directory), set[str]()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == files.READ:
            path = Path(os.path.abspath(arguments[0]))  # noqa: PTH100
            if path.is_relative_to(top) and path != top and ".git" not in path.parts:
                paths.add(path.relative_to(top).as_posix())

    with _watched(note):
        run(top, (*OTHERS, *COMMANDS))
    shutil.rmtree(directory)
    return sorted(paths)


def attacks(paths: Sequence[str], random: Random) -> Iterator[Attack]:
    """Yield changes of a repository: each written file and its directories, then others and texts."""
    places = sorted({str(part) for path in paths for part in (Path(path), *Path(path).parents)} - {"."})
    first = [place for place in places if any(name.startswith(place) for name in SAMPLE)]
    others = [place for place in places if place not in first]
    random.shuffle(first)
    random.shuffle(others)
    for place in first:
        yield Attack(random.choice([*LINKS]), place)
    for place, text in zip(others, random.choices(texts(), k=len(others)), strict=True):
        yield Attack(random.choice([*LINKS]), place)
        yield Attack("text", *text)


def texts() -> list[tuple[str, str]]:
    """Return the written files of the sample, each with each hostile text."""
    return [(path, text) for path in SAMPLE for text in _HOSTILE]


def some_commands(random: Random) -> list[tuple[str, ...]]:
    """Return `lint` and three more commands, so that each is in many repositories."""
    return [COMMANDS[0], *random.sample((*COMMANDS[1:], *OTHERS), 3)]


LINKS: dict[str, Callable[[Path, Path, Path], None]] = {
    "absolute link": lambda path, top, out: path.symlink_to(out),
    "relative link": lambda path, top, out: path.symlink_to(os.path.relpath(out, path.parent)),
    "chain of links": lambda path, top, out: _chain(path, top, out),
    "link to /proc": lambda path, top, out: path.symlink_to("/proc/self/environ"),
    "link to a device": lambda path, top, out: path.symlink_to("/dev/zero"),
    "named pipe": lambda path, top, out: os.mkfifo(path),
    "link below a link": lambda path, top, out: _below(path, top, out),
}


def _chain(path: Path, top: Path, out: Path) -> None:
    (top / "chain-1").symlink_to(out)
    (top / "chain-2").symlink_to("chain-1")
    path.symlink_to(os.path.relpath(top / "chain-2", path.parent))


def _below(path: Path, top: Path, out: Path) -> None:
    (top / "above").symlink_to(out.parent)
    path.symlink_to(os.path.relpath(top / "above" / out.name, path.parent))


def attacked(directory: Path, changes: Sequence[Attack]) -> tuple[Path, Path]:
    """Make a repository with changes, and return it and the marked tree."""
    top, outside = _project(directory), directory / "outside"
    shutil.copytree(top, outside, ignore=shutil.ignore_patterns(".git"), symlinks=True)
    for path in outside.rglob("*"):
        if path.is_file():
            path.write_text(f"{SECRET}: 1\n{path.read_text()}")
    (outside / "file").write_text(SECRET)
    for change in changes:
        path = top / change.path
        if not path.parent.is_dir() or not path.resolve().is_relative_to(top):
            continue
        if change.kind == "text":
            path.write_text(
                change.text if len(change.text) > 1000 else f"{path.read_text()}\n{change.text}\n"
            )
            continue
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        for name in ("chain-1", "chain-2", "above"):
            (top / name).unlink(missing_ok=True)
        LINKS[change.kind](path, top, outside / change.path)
    return top, outside


def complaints(directory: Path, changes: Sequence[Attack], commands: Sequence[Sequence[str]]) -> list[str]:
    """Run commands in an attacked repository, and return what they must not do."""
    top, outside = attacked(directory, changes)
    before, opened = _marked(outside), set[str]()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.listdir", "os.scandir") or not isinstance(
            arguments[0], str | os.PathLike
        ):
            return
        if event == "open" and arguments[2] & os.O_NOFOLLOW:
            # A name in an open directory
            return
        real = os.path.realpath(arguments[0])
        if f"{real}/".startswith(f"{outside}/") or real == "/dev/zero" or real.endswith("/environ"):
            opened.add(real)

    with _watched(note):
        outputs = run(top, commands)
    found = [f"opened {path}" for path in sorted(opened)]
    for words, output in outputs.items():
        found += [f"{words}: {output[-600:]}"] if SECRET in output or "Traceback" in output else []
    found += ["the tree outside has changed"] if _marked(outside) != before else []
    for path in top.rglob("*"):
        if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes():
            found.append(f"{path.relative_to(top)} contains the secret")
    shutil.rmtree(directory)
    return found


def _project(directory: Path) -> Path:
    top = directory / "project"
    for name, text in SAMPLE.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    release(top / "images", "tool", "registry.example")
    identity = ("-c", "user.name=x", "-c", "user.email=x@example")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=top, check=True)
    run(top, (("render", "tool"), ("ci", "github")))
    return top


def _marked(directory: Path) -> list[tuple[str, int, int, bytes]]:
    statuses = [(path, path.lstat()) for path in sorted([directory, *directory.rglob("*")])]
    return [
        (str(path), status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path, status in statuses
    ]


def run(top: Path, commands: Sequence[Sequence[str]]) -> dict[str, str]:
    """Run commands in this process, and return their outputs."""
    outputs = {}
    wheels = top.parent / "wheels"
    for name in ("einops", "tqdm"):
        wheel(wheels, name, "1.0")
    variables = {
        "HOSTILE_CANARY": SECRET,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": "/dev/null",
        "BAKEHOUSE_INSTALL_ENGINE": "0",
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(top))
        stack.enter_context(mock.patch.dict(os.environ, variables))
        # Stubs: these need an engine, or Debian's archives
        stack.enter_context(mock.patch.object(locking, "pin", return_value=()))
        stack.enter_context(mock.patch.object(apt_suite, "lock", return_value=()))
        stack.enter_context(mock.patch.object(apt_suite, "drift", return_value={}))
        for words in commands:
            output = io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                previous = signal.signal(signal.SIGALRM, _overdue)
                signal.alarm(_SECONDS)
                try:
                    main.run(words)
                except BaseException as error:
                    print(f"Traceback: {error!r}", file=output)
                finally:
                    signal.alarm(0)
                    signal.signal(signal.SIGALRM, previous)
            outputs[" ".join(words)] = output.getvalue()
    return outputs


def _overdue(*_: object) -> None:
    raise TimeoutError(f"not finished after {_SECONDS} s")


_watchers: list[Callable[[str, tuple[Any, ...]], None]] = []
_hooked: list[bool] = []


@contextlib.contextmanager
def _watched(note: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(lambda event, arguments: [watch(event, arguments) for watch in _watchers] and None)
    _watchers.append(note)
    try:
        yield
    finally:
        _watchers.remove(note)
