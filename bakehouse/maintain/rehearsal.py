"""Rehearsals: create the stubs, let BuildKit run all steps, and verify the resulting images.

The results of an image with stubs are reported, but the image counts as unverified.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bakehouse.builder import base_image, file_server, image_owners, verify
from bakehouse.builder.bake import bake_with_inputs, target_of
from bakehouse.builder.build_context import BuildContext
from bakehouse.builder.build_inputs import BuildInputs, Downloads, StepNeeds
from bakehouse.builder.code_copies import write_code
from bakehouse.builder.verify import VersionResult
from bakehouse.catalog.project import ProjectSettings
from bakehouse.engine import buildx
from bakehouse.engine.buildkit_errors import ImagesFailed
from bakehouse.engine.protocol import Engine, EngineHost
from bakehouse.errors import BuildError, Diagnostic, EngineError, Reason
from bakehouse.fetch.project_fetcher import open_fetcher
from bakehouse.fetch.required_files import debs, required_files
from bakehouse.maintain import stub_bases, stub_files, stub_plan
from bakehouse.maintain.stub_plan import Rehearsal, Stubs
from bakehouse.plan import dockerfile
from bakehouse.plan.model import BootstrappedBase, Image
from bakehouse.util.files import make_directory, read_text, write_whole
from bakehouse.util.heartbeat import heartbeat
from bakehouse.util.oci import Digest
from bakehouse.util.tempdir import private_directory
from bakehouse.util.terminal import Reporter

SUITE = "bookworm"
"""Debian release of all base stubs, which depend on its Python."""
_MAX_GROUP_IMAGES = 8
"""Maximum in one graph: more images share few more stages, and BuildKit fails on graphs of 100 images.

