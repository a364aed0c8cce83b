"""Arguments of a script that torchrun takes for its own, by release of PyTorch and Python.

The facts are `torchrun.yaml` of the component `pytorch`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from packaging.version import InvalidVersion, Version

from bakehouse.catalog.project import HOME
from bakehouse.errors import Problems, RecipeError
from bakehouse.jobs import rules
from bakehouse.jobs.rules import RuleViolation
from bakehouse.jobs.script_arguments import argument_text
from bakehouse.ledger.toolkit import Releases, read_releases
from bakehouse.util import yaml_reader
from bakehouse.util.format import format_names
from bakehouse.util.yaml_fields import Fields

_ADDED_BY_LAUNCHER = ("sagemaker_", "mp_parameters")
"""Beginnings of hyperparameters that are not arguments of the script."""


@dataclass(frozen=True, slots=True)
class _Facts:
    options: Mapping[str, Releases]
    """Options of torchrun, and the releases of PyTorch that have them."""
    python: tuple[Version, ...]
    """First release of each series whose argparse leaves the arguments of the script alone."""
    distributions: Mapping[str, str]
    """Release of Python in a release of a distribution, such as `ubuntu 24.04`."""


def abbreviation_findings(
    hyperparameters: Mapping[str, object], versions: Mapping[str, str], *, letters_have_one_dash: bool
) -> Iterator[RuleViolation]:
    """Yield a finding for each hyperparameter whose argument ends torchrun.

    argparse looks for abbreviations of torchrun's options in all arguments, and ends at one that fits
    several. `versions` are those of the image. SageMaker's toolkit puts one dash before names of one letter.
    """
    is_fixed = _is_fixed(versions)
    if is_fixed:
        return
    release = versions.get("pytorch", "")
    options = [name for name, releases in _facts().options.items() if releases.contains(release) is not False]
    conditions = [] if release else ["its release has them"]
    if is_fixed is None:
        fixes = format_names(map(str, _facts().python), " or ")
        conditions.append(f"its Python is older than {fixes}")
    rule = rules.TORCHRUN_UNKNOWN if conditions else rules.TORCHRUN
    condition = f", if {' and '.join(conditions)}" if conditions else ""
    for name, value in hyperparameters.items():
        if name.startswith(_ADDED_BY_LAUNCHER):
            continue
        argument = f"-{name}" if letters_have_one_dash and len(name) == 1 else f"--{name}"
        # After `--`, argparse looks for no options
        for word in (argument, argument_text(value)) if argument != "--" else ():
            matches = _matches(word, options)
            if len(matches) < 2:
                continue
            part = "the name" if word == argument else "the value"
            message = f"torchrun ends at `{word}`, {part} of the hyperparameter `{name}`, because it could "
            message += f"mean its own `{matches[0]}` or `{matches[-1]}`{condition}"
            hint = "use another name" if word == argument else "use another value"
            if len(name) == 1 and not letters_have_one_dash:
                hint += f", or `--sdk v2` or `--sdk boto3`, which send `-{name}`"
            elif is_fixed is None:
                hint += ", or run `python --version` in the image"
            yield RuleViolation(rule, message, hint)


def _matches(word: str, options: list[str]) -> list[str]:
    """Return the options that argparse finds for an argument."""
    start = word.partition("=")[0]
    if not word.startswith("--") or word in ("--", *options) or start in options:
        return []
    return [option for option in options if option.startswith(start)]


def _is_fixed(versions: Mapping[str, str]) -> bool | None:
    """Return whether argparse leaves the arguments of the script alone; None if that is not known."""
    minor = versions.get("python", "")
    distributions = (
        release
        for name, release in _facts().distributions.items()
        if versions.get(name.partition(" ")[0]) == name.partition(" ")[2]
    )
    exact = [versions.get("python-standalone", ""), *distributions]
    release = next((text for text in exact if minor and text.startswith(f"{minor}.")), minor)
    try:
        version = Version(release)
    except InvalidVersion:
        return None
    fixes = {fix.release[:2]: fix for fix in _facts().python}
    series = version.release[:2]
    if series not in fixes:
        return series > max(fixes)
    return None if len(version.release) < 3 else version >= fixes[series]


@cache
def _facts() -> _Facts:
    path = HOME / "recipes/components/pytorch/torchrun.yaml"
    problems = Problems()
    table = Fields(yaml_reader.load(path), f"`{path.name}`", problems)
    table.text("source", required=True)
    table.text("issue", required=True)
    oldest = table.text("oldest", required=True)
    options = read_releases(table, "options", oldest)
    python = tuple(Version(text) for text in table.texts("python"))
    distributions = {key.text: text.text for key, text in table.text_pairs("distributions")}
    table.finish()
    problems.raise_as(RecipeError)
    return _Facts(options, python, distributions)
