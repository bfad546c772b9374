"""Opens HTTP servers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from obstore.store import HTTPStore

from tasks.storage.object_place import ObjectPlace, Opened, client_options

ADVICE = "give user and password with dvc remote modify --local"


def open_http(url: str, options: Mapping[str, str]) -> ObjectPlace:
    """A server, or a folder of it; it can be written to if it understands PUT and MOVE, as WebDAV has them."""
    parts = urlsplit(url)
    server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    user, password = options.get("user", unquote(parts.username or "")), options.get("password", "")
    password = password or unquote(parts.password or "")

    def connect() -> Opened:
        client = client_options(options, allow_http=parts.scheme == "http")
        if "auth_header" in options:
            client["default_headers"] = {options["auth_header"]: password}
        elif user or password:
            login = b64encode(f"{user}:{password}".encode()).decode()
            client["default_headers"] = {"Authorization": f"Basic {login}"}
        return HTTPStore(server, client_options=client, retry_config={"max_retries": 0}), (user, password)

    shown = server + parts.path.rstrip("/")
    return ObjectPlace(shown, unquote(parts.path), connect, ADVICE, renames=True)
