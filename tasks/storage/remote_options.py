"""DVC's settings of a remote in the terms of whoever opens stores here: all of them texts.

S3: `endpoint`, `region`, `access_key_id`, `secret_access_key`, `session_token`, `profile`, `credentials_file`,
`config_file`, `anonymous` ("true"). HTTP: `user`, `password`, `auth_header`. Both: `ssl_verify` ("false", or a file of
certificates), `connect_timeout` and `read_timeout` (seconds). SSH and SFTP, as fsspec has them: `username`, `password`,
`port`, `key_filename`, `passphrase`, `timeout`. Of other kinds of remotes the settings keep DVC's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_S3 = {
    "endpointurl": "endpoint",
    "region": "region",
    "access_key_id": "access_key_id",
    "secret_access_key": "secret_access_key",
    "session_token": "session_token",
    "profile": "profile",
    "credentialpath": "credentials_file",
    "configpath": "config_file",
    "allow_anonymous_login": "anonymous",
    "ssl_verify": "ssl_verify",
    "connect_timeout": "connect_timeout",
    "read_timeout": "read_timeout",
}
_HTTP = {
    "user": "user",
    "password": "password",
    "custom_auth_header": "auth_header",
    "ssl_verify": "ssl_verify",
    "connect_timeout": "connect_timeout",
    "read_timeout": "read_timeout",
}
_SSH = {
    "user": "username",
    "password": "password",
    "port": "port",
    "keyfile": "key_filename",
    "passphrase": "passphrase",
    "timeout": "timeout",
}
_NAMES = {
    "s3": _S3,
    "http": _HTTP,
    "https": _HTTP,
    "ssh": _SSH,
    "sftp": _SSH,
}
_OF_DVC_ALONE = {
    "url", "name", "jobs", "checksum_jobs", "worktree", "version_aware", "no_traverse", "verify", "type", "protected",
    "shared", "slow_link_warning", "listobjects",
}  # fmt: skip


def options_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The options that open the store of a remote's settings; what is turned off or empty is left out.

    DVC's own `verify` is whether it hashes what it downloads; here everything is.
    """
    scheme = urlsplit(str(config["url"])).scheme
    names = _NAMES.get(scheme)
    options: dict[str, str] = {}
    for key, value in config.items():
        if key in _OF_DVC_ALONE or value in (None, "") or (value is True and key == "ssl_verify"):
            continue
        name = key if names is None else names.get(key)
        if name is None or (value is False and name != "ssl_verify"):
            continue
        options[name] = str(value).lower() if isinstance(value, bool) else str(value)
    if scheme == "s3" and config.get("use_ssl") is False and "endpoint" not in options:
        options["endpoint"] = "http://s3.amazonaws.com"
    return options
