"""The settings of the smoke test of an image, as defaults of its jobs on SageMaker."""

from dataclasses import replace

from bakehouse.catalog.user_smoke import UserSmoke, toolkit_starts_torchrun
from bakehouse.jobs.api_fields import CHANNELS
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.training_request import LaunchImage
from bakehouse.util.json_reader import json_or_text

PLACEHOLDER = "s3://your-bucket/"
"""Location of channels whose S3 URI is unknown."""
TESTED = "the smoke test of the recipe"


def with_tested_settings(image: LaunchImage, job: JobSpec) -> JobSpec:
    """Return a job with the hosts, launcher, hyperparameters and channels of the smoke test.

    The job's own settings win. If the test runs another script than the job, its settings are not used.
    """
    smoke = find_smoke(image, job.entry_point)
    if smoke is None:
        return job
    hyperparameters = {name: json_or_text(text) for name, text in smoke.hyperparameters}
    completed = replace(job, hyperparameters={**hyperparameters, **job.hyperparameters})
    if not job.groups:
        completed = _with_hosts(completed, image, smoke)
    if not job.inputs and not any(field.path.startswith(CHANNELS) for field in job.request):
        names = [name for name, _ in smoke.channels]
        inputs = {name: f"{PLACEHOLDER}{name}" for name in names}
        completed = replace(completed, inputs=inputs, channels=dict.fromkeys(names, ()))
    if completed == job:
        return job
    return replace(completed, origin=" and ".join(filter(None, (job.origin, TESTED))))


def find_smoke(image: LaunchImage, entry_point: str) -> UserSmoke | None:
    """Return the smoke test of the script that a job starts; None if there is none."""
    smoke = image.smoke
    return (
        smoke
        if smoke and smoke.entry_point == (image.entry_point or entry_point or smoke.entry_point)
        else None
    )


def tested_launcher(image: LaunchImage, smoke: UserSmoke | None, hosts: int) -> tuple[str, int | None]:
    """Return the launcher of a smoke test for a job, and its ranks on each host if the launcher needs them.

    The launcher is empty if only the job needs one. Hosts with GPUs run one rank for each GPU.
    """
    if smoke is None or (not smoke.launcher and smoke.hosts == smoke.processes == 1 < hosts):
        return "", None
    starts_torchrun = toolkit_starts_torchrun(image.training_module)
    launcher = smoke.starter(image.launchers, starts_torchrun=starts_torchrun)
    return launcher, smoke.processes if launcher == "mpirun" and not image.gpu else None


def _with_hosts(job: JobSpec, image: LaunchImage, smoke: UserSmoke) -> JobSpec:
    if job.instance_count is None:
        job = replace(job, instance_count=smoke.hosts)
    if job.launcher or job.distribution is not None or job.processes_per_host is not None:
        return job
    launcher, processes = tested_launcher(image, smoke, job.hosts)
    return replace(job, launcher=launcher, processes_per_host=processes)
