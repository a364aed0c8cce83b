"""Client of `docker buildx`: one call builds many images and reports events while it runs."""

import codecs
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bakehouse.engine import buildkit_errors, usage_lock
from bakehouse.engine.buildkit_errors import EngineTimedOut, ImagesFailed, LayerLost
from bakehouse.engine.buildkit_events import EXPORT, LOG_LINES, Event, Log, Output, Step, Tail, Tick, events
from bakehouse.engine.docker_errors import require_client
from bakehouse.util import process
from bakehouse.util.files import make_directory, read_bytes, read_text
from bakehouse.util.format import format_names
from bakehouse.util.oci import PLATFORM, Digest
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

SHARED_INPUTS = "bakehouse-inputs"
"""Target that replaces the stage `inputs` of all images of a call."""
FILES_CONTEXT = "bakehouse-files-"
"""First part of the names of contexts that a build adds to the steps of a Dockerfile."""
_FILES_MOUNT = re.compile(rf"--mount=type=bind,from={FILES_CONTEXT}\S+ ")
_NO_DEFAULT_LOAD = {"BUILDX_NO_DEFAULT_LOAD": "1"}
"""Otherwise buildx exports that target as an unnamed image."""
_SETTLE_SECONDS = 2.0
"""BuildKit ends the steps of a stopped call in the background; a call that shares them too early fails."""
_MAX_REPAIRS = 3
"""Limit of repairs of an engine that loses layers, for one set of images."""


@dataclass(frozen=True, slots=True)
class BakedImage:
    """Digests of an image that was built."""

    stored: Digest
    """Digest in the engine's store: of the manifest, or of the configuration without a containerd store."""
    config: Digest
    """Digest of the configuration."""


@dataclass(frozen=True, slots=True)
class Target:
    """Image to bake: its bake file, and the source files of its stages."""

    name: str
    target: str
    """Name of the target in the bake file."""
    bake_file: Path
    sources: Mapping[str, Path] = field(default_factory=dict)
    """Template files by stage name."""
    dockerfile: str = ""
    """Text to build instead of the Dockerfile; it differs only in mounts of `FILES_CONTEXT`."""
    contexts: Mapping[str, str] = field(default_factory=dict)
    """Named contexts, which replace bases and stages."""
    tags: tuple[str, ...] = ()
    """Names of the image that replace those of the bake file."""
    output: str = ""
    """Exporter that replaces the one of the bake file."""
    part_of: str = ""
    """Target of the bake file. Only its stage `stage` is built; without `output`, it becomes no image."""
    stage: str = ""
    uncached: tuple[str, ...] = ()
    """Stages that are built without their cache."""
    cache_from: tuple[str, ...] = ()
    cache_to: str = ""


@dataclass(frozen=True, slots=True)
class BakeOptions:
    """Directories, inputs and the receiver of events of a call of `docker buildx bake`."""

    cwd: Path
    """Directory that relative paths of targets start from."""
    state: Path
    """Directory of private files and logs."""
    on_event: Callable[[Event], None]
    secrets: Mapping[str, Path] = field(default_factory=dict)
    """Files by the id of the secret."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments of all targets."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of docker's programs, such as registry logins."""


def bake(
    targets: Sequence[Target], options: BakeOptions, first: Collection[str] = ()
) -> dict[str, BakedImage]:
    """Build all targets as one graph, and return the digests of the images. Targets with `part_of` have none.

    Secrets and arguments are passed in a private file, never on a command line. Images in `first` are
    exported before the others. An interrupt also stops BuildKit, which keeps the completed steps. Raises
    BuildError.
    """
    require_client()
    # Parts of images are built once, with the first images
    others = [target for target in targets if target.name not in first and not target.part_of]
    if not others or not any(target.name in first for target in targets):
        return _call(targets, options)
    completed: set[str] = set()

    def report_first(event: Event) -> None:
        if isinstance(event, Step) and event.completed:
            completed.add(event.digest)
        options.on_event(event)

    def report_rest(event: Event) -> None:
        # The second call repeats the events of all steps, as cached.
        if isinstance(event, Tick) or event.digest not in completed:
            options.on_event(event)

    outputs = dict.fromkeys((target.target for target in others), "type=cacheonly")
    digests = _call(targets, replace(options, on_event=report_first), outputs)
    # The first call has rebuilt the stages
    built = [replace(target, uncached=()) for target in others]
    return digests | _call(built, replace(options, on_event=report_rest))


