"""Finds the digest-pinned address of a published image, for an estimator."""

import difflib
from pathlib import Path

from bakehouse.errors import Diagnostic, UsageError
from bakehouse.registry import is_named
from bakehouse.releases import ReleaseRecord, load

REHEARSAL = "rehearsal/"
"""What names of rehearsed images begin with."""


def retrieve(images: Path, image: str, *, registry: str | None = None, untested: bool = False) -> str:
    """The `image_uri` of the newest tested release of `image`."""
    return newest(images, image, registry=registry, untested=untested).image_uri


def newest(images: Path, image: str, *, registry: str | None = None, untested: bool = False) -> ReleaseRecord:
    """The newest tested release of `image`; where `registry` is `local`, `ecr` or a host, of those there.

    A release whose smoke test was not passed is given only when `untested` ones are asked for.
    """
    records = load(images / image / "releases.json")
    if not records:
        raise _never_released(images, image)
    there = [record for record in records if registry is None or is_named(record.registry, registry)]
    if not there:
        known = sorted({record.registry for record in records})
        message = f"`{image}` was never published to `{registry}`"
        hint = "it is in " + ", ".join(f"`{host}`" for host in known)
        raise UsageError(Diagnostic(message, hint=hint))
    fitting = [record for record in there if record.tested or untested]
    if not fitting:
        message = f"no release of `{image}` has passed its smoke test"
        hint = f"run `./bake release {image}`, or take the newest as it is with `--untested`"
        raise UsageError(Diagnostic(message, hint=hint))
    return fitting[-1]


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
    near = difflib.get_close_matches(image, known, 1, 0.7)
    hint = f"did you mean `{near[0]}`?" if near else "`./bake list` shows the images"
    return UsageError(Diagnostic(f"unknown image `{image}`", hint=hint))
