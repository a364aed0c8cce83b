"""Explanation of a failed bake: image, stage, output, source line and hint."""

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse import catalog
from bakehouse.engine.buildkit_events import TAIL_LINES, Step
from bakehouse.engine.docker_errors import NO_BRIDGE, NO_BRIDGE_HINT, no_bridge
from bakehouse.engine.step_output import command_of, telling_lines
from bakehouse.errors import BakehouseError, BuildError, Diagnostic, EngineError, Location, Reason
from bakehouse.util.files import display_path, read_text, write_whole

_FACTS = Path(catalog.__file__).with_name("data") / "build_packages.json"
_NAME = r"['\"`]?(?P<name>[A-Za-z][\w.+-]*)['\"`]?"
_PROGRAM = (
    re.compile(rf"(?:^|[\s:]){_NAME}: (?:command )?not found$"),
    re.compile(rf"No such file or directory: {_NAME}$"),
    re.compile(r"command ['\"](?:\S*/)?(?P<name>[^'\"/]+)['\"] failed: No such file or directory"),
    re.compile(rf"(?:^|[\s:]){_NAME}: No such file or directory$"),
    re.compile(
        rf"(?i)(?:^|\s){_NAME} (?:executable |compiler |program )?"
        r"(?:was not found|not found|(?:is )?not installed|must be installed|is required|could not be found)"
    ),
    re.compile(
        r"(?i)(?:can't|cannot|could not|unable to|did not|failed to) (?:find|execute|run|locate) (?:the )?"
        rf"(?:program |executable |command )?{_NAME}"
    ),
    re.compile(rf"(?i)CMake executable is {_NAME}"),
    re.compile(rf"(?i)(?:install|update|upgrade) (?:(?:the|your|a|temporary) )*{_NAME}"),
)
"""Messages about a missing program, the most specific first."""
_HEADER = re.compile(r"fatal error: (?P<name>[\w./+-]+): No such file or directory")
_LIBRARY = re.compile(r"cannot find -l(?P<name>[\w.+-]+)")
_CUDA = re.compile(r"CUDA_HOME|nvcc(?:: command)? (?:was )?not found|nvcc: not found|No such file.*\bnvcc\b")
_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[\w.]+)'")
_ALIASES = {
    "rust": "rustc",
    "pkgconfig": "pkg-config",
    "fortran": "gfortran",
    "c++": "g++",
    "pg-config": "pg_config",
}
_TRIPLE = re.compile(r"^(?:x86_64|aarch64)-linux-gnu-")


def advice(output: Sequence[str]) -> str:
    """Return what a failed build lacks and the line of the recipe that adds it; empty if unknown."""
    for line in output:
        if _CUDA.search(line):
            return "the build needs nvcc of CUDA: require a release that has wheels, or use a component"
    for line in output:
        if match := _HEADER.search(line):
            return _add(f"the header `{match['name']}`", _known("headers").get(match["name"], ""))
        if match := _LIBRARY.search(line):
            return _add(f"the library `lib{match['name']}`", "", f"lib{match['name'].lower()}-dev")
    for line in output:
        for program in _programs(line):
            return _add(f"the program `{program}`", _known("programs")[program])
    modules = [match["name"].partition(".")[0] for line in output if (match := _MODULE.search(line))]
    if modules:
        return (
            f"the build imports `{modules[-1]}`, which the package does not declare: add a package with it "
            "to `build_requirements` of the recipe"
        )
    return ""


def _programs(line: str) -> Iterator[str]:
    """Yield the known programs that a line reports as missing."""
    for pattern in _PROGRAM:
        if match := pattern.search(line.strip().rstrip(".")):
            name = _TRIPLE.sub("", match["name"]).lower()
            name = _ALIASES.get(name, name)
            if name in _known("programs"):
                yield name


def _add(what: str, package: str, guess: str = "") -> str:
    if package:
        return f"the build needs {what}: add `build_packages: {{apt: [{package}]}}` to the recipe"
    line = f"`build_packages: {{apt: [{guess or 'NAME'}]}}`"
    return f"the build needs {what}: add the package that contains it to the recipe: {line}"


@functools.cache
def _known(kind: str) -> Mapping[str, str]:
    """Return Debian's packages by the name of a program or a header."""
    packages: Mapping[str, str] = json.loads(_FACTS.read_bytes())[kind]
    return packages


