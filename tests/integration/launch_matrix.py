"""Write the page of tested launchers from the results of their tests.

`python -m tests.integration.launch_matrix` adds the last results to docs/reference/launchers.md, and marks
the rows whose image or example has changed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime

from bakehouse.catalog.project import HOME
from bakehouse.cluster.job_report import JobReport
from bakehouse.plan import image_keys
from bakehouse.util.files import write_whole
from tests.integration.jobs import EXAMPLES, Case
from tests.integration.launches import ALL_LAUNCHES

PAGE = HOME / "docs/reference/launchers.md"
NOTES = HOME / "build/launchers"
LAUNCHERS = {
    "one-process": "one process, toolkit",
    "mpi": "Open MPI 4, toolkit",
    "mpi-one-host": "Open MPI 4, toolkit",
    "mpi-options": "Open MPI 4 with custom options, toolkit",
    "mpi-on-one-group": "Open MPI 4 on one of two groups, toolkit",
    "mpi5": "Open MPI 5, toolkit",
    "horovod": "Horovod over Open MPI 4, toolkit",
    "horovod-one-host": "Horovod over Open MPI 4, toolkit",
    "horovod-in-groups": "Horovod over Open MPI 4 on one of two groups, toolkit",
    "torch-ddp": "torchrun, PyTorch toolkit",
    "torch-ddp-one-host": "torchrun, PyTorch toolkit",
    "fsdp": "torchrun with FSDP, PyTorch toolkit",
    "deepspeed": "torchrun with DeepSpeed, PyTorch toolkit",
    "torchrun-without-toolkit": "torchrun, no toolkit",
    "sdk-v3-torchrun": "SDK v3's Torchrun driver",
    "sdk-v3-mpi": "SDK v3's MPI driver",
    "smddp": "SMDDP (stub), PyTorch toolkit",
    "smddp-two-hosts": "SMDDP (stub), PyTorch toolkit",
    "pytorchddp": "pytorchddp, PyTorch toolkit",
    "smp-1": "SMP 1 (stub) with MPI, PyTorch toolkit",
    "smp-2": "SMP 2 (stub) with torchrun, PyTorch toolkit",
    "dali": "one process with DALI, PyTorch toolkit",
    "pytorch-groups": "gRPC data service between two groups",
    "tensorflow-groups": "tf.data.service between two groups",
    "tensorflow-mirrored": "MultiWorkerMirroredStrategy with `fit` of Keras 2, TensorFlow toolkit",
    "tensorflow-mirrored-keras-3": "MultiWorkerMirroredStrategy with `fit` of Keras 3, TensorFlow toolkit",
    "tensorflow-parameter-server": "parameter servers with `fit` of Keras 2, TensorFlow toolkit",
    "tensorflow-parameter-server-keras-3": "parameter servers with `fit` of Keras 3, TensorFlow toolkit",
}
"""The cases of those modules that have a line, by what the page calls them; others show losses."""
NOT_TESTED = (
    ("Horovod with callbacks of Keras", "any", "compiling Horovod takes too long, and no test has run it"),
    ("NCCL over EFA", "any", "the test machine has no EFA and no GPU"),
    ("SMDDP and SMP with their libraries", "any", "the libraries run only on AWS's GPU instances"),
    ("SMP 2 from AWS's own images", "any", "pulling the images needs an AWS account"),
)
HEAD = """\
# Tested launchers

The tests write this page: run `./bake test` and `./bake test --release`, then
`python -m tests.integration.launch_matrix`. Each row is one run of an [example](../../examples/README.md) on
a machine with two cores and no GPU, in parallel with other jobs. Times are upper bounds. The key is a hash of
the image's build key and of the example. If one of them has changed since that run, the row says so. `fails`
is a known failure, which the example says how to avoid.

