"""Logins of `docker login`."""

from bakehouse.errors import RegistryAuthError
from bakehouse.registry.registry import Credentials


def docker_login(host: str) -> Credentials | None:
    """Return the login of `docker login` for a registry, from docker's file or credential helper.

    Raises RegistryAuthError for a login that cannot be read or used.
    """
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        authentication = load_config().resolve_authconfig(host) or {}
    except DockerException:
        # The helper's own message may contain secrets.
        raise RegistryAuthError(
            f"cannot read docker's login for `{host}`: its credential helper is missing or failed",
            hint=f"check `credHelpers` and `credsStore` in docker's settings, or run `docker login {host}`",
        ) from None
    except (ValueError, KeyError, AttributeError, TypeError):
        # docker's Python package does not check what it reads.
        raise RegistryAuthError(
            f"cannot read docker's login for `{host}`: invalid settings or output of its helper",
            hint="check `auths` and the credential helper in docker's settings, "
            f"or run `docker login {host}`",
        ) from None
    # The names are lower case in the file, but not in a helper's output.
    login = {name.lower(): value for name, value in authentication.items()}
    if login.get("identitytoken"):
        raise RegistryAuthError(
            f"docker's login for `{host}` is an identity token, which Bakehouse does not support",
            hint=f"log in with a user name and a password or access token: `docker login {host}`",
        )
    username, password = login.get("username"), login.get("password")
    return Credentials(username, password) if username and password else None
