"""Check that the outputs in the guides are those of the code."""

import re
import shlex
from pathlib import Path

import pytest

from bakehouse.cluster.nccl_log import read_transports
from bakehouse.plan import image_keys
from tests.docs.prose import HOME
from tests.support.documents import blocks, table_rows
from tests.support.programs import bake

GUIDES = HOME / "docs/how-to"
README = (HOME / "README.md").read_text(encoding="utf-8")


def test_the_comparison_of_instances_is_what_the_command_prints(tmp_path: Path) -> None:
    codes = [code for _, code in blocks(GUIDES / "choose-instances.md")]
    [sample] = [code for code in codes if code.startswith("$ bake")]
    [prices] = [code for code in codes if "[tool.bakehouse.prices]" in code]
    (tmp_path / "pyproject.toml").write_text(prices)
    command, output = re.split(r"(?<!\\)\n", sample.removeprefix("$ bake "), maxsplit=1)
    arguments = shlex.split(command.replace("\\\n", " "))
    assert bake(*arguments, cwd=tmp_path).stdout == output


def test_the_readme_begins_with_what_validate_prints() -> None:
    [sample] = [code for _, code in blocks(HOME / "README.md") if code.startswith("$ bake validate")]
    command, output = sample.removeprefix("$ bake ").split("\n", 1)
    printed = bake(*shlex.split(command))
    assert printed.stderr + printed.stdout == output


def test_the_readme_shows_the_demo_of_the_image_with_todays_key() -> None:
    keys = image_keys.parse((HOME / "images" / image_keys.FILE).read_text())
    [(image, key)] = re.findall(r"<!-- (\S+), build key (\w+) -->\n```console\n\$ ./bake uri", README)
    known = keys[image]
    assert known
    assert known.key.startswith(key), "run `./bake demo` and copy its URI and build key"


@pytest.mark.parametrize(
    ("sentence", "measure", "start", "columns"),
    [
        (r"costs (\d+) s .* and (\d+) s", "P12b", "one requirement changed", (2, 3)),
        (r"`./bake demo` took (\d+) s", "P11", "the demo", (2,)),
    ],
)
def test_the_readme_gives_the_times_of_the_benchmarks(
    sentence: str, measure: str, start: str, columns: tuple[int, ...]
) -> None:
    pages = ("docs/explanation/benchmarks.md", "docs/reference/benchmark-results.md")
    rows = [row for page in pages for row in table_rows((HOME / page).read_text())]
    row = next(row for row in rows if row[0] == measure and row[1].startswith(start))
    match = re.search(sentence, README.replace("\n", " "))
    assert match
    for given, column in zip(match.groups(), columns, strict=True):
        digits = len(given.partition(".")[2])
        assert given == f"{float(row[column].removesuffix(' s')):.{digits}f}"


@pytest.mark.parametrize(
    ("page", "source", "phrases"),
    [
        (
            "run-jobs-locally.md",
            "bakehouse/cluster",
            [
                "(predicted SageMaker status)",
                "no NCCL: the hosts had no GPUs, so ranks used gloo, MPI or gRPC",
                "logs of hosts and ranks: ",
                "first failure",
                "  log: ",
                "killed by this run",
                "still running",
                " later",
                "ran out of memory",
            ],
        ),
    ],
)
def test_messages_in_guides_are_those_of_the_code(page: str, source: str, phrases: list[str]) -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in Path(HOME / source).glob("*.py"))
    guide = (GUIDES / page).read_text(encoding="utf-8")
    assert [phrase for phrase in phrases if phrase not in guide or phrase not in code] == []


def test_the_guide_shows_logs_of_nccl_that_bakehouse_reads_in_the_same_way() -> None:
    logs = [code for _, code in blocks(GUIDES / "train-over-efa.md") if "NCCL INFO" in code]
    efa, tcp = (read_transports([log]) for log in logs)
    assert (efa.networks, efa.ways, efa.uses_sockets) == (("Libfabric",), ("NET/Libfabric/GDRDMA",), False)
    assert (tcp.networks, tcp.ways, tcp.uses_sockets) == (("Socket",), ("NET/Socket",), True)


def test_the_guide_names_the_drivers_that_the_compatibility_libraries_support() -> None:
    component = (HOME / "recipes/components/cuda-compat/component.yaml").read_text()
    [branches] = re.findall(r'version: "13\.0".*?branches: ([\d ]+)', component, re.DOTALL)
    guide = (GUIDES / "train-over-efa.md").read_text(encoding="utf-8")
    *others, last = branches.split()
    assert f"with the driver branches {', '.join(others)} and {last}:" in guide
