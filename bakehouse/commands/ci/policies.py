"""IAM policies of the roles that pipelines assume: who may assume them, and what they may do."""

from collections.abc import Iterable, Sequence
from typing import Any

from bakehouse.commands.ci.pipeline import GpuTests, Pipeline, Publishing, VendorRepository
from bakehouse.publish.tags import CANDIDATES

Policy = dict[str, Any]

AUDIENCE = "sts.amazonaws.com"
GITHUB = "token.actions.githubusercontent.com"
GITLAB = "gitlab.com"
_PULL = ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_PUSH = (
    "ecr:BatchCheckLayerAvailability",
    *_PULL,
    "ecr:InitiateLayerUpload",
    "ecr:UploadLayerPart",
    "ecr:CompleteLayerUpload",
    "ecr:PutImage",
    "ecr:ListImages",
    "ecr:DescribeImages",
    "ecr:DescribeRepositories",
    "ecr:GetLifecyclePolicy",
)
_READ = (
    *_PULL,
    "ecr:BatchCheckLayerAvailability",
    "ecr:ListImages",
    "ecr:DescribeImages",
    "ecr:DescribeRepositories",
)
_CANDIDATES = f"{CANDIDATES}/"
_CREATE = ("ecr:CreateRepository", "ecr:TagResource", "ecr:PutLifecyclePolicy", "ecr:SetRepositoryPolicy")
_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""Log group of SageMaker, which is also the namespace of its metrics."""
_SCAN = ("ecr:DescribeImageScanFindings", "ecr:StartImageScan")


def trust(publishing: Publishing, provider: str, subjects: Sequence[str], branch: str = "") -> Policy:
    """Return the trust policy of a role for tokens of an OIDC provider with one of `subjects`.

    With a `branch`, tokens of GitHub are for it: the subject of a job with an environment has no branch.
    """
    federated = f"arn:{publishing.partition}:iam::{publishing.role_account}:oidc-provider/{provider}"
    operator = "StringLike" if any("*" in subject for subject in subjects) else "StringEquals"
    ref = {f"{provider}:ref": f"refs/heads/{branch}"} if branch else {}
    condition: Policy = {"StringEquals": {f"{provider}:aud": AUDIENCE, **ref}}
    condition.setdefault(operator, {})[f"{provider}:sub"] = [*subjects]
    statement = {
        "Effect": "Allow",
        "Principal": {"Federated": federated},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": condition,
    }
    return _policy([statement])


def codebuild_trust(publishing: Publishing) -> Policy:
    """Return the trust policy of the service role of CodeBuild projects in the publishing account."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "codebuild.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": publishing.role_account}},
    }
    return _policy([statement])


