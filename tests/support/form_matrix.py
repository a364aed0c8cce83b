"""Which form of a job can start which launcher, found by printing each job in each form.

`python -m tests.support.form_matrix` writes docs/reference/job-forms.md.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from bakehouse.catalog.catalog import Catalog
from bakehouse.catalog.project import HOME
from bakehouse.cluster.job import Group
from bakehouse.errors import UsageError
from bakehouse.jobs import rules, snippets
from bakehouse.jobs.cluster_forms import FORMS
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.training_request import LaunchImage
from bakehouse.plan.workspace import open_workspace

PAGE = HOME / "docs/reference/job-forms.md"
COLUMNS = {"v3": "SDK v3", "v2": "SDK v2", "boto3": "boto3", **{form: f"`{form}`" for form in FORMS}}
_REPOSITORY = "000000000000.dkr.ecr.eu-west-1.amazonaws.com/bakehouse/image"
_ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"
_OTHERWISE = (rules.DRIVER, rules.GROUPS_V3, rules.RANKS_V3)
"""Warnings about code that starts another job than it should."""
_PYTORCH = LaunchImage(
    "image",
    "",
    {
        "pytorch": "2.9.1",
        "sagemaker-training": "5.1.4",
        "open-mpi": "4.1.8",
        "libfabric": "2.7.0",
        # The drivers of SDK v3 need them for MPI.
        "sshd": "1",
        "mpi4py": "4.1.1",
    },
    ("mpirun", "torchrun"),
    "sagemaker_pytorch_container.training:main",
    gpu=True,
    components=frozenset({"sshd"}),
    is_complete=True,
)
_TENSORFLOW = replace(
    _PYTORCH,
    versions={"tensorflow": "2.11.0", "sagemaker-training": "5.1.4", "open-mpi": "4.1.8"},
    launchers=("mpirun",),
    training_module="sagemaker_tensorflow_container.training:main",
)
_COMPILER = frozenset({"aws-training-compiler-tensorflow"})


def _with(image: LaunchImage, name: str, version: str, component: str = "") -> LaunchImage:
    components = image.components | {component or name}
    return replace(image, versions={**image.versions, name: version}, components=components)


_ONE, _TWO = (JobSpec(role=_ROLE, instance_type="ml.p4d.24xlarge", instance_count=count) for count in (1, 2))
_GROUPS = JobSpec(
    role=_ROLE, groups=(Group("data", "ml.c5.18xlarge", 2), Group("train", "ml.p4d.24xlarge", 1))
)
_ON_GROUP = {"mpi": {"enabled": True}, "instance_groups": ["train"]}
CASES: Mapping[str, tuple[LaunchImage, JobSpec]] = {
    "the script, one host": (_PYTORCH, replace(_ONE, launcher="script")),
    "the script on each host": (_PYTORCH, replace(_TWO, launcher="script")),
    "torchrun, one host": (_PYTORCH, replace(_ONE, launcher="torchrun")),
    "torchrun, two hosts": (_PYTORCH, replace(_TWO, launcher="torchrun")),
    "mpirun, one host": (_PYTORCH, replace(_ONE, launcher="mpirun")),
    "mpirun, two hosts": (_PYTORCH, replace(_TWO, launcher="mpirun")),
    "MultiWorkerMirroredStrategy, two hosts": (_TENSORFLOW, replace(_TWO, launcher="tensorflow")),
    "parameter servers": (_TENSORFLOW, replace(_TWO, distribution={"parameter_server": {"enabled": True}})),
    "DALI in the script, torchrun": (_with(_PYTORCH, "dali", "1.52.0"), replace(_TWO, launcher="torchrun")),
    "SMDDP": (_with(_PYTORCH, "smddp", "2.6.0"), _TWO),
    "SMP 1 with mpirun": (_with(_PYTORCH, "smp", "1.15.0"), _TWO),
    "SMP 2 with torchrun": (_with(_PYTORCH, "smp", "2.8.0", "aws-smp2"), _TWO),
    "Training Compiler (TensorFlow)": (
        replace(_TENSORFLOW, components=_COMPILER),
        replace(_ONE, instance_type="ml.p3.2xlarge"),
    ),
    "two instance groups, the script on each host": (_PYTORCH, replace(_GROUPS, launcher="script")),
    "two instance groups, mpirun on one": (_PYTORCH, replace(_GROUPS, distribution=_ON_GROUP)),
}
"""An image and a job for each row."""


def refusal(form: str, image: LaunchImage, job: JobSpec, catalog: Catalog) -> str:
    """Return why a form cannot start a job; empty if it prints the job."""
    cluster = form if form in FORMS else ""
    job = job if cluster else replace(job, sdk=form)
    try:
        snippet = snippets.preview(image, job, catalog, _REPOSITORY, cluster)
    except UsageError as error:
        return error.diagnostics[0].message
    return next((warning.message for warning in snippet.warnings if warning.rule in _OTHERWISE), "")


def text() -> str:
    """Return the page."""
    reasons: dict[str, int] = {}
    catalog = open_workspace(HOME).catalog
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        Path("train.py").touch()
        table = [*_table(catalog, reasons)]
    notes = [f"{number}. {reason}" for reason, number in reasons.items()]
    return "\n".join([*_HEAD, "", *table, "", "## Reasons", "", *notes]) + "\n"


_HEAD = """\
# Forms of a job

`bake estimator` prints a job as [code](../how-to/launch-jobs.md#print-code-for-a-job) for SageMaker's SDK or
boto3, or for [another cluster](../how-to/run-on-other-clusters.md). A test prints each job in each form and
compares the result with this page; `python -m tests.support.form_matrix` writes it.

"yes" means that the form was printed without an error, and without a warning that it starts another job. It
does not mean that the job ran: see [tested launchers](launchers.md). "In the image" is the answer for an
image that contains the script, if it differs.""".splitlines()


def _table(catalog: Catalog, reasons: dict[str, int]) -> Iterator[str]:
    def cell(form: str, image: LaunchImage, job: JobSpec) -> str:
        reason = refusal(form, image, job, catalog)
        return f"no ({reasons.setdefault(reason, len(reasons) + 1)})" if reason else "yes"

    yield f"| launcher | {' | '.join(COLUMNS.values())} |"
    yield f"|---{'|---' * len(COLUMNS)}|"
    for name, (image, job) in CASES.items():
        cells = []
        for form in COLUMNS:
            images = (replace(image, entry_point=script) for script in ("", "train.py"))
            sent, contained = (cell(form, variant, job) for variant in images)
            cells.append(sent if sent == contained else f"{sent}; in the image: {contained}")
        yield f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(text())
