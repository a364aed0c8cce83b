"""Content of the report: the recorded facts of each image, from recipes, locks, tests, ledger and builds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from bakehouse.builder import up_to_date
from bakehouse.builder.build_log import Build, load_builds
from bakehouse.catalog import git_history
from bakehouse.catalog.apt_lock import Deb
from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.instance_gpus import InstanceGpus, platform_of
from bakehouse.catalog.instance_types import Instance, instances
from bakehouse.catalog.job_checks import GPU_CHECKS
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.purpose import ARCHIVE
from bakehouse.catalog.python_lock import Package
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.size_budget import REQUIREMENTS
from bakehouse.commands.report import states, versions
from bakehouse.commands.report.commits import Comparison, PresentImage, compare_commit, size_of
from bakehouse.commands.report.states import CellState, Mark
from bakehouse.commands.report.versions import Part, Places
from bakehouse.errors import BakehouseError, PublishError, UsageError
from bakehouse.evidence.image_state import known_layers, state_of
from bakehouse.evidence.known_checks import KnownChecks, known_checks
from bakehouse.evidence.page_rows import contents_of
from bakehouse.jobs.job_spec import SDKS, JobSpec
from bakehouse.jobs.snippets import snippet
from bakehouse.ledger import image_uris
from bakehouse.ledger.release_changes import Change, neighbours, timeline
from bakehouse.ledger.releases import ReleaseRecord, by_release
from bakehouse.ledger.store import FileLedger, Ledger, open_ledger
from bakehouse.plan import image_lock
from bakehouse.plan.model import BootstrappedBase, Image, Stage
from bakehouse.plan.workspace import Workspace, leave_out, plan_resolutions, select
from bakehouse.resolve import conflict_report
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.files import read_bytes
from bakehouse.util.json_reader import parse_json

_MAX_SEARCHED = 20
"""Images up to which the page says what allows newer versions, which takes 0.1 s of CPU for each."""
_SDKS = ("", "v2")
"""The default, and the older one."""
_Value = TypeVar("_Value")
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class CheckRow:
    """Result of one smoke check."""

    name: str
    outcome: str
    on_gpus: bool
    seconds: float | None = None
    """None if only the ledger has the result."""
    reason: str = ""
    rank: str = ""
    source: str = ""
    tail: tuple[str, ...] = ()
    log: str = ""


@dataclass(frozen=True, slots=True)
class SmokeResults:
    """Results of the smoke checks of an image with its current build key."""

    checks: tuple[CheckRow, ...] = ()
    machine: str = ""
    date: str = ""
    transport: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """A record of the ledger."""

    date: str
    image_uri: str
    tags: tuple[str, ...]
    bytes: int
    revision: str
    state: str
    """`release`, `candidate` or `not tested`, and whether no check of a GPU image used GPUs."""
    is_current: bool
    """It has the current build key."""
    checks: tuple[tuple[str, str], ...]
    parts: tuple[tuple[str, str], ...]
    """Components with version and variant."""
    since: str | None
    """Date of the release before; empty for the first one. None for candidates and repeated records."""
    changes: tuple[Change, ...]
    """Differences from the release before."""


@dataclass(frozen=True, slots=True)
class Download:
    """Files that a build downloads for one component."""

    name: str
    bytes: int
    is_complete: bool
    """False if the size of a file is not recorded."""
    packages: tuple[int, ...]
    """Its packages, in the table of `Fleet`; other files are not listed."""


@dataclass(frozen=True, slots=True)
class ImageReport:
    """Everything that is recorded about an image. Numbers in tuples are indices in the tables of `Fleet`."""

    name: str
    purpose: str
    summary: str
    place: int
    versions: tuple[str, str, str]
    """Versions of the framework, CUDA and Python, as far as the image has them."""
    facets: Mapping[str, str]
    """Values that the grid filters by."""
    states: Mapping[str, CellState]
    problem: str = ""
    """The reason why no versions fit."""
    warnings: tuple[tuple[str, str], ...] = ()
    """Reported problems of the combination, each with its source."""
    base: str = ""
    parts: tuple[Part, ...] = ()
    packages: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The packages in the image by kind, as far as they are locked."""
    stages: tuple[int, ...] = ()
    downloads: tuple[Download, ...] = ()
    tests: SmokeResults = SmokeResults()
    instances: tuple[int, ...] = ()
    """The instance types that fit."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Code that starts a job with the newest release, by the name of the SDK."""
    releases: tuple[ReleaseRow, ...] = ()
    """Newest first."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The content of the page."""

    project: str
    commit: str
    columns: Mapping[str, str]
    """Titles of the states, by key."""
    ledger_problem: str
    """Why the ledger could not be read; empty if it could."""
    images: tuple[ImageReport, ...]
    places: Sequence[tuple[str, int, str]]
    packages: Sequence[tuple[str, str, int]]
    """Name, version and bytes."""
    stages: Sequence[tuple[str, str]]
    """Build key and title."""
    instances: tuple[Instance, ...]
    builds: tuple[Build, ...]
    """Newest first."""
    since: Comparison | None = None
    """Differences from a commit, if one was named."""

    @property
    def images_with_problems(self) -> tuple[ImageReport, ...]:
        """Images that need attention."""
        return tuple(
            image for image in self.images if any(map(states.needs_attention, image.states.values()))
        )

    @property
    def newest_record(self) -> str:
        """Day of its newest record, which does not change with the day of the report; empty without one."""
        days = [
            day for image in self.images for day in (image.tests.date, *(it.date for it in image.releases))
        ]
        return max((*days, *(build.started for build in self.builds)), default="")[:10]

    @property
    def recorded_columns(self) -> tuple[str, ...]:
        """Keys of the columns in which an image has a record."""
        empty = states.not_recorded().text
        return tuple(
            key
            for key in self.columns
            if any(
                it.states[key].text != empty and it.states[key].mark is not Mark.NOT_APPLICABLE
                for it in self.images
            )
        )


