"""Finds the digest-pinned address of a tested release, for an estimator.

    from bakehouse import image_uris
    image_uris.retrieve("pytorch", region="eu-west-1", instance_type="ml.p4d.24xlarge")

Reads ledgers only, with Python's own library.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakehouse.catalog import project
from bakehouse.catalog.instance_gpus import InstanceGpus, find_gpus
from bakehouse.errors import Diagnostic, Reason, UsageError
from bakehouse.publish.releases import ReleaseRecord, by_release, load, newest_first
from bakehouse.util.oci import is_named

REHEARSAL = "rehearsal/"
"""What names of rehearsed images begin with."""
FRAMEWORKS = ("pytorch", "tensorflow")
_MOST_REASONS = 6
_TELLING = {
    *("candidate", "entry_point", "gpu", "gpu_architecture", "parts", "provides", "regions", "registry"),
    "tested",
}
"""The fields of a record that say whether it fits: see `_of_framework` and `_unfit`."""
_PYTHON = re.compile(r"(?:py)?([0-9])\.?([0-9]*)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a release has to be like; empty is anything."""

    region: str = ""
    version: str = ""
    """Of the framework, or its first numbers."""
    python: str = ""
    registry: str = ""
    """`local`, `ecr` or a host."""
    instance: InstanceGpus | None = None


_ANYTHING = Wanted()


def retrieve(
    framework: str,
    region: str | None = None,
    version: str | None = None,
    py_version: str | None = None,
    instance_type: str | None = None,
    *,
    image_scope: str | None = None,
    registry: str | None = None,
    images: Path | None = None,
) -> str:
    """The `image_uri` of the newest release that fits, as `sagemaker.image_uris.retrieve` is asked for one.

    `framework` is `pytorch`, `tensorflow`, or an image's own name. Raises UsageError, which tells of each
    image why it doesn't fit. `images` is the folder of the ledgers, instead of the current project's.
    """
    try:
        if image_scope not in (None, "training"):
            message = f"there are no images for `{image_scope}`"
            raise UsageError(Diagnostic(message, hint='all are for `image_scope="training"`'))
        wanted = Wanted(
            region=region or "",
            version=version or "",
            python=py_version or "",
            registry=registry or "",
            instance=find_gpus(instance_type) if instance_type else None,
        )
        return find(images or project.images_folder(Path.cwd()), framework, wanted).image_uri
    except UsageError as error:
        # A traceback shows these below the message, which is all it would tell otherwise.
        for diagnostic in error.diagnostics:
            for reason in diagnostic.reasons:
                error.add_note(f"  {reason.text}")
            if diagnostic.hint:
                error.add_note(f"hint: {diagnostic.hint}")
        raise


def newest(images: Path, image: str, *, registry: str | None = None) -> ReleaseRecord:
    """The newest tested release of one image; where `registry` is given, of those there."""
    return find(images, image, Wanted(registry=registry or ""))


def find(images: Path, name: str, wanted: Wanted) -> ReleaseRecord:
    """The newest release that fits, of an image or of all that have a framework.

    Of several images it is the one with the highest version of the framework, of Python and of CUDA, and of
    these the one with the fewest parts.
    """
    records = load(images / name / "releases.json") if _is_plain(name) else ()
    if records:
        found = _of_image(name, records, wanted)
    elif name in FRAMEWORKS:
        found = _of_framework(name, sorted(images.glob("*/releases.json")), wanted)
    else:
        raise _never_released(images, name)
    return _place(found, wanted) or found


def candidate(images: Path, image: str, wanted: Wanted = _ANYTHING) -> ReleaseRecord:
    """The newest that was staged of an image and fits, whether or not it was promoted since."""
    staged = _staged(images, image, lambda one: one.candidate)
    found = _newest_that_fits(staged, wanted, f"no candidate of `{image}` fits")
    return _place(found, wanted) or found


def to_promote(
    images: Path, image: str, *, registry: str | None = None, image_uri: str = ""
) -> ReleaseRecord:
    """The newest candidate, or what was released since; where an address is given, what lies there."""

    def matches_image(one: ReleaseRecord) -> bool:
        is_meant = one.image_uri == image_uri if image_uri else _is_there(one, registry or "")
        return is_meant and (one.candidate or one.tested)

    # By when each address was first published: to promote an older one makes it no newer.
    found = {one.image_uri: one for one in _staged(images, image, matches_image)}
    return list(found.values())[-1]


def _staged(images: Path, image: str, matches_image: Callable[[ReleaseRecord], bool]) -> list[ReleaseRecord]:
    records = load(images / image / "releases.json") if _is_plain(image) else ()
    staged = [one for one in records if matches_image(one)]
    if not staged:
        message = f"no candidate of `{image}` was staged"
        raise UsageError(Diagnostic(message, hint=f"run `./bake push --stage {image}`"))
    return staged


def _of_image(image: str, records: Sequence[ReleaseRecord], wanted: Wanted) -> ReleaseRecord:
    there = [record for record in records if _is_there(record, wanted.registry)]
    if not there:
        known = sorted({record.registry for record in records})
        message = f"`{image}` was never published to `{wanted.registry}`"
        hint = "it is in " + ", ".join(f"`{host}`" for host in known)
        raise UsageError(Diagnostic(message, hint=hint))
    released = [record for record in by_release(there) if record.is_released]
    if not released:
        staged = any(record.candidate for record in there)
        message = f"no release of `{image}` has passed its smoke test"
        hint = f"run `./bake release {image}`"
        if staged:
            hint = f"a candidate is there: smoke-test it, then run `./bake promote {image}`"
        raise UsageError(Diagnostic(message, hint=hint))
    return _newest_that_fits(released, wanted, f"no release of `{image}` fits")


