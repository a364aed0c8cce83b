"""The only door to `docker buildx`: one call for many images, its events as they come."""

import codecs
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bakehouse.engine import buildkit_errors, usage_lock
from bakehouse.engine.buildkit_errors import EngineFaltered, ImagesFailed, LayerLost
from bakehouse.engine.buildkit_events import EXPORT, Event, Log, Output, Step, Tail, Tick, events
from bakehouse.errors import Diagnostic, EngineError
from bakehouse.util import process as processes
from bakehouse.util.tempdir import private_directory

_RESTARTS = 3
"""Of an engine that loses layers, for one set of images."""


@dataclass(frozen=True, slots=True)
class Target:
    """An image to bake: its bake file, and what its stages were rendered from."""

    name: str
    target: str
    """What the bake file calls it."""
    bake_file: Path
    sources: Mapping[str, Path] = field(default_factory=dict)
    """Stage names and the files their text comes from."""


def bake(
    targets: Sequence[Target],
    *,
    cwd: Path,
    state: Path,
    secrets: Mapping[str, Path],
    arguments: Mapping[str, str],
    on_event: Callable[[Event], None],
    environment: Mapping[str, str] | None = None,
    first: Collection[str] = (),
) -> dict[str, str]:
    """Build all targets as one graph; gives the digest of each image in the engine's store.

    The digest is the manifest's, or the image's id where the engine has no containerd store. Secrets and
    arguments travel in a private file, never on a command line. Images named in `first` are exported before
    the others. Raises BuildError. Whatever interrupts this, BuildKit is stopped too, and keeps the steps that
    were finished.
    """
    if shutil.which("docker") is None:
        hint = "`./bake doctor` says what is missing and how to get it"
        raise EngineError(Diagnostic("there is no `docker` command on this machine", hint=hint))
    call = partial(_call, cwd=cwd, state=state, secrets=secrets, arguments=arguments, environment=environment)
    others = [target for target in targets if target.name not in first]
    if len(others) in (0, len(targets)):
        return call(targets, on_event=on_event)
    ended: set[str] = set()

    def note(event: Event) -> None:
        if isinstance(event, Step) and event.completed:
            ended.add(event.digest)
        on_event(event)

    def tell_the_rest(event: Event) -> None:
        # All the steps are told once more, as cached
        if isinstance(event, Tick) or event.digest not in ended:
            on_event(event)

    aside = dict.fromkeys((target.target for target in others), "type=cacheonly")
    digests = call(targets, outputs=aside, on_event=note)
    return digests | call(others, on_event=tell_the_rest)


def export_files(
    target: Target,
    to: Path,
    *,
    cwd: Path,
    state: Path,
    secrets: Mapping[str, Path],
    arguments: Mapping[str, str],
    on_event: Callable[[Event], None],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Build a target, and put what its last stage has into a folder; no image is made. Raises as `bake`."""
    _call(
        [target],
        cwd=cwd,
        state=state,
        secrets=secrets,
        arguments=arguments,
        on_event=on_event,
        environment=environment,
        outputs={target.target: f'type=local,"dest={to.absolute()}"'},
    )


def _call(
    targets: Sequence[Target],
    *,
    cwd: Path,
    state: Path,
    secrets: Mapping[str, Path],
    arguments: Mapping[str, str],
    on_event: Callable[[Event], None],
    environment: Mapping[str, str] | None,
    outputs: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """One call of buildx; the targets of `outputs` go there, and become no image."""
    aside = outputs or {}
    watch = _Watch({target.target: target.name for target in targets}, on_event)
    with private_directory(state) as folder, usage_lock.engine_in_use():
        override, metadata = folder / "override.json", folder / "metadata.json"
        override.write_text(_override(targets, secrets, arguments, aside))
        command = ["docker", "buildx", "bake", "--progress=rawjson", "--provenance=false"]
        command += [f"--metadata-file={metadata}"]
        for file in (*dict.fromkeys(target.bake_file for target in targets), override):
            command += ["--file", str(file)]
        with processes.running([*command, *watch.targets], cwd=cwd, environment=environment) as process:
            assert process.stderr
            processes.read({process.stderr: watch.feed}, lambda: on_event(Tick()))
            failed = process.wait() != 0
        if failed:
            sources = {stage: file for target in targets for stage, file in target.sources.items()}
            dockerfiles = {target.name: _dockerfile(target, cwd) for target in targets}
            raise buildkit_errors.explain(watch.failure(), dockerfiles, sources)
        found = json.loads(metadata.read_text())
    exported = (target for target in targets if target.target not in aside)
    return {target.name: str(found[target.target]["containerimage.digest"]) for target in exported}


def bake_with_retries(
    targets: Iterable[Target],
    bake: Callable[[Sequence[Target]], dict[str, str]],
    failed: Callable[[ImagesFailed, Sequence[Target]], None],
    restart: Callable[[], bool],
    report: Callable[[str], None],
) -> dict[str, str]:
    """The digests of what `bake` can build: without targets that fail, again, until the rest goes through.

    Targets that failed for the network alone are given one more try, and so is an engine that faltered under
    load. `failed` is told of each call's failures, and of what is left. `restart` starts an engine anew that
    lost a layer, if it can. What else no image is to blame for is raised.
    """
    left = list(targets)
    restarts, faltered = 0, False
    tried_again: frozenset[str] = frozenset()
    while left:
        try:
            return bake(left)
        except EngineFaltered as error:
            if faltered:
                raise
            faltered = True
            report(f"{error.diagnostics[0].message}: trying once more")
        except LayerLost:
            # Each interrupted build can lose one, and an image that fails interrupts the others.
            if restarts == _RESTARTS or not restart():
                raise
            restarts += 1
        except ImagesFailed as error:
            if error.may_go_next_time and not error.images <= tried_again:
                tried_again |= error.images
                report(f"{error.diagnostics[0].message}, for the network it seems: trying once more")
                continue
            left = [target for target in left if target.name not in error.images]
            failed(error, left)
    return {}


def _override(
    targets: Iterable[Target],
    secrets: Mapping[str, Path],
    arguments: Mapping[str, str],
    outputs: Mapping[str, str],
) -> str:
    """A further bake file; buildx reads secrets as CSV, so that a comma in a path needs the quotes."""
    given = [f'id={name},"src={path}"' for name, path in sorted(secrets.items())]
    extra: dict[str, object] = {"args": dict(arguments), "secret": given}
    aside = {name: {"output": [output]} for name, output in outputs.items()}
    return json.dumps({"target": {target.target: extra | aside.get(target.target, {}) for target in targets}})


def _dockerfile(target: Target, cwd: Path) -> Path:
    written = json.loads((cwd / target.bake_file).read_text())["target"][target.target]
    return Path(cwd, written.get("context", "."), written.get("dockerfile", "Dockerfile"))


class _Watch:
    """Turns buildx's output into events, and keeps what explains a failure."""

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
            tails={digest: tail.lines() for digest, tail in self._tails.items()},
            text="\n".join(self._output.end()),
            exported=frozenset(self._exported),
        )

    def _note(self, event: Event) -> None:
        if isinstance(event, Log):
            self._tails.setdefault(event.digest, Tail()).add(event.text)
        elif isinstance(event, Step):
            if event.error:
                self._errors[event.digest, event.target] = event
            elif event.text == EXPORT and event.completed:
                self._exported.add(event.target)
