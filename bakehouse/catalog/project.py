"""The current project: its directories and its `[tool.bakehouse]` settings."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakehouse import __version__
from bakehouse.errors import Diagnostic, Location, Problems, Reason, RecipeError
from bakehouse.util.directory_handles import repository_around
from bakehouse.util.files import expand_home, is_directory, is_file, read_text
from bakehouse.util.oci import ECR_HOST, is_named, region_of
from bakehouse.util.toml_table import TomlTable, key_location

if TYPE_CHECKING:
    from bakehouse.catalog.ci_settings import CiSettings
    from bakehouse.catalog.consent import ConsentRequest
    from bakehouse.catalog.registry_settings import RegistrySettings
    from bakehouse.catalog.trust_settings import Policy

_PACKAGE = Path(__file__).resolve().parents[1]
IS_CHECKOUT = (_PACKAGE.parent / "recipes").is_dir()
"""Bakehouse runs from a checkout, not from an installed wheel."""
HOME = _PACKAGE.parent if IS_CHECKOUT else _PACKAGE / "data"
"""Directory with Bakehouse's catalogue and templates: the checkout, or the data of the installed package."""

_DEFAULT_PORT = 5050
_MAX_PRICE = 10**9
"""Limit of the price of an hour, because TOML allows numbers of any size, and `inf`."""
_LEDGER = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.'()/-]*)?"
"""URLs without `*`: S3 allows it, but it is a wildcard in the policies of pipelines."""
_REPOSITORY = r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+"
_PREFIX = r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_REGISTRY = rf"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9a-fA-F:]+\])(:[0-9]{{1,5}})?(/{_PREFIX})?"
_REGION = r"[a-z]{2,4}(-[a-z]+)+-[0-9]"
_GLOB = re.compile(r"[A-Za-z0-9._*?\[\]!-]+")
_BUILDER = re.compile("[A-Za-z0-9][A-Za-z0-9_.+-]*")
"""Names of buildx's builders and docker's contexts; others could be options."""
_PATH = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff$`\"'\\]+"
_PATH_HINT = "use a path without quotes, `$` and control characters, because pipelines contain it"
_ARCHIVE = re.compile(r"https?://\S+")
_ARCHIVE_HINT = "use the root URL of an archive, such as `https://mirror.example/debian`"
_OURS = re.compile(r"^\[tool\.bakehouse[.\]]", re.M)
_KEYS = (
    "requires",
    "recipes",
    "commit",
    "registry",
    "region",
    "repository_prefix",
    "mirrors",
    "debian_mirrors",
    "ca",
    "cache",
    "registry_port",
    "prices",
    "ledger",
    "registries",
    "builders",
    "build_cache",
    "build_on_host",
    "ci",
    "signing_key",
    "policy",
    "jobs",
    "sagemaker_sdk",
)
_TWICE = "Cannot overwrite a value"
"""Text of tomllib for a key that a table has twice."""
_JOB_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
"""Names of jobs, without dots and slashes, so that they differ from paths of files."""


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """A directory with its own recipes, or the directory of Bakehouse."""

    root: Path
    recipe_roots: tuple[Path, ...]
    """Directories with `components/` and `images/`; entries of later ones replace those of earlier ones."""
    commit: tuple[str, ...] = ()
    """Names or globs of the own images whose files are committed; empty means all."""
    registry: str = "local"
    """`local`, `ecr`, the name of one of `registries`, or a registry's host and a prefix."""
    registries: Mapping[str, "RegistrySettings"] = field(default_factory=dict)
    region: str | None = None
    repository_prefix: str = "bakehouse"
    mirrors: tuple[str, ...] = ()
    """Directories, URL prefixes and S3 prefixes that may have files, looked up by sha256."""
    debian_mirrors: tuple[str, ...] = ()
    """Root URLs of Debian's archives; empty for those of apt on this machine, else Debian's own."""
    ca_file: Path | None = None
    cache_directory: Path = field(default_factory=lambda: Path.home() / ".cache/bakehouse/files")
    registry_port: int = _DEFAULT_PORT
    user_state: Path = field(default_factory=lambda: _user_state(os.environ))
    """Directory of the user's state, outside of all projects."""
    builders: tuple[str, ...] = ()
    """Names of buildx builders; the available ones share the images of a build."""
    build_cache: str = ""
    """Repository of the build cache, as host and path; empty without one."""
    builds_on_host: bool = False
    ledger: str = ""
    """`s3://bucket/prefix` of the ledger of a team; empty if the only ledger is in `images`."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """Price of an hour of an instance type, set by the user."""
    keep_registry: bool = False
    """Let the local registry run after a push, so that its images can be pulled."""
    key_address: str = ""
    policy: "Policy | None" = None
    """Requirements on images that are promoted or launched; None without such a table."""
    ci: "CiSettings | None" = None
    """Settings of generated pipelines; None without such a table."""
    jobs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Tables of jobs by name, as written; `jobs.job_settings` reads them."""
    sagemaker_sdk: int = 3
    """Version of the SageMaker SDK that code is printed for: 2 or 3."""
    state_directory: Path | None = None
    """Directory of `state` and `output`, in place of the usual ones."""
    state_variable: str = ""
    """Variable that sets a directory for the state that a commit can write to; empty usually."""
    unconfirmed: Mapping[str, "ConsentRequest"] = field(default_factory=dict)
    """Settings that need the user's consent and do not have it, by key."""
    widening: Mapping[str, str] = field(default_factory=dict)
    """Settings of the file that widen trust, as values of their variables, by key."""
    is_fallback: bool = False
    """No project was found: this is Bakehouse's checkout, or the current directory if it is installed."""

    def require_consent(self, key: str) -> None:
        """Raise TrustError if a setting needs the user's consent and does not have it."""
        if request := self.unconfirmed.get(key):
            raise request.error

    @property
    def ca(self) -> Path | None:
        """PEM file with further certificates. Raises TrustError without the user's consent."""
        self.require_consent("ca")
        return self.ca_file

    @property
    def cache(self) -> Path:
        """Cache of downloaded files by sha256, for all projects. Raises TrustError without consent."""
        self.require_consent("cache")
        return self.cache_directory

    @property
    def build_on_host(self) -> bool:
        """Let `bake lock` run build backends of source distributions on this machine; no without consent."""
        return self.builds_on_host and "build_on_host" not in self.unconfirmed

    @property
    def signing_key(self) -> str:
        """Path of a private key, or `awskms:///` and the ARN of a key; if empty, nothing is signed.

        Raises TrustError without consent.
        """
        self.require_consent("signing_key")
        return self.key_address

    def commits(self, image: str) -> bool:
        """Return whether the rendered files of an image are committed, and not only its key."""
        return not self.commit or any(fnmatchcase(image, glob) for glob in self.commit)

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def state(self) -> Path:
        """Directory of what this machine found out about the project, such as test results.

        Gates believe its files, so no commit may contain them. Raises RecipeError if one could.
        """
        directory = self.state_directory or state_of(self.root, self.user_state)
        if self.state_variable:
            raise RecipeError(
                f"the state directory `{directory}` is inside of the repository",
                reasons=(Reason("a commit could contain test results there, which `push` would believe"),),
                hint=f"set {self.state_variable} to a directory outside of `{repository_around(self.root)}`",
            )
        return directory

    @property
    def output(self) -> Path:
        """Directory of files for the user, such as logs. A commit can contain it, so no gate reads it."""
        return self.state_directory or self.root / "build"

    def publishes_to(self, host: str, repository: str, registry: str = "") -> bool:
        """Return whether a registry, by default the configured one, has a repository; `local` has all."""
        name = (registry or self.registry).partition("/")[0]
        if name == "local":
            return True
        settings = self.registries.get(name)
        if not settings:
            return is_named(host, name)
        # Several tables may name one host. A repository of another prefix is that of an earlier setting
        owners = [
            table
            for table in self.registries.values()
            if _is_at(table, host) and repository.startswith(f"{table.prefix or self.repository_prefix}/")
        ]
        longest = max((len(table.prefix or self.repository_prefix) for table in owners), default=0)
        nearest = [table for table in owners if len(table.prefix or self.repository_prefix) == longest]
        return _is_at(settings, host) and (not nearest or settings in nearest)

    @property
    def registry_state(self) -> Path:
        """Directory of the local registry. Names of its images contain the port."""
        return self.user_state / f"registry-{self.registry_port}"


