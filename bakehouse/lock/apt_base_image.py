"""Makes the lock of a base that is pulled: asks the base's own apt, in a step of a build, what steps add.

So its sources, its keys and what it has installed decide, as they would in the image; nothing of it is
installed, and no image is made.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from bakehouse.build.build_inputs import BuildInputs
from bakehouse.catalog.apt_lock import Deb, deb_of, stanzas, written
from bakehouse.catalog.base_image_lock import ADDS, BASE, STEP, BaseLock, Step, step_of
from bakehouse.engine import buildx
from bakehouse.engine.buildkit_events import Event
from bakehouse.errors import BuildError, ConflictError, Diagnostic, Reason
from bakehouse.lock import apt
from bakehouse.lock.apt import PackageChange, changes, is_better_match, kept_packages
from bakehouse.plan.dockerfile import filled
from bakehouse.util.tempdir import private_directory

_DOCKERFILE = """\
FROM {{ base }} AS base
COPY --chmod=755 lock/ /lock/
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt,target=/etc/apt/apt.conf.d/99bakehouse <<"END"
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
{% if stale_sources %}
rm -f {{ stale_sources }}
{% endif %}
if [ -s /lock/Packages ]; then
    # Behind all others: what they say of a package now comes before what the lock remembers
    echo 'deb [trusted=yes] copy:/lock ./' > /etc/apt/sources.list.d/zz-lock.list
fi
if [ -s /lock/preferences ]; then cp /lock/preferences /etc/apt/preferences.d/00-lock; fi
apt-get clean
apt-get update -q -o APT::Update::Error-Mode=any
mkdir /found
number=0
while read -r names; do
    number=$((number + 1))
    apt-get install --simulate -q -y --no-install-recommends $names > "/found/$number.steps"
    apt-get install --print-uris -qq -y --no-install-recommends $names > "/found/$number.files"
    sed -n 's/^Inst \\([^ ]*\\) \\(\\[[^]]*\\] \\)\\{0,1\\}(\\([^ ]*\\) .*/\\1=\\3/p' \\
        "/found/$number.steps" > /named
    [ ! -s /named ] || xargs apt-cache show < /named > "/found/$number.packages"
done < /lock/lists
END