"""
COLUMNS = ("launcher", "hosts", "image", "example", "result", "seconds", "run", "key")
CHANGED = ", changed since"


@dataclass(frozen=True)
class Row:
    """The last run of one launcher on one set of hosts."""

    launcher: str
    hosts: str
    image: str
    example: str
    result: str
    seconds: str = ""
    run: str = ""
    """The day of the run; empty if it was not run."""
    key: str = ""

    @property
    def line(self) -> tuple[str, str, str, str]:
        return self.launcher, self.hosts, self.image, self.example


def row(name: str, case: Case, report: JobReport | None = None, why_not: str = "") -> Row:
    """Return the row of a case; without a report, with the reason why it was not run."""
    columns = line_of(name, case)
    if report is None:
        return Row(*columns, f"not tested: {why_not}")
    word = "fails" if case.fails and report.cause == case.fails else "failed"
    result = "passed" if report.passed else f"{word}: {(report.cause or report.reason)[:80]}"
    _, _, image, example = columns
    return Row(*columns, result, f"{report.seconds:.0f}", f"{datetime.now(UTC).date()}", key(image, example))


def key(image: str, example: str) -> str:
    """Return the key of what a row describes."""
    keys = image_keys.parse((HOME / "images" / image_keys.FILE).read_text())
    known = keys[image.removesuffix("-with-stubs")]
    total = hashlib.sha256(f"{known.key if known else None}\n".encode())
    for path in sorted((EXAMPLES / example).glob("*.py")):
        total.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:8]


def line_of(name: str, case: Case) -> tuple[str, str, str, str]:
    """The launcher, the hosts, the image and the example of a case."""
    image = case.image.partition(":")[0].removeprefix("bakehouse/test-")
    return LAUNCHERS[name], hosts(case), image, case.source.name if case.source else ""


def hosts(case: Case) -> str:
    """`2 x 2 ranks`, or the groups by name."""
    strategies = [value for value in case.distribution.values() if isinstance(value, Mapping)]
    counts = [
        strategy.get("processes_per_host", strategy.get("process_count_per_node")) for strategy in strategies
    ]
    by_hand = case.hyperparameters.get("sagemaker_mpi_num_of_processes_per_host")
    ranks = next((number for number in (*counts, by_hand) if number), case.processes or 1)
    named = [f"{group.name} {group.count}" for group in case.groups]
    count = ", ".join(named) if len(case.groups) > 1 else str(case.groups[0].count)
    if "MPI" in case.distribution:
        # The SDK's driver counts the ranks of the whole job.
        return f"{count}, {ranks} ranks in all"
    return f"{count} x {ranks} ranks" if ranks != 1 else count


def note(module: str, cases: Mapping[str, Case], reports: Mapping[str, JobReport], why_not: str = "") -> None:
    """Record the results of a module's cases; `why_not` is the reason for those without a report."""
    rows = [
        asdict(row(name, case, reports.get(name), why_not))
        for name, case in cases.items()
        if name in LAUNCHERS
    ]
    tier = "daily" if all(case.is_daily for case in cases.values()) else "release"
    path = NOTES / f"{module.rpartition('.')[2]}-{tier}.json"
    write_whole(path, json.dumps(rows, indent=2) + "\n")


def cases() -> dict[str, Case]:
    """Every case of the modules."""
    return {name: case for launches in ALL_LAUNCHES.values() for name, case in launches.items()}


def parse(page: str) -> list[Row]:
    """Return the rows of the page that name an image."""
    lines = [line for line in page.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]
    return [Row(*row) for row in cells if row[2]]


def merge(rows: list[Row], newer: list[Row]) -> list[Row]:
    """Return the last run of each case that still exists; a run counts more than a reason for none."""
    last: dict[tuple[str, str, str, str], Row] = {}
    for row in (*rows, *newer):
        if row.run or row.line not in last:
            last[row.line] = row
    current = {line_of(name, case) for name, case in cases().items() if name in LAUNCHERS}
    return [row for line, row in last.items() if line in current]


def text(rows: list[Row]) -> str:
    """Return the page."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for row in sorted(map(_dated, rows), key=lambda row: (row.launcher.lower(), row.hosts, row.image)):
        launcher, hosts, image, example, *others = astuple(row)
        lines.append("| " + " | ".join((launcher, hosts, f"`{image}`", f"`{example}`", *others)) + " |")
    lines += [
        f"| {launcher} | {where} | | | not tested: {why} | | | |" for launcher, where, why in NOT_TESTED
    ]
    return HEAD + "\n".join(lines) + "\n"


def _dated(row: Row) -> Row:
    """Mark the run of a row whose image or example has changed."""
    is_changed = row.run and row.key != key(row.image, row.example)
    return replace(row, run=row.run.removesuffix(CHANGED) + (CHANGED if is_changed else ""))


def noted() -> list[Row]:
    """Return the recorded rows of the last run of each module that was run here."""
    paths = [path for name in ALL_LAUNCHES for path in NOTES.glob(f"{name}-*.json")]
    return [Row(**fields) for path in paths for fields in json.loads(path.read_text())]


if __name__ == "__main__":
    write_whole(PAGE, text(merge(parse(PAGE.read_text()), noted())))
