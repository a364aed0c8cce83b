"""The recipe that a Dockerfile translates to, before versions are chosen."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from bakehouse.commands.dockerfile_import.account import Account, Fate, Word, settle
from bakehouse.commands.dockerfile_import.bases import KnownImage

BUILD_VARIABLES = frozenset(
    {
        *("DEBIAN_FRONTEND", "PIP_NO_CACHE_DIR", "PIP_DISABLE_PIP_VERSION_CHECK", "PIP_ROOT_USER_ACTION"),
        *(
            "PIP_DEFAULT_TIMEOUT",
            "UV_SYSTEM_PYTHON",
            "UV_LINK_MODE",
            "UV_COMPILE_BYTECODE",
            "DEBCONF_NONINTERACTIVE_SEEN",
        ),
        *("PIP_BREAK_SYSTEM_PACKAGES", "UV_HTTP_TIMEOUT", "PIP_NO_INPUT", "MAX_JOBS"),
    }
)
"""Variables that only matter to the steps of a Dockerfile."""


@dataclass(slots=True)
class Wish:
    """A component that a Dockerfile installs, with the words that do it."""

    components: tuple[str, ...]
    """The first choice first."""
    specifier: str = ""
    """A specifier of pip; empty for any version."""
    variant: str = ""
    line: int = 0
    words: list[Word] = field(default_factory=list)
    requirement: str = ""
    """The line of a requirements file that installs it with pip; empty if there is none."""
    text: str = ""
    """The command or file that asks for it; empty for components that Bakehouse adds."""

    @property
    def name(self) -> str:
        return self.components[0]


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file or directory of the build context that the image contains."""

    source: str
    """Relative to the context."""
    target: str
    words: tuple[Word, ...]


@dataclass(slots=True)
class Proposal:
    """The recipe that replaces a Dockerfile. Paths are relative to the Dockerfile's directory."""

    account: Account = field(default_factory=Account)
    image: str = ""
    """The image of the first FROM of the last stage."""
    image_words: list[Word] = field(default_factory=list)
    base: KnownImage = field(default_factory=lambda: KnownImage(()))
    wishes: dict[str, Wish] = field(default_factory=dict)
    apt: dict[str, list[Word]] = field(default_factory=dict)
    dnf: dict[str, list[Word]] = field(default_factory=dict)
    requirements: dict[str, list[Word]] = field(default_factory=dict)
    """Lines of a requirements file."""
    requirement_files: dict[str, list[Word]] = field(default_factory=dict)
    constraint_files: dict[str, list[Word]] = field(default_factory=dict)
    files: list[CopiedFile] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    """Paths of the Dockerfile's image that the recipe does not copy."""
    environment: dict[str, tuple[str, list[Word]]] = field(default_factory=dict)
    run: list[tuple[str, list[Word]]] = field(default_factory=list)
    code: tuple[str, str] | None = None
    """Directory and entry point, which may be empty."""
    prefixes: dict[str, Wish] = field(default_factory=dict)
    """Directories that components replace."""
    python_words: list[Word] = field(default_factory=list)
    """Words that install or select Python without a version."""
    ssh_words: list[Word] = field(default_factory=list)
    """Words that configure SSH."""

    @property
    def line(self) -> int:
        return self.image_words[0].line if self.image_words else 1

    def wish(self, wish: Wish) -> Wish:
        """Add a component; a second wish for it is merged into the first."""
        first = self.wishes.setdefault(wish.name, wish)
        if first is wish:
            return wish
        if wish.specifier and first.specifier and wish.specifier != first.specifier:
            settle(wish.words, Fate.UNTRANSLATED, f"line {first.line} selects {wish.name} {first.specifier}")
            return first
        first.specifier = first.specifier or wish.specifier
        first.variant = first.variant or wish.variant
        first.text = first.text or wish.text
        first.words += wish.words
        return first

    def prefix_of(self, path: str) -> Wish | None:
        """Return the component whose files a directory contained."""
        place = PurePosixPath(path)
        return next(
            (
                wish
                for prefix, wish in self.prefixes.items()
                if place.is_relative_to(prefix) and len(PurePosixPath(prefix).parts) > 2
            ),
            None,
        )

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


def untranslate(words: Iterable[Word], detail: str) -> None:
    """List words as not translated, with what to do."""
    settle(words, Fate.UNTRANSLATED, detail)


def replace(words: Iterable[Word], detail: str) -> None:
    """Record what replaces words, and why."""
    settle(words, Fate.REPLACED, detail)


def place(words: Iterable[Word], key: str) -> None:
    """Record the key of the recipe that contains words."""
    settle(words, Fate.RECIPE, f"`{key}`")
