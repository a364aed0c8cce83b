"""Explains a failed bake: which image and stage, what it printed, the line it came from, and what to do."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.engine.buildkit_events import Step
from bakehouse.errors import BakehouseError, BuildError, Diagnostic, EngineError, Location, Reason

_FRAME = re.compile(r"^\S+:(?P<line>\d+)\n-{8,}\n(?P<code>(?:.*\n)*?)-{8,}$", re.MULTILINE)
_FRAME_LINE = re.compile(r" *(?P<number>\d+) \| (?:>>> |    )?(?P<text>.*)")
_LAST_WORD = re.compile(r"^ERROR: (?:failed to solve: )?(?P<text>.*)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"# .*?(?P<path>[\w./-]+\.(?:j2|yaml|yml|sh|py))(?::(?P<line>\d+))?$")
_GONE = re.compile(r"Cannot connect to the Docker daemon|error reading from server: EOF|code = Unavailable")
_CONSEQUENCE = re.compile(r"context canceled|code = Canceled")

_LOST_LAYER = "the engine lost a layer that it had"
"""BuildKit can drop a layer too early when a build beside it is interrupted; only a restart heals it."""
_LOST = re.compile(r"snapshot \S+ does not exist")
_LOST_HINT = (
    "a fault of BuildKit after an interrupted build: restart the engine, then run the same command again"
)
_DISK = re.compile(r"[Nn]o space left on device|[Dd]isk quota exceeded")
_ENGINES_OWN = re.compile(f"{_LOST.pattern}|{_DISK.pattern}")
"""What no image is to blame for, and every image would meet."""
_DISK_HINT = "check `docker system df`; `docker builder prune` removes unused build cache"
_FALTERED = re.compile(r"DeadlineExceeded|context deadline exceeded|code = Unavailable")
_FALTERED_HINT = "the engine took too long over work of its own, as under load: run the same command again"
_TRUST = re.compile(r"CERTIFICATE_VERIFY_FAILED|certificate verif|SSL certificate problem|x509: certificate")
_TRUST_HINT = "name your organisation's certificates (PEM) as `ca` in [tool.bakehouse], or in PIP_CERT"
_NETWORK = re.compile(
    r"[Cc]ould not resolve|Temporary failure (?:in name resolution|resolving)|no such host|i/o timeout|"
    r"Network is unreachable|[Cc]onnection (?:refused|timed out|reset)|Failed to establish a new connection|"
    r"curl: \((?:6|7|28|35|52|56)\)"
)
_NETWORK_HINT = "probably the network: check the proxy, or name a mirror as `mirrors` in [tool.bakehouse]"
_ABSENT = re.compile(r"curl: \(22\)|HTTP Error 40[34]|40[34] +(?:Not Found|Forbidden)")
_ABSENT_HINT = "put the file into a folder, and name that in `mirrors` of [tool.bakehouse]"
_CHANGED = re.compile(
    r"DO NOT MATCH THE HASHES|is not the file that was pinned|did not give a file with sha256|"
    r"digest mismatch|sha256sum: WARNING"
)
_CHANGED_HINT = "do not update the hash before finding out why the file changed"
_HASHES = (
    re.compile(r"[Ee]xpected\s+(?:sha256[ :])?\s*(?P<expected>[0-9a-f]{64})[\s\S]*?"
               r"(?:[Gg]ot|received)\s+(?:sha256:)?(?P<received>[0-9a-f]{64})"),
    re.compile(r"digest mismatch sha256:(?P<received>[0-9a-f]{64}): sha256:(?P<expected>[0-9a-f]{64})"),
)  # fmt: skip
_BASE = re.compile(r"(?P<name>\S+): failed to resolve source metadata for ")
_SECRET = re.compile(r"secret (?P<name>\S+): not found")
_EXIT_CODE = re.compile(r"exit code: (?P<code>\d+)")
_KILLED = "137"


class LayerLost(BuildError):
    """The engine lost a layer: no image is to blame, and all can be built once it was restarted."""


class EngineFaltered(BuildError):
    """The engine gave up on something of its own, as it does under load: it may go the next time."""


class ImagesFailed(BuildError):
    """Some images did not build; the others may."""

    def __init__(
        self, *diagnostics: Diagnostic, images: frozenset[str], may_go_next_time: bool = False
    ) -> None:
        super().__init__(*diagnostics)
        self.images = images
        self.may_go_next_time = may_go_next_time
        """It was the network alone."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What was seen of a bake call that failed."""

    targets: tuple[str, ...]
    steps: tuple[Step, ...]
    """The steps that ended with an error, those that were only stopped too."""
    tails: Mapping[str, tuple[str, ...]]
    """The last lines of every step that printed any, by digest."""
    text: str
    """What buildx said after its events."""
    exported: frozenset[str]
    """The images that were finished before."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """One step that failed by itself, for some images; no step where buildx failed before any."""

    step: Step | None
    images: tuple[str, ...]
    location: Location | None
    tail: tuple[str, ...]
    evidence: str
    """All that was said about it."""

    @property
    def stage(self) -> str:
        return self.step.stage if self.step and self.step.stage != "internal" else ""


@dataclass(frozen=True, slots=True)
class _Verdict:
    what: str
    """What happened, as the end of a sentence about the image."""
    hint: str = ""
    facts: tuple[tuple[str, str], ...] = ()


def explain(failure: Failure, dockerfiles: Mapping[str, Path], sources: Mapping[str, Path]) -> BakehouseError:
    """The failure in words; `sources` maps stages to the files they were rendered from.

    It is an ImagesFailed where the images that were only stopped can be built without those that failed.
    """
    if _GONE.search(failure.text):
        message, hint = "the container engine does not answer", "`./bake doctor` says what it finds"
        return EngineError(Diagnostic(message, tail=(_last_word(failure.text),), hint=hint))
    causes = _causes(failure, dockerfiles)
    failed = frozenset(image for cause in causes for image in cause.images)
    stopped = [name for name in failure.targets if name not in failed | failure.exported]
    hinders_all = any(_ENGINES_OWN.search(cause.evidence) or not cause.images for cause in causes)
    told = [_diagnostic(cause, stopped if hinders_all else (), sources) for cause in causes]
    if any(_LOST.search(cause.evidence) for cause in causes):
        return LayerLost(*told)
    if hinders_all:
        faltered = all(_FALTERED.search(cause.evidence) for cause in causes)
        return EngineFaltered(*told) if faltered else BuildError(*told)
    by_network = all(one.hint == _NETWORK_HINT for one in told)
    return ImagesFailed(*told, images=failed, may_go_next_time=by_network)


def _causes(failure: Failure, dockerfiles: Mapping[str, Path]) -> list[_Cause]:
    by_digest: dict[str, list[Step]] = {}
    for step in failure.steps:
        if not _CONSEQUENCE.search(step.error):
            by_digest.setdefault(step.digest, []).append(step)
    causes = []
    for digest, steps in by_digest.items():
        images = tuple(dict.fromkeys(step.target for step in steps if step.target))
        tail = failure.tails.get(digest, ())
        # buildx speaks of one failing step only, the first.
        said = failure.text if steps[0].error in failure.text else ""
        location = _place(said, [dockerfiles[name] for name in images])
        causes.append(_Cause(steps[0], images, location, tail, "\n".join((steps[0].error, *tail, said))))
    if causes:
        return causes
    location = _place(failure.text, dockerfiles.values())
    images = tuple(name for name, file in dockerfiles.items() if location and file == location.path)
    return [_Cause(None, images, location, (), failure.text)]


def _diagnostic(cause: _Cause, stopped: Sequence[str], sources: Mapping[str, Path]) -> Diagnostic:
    verdict = _verdict(cause)
    facts: list[tuple[str, str]] = []
    if cause.step and cause.stage:
        facts.append(("step", f"{cause.stage} {cause.step.position}: {_first_line(cause.step.text)}"))
    facts += verdict.facts
    if stopped:
        facts.append(("not built", f"{_names(stopped)}: stopped because of it"))
    origin = _origin(cause.location, cause.stage, sources) if cause.location else None
    noun = "images" if len(cause.images) > 1 else "image"
    return Diagnostic(
        f"{noun} {_names(cause.images)} did not build: {verdict.what}" if cause.images else verdict.what,
        cause.location,
        reasons=(Reason("this was rendered from", origin),) if origin else (),
        facts=tuple(facts),
        tail=cause.tail,
        hint=verdict.hint,
    )


def _verdict(cause: _Cause) -> _Verdict:
    evidence = cause.evidence
    if _DISK.search(evidence):
        return _Verdict("the disk is full", _DISK_HINT)
    if _LOST.search(evidence):
        return _Verdict(_LOST_LAYER, _LOST_HINT)
    if not cause.images and _FALTERED.search(evidence):
        return _Verdict(_last_word(evidence), _FALTERED_HINT)
    if match := _BASE.search(evidence):
        said = evidence[match.end() :].partition(": ")[2]
        hint = "see that its name is right and its registry can be reached; `docker login` if it is private"
        return _Verdict(f"there is no base `{match['name']}`", hint, (("pulling it", _first_line(said)),))
    if match := _SECRET.search(evidence):
        return _Verdict(f"nobody gave it the secret `{match['name']}`")
    match = _EXIT_CODE.search(cause.step.error) if cause.step else None
    stage = f"stage `{cause.stage}`" if cause.stage else "a step"
    what = f"{stage} failed with exit code {match['code']}" if match else _last_word(evidence)
    if _TRUST.search(evidence):
        return _Verdict(what, _TRUST_HINT)
    if _NETWORK.search(evidence):
        return _Verdict(what, _NETWORK_HINT)
    if _ABSENT.search(evidence):
        return _Verdict(f"{what}: an address no longer has its file", _ABSENT_HINT)
    if _CHANGED.search(evidence):
        return _Verdict("a downloaded file is not the one that was pinned", _CHANGED_HINT, _hashes(evidence))
    if match and match["code"] == _KILLED:
        return _Verdict(f"{stage} was killed", "probably for lack of memory: fewer jobs at once need less")
    if match and cause.stage and cause.location:
        folder = _shown(cause.location.path.parent)
        return _Verdict(what, f"`docker build --target {cause.stage} {folder}` runs this stage alone")
    return _Verdict(what)


def _hashes(evidence: str) -> tuple[tuple[str, str], ...]:
    for pattern in _HASHES:
        if match := pattern.search(evidence):
            return ("expected", f"sha256:{match['expected']}"), ("received", f"sha256:{match['received']}")
    return ()


def _last_word(text: str) -> str:
    match = _LAST_WORD.search(text)
    return _first_line(match["text"] if match else text)


def _place(text: str, dockerfiles: Iterable[Path]) -> Location | None:
    """The failing line: in the Dockerfile whose lines buildx quotes."""
    frame = _FRAME.search(text)
    if frame is None:
        return None
    matches = (_FRAME_LINE.fullmatch(line) for line in frame["code"].splitlines())
    quoted = [(int(match["number"]), match["text"]) for match in matches if match]
    for path in dockerfiles:
        # buildx quotes one line more than a file has that ends with a newline.
        lines = [*path.read_text().splitlines(), ""]
        if all(number <= len(lines) and lines[number - 1] == text for number, text in quoted):
            line = lines[int(frame["line"]) - 1]
            return Location(path, int(frame["line"]), 1, max(1, len(line)), line)
    return None


def _origin(location: Location, stage: str, sources: Mapping[str, Path]) -> Location | None:
    """The line of the template or recipe that a line of a Dockerfile was rendered from.

    The file is the one given for the stage, else the one that a comment of the stage names.
    """
    path, number = sources.get(stage), 0
    if path is None:
        lines = location.path.read_text().splitlines()[: location.line]
        match = next((match for line in _stage_lines(lines) if (match := _COMMENT.fullmatch(line))), None)
        if match is None:
            return None
        path, number = Path(match["path"]), int(match["line"] or 0)
    if not path.is_file():
        return None
    lines = path.read_text().splitlines()
    number = number or _most_alike(location.text, lines)
    return Location(path, number, 1, text=lines[number - 1]) if 0 < number <= len(lines) else None


def _stage_lines(lines: Sequence[str]) -> Iterator[str]:
    """From the last line upwards to the stage's FROM and the comments above it."""
    seen_from = False
    for line in reversed(lines):
        if seen_from and not line.startswith("#"):
            return
        seen_from = seen_from or line.startswith("FROM ")
        yield line


def _most_alike(rendered: str, template: Sequence[str]) -> int:
    """The number of the template line that could have become the rendered one; the first where none could."""
    best, number = 0, 1
    for position, line in enumerate(template, 1):
        literals = re.split(r"\{\{.*?\}\}", line.strip())
        size = sum(map(len, literals))
        if size > best and re.fullmatch(".*".join(map(re.escape, literals)), rendered.strip()):
            best, number = size, position
    return number


def _names(names: Sequence[str]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