COLUMNS = {
    "resolved": "Resolved",
    "run": "Built",
    "cpu": "CPU tests",
    "gpu": "GPU tests",
    "scanned": "Scanned",
    "signed": "Signed",
    "released": "Released",
}


class _Table(dict[_Row, int]):
    """Rows that images share, with their indices."""

    def index(self, row: _Row) -> int:
        return self.setdefault(row, len(self))


def read_fleet(workspace: Workspace, patterns: Sequence[str], revision: str = "") -> Fleet:
    """Return the content of the page for the images that match names or globs.

    With a `revision`, it also has the differences from that commit. Images with mistakes and unreadable
    records are failures of the workspace, which do not stop the others.
    """
    recipes = sorted(select(workspace, patterns).recipes, key=lambda recipe: not recipe.purpose)
    reader = _Reader(workspace)
    fleet = reader.read(recipes)
    if not revision:
        return fleet
    return replace(fleet, since=compare_commit(workspace, revision, patterns, recipes, reader.present))


class _Reader:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._project = workspace.project
        self._ledger: Ledger = open_ledger(self._project)
        self._ledger_problem = ""
        self._layers = known_layers(self._project)
        self._instances = tuple(sorted(instances(workspace.catalog).values(), key=_by_family))
        self._places = Places(self._project)
        self._packages = _Table[tuple[str, str, int]]()
        self._stages = _Table[tuple[str, str]]()
        self.present: dict[str, PresentImage] = {}
        """The images that can be planned, after `read`."""

    def read(self, recipes: Sequence[Recipe]) -> Fleet:
        self._is_searched = len(recipes) <= _MAX_SEARCHED
        resolutions: dict[str, Resolution] = {}
        problems: dict[str, str] = {}
        for recipe in recipes:
            try:
                resolution = resolve(recipe, self._workspace.catalog)
            except Unsatisfiable as error:
                problems[recipe.name] = _conflict(error, self._workspace.catalog)
                continue
            if resolution.missing_packages:
                problems[recipe.name] = "the lock of its requirements is outdated; run `bake lock`"
            else:
                resolutions[recipe.name] = resolution
        planned = plan_resolutions(self._workspace, resolutions.values()).images
        images = {image.name: image for image in planned}
        reports = tuple(
            self._image(recipe, resolutions[recipe.name], images[recipe.name])
            if recipe.name in images
            else self._unresolved(recipe, problems.get(recipe.name, "the image cannot be planned"))
            for recipe in recipes
        )
        return Fleet(
            project=self._project.root.name,
            commit=git_history.current(self._project.root),
            columns=COLUMNS,
            ledger_problem=self._ledger_problem,
            images=reports,
            places=self._places.rows,
            packages=[*self._packages],
            stages=[*self._stages],
            instances=self._instances,
            builds=load_builds(self._project.state)[::-1],
        )

    def _unresolved(self, recipe: Recipe, problem: str) -> ImageReport:
        unknown = {column: states.not_recorded() for column in COLUMNS}
        return ImageReport(
            name=recipe.name,
            purpose=_purpose(recipe),
            summary=_one_line(recipe.summary),
            place=self._places.index(recipe.location),
            versions=("", "", ""),
            facets={"purpose": _purpose(recipe)},
            states=unknown | {"resolved": CellState(Mark.FAILED, "no", f"{problem}.")},
            problem=problem,
        )

    def _image(self, recipe: Recipe, resolution: Resolution, image: Image) -> ImageReport:
        records = by_release(self._kept(partial(self._records, image.name)) or ())[::-1]
        current = [record for record in records if record.key == image.key]
        others = [record for record in records if record.key != image.key]
        rendered = self._rendered_key(image.name)
        tests = self._tests(image, current, is_rendered=rendered == image.recipe_key)
        checks = {check.name: str(check.outcome) for check in tests.checks}
        size = size_of(current)
        self.present[image.name] = PresentImage(resolution, image, checks, size, records)
        release = image_uris.current(self._project, records[::-1])
        run = states.run_state(image, state_of(image, self._layers), rendered)
        gpu = states.checks_state([check.outcome for check in tests.checks if check.on_gpus])
        return ImageReport(
            name=image.name,
            purpose=_purpose(recipe),
            summary=_one_line(recipe.summary),
            place=self._places.index(recipe.location),
            versions=_versions(resolution),
            facets=_facets(recipe, resolution, run),
            states={
                "resolved": CellState(Mark.DONE, "yes"),
                "run": run,
                "cpu": states.checks_state([check.outcome for check in tests.checks if not check.on_gpus]),
                "gpu": gpu if image.gpu else CellState(Mark.NOT_APPLICABLE, "CPU image"),
                "scanned": states.scan_state(current),
                "signed": states.signature_state(current),
                "released": states.release_state(current, others, release),
            },
            warnings=image.known.problems,
            base=image.base.reference,
            parts=versions.parts(
                resolution, self._workspace.catalog, self._places, is_searched=self._is_searched
            ),
            packages=self._package_tables(image),
            stages=tuple(self._stages.index((stage.key, stage.title)) for stage in image.layers),
            downloads=self._downloads(image),
            tests=tests,
            instances=tuple(
                number for number, instance in enumerate(self._instances) if _fits(instance, image)
            ),
            code=self._code(release),
            releases=_releases(records, image),
        )

    def _records(self, image: str) -> tuple[ReleaseRecord, ...]:
        """Return the records of the ledger, or those of its copies if the ledger cannot be read."""
        if not self._ledger_problem:
            try:
                return self._ledger.records(image)
            except PublishError as error:
                leave_out(self._workspace, error)
                # Other images would wait for AWS again
                self._ledger_problem = error.diagnostics[0].message
        return FileLedger(self._project).records(image)

    def _kept(self, read: Callable[[], _Value]) -> _Value | None:
        """Return records; None if they cannot be read, which is reported at the end."""
        try:
            return read()
        except BakehouseError as error:
            leave_out(self._workspace, error)
            return None

    def _rendered_key(self, image: str) -> object:
        try:
            content = read_bytes(self._project.images / image / image_lock.FILE)
            return parse_json(content).get("key")
        except (OSError, ValueError, AttributeError):
            return None

    def _tests(self, image: Image, current: Sequence[ReleaseRecord], *, is_rendered: bool) -> SmokeResults:
        """Return the results of what was built from the image, else those of the ledger."""
        built = up_to_date.built_content(image, self._project) if is_rendered else None
        for content in (built, *contents_of(image, self._layers)):
            known = content and self._kept(partial(known_checks, self._project, image, content))
            if known and known.date:
                return SmokeResults(self._checks(known), known.machine, known.date, known.transport)
        for record in current:
            if record.checks:
                checks = tuple(
                    CheckRow(check.name, check.outcome, check.name in GPU_CHECKS) for check in record.checks
                )
                return SmokeResults(checks, "", record.date, record.transport)
        return SmokeResults()

    def _checks(self, known: KnownChecks) -> tuple[CheckRow, ...]:
        def shown(path: Path | str | None) -> str:
            return versions.relative(Path(path), self._project) if path else ""

        return tuple(
            CheckRow(
                name=check.name,
                outcome=check.outcome,
                on_gpus=check.name in GPU_CHECKS,
                seconds=round(check.seconds, 1),
                reason=check.reason,
                rank=check.failed_rank,
                source=shown(check.source),
                tail=check.tail,
                log=shown(check.log),
            )
            for check in known.checks
        )

    def _package_tables(self, image: Image) -> dict[str, tuple[int, ...]]:
        base = image.base.debs if isinstance(image.base, BootstrappedBase) else ()
        python = [package for stage in image.stages for package in (*stage.wheels, *stage.sdists)]
        return {
            "Python": self._package_indices(python),
            "Debian": self._package_indices((*base, *image.apt_debs)),
        }

    def _downloads(self, image: Image) -> tuple[Download, ...]:
        base = image.base.debs if isinstance(image.base, BootstrappedBase) else ()
        rows = [self._stage_download(stage) for stage in image.stages]
        for name, debs in (
            ("Debian packages of the base", base),
            ("Debian packages of the image", image.apt_debs),
            ("Debian packages of all build stages", image.toolchain_debs),
        ):
            rows.append(Download(name, sum(deb.bytes for deb in debs), True, self._package_indices(debs)))
        return tuple(sorted((row for row in rows if row.bytes), key=lambda row: (-row.bytes, row.name)))

    def _stage_download(self, stage: Stage) -> Download:
        packages: tuple[Package | Deb, ...] = (*stage.wheels, *stage.sdists, *stage.debs)
        files = [artifact.bytes for artifact in stage.artifacts.values()]
        total = sum(package.bytes for package in packages) + sum(size or 0 for size in files)
        name = stage.title if stage.name == REQUIREMENTS else stage.part.component
        return Download(name, total, None not in files, self._package_indices(packages))

    def _package_indices(self, packages: Iterable[Package | Deb]) -> tuple[int, ...]:
        rows = {(package.name, package.version, package.bytes) for package in packages}
        return tuple(map(self._packages.index, sorted(rows)))

    def _code(self, release: ReleaseRecord | None) -> dict[str, str]:
        code: dict[str, str] = {}
        if release is None:
            return code
        for sdk in _SDKS:
            try:
                recipe = self._workspace.recipes.get(release.image)
                job = snippet(release, JobSpec(sdk=sdk), self._workspace.catalog, recipe)
            except UsageError:
                # The SDK cannot start such a job
                continue
            code[SDKS[job.sdk]] = job.code
        return code


