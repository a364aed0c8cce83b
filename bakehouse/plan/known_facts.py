"""Facts against an image, in one short form for all commands and pages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.purpose import NOT_PINNED, PROBLEM, SUPPORT, Concession
from bakehouse.catalog.recipe import Recipe
from bakehouse.catalog.support import Support, notice_day, support_of
from bakehouse.resolve.phrases import warning_text
from bakehouse.resolve.resolver import Resolution, Unsatisfiable, resolve
from bakehouse.util.format import first_names


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """Known problems, unpinned files and ends of support of an image."""

    problems: tuple[tuple[str, str], ...] = ()
    """Each with its source."""
    unpinned: tuple[str, ...] = ()
    """Files and base images without a checksum, with which `push` refuses it."""
    support: tuple[Support, ...] = ()
    is_archived: bool = False
    """It is an image of Bakehouse that is not recommended for anything."""
    login: str = ""
    """The registry of the base, if it asks for a login."""
    concessions: tuple[Concession, ...] = ()

    @property
    def publishable(self) -> str:
        """`yes` if `push` takes the image as it is, or the condition."""
        if not self.unpinned:
            return "yes"
        login = f" with a login to {self.login}" if self.login else ""
        files = f", which records the sha256 of {', '.join(self._files)}" if self._files else ""
        return f"after `bake lock`{login}{files}"

    @property
    def ends(self) -> str:
        """The first end of support, and what has none that is known."""
        known = [f"{item.until} ({item.name} {item.version})" for item in self.support if item.until][:1]
        unknown = [f"{item.name} {item.version}" for item in self.support if not item.until]
        return "; ".join(known + ([f"not known: {', '.join(unknown)}"] if unknown else []))

    @property
    def _files(self) -> list[str]:
        return [text.removeprefix("file ") for text in self.unpinned if text.startswith("file ")]

    def lines(self, day: str = "") -> tuple[str, ...]:
        """Return a line for each fact.

        With a day, for people: without support that ends later, and with exceptions that have passed.
        """
        lines = [f"known problem: {text}" for text, _ in self.problems]
        if self.unpinned:
            lines.append(f"not pinned: {'; '.join(self.unpinned)}")
        ends = [item for item in self.support if item.until and (not day or item.has_ended(day))]
        lines += [f"{item.name} {item.version} is supported until {item.until}" for item in ends]
        return (*lines, *(_passed(self.concessions) if day else ()))

    def against(self, day: str) -> dict[str, Sequence[str]]:
        """Return the kinds of facts for which an image is not recommended, with their texts."""
        ended = [item.text for item in self.support if item.has_ended(day)]
        kinds = {PROBLEM: [text for text, _ in self.problems], NOT_PINNED: self._files, SUPPORT: ended}
        return {kind: texts for kind, texts in kinds.items() if texts}


NOTHING = KnownFacts()


def ending(resolutions: Iterable[Resolution]) -> str:
    """Return a line for each support that has ended or soon ends, with its images."""
    day = notice_day()
    return _with_images(
        (f"{item.name} {item.version} is supported until {item.until} ({item.source})", resolution)
        for resolution in resolutions
        for item in support_of(resolution.versions)
        if item.has_ended(day)
    )


def passed(resolutions: Iterable[Resolution]) -> str:
    """Return a line for each exception whose last day has passed, with its images."""
    return _with_images((line, item) for item in resolutions for line in _passed(item.recipe.concessions))


def _passed(concessions: Iterable[Concession]) -> list[str]:
    today = date.today().isoformat()
    return [f"the last day has passed: {item.text}" for item in concessions if item.until < today]


def _with_images(lines: Iterable[tuple[str, Resolution]]) -> str:
    images: dict[str, list[str]] = {}
    for line, resolution in lines:
        images.setdefault(line, []).append(resolution.recipe.name)
    return "".join(f"{line}: {first_names(names)}\n" for line, names in images.items())


def known_of_job(recipe: Recipe | None, catalog: Catalog, released: Mapping[str, str]) -> KnownFacts:
    """Return the facts against the image of a job: of its recipe, if that still has the released versions."""
    try:
        resolution = resolve(recipe, catalog) if recipe else None
    except Unsatisfiable:
        resolution = None
    if resolution and all(resolution.version_of(name) == version for name, version in released.items()):
        return known_facts(resolution)
    return KnownFacts(support=support_of(released))


def known_facts(resolution: Resolution) -> KnownFacts:
    """Return what the catalogue knows against the versions of an image."""
    recipe, base = resolution.recipe, resolution.base.spec.base
    files = (item for choice in resolution.all_choices for item in choice.spec.artifacts)
    unpinned = [f"file {item.file}" for item in files if item.sha256 is None]
    if base and base.reference and base.digest is None:
        unpinned.insert(0, f"base {base.reference}")
    registries = resolution.base.candidate.component.registries
    return KnownFacts(
        tuple((warning_text(*item, resolution.targets), item[1].source) for item in resolution.warnings),
        tuple(unpinned),
        support_of(resolution.versions),
        is_archived=recipe.is_archived,
        login=next(iter(registries.hosts.values()), "") if registries else "",
        concessions=recipe.concessions,
    )
