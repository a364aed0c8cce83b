"""Choice of base, components and versions: what a Dockerfile asks for, as far as it resolves."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from fnmatch import fnmatchcase

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.component import VariantSpec
from bakehouse.catalog.names import FRAMEWORKS
from bakehouse.catalog.recipe import load_recipes
from bakehouse.commands.dockerfile_import.account import Fate
from bakehouse.commands.dockerfile_import.bases import BaseChoice
from bakehouse.commands.dockerfile_import.index import nearest
from bakehouse.commands.dockerfile_import.installs import names
from bakehouse.commands.dockerfile_import.proposal import Proposal, Wish
from bakehouse.commands.dockerfile_import.translate import DockerfileBuild, translate
from bakehouse.errors import RecipeError
from bakehouse.resolve.conflict_report import first_reason
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.tempdir import scratch_directory

_MAX_NEAREST = 60
"""Versions that are tried when the catalogue lacks one."""
_MAX_RELEASES = 8
"""Releases of a base that are tried for a pinned requirement."""
PYTHON = "python"
_FIRST = (PYTHON, *FRAMEWORKS)
"""Components whose versions the others must fit."""
_IMPORTANT = 1000


@dataclass(slots=True)
class ChosenComponents:
    """Base and components of a recipe, which resolve together."""

    base: tuple[str, str]
    components: dict[str, str] = field(default_factory=dict)
    variants: dict[str, str] = field(default_factory=dict)
    choice: BaseChoice | None = None
    resolution: Resolution | None = None
    inexact: dict[str, str] = field(default_factory=dict)
    """Reason by component for those in another version."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Reason by component for those that do not fit."""


def recipe_head(summary: str, selection: ChosenComponents) -> list[str]:
    """Return the first lines of a recipe."""
    name, version = selection.base
    lines = [f"summary: {summary}", f'base: {{{name}: "{version}"}}']
    if selection.components:
        lines.append("components:")
        lines += [f'  {name}: "{versions}"' for name, versions in selection.components.items()]
    if selection.variants:
        pairs = ", ".join(f'{name}: "{glob}"' for name, glob in selection.variants.items())
        lines.append(f"variants: {{{pairs}}}")
    return lines


def import_and_select(
    text: str, build: DockerfileBuild, catalog: Catalog
) -> tuple[Proposal, ChosenComponents]:
    """Translate a Dockerfile, and select versions. What no release replaces is kept as it is."""
    while True:
        proposal = translate(text, build, catalog)
        selection = select(proposal, catalog)
        of_base = {name for name, _, _ in proposal.base.wishes}
        dropped = selection.dropped.keys() - build.excluded.keys() - of_base - {PYTHON}
        if not dropped:
            break
        reasons = {name: _dropped_reason(name, selection) for name in sorted(dropped)}
        build = replace_fields(build, excluded={**build.excluded, **reasons})
    for name, reason in build.excluded.items():
        proposal.image_entry.check(reason, name)
    settle(proposal, selection)
    return proposal, selection


def _dropped_reason(name: str, selection: ChosenComponents) -> str:
    reason = selection.dropped[name]
    because = f" ({reason})" if reason else ""
    text = f"no release of {name} in the catalogue fits {_base_text(selection)}{because}"
    return f"{text}; what installs it is kept"


def select(proposal: Proposal, catalog: Catalog) -> ChosenComponents:
    """Return the selection that keeps most of what a Dockerfile asks for."""
    for name, specifier, variant in proposal.base.wishes:
        text = f"FROM {proposal.image}"
        first = Wish((name,), specifier, variant, proposal.line, text, [proposal.image_entry])
        known = proposal.wishes.get(name)
        if known is None:
            proposal.wishes[name] = first
        elif name != PYTHON or not known.specifier:
            known.specifier = known.specifier or specifier
            known.variant = known.variant or variant
    best: tuple[int, ChosenComponents] | None = None
    for choice in proposal.base.choices:
        if best and (best[0] < _IMPORTANT or choice.note != proposal.base.choices[0].note):
            # Another image would be a larger difference than another version of a library.
            break
        selection = _with_base(proposal, choice, catalog)
        if selection is None:
            continue
        costs = len(selection.inexact) + 10 * len(selection.dropped)
        costs += _IMPORTANT * sum(name in selection.dropped or name in selection.inexact for name in _FIRST)
        python = proposal.wishes.get(PYTHON)
        costs += _IMPORTANT * bool(python and python.variant and PYTHON not in selection.variants)
        costs += _IMPORTANT * _is_unfetched(selection)
        if best is None or costs < best[0]:
            best = costs, selection
    assert best is not None
    return _with_pins(best[1], proposal, catalog)