def _is_at(settings: "RegistrySettings", host: str) -> bool:
    """Return whether a table names a host."""
    if settings.host:
        return is_named(host, settings.host)
    match = ECR_HOST.fullmatch(host)
    is_account = match is not None and settings.account in ("", match["account"])
    return is_account and (not settings.regions or region_of(host) in settings.regions)


def find(start: Path, environment: Mapping[str, str] = os.environ) -> ProjectSettings:
    """Return the project of the nearest pyproject.toml with a `[tool.bakehouse]` table, else of Bakehouse."""
    for directory in (start, *start.parents):
        path = directory / "pyproject.toml"
        if is_file(path) and (table := _table(path)) is not None:
            return _read(directory, path, table, environment)
    root = HOME if IS_CHECKOUT else start
    path = root / "pyproject.toml"
    present = _read(root, path, (is_file(path) and _table(path)) or {}, environment)
    return replace(present, is_fallback=not IS_CHECKOUT or root != start)


def state_of(root: Path, user_state: Path) -> Path:
    """Return the state directory of the project in a directory.

    Only the path identifies the project: a commit can change everything that a project says about itself.
    """
    path = root.resolve()
    name = re.sub("[^A-Za-z0-9._-]", "_", path.name)[:40]
    return user_state / "projects" / f"{name}-{sha256(os.fsencode(path)).hexdigest()[:16]}"