def _newest_that_fits(records: Sequence[ReleaseRecord], wanted: Wanted, otherwise: str) -> ReleaseRecord:
    """Of one image's records, oldest first; raises UsageError with what the newest of them lacks."""
    framework = next((one for one in FRAMEWORKS if records[-1].version_of(one)), "")
    for record in reversed(records):
        if not _unfit(record, framework, wanted):
            return record
    why = _unfit(records[-1], framework, wanted)
    raise UsageError(Diagnostic(otherwise, reasons=(Reason(_told(records[-1], why)),)))


def _of_framework(framework: str, ledgers: Iterable[Path], wanted: Wanted) -> ReleaseRecord:
    """The best of the newest that fit, one of each image."""
    fitting, refused = [], []
    for ledger in ledgers:
        newest = ""
        for record in newest_first(ledger, _TELLING):
            # Code baked into an image is somebody's own: only the image's name means it.
            if not record.is_released or not record.version_of(framework) or record.entry_point:
                continue
            why = _unfit(record, framework, wanted)
            if not why:
                fitting.append(record)
                break
            newest = newest or _told(record, why)
        else:
            refused += [Reason(newest)] if newest else []
    if not fitting:
        raise _none_fits(framework, refused)
    if wanted.instance is None and len({record.gpu for record in fitting}) > 1:
        message = f"there are releases with `{framework}` for GPUs and for CPUs"
        hint = 'tell what the job runs on, as in `instance_type="ml.p4d.24xlarge"`'
        raise UsageError(Diagnostic(message, hint=hint))

    def rank(record: ReleaseRecord) -> tuple[object, ...]:
        versions = (record.version_of(name) for name in (framework, "python", "cuda"))
        return (*(_numbers(version) for version in versions), -len(record.parts), record.date)

    return max(fitting, key=rank)


def _none_fits(framework: str, reasons: list[Reason]) -> UsageError:
    if not reasons:
        message = f"no image with `{framework}` has been released yet"
        return UsageError(
            Diagnostic(message, hint="`./bake list` shows the images, `./bake release` makes one")
        )
    if len(reasons) > _MOST_REASONS:
        reasons[_MOST_REASONS:] = [Reason(f"and {len(reasons) - _MOST_REASONS} more images")]
    message = f"no release with `{framework}` fits"
    return UsageError(
        Diagnostic(message, reasons=tuple(reasons), hint="`./bake releases` lists what there is")
    )


def _told(record: ReleaseRecord, why: str) -> str:
    return f"`{record.image}` of {record.date} {why}"


def _unfit(record: ReleaseRecord, framework: str, wanted: Wanted) -> str:
    """Why a release is not what is wanted, as a clause; empty where it is."""
    if not _is_there(record, wanted.registry):
        return f"is in `{record.registry}`"
    if not _place(record, wanted):
        where = " and ".join(one.region for one in record.places if one.region)
        return f"is in {where}" if where else f"is in `{record.registry}`, which is no registry of AWS"
    has = record.version_of(framework)
    if wanted.version and not _begins(has, wanted.version):
        return f"has {framework} {has}" if has else "has no framework"
    python = record.version_of("python")
    if wanted.python and not _begins(python, _python(wanted.python)):
        return f"has Python {python}"
    if wanted.instance:
        return wanted.instance.unfit(gpu=record.gpu, architecture=record.gpu_architecture)
    return ""


def _is_there(record: ReleaseRecord, registry: str) -> bool:
    return not registry or any(is_named(one.registry, registry) for one in record.places)


def _place(record: ReleaseRecord, wanted: Wanted) -> ReleaseRecord | None:
    """The release where it is wanted: in a region, in a registry, or foremost."""
    for one in record.places:
        if wanted.region in ("", one.region) and (
            not wanted.registry or is_named(one.registry, wanted.registry)
        ):
            return one
    return None


def _begins(version: str, start: str) -> bool:
    """Whether a version's first numbers are these."""
    wanted = start.split(".")
    return version.split(".")[: len(wanted)] == wanted


def _python(name: str) -> str:
    """`3.11` of `py311`, as SageMaker's users write it."""
    found = _PYTHON.fullmatch(name)
    if found is None:
        raise UsageError(Diagnostic(f"`{name}` is no version of Python", hint="such as `py311` or `3.11`"))
    return ".".join(filter(None, found.groups()))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall("[0-9]+", version))


def _is_plain(name: str) -> bool:
    """Whether a name is one of a folder, and leads to no other."""
    return "/" not in name and name not in ("", ".", "..")


def _never_released(images: Path, image: str) -> UsageError:
    if image.startswith(REHEARSAL):
        message, name = (
            f"`{image}` was rehearsed, not built: it has no address",
            image.removeprefix(REHEARSAL),
        )
        return UsageError(Diagnostic(message, hint=f"run `./bake release {name}`"))
    known = sorted(folder.name for folder in images.iterdir() if folder.is_dir()) if images.is_dir() else []
    if image in known:
        message, hint = f"`{image}` has not been released yet", f"run `./bake release {image}`"
        return UsageError(Diagnostic(message, hint=hint))
    import difflib

    near = difflib.get_close_matches(image, [*known, *FRAMEWORKS], 1, 0.7)
    hint = f"did you mean `{near[0]}`?" if near else "`./bake list` shows the images"
    return UsageError(Diagnostic(f"unknown image `{image}`", hint=hint))
