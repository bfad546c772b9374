"""Who asks an S3 store, and where it is: options, the environment and the files of profiles say, as to AWS's tools."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DEFAULT_REGION = "us-east-1"
ADVICE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile in ~/.aws/credentials, or both keys with "
    "dvc remote modify --local; a public bucket needs dvc remote modify NAME allow_anonymous_login true"
)
_FROM_ELSEWHERE = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_OTHER_WAYS = ("credential_process", "sso_session", "sso_start_url", "role_arn")


class Keys(NamedTuple):
    access_key_id: str
    secret_access_key: str
    session_token: str | None

    def __repr__(self) -> str:
        return "Keys(...)"


class S3Access(NamedTuple):
    """`keys` is None for nobody (`anonymous`), or where the store's library finds them by itself: from a token file, a
    container or the machine (`from_elsewhere`). `needs_aws_tools`: a profile says that another program has them."""

    endpoint: str | None
    region: str
    keys: Keys | None
    anonymous: bool
    needs_aws_tools: bool


def read_access(options: Mapping[str, str]) -> S3Access:
    """What holds at this moment: variables and files may have changed since the last time.

    Raises `ValueError` for a profile that is not there, and for half a pair of keys.
    """
    profile = _profile(options)
    environment = os.environ
    keys = _keys(options, "access_key_id", "secret_access_key", "session_token")
    if keys is None and "profile" not in options:
        keys = _keys(environment, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    if keys is None:
        keys = _keys(profile, "aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    anonymous = options.get("anonymous", "").lower() == "true"
    endpoint = (
        options.get("endpoint")
        or environment.get("AWS_ENDPOINT_URL_S3")
        or environment.get("AWS_ENDPOINT_URL")
        or profile.get("endpoint_url")
    )
    region = (
        options.get("region")
        or environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or profile.get("region")
        or DEFAULT_REGION
    )
    elsewhere = any(name in environment for name in _FROM_ELSEWHERE)
    needs_aws_tools = keys is None and not anonymous and not elsewhere and any(name in profile for name in _OTHER_WAYS)
    return S3Access(endpoint, region, None if anonymous else keys, anonymous, needs_aws_tools)


def _keys(given: Mapping[str, str], access: str, secret: str, token: str) -> Keys | None:
    if not given.get(access) and not given.get(secret):
        return None
    for name in (access, secret):
        if not given.get(name):
            raise ValueError(f"credentials are missing: there is no {name}; {ADVICE}")
    return Keys(given[access], given[secret], given.get(token) or None)


def _profile(options: Mapping[str, str]) -> dict[str, str]:
    """What the files say of the profile; nothing where there is no file, or no default profile."""
    environment = os.environ
    name = options.get("profile") or environment.get("AWS_PROFILE")
    credentials = options.get("credentials_file") or environment.get("AWS_SHARED_CREDENTIALS_FILE")
    config = options.get("config_file") or environment.get("AWS_CONFIG_FILE")
    found: dict[str, str] = {}
    is_there = False
    for file, section in (
        (config or "~/.aws/config", f"profile {name}" if name and name != "default" else "default"),
        (credentials or "~/.aws/credentials", name or "default"),
    ):
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(Path(file).expanduser())
        except (configparser.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{file} can't be read: {' '.join(str(error).split())}") from error
        if parser.has_section(section):
            is_there = True
            found.update(parser.items(section))
    if name and not is_there:
        raise ValueError(f"credentials are missing: there is no AWS profile {name!r}; {ADVICE}")
    return found