def _is_unfetched(selection: ChosenComponents) -> bool:
    """Return whether a framework has files without a checksum, or of a size that no download has shown."""
    choices = selection.resolution.all_choices if selection.resolution else ()
    frameworks = (choice for choice in choices if choice.name in FRAMEWORKS)
    artifacts = (artifact for choice in frameworks for artifact in choice.spec.artifacts)
    return any(artifact.sha256 is None or artifact.bytes is None for artifact in artifacts)


def _with_pins(selection: ChosenComponents, proposal: Proposal, catalog: Catalog) -> ChosenComponents:
    """Return a selection whose components fit the lines of requirements that name them, or are left out."""

    def missed(found: ChosenComponents) -> list[str]:
        lines = {name: wish.requirement for name, wish in proposal.wishes.items() if wish.requirement}
        pinned = {name for name, line in lines.items() if "==" in line}
        return [name for name in lines if name in found.dropped.keys() | (found.inexact.keys() & pinned)]

    if not (names := missed(selection)):
        return selection
    name, wish = names[0], proposal.wishes[names[0]]
    choice = selection.choice
    assert choice is not None
    component = catalog.components[choice.component]
    order = nearest((release.version for release in component.releases), choice.version)
    for version in order[1:_MAX_RELEASES] if name in _FIRST else ():
        variants = next(release.variants for release in component.releases if release.version == version)
        same = [variant.name for variant in variants if _is_kind(variant.name, choice.variant)]
        note = (
            f"{wish.requirement} does not fit {choice.component} {choice.version}; the recipe has {version}"
        )
        for variant in same[:2]:
            other = replace_fields(choice, version=version, variant=variant, note=note)
            found = _with_base(proposal, other, catalog)
            if found and not missed(found):
                return found
    del proposal.wishes[name]
    known = f"no release of {name} in the catalogue fits with {wish.requirement}; the requirements install it"
    # The requirements have the others as they are written
    for entry in wish.entries if name in _FIRST else ():
        entry.check(known, wish.text, wish.line)
    return _with_pins(_with_base(proposal, choice, catalog) or selection, proposal, catalog)


def _is_kind(variant: str, other: str) -> bool:
    """Return whether two variants have the same system and the same libraries, apart from versions."""
    first, second = (re.sub(r"\d+", "", name) for name in (variant, other))
    return first == second or not other


def _with_base(proposal: Proposal, choice: BaseChoice, catalog: Catalog) -> ChosenComponents | None:
    """Add the components one by one, and leave out only those that do not fit."""
    variants = {choice.component: choice.variant} if choice.variant else {}
    selection = ChosenComponents((choice.component, choice.version), {}, variants, choice)
    selection.resolution, _ = _resolved(selection, catalog)
    if selection.resolution is None:
        return None
    wishes = sorted(
        proposal.wishes.values(),
        key=lambda wish: _FIRST.index(wish.name) if wish.name in _FIRST else len(_FIRST),
    )
    if proposal.ssh_entries and "sshd" not in proposal.wishes and "sshd" in catalog.components:
        wishes.append(Wish(("sshd",)))
    for wish in wishes:
        if wish.name != PYTHON or wish.specifier:
            _add(wish, selection, catalog)
        elif _version_of(PYTHON, selection) is None:
            # Any Python: that of the distribution, if a component exists for it
            _add(Wish((PYTHON,), "", "distribution"), selection, catalog)
    if catalog.components[choice.component].registries is None:
        _add_toolkit(selection, catalog)
    return selection


def _add_toolkit(selection: ChosenComponents, catalog: Catalog) -> None:
    """Add the SageMaker Training Toolkit for the framework, which AWS's images contain."""
    if any(name.startswith("sagemaker-") for name in selection.components):
        return
    toolkits = [known.toolkit for name, known in FRAMEWORKS.items() if _version_of(name, selection)]
    for toolkit in (*toolkits, "sagemaker-training"):
        if toolkit in catalog.components:
            _add(Wish((toolkit,)), selection, catalog)
            return


def _version_of(name: str, selection: ChosenComponents) -> str | None:
    return selection.resolution.version_of(name) if selection.resolution else None


def _add(wish: Wish, selection: ChosenComponents, catalog: Catalog) -> None:
    present = _version_of(wish.name, selection)
    is_allowed = present is not None and _allows(wish.specifier, present)
    if is_allowed and wish.name not in _components(selection):
        return
    asked = _versions(wish.specifier)
    exact = [*itertools.product(wish.components, [asked], _globs(wish))]
    releases = [release for name in wish.components for release in catalog.components[name].releases]
    others = _others(wish, catalog) if present is None and asked != "*" else ()
    found, reason = _first_fit(selection, [*exact, *others], catalog)
    is_known = any(_allows(wish.specifier, release.version) for release in releases)
    if found:
        _keep(selection, *found)
        if found[1] != asked:
            selection.inexact[found[0]] = reason if is_known else ""
    elif present is not None:
        # The version of the base, or of a component that brings it, is the nearest that fits.
        selection.inexact[wish.name] = reason
    else:
        if not is_known:
            # The catalogue lacks the version, which does not say why the others do not fit
            _, reason = _with(selection, wish.components[0], "*", "", catalog)
        if not _add_before(exact, selection, catalog):
            selection.dropped[wish.name] = reason


