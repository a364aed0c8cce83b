"""Requests of CreateTrainingJob that break a condition of its documentation each, and their findings."""

from pathlib import Path
from typing import Any

from bakehouse.catalog.catalog import load_catalog
from bakehouse.catalog.instance_types import instances
from bakehouse.catalog.project import HOME
from bakehouse.errors import Location, UsageError
from bakehouse.jobs.job_document import JobDocument
from bakehouse.jobs.job_file import JobFile
from bakehouse.jobs.job_spec import JobSpec
from bakehouse.jobs.training_request import LaunchImage

TYPES = instances(load_catalog([HOME / "recipes"]))
IMAGE = LaunchImage("image", "image", is_known=False)


def said(content: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Return rule, message and hint of all findings, and whether they are errors."""
    document = JobDocument(content, "the request", Path(), lambda keys: Location(Path("request"), 1, 1))
    try:
        findings = JobFile(document, TYPES, JobSpec()).check_with(IMAGE).findings
    except UsageError as error:
        return [("", diagnostic.message, diagnostic.hint, True) for diagnostic in error.diagnostics]
    return [(finding.rule.name, finding.message, finding.hint, finding.is_error) for finding in findings]


def channel(**source: Any) -> dict[str, Any]:
    s3 = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/a"} | source.pop("S3", {})
    return {"InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": s3}, **source}]}


def preferences(*preferred: dict[str, Any], **resources: Any) -> dict[str, Any]:
    return {"ResourceConfig": {"VolumeSizeInGB": 30, "InstancePreferences": [*preferred], **resources}}


def rule_of(name: str) -> dict[str, Any]:
    return {"RuleConfigurationName": name, "RuleEvaluatorImage": "image"}


LIMITS = {"MaxRuntimeInSeconds": 60}
C5, M5 = {"InstanceType": "ml.c5.xlarge"}, {"InstanceType": "ml.m5.xlarge"}
MANIFEST = {"S3": {"S3DataType": "AugmentedManifestFile", "AttributeNames": ["a"]}}
EULA = {"S3": {"ModelAccessConfig": {"AcceptEula": False}}}
PLAN = "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/a"
PREFERENCES, COUNT_HINT = (
    "instance-preferences",
    "set the instance count in each of them, or once for the job",
)
CONDITIONS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "augmented manifest": (
        "augmented-manifest",
        channel(**MANIFEST),
        "`InputDataConfig[0]` is an augmented manifest in the input mode `File`",
        "set the input mode of the channel to `Pipe`",
    ),
    "compression": (
        "compressed-channel",
        channel(CompressionType="Gzip", InputMode="FastFile"),
        "`InputDataConfig[0]` is compressed in the input mode `FastFile`",
        "set the input mode of the channel to `Pipe`, or leave the compression out",
    ),
    "license of a model": (
        "accept-eula",
        channel(**EULA),
        "`InputDataConfig[0]` does not accept the license",
        "read it, and set `AcceptEula`",
    ),
    "profiling": (
        "documented-values",
        {"ProfilerConfig": {"ProfilingIntervalInMilliseconds": 300}},
        "`ProfilerConfig.ProfilingIntervalInMilliseconds` is 300",
        "use 100, 200, 500, 1000, 5000, 60000",
    ),
    "sequence length": (
        "documented-values",
        {"ServerlessJobConfig": {"BaseModelArn": "x", "JobType": "FineTuning", "SequenceLength": "2000K"}},
        "`ServerlessJobConfig.SequenceLength` is 2000K",
        "use 1K to 1024K",
    ),
    "volume key": (
        "volume-key",
        {
            "ResourceConfig": {
                "InstanceType": "ml.g5.xlarge",
                "InstanceCount": 1,
                "VolumeSizeInGB": 30,
                "VolumeKmsKeyId": "key",
            }
        },
        "`ResourceConfig.VolumeKmsKeyId` can't be used with `ml.g5.xlarge`, which has local storage",
        "remove it: the instance encrypts its local storage",
    ),
    "doubled tags": (
        "unique-names",
        {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "1"}, {"Key": "a", "Value": "2"}]},
        "`Tags[2]` and `Tags[0]` are both for `a`",
        "remove one of them",
    ),
    "doubled rules": (
        "unique-names",
        {"ProfilerRuleConfigurations": [rule_of("a"), rule_of("a")]},
        "`ProfilerRuleConfigurations[1]` and `ProfilerRuleConfigurations[0]` are both for `a`",
        "remove one of them",
    ),
    "doubled preferences": (
        "unique-names",
        preferences(C5, C5, InstanceCount=1),
        "`ResourceConfig.InstancePreferences[1]` and `ResourceConfig.InstancePreferences[0]` are both for "
        "`ml.c5.xlarge`",
        "remove one of them",
    ),
    "some counts": (
        PREFERENCES,
        preferences({**C5, "InstanceCount": 1}, M5),
        "`ResourceConfig.InstancePreferences` has instance counts in some of the preferences only",
        COUNT_HINT,
    ),
    "two counts": (
        PREFERENCES,
        preferences({**C5, "InstanceCount": 1}, InstanceCount=1),
        "`ResourceConfig.InstancePreferences` has instance counts, and `ResourceConfig.InstanceCount` is "
        "set too",
        COUNT_HINT,
    ),
    "no count": (
        PREFERENCES,
        preferences(C5),
        "`ResourceConfig.InstancePreferences` has no instance count",
        COUNT_HINT,
    ),
    "two plans": (
        PREFERENCES,
        preferences({**C5, "TrainingPlanArns": [PLAN]}, InstanceCount=1, TrainingPlanArn=PLAN),
        "`ResourceConfig.InstancePreferences` has training plans, and `ResourceConfig.TrainingPlanArn` is "
        "set too",
        "remove one of them",
    ),
    "time to wait without Spot": (
        "spot-unused",
        {"StoppingCondition": {**LIMITS, "MaxWaitTimeInSeconds": 90}},
        "`StoppingCondition.MaxWaitTimeInSeconds` is for managed Spot training, which the job does not use",
        "remove it, or set `EnableManagedSpotTraining`",
    ),
    "time to wait": (
        "spot-wait",
        {"EnableManagedSpotTraining": True, "StoppingCondition": {**LIMITS, "MaxWaitTimeInSeconds": 59}},
        "`StoppingCondition.MaxWaitTimeInSeconds` is 59, but `StoppingCondition.MaxRuntimeInSeconds` is 60: "
        "the wait includes the run",
        "use at least 60",
    ),
    "pending": (
        "max-pending",
        {"StoppingCondition": {**LIMITS, "MaxPendingTimeInSeconds": 7200}},
        "`StoppingCondition.MaxPendingTimeInSeconds` has no effect, because the instances have no GPUs or "
        "Neuron devices",
        "remove it",
    ),
}
