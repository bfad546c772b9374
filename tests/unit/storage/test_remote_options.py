"""DVC's settings of remotes as options that open stores."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.storage.remote_options import options_of


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({"url": "/a/folder", "name": "store", "slow_link_warning": True, "verify": False}, {}),
        (
            {
                "url": "s3://bucket/store",
                "name": "store",
                "endpointurl": "http://127.0.0.1:9000",
                "access_key_id": "id",
                "secret_access_key": "key",
                "session_token": "token",
                "region": "eu-west-1",
                "profile": "work",
                "use_ssl": True,
                "verify": False,
                "version_aware": True,
                "jobs": 4,
            },
            {
                "endpoint": "http://127.0.0.1:9000",
                "access_key_id": "id",
                "secret_access_key": "key",
                "session_token": "token",
                "region": "eu-west-1",
                "profile": "work",
            },
        ),
        (
            {"url": "s3://b", "allow_anonymous_login": True, "ssl_verify": False, "read_timeout": 5},
            {"anonymous": "true", "ssl_verify": "false", "read_timeout": "5"},
        ),
        ({"url": "s3://b", "ssl_verify": "/ca.pem", "allow_anonymous_login": False}, {"ssl_verify": "/ca.pem"}),
        (
            {"url": "https://host/store", "auth": "basic", "user": "u", "password": "p"},
            {"user": "u", "password": "p"},
        ),
        (
            {"url": "ssh://host/store", "user": "u", "password": "p", "port": 2222, "keyfile": "k", "max_sessions": 3},
            {"username": "u", "password": "p", "port": "2222", "key_filename": "k"},
        ),
        ({"url": "webdavs://host/x", "user": "u", "token": "t"}, {"user": "u", "token": "t"}),
    ],
)
def test_settings_are_renamed_and_what_is_off_is_left_out(config: dict[str, Any], options: dict[str, str]) -> None:
    assert options_of(config) == options