def images_directory(start: Path) -> Path:
    """Return `find(start).images` without validating the table, because image URI look-ups must be fast."""
    return (root_of(start) or (HOME if IS_CHECKOUT else start)) / "images"


def root_of(start: Path) -> Path | None:
    """Return the directory of the project around a directory; None outside a project."""
    for directory in (start, *start.parents):
        path = directory / "pyproject.toml"
        if is_file(path) and _has_table(path):
            return directory
    return None


def _has_table(path: Path) -> bool:
    """Return whether a file has the table; it is parsed as TOML only if its lines are not enough."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError):
        return _table(path) is not None
    if "bakehouse" not in text:
        return False
    has_long_texts = '"""' in text or "'''" in text
    return bool(_OURS.search(text) and not has_long_texts) or _table(path) is not None


def _table(path: Path) -> dict[str, object] | None:
    import tomllib

    try:
        text = read_text(path)
        tools = tomllib.loads(text).get("tool", {})
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RecipeError(f"cannot read `{path.name}`: {reason}", Location(path, 1, 1)) from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"`{path.name}` is not UTF-8 text", Location(path, 1, 1)) from error
    except tomllib.TOMLDecodeError as error:
        raise RecipeError.of(_syntax_error(path, text, str(error))) from error
    except (RecursionError, ValueError) as error:
        # Python refuses integers of thousands of digits
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
        raise RecipeError(f"cannot read `{path.name}`: {problem}", Location(path, 1, 1)) from error
    if not isinstance(tools, dict) or "bakehouse" not in tools:
        return None
    table = tools["bakehouse"]
    if not isinstance(table, dict):
        raise RecipeError(
            "`tool.bakehouse` must be a table of names and values", key_location(path, "bakehouse", "tool")
        )
    return table


def _read(
    root: Path, path: Path, values: dict[str, object], environment: Mapping[str, str]
) -> ProjectSettings:
    problems = Problems()
    table = TomlTable(values, "tool.bakehouse", path, problems)
    # First, because another version may have other keys
    _require_version(table)
    table.check_keys(_KEYS)
    recipe_roots = table.texts("recipes")
    for directory in recipe_roots:
        if not is_directory(root / directory):
            message = f"`recipes` in [tool.bakehouse] names `{directory}`, which is not a directory"
            table.report("recipes", message)
    ca = environment.get("BAKEHOUSE_CA", table.text("ca", pattern=_PATH, hint=_PATH_HINT))
    state = environment.get("BAKEHOUSE_STATE", "")
    state_directory, user_state = Path(state).absolute() if state else None, _user_state(environment)
    cache_hint = "use a host and a repository, such as `registry.example/team/build-cache`"
    registry_hint = "use `local`, `ecr`, a name of [tool.bakehouse.registries], or a host and a prefix"
    ledger_hint = "use an S3 URL such as `s3://our-bucket/releases`"
    policy = _policy(root, table)
    project = ProjectSettings(
        root=root,
        recipe_roots=(HOME / "recipes", *(root / directory for directory in recipe_roots)),
        commit=table.texts("commit", _GLOB.fullmatch, "use a name or a glob of images, such as `churn-*`"),
        registry=environment.get(
            "BAKEHOUSE_REGISTRY", table.text("registry", "local", pattern=_REGISTRY, hint=registry_hint)
        ),
        region=table.text("region", pattern=_REGION, hint="use the name of a region, such as `eu-west-1`")
        or None,
        repository_prefix=table.text(
            "repository_prefix", "bakehouse", pattern=_PREFIX, hint="use a prefix such as `team/training`"
        ),
        mirrors=(
            *(_mirror(root, mirror) for mirror in table.texts("mirrors")),
            *environment.get("BAKEHOUSE_MIRRORS", "").split(),
        ),
        debian_mirrors=(
            *table.texts("debian_mirrors", _ARCHIVE.fullmatch, _ARCHIVE_HINT),
            *environment.get("BAKEHOUSE_DEBIAN_MIRRORS", "").split(),
        ),
        ca_file=root / ca if ca else None,
        cache_directory=_cache(root, table.text("cache", pattern=_PATH, hint=_PATH_HINT), environment),
        registry_port=_port(table, environment),
        user_state=user_state,
        keep_registry=environment.get("BAKEHOUSE_KEEP_REGISTRY", "1") != "0",
        builders=_builders(table, environment),
        build_cache=environment.get(
            "BAKEHOUSE_BUILD_CACHE", table.text("build_cache", pattern=_REPOSITORY, hint=cache_hint)
        ),
        builds_on_host=_build_on_host(table, environment),
        ledger=table.text("ledger", pattern=_LEDGER, hint=ledger_hint),
        prices=_prices(table),
        state_directory=state_directory,
        state_variable=_state_variable(root, state_directory, user_state, environment),
        registries=_registries(table),
        key_address=_signing_key(root, table, environment),
        **_consent(root, table, policy, user_state, environment),
        policy=policy,
        ci=_ci(table),
        jobs=_jobs(table),
        sagemaker_sdk=table.number("sagemaker_sdk", 3, range(2, 4), "2 or 3"),
    )
    problems.raise_as(RecipeError)
    return project


