from __future__ import annotations

import errno

import pytest

from tasks.storage.place_errors import (
    BusyError,
    DeniedError,
    FullError,
    MissingError,
    from_os_error,
    from_status,
    without_secrets,
)


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (404, "NoSuchKey", MissingError, "is not there"),
        (401, "", DeniedError, "access is denied .401.; do this"),
        (403, "AccessDenied", DeniedError, "access is denied .403 AccessDenied.; do this"),
        (403, "ExpiredToken", DeniedError, "credentials have expired .*; do this"),
        (400, "ExpiredToken", DeniedError, "credentials have expired .*; do this"),
        (400, "InvalidToken", DeniedError, "access is denied .*; do this"),
        (405, "", DeniedError, "refuses the request"),
        (408, "", BusyError, "408"),
        (400, "RequestTimeout", BusyError, "RequestTimeout"),
        (429, "", BusyError, "429"),
        (500, "", BusyError, "500"),
        (503, "SlowDown", BusyError, "503 SlowDown"),
        (507, "", FullError, "no space left"),
        (403, "QuotaExceeded", FullError, "no space left"),
    ],
)
def test_a_status_is_one_of_four_kinds(status: int, code: str, kind: type[OSError], says: str) -> None:
    error = from_status(status, code, "s3://bucket/a", "do this")
    assert type(error) is kind
    with pytest.raises(kind, match=f"s3://bucket/a.*{says}|{says}.*s3://bucket/a"):
        raise error


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, MissingError),
        (errno.EACCES, DeniedError),
        (errno.EROFS, DeniedError),
        (errno.ENOSPC, FullError),
        (errno.EDQUOT, FullError),
        (errno.EIO, BusyError),
        (errno.ESTALE, BusyError),
        (errno.ECONNRESET, BusyError),
        (errno.ETIMEDOUT, BusyError),
    ],
)
def test_an_error_of_the_system_is_one_of_four_kinds(number: int, kind: type[OSError]) -> None:
    error = from_os_error(OSError(number, "what the system says"), "/folder/a")
    assert type(error) is kind
    assert "/folder/a" in str(error)


def test_a_url_is_shown_without_its_secrets() -> None:
    shown = without_secrets("sftp://me:secret@host:22/folder/?token=secret")
    assert shown == "sftp://me@host:22/folder"
    assert without_secrets("/folder/a?b") == "/folder/a?b"
