from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks.storage.s3_access import Keys, read_access


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = file-id\naws_secret_access_key = file-secret\n"
        "[team]\naws_access_key_id = team-id\naws_secret_access_key = te%am\naws_session_token = team-token\n"
    )
    (tmp_path / ".aws/config").write_text(
        "[default]\nregion = eu-west-1\n[profile team]\nregion = eu-north-1\nendpoint_url = https://store.example\n"
        "[profile elsewhere]\ncredential_process = /bin/keys\n"
    )
    return tmp_path


def test_nothing_given_means_no_keys_and_the_default_region() -> None:
    access = read_access({})
    assert (access.keys, access.endpoint, access.region) == (None, None, "us-east-1")
    assert not access.anonymous
    assert not access.needs_aws_tools


@pytest.mark.usefixtures("profiles")
def test_options_come_before_the_environment_and_it_before_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_access({}).keys == Keys("file-id", "file-secret", None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "env-token")
    assert read_access({}).keys == Keys("env-id", "env-secret", "env-token")
    given = {"access_key_id": "id", "secret_access_key": "secret"}
    assert read_access(given).keys == Keys("id", "secret", None), "no token of another's keys"


@pytest.mark.usefixtures("profiles")
def test_a_profile_that_is_named_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
    access = read_access({"profile": "team"})
    assert access.keys == Keys("team-id", "te%am", "team-token")
    assert (access.region, access.endpoint) == ("eu-north-1", "https://store.example")


def test_the_environment_names_a_profile_files_region_and_endpoint(
    profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert read_access({}).region == "eu-north-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000")
    access = read_access({})
    assert (access.region, access.endpoint) == ("ap-south-1", "http://127.0.0.1:9000")
    (profiles / "own").write_text("[team]\naws_access_key_id = own\naws_secret_access_key = own\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles / "own"))
    assert read_access({}).keys == Keys("own", "own", None)


@pytest.mark.usefixtures("profiles")
def test_nobody_asks_where_a_bucket_is_public() -> None:
    access = read_access({"anonymous": "true"})
    assert access.anonymous
    assert access.keys is None


@pytest.mark.usefixtures("profiles")
def test_a_profile_that_gets_its_keys_elsewhere_needs_the_tools_of_aws() -> None:
    assert read_access({"profile": "elsewhere"}).needs_aws_tools


@pytest.mark.usefixtures("profiles")
def test_a_profile_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no AWS profile 'nobody'"):
        read_access({"profile": "nobody"})


def test_half_a_pair_of_keys_is_named() -> None:
    with pytest.raises(ValueError, match="credentials are missing: there is no secret_access_key"):
        read_access({"access_key_id": "id"})


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(read_access({"access_key_id": "id", "secret_access_key": "secret"}))
