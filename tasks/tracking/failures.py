"""What can go wrong with MLflow, in the words that callers react to."""

from __future__ import annotations

# How the journal's warning begins that MLflow is out of reach.
OUT_OF_REACH = "MLflow can't be reached"

# MLflow's error codes that say: this will not be accepted, however often it is sent.
_REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "INVALID_STATE", "RESOURCE_ALREADY_EXISTS"}


class TrackingUnavailableError(Exception):
    """MLflow can't be reached, or doesn't answer in time: one line that says where and why."""


class ModelCannotReadError(Exception):
    """A registered model's signature can't read the rows that it was given: one line."""


def is_refused(error: Exception) -> bool:
    """Whether MLflow refused what it was sent as invalid."""
    return getattr(error, "error_code", None) in _REFUSALS


def is_gone(error: Exception) -> bool:
    """Whether MLflow says that what is spoken of doesn't exist."""
    return getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST"


def one_line(error: BaseException, longest: int = 300) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= longest else text[: longest - 1] + "…"
