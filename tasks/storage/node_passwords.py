"""Passwords of storage nodes: they are taken out of the parameters first, and reach who opens nodes through the
environment alone, never through files, journals, reports, MLflow or Prefect."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from tasks.config import Params, without_password

PASSWORDS = "RETRAINING_NODE_PASSWORDS"
"""JSON: passwords by URLs of nodes, as these are without them."""


def hide_passwords(params: Params) -> Params:
    """The parameters without passwords of nodes, which this process and those that it starts still know."""
    remember({without_password(node.url): password_in(node.url) for node in params.storage.entries})
    return params.without_passwords


def password_in(url: str) -> str:
    """The password that a URL has in it; "" where it has none."""
    return "" if without_password(url) == url else unquote(urlsplit(url).password or "")


def password_of(url: str) -> str:
    """The password of a node; "" where none is known."""
    return str(_known().get(url, ""))


def remember(passwords: Mapping[str, str]) -> None:
    """Passwords by URLs; empty ones are none."""
    given = {url: password for url, password in passwords.items() if password}
    if given:
        os.environ[PASSWORDS] = json.dumps(_known() | given)


def _known() -> dict[str, str]:
    return dict(json.loads(os.environ.get(PASSWORDS, "{}")))
