"""One spelling for each place that can be a storage node, so that the same one is known by it."""

from __future__ import annotations

import posixpath
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from fsspec.core import split_protocol
from fsspec.registry import get_filesystem_class, known_implementations, registry

from tasks.storage.rclone_calls import parse_address

ACTIVE_SCHEMES = ("rclone+http", "rclone+https")
_WITHOUT_FSSPEC = ("s3", "s3a", "http", "https")
_ALLOWED = "folders, s3://, http://, https://, sftp://, rclone+http://, rclone+https:// and what fsspec knows"
_OWN_PORTS = {"http": 80, "https": 443, "sftp": 22, "ssh": 22}


def absolute_url(node: str, root: str) -> str:
    """A node's absolute folder, without links, or its URL in lower case where case doesn't count, without a port that
    goes without saying.

    Raises `ValueError` or `ImportError` (which names the package) where it can't be opened here.
    """
    scheme, path = split_protocol(node)
    if scheme in (None, "file", "local"):
        if not path.strip():
            raise ValueError("it names no folder")
        return str(Path(root, Path(path).expanduser()).resolve())
    parts = urlsplit(node)
    if not parts.netloc and (parts.scheme in _WITHOUT_FSSPEC or parts.scheme in _OWN_PORTS):
        raise ValueError(f"it names no {'bucket' if parts.scheme.startswith('s3') else 'server'}")
    if parts.scheme in ACTIVE_SCHEMES:
        parse_address(node)
    elif parts.scheme not in _WITHOUT_FSSPEC:
        _check_known(parts.scheme)
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"its port must be a number from 0 to 65535: {parts.netloc}") from None
    host = (parts.hostname or "") if parts.scheme in _OWN_PORTS or parts.scheme in ACTIVE_SCHEMES else parts.netloc
    if ":" in host and host != parts.netloc:
        host = f"[{host}]"
    if host != parts.netloc:
        login = f"{parts.username}@" if parts.username else ""
        host = f"{login}{host}" + (f":{port}" if port not in (None, _OWN_PORTS.get(parts.scheme)) else "")
    path = posixpath.normpath(parts.path) if parts.path.strip("/") else ""
    return urlunsplit((parts.scheme, host, "/" + path.strip("/") if path else "", parts.query, ""))


def _check_known(scheme: str) -> None:
    """Raise `ValueError` for a scheme that nothing opens, `ImportError` for one whose package is missing."""
    if scheme not in (*registry, *known_implementations):
        raise ValueError(f"nothing opens {scheme}://; allowed are {_ALLOWED}")
    get_filesystem_class(scheme)
