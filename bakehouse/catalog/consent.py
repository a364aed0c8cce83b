"""Settings of a project that widen trust, and the user's consent to their content.

A pull request can write `[tool.bakehouse]`. So a setting that lets others run code as the user, intercept the
user's connections, or use the user's keys and directories needs consent, or a variable of the user.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from bakehouse.errors import Diagnostic, Location, Reason, TrustError
from bakehouse.util.files import expand_home, is_file, read_bytes, write_whole
from bakehouse.util.toml_table import TomlTable, key_location

VARIABLES = {
    "build_on_host": "BAKEHOUSE_BUILD_ON_HOST",
    "ca": "BAKEHOUSE_CA",
    "cache": "BAKEHOUSE_CACHE",
    "signing_key": "BAKEHOUSE_SIGNING_KEY",
}
"""Settings that widen trust, with the variable of the user that replaces each."""
_EFFECTS = {
    "build_on_host": "packages run their code on this machine as you",
    "ca": "the owner of these certificates can read and change your downloads and uploads",
    "cache": "Bakehouse writes to this directory outside the project",
    "signing_key": "statements about images are signed with this key",
}


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """A setting that the user has not consented to."""

    key: str
    value: str
    location: Location
    record: Path
    """File of the user's state that records the consent."""

    @property
    def text(self) -> str:
        return f"`{self.key} = {self.value}` in [tool.bakehouse]: {_EFFECTS[self.key]}"

    def grant(self) -> None:
        """Record the user's consent."""
        write_whole(self.record, f"{self.location.path}: {self.key} = {self.value}\n")

    @property
    def error(self) -> TrustError:
        variable = VARIABLES[self.key]
        return TrustError.of(
            Diagnostic(
                f"`{self.key}` in [tool.bakehouse] needs your consent",
                self.location,
                reasons=(Reason(_EFFECTS[self.key]),),
                hint=f"run the command in a terminal, which asks you, or set {variable} yourself, such as in"
                " the definition of a job",
            )
        )


def widening(root: Path, values: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a project that widen trust, as values of their variables, by key."""
    found = ((key, values.get(key)) for key in VARIABLES)
    texts = {key: "1" if value is True else value for key, value in found if value}
    return {
        key: text
        for key, text in texts.items()
        if isinstance(text, str) and _content(root, key, text) is not None
    }


def requests(
    root: Path, table: TomlTable, user_state: Path, environment: Mapping[str, str]
) -> dict[str, ConsentRequest]:
    """Return the settings of a project that need consent and have none."""
    asked: dict[str, ConsentRequest] = {}
    for key, value in widening(root, table.values).items():
        if VARIABLES[key] in environment:
            continue
        text = "true" if table.values[key] is True else f'"{value}"'
        content = _content(root, key, value) or ""
        identity = "\0".join((str(root.resolve()), key, value, content))
        record = user_state / "consents" / sha256(os.fsencode(identity)).hexdigest()
        if not is_file(record) or _is_in_repository(record, root):
            location = key_location(table.path, key, table.name)
            asked[key] = ConsentRequest(key, text, location, record)
    return asked


def _content(root: Path, key: str, value: str) -> str | None:
    """Return what a setting names besides its value; None if it needs no consent."""
    if key == "build_on_host" or (key == "signing_key" and value.startswith("awskms:")):
        return ""
    try:
        path = (root / expand_home(value)).resolve()
        if key == "ca":
            return sha256(read_bytes(path)).hexdigest() if is_file(path) else ""
    except (OSError, ValueError):
        # The command that uses the file reports it
        return ""
    # A path of the project widens nothing
    return None if path.is_relative_to(root.resolve()) else str(path)


def _is_in_repository(path: Path, root: Path) -> bool:
    """Return whether a commit could contain a file: it is below that with `.git` or the project."""
    parents = (directory for directory in (root.resolve(), *root.resolve().parents))
    repository = next((directory for directory in parents if (directory / ".git").exists()), root.resolve())
    return path.resolve().is_relative_to(repository)
