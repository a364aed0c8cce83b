"""Names of releases on the command line: an image URI, a tag, or a digest or its first characters."""

import re
from collections.abc import Iterable, Mapping, Sequence

from bakehouse.errors import Diagnostic, UsageError
from bakehouse.ledger.releases import ReleaseRecord, by_release

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{6,64})")


def matches(ledger: Mapping[str, Sequence[ReleaseRecord]], text: str) -> dict[str, dict[str, ReleaseRecord]]:
    """Return the records that a text names, by image and digest. A tag names the newest one that has it."""
    named: dict[str, dict[str, ReleaseRecord]] = {}
    for image, records in ledger.items():
        # A tag, such as a date, can look like a digest
        tagged = next((record for record in reversed(by_release(records)) if _has_tag(record, text)), None)
        for record in records:
            if record is tagged or _has_digest(record, text):
                named.setdefault(image, {}).setdefault(record.digest, record)
    return named


def _has_digest(record: ReleaseRecord, text: str) -> bool:
    if digest := _DIGEST.fullmatch(text.rpartition("@")[2]):
        names = (record.digest, record.config)
        return any(name.removeprefix("sha256:").startswith(digest[1]) for name in names)
    return False


def _has_tag(record: ReleaseRecord, text: str) -> bool:
    return any(
        text in (tag, f"{place.registry}/{place.repository}:{tag}")
        for place in record.locations
        for tag in place.tags
    )


def find_digest(image: str, records: Sequence[ReleaseRecord], text: str) -> str:
    """Return the digest of the release of an image that a text names. Raises UsageError."""
    by_digest = matches({image: records}, text).get(image, {})
    if not by_digest:
        raise UsageError.of(unknown(text, [image]))
    if len(by_digest) > 1:
        raise UsageError.of(ambiguous(text, by_digest))
    return next(iter(by_digest))


def unknown(text: str, images: Iterable[str]) -> Diagnostic:
    """Return the error for a text that names none of the releases of `images`."""
    if any(text == image or text.endswith(f"/{image}:{image}") for image in images):
        return Diagnostic(
            f"the ledger does not record where the moving tag `{text}` points",
            hint="name the digest of the release; `bake releases` lists all",
        )
    return Diagnostic(f"no release is named `{text}`", hint="run `bake releases` to list the releases")


def ambiguous(text: str, by_digest: Mapping[str, ReleaseRecord]) -> Diagnostic:
    """Return the error for a text that names several releases."""
    rows = tuple((record.date, digest) for digest, record in by_digest.items())
    return Diagnostic(f"several releases are named `{text}`", facts=rows, hint="write more of the digest")
