"""Carries rehearsals out: makes the stand-ins, lets BuildKit execute every step, asks what is in the result.

What an image with stand-ins answers is told and proves nothing: it counts as unverified.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bakehouse.build import bake as feeding
from bakehouse.build import base_image, file_server, prefetch, stub_bases, stub_files, stub_plan, verify
from bakehouse.build.build_inputs import BuildInputs, Downloads
from bakehouse.build.progress import Progress
from bakehouse.build.stub_plan import Rehearsal, Stubs
from bakehouse.build.verify import VersionResult
from bakehouse.catalog.project import Project
from bakehouse.engine import buildx
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.protocol import Engine
from bakehouse.errors import BuildError, Diagnostic
from bakehouse.fetch.required_files import debs, required_files
from bakehouse.plan import dockerfile
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.files import write_whole
from bakehouse.util.oci import Digest
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

SUITE = "bookworm"
"""Of Debian, which all stand-ins of bases are made of: its Python is known to them."""
IMAGES_AT_ONCE = 8
"""In one graph: more would share few more stages, and BuildKit loses its way in a graph of a hundred."""
_ELSEWHERE = "rehearse on the machine that the engine runs on; `./bake doctor` says what it has"
_ASK_SECONDS = 300.0
_ASKED_AT_ONCE = 3

Bake = Callable[[Sequence[buildx.Target]], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """An image whose steps BuildKit has executed with stand-ins: rehearsed, not built."""

    rehearsal: Rehearsal
    digest: Digest
    agree: tuple[str, ...] = ()
    """Components that answered as declared."""
    differ: tuple[VersionResult, ...] = ()
    """What answered otherwise or not at all; of a stand-in that says nothing about the real part."""


@dataclass(slots=True)
class Outcome:
    """How a rehearsal of many images went: one that failed doesn't keep the others from being tried."""

    rehearsed: list[Rehearsed] = field(default_factory=list)
    failures: list[Diagnostic] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def require_all(self) -> None:
        """Raise BuildError with everything that failed."""
        if self.failures:
            raise BuildError(*self.failures)


def prepare(
    images: Sequence[Image],
    templates: Mapping[str, str],
    debian: BootstrappedBase,
    state: Path,
    *,
    real: bool = False,
) -> tuple[Rehearsal, ...]:
    """Make the stand-ins of images and write all that BuildKit is given, below `state`/rehearsal."""
    root = state / "rehearsal"
    (root / "files").mkdir(parents=True, exist_ok=True)
    found = []
    apt: set[str] = {*stub_bases.PROGRAMS}
    for image in images:
        text = dockerfile.render_image(image, templates)[0].content.decode()
        apt |= stub_plan.apt_names(text)
        needs = stub_plan.required_files(image, stub_plan.stage_texts(text), real=real)
        files = stub_files.make_all((need for found in needs.values() for need in found), root / "files")
        bases = {
            need: stub_bases.reference(need, debian.reference) for need in stub_plan.required_bases(image)
        }
        one = stub_plan.rehearse(image, needs, Stubs(files, bases))
        _write(one, templates, root)
        found.append(one)
    stub_files.apt_repository(apt, root / "apt")
    return tuple(found)


@contextlib.contextmanager
def start_downloads(
    rehearsals: Sequence[Rehearsal], debian: BootstrappedBase, project: Project, report: Reporter
) -> Iterator[Downloads]:
    """What steps of rehearsals are served from: the stand-ins, and what builds are served from too."""
    plan = required_files(one.image for one in rehearsals)
    of_debian = dict.fromkeys(debs(debian.debs), ("the stand-ins of bases",))
    plan = replace(plan, images={**of_debian, **plan.images})
    with prefetch.open_fetcher(project, report, source=str(project.state / "rehearsal" / "files")) as found:
        yield Downloads(plan, found, required_hint=_ELSEWHERE)