_FRAME = re.compile(r"^\S+:(?P<line>\d{1,9})\n-{8,}\n(?P<code>(?:.*\n)*?)-{8,}$", re.MULTILINE)
_FRAME_LINE = re.compile(r" *(?P<number>\d{1,9}) \| (?:>>> |    )?(?P<text>.*)")
_LAST_WORD = re.compile(r"^ERROR: (?:failed to solve: )?(?P<text>.*)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"# .*?(?P<path>[\w./-]+\.(?:j2|yaml|yml|sh|py))(?::(?P<line>\d{1,9}))?$")
_GONE = re.compile(r"Cannot connect to the Docker daemon|error reading from server: EOF|code = Unavailable")
_CONSEQUENCE = re.compile(r"context canceled|code = Canceled")
_LOST_CONNECTION = re.compile(r"error reading from server: EOF")
"""Error of a step that was starting when another step failed, or whose engine has stopped."""

_LOST_LAYER = "the engine lost a layer"
"""BuildKit can drop a layer too early when a parallel build is interrupted; only a restart helps."""
_LOST = re.compile(r"snapshot \S+ does not exist")
_STAGE = re.compile(r"^FROM \S+ AS (?P<name>\S+)\n(?:(?!FROM ).*\n)*", re.MULTILINE)
_READ = re.compile(r"(?:^FROM |\bfrom=)([\w.-]+)")
_LOST_HINT = "restart the engine, then run the same command again (a BuildKit bug after an interrupted build)"
_DISK = re.compile(r"[Nn]o space left on device|[Dd]isk quota exceeded")
_NO_SESSION = re.compile(r"no active sessions?\b|inconsistent graph state")
"""A step that a stopped bake call started can keep the session of that call or its place in the graph."""
_NO_SESSION_HINT = "run the same command again (a BuildKit bug after an interrupted build)"
_SECOND_DIAL = re.compile(r"transport: Error while dialing:? only one connection allowed")
"""BuildKit dials a session again that has only one connection: https://github.com/moby/buildkit/issues/748"""
_SECOND_DIAL_HINT = "run the same command again (a BuildKit bug: moby/buildkit#748)"
_SAME_IMAGE = re.compile(r'image "\S+": already exists')
"""Two builds that give an image the same name at the same time."""
_SAME_IMAGE_HINT = "run the same command again: another build has created the image"
_REMOVED = re.compile(r"^ERROR: (?:failed to solve: )?not found$", re.MULTILINE)
"""The engine reports only this if another command or the cache limit removes data that a build reads."""
_REMOVED_HINT = "run the same command again; `docker system df` shows whether the build cache is at its limit"
_PARTIAL = re.compile(r"failed to copy: unsupported offset")
"""BuildKit 0.13 keeps the received part of a blob of an OCI layout, but cannot resume the transfer."""
_ENGINE_FAULTS = re.compile(
    f"{_LOST.pattern}|{_DISK.pattern}|{_NO_SESSION.pattern}|{_SECOND_DIAL.pattern}|{_SAME_IMAGE.pattern}|"
    rf"{_REMOVED.pattern}|{NO_BRIDGE.pattern}",
    re.MULTILINE,
)
"""Failures of the engine itself, which affect all images."""
_DISK_HINT = "check `docker system df`; `docker builder prune` removes unused build cache"
_TIMED_OUT = re.compile(
    r"DeadlineExceeded|context deadline exceeded|code = Unavailable|"
    rf"{_NO_SESSION.pattern}|{_SECOND_DIAL.pattern}|{_SAME_IMAGE.pattern}|{_REMOVED.pattern}",
    re.MULTILINE,
)
_TIMED_OUT_HINT = "run the same command again: the engine was too slow, probably under high load"
_TRUST = re.compile(r"CERTIFICATE_VERIFY_FAILED|certificate verif|SSL certificate problem|x509: certificate")
_TRUST_HINT = "set `ca` in [tool.bakehouse], or PIP_CERT, to your organisation's certificates (PEM)"
_NETWORK = re.compile(
    r"[Cc]ould not resolve|Temporary failure (?:in name resolution|resolving)|no such host|i/o timeout|"
    r"Network is unreachable|[Cc]onnection (?:refused|timed out|reset)|Failed to establish a new connection|"
    r"curl: \((?:6|7|28|35|52|56)\)"
)
_NETWORK_HINT = "check the proxy, or set `mirrors` in [tool.bakehouse] (probably a network failure)"
_ABSENT = re.compile(r"curl: \(22\)|HTTP Error 40[34]|40[34] +(?:Not Found|Forbidden)")
_ABSENT_HINT = "copy the file into a directory and add the directory to `mirrors` in [tool.bakehouse]"
_CHANGED = re.compile(
    r"DO NOT MATCH THE HASHES|is not the file that was pinned|did not give a file with sha256|"
    r"digest mismatch|sha256sum: WARNING"
)
_CHANGED_HINT = "find out why the file changed before you update the checksum"
_HASHES = (
    re.compile(r"[Ee]xpected\s+(?:sha256[ :])?\s*(?P<expected>[0-9a-f]{64})[\s\S]*?"
               r"(?:[Gg]ot|received)\s+(?:sha256:)?(?P<received>[0-9a-f]{64})"),
    re.compile(r"digest mismatch sha256:(?P<received>[0-9a-f]{64}): sha256:(?P<expected>[0-9a-f]{64})"),
)  # fmt: skip
_BASE = re.compile(r"(?<!\S)(?P<name>\S{1,512}): failed to resolve source metadata for ")
_SECRET = re.compile(r"secret (?P<name>\S+): not found")
_EXIT_CODE = re.compile(r"exit code: (?P<code>\d+)")
_KILLED = "137"
_BUILDS = "requirements-wheels"
"""The stage that builds the source distributions of a recipe."""


class LayerLost(BuildError):
    """The engine lost a layer. A restart, or a build without the cache of a stage, can fix it."""

    stages: frozenset[str] = frozenset()
    """The stages whose steps lack a layer, as far as they are known."""
    read: frozenset[str] = frozenset()
    """The stages that these read; one of them may have lost the layer."""


class EngineGone(EngineError):
    """The engine closed the connection."""


class TransferBroken(BuildError):
    """BuildKit cannot resume the interrupted transfer of a context, not even in a later build."""


class EngineTimedOut(BuildError):
    """An internal operation of the engine timed out or conflicted with another build; a retry may succeed."""


class ImagesFailed(BuildError):
    """Some images failed to build; the others can still be built."""

    def __init__(
        self,
        *diagnostics: Diagnostic,
        images: frozenset[str],
        steps: Sequence[Step | None] = (),
        is_network_failure: bool = False,
    ) -> None:
        self._report(*diagnostics)
        self.images = images
        self.steps = tuple(steps) or (None,) * len(diagnostics)
        """The failed step of a stage for each diagnostic; None if no step of a stage failed."""
        self.is_network_failure = is_network_failure
        """True if only the network failed, so that a retry may succeed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Data of a failed bake call."""

    targets: tuple[str, ...]
    steps: tuple[Step, ...]
    """Steps that ended with an error, including stopped steps."""
    outputs: Mapping[str, tuple[str, ...]]
    """Lines of the output of each step, by digest."""
    text: str
    """Output of buildx after its events."""
    exported: frozenset[str]
    """Images that were already exported."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """Step that failed on its own, for some images; None if buildx failed before any step."""

    step: Step | None
    images: tuple[str, ...]
    location: Location | None
    output: tuple[str, ...]
    evidence: str
    """Text about the failure, with the last lines of the output."""

    @property
    def stage(self) -> str:
        return self.step.stage if self.step and self.step.stage != "internal" else ""


@dataclass(frozen=True, slots=True)
class _Verdict:
    what: str
    """Description of the failure, as the end of a sentence about the image."""
    hint: str = ""
    facts: tuple[tuple[str, str], ...] = ()


def explain(
    failure: Failure, dockerfiles: Mapping[str, Path], sources: Mapping[str, Path], logs: Path | None = None
) -> BakehouseError:
    """Return the error for a failure; `sources` maps stages to the files they were rendered from.

    The complete output of failed steps is written to files in `logs`. The error is an ImagesFailed if stopped
    images can be built without the failed ones.
    """
    if _GONE.search(failure.text):
        message, hint = "the container engine does not answer", "run `bake doctor`"
        return EngineGone(message, tail=(_last_word(failure.text),), hint=hint)
    causes = _causes(failure, dockerfiles)
    failed = frozenset(image for cause in causes for image in cause.images)
    stopped = [name for name in failure.targets if name not in failed | failure.exported]
    affects_all = any(_ENGINE_FAULTS.search(cause.evidence) or not cause.images for cause in causes)
    diagnostics = [_diagnostic(cause, stopped if affects_all else (), sources, logs) for cause in causes]
    if lost := [cause for cause in causes if _LOST.search(cause.evidence)]:
        error = LayerLost.of(*diagnostics)
        error.stages = frozenset(cause.stage for cause in lost if cause.stage)
        files = {dockerfiles[name] for cause in lost for name in cause.images}
        texts = [read_text(file) for file in files if file.is_file()]
        error.read = frozenset(name for text in texts for name in _read_by(error.stages, text))
        return error
    if any(_PARTIAL.search(cause.evidence) for cause in causes):
        return TransferBroken.of(*diagnostics)
    if affects_all:
        timed_out = all(_TIMED_OUT.search(cause.evidence) for cause in causes)
        return EngineTimedOut.of(*diagnostics) if timed_out else BuildError.of(*diagnostics)
    by_network = all(diagnostic.hint == _NETWORK_HINT for diagnostic in diagnostics)
    steps = [cause.step if cause.stage else None for cause in causes]
    return ImagesFailed(*diagnostics, images=failed, steps=steps, is_network_failure=by_network)


def _read_by(stages: Collection[str], dockerfile: str) -> Iterator[str]:
    """Yield the stages of a Dockerfile that `stages` read."""
    texts = {match["name"]: match[0] for match in _STAGE.finditer(dockerfile)}
    for stage in texts.keys() & stages:
        yield from texts.keys() & _READ.findall(texts[stage])


def _causes(failure: Failure, dockerfiles: Mapping[str, Path]) -> list[_Cause]:
    by_digest: dict[str, list[Step]] = {}
    failed = [step for step in failure.steps if not _CONSEQUENCE.search(step.error)]
    for step in [step for step in failed if not _LOST_CONNECTION.search(step.error)] or failed:
        by_digest.setdefault(step.digest, []).append(step)
    causes = []
    for digest, steps in by_digest.items():
        images = tuple(dict.fromkeys(step.target for step in steps if step.target))
        output = failure.outputs.get(digest, ())
        # buildx describes only the first failing step.
        text = failure.text if steps[0].error in failure.text else ""
        location = _location(text, [dockerfiles[name] for name in images])
        evidence = "\n".join((steps[0].error, *output[-TAIL_LINES:], text))
        causes.append(_Cause(steps[0], images, location, output, evidence))
    if causes:
        return causes
    location = _location(failure.text, dockerfiles.values())
    images = tuple(name for name, file in dockerfiles.items() if location and file == location.path)
    return [_Cause(None, images, location, (), failure.text)]


def _diagnostic(
    cause: _Cause, stopped: Sequence[str], sources: Mapping[str, Path], logs: Path | None
) -> Diagnostic:
    verdict = _verdict(cause)
    facts: list[tuple[str, str]] = []
    if cause.step and cause.stage:
        facts.append(("step", f"{cause.stage} {cause.step.position}".rstrip()))
        following = _lines_after(cause.location) if cause.location else ()
        facts.append(("command", command_of(cause.step.text, following)))
    facts += verdict.facts
    if logs and cause.output:
        facts.append(("log", display_path(_write_log(cause, logs))))
    if stopped:
        facts.append(("not built", f"{_names(stopped)} (stopped by this failure)"))
    origin = _origin(cause.location, cause.stage, sources) if cause.location else None
    noun = "images" if len(cause.images) > 1 else "image"
    return Diagnostic(
        f"{noun} {_names(cause.images)} failed to build: {verdict.what}" if cause.images else verdict.what,
        cause.location,
        reasons=(Reason("rendered from", origin),) if origin else (),
        facts=tuple(facts),
        tail=telling_lines(cause.output),
        hint=verdict.hint,
    )


def _write_log(cause: _Cause, logs: Path) -> Path:
    """Write the complete output of a failed step to a file."""
    name = "-".join(filter(None, (*cause.images[:1], cause.stage))).replace("/", "-") or "build"
    path = logs / f"{name}.log"
    write_whole(path, "".join(f"{line}\n" for line in cause.output))
    return path


def _lines_after(location: Location) -> tuple[str, ...]:
    """Return the lines of a here-document, which begins in the instruction at a location."""
    lines = read_text(location.path).splitlines()[location.line - 1 :]
    start = next((index for index, line in enumerate(lines) if "<<" in line), None)
    return tuple(lines[start + 1 :]) if start is not None else ()


def _verdict(cause: _Cause) -> _Verdict:
    evidence = cause.evidence
    if _DISK.search(evidence):
        return _Verdict("the disk is full", _DISK_HINT)
    if _LOST.search(evidence):
        return _Verdict(_LOST_LAYER, _LOST_HINT)
    if message := no_bridge(evidence):
        return _Verdict(message, NO_BRIDGE_HINT)
    if _NO_SESSION.search(evidence):
        return _Verdict("a build step still belonged to a stopped build", _NO_SESSION_HINT)
    if _SECOND_DIAL.search(evidence):
        return _Verdict("the engine lost the connection of this build", _SECOND_DIAL_HINT)
    if _SAME_IMAGE.search(evidence):
        return _Verdict("another build created the image at the same time", _SAME_IMAGE_HINT)
    if _REMOVED.search(evidence):
        return _Verdict("the engine removed a cached layer that the build was using", _REMOVED_HINT)
    if not cause.images and _TIMED_OUT.search(evidence):
        return _Verdict(_last_word(evidence), _TIMED_OUT_HINT)
    if match := _BASE.search(evidence):
        answer = evidence[match.end() :].partition(": ")[2]
        hint = "check the name and that the registry is reachable; run `docker login` if it is private"
        return _Verdict(f"cannot pull base `{match['name']}`", hint, (("answer", _first_line(answer)),))
    if match := _SECRET.search(evidence):
        return _Verdict(f"the secret `{match['name']}` is missing")
    match = _EXIT_CODE.search(cause.step.error) if cause.step else None
    stage = f"stage `{cause.stage}`" if cause.stage else "a step"
    what = f"{stage} failed with exit code {match['code']}" if match else _last_word(evidence)
    if _TRUST.search(evidence):
        return _Verdict(what, _TRUST_HINT)
    if _NETWORK.search(evidence):
        return _Verdict(what, _NETWORK_HINT)
    if _ABSENT.search(evidence):
        return _Verdict(f"{what}: a file no longer exists at its URL", _ABSENT_HINT)
    if _CHANGED.search(evidence):
        return _Verdict("a downloaded file does not match its checksum", _CHANGED_HINT, _hashes(evidence))
    if match and match["code"] == _KILLED:
        return _Verdict(f"{stage} was killed", "reduce the number of parallel jobs (probably out of memory)")
    return _Verdict(what, advice(cause.output) if cause.stage == _BUILDS else "")


def _hashes(evidence: str) -> tuple[tuple[str, str], ...]:
    for pattern in _HASHES:
        if match := pattern.search(evidence):
            return ("expected", f"sha256:{match['expected']}"), ("received", f"sha256:{match['received']}")
    return ()


def _last_word(text: str) -> str:
    match = _LAST_WORD.search(text)
    return _first_line(match["text"] if match else text)


def _location(text: str, dockerfiles: Iterable[Path]) -> Location | None:
    """Return the failing line of the Dockerfile that buildx quotes."""
    frame = _FRAME.search(text)
    if frame is None:
        return None
    matches = (_FRAME_LINE.fullmatch(line) for line in frame["code"].splitlines())
    quoted = [(int(match["number"]), match["text"]) for match in matches if match]
    number = int(frame["line"])
    for path in dockerfiles:
        # buildx counts an empty line after the last newline.
        lines = [*read_text(path).splitlines(), ""]
        if 0 < number <= len(lines) and all(
            0 < other <= len(lines) and lines[other - 1] == text for other, text in quoted
        ):
            line = lines[number - 1]
            return Location(path, number, 1, max(1, len(line)), line)
    return None


def _origin(location: Location, stage: str, sources: Mapping[str, Path]) -> Location | None:
    """Return the line of the template or recipe that a Dockerfile line was rendered from.

    The file is the source of the stage, otherwise the file named in a comment of the stage.
    """
    path, number = sources.get(stage), 0
    if path is None:
        lines = read_text(location.path).splitlines()[: location.line]
        match = next((match for line in _stage_lines(lines) if (match := _COMMENT.fullmatch(line))), None)
        if match is None:
            return None
        path, number = Path(match["path"]), int(match["line"] or 0)
    if not path.is_file():
        return None
    lines = read_text(path).splitlines()
    number = number or _most_similar_line(location.text, lines)
    return Location(path, number, 1, text=lines[number - 1]) if 0 < number <= len(lines) else None


def _stage_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines from the last one up to the stage's FROM and the comments above it."""
    seen_from = False
    for line in reversed(lines):
        if seen_from and not line.startswith("#"):
            return
        seen_from = seen_from or line.startswith("FROM ")
        yield line


def _most_similar_line(rendered: str, template: Sequence[str]) -> int:
    """Return the number of the template line that matches the rendered line best; 1 without a match."""
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
