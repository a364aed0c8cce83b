"""Hyperparameters that torchrun takes for its own options, compared with argparse. The real torchrun is in
tests/integration/test_pytorch_launchers.py."""

import argparse
import sys
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bakehouse.jobs import rules, torchrun
from bakehouse.jobs.rules import Rule
from bakehouse.jobs.torchrun import abbreviation_findings

BOOKWORM = {"pytorch": "2.13.0", "python": "3.11"}
RELEASES = ("1.13.1", "2.2.0", "2.9.1", "2.13.0")


def found(
    names: Mapping[str, object], versions: Mapping[str, str], *, one_dash: bool = True
) -> list[tuple[Rule, str, str]]:
    findings = abbreviation_findings(names, versions, letters_have_one_dash=one_dash)
    return [(finding.rule, finding.message, finding.hint) for finding in findings]


def test_an_abbreviation_of_two_options_is_reported() -> None:
    assert found({"log": 1, "log-dir": 2, "epochs": 3, "role": "a", "n": 1}, BOOKWORM) == [
        (
            rules.TORCHRUN,
            "torchrun ends at `--log`, the name of the hyperparameter `log`, because it could mean its own "
            "`--log_dir` or `--logs_specs`",
            "use another name",
        )
    ]
    assert found({"text": "--max"}, BOOKWORM) == [
        (
            rules.TORCHRUN,
            "torchrun ends at `--max`, the value of the hyperparameter `text`, because it could mean its own "
            "`--max_restarts` or `--max-restarts`",
            "use another value",
        )
    ]


def test_sdk_v3_puts_two_dashes_before_a_letter() -> None:
    assert found({"n": 1}, BOOKWORM, one_dash=False) == [
        (
            rules.TORCHRUN,
            "torchrun ends at `--n`, the name of the hyperparameter `n`, because it could mean its own "
            "`--nnodes` or `--numa_binding`",
            "use another name, or `--sdk v2` or `--sdk boto3`, which send `-n`",
        )
    ]


@pytest.mark.parametrize(
    ("versions", "rule"),
    [
        (BOOKWORM, rules.TORCHRUN),
        ({"pytorch": "2.13.0", "python": "3.12", "ubuntu": "24.04"}, rules.TORCHRUN),
        ({"pytorch": "2.13.0", "python": "3.12", "python-standalone": "3.12.14"}, None),
        ({"pytorch": "2.13.0", "python": "3.13", "debian": "13"}, None),
        ({"pytorch": "2.15.0", "python": "3.14"}, None),
        ({"pytorch": "1.13.1", "python": "3.9"}, None),
        ({"pytorch": "2.13.0", "python": "3.12"}, rules.TORCHRUN_UNKNOWN),
        ({"pytorch": "2.13.0"}, rules.TORCHRUN_UNKNOWN),
        ({"python": "3.11"}, rules.TORCHRUN_UNKNOWN),
    ],
)
def test_the_release_of_python_and_pytorch_decides(versions: dict[str, str], rule: Rule | None) -> None:
    assert [finding[0] for finding in found({"max": 1}, versions)] == ([rule] if rule else [])


def test_what_is_not_known_is_named() -> None:
    assert found({"max": 1}, {})[0][1:] == (
        "torchrun ends at `--max`, the name of the hyperparameter `max`, because it could mean its own "
        "`--max_restarts` or `--max-restarts`, if its release has them and its Python is older than "
        "`3.12.7` or `3.13.1`",
        "use another name, or run `python --version` in the image",
    )


def test_parameters_of_the_toolkit_are_not_arguments() -> None:
    assert found({"sagemaker_program": "--max", "mp_parameters": "--max"}, BOOKWORM) == []


@pytest.mark.skipif(sys.version_info >= (3, 12, 7), reason="this Python's argparse is mended")
@given(
    name=st.sampled_from(sorted(torchrun._facts().options)).flatmap(
        lambda option: st.integers(3, len(option)).map(lambda end: option[2:end])
    )
    | st.text("abdlmnorstx-_=.1 ", min_size=1, max_size=6),
    value=st.sampled_from(["1", "-0.5", "--max", "--role=x", "--ma=1", "a b", "-r"]),
    release=st.sampled_from(RELEASES),
    one_dash=st.booleans(),
)
@example(name="-", value="--max", release="2.13.0", one_dash=True)
def test_argparse_ends_at_the_same_arguments(name: str, value: str, release: str, one_dash: bool) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    for option, releases in torchrun._facts().options.items():
        if releases.contains(release):
            parser.add_argument(option)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    word = f"-{name}" if one_dash and len(name) == 1 else f"--{name}"
    try:
        parser.parse_args(["train.py", word, value])
        is_taken = True
    except (SystemExit, argparse.ArgumentError):
        is_taken = False
    ours = found({name: value}, {"pytorch": release, "python": "3.11"}, one_dash=one_dash)
    assert is_taken == (not ours)