Smaller than `MAX_TARGETS` of builds, because the images of a group are removed before those of the next one,
so that a rehearsal of many images needs less disk space.
"""
_PROBE_SECONDS = 300.0
_MAX_CONCURRENT_PROBES = 3


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """Image whose steps BuildKit has run with stubs: rehearsed, not built."""

    rehearsal: Rehearsal
    digest: Digest
    agree: tuple[str, ...] = ()
    """Components with the declared version."""
    differ: tuple[VersionResult, ...] = ()
    """Other results; for a stub they say nothing about the real component."""


@dataclass(slots=True)
class RehearsalResults:
    """Results of the rehearsal of many images; a failed image does not stop the others."""

    rehearsed: list[Rehearsed] = field(default_factory=list)
    failures: list[Diagnostic] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def require_all(self) -> None:
        """Raise BuildError with all failures."""
        if self.failures:
            raise BuildError.of(*self.failures)


def prepare(
    images: Sequence[Image],
    templates: Mapping[str, str],
    debian: BootstrappedBase,
    state: Path,
    *,
    real: bool = False,
) -> tuple[Rehearsal, ...]:
    """Create the stubs of images, and write the input files of BuildKit below `state`/rehearsal."""
    root = state / "rehearsal"
    make_directory(root / "files")
    rehearsals = []
    apt: set[str] = {*stub_bases.PROGRAMS}
    for image in images:
        text = dockerfile.render_image(image, templates)[0].content.decode()
        apt |= stub_plan.apt_names(text)
        needs = stub_plan.required_files(image, stub_plan.stage_texts(text), real=real)
        files = stub_files.make_all((need for group in needs.values() for need in group), root / "files")
        bases = {
            need: stub_bases.reference(need, debian.reference) for need in stub_plan.required_bases(image)
        }
        rehearsal = stub_plan.rehearse(image, needs, Stubs(files, bases))
        _write(rehearsal, templates, root)
        rehearsals.append(rehearsal)
    stub_files.apt_repository(apt, root / "apt")
    return tuple(rehearsals)


@contextlib.contextmanager
def start_downloads(
    rehearsals: Sequence[Rehearsal],
    debian: BootstrappedBase,
    project: ProjectSettings,
    host: EngineHost,
    report: Reporter,
) -> Iterator[Downloads]:
    """Yield the downloads for rehearsals: the stubs, and the usual sources of builds.

    Raises EngineError if steps cannot reach this host.
    """
    if not host.address:
        raise EngineError(
            "build steps cannot reach this host, which must serve their stubs",
            reasons=(Reason(host.problem),),
            hint="rehearse on the engine's machine; run `bake doctor` for details",
        )
    plan = required_files(rehearsal.image for rehearsal in rehearsals)
    base_files = dict.fromkeys(debs(debian.debs), ("the base stubs",))
    plan = replace(plan, images={**base_files, **plan.images})
    with open_fetcher(project, report, source=str(project.state / "rehearsal" / "files")) as fetcher:
        yield Downloads(plan, fetcher, host)


def step_needs(images: Iterable[Image]) -> StepNeeds:
    """Return the needs of the steps of rehearsals."""
    own = (image.base.suite for image in images if isinstance(image.base, BootstrappedBase))
    return StepNeeds(suites=(SUITE, *own))


def run_rehearsals(
    rehearsals: Sequence[Rehearsal],
    debian: BootstrappedBase,
    context: BuildContext,
    on_group: Callable[[Sequence[Rehearsed]], None] = lambda _: None,
) -> RehearsalResults:
    """Let BuildKit run prepared rehearsals, and return their results.

    `on_group` receives the results of each group of images when it ends.
    """
    project, outcome = context.project, RehearsalResults()
    root = project.state / "rehearsal"
    with (
        file_server.serve_stubs(root / "apt", context.inputs.host) as url,
        private_directory(project.state) as directory,
        ThreadPoolExecutor(1) as cleaner,
    ):
        image_owners.record(project, _unneeded_images(rehearsals, ()))
        base_image.ensure_bases([debian, *(rehearsal.real.base for rehearsal in rehearsals)], context)
        proxy = f'Acquire::http::Proxy::{file_server.STUB_HOST} "{url}/";\n'
        context = replace(
            context,
            # The rendered files of rehearsals, and the logs of their steps
            project=replace(project, root=root, state_directory=root),
            inputs=_stub_inputs(context.inputs, proxy, directory),
        )
        groups = [*_groups(rehearsals)]
        for number, group in enumerate(groups, 1):
            before = len(outcome.rehearsed)
            try:
                missing = _bake_bases(group, debian, context, outcome)
                possible = [
                    rehearsal for rehearsal in group if not missing & {name for _, name in rehearsal.bases}
                ]
                outcome.failed += [rehearsal.real.name for rehearsal in group if rehearsal not in possible]
                _bake_images(possible, context, outcome)
            except BuildError as error:
                # No image caused the failure, so the next group may succeed.
                outcome.failures += error.diagnostics
                outcome.failed += [rehearsal.real.name for rehearsal in group]
            on_group(outcome.rehearsed[before:])
            if len(rehearsals) > _MAX_GROUP_IMAGES:
                # Many images and their bases would fill the disk, and users do not inspect each of them.
                cleaner.submit(_remove, _unneeded_images(group, groups[number:]), context.engine)
    return outcome


def _unneeded_images(group: Sequence[Rehearsal], later: Iterable[Sequence[Rehearsal]]) -> list[str]:
    """Return the images of a group, and its base stubs that no later group needs."""
    needed = {name for others in later for rehearsal in others for _, name in rehearsal.bases}
    bases = dict.fromkeys(name for rehearsal in group for _, name in rehearsal.bases if name not in needed)
    return [*(rehearsal.reference for rehearsal in group), *bases]


def _remove(references: Iterable[str], engine: Engine) -> None:
    for reference in references:
        # They are recorded, so `bake clean` removes the others
        with contextlib.suppress(EngineError):
            engine.remove_image(reference)


def _write(rehearsal: Rehearsal, templates: Mapping[str, str], root: Path) -> None:
    """Write the rendered files of a rehearsal, its bake file with the rehearsal's tags, and its lock."""
    for file in dockerfile.render_image(rehearsal.image, templates):
        if file.path.endswith("/docker-bake.json"):
            [(name, target)] = json.loads(file.content)["target"].items()
            target |= {"tags": [rehearsal.reference], "output": [stub_plan.OUTPUT]}
            file = replace(file, content=(json.dumps({"target": {name: target}}, indent=2) + "\n").encode())
        file.write(root / "images")
    write_whole(root / "images" / rehearsal.real.name / "stubs.lock", stub_plan.lock_text(rehearsal))


