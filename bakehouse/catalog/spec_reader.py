"""Reader of the specification of a component, release or variant; recipes share some of the checks."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from bakehouse.catalog.component import (
    Artifact,
    ArtifactKind,
    BaseSource,
    Frozen,
    Incompatibility,
    Registries,
    Requirement,
    VariantSpec,
)
from bakehouse.catalog.python_lock import Lock
from bakehouse.catalog.system_packages import APT_PACKAGE, read_packages
from bakehouse.catalog.trim import read_trims
from bakehouse.errors import Diagnostic, Location, Problems
from bakehouse.util.files import is_file
from bakehouse.util.oci import PLATFORMS
from bakehouse.util.suggest import suggestion
from bakehouse.util.yaml_fields import Fields
from bakehouse.util.yaml_reader import Node, Scalar

UNKNOWN = "unknown"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ABSOLUTE_PATH = re.compile(r"/[A-Za-z0-9._/+@-]*")
_BELOW = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*")
_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SUITE = re.compile(r"[a-z][a-z0-9-]*")
_SOURCES: dict[ArtifactKind, tuple[re.Pattern[str], str]] = {
    "url": (_URL, "an http(s) URL with special characters percent-encoded"),
    "pypi": (re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+"), "name==version"),
    "debian": (re.compile(r"[a-z0-9][a-z0-9.+-]+=[A-Za-z0-9.+:~-]+"), "package=version"),
}
_MAX_VERSION_LENGTH = 500
"""Python refuses to parse numbers with thousands of digits."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONFIDENCES = ("high", "medium", "low")
_SEVERITIES = ("error", "warning")
_ANY = "any"
_PACKAGE = re.compile("[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*")
_PACKAGES = re.compile("[a-z0-9*]+(-[a-z0-9*]+)*")
_REGION = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
_HOST = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*(:[0-9]{1,5})?(/[a-z0-9]+([._-][a-z0-9]+)*)*")


def read_spec(fields: Fields, directory: Path, above: VariantSpec) -> VariantSpec:
    """Read the specification of a component, release or variant, merged with the level above."""
    lock = _lock(fields, directory) or above.lock
    replaces = (*above.replaces, *fields.matching("replaces", _PACKAGE, "name of a Python package"))
    return VariantSpec(
        requires=(*above.requires, *_requirements(fields, "requires")),
        constraints=(*above.constraints, *_requirements(fields, "constraints")),
        recommends=(*above.recommends, *_requirements(fields, "recommends")),
        tested=(*above.tested, *_requirements(fields, "tested")),
        provides={**above.provides, **_provides(fields)},
        artifacts=tuple(
            {artifact.name: artifact for artifact in (*above.artifacts, *_artifacts(fields))}.values()
        ),
        conflicts=(*above.conflicts, *_conflicts(fields)),
        lock=replace(lock, replaces=replaces) if lock and replaces else lock,
        replaces=replaces,
        system_packages=above.system_packages + read_packages(fields, "packages"),
        build_packages=above.build_packages + read_packages(fields, "build_packages"),
        environment={**above.environment, **environment(fields)},
        path=(*above.path, *fields.matching("path", _ABSOLUTE_PATH, "plain absolute path")),
        library_path=(
            *above.library_path,
            *fields.matching("library_path", _ABSOLUTE_PATH, "plain absolute path"),
        ),
        entrypoint=fields.texts("entrypoint") or above.entrypoint,
        facts={**above.facts, **_facts(fields)},
        trims=read_trims(fields, above.trims),
        gpu=fields.flag("gpu", default=above.gpu),
        base=_base(fields) or above.base,
        platforms=read_platforms(fields, above.platforms),
    )


def read_platforms(fields: Fields, default: tuple[str, ...]) -> tuple[str, ...]:
    """Read the list `platforms`, in the order of PLATFORMS."""
    given = fields.scalars("platforms")
    for item in given:
        if item.text not in PLATFORMS:
            hint = suggestion(item.text, PLATFORMS)
            fields.report(f"`{item.text}` is not a platform of images", item.location, hint=hint)
    if fields.has("platforms") and not given:
        fields.report("`platforms` is empty", fields.place("platforms"), hint="remove it, or name a platform")
    names = {item.text for item in given}
    return tuple(platform for platform in PLATFORMS if platform in names) or default