def run_rehearsals(
    rehearsals: Sequence[Rehearsal],
    *,
    debian: BootstrappedBase,
    state: Path,
    engine: Engine,
    downloads: Downloads,
    inputs: BuildInputs,
    progress: Progress,
    restart: Callable[[], bool],
    done: Callable[[Sequence[Rehearsed]], None] = lambda _: None,
) -> Outcome:
    """Let BuildKit execute rehearsals that were prepared; gives what came of each.

    `restart` starts an engine anew that lost a layer, and says whether it could.
    """
    root, outcome = state / "rehearsal", Outcome()
    with (
        file_server.serve_stubs(root / "apt", inputs.address) as url,
        private_directory(state) as folder,
        ThreadPoolExecutor(1) as beside,
    ):
        proxy = f'Acquire::http::Proxy::{file_server.STUB_HOST} "{url}/";\n'
        given = _with_apt(inputs, proxy, folder)
        own = [one.real.base for one in rehearsals if isinstance(one.real.base, BootstrappedBase)]
        for base in dict.fromkeys([debian, *own]):
            get = partial(prefetch.download_packages, downloads)
            base_image.ensure_base(base, engine=engine, state=state, report=progress.report, get=get)
        bake = partial(
            feeding.bake_with_inputs,
            cwd=root,
            state=root,
            downloads=downloads,
            inputs=given,
            progress=progress,
        )
        groups = [*_groups(rehearsals)]
        for number, group in enumerate(groups, 1):
            before = len(outcome.rehearsed)
            try:
                missing = _make_bases(group, debian, root, engine, bake, progress, outcome, restart)
                left = [one for one in group if not missing & {name for _, name in one.bases}]
                outcome.failed += [one.real.name for one in group if one not in left]
                _try(left, root, engine, bake, progress, outcome, restart)
            except BuildError as error:
                # No image is to blame, and the next ones may go through
                outcome.failures += error.diagnostics
                outcome.failed += [one.real.name for one in group]
            done(outcome.rehearsed[before:])
            if len(rehearsals) > IMAGES_AT_ONCE:
                # Of many images nobody looks into each, and they and their bases would fill the disk.
                beside.submit(_remove, _used_up(group, groups[number:]), engine)
    return outcome


def _used_up(group: Iterable[Rehearsal], later: Iterable[Sequence[Rehearsal]]) -> list[str]:
    """A group's images, and the stand-ins of bases that no later group needs."""
    needed = {name for others in later for one in others for _, name in one.bases}
    bases = dict.fromkeys(name for one in group for _, name in one.bases if name not in needed)
    return [*(one.reference for one in group), *bases]


def _remove(references: Iterable[str], engine: Engine) -> None:
    for one in references:
        engine.remove_images(one, ())


def _write(one: Rehearsal, templates: Mapping[str, str], root: Path) -> None:
    """The rendered files of a rehearsed image, its bake file with the rehearsal's own tags, and its lock."""
    for file in dockerfile.render_image(one.image, templates):
        content = file.content
        if file.path.endswith("/docker-bake.json"):
            [(name, target)] = json.loads(content)["target"].items()
            target |= {"tags": [one.reference], "output": [stub_plan.OUTPUT]}
            content = (json.dumps({"target": {name: target}}, indent=2) + "\n").encode()
        path = root / "images" / file.path
        if not path.is_file() or path.read_bytes() != content:
            write_whole(path, content)
        path.chmod(0o755 if file.is_executable else 0o644)
    write_whole(root / "images" / one.real.name / "stubs.lock", stub_plan.lock_text(one))


