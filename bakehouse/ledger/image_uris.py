"""Image URIs of tested releases, pinned by digest, for SageMaker estimators.

    from bakehouse import image_uris
    image_uris.retrieve("pytorch", region="eu-west-1", instance_type="ml.p4d.24xlarge")

Reads only ledgers. Ledgers outside S3 only need the standard library and msgspec.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakehouse.catalog import project
from bakehouse.catalog.instance_gpus import InstanceGpus, find_gpus
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.project import ProjectSettings
from bakehouse.errors import Reason, UsageError
from bakehouse.ledger.releases import (
    ReleaseRecord,
    by_release,
    current_release,
    former_names,
    load,
    newest_first,
    text_of,
)
from bakehouse.util.files import expand_home, make_directory, matching_paths, write_whole
from bakehouse.util.oci import is_named
from bakehouse.util.suggest import suggestion

REHEARSAL = "rehearsal/"
"""Prefix of the names of rehearsed images."""
LEDGER_VARIABLE = "BAKEHOUSE_LEDGER"
_LEDGER_HINT = (
    "run it in the project's directory, or set BAKEHOUSE_LEDGER to the path of its `images` or an `s3://` URL"
)
_LIST_HINT = "run `bake list` to list the images, and `bake release` to release one"
_HOSTS = ("GPUs", "CPUs", "Neuron devices")
_MAX_REASONS = 6
_PYTHON = re.compile(r"(?:py)?([0-9])\.?([0-9]*)")


@dataclass(frozen=True, slots=True)
class ImageQuery:
    """Requirements on a release; empty fields match anything."""

    region: str = ""
    version: str = ""
    """Version of the framework, or its first numbers."""
    python: str = ""
    registry: str = ""
    """`local`, `ecr`, a host, or a registry of the settings of `project`."""
    instance: InstanceGpus | None = None
    project: ProjectSettings | None = None
    """Project whose registry is searched if `registry` is empty."""

    def selects(self, record: ReleaseRecord) -> bool:
        """Return whether the registry of a record is searched."""
        if self.project and (not self.registry or self.registry in self.project.registries):
            return self.project.publishes_to(record.registry, record.repository, self.registry_name)
        return not self.registry or is_named(record.registry, self.registry)

    @property
    def registry_name(self) -> str:
        """Return the name of the registry that is searched."""
        return self.registry or (self.project.registry if self.project else "")


_ANY = ImageQuery()


def retrieve(
    framework: str,
    region: str | None = None,
    version: str | None = None,
    py_version: str | None = None,
    instance_type: str | None = None,
    *,
    image_scope: str | None = None,
    registry: str | None = None,
    ledger: str | os.PathLike[str] | None = None,
) -> str:
    """Return the `image_uri` of the newest matching release, with the arguments of the SageMaker SDK.

    `framework` is `pytorch`, `tensorflow`, or the name of an image. `ledger` is as in `open_images`. Raises
    UsageError with a reason for each image, and with the ledger that was searched.
    """
    try:
        if image_scope not in (None, "training"):
            raise UsageError(f"there are no images for `{image_scope}`", hint='use `image_scope="training"`')
        query = ImageQuery(
            region=region or "",
            version=version or "",
            python=py_version or "",
            registry=registry or "",
            instance=find_gpus(instance_type) if instance_type else None,
        )
        with open_images(ledger, framework) as images:
            return find(images, framework, replace(query, project=owner(images))).image_uri
    except UsageError as error:
        error.annotate()
        raise


@contextlib.contextmanager
def open_images(ledger: str | os.PathLike[str] | None, name: str) -> Iterator[Path]:
    """Yield the directory of the ledgers, and add its location to each UsageError.

    `ledger` is a project, its directory `images`, one `releases.json`, or the `s3://` URL of a team's ledger.
    The default is the environment variable BAKEHOUSE_LEDGER, else the project of the current directory. From
    a ledger in S3, only the records that `name` needs are read.
    """
    variable = os.environ.get(LEDGER_VARIABLE, "")
    given = os.fspath(ledger or variable)
    if name.startswith(REHEARSAL):
        raise UsageError(
            f"`{name}` was rehearsed, not built, so it has no image URI",
            hint=f"run `bake release {name.removeprefix(REHEARSAL)}`",
        )
    origin = "" if ledger else f" ({LEDGER_VARIABLE})" if variable else " (from the current directory)"
    with contextlib.ExitStack() as stack:
        if given.startswith("s3://"):
            from bakehouse.util.tempdir import scratch_directory

            images = stack.enter_context(scratch_directory())
            _download(given, name, images)
            location = given
        else:
            images = _local(expand_home(given)) if given else project.images_directory(Path.cwd())
            location = str(images)
        try:
            # A project without builds has no such directory yet
            is_project = not given and (images.parent / "pyproject.toml").is_file()
            if not images.is_dir() and not is_project:
                raise UsageError("the ledger does not exist", hint=_LEDGER_HINT)
            yield images
        except UsageError as error:
            facts = (("looked in", f"{location}{origin}"),)
            diagnostics = (
                replace(diagnostic, facts=(*diagnostic.facts, *facts)) for diagnostic in error.diagnostics
            )
            raise UsageError.of(*diagnostics) from None


def owner(images: Path) -> ProjectSettings | None:
    """Return the project of a directory of ledgers; None for copies of a ledger elsewhere."""
    settings = project.find(images.parent)
    return settings if settings.images == images else None


def _local(path: Path) -> Path:
    """Return the directory of the ledgers for a project, that directory itself, or one of its ledgers."""
    if path.name == "releases.json":
        return path.absolute().parents[1]
    return (path / "images" if (path / "images").is_dir() else path).absolute()


def _download(url: str, name: str, images: Path) -> None:
    """Write the records of a ledger in S3 as files: those of one image, or of all for a framework."""
    # Only this kind of ledger needs boto3.
    from bakehouse.ledger.s3_ledger import S3Ledger

    team = S3Ledger(url, None)
    names = team.images()
    for image in names:
        make_directory(images / image)
        if image == name or (name in FRAMEWORKS and name not in names):
            write_whole(images / image / "releases.json", text_of(team.records(image)))


def newest(project: ProjectSettings, image: str, *, registry: str = "") -> ReleaseRecord:
    """Return the newest tested release of one image in a registry; by default, in that of the project."""
    return find(project.images, image, ImageQuery(registry=registry, project=project))


def find(
    images: Path, name: str, query: ImageQuery, recipes: Callable[[], Iterable[str]] = tuple
) -> ReleaseRecord:
    """Return the newest matching release of an image, or of all images with a framework.

    Of several images, prefers the highest versions of the framework, Python and CUDA, in this order, then the
    fewest components. `recipes` returns the names of images that may have no release.
    """
    path = images / name / "releases.json"
    if _is_file_name(name) and (newest := _newest_of_image(path, query)):
        return _location(newest, query) or newest
    records = load(path) if _is_file_name(name) else ()
    if records:
        record = _of_image(name, records, query)
    elif name in FRAMEWORKS:
        record = _of_framework(name, matching_paths(images, "*/releases.json"), query)
    else:
        raise _not_released(images, name, recipes())
    return _location(record, query) or record


def current(project: ProjectSettings, records: Sequence[ReleaseRecord]) -> ReleaseRecord | None:
    """Return the current release of an image in the registry of the project; None without one."""
    query = ImageQuery(project=project)
    return current_release(records, lambda record: _is_in(record, query))


def candidate(images: Path, image: str, query: ImageQuery = _ANY) -> ReleaseRecord:
    """Return the newest matching candidate of an image, promoted or not."""
    candidates = _candidates(images, image, lambda record: record.candidate)
    record = _newest_match(candidates, query, f"no candidate of `{image}` fits")
    return _location(record, query) or record


def to_promote(
    project: ProjectSettings, image: str, *, registry: str = "", image_uri: str = ""
) -> ReleaseRecord:
    """Return the newest record of the newest candidate, or of the one with this `image_uri`.

    Candidates in the registry of the project precede those in others.
    """
    query = ImageQuery(registry=registry)

    def matches(record: ReleaseRecord) -> bool:
        is_meant = record.image_uri == image_uri if image_uri else _is_in(record, query)
        return is_meant and (record.candidate or record.tested)

    candidates = _candidates(project.images, image, matches, registry)
    own = [record for record in candidates if _is_in(record, ImageQuery(project=project))]
    return (own or candidates)[-1]


def _candidates(
    images: Path, image: str, matches: Callable[[ReleaseRecord], bool], registry: str = ""
) -> list[ReleaseRecord]:
    """Return matching records in the order of the first publication of each URI, then of their days.

    Promoting an older candidate does not make it newer.
    """
    records = load(images / image / "releases.json") if _is_file_name(image) else ()
    candidates = sorted(filter(matches, records), key=lambda record: record.date)
    if not candidates:
        others = [record.image_uri for record in records if record.candidate]
        reasons = (Reason(f"the newest candidate is `{others[-1]}`"),) if others else ()
        place = f" --registry {registry}" if others and registry else ""
        raise UsageError(
            f"no candidate of `{image}` was published{f' to `{registry}`' if place else ''}",
            reasons=reasons,
            hint=f"run `bake push --candidate {image}{place}`",
        )
    places: dict[str, int] = {}
    for record in candidates:
        places.setdefault(record.image_uri, len(places))
    return sorted(candidates, key=lambda record: places[record.image_uri])


def _newest_of_image(path: Path, query: ImageQuery) -> ReleaseRecord | None:
    """Return the newest match in the ledger of an image. Older records are not validated."""
    framework: str | None = None
    for record in newest_first(path):
        if record.is_released and _is_in(record, query):
            if framework is None:
                framework = next((name for name in FRAMEWORKS if record.version_of(name)), "")
            if not _mismatch(record, framework, query):
                return record
    return None


def _of_image(image: str, records: Sequence[ReleaseRecord], query: ImageQuery) -> ReleaseRecord:
    in_registry = [record for record in records if _is_in(record, query)]
    if not in_registry:
        hosts = sorted({record.registry for record in records})
        hint = "it is in " + ", ".join(f"`{host}`" for host in hosts)
        if not query.registry:
            hint += f"; `bake promote {image} --registry {query.registry_name}` copies its releases"
        raise UsageError(f"`{image}` was never published to `{query.registry_name}`", hint=hint)
    # A copy has the place of its original
    released = [record for record in by_release(records) if record.is_released and _is_in(record, query)]
    if not released:
        message = f"no release of `{image}` has passed its smoke test"
        hint = f"run `bake release {image}`"
        if any(record.candidate for record in in_registry):
            hint = f"smoke-test its candidate, then run `bake promote {image}`"
        raise UsageError(message, hint=hint)
    return _newest_match(released, query, f"no release of `{image}` fits")


def _newest_match(records: Sequence[ReleaseRecord], query: ImageQuery, message: str) -> ReleaseRecord:
    """Newest match among the records of an image, which start with the oldest. Raises UsageError."""
    framework = next((name for name in FRAMEWORKS if records[-1].version_of(name)), "")
    for record in reversed(records):
        if not _mismatch(record, framework, query):
            return record
    raise UsageError(message, reasons=(_reason(records[-1], framework, query),))


def _of_framework(framework: str, ledgers: Sequence[Path], query: ImageQuery) -> ReleaseRecord:
    """Best of the newest matching releases of each image."""
    gpu = query.instance.gpu if query.instance else None
    newest_matches = (
        next(
            (
                record
                for record in _with_framework(framework, ledger, gpu)
                if not _mismatch(record, framework, query)
            ),
            None,
        )
        for ledger in ledgers
    )
    fitting = [record for record in newest_matches if record]
    if not fitting:
        newest = (next(_with_framework(framework, ledger), None) for ledger in ledgers)
        raise _none_fits(framework, [_reason(record, framework, query) for record in newest if record])
    hosts = {_hosts(record) for record in fitting}
    if query.instance is None and len(hosts) > 1:
        listed = " and for ".join(name for name in _HOSTS if name in hosts)
        raise UsageError(
            f"there are releases with `{framework}` for {listed}",
            hint='add the instance type of the job, as in `instance_type="ml.p4d.24xlarge"`',
        )

    def rank(record: ReleaseRecord) -> tuple[object, ...]:
        versions = (record.version_of(name) for name in (framework, "python", "cuda"))
        return (*(_numbers(version) for version in versions), -len(record.parts), record.date)

    return max(fitting, key=rank)


def _hosts(record: ReleaseRecord) -> str:
    """Return what kind of instances a release is for, one of `_HOSTS`."""
    gpus, cpus, neuron = _HOSTS
    return neuron if record.neuron_architecture else gpus if record.gpu else cpus


def _with_framework(framework: str, ledger: Path, gpu: bool | None = None) -> Iterator[ReleaseRecord]:
    """Yield the releases of an image that contain a framework, newest first."""
    for record in newest_first(ledger, gpu):
        # An image with its own training code is selected only by its own name.
        if record.is_released and record.version_of(framework) and not record.entry_point:
            yield record


def _none_fits(framework: str, reasons: list[Reason]) -> UsageError:
    if not reasons:
        message = f"no image with `{framework}` has been released yet"
        return UsageError(message, hint=_LIST_HINT)
    if len(reasons) > _MAX_REASONS:
        reasons[_MAX_REASONS:] = [Reason(f"and {len(reasons) - _MAX_REASONS} more images")]
    message = f"no release with `{framework}` fits"
    hint = "run `bake releases` to list all releases"
    return UsageError(message, reasons=tuple(reasons), hint=hint)


def _reason(record: ReleaseRecord, framework: str, query: ImageQuery) -> Reason:
    return Reason(f"`{record.image}` of {record.date} {_mismatch(record, framework, query)}")


def _mismatch(record: ReleaseRecord, framework: str, query: ImageQuery) -> str:
    """Why a release does not match, as a predicate; empty if it does."""
    if not _is_in(record, query):
        return f"is in `{record.registry}`"
    if not _location(record, query):
        regions = " and ".join(location.region for location in record.locations if location.region)
        return f"is in {regions}" if regions else f"is in `{record.registry}`, which is not in AWS"
    version = record.version_of(framework)
    if query.version and not _has_prefix(version, query.version):
        return f"has {framework} {version}" if version else "has no framework"
    python = record.version_of("python")
    if query.python and not _has_prefix(python, _python(query.python)):
        return f"has Python {python}"
    if query.instance:
        return query.instance.unfit(
            gpu=record.gpu,
            architecture=record.gpu_architecture,
            neuron_architecture=record.neuron_architecture,
            platform=record.platform,
        )
    return ""


def _is_in(record: ReleaseRecord, query: ImageQuery) -> bool:
    return any(map(query.selects, record.locations))


def _location(record: ReleaseRecord, query: ImageQuery) -> ReleaseRecord | None:
    """The first location of a release in the query's region and registry."""
    for location in record.locations:
        if query.region in ("", location.region) and query.selects(location):
            return location
    return None


