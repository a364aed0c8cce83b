"""Settings of a project that widen trust, and the user's consent to their content.

A pull request can write `[tool.bakehouse]`. So a setting that lets others run code as the user, intercept the
user's connections, or use the user's keys and directories needs consent, or a variable of the user.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from bakehouse.catalog.trust_settings import Policy
from bakehouse.errors import Diagnostic, Location, Reason, TrustError
from bakehouse.util.directory_handles import repository_around
from bakehouse.util.files import expand_home, is_file, read_bytes, write_whole
from bakehouse.util.json_reader import parse_json
from bakehouse.util.toml_table import TomlTable, key_location

VARIABLES = {
    "build_on_host": "BAKEHOUSE_BUILD_ON_HOST",
    "ca": "BAKEHOUSE_CA",
    "cache": "BAKEHOUSE_CACHE",
    "signing_key": "BAKEHOUSE_SIGNING_KEY",
    "recipes": "BAKEHOUSE_RECIPES",
    "mirrors": "BAKEHOUSE_MIRRORS",
}
"""Settings that widen trust, with the variable of the user that replaces each, or names its directories."""
POLICY = "BAKEHOUSE_POLICY"
"""Variable with the hash of a policy that the user consents to."""
_EFFECTS = {
    "build_on_host": "packages run their code on this machine as you",
    "ca": "the owner of these certificates can read and change your downloads and uploads",
    "cache": "Bakehouse writes to this directory outside the project",
    "signing_key": "statements about images are signed with this key",
    "recipes": "Bakehouse reads and writes these directories outside the repository",
    "mirrors": "Bakehouse reads these directories outside the repository",
}
_LISTS = ("recipes", "mirrors")


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """A setting that the user has not consented to."""

    key: str
    value: str
    effects: tuple[str, ...]
    variable: str
    """The variable that gives consent instead."""
    location: Location
    record: Path
    """File of the user's state that records the consent."""
    content: str

    @property
    def text(self) -> str:
        value = f" = {self.value}" if self.value else ""
        return f"`{self.key}{value}` in [tool.bakehouse]: {', '.join(self.effects)}"

    def grant(self) -> None:
        """Record the user's consent."""
        write_whole(self.record, self.content)

    @property
    def error(self) -> TrustError:
        return TrustError.of(
            Diagnostic(
                f"`{self.key}` in [tool.bakehouse] needs your consent",
                self.location,
                reasons=tuple(map(Reason, self.effects)),
                hint="run the command in a terminal, which asks you, or set"
                f" {self.variable} yourself, such as in the definition of a job",
            )
        )


def widening(root: Path, values: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a project that widen trust, as values of their variables, by key."""
    texts = {key: _text(root, key, values[key]) for key in VARIABLES if values.get(key)}
    return {key: text for key, text in texts.items() if text and _content(root, key, text) is not None}


def requests(
    root: Path, table: TomlTable, user_state: Path, environment: Mapping[str, str]
) -> dict[str, ConsentRequest]:
    """Return the settings of a project that need consent and have none."""
    asked: dict[str, ConsentRequest] = {}
    for key, value in widening(root, table.values).items():
        variable = VARIABLES[key]
        given = environment.get(variable)
        if given is not None and (key not in _LISTS or {*value.split()} <= {*given.split()}):
            continue
        text = "true" if table.values[key] is True else f'"{value}"'
        identity = "\0".join((str(root.resolve()), key, value, _content(root, key, value) or ""))
        record = user_state / "consents" / sha256(os.fsencode(identity)).hexdigest()
        if not is_file(record) or _is_in_repository(record, root):
            location = key_location(table.path, key, table.name)
            content = f"{table.path}: {key} = {text}\n"
            asked[key] = ConsentRequest(key, text, (_EFFECTS[key],), variable, location, record, content)
    return asked


def policy_request(
    root: Path, table: TomlTable, policy: Policy | None, user_state: Path, environment: Mapping[str, str]
) -> ConsentRequest | None:
    """Return a request if a policy accepts images that the last one, which this machine used, did not."""
    record = policy_record(root, user_state)
    if not is_file(record) or _is_in_repository(record, root):
        return None
    content = policy_content(policy)
    number = sha256(content.encode()).hexdigest()[:16]
    try:
        weaker = tuple(_weaker(parse_json(read_bytes(record)), parse_json(content)))
    except (ValueError, KeyError, TypeError):
        weaker = (f"the record of the last policy, `{record}`, is damaged",)
    if not weaker or environment.get(POLICY) == number:
        return None
    location = key_location(table.path, "policy", table.name)
    return ConsentRequest("policy", "", weaker, f"{POLICY}={number}", location, record, content)


def policy_record(root: Path, user_state: Path) -> Path:
    """Return the file with the last policy of the project in a directory that this machine used."""
    identity = sha256(os.fsencode(root.resolve())).hexdigest()
    return user_state / "consents" / f"policy-{identity}.json"


def policy_content(policy: Policy | None) -> str:
    """Return what a policy accepts, as JSON: its rules, and the hashes of its keys."""
    rules = policy or Policy(())
    content = {
        "keys": sorted(filter(None, map(_hash, rules.keys))),
        "require": sorted(rules.require),
        "rebuilds": rules.rebuilds,
    }
    return json.dumps(content, sort_keys=True) + "\n"


def _weaker(old: Any, new: Any) -> Iterator[str]:
    """Yield what a policy accepts and another one did not."""
    for name in old["require"]:
        if name not in new["require"]:
            yield f"it no longer requires `{name}`"
    if new["rebuilds"] < old["rebuilds"]:
        yield f"it requires {new['rebuilds']} rebuilds instead of {old['rebuilds']}"
    if old["keys"] and not {*new["keys"]} <= {*old["keys"]}:
        yield "it trusts other keys"


def _hash(path: Path) -> str:
    return sha256(read_bytes(path)).hexdigest() if is_file(path) else ""


def _text(root: Path, key: str, value: object) -> str:
    """Return a setting as the value of its variable; of lists, the directories outside the repository."""
    if isinstance(value, list):
        return " ".join(name for name in value if isinstance(name, str) and _is_outside(root, name))
    return "1" if value is True else value if isinstance(value, str) else ""


def _is_outside(root: Path, name: str) -> bool:
    """Return whether a path or a `file:` URL leads out of the repository of a project."""
    path = name.removeprefix("file://")
    if ":" in path.partition("/")[0]:
        return False
    try:
        return not (root / expand_home(path)).resolve().is_relative_to(repository_around(root))
    except ValueError:
        # A path with a NUL, which its reader reports
        return False


def _content(root: Path, key: str, value: str) -> str | None:
    """Return what a setting names besides its value; None if it needs no consent."""
    if key == "build_on_host" or key in _LISTS or (key == "signing_key" and value.startswith("awskms:")):
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
    """Return whether a commit could contain a file."""
    return path.resolve().is_relative_to(repository_around(root))
