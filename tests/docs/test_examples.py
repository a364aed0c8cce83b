"""The commands of the examples are those of jobs that the tests run."""

import json
import re
import shlex
from collections.abc import Mapping

import pytest

from bakehouse.jobs.rules import Findings
from bakehouse.jobs.smp_parameters import SmpContext, check_names
from tests.integration import launch_matrix
from tests.integration.jobs import EXAMPLES
from tests.integration.launches import SMP, STUBS
from tests.support.documents import table_rows


def run_jobs() -> list[tuple[str, str, str]]:
    """Return the example, the image and the distribution of each tested job."""
    return [
        (case.source.name, case.image, json.dumps(case.distribution))
        for case in launch_matrix.cases().values()
        if case.source
    ]


def examples() -> list[tuple[str, str]]:
    """Return the directory and the options of each command."""
    rows = table_rows((EXAMPLES / "README.md").read_text())
    return [(row[0].strip("`"), re.findall("`([^`]+)`", row[2])[-1]) for row in rows]


def distribution(words: list[str]) -> Mapping[str, object]:
    if "--job" in words:
        job = json.loads(words[words.index("--job") + 1])
        return {job["distribution"]: {"enabled": True}}
    if "--distribution" in words:
        value: Mapping[str, object] = json.loads(words[words.index("--distribution") + 1])
        return value
    return {}


@pytest.mark.parametrize(("name", "command"), examples())
def test_a_job_with_the_image_and_distribution_of_the_command_is_tested(name: str, command: str) -> None:
    words = shlex.split(command)
    image = words[2] if words[0] == "bake" else STUBS

    assert (name, image, json.dumps(distribution(words))) in run_jobs()


def test_each_example_has_a_command() -> None:
    assert {name for name, _ in examples()} == {path.name for path in EXAMPLES.iterdir() if path.is_dir()}


def test_smp_has_the_parameters_of_the_example_from_1_6_to_1_15() -> None:
    for version in ("1.6.0", "1.15.0"):
        findings = Findings()
        check_names("parameters", SMP, SmpContext(version, 1, "pytorch", 2), findings)
        assert (*findings.errors, *findings.warnings) == ()


def test_smp_1_5_lacks_a_parameter_of_the_example() -> None:
    findings = Findings()
    check_names("parameters", SMP, SmpContext("1.5.0", 1, "pytorch", 2), findings)

    assert [finding.message for finding in findings.errors] == [
        "`parameters.pipeline_parallel_degree` needs SMP 1.6.0, but the image has 1.5.0"
    ]
