"""IAM policies of the roles that pipelines assume: who may assume them, and what they may do."""

from collections.abc import Iterable, Sequence
from typing import Any

from bakehouse.pipelines.pipeline import Pipeline, Publishing, VendorRepository

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
    "ecr:ListTagsForResource",
    "ecr:GetRepositoryPolicy",
    "ecr:GetLifecyclePolicy",
)
_CREATE = ("ecr:CreateRepository", "ecr:TagResource", "ecr:PutLifecyclePolicy", "ecr:SetRepositoryPolicy")

_SCAN = ("ecr:DescribeImageScanFindings", "ecr:StartImageScan")


def trust(publishing: Publishing, provider: str, subjects: Sequence[str]) -> Policy:
    """Return the trust policy of a role for tokens of an OIDC provider with one of `subjects`."""
    federated = f"arn:{publishing.partition}:iam::{publishing.role.split(':')[4]}:oidc-provider/{provider}"
    operator = "StringLike" if any("*" in subject for subject in subjects) else "StringEquals"
    condition: Policy = {"StringEquals": {f"{provider}:aud": AUDIENCE}}
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
        "Condition": {"StringEquals": {"aws:SourceAccount": publishing.role.split(":")[4]}},
    }
    return _policy([statement])


def permissions(pipeline: Pipeline, publishing: Publishing, *, logs: bool = False) -> Policy:
    """Return what publishing needs: base images, the project's repositories and its ledger.

    `logs` adds the logs and test reports of CodeBuild.
    """
    arn = f"arn:{publishing.partition}"
    repositories = [
        f"{arn}:ecr:{region}:{publishing.account}:repository/{publishing.prefix}/*"
        for region in publishing.regions
    ]
    bucket = f"{arn}:s3:::{publishing.bucket}"
    listing = _allow("ListLedger", ["s3:ListBucket"], [bucket])
    if publishing.ledger_prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": f"{publishing.ledger_prefix}*"}}
    publish = [*_PUSH, *(_CREATE if publishing.create else ()), *(_SCAN if publishing.scan else ())]
    role, key = publishing.registry_role, publishing.kms_key
    statements = [
        _login(),
        *_pulls(publishing, pipeline.vendors),
        _allow("PublishImages", publish, repositories),
        _allow("WriteLedger", ["s3:GetObject", "s3:PutObject"], [f"{bucket}/{publishing.ledger_prefix}*"]),
        listing,
        *([_allow("AssumeRegistryRole", ["sts:AssumeRole"], [role])] if role else []),
        *([_allow("SignImages", ["kms:Sign", "kms:GetPublicKey"], [key])] if key else []),
    ]
    return _policy([*statements, *(_codebuild_output(publishing) if logs else ())])


def pull_permissions(pipeline: Pipeline, publishing: Publishing, *, logs: bool = False) -> Policy:
    """Return what a pull request needs: base images in Amazon ECR.

    `logs` adds the logs and test reports of CodeBuild.
    """
    statements = [_login(), *_pulls(publishing, pipeline.vendors)] if pipeline.vendors else []
    return _policy([*statements, *(_codebuild_output(publishing) if logs else ())])


def _codebuild_output(publishing: Publishing) -> list[Policy]:
    """Return the permissions of a build in CodeBuild to write its log and test reports."""
    logs = ["CreateLogGroup", "CreateLogStream", "PutLogEvents"]
    reports = ["CreateReportGroup", "CreateReport", "UpdateReport", "BatchPutTestCases"]
    account = publishing.role.split(":")[4]
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
        f"arn:{publishing.partition}:ecr:{each.region}:{each.account}:repository/{each.name}"
        for each in vendors
    ]
    return [_allow("PullBaseImages", _PULL, arns)] if arns else []


def _login() -> Policy:
    return _allow("LogIn", ["ecr:GetAuthorizationToken"], ["*"])


def _allow(name: str, actions: Iterable[str], resources: Iterable[str]) -> Policy:
    return {"Sid": name, "Effect": "Allow", "Action": [*actions], "Resource": [*resources]}


def _policy(statements: list[Policy]) -> Policy:
    return {"Version": "2012-10-17", "Statement": statements}