_Candidate = tuple[str, str, str]
"""Component, versions and variant."""


def _globs(wish: Wish) -> list[str]:
    any_cuda = "cu*" if wish.variant.startswith("cu") else ""
    return [*dict.fromkeys((wish.variant, any_cuda, ""))]


def _others(wish: Wish, catalog: Catalog) -> Iterator[_Candidate]:
    """Yield other versions than those that a wish asks for, the nearest first."""
    number = wish.specifier.removeprefix("==").removesuffix(".*").split(",")[0].lstrip("<>=~! ")
    for component in wish.components:
        order = nearest((release.version for release in catalog.components[component].releases), number)
        yield from itertools.product([component], [*order[:_MAX_NEAREST], "*"], _globs(wish))


def _first_fit(
    selection: ChosenComponents, candidates: Sequence[_Candidate], catalog: Catalog
) -> tuple[tuple[str, str, str, Resolution] | None, str]:
    """Return the first candidate that fits, and the reason why the first of those before it does not."""
    reason = ""
    for component, versions, variant in candidates:
        resolution, why = _with(selection, component, versions, variant, catalog)
        if resolution:
            return (component, versions, variant, resolution), reason
        reason = reason or why
    return None, reason


def _add_before(exact: Sequence[_Candidate], selection: ChosenComponents, catalog: Catalog) -> bool:
    """Add a component by moving one that was added earlier to another version; return whether it fits."""
    for other, kept in [*selection.components.items()]:
        if other in _FIRST or other == "sshd" or kept == "*":
            continue
        components = {name: versions for name, versions in selection.components.items() if name != other}
        variants = {name: glob for name, glob in selection.variants.items() if name != other}
        trial = replace_fields(selection, components=components, variants=variants)
        found, _ = _first_fit(trial, exact, catalog)
        if not found:
            continue
        _keep(trial, *found)
        order = nearest((release.version for release in catalog.components[other].releases), kept)
        first = other, kept, selection.variants.get(other, "")
        moved, why = _first_fit(trial, [first, *((other, versions, "") for versions in order)], catalog)
        if moved:
            _keep(trial, *moved)
            selection.components, selection.variants = trial.components, trial.variants
            selection.resolution = trial.resolution
            selection.inexact[other] = why
            return True
    return False


def _components(selection: ChosenComponents) -> Mapping[str, str]:
    """Return the components that the resolution itself contains."""
    resolution = selection.resolution
    return {choice.name: choice.version for choice in resolution.all_choices} if resolution else {}


def _keep(
    selection: ChosenComponents, component: str, versions: str, variant: str, resolution: Resolution
) -> None:
    selection.components[component] = versions
    if variant:
        selection.variants[component] = variant
    selection.resolution = resolution


def _with(
    selection: ChosenComponents, component: str, versions: str, variant: str, catalog: Catalog
) -> tuple[Resolution | None, str]:
    variants = {**selection.variants, **({component: variant} if variant else {})}
    more = ChosenComponents(selection.base, {**selection.components, component: versions}, variants)
    return _resolved(more, catalog)


def _resolved(selection: ChosenComponents, catalog: Catalog) -> tuple[Resolution | None, str]:
    """Return the resolution of a selection, or the reason why there is none."""
    with scratch_directory() as directory:
        recipe = directory / "images" / "image.yaml"
        recipe.parent.mkdir()
        recipe.write_text("\n".join([*recipe_head("x", selection), ""]), encoding="utf-8")
        try:
            return resolve(load_recipes([directory], catalog)["image"], catalog), ""
        except RecipeError:
            return None, ""
        except Unsatisfiable as error:
            reason = first_reason(error.conflict)
            return None, reason.text if reason else ""


def _versions(specifier: str) -> str:
    """Return a specifier of pip as the versions of a recipe."""
    if specifier.startswith("==") and "," not in specifier and not specifier.startswith("==="):
        exact = specifier.removeprefix("==").strip()
        return exact.removesuffix(".*") or "*"
    return specifier or "*"


