"""From where an active node can pull by itself: a URL and its options as a remote of rclone's, made for one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tasks.storage.rclone_calls import RcloneCalls


class PullSource(NamedTuple):
    """A remote (as the argument `srcFs` of rclone's commands) and the path of an object within it."""

    remote: dict[str, Any]
    path: str


def pull_source(url: str, options: Mapping[str, str], calls: RcloneCalls) -> PullSource | None:
    """The source that an object's URL means for the node behind `calls`; None where only this machine can read it."""
    parts = urlsplit(url)
    path = unquote(parts.path).lstrip("/")
    if parts.scheme in ("s3", "s3a"):
        return PullSource(_s3(parts.netloc, options), path)
    if parts.scheme in ("http", "https") and not parts.query:  # rclone would leave the query out
        return PullSource(_http(url, options), path)
    if parts.scheme in ("sftp", "ssh"):
        user = options.get("user") or unquote(parts.username or "")
        password = options.get("password") or unquote(parts.password or "")
        remote = {"type": "sftp", "host": parts.hostname, "user": user, "_root": "/"}
        if parts.port:
            remote["port"] = str(parts.port)
        if password:
            remote["pass"] = calls.command("core/obscure", clear=password)["obscured"]
        return PullSource(remote, path)
    return None


def _s3(bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
    remote: dict[str, Any] = {"type": "s3", "provider": "AWS", "_root": bucket}
    if "endpoint" in options:
        remote |= {"provider": "Other", "endpoint": options["endpoint"]}
    for name in ("access_key_id", "secret_access_key", "session_token", "region", "profile"):
        if name in options:
            remote[name] = options[name]
    if "access_key_id" not in options:
        remote["env_auth"] = "true"  # the node has keys of its own
    return remote


def _http(url: str, options: Mapping[str, str]) -> dict[str, Any]:
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    if options.get("user"):
        login = f"{_quoted(options['user'])}:{_quoted(options.get('password', ''))}"
    place = f"{login}@{host}" if login else host
    return {"type": "http", "url": urlunsplit((parts.scheme, place, "/", "", "")), "_root": ""}


def _quoted(text: str) -> str:
    return quote(text, safe="")