FROM scratch
COPY --from=base /found/ /
"""
_INSTALLED = re.compile(r"^Inst (?P<name>\S+) (?:\[\S+\] )?\((?P<version>\S+) ", re.MULTILINE)
_REMOVED = re.compile(r"^Remv (?P<name>\S+)", re.MULTILINE)
_LOGIN = re.compile(r"(?<=://)[^/@]*@")
_URL = re.compile(r"^'([^']+)' \S+ ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class VendorBase:
    """A base, and what images ask of the distribution on it."""

    reference: str
    """With its registry's host and its digest: what is pulled."""
    pinned: str
    """The same without the host."""
    steps: tuple[Step, ...]
    stale_sources: str = ""
    """Files of its apt that can't be refreshed any more."""

    @property
    def name(self) -> str:
        """As people say it, without the digest."""
        return self.reference.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Locked:
    """What steps add to a base, and what of it differs from the lock."""

    steps: Mapping[Step, tuple[str, ...]]
    """The names of the packages that each adds."""
    packages: Mapping[str, Mapping[str, str]]
    """The fields of each in its index, by name."""
    changes: tuple[PackageChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Runner:
    """How steps of a build are run here."""

    state: Path
    inputs: BuildInputs
    on_event: Callable[[Event], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of docker's programs, such as its logins."""


def resolve(
    base: VendorBase, locked: BaseLock | None, run: Runner, *, upgrade: Collection[str] | None = ()
) -> Locked:
    """What the steps add, in the versions that are locked already where there are any.

    `upgrade` names packages to be taken from what the mirrors have now; None is all of them. Raises
    BuildError where the base can't be pulled, or its apt finds no way, in apt's words.
    """
    before = {deb.name: deb for deb in locked.debs} if locked else {}
    kept = list(kept_packages(before, upgrade))
    with private_directory(run.state) as folder:
        context, found = folder / "context", folder / "found"
        _write_context(context, base, locked, kept)
        try:
            buildx.export_files(
                buildx.Target(base.name, "packages", context / "docker-bake.json"),
                found,
                cwd=context,
                state=run.state,
                secrets=run.inputs.secrets,
                arguments=run.inputs.arguments,
                on_event=run.on_event,
                environment=run.environment,
            )
        except BuildError as error:
            raise BuildError(_untold(base, error.diagnostics[0], is_kept=bool(kept))) from error
        # A maintainer's name may be in any encoding
        texts = {path.name: path.read_text("utf-8", "replace") for path in found.iterdir()}
    return read(base, before, texts)


def text(pinned: str, steps: Mapping[Step, Sequence[str]], packages: Iterable[Mapping[str, str]]) -> str:
    """A lock as it is written down."""
    heading = "# A base that is pulled, and each file that a step adds to it; made by `./bake lock`\n"
    stanza = [f"{BASE}: {pinned}\n"]
    stanza += [
        f"{STEP}: {' '.join(step)}\n{ADDS}: {' '.join(names)}\n" for step, names in sorted(steps.items())
    ]
    return "\n".join([heading, *stanza, written(packages)])


def _untold(base: VendorBase, why: Diagnostic, *, is_kept: bool) -> Diagnostic:
    """That the base's apt could not be asked, or found no way, with its own last words."""
    message = f"what steps add to `{base.name}` can't be locked"
    hint = "the base has to be there to be pulled, and its apt to reach its sources and know the packages"
    if is_kept:
        hint += "; where they don't go with what is locked, `./bake lock --upgrade` locks all anew"
    return Diagnostic(message, reasons=(Reason(why.message),), tail=why.tail, hint=hint)


def _write_context(folder: Path, base: VendorBase, locked: BaseLock | None, kept: Iterable[Deb]) -> None:
    lock = folder / "lock"
    lock.mkdir(parents=True)
    (lock / "Packages").write_text(written(apt.fields_of(kept, [locked.path] if locked else ())))
    (lock / "preferences").write_text(apt.pins(kept, base.steps))
    (lock / "lists").write_text("".join(f"{' '.join(step)}\n" for step in base.steps))
    dockerfile = filled(_DOCKERFILE, base=base.reference, stale_sources=base.stale_sources)
    (folder / "Dockerfile").write_text(dockerfile)
    target = {"context": str(folder), "platforms": ["linux/amd64"], "no-cache": True, "attest": []}
    (folder / "docker-bake.json").write_text(json.dumps({"target": {"packages": target}}))


def read(base: VendorBase, before: Mapping[str, Deb], texts: Mapping[str, str]) -> Locked:
    """What apt said in a step: of each list what it would do, where files lie, what packages they are."""
    steps: dict[Step, tuple[str, ...]] = {}
    packages: dict[str, dict[str, str]] = {}
    for number, step in enumerate(base.steps, 1):
        versions = {
            match["name"]: match["version"] for match in _INSTALLED.finditer(texts[f"{number}.steps"])
        }
        if removed := _REMOVED.search(texts[f"{number}.steps"]):
            raise ConflictError(_taken_away(base, step, removed["name"]))
        urls = [unquote(_LOGIN.sub("", url)) for url in _URL.findall(texts[f"{number}.files"])]
        shown = [fields for _, fields in stanzas(texts.get(f"{number}.packages", "")) if "Filename" in fields]
        for fields in shown:
            name, earlier = fields["Package"], before.get(fields["Package"])
            if versions.get(name) != fields["Version"]:
                continue
            if name not in packages or is_better_match(earlier, fields, packages[name]):
                packages[name] = fields | _place(fields, urls, earlier)
        for name, version in versions.items():
            if name in packages and packages[name]["Version"] != version:
                raise ConflictError(_twice(base, name, packages[name]["Version"], version))
        if lost := [name for name in versions if name not in packages or not _is_known(packages[name])]:
            message = f"apt of `{base.name}` tells no file of package `{lost[0]}`"
            hint = "its sources have no sha256 of it, or are reached by other ways than http and https"
            raise BuildError(Diagnostic(message, hint=hint))
        steps[step_of(step)] = tuple(sorted(versions))
    return Locked(steps, packages, changes(before, packages))


def _taken_away(base: VendorBase, step: Step, name: str) -> Diagnostic:
    message = f"a step on `{base.name}` would take `{name}` away from it: {' '.join(step)}"
    hint = "a step adds to a base: name versions in `apt` that go with what it has, or take another base"
    return Diagnostic(message, hint=hint)


def _twice(base: VendorBase, name: str, first: str, second: str) -> Diagnostic:
    message = f"steps on `{base.name}` want `{name}` in two versions, {first} and {second}"
    hint = "a lock has one version of each package: let `apt` of all images on that base name the same"
    return Diagnostic(message, hint=hint)


def _is_known(fields: Mapping[str, str]) -> bool:
    """Whether a package is a file that can be fetched and compared."""
    found = deb_of(fields)
    return found is not None and bool(found.site)


def _place(fields: Mapping[str, str], urls: Sequence[str], before: Deb | None) -> dict[str, str]:
    """Where a package's file lies: below which root, and where there."""
    path = fields["Filename"].removeprefix("./")
    if before and before.sha256 == fields.get("SHA256"):
        return {"Filename": before.path, "Site": before.site}
    url = next((url for url in urls if url.endswith(f"/{path}")), "")
    return {"Filename": path, "Site": url.removesuffix(f"/{path}")}
