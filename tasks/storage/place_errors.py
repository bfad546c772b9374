"""What can go wrong at a place that holds objects, whatever kind of place it is: four kinds, each with one line."""

from __future__ import annotations

import errno
from urllib.parse import urlsplit


class MissingError(FileNotFoundError):
    """There is no such object."""


class DeniedError(PermissionError):
    """The place refuses: credentials that are missing, wrong or expired, or a request it doesn't take. Asking again
    doesn't help."""


class BusyError(OSError):
    """The place can't be reached or broke off, is overloaded, or fails inside: asking again later may help."""


class FullError(OSError):
    """There is no space left at the place, or a quota is used up. That is no error of a transfer."""


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL}


def from_os_error(error: OSError, where: str) -> OSError:
    """An error of the operating system as one of the four kinds. `where` is shown."""
    if isinstance(error, (MissingError, DeniedError, BusyError, FullError)):
        return error
    reason = one_line(error.strerror or error)
    if isinstance(error, FileNotFoundError):
        return MissingError(f"{where} is not there")
    if error.errno in _FULL:
        return FullError(f"no space left at {where} ({reason})")
    if error.errno in _REFUSED or isinstance(error, PermissionError):
        return DeniedError(f"{where}: {reason}")
    return BusyError(f"{where}: {reason}")


def from_status(status: int, code: str, where: str, advice: str) -> OSError:
    """An HTTP status that is no success as one of the four kinds; `code` is what S3 calls the error ("" is unknown).

    `advice` tells what to do about being denied.
    """
    said = f"{status} {code}".strip()
    if status == 404:
        return MissingError(f"{where} is not there ({said})")
    if status in (413, 507) or code in ("QuotaExceeded", "XMinioStorageFull", "EntityTooLarge"):
        return FullError(f"no space left at {where} ({said})")
    if code in ("SlowDown", "RequestTimeout", "InternalError") or status in (408, 423, 425, 429) or status >= 500:
        return BusyError(f"{where} answers {said}")
    if code in ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"):
        return DeniedError(f"{where}: the credentials have expired ({said}); {advice}")
    if status in (401, 403) or "Token" in code or "AccessKey" in code or "Signature" in code:
        return DeniedError(f"{where}: access is denied ({said}); {advice}")
    return DeniedError(f"{where} refuses the request ({said})")


def one_line(error: object) -> str:
    return " ".join(str(error).split())


def without_secrets(url: str) -> str:
    """A URL as it may be shown: without a password and without what follows a question mark."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    user = login.partition(":")[0]
    shown = f"{user}@{host}" if user else host
    return f"{parts.scheme}://{shown}{parts.path}".rstrip("/")
