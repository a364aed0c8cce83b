"""Logins of `docker login`."""

from bakehouse.errors import Diagnostic, RegistryAuthError
from bakehouse.registry.registry import Credentials


def docker_login(host: str) -> Credentials | None:
    """Return the login of `docker login` for a registry, from docker's file or credential helper."""
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        authentication = load_config().resolve_authconfig(host) or {}
    except DockerException:
        # The helper's own message may contain secrets.
        message = f"cannot read docker's login for `{host}`: its credential helper is missing or failed"
        hint = f"check `credHelpers` and `credsStore` in docker's settings, or run `docker login {host}`"
        raise RegistryAuthError(Diagnostic(message, hint=hint)) from None
    # The names are lower case in the file, but not in a helper's output.
    login = {name.lower(): value for name, value in authentication.items()}
    username, password = login.get("username"), login.get("password")
    return Credentials(username, password) if username and password else None