def _bake_bases(
    rehearsals: Sequence[Rehearsal],
    debian: BootstrappedBase,
    context: BuildContext,
    outcome: RehearsalResults,
) -> set[str]:
    """Bake the base stubs that the engine lacks, as one graph; return the names of failed ones."""
    needed = dict(pair for rehearsal in rehearsals for pair in rehearsal.bases)
    absent = {need: name for need, name in needed.items() if not context.engine.image(name)}
    report, root = context.progress.report, context.project.root
    if absent:
        report(f"base stubs: {', '.join(need.text for need in absent)}")
    targets = [
        buildx.Target(need.text, stub_bases.target_name(name), stub_bases.write(need, debian.reference, root))
        for need, name in absent.items()
    ]
    missing: set[str] = set()

    def on_failure(error: ImagesFailed, remaining: Sequence[buildx.Target]) -> None:
        outcome.failures += error.diagnostics
        missing.update(name for need, name in absent.items() if need.text in error.images)

    bake = partial(bake_with_inputs, context=context)
    buildx.bake_with_retries(targets, bake, on_failure, context.restart_engine, report)
    return missing


def _groups(rehearsals: Sequence[Rehearsal]) -> Iterator[Sequence[Rehearsal]]:
    """Yield groups of images that share many stages: by base, then by name."""
    ordered = sorted(rehearsals, key=lambda rehearsal: (rehearsal.bases[0][1], rehearsal.real.name))
    for start in range(0, len(ordered), _MAX_GROUP_IMAGES):
        yield ordered[start : start + _MAX_GROUP_IMAGES]


def _bake_images(group: Sequence[Rehearsal], context: BuildContext, outcome: RehearsalResults) -> None:
    """Bake the images of a group, and verify the successful ones."""
    report = context.progress.report

    def on_failure(error: ImagesFailed, remaining: Sequence[buildx.Target]) -> None:
        messages = "; ".join(diagnostic.message for diagnostic in error.diagnostics)
        report(f"{messages}; continuing with the others")
        hint = f"read the rehearsed Dockerfile in {context.project.images / min(error.images)}"
        outcome.failures += [
            replace(diagnostic, hint=diagnostic.hint or hint) for diagnostic in error.diagnostics
        ]
        outcome.failed += sorted(error.images)

    output = context.project.output
    for rehearsal in group:
        write_code(rehearsal.image, output)
    targets = (replace(target_of(rehearsal.image, output), tags=()) for rehearsal in group)
    bake = partial(bake_with_inputs, context=context)
    images = buildx.bake_with_retries(targets, bake, on_failure, context.restart_engine, report)
    baked = [rehearsal for rehearsal in group if rehearsal.real.name in images]
    if not baked:
        return
    names = ", ".join(rehearsal.real.name for rehearsal in baked)
    with ThreadPoolExecutor(_MAX_CONCURRENT_PROBES) as threads, heartbeat(report, f"verifying: {names}"):
        digests = [images[rehearsal.real.name].stored for rehearsal in baked]
        results = threads.map(partial(_verify, context=context), baked, digests)
        for rehearsal, (rehearsed, mismatches) in zip(baked, results, strict=True):
            outcome.failures += mismatches
            outcome.failed += [rehearsal.real.name] if mismatches else []
            outcome.rehearsed += [] if mismatches else [rehearsed]
    report(f"{stub_plan.REHEARSED}: {names}")


def _verify(
    rehearsal: Rehearsal, digest: Digest, context: BuildContext
) -> tuple[Rehearsed, list[Diagnostic]]:
    """Read back the installed versions; only a mismatch of a real component is an error."""
    name = rehearsal.real.name
    log = context.project.state / "verified" / name / "components.log"
    options = verify.ProbeOptions(seconds=_PROBE_SECONDS)
    versions = verify.run_probes(context.engine, rehearsal.image, digest, log, options).versions
    differ = tuple(version for version in versions if not version.matches)
    mismatches = [
        verify.mismatch_error(rehearsal.real, digest, version, log)
        for version in differ
        if rehearsal.is_real(version.component)
    ]
    agree = tuple(
        version.component for version in versions if version.matches and version.installed is not None
    )
    return Rehearsed(rehearsal, digest, agree, differ), mismatches


def _stub_inputs(inputs: BuildInputs, text: str, directory: Path) -> BuildInputs:
    """Return the inputs with added settings of apt."""
    before = read_text(inputs.secrets["apt"]) if "apt" in inputs.secrets else ""
    path = directory / "apt"
    path.touch(mode=0o600)
    path.write_text(f"{before}{text}")
    return replace(inputs, secrets={**inputs.secrets, "apt": path})