def job_trust(publishing: Publishing) -> Policy:
    """Return the trust policy of the execution role of smoke tests on SageMaker."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": publishing.role_account}},
    }
    return _policy([statement])


def permissions(pipeline: Pipeline, publishing: Publishing, *, logs: bool = False) -> Policy:
    """Return the permissions to promote: the project's repositories, its ledger and the key of releases.

    `logs` adds the variables and logs of CodeBuild.
    """
    publish = [*_PUSH, *(_CREATE if publishing.create else ()), *(_SCAN if publishing.scan else ())]
    statements = [
        _login(),
        _allow("PublishImages", publish, _repositories(publishing, publishing.regions)),
        *_read_ledger(publishing),
        _write_ledger(publishing, "*.json"),
        *_registry_role(publishing),
        *_signing(publishing.kms_key, "SignReleases"),
    ]
    if logs:
        statements += _variables(pipeline, publishing, "promote")
        statements += _codebuild_output(publishing)
    return _policy(statements)


def build_permissions(pipeline: Pipeline, publishing: Publishing, *, logs: bool = False) -> Policy:
    """Return the permissions to push candidates: repositories of their own, and records of candidates.

    Amazon ECR has no permissions by tags, so a role that can push to a repository can move all of its tags.
    `logs` adds the variables, logs and test reports of CodeBuild.
    """
    publish = [*_PUSH, *(_CREATE if publishing.create else ()), *(_SCAN if publishing.scan else ())]
    statements = [
        _login(),
        *_pulls(publishing, pipeline.vendors),
        _allow("ReadImages", _READ, _repositories(publishing, publishing.regions)),
        _allow("PublishCandidates", publish, _repositories(publishing, publishing.regions, _CANDIDATES)),
        *_read_ledger(publishing),
        _write_ledger(publishing, f"*/{_CANDIDATES}*.json"),
        *_registry_role(publishing),
        *_signing(publishing.build_key, "SignCandidates"),
    ]
    if logs:
        # A build in CodeBuild has one role, also for its tests on GPUs.
        statements += _jobs(publishing, pipeline.gpu_tests) if pipeline.gpu_tests else []
        statements += _variables(pipeline, publishing, "plan", "build", "gpu")
        statements.append(_allow("HandOverReports", ["s3:PutObject"], [_objects(publishing, "reports/*")]))
        statements += _codebuild_output(publishing)
    return _policy(statements)


def smoke_permissions(publishing: Publishing, tests: GpuTests) -> Policy:
    """Return the permissions for tests on GPUs: the ledger, and jobs on SageMaker or the candidates."""
    statements = [*_read_ledger(publishing), *_signing(publishing.build_key, "SignReports")]
    if tests.job_role:
        return _policy([*statements, *_jobs(publishing, tests)])
    repositories = _repositories(publishing, publishing.regions[:1], _CANDIDATES)
    return _policy([_login(), _allow("PullCandidates", _PULL, repositories), *statements])


def job_permissions(publishing: Publishing, tests: GpuTests) -> Policy:
    """Return the permissions of a smoke test on SageMaker: the candidates, its script, results and log."""
    arn, account, region = f"arn:{publishing.partition}", publishing.role_account, publishing.regions[0]
    bucket, files = _output(publishing, tests)
    log_group = f"{arn}:logs:{region}:{account}:log-group:{_LOG_GROUP}"
    logs = ["CreateLogGroup", "CreateLogStream", "PutLogEvents", "DescribeLogStreams"]
    metrics = _allow("WriteMetrics", ["cloudwatch:PutMetricData"], ["*"])
    metrics["Condition"] = {"StringEquals": {"cloudwatch:namespace": _LOG_GROUP}}
    candidates = ("ecr:BatchCheckLayerAvailability", *_PULL)
    return _policy(
        [
            _login(),
            _allow(
                "PullCandidates", candidates, _repositories(publishing, publishing.regions[:1], _CANDIDATES)
            ),
            _allow("ExchangeFiles", ["s3:GetObject", "s3:PutObject"], [files]),
            _allow("ListFiles", ["s3:ListBucket"], [bucket]),
            _allow("WriteLogs", [f"logs:{action}" for action in logs], [log_group, f"{log_group}:*"]),
            metrics,
        ]
    )


def pull_permissions(pipeline: Pipeline, publishing: Publishing, *, logs: bool = False) -> Policy:
    """Return the permissions of a pull request: base images in Amazon ECR.

    `logs` adds the variables, logs and test reports of CodeBuild.
    """
    statements = [_login(), *_pulls(publishing, pipeline.vendors)] if pipeline.vendors else []
    if logs:
        statements += _variables(pipeline, publishing, "pull-request-check", "pull-request-build")
        statements += _codebuild_output(publishing)
    return _policy(statements)


def _jobs(publishing: Publishing, tests: GpuTests) -> list[Policy]:
    """Return the permissions to send and follow smoke tests on SageMaker, whose names start with `smoke-`."""
    arn, account, region = f"arn:{publishing.partition}", publishing.role_account, publishing.regions[0]
    jobs = [f"{arn}:sagemaker:{region}:{account}:training-job/smoke-*"]
    create = _allow("SendSmokeTests", ["sagemaker:CreateTrainingJob"], jobs)
    create["Condition"] = {
        # A condition on all values of a key is also true if the key is absent.
        "Null": {"sagemaker:InstanceTypes": "false"},
        "ForAllValues:StringEquals": {"sagemaker:InstanceTypes": [tests.settings.instance_type]},
    }
    follow = ["sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"]
    pass_role = _allow("PassJobRole", ["iam:PassRole"], [tests.job_role])
    pass_role["Condition"] = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    log_group = f"{arn}:logs:{region}:{account}:log-group:{_LOG_GROUP}"
    return [
        create,
        _allow("FollowSmokeTests", follow, jobs),
        pass_role,
        _allow("ExchangeFiles", ["s3:GetObject", "s3:PutObject"], [_output(publishing, tests)[1]]),
        _allow("ReadLogs", ["logs:DescribeLogStreams", "logs:GetLogEvents"], [log_group, f"{log_group}:*"]),
    ]


def _output(publishing: Publishing, tests: GpuTests) -> tuple[str, str]:
    """Return the ARNs of the bucket and the files of smoke tests on SageMaker."""
    location = tests.settings.output.removeprefix("s3://")
    arn = f"arn:{publishing.partition}:s3:::"
    return f"{arn}{location.partition('/')[0]}", f"{arn}{location}/*"


def _repositories(publishing: Publishing, regions: Iterable[str], below: str = "") -> list[str]:
    arn = f"arn:{publishing.partition}:ecr"
    path = f"{publishing.account}:repository/{publishing.prefix}/{below}*"
    return [f"{arn}:{region}:{path}" for region in regions]


def _registry_role(publishing: Publishing) -> list[Policy]:
    role = publishing.registry_role
    return [_allow("AssumeRegistryRole", ["sts:AssumeRole"], [role])] if role else []


def _signing(key: str, name: str) -> list[Policy]:
    return [_allow(name, ["kms:Sign", "kms:GetPublicKey"], [key])] if key else []


def _objects(publishing: Publishing, pattern: str) -> str:
    """Return the ARN of objects of the ledger."""
    return f"arn:{publishing.partition}:s3:::{publishing.bucket}/{publishing.ledger_prefix}{pattern}"


def _read_ledger(publishing: Publishing) -> list[Policy]:
    bucket = f"arn:{publishing.partition}:s3:::{publishing.bucket}"
    listing = _allow("ListLedger", ["s3:ListBucket"], [bucket])
    if publishing.ledger_prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": f"{publishing.ledger_prefix}*"}}
    return [_allow("ReadLedger", ["s3:GetObject"], [_objects(publishing, "*")]), listing]


def _write_ledger(publishing: Publishing, pattern: str) -> Policy:
    """Return the permission to add records: `If-None-Match` lets no request replace one."""
    write = _allow("WriteLedger", ["s3:PutObject"], [_objects(publishing, pattern)])
    write["Condition"] = {"Null": {"s3:if-none-match": "false"}}
    return write


def _variables(pipeline: Pipeline, publishing: Publishing, *jobs: str) -> list[Policy]:
    """Return the permissions of jobs in CodeBuild to read their secrets and variables."""
    arn, account = f"arn:{publishing.partition}", publishing.role_account
    # Secrets Manager adds a hyphen and six characters to the name of a secret.
    secrets = [
        f"{arn}:secretsmanager:*:{account}:secret:bakehouse/{name}-??????" for name in pipeline.secrets(*jobs)
    ]
    variables = [f"{arn}:ssm:*:{account}:parameter/bakehouse/{name}" for name in pipeline.variables(*jobs)]
    return [
        *([_allow("ReadSecrets", ["secretsmanager:GetSecretValue"], secrets)] if secrets else []),
        *([_allow("ReadVariables", ["ssm:GetParameters"], variables)] if variables else []),
    ]


def _codebuild_output(publishing: Publishing) -> list[Policy]:
    """Return the permissions of a build in CodeBuild to write its log and test reports."""
    logs = ["CreateLogGroup", "CreateLogStream", "PutLogEvents"]
    reports = ["CreateReportGroup", "CreateReport", "UpdateReport", "BatchPutTestCases"]
    account = publishing.role_account
    arn = f"arn:{publishing.partition}"
    return [
        _allow(
            "WriteLogs",
            [f"logs:{action}" for action in logs],
            [f"{arn}:logs:*:{account}:log-group:/aws/codebuild/*"],
        ),
        _allow(
            "WriteReports",
            [f"codebuild:{action}" for action in reports],
            [f"{arn}:codebuild:*:{account}:report-group/*"],
        ),
    ]


def _pulls(publishing: Publishing, vendors: Iterable[VendorRepository]) -> list[Policy]:
    arns = [
        f"arn:{publishing.partition}:ecr:{vendor.region}:{vendor.account}:repository/{vendor.name}"
        for vendor in vendors
    ]
    return [_allow("PullBaseImages", _PULL, arns)] if arns else []


def _login() -> Policy:
    return _allow("LogIn", ["ecr:GetAuthorizationToken"], ["*"])


def _allow(name: str, actions: Iterable[str], resources: Iterable[str]) -> Policy:
    return {"Sid": name, "Effect": "Allow", "Action": [*actions], "Resource": [*resources]}


def _policy(statements: list[Policy]) -> Policy:
    return {"Version": "2012-10-17", "Statement": statements}
