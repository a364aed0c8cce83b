"""Host names of Amazon ECR in all partitions, checked without requests to AWS."""

import re
from typing import Any

from bakehouse.errors import Diagnostic, PublishError
from bakehouse.util.oci import ECR_HOST
from bakehouse.util.suggest import nearest

_ACCOUNT = re.compile("[0-9]{12}")
_DUAL_STACK = ("aws", "aws-cn", "aws-us-gov")
"""The partitions whose dual-stack addresses AWS's documentation has."""


def is_ecr(host: str) -> bool:
    """Whether a registry's address is one of Amazon ECR's."""
    return ECR_HOST.fullmatch(host) is not None


def registry_host(account: str, region: str, *, fips: bool = False, dual_stack: bool = False) -> str:
    """The address of an account's registry: its ending is that of the region's partition."""
    if not _ACCOUNT.fullmatch(account):
        message = f"`{account}` is not the number of an AWS account"
        raise PublishError(Diagnostic(message, hint="it has 12 digits"))
    partition = _partition(region)
    variant = "-fips" if fips else ""
    if fips:
        _check_fips(region)
    if not dual_stack:
        return f"{account}.dkr.ecr{variant}.{region}.{partition['outputs']['dnsSuffix']}"
    if partition["id"] not in _DUAL_STACK:
        message = f"nobody has published a dual-stack address of Amazon ECR for `{region}`"
        raise PublishError(Diagnostic(message))
    # The API's names end in `api.aws`, the registries' in `on.aws`.
    suffix = partition["outputs"]["dualStackDnsSuffix"].replace("api.", "on.", 1)
    return f"{account}.dkr-ecr{variant}.{region}.{suffix}"


def check_host(host: str) -> None:
    """Refuse an address that looks like one of ECR's and can't be: no such region, another's ending."""
    found = ECR_HOST.fullmatch(host)
    if found is None:
        _check_almost(host)
        return
    account, region = found["account"], found["region"]
    fips, dual_stack = "ecr-fips." in host, ".dkr-ecr" in host
    right = registry_host(account, region, fips=fips, dual_stack=dual_stack)
    if host != right:
        message = f"`{host}` is no address of Amazon ECR"
        raise PublishError(Diagnostic(message, hint=f"in `{region}` it is `{right}`"))


def _check_almost(host: str) -> None:
    looks = re.fullmatch(r"(?P<account>[0-9]+)\.dkr[.-]ecr(?:-fips)?\.(?P<rest>.+)", host)
    if looks:
        message = f"`{host}` is no address of Amazon ECR"
        hint = "it is `<12 digits>.dkr.ecr.<region>.amazonaws.com`, outside of China"
        raise PublishError(Diagnostic(message, hint=hint))


def _partition(region: str) -> Any:
    directions = {name.split("-")[-2] for name in regions()}
    for partition in _data("partitions"):
        if region in partition["regions"]:
            return partition
        # Regions that are newer than botocore; its patterns would let any misspelling pass.
        if re.fullmatch(partition["regionRegex"], region) and region.split("-")[-2] in directions:
            return partition
    near = nearest(region, regions())
    hint = f"did you mean `{near}`?" if near else "name one as in `eu-west-1`"
    raise PublishError(Diagnostic(f"there is no AWS region `{region}`", hint=hint))


def regions() -> tuple[str, ...]:
    """The regions that botocore knows, of all partitions."""
    named = (name for partition in _data("partitions") for name in partition["regions"])
    return tuple(sorted(name for name in named if not name.endswith("-global")))


def _check_fips(region: str) -> None:
    endpoints = {
        name: endpoint
        for partition in _data("endpoints")
        for name, endpoint in partition["services"].get("api.ecr", {}).get("endpoints", {}).items()
    }

    def has_fips(name: str) -> bool:
        return any("fips" in one["tags"] for one in endpoints.get(name, {}).get("variants", ()))

    if not has_fips(region):
        message = f"Amazon ECR has no FIPS endpoint in `{region}`"
        named = [name for name in regions() if has_fips(name)]
        raise PublishError(Diagnostic(message, hint="there is one in " + ", ".join(named)))


def _data(name: str) -> Any:
    import botocore.session  # type: ignore[import-untyped]

    return botocore.session.get_session().get_data(name)["partitions"]