def requirement(name: Scalar, specifier: Scalar, problems: Problems) -> Requirement | None:
    """Read `name: specifier`; `*` means any version, and a bare version means exactly that one."""
    text = specifier.text.strip()
    if not text:
        message = f"`{name.text}` has no version range"
        problems.add(Diagnostic(message, name.location, hint=f'write `{name.text}: "*"` for any version'))
        return None
    if text == "*":
        text = ""
    elif re.fullmatch(r"[0-9][0-9A-Za-z.+]*", text):
        text = f"=={text}" if text.count(".") > 1 else f"=={text}.*"
    try:
        if len(text) > _MAX_VERSION_LENGTH:
            raise InvalidSpecifier
        SpecifierSet(text)
    except InvalidSpecifier:
        hint = 'write versions as ">=2.9,<3" or "2.9.1", or "*" for any'
        problems.add(Diagnostic(f"`{specifier.text}` is not a version range", specifier.location, hint=hint))
        return None
    return Requirement(name.text, text, specifier.location)


def environment(fields: Fields) -> dict[str, str]:
    """Read the variables of `environment`, which are not expanded."""
    variables = {}
    for name, value in fields.text_pairs("environment"):
        if not _VARIABLE.fullmatch(name.text):
            fields.report(f"`{name.text}` is not a variable name", name.location)
        elif "\n" in value.text:
            fields.report(f"the value of `{name.text}` must be one line", value.location)
        elif name.text in ("PATH", "LD_LIBRARY_PATH") and "$" in value.text:
            hint = "put programs into /usr/local/bin or /opt/ml/code, which are on PATH"
            label = "variables are not expanded"
            fields.report(f"`{name.text}` cannot refer to variables", value.location, label, hint)
        variables[name.text] = value.text
    return variables


def is_version(text: str) -> bool:
    """Return whether a text is a version of PEP 440 without surrounding space."""
    if len(text) > _MAX_VERSION_LENGTH:
        return False
    try:
        Version(text)
    except InvalidVersion:
        return False
    return text == text.strip()


def evidence(fields: Fields) -> str:
    """Check `source`, `notes` and `confidence`, which are for readers only, and return the source."""
    fields.text("notes")
    fields.choice("confidence", _CONFIDENCES, "high")
    return fields.text("source")


def read_registries(fields: Fields) -> Registries | None:
    """Read a component's table of hosts by region, or the name of the component that has the table."""
    hosts = {}
    for region, host in fields.text_pairs("registries"):
        if not _REGION.fullmatch(region.text):
            fields.report(f"`{region.text}` is not the name of a region", region.location)
        if not _HOST.fullmatch(host.text):
            fields.report(f"`{host.text}` is not the host of a registry", host.location)
        hosts[region.text] = host.text
    other = fields.text("registries_of")
    if hosts:
        return Registries(hosts, "", fields.place("registries"))
    return Registries({}, other, fields.place("registries_of")) if other else None


def read_frozen(fields: Fields) -> tuple[Frozen, ...]:
    """Read the Python packages that a base must keep, each with the name of its version, or `any`."""
    packages = []
    for name, value in fields.text_pairs("frozen"):
        if not _PACKAGES.fullmatch(name.text):
            label = "lowercase letters, digits, `-` and `*`"
            fields.report(f"`{name.text}` is not a name or glob of Python packages", name.location, label)
        packages.append(Frozen(name.text, "" if value.text == _ANY else value.text, name.location))
    return tuple(packages)


def _facts(fields: Fields) -> dict[str, str]:
    """Read facts, which must be single lines because templates insert them into shell commands."""
    facts = {}
    for name, value in fields.text_pairs("facts"):
        if "\n" in value.text:
            hint = "write `>-` before the text to join its lines"
            fields.report(f"fact `{name.text}` must be one line", value.location, hint=hint)
        facts[name.text] = value.text
    return facts


def _requirements(fields: Fields, key: str) -> tuple[Requirement, ...]:
    return tuple(
        each for pair in fields.text_pairs(key) if (each := requirement(*pair, fields.problems)) is not None
    )


def _lock(fields: Fields, directory: Path) -> Lock | None:
    requirements = fields.texts("requirements")
    if not (name := fields.text("lock")):
        if requirements:
            hint = "set `lock` to the file that pins them"
            fields.report("`requirements` without `lock`", fields.place("requirements"), hint=hint)
        return None
    path = directory / name
    if not _BELOW.fullmatch(name):
        label = "letters, digits and `._+-` between slashes, below the component's directory"
        fields.report(f"`{name}` is not a relative path of a lock", fields.place("lock"), label)
    # A missing lock that `bake lock` can make is reported when it is needed.
    elif not requirements and not is_file(path):
        hint = "set `requirements` and run `bake lock`, or write the lock yourself"
        fields.report(f"lock `{path.name}` does not exist", fields.place("lock"), hint=hint)
    return Lock(path, fields.place("lock"), requirements)