def export_files(target: Target, to: Path, options: BakeOptions) -> None:
    """Build a target and write the files of its last stage to a directory, without creating an image."""
    _call([target], options, {target.target: f'type=local,"dest={to.absolute()}"'})


def export_archive(target: Target, to: Path, options: BakeOptions) -> None:
    """Build a target and write the files of its last stage to a tar archive, without creating an image."""
    _call([target], options, {target.target: f'type=tar,"dest={to.absolute()}"'})


def _call(
    targets: Sequence[Target], options: BakeOptions, outputs: Mapping[str, str] | None = None
) -> dict[str, BakedImage]:
    """Call buildx once; targets in `outputs` are exported there instead of becoming images."""
    outputs, cwd, on_event = outputs or {}, options.cwd, options.on_event
    reader = _OutputReader({target.target: target.name for target in targets}, on_event)
    with private_directory(options.state) as directory, usage_lock.engine_in_use():
        override, metadata = directory / "override.json", directory / "metadata.json"
        shared = _write_shared_inputs(targets, cwd, directory / SHARED_INPUTS)
        override.write_text(_override(targets, options, outputs, shared, directory))
        command = ["docker", "buildx", "bake", "--progress=rawjson", "--provenance=false"]
        command += [f"--metadata-file={metadata}"]
        for file in (*dict.fromkeys(target.bake_file for target in targets), override):
            command += ["--file", str(file)]
        # A builder of the user's environment builds only if a caller passes it on. A killed buildx leaves
        # its copies of Dockerfiles in TMPDIR.
        own = {"TMPDIR": str(directory.absolute()), **_NO_DEFAULT_LOAD}
        environment = {"BUILDX_BUILDER": "", **options.environment, **own}
        with process.running([*command, *reader.targets], cwd=cwd, environment=environment) as buildx:
            assert buildx.stderr
            process.read({buildx.stderr: reader.feed}, lambda: on_event(Tick()))
            is_failed = buildx.wait() != 0
        if is_failed:
            sources = {stage: file for target in targets for stage, file in target.sources.items()}
            dockerfiles = {target.name: _dockerfile(target, cwd) for target in targets}
            raise buildkit_errors.explain(reader.failure(), dockerfiles, sources, options.state / "logs")
        results = json.loads(read_text(metadata))
    images = (target for target in targets if target.output or not target.part_of)
    exported = (target for target in images if target.target not in outputs)
    return {target.name: _baked(results[target.target]) for target in exported}


def _baked(result: Mapping[str, Any]) -> BakedImage:
    return BakedImage(Digest(result["containerimage.digest"]), Digest(result["containerimage.config.digest"]))


def bake_with_retries(
    targets: Iterable[Target],
    bake: Callable[[Sequence[Target]], dict[str, BakedImage]],
    on_failure: Callable[[ImagesFailed, Sequence[Target]], None],
    restart: Callable[[], bool],
    report: Reporter,
) -> dict[str, BakedImage]:
    """Bake targets, repeat without the failed ones, and return the digests of the others.

    Targets that failed because of the network are retried once, and so is an engine that timed out under
    load. `on_failure` receives the failures of each call and the remaining targets. `restart` restarts an
    engine that lost a layer, if possible; otherwise the stages that lack it are built without their cache.
    Other failures that are not caused by an image are raised.
    """
    remaining = list(targets)
    repairs, has_timed_out = 0, False
    uncached: frozenset[str] = frozenset()
    retried: frozenset[str] = frozenset()
    while remaining:
        try:
            return bake(remaining)
        except EngineTimedOut as error:
            if has_timed_out:
                raise
            has_timed_out = True
            report(f"{error.diagnostics[0].message}: retrying once")
            time.sleep(_SETTLE_SECONDS)
        except LayerLost as error:
            # An interrupted build can lose a layer, and a failed image interrupts the others.
            if repairs == _MAX_REPAIRS:
                raise
            repairs += 1
            if not restart():
                # If a stage lacks a layer again, a stage that it reads has lost it.
                new = error.stages - uncached or error.read - uncached
                if not new:
                    raise
                uncached |= new
                names = format_names(sorted(new))
                report(f"the engine lost a layer (a BuildKit bug): building {names} without the cache")
                remaining = [replace(target, uncached=tuple(sorted(uncached))) for target in remaining]
        except ImagesFailed as error:
            if error.is_network_failure and not error.images <= retried:
                retried |= error.images
                report(f"{error.diagnostics[0].message} (probably a network failure): retrying once")
                continue
            remaining = [target for target in remaining if target.name not in error.images]
            on_failure(error, remaining)
            time.sleep(_SETTLE_SECONDS)
    return {}


