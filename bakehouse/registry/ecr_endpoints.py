"""Host names of Amazon ECR in all partitions, checked without requests to AWS."""

import re
from typing import Any

from bakehouse.errors import PublishError
from bakehouse.util.aws import partitions, regions
from bakehouse.util.oci import ECR_HOST
from bakehouse.util.suggest import suggestion

_ACCOUNT = re.compile("[0-9]{12}")
_DUAL_STACK = ("aws", "aws-cn", "aws-us-gov")
"""Partitions with documented dual-stack endpoints."""


def is_ecr(host: str) -> bool:
    """Return whether a registry's host belongs to Amazon ECR."""
    return ECR_HOST.fullmatch(host) is not None


def registry_host(account: str, region: str, *, fips: bool = False, dual_stack: bool = False) -> str:
    """Return the host of an account's registry, with the domain of the region's partition."""
    if not _ACCOUNT.fullmatch(account):
        raise PublishError(f"`{account}` is not the id of an AWS account", hint="use the id's 12 digits")
    partition = _partition(region)
    variant = "-fips" if fips else ""
    if fips:
        _check_fips(region)
    if not dual_stack:
        return f"{account}.dkr.ecr{variant}.{region}.{partition['outputs']['dnsSuffix']}"
    if partition["id"] not in _DUAL_STACK:
        raise PublishError(f"AWS documents no dual-stack endpoint of Amazon ECR for `{region}`")
    # Hosts of the API end in `api.aws`, those of registries in `on.aws`.
    suffix = partition["outputs"]["dualStackDnsSuffix"].replace("api.", "on.", 1)
    return f"{account}.dkr-ecr{variant}.{region}.{suffix}"


def check_host(host: str) -> None:
    """Raise PublishError for a host that resembles one of ECR's, but has a wrong region or domain."""
    match = ECR_HOST.fullmatch(host)
    if match:
        account, region = match["account"], match["region"]
        fips, dual_stack = "ecr-fips." in host, ".dkr-ecr" in host
        valid = registry_host(account, region, fips=fips, dual_stack=dual_stack)
        if host == valid:
            return
        hint = f"in `{region}`, use `{valid}`"
    elif re.fullmatch(r"[0-9]+\.dkr[.-]ecr(?:-fips)?\..+", host):
        hint = "use `<12 digits>.dkr.ecr.<region>.amazonaws.com` (outside China)"
    else:
        return
    raise PublishError(f"`{host}` is not a valid host of Amazon ECR", hint=hint)


def _partition(region: str) -> Any:
    directions = {name.split("-")[-2] for name in regions()}
    for partition in partitions():
        if region in partition["regions"]:
            return partition
        # Regions newer than botocore. Its patterns alone would match misspelled regions.
        if re.fullmatch(partition["regionRegex"], region) and region.split("-")[-2] in directions:
            return partition
    raise PublishError(
        f"unknown AWS region `{region}`",
        hint=suggestion(region, regions()) or "use the name of a region, such as `eu-west-1`",
    )


def partition_of(region: str) -> str:
    """Return the name of a region's partition, such as `aws-cn`. Raises PublishError."""
    return str(_partition(region)["id"])


def check_region(region: str) -> None:
    """Raise PublishError with the nearest name if AWS has no such region."""
    _partition(region)


def _check_fips(region: str) -> None:
    endpoints = {
        name: endpoint
        for partition in partitions("endpoints")
        for name, endpoint in partition["services"].get("api.ecr", {}).get("endpoints", {}).items()
    }

    def has_fips(name: str) -> bool:
        return any("fips" in variant["tags"] for variant in endpoints.get(name, {}).get("variants", ()))

    if not has_fips(region):
        message = f"Amazon ECR has no FIPS endpoint in `{region}`"
        names = ", ".join(name for name in regions() if has_fips(name))
        raise PublishError(message, hint=f"use a region with FIPS endpoints: {names}")