def _require_version(table: TomlTable) -> None:
    """Raise RecipeError if `requires` is not a specifier, or if this version does not satisfy it."""
    if "requires" not in table.values:
        return
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    text = table.text("requires")
    try:
        versions = SpecifierSet(text, prereleases=True)
    except InvalidSpecifier:
        hint = "use version specifiers, such as `>=0.2,<0.3`"
        table.report("requires", f"`requires` in [{table.name}] is invalid: `{text}`", hint)
    else:
        if __version__ not in versions:
            message = f"this project requires Bakehouse {text}, and this is Bakehouse {__version__}"
            table.report("requires", message, "install a version that satisfies it, or change `requires`")
    table.problems.raise_as(RecipeError)


def _mirror(root: Path, address: str) -> str:
    """Resolve a relative path from the directory of the project, not from the current one."""
    is_path = bool(address) and ":" not in address.partition("/")[0]
    return str(root / expand_home(address)) if is_path else address


def _port(table: TomlTable, environment: Mapping[str, str]) -> int:
    """Return the port of the environment, else of the table; both are checked."""
    expected = "a port number, from 1 to 65535"
    port = table.number("registry_port", _DEFAULT_PORT, range(1, 65536), expected)
    text = environment.get("BAKEHOUSE_REGISTRY_PORT", "")
    if text and not (re.fullmatch("[0-9]{1,5}", text) and 0 < int(text) < 65536):
        message = f"`BAKEHOUSE_REGISTRY_PORT` is `{text}`; it must be {expected}"
        table.problems.add(Diagnostic(message))
        return port
    return int(text or port)