def _has_prefix(version: str, prefix: str) -> bool:
    """Return whether a version begins with these numbers."""
    numbers = prefix.split(".")
    return version.split(".")[: len(numbers)] == numbers


def _python(name: str) -> str:
    """Return `3.11` for `py311`, as the SageMaker SDK writes it."""
    match = _PYTHON.fullmatch(name)
    if match is None:
        raise UsageError(f"`{name}` is not a Python version", hint="write it as `py311` or `3.11`")
    return ".".join(filter(None, match.groups()))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall("[0-9]+", version))


def _is_file_name(name: str) -> bool:
    """Return whether a name stays within its directory."""
    return "/" not in name and name not in ("", ".", "..")


def _not_released(images: Path, image: str, recipes: Iterable[str]) -> UsageError:
    directories = [path.name for path in matching_paths(images, "*") if path.is_dir()]
    names = {*directories, *recipes}
    if image in names:
        message, hint = f"`{image}` has not been released yet", f"run `bake release {image}`"
        return UsageError(message, hint=hint)
    if present := former_names(images).get(image):
        return UsageError(f"`{image}` was renamed", hint=f"use `{present}`, which has its releases")
    hint = (suggestion(image, [*names, *FRAMEWORKS]) if names else "") or _LIST_HINT
    return UsageError(f"unknown image `{image}`", hint=hint)