def _make_bases(
    rehearsals: Sequence[Rehearsal],
    debian: BootstrappedBase,
    root: Path,
    engine: Engine,
    bake: Bake,
    progress: Progress,
    outcome: Outcome,
    restart: Callable[[], bool],
) -> set[str]:
    """All bases that the engine doesn't have yet, in one graph; gives those that could not be made."""
    required_files = dict(pair for one in rehearsals for pair in one.bases)
    absent = {need: name for need, name in required_files.items() if not engine.image(name)}
    if absent:
        progress.report(f"stand-ins of bases: {', '.join(need.text for need in absent)}")
    targets = [
        buildx.Target(need.text, stub_bases.target_name(name), stub_bases.write(need, debian.reference, root))
        for need, name in absent.items()
    ]
    missing: set[str] = set()

    def failed(error: ImagesFailed, left: Sequence[buildx.Target]) -> None:
        outcome.failures += error.diagnostics
        missing.update(name for need, name in absent.items() if need.text in error.images)

    buildx.bake_with_retries(targets, bake, failed, restart, progress.report)
    return missing


def _groups(rehearsals: Sequence[Rehearsal]) -> Iterator[Sequence[Rehearsal]]:
    """Images that share the most come together: those of one base, then of one family of names."""
    ordered = sorted(rehearsals, key=lambda one: (one.bases[0][1], one.real.name))
    for start in range(0, len(ordered), IMAGES_AT_ONCE):
        yield ordered[start : start + IMAGES_AT_ONCE]


def _try(
    group: Sequence[Rehearsal],
    root: Path,
    engine: Engine,
    bake: Bake,
    progress: Progress,
    outcome: Outcome,
    restart: Callable[[], bool],
) -> None:
    """Bake a group, and ask what is in the images that went through."""

    def failed(error: ImagesFailed, left: Sequence[buildx.Target]) -> None:
        told = "; ".join(one.message for one in error.diagnostics)
        progress.report(f"{told}: going on without")
        hint = _hint(root, error.images)
        outcome.failures += [replace(one, hint=one.hint or hint) for one in error.diagnostics]
        outcome.failed += sorted(error.images)

    digests = buildx.bake_with_retries(map(_target, group), bake, failed, restart, progress.report)
    through = [one for one in group if one.real.name in digests]
    if not through:
        return
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as threads:
        made = [Digest(digests[one.real.name]) for one in through]
        asked = threads.map(lambda one, digest: _ask(one, digest, root, engine), through, made)
        for one, (found, wrong) in zip(through, asked, strict=True):
            outcome.failures += wrong
            outcome.failed += [one.real.name] if wrong else []
            outcome.rehearsed += [] if wrong else [found]
    names = ", ".join(one.real.name for one in through)
    progress.report(f"{stub_plan.REHEARSED}: {names}")


def _hint(root: Path, failed: frozenset[str]) -> str:
    return f"the Dockerfile that was tried is in {root / 'images' / min(failed)}"


def _target(one: Rehearsal) -> buildx.Target:
    sources = {stage.name: stage.source / "install.j2" for stage in one.real.stages}
    name = one.real.name
    return buildx.Target(name, one.image.target, Path("images", name, "docker-bake.json"), sources)


def _ask(one: Rehearsal, digest: Digest, root: Path, engine: Engine) -> tuple[Rehearsed, list[Diagnostic]]:
    """Read back what is installed, as far as stand-ins can say; only a real part can be wrong."""
    name = one.real.name
    log = root / "verified" / name / "components.log"
    answers = verify.run_probes(engine, one.image, digest, log=log, seconds=_ASK_SECONDS).versions
    differ = tuple(answer for answer in answers if not answer.matches)
    wrong = [
        verify.mismatch_error(one.real, digest, answer, log)
        for answer in differ
        if one.is_real(answer.component)
    ]
    agree = tuple(answer.component for answer in answers if answer.matches and answer.installed is not None)
    return Rehearsed(one, digest, agree, differ), wrong


def _with_apt(inputs: BuildInputs, text: str, folder: Path) -> BuildInputs:
    """The same, and more settings of apt."""
    before = inputs.secrets["apt"].read_text() if "apt" in inputs.secrets else ""
    path = folder / "apt"
    path.touch(mode=0o600)
    path.write_text(f"{before}{text}")
    return replace(inputs, secrets={**inputs.secrets, "apt": path})