def _builders(table: TomlTable, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the builder of buildx's own variable, else those of the table."""
    names = table.texts("builders", _BUILDER.fullmatch, "`docker buildx ls` lists builders")
    builder = environment.get("BUILDX_BUILDER")
    return (builder,) if builder else names


def _user_state(environment: Mapping[str, str]) -> Path:
    return _xdg(environment, "XDG_STATE_HOME", ".local/state") / "bakehouse"


def _state_variable(
    root: Path, directory: Path | None, user_state: Path, environment: Mapping[str, str]
) -> str:
    """Return the variable to change if the state is in the project's repository; empty if it is not."""
    if not (directory or user_state).resolve().is_relative_to(repository_around(root)):
        return ""
    if directory:
        return "BAKEHOUSE_STATE"
    return "XDG_STATE_HOME"


def _cache(root: Path, directory: str, environment: Mapping[str, str]) -> Path:
    if path := environment.get("BAKEHOUSE_CACHE") or directory:
        return root / expand_home(path)
    return _xdg(environment, "XDG_CACHE_HOME", ".cache") / "bakehouse" / "files"


def _build_on_host(table: TomlTable, environment: Mapping[str, str]) -> bool:
    value = environment.get("BAKEHOUSE_BUILD_ON_HOST")
    setting = table.flag("build_on_host")
    return setting if value is None else value not in ("", "0")


def _consent(
    root: Path, table: TomlTable, policy: "Policy | None", user_state: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the fields about settings that need consent."""
    if table.problems:
        return {}
    from bakehouse.catalog import consent

    asked = consent.requests(root, table, user_state, environment)
    if request := consent.policy_request(root, table, policy, user_state, environment):
        asked["policy"] = request
    return {"unconfirmed": asked, "widening": consent.widening(root, table.values)}


def _xdg(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a directory of the XDG Base Directory Specification."""
    return Path(environment.get(variable) or Path(environment.get("HOME") or Path.home(), default))


def _signing_key(root: Path, table: TomlTable, environment: Mapping[str, str]) -> str:
    key = environment.get("BAKEHOUSE_SIGNING_KEY", table.text("signing_key", pattern=_PATH, hint=_PATH_HINT))
    if not key.startswith("awskms:"):
        return str(root / expand_home(key)) if key else ""
    from bakehouse.catalog.registry_settings import KMS_KEY

    if not re.fullmatch(KMS_KEY, key):
        hint = "use `awskms:///` and the ARN of a key: `awskms:///arn:aws:kms:eu-west-1:123456789012:key/…`"
        table.report("signing_key", f"`signing_key` in [tool.bakehouse] is invalid: `{key}`", hint)
    return key


def _registries(table: TomlTable) -> Mapping[str, "RegistrySettings"]:
    if "registries" not in table.values:
        return {}
    # Most projects have none, and image URI look-ups read a project too.
    from bakehouse.catalog.registry_settings import read_registries

    return read_registries(table)


def _policy(root: Path, table: TomlTable) -> "Policy | None":
    if "policy" not in table.values:
        return None
    from bakehouse.catalog.trust_settings import read_policy

    return read_policy(root, table)


def _ci(table: TomlTable) -> "CiSettings | None":
    if "ci" not in table.values:
        return None
    from bakehouse.catalog.ci_settings import read_ci

    return read_ci(table)


def _jobs(table: TomlTable) -> dict[str, Mapping[str, object]]:
    """Read the names of jobs. Commands that use a job read its table."""
    given = table.child("jobs", "a table of names and jobs")
    jobs: dict[str, Mapping[str, object]] = {}
    for name, job in given.values.items():
        if not isinstance(job, dict):
            given.report_type(name, "a table")
        elif not _JOB_NAME.fullmatch(name):
            message = f"`{name}` in [{given.name}] is not a valid name of a job"
            given.report(name, message, "use at most 64 letters, digits, `-` and `_`")
        else:
            jobs[name] = job
    return jobs


def _prices(table: TomlTable) -> dict[str, float]:
    """Read the price of each instance type, in the currency of the user."""
    given = table.child("prices", "a table of instance types and prices")
    prices = {}
    for name, price in given.values.items():
        if isinstance(price, int | float) and 0 < price < _MAX_PRICE and not isinstance(price, bool):
            prices[name] = float(price)
        elif isinstance(price, dict):
            hint = f'quote it: `"{given.dotted(name)}"`'
            given.report(name, f"`{name}` in [{given.name}] is not an instance type", hint)
        else:
            given.report_type(name, "a number above 0")
    return prices


def _syntax_error(path: Path, text: str, problem: str) -> Diagnostic:
    """Return the mistake with its location, which tomllib only has in its message."""
    words, _, position = problem.removesuffix(")").rpartition(" (at ")
    lines = text.split("\n")
    spot = Location(path, len(lines), len(lines[-1]) + 1, 1, lines[-1])
    if match := re.fullmatch(r"line ([0-9]+), column ([0-9]+)", position):
        line, column = int(match[1]), int(match[2])
        spot = Location(path, line, column, 1, lines[line - 1])
        if words == _TWICE and (places := _places(path, lines[:line])):
            second, first = places
            reasons = (Reason("the first value is here", first),)
            message = f"`{second.text[second.column - 1 :][: second.length]}` is given twice"
            return Diagnostic(message, second, reasons=reasons, hint="remove one of them")
    return Diagnostic("this is not TOML", spot, f"{words[:1].lower()}{words[1:]}")


def _places(path: Path, lines: list[str]) -> tuple[Location, Location] | None:
    """Return the places of the key on the last line and of the same key before it in its table."""
    key, found = lines[-1].partition("=")[0].strip(), []
    for number in range(len(lines), 0, -1):
        line = lines[number - 1]
        if line.partition("=")[0].strip() == key:
            found.append(Location(path, number, line.find(key) + 1, len(key), line))
        if len(found) == 2:
            return found[0], found[1]
        if line.lstrip().startswith("["):
            break
    return None