def _conflict(error: Unsatisfiable, catalog: Catalog) -> str:
    [diagnostic] = conflict_report.conflict_error(error.conflict, catalog, 0).diagnostics
    return "; ".join([diagnostic.message, *(reason.text for reason in diagnostic.reasons)])


def _purpose(recipe: Recipe) -> str:
    return recipe.purpose or (ARCHIVE if recipe.is_archived else "own image")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _versions(resolution: Resolution) -> tuple[str, str, str]:
    names = ((known.title, resolution.version_of(name)) for name, known in FRAMEWORKS.items())
    framework = ", ".join(f"{title} {version}" for title, version in names if version)
    return framework, resolution.version_of("cuda") or "", resolution.version_of("python") or ""


def _facets(recipe: Recipe, resolution: Resolution, run: CellState) -> dict[str, str]:
    frameworks = [known.title for name, known in FRAMEWORKS.items() if resolution.version_of(name)]
    _, cuda, python = _versions(resolution)
    return {
        "framework": ", ".join(frameworks) or "none",
        "cuda": ".".join(cuda.split(".")[:2]) or "none",
        "python": ".".join(python.split(".")[:2]) or "none",
        "purpose": _purpose(recipe),
        "run": run.text.partition(";")[0],
    }


def _fits(instance: Instance, image: Image) -> bool:
    """Return whether an image runs on an instance type, as far as the catalogue knows its accelerators."""
    is_known = instance.gpus == 0 or bool(instance.gpus and instance.gpu_architecture)
    if not is_known:
        return False
    accelerators = InstanceGpus(
        instance.name,
        bool(instance.gpus),
        instance.gpu_architecture,
        instance.neuron_architecture,
        platform_of(instance.name),
    )
    return not accelerators.unfit(
        gpu=image.gpu,
        architecture=image.gpu_architecture,
        neuron_architecture=image.neuron_architecture,
        platform=image.platform,
    )


def _by_family(instance: Instance) -> tuple[str, int, str]:
    return (instance.family, instance.vcpus or 0, instance.name)


def _releases(records: Sequence[ReleaseRecord], image: Image) -> tuple[ReleaseRow, ...]:
    """Return the releases of records, which start with the newest, and their differences."""
    line = [record for record in timeline(records[::-1]) if record.is_released]
    changes = neighbours(line)
    since = dict(zip(line, ["", *(record.date for record in line)], strict=False))
    return tuple(
        _release(record, image, since.get(record), changes.get(record.digest, ()) if record in since else ())
        for record in records
    )


def _release(
    record: ReleaseRecord, image: Image, since: str | None, changes: tuple[Change, ...]
) -> ReleaseRow:
    return ReleaseRow(
        date=record.date,
        image_uri=record.image_uri,
        tags=record.tags,
        bytes=record.bytes,
        revision=record.revision,
        state=states.release_kind(record),
        is_current=record.key == image.key,
        checks=tuple((check.name, check.outcome) for check in record.checks),
        parts=tuple((part.component, f"{part.version} {part.variant}".strip()) for part in record.parts),
        since=since,
        changes=changes,
    )