def _conflicts(fields: Fields) -> tuple[Incompatibility, ...]:
    conflicts = []
    for child in fields.children("conflicts", "a conflict"):
        parts = _requirements(child, "with")
        if not parts and child.require("with"):
            child.report("`with` is empty", child.place("with"))
        reason, source = child.text("reason", required=True), child.text("source", required=True)
        confidence = child.choice("confidence", _CONFIDENCES, "high")
        severity = child.choice("severity", _SEVERITIES, "warning" if confidence == "low" else "error")
        child.finish()
        is_error = severity == "error"
        place, is_low = child.place("reason"), confidence == "low"
        conflicts.append(Incompatibility(parts, reason, source, is_error, place, is_unconfirmed=is_low))
    return tuple(conflicts)


def _provides(fields: Fields) -> dict[str, str]:
    provided = {}
    for name, value in fields.text_pairs("provides"):
        if is_version(value.text):
            provided[name.text] = value.text
        else:
            fields.report(f"`{value.text}` is not a version", value.location)
    return provided


def _artifacts(fields: Fields) -> tuple[Artifact, ...]:
    artifacts = (_artifact(name.text, node, fields) for name, node in fields.pairs("artifacts"))
    return tuple(artifact for artifact in artifacts if artifact)


def _artifact(name: str, node: Node, owner: Fields) -> Artifact | None:
    fields = owner.inner(node, f"artifact `{name}`")
    evidence(fields)
    kind = fields.one_of(_SOURCES)
    if kind is None:
        return None
    source = fields.text(kind)
    pattern, form = _SOURCES[kind]
    if not pattern.fullmatch(source):
        fields.report(f"`{source}` is not a valid `{kind}` of an artifact", fields.place(kind), form)
    last = unquote(re.split("[?#]", source)[0].rsplit("/", 1)[-1])
    file = fields.text("file", last if kind == "url" else "")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", file):
        fields.report(f"artifact `{name}` needs a plain file name in `file`", fields.place("file"))
    sha256, size = _sha256(fields, name, owner), fields.size("bytes", UNKNOWN)
    fields.finish()
    return Artifact(name, kind, source, file, sha256, fields.place("sha256"), size, _size_place(fields))


def _size_place(fields: Fields) -> Location | None:
    if fields.has("bytes"):
        return fields.place("bytes")
    # The value of a variable is elsewhere, so a size cannot be added next to it.
    spot = fields.place("sha256")
    return spot if spot.line == fields.key_place("sha256").line else None


def _sha256(fields: Fields, name: str, owner: Fields) -> str | None:
    if fields.lacks("sha256"):
        place = fields.place("url") if fields.has("url") else fields.location
        hint = "write `sha256: unknown`, run `bake lock`, compare with the publisher's, then commit it"
        message = f"artifact `{name}` of {owner.what} has no `sha256`"
        fields.report(message, place, "every artifact is pinned by content", hint)
        return None
    text = fields.text("sha256")
    if text == UNKNOWN:
        return None
    if not _SHA256.fullmatch(text):
        label = f"{len(text)} characters; use 64 of 0-9 and a-f, or `unknown`"
        fields.report(f"`{text}` is not a sha256", fields.place("sha256"), label)
    return text


def _base(fields: Fields) -> BaseSource | None:
    child = fields.child("base", "`base`")
    if child is None:
        return None
    suite, reference = child.text("bootstrap"), child.text("image")
    if bool(suite) == bool(reference):
        child.report("`base` needs either `bootstrap` or `image`", child.location)
    digest = child.text("digest", UNKNOWN)
    if digest != UNKNOWN and not _DIGEST.fullmatch(digest):
        message = f"`{digest}` is not a digest: use `sha256:` and 64 hex digits, or `unknown`"
        child.report(message, child.place("digest"))
    source = BaseSource(
        suite=suite,
        packages=child.matching("packages", APT_PACKAGE, "apt package name"),
        reference=reference,
        digest=None if digest == UNKNOWN else digest,
        digest_location=child.place("digest"),
        build_reference=child.text("build_image"),
        build_location=child.place("build_image"),
    )
    if suite and not _SUITE.fullmatch(suite):
        child.report(f"`{suite}` is not the name of a suite", child.place("bootstrap"))
    for key, name in (("image", source.reference), ("build_image", source.build_reference)):
        if name and not _IMAGE.fullmatch(name):
            child.report(f"`{name}` is not an image name", child.place(key))
    if "@" in source.reference:
        child.report("write the digest of a base as `digest`", child.place("image"))
    if "@" in source.build_reference and not _DIGEST.fullmatch(source.build_reference.partition("@")[2]):
        message = f"`{source.build_reference}` has no digest after `@`"
        child.report(message, child.place("build_image"), "`sha256:` and 64 hex digits")
    child.finish()
    return source