def _override(
    targets: Iterable[Target],
    options: BakeOptions,
    outputs: Mapping[str, str],
    shared: Collection[str],
    directory: Path,
) -> str:
    """Return an additional bake file; buildx parses secrets as CSV, so paths with commas need quotes."""
    entries = [f'id={name},"src={path}"' for name, path in sorted(options.secrets.items())]
    extra: dict[str, object] = {"args": dict(options.arguments), "secret": entries}
    merged: dict[str, dict[str, object]] = {}
    for target in targets:
        contexts = {"inputs": f"target:{SHARED_INPUTS}"} if target.target in shared else {}
        output = outputs.get(target.target, target.output) or ("type=cacheonly" if target.part_of else "")
        attributes: dict[str, object] = {
            "inherits": [target.part_of] if target.part_of else [],
            "target": target.stage,
            "output": [output] if output else [],
            "dockerfile-inline": target.dockerfile,
            "contexts": {**target.contexts, **contexts},
            "tags": [*target.tags],
            "no-cache-filter": [*target.uncached],
            "cache-from": [*target.cache_from],
            "cache-to": [target.cache_to] if target.cache_to else [],
        }
        merged[target.target] = {**extra, **{name: value for name, value in attributes.items() if value}}
    if shared:
        merged[SHARED_INPUTS] = {
            "context": str((directory / SHARED_INPUTS).absolute()),
            "dockerfile-inline": "FROM scratch\nCOPY --chmod=755 . /\n",
            "platforms": [PLATFORM],
            "attest": [],
        }
    return json.dumps({"target": merged})


def _write_shared_inputs(targets: Sequence[Target], cwd: Path, to: Path) -> tuple[str, ...]:
    """Merge the `inputs/` of targets into one directory; return which targets can use it.

    For BuildKit, steps that read the same file are then a single step. A target whose file differs from
    another one with the same name keeps its own directory.
    """
    merged: dict[str, bytes] = {}
    shared = []
    for target in targets:
        directory = _dockerfile(target, cwd).parent / "inputs"
        paths = [path for path in directory.rglob("*") if path.is_file()]
        files = {path.relative_to(directory).as_posix(): read_bytes(path) for path in paths}
        if files and all(merged.get(path, content) == content for path, content in files.items()):
            merged |= files
            shared.append(target.target)
    if len(shared) < 2:
        return ()
    for path, content in merged.items():
        make_directory((to / path).parent)
        (to / path).write_bytes(content)
    return tuple(shared)


def _dockerfile(target: Target, cwd: Path) -> Path:
    definition = json.loads(read_text(cwd / target.bake_file))["target"][target.part_of or target.target]
    return Path(cwd, definition.get("context", "."), definition.get("dockerfile", "Dockerfile"))


class _OutputReader:
    """Turns the output of buildx into events, and keeps the data that explains a failure."""

    def __init__(self, targets: Mapping[str, str], on_event: Callable[[Event], None]) -> None:
        self.targets = targets
        self._on_event = on_event
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._output = Output()
        self._errors: dict[tuple[str, str], Step] = {}
        self._tails: dict[str, Tail] = {}
        self._exported: set[str] = set()

    def feed(self, data: bytes) -> None:
        for status in self._output.feed(self._decode(data)):
            for event in events(status, self.targets):
                self._note(event)
                self._on_event(event)

    def failure(self) -> buildkit_errors.Failure:
        return buildkit_errors.Failure(
            targets=tuple(self.targets.values()),
            steps=tuple(self._errors.values()),
            outputs={digest: tail.lines() for digest, tail in self._tails.items()},
            text=_FILES_MOUNT.sub("", "\n".join(self._output.end())),
            exported=frozenset(self._exported),
        )

    def _note(self, event: Event) -> None:
        if isinstance(event, Log):
            self._tails.setdefault(event.digest, Tail(LOG_LINES)).add(event.text)
        elif isinstance(event, Step):
            if event.error:
                self._errors[event.digest, event.target] = event
            elif event.text == EXPORT and event.completed:
                self._exported.add(event.target)
