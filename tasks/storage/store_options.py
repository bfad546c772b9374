"""Options that open a source store: how they reach every process that reads it, and what they are called.

| place | options |
|---|---|
| S3 | `endpoint` (a URL), `access_key_id`, `secret_access_key`, `session_token`, `region`, `profile`, `credentials_file`, `config_file`, `anonymous` ("true"), `ssl_verify` ("false", or a file of certificates), `connect_timeout`, `read_timeout` (seconds) |
| HTTP | `user`, `password`, `auth_header` (the header that takes the password, instead of basic authentication), `ssl_verify`, `connect_timeout`, `read_timeout` |
| others | those of their fsspec file system |

What S3 lacks comes from the `AWS_*` variables and the files of profiles, as with AWS's own tools. They hold secrets: they
are handed on through the environment alone, never through files, journals, reports or MLflow.
"""  # noqa: E501

from __future__ import annotations

import json
import os
from collections.abc import Mapping

STORE_OPTIONS = "RETRAINING_STORE_OPTIONS"


def given_options() -> dict[str, str]:
    """The options of the source store in this process."""
    return dict(json.loads(os.environ.get(STORE_OPTIONS, "{}")))


def give_options(options: Mapping[str, str]) -> None:
    """Set them for this process and those that it starts from now on."""
    os.environ[STORE_OPTIONS] = json.dumps(dict(options))