def _allows(specifier: str, version: str) -> bool:
    try:
        # Releases of the catalogue may have fewer parts: python 3.11 is 3.11.*.
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def settle(proposal: Proposal, selection: ChosenComponents) -> None:
    """Decide the fates of the instructions that depend on the selection."""
    choice = selection.choice
    if choice and choice.note:
        proposal.image_entry.check(choice.note)
    elif choice:
        remark = f"; {choice.detail}" if choice.detail else ""
        proposal.image_entry.add(Fate.RECIPE, f"`base`{remark}")
    for wish in [*proposal.wishes.values()]:
        if wish.name == PYTHON and not wish.specifier:
            proposal.python_entries += wish.entries
        else:
            _settle_wish(wish, proposal, selection)
    python = _version_of(PYTHON, selection) or ""
    holder = "the base contains" if PYTHON not in _components(selection) else "the component `python` is"
    for entry in proposal.python_entries:
        entry.add(Fate.REPLACED, f"{holder} Python {python}".rstrip())
    for entry in proposal.ssh_entries:
        if "sshd" in _components(selection):
            entry.add(Fate.REPLACED, "the component `sshd`; hosts create their keys when a job starts")
        else:
            entry.check("no release of the component `sshd` fits; hosts need SSH for MPI only")
    manager = selection.resolution.base.spec.manager if selection.resolution else "apt"
    others = proposal.apt if manager == "dnf" else proposal.dnf
    for name, entry in others.items():
        other = {"apt": "dnf", "dnf": "apt"}[manager]
        pairs = _DNF_NAMES if manager == "dnf" else {value: key for key, value in _DNF_NAMES.items()}
        right = pairs.get(name)
        known = f"`{right}` is its name there" if right else f"find its name for {manager}"
        reason = f"{selection.base[0]} has {manager}, not {other}: {known}, and add it to `packages`"
        entry.check(reason, f"RUN {other} install {name}")
    own = [spec.environment for spec in _specs(selection)]
    for name, (value, entry) in [*proposal.environment.items()]:
        if any(environment.get(name) == value for environment in own):
            del proposal.environment[name]
            entry.parts = [part for part in entry.parts if part[1] != "`environment`"]
            entry.add(Fate.REPLACED, "a component of the recipe sets it")


def _specs(selection: ChosenComponents) -> tuple[VariantSpec, ...]:
    resolution = selection.resolution
    return tuple(choice.spec for choice in resolution.all_choices) if resolution else ()


def _settle_wish(wish: Wish, proposal: Proposal, selection: ChosenComponents) -> None:
    name = next((component for component in wish.components if component in selection.components), wish.name)
    version = _version_of(name, selection) or ""
    asked = wish.specifier.removeprefix("==")
    owner = _owner(name, selection)
    label = (
        f"the component `{name}` {version}" if owner == name else f"{owner}, which brings {name} {version}"
    )
    if wish.name in selection.dropped:
        for entry in wish.entries:
            entry.check(_dropped_reason(wish.name, selection).partition("; ")[0], wish.text, wish.line)
        return
    notes = []
    if other := _other_device(wish, owner, selection):
        device = wish.variant.partition("-")[0]
        notes.append(f"no release of {name} {version} for {device} fits; the recipe has {other}")
    inexact = selection.inexact.get(name, selection.inexact.get(wish.name))
    if inexact:
        notes.append(
            f"{name} {asked} does not fit: {inexact}; the recipe has {version}, the nearest that fits"
        )
    elif inexact is not None:
        notes.append(f"the catalogue lacks {name} {asked}; the recipe has {version}, the nearest that fits")
    for entry in wish.entries:
        entry.add(Fate.REPLACED, label)
    for note in notes:
        for entry in wish.entries[:1]:
            entry.check(note, wish.text, wish.line)


def _other_device(wish: Wish, owner: str, selection: ChosenComponents) -> str:
    """Return the CUDA version, or `cpu`, that differs from the one in a wish; empty if it is the same."""
    asked = re.match(r"cu\*|cu\d+|cpu", wish.variant)
    choices = selection.resolution.all_choices if selection.resolution else ()
    holder = owner.partition(" ")[0]
    variant = next((choice.candidate.variant.name for choice in choices if choice.name == holder), "")
    given = re.search(r"\b(?:cu\d+|cpu)\b", variant)
    return given[0] if asked and given and not fnmatchcase(given[0], asked[0]) else ""


def _base_text(selection: ChosenComponents) -> str:
    name, version = selection.base
    others = [f"{name} {_version_of(name, selection)}" for name in _FIRST if name in _components(selection)]
    return " with ".join((f"{name} {version}", *([", ".join(others)] if others else [])))


def _owner(name: str, selection: ChosenComponents) -> str:
    """Return the component, or the base, that brings a name."""
    resolution = selection.resolution
    if resolution is None or name in _components(selection):
        return name
    for choice in resolution.all_choices:
        if name in choice.candidate.provided:
            return f"{choice.name} {choice.version}"
    return name


_DNF_NAMES = names("dnf_names")
"""Names of packages in Amazon Linux 2023 by their names in Debian; of several, all suites have the last."""
