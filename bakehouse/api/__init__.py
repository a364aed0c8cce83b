"""The public Python API: `from bakehouse.api import Project`.

Errors are `BakehouseError` and its classes, with the same messages and hints as on the command line.
"""

from bakehouse.api.project import Project, ensure
from bakehouse.builder.built_image import BuiltImage
from bakehouse.cluster.job_report import JobReport
from bakehouse.cluster.smoke_report import SmokeReport
from bakehouse.errors import BakehouseError
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.ledger.releases import ReleaseRecord
from bakehouse.resolve.resolver import Resolution

__all__ = [
    "BakehouseError",
    "BuiltImage",
    "JobReport",
    "JobSpec",
    "Project",
    "ReleaseRecord",
    "Resolution",
    "SmokeReport",
    "ensure",
]
