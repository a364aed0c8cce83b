"""The recipe that a Dockerfile translates to, before versions are chosen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from bakehouse.catalog.run_steps import RunStep
from bakehouse.commands.dockerfile_import.account import Account, InstructionEntry
from bakehouse.commands.dockerfile_import.bases import KnownImage
from bakehouse.commands.dockerfile_import.installs import names

BUILD_VARIABLES = frozenset(names("build_variables"))
"""Variables that only matter to the steps of a Dockerfile."""


@dataclass(slots=True)
class Wish:
    """A component that a Dockerfile installs."""

    components: tuple[str, ...]
    """The first choice first."""
    specifier: str = ""
    """A specifier of pip; empty for any version."""
    variant: str = ""
    line: int = 0
    text: str = ""
    """The command or file that asks for it; empty for components that Bakehouse adds."""
    entries: list[InstructionEntry] = field(default_factory=list)
    """Instructions that ask for it."""
    requirement: str = ""
    """The line of the user's requirements that pins it; empty if there is none."""

    @property
    def name(self) -> str:
        return self.components[0]


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file or directory of the build context that the image contains."""

    source: str
    """Relative to the context."""
    target: str
    entry: InstructionEntry
    is_known: bool = True
    """The target does not depend on the working directory of a base that the catalogue does not describe."""


@dataclass(slots=True)
class KeptStep:
    """A command that stays as it is, with what it may depend on."""

    step: RunStep
    entry: InstructionEntry
    text: str
    """The command without the lines that restore its directory and variables."""
    uses: str = ""
    """Advice to pin what it downloads; empty if it uses no network."""


@dataclass(slots=True)
class Proposal:
    """The recipe that replaces a Dockerfile. Paths are relative to the build context."""

    account: Account = field(default_factory=Account)
    image: str = ""
    """The image of the first FROM of the selected stage."""
    image_entry: InstructionEntry = field(default_factory=lambda: InstructionEntry(1, "FROM scratch"))
    base: KnownImage = field(default_factory=lambda: KnownImage(()))
    wishes: dict[str, Wish] = field(default_factory=dict)
    apt: dict[str, InstructionEntry] = field(default_factory=dict)
    dnf: dict[str, InstructionEntry] = field(default_factory=dict)
    requirements: dict[str, InstructionEntry] = field(default_factory=dict)
    """Lines of a requirements file."""
    requirement_files: dict[str, InstructionEntry] = field(default_factory=dict)
    constraint_files: dict[str, InstructionEntry] = field(default_factory=dict)
    files: list[CopiedFile] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Paths of the Dockerfile's image that the recipe does not have, with the reason."""
    environment: dict[str, tuple[str, InstructionEntry]] = field(default_factory=dict)
    run: list[KeptStep] = field(default_factory=list)
    code: tuple[str, str] | None = None
    """Directory and entry point, which may be empty."""
    prefixes: dict[str, Wish] = field(default_factory=dict)
    """Directories that components replace."""
    python_entries: list[InstructionEntry] = field(default_factory=list)
    """Instructions that install or select Python without a version."""
    ssh_entries: list[InstructionEntry] = field(default_factory=list)
    """Instructions that configure SSH."""

    @property
    def line(self) -> int:
        return self.image_entry.line

    def wish(self, wish: Wish) -> Wish:
        """Add a component; a second wish for it is merged into the first."""
        first = self.wishes.setdefault(wish.name, wish)
        if first is wish:
            return wish
        if wish.specifier and first.specifier and wish.specifier != first.specifier:
            for entry in wish.entries:
                place = f"line {first.line}" if first.line else first.entries[0].text
                entry.check(f"{place} selects {wish.name} {first.specifier}", wish.text, wish.line)
            return first
        first.specifier = first.specifier or wish.specifier
        first.variant = first.variant or wish.variant
        first.text = first.text or wish.text
        first.requirement = first.requirement or wish.requirement
        first.entries += wish.entries
        return first

    def prefix_of(self, path: str) -> Wish | None:
        """Return the component whose files a directory contained."""
        place = PurePosixPath(path)
        prefixes = (prefix for prefix in self.prefixes if len(PurePosixPath(prefix).parts) > 2)
        return next((self.prefixes[prefix] for prefix in prefixes if place.is_relative_to(prefix)), None)

    def copied(self, path: str) -> CopiedFile | None:
        """Return the last copied file or directory that a path of the image may belong to."""
        return next((file for file, _ in self.sources(path)), None)

    def sources(self, path: str) -> Iterator[tuple[CopiedFile, str]]:
        """Yield copied files and directories that a path of the image may belong to, the last copied first.

        Each comes with the path that the file has next to the Dockerfile, if it exists there.
        """
        place = PurePosixPath(path)
        for file in reversed(self.files):
            target = file.target.rstrip("/") or "/"
            if place.is_relative_to(target):
                yield file, str(PurePosixPath(file.source) / place.relative_to(target))
