"""The loader of params.yaml: one line a fault, with key, value and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks.config import Params
from tasks.errors import ParameterError
from tasks.parameter_file import load_params, over_file

SHIPPED = Path(__file__).parents[2] / "params.yaml"


def faults(*overrides: tuple[str, str], text: str | None = None, tmp_path: Path | None = None) -> list[str]:
    file = SHIPPED
    if text is not None:
        assert tmp_path is not None
        file = tmp_path / "params.yaml"
        file.write_text(text)
    with pytest.raises(ParameterError) as caught:
        load_params(file, list(overrides))
    assert all("\n" not in line for line in caught.value.faults)
    return caught.value.faults


def test_the_defaults_of_the_models_equal_the_shipped_file() -> None:
    assert load_params(SHIPPED) == Params()


def test_every_key_of_the_models_is_in_the_shipped_file() -> None:
    from ruamel.yaml import YAML

    shipped = YAML(typ="safe", pure=True).load(SHIPPED.read_text())
    dotted = {f"{section}.{key}" for section, keys in shipped.items() if isinstance(keys, dict) for key in keys}
    assert dotted | {"seed"} == set(Params().dotted())


def test_a_single_key_is_overridden_and_the_last_one_wins() -> None:
    params = load_params(SHIPPED, [("pretrain.duration", "5"), ("pretrain.duration", "10 min")])
    assert params.pretrain.duration == 600
    assert params.pretrain.target_accuracy == Params().pretrain.target_accuracy


def test_a_learning_rate_in_exponent_form_is_a_number() -> None:
    assert load_params(SHIPPED, [("optimizer.learning_rate", "1e-4")]).optimizer.learning_rate == 0.0001


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("pretrain.durration", "5", "unknown key; did you mean 'duration'?"),
        ("pretain.duration", "5", "unknown key; did you mean 'pretrain'?"),
        ("pretrain.duration", "abc", 'must be seconds, or text such as "90 s"'),
        ("pretrain.duration", "-1", "must be seconds"),
        ("pretrain.duration", "0", "must be seconds"),
        ("pretrain.duration", ".nan", "must be seconds"),
        ("pretrain.duration", ".inf", "must be seconds"),
        ("continuation.evaluate_every", "2 parsecs", "must be seconds"),
        ("batch.device_memory", "12 MX", "must be bytes"),
        ("storage.capacity_limit", "0", "must be bytes"),
        ("storage.capacity_limit", "some", 'must be bytes, or text such as "64 MiB" or "2 GB", above 0, or "auto"'),
        ("cluster.slow_step", "0", 'or "2 h", above 0, or "auto"'),
        ("storage.capacity_limit", ".nan", "must be bytes"),
        ("batch.device_memory", "0", "must be bytes"),
        ("batch.device_memory", "-1", "must be bytes"),
        ("batch.size", "-4", "whole number, 1 or more"),
        ("batch.size", "0", "whole number, 1 or more"),
        ("batch.size", "2.5", "whole number, 1 or more"),
        ("batch.size", "true", "whole number, 1 or more"),
        ("batch.size", "many", "whole number, 1 or more"),
        ("batch.headroom", "many", "number"),
        ("batch.headroom", "1", "less than 1"),
        ("batch.headroom", "-0.01", "greater than or equal to 0"),
        ("batch.headroom", ".nan", "finite"),
        ("optimizer.learning_rate", ".nan", "finite"),
        ("optimizer.learning_rate", "0", "greater than 0"),
        ("optimizer.learning_rate", "fast", "number"),
        ("optimizer.clip_norm", "0", "greater than 0"),
        ("optimizer.clip_norm", "-1", "greater than 0"),
        ("optimizer.clip_norm", ".inf", "finite"),
        ("optimizer.clip_norm", "short", "number"),
        ("optimizer.schedule", "sine", "'constant', 'linear' or 'cosine'"),
        ("optimizer.schedule", "cosine", "horizon_samples = None must be a number above warmup_samples = 0"),
        ("optimizer.horizon_samples", "10", "horizon_samples = 10 must be null with schedule = 'constant'"),
        ("optimizer.warmup_samples", "-1", "greater than or equal to 0"),
        ("optimizer.warmup_samples", "1.5", "integer"),
        ("optimizer.final_factor", "1.1", "less than or equal to 1"),
        ("cluster.precision", "float64", "'float32', 'bfloat16' or 'float16'"),
        ("cluster.precision", "16", "'float32', 'bfloat16' or 'float16'"),
        ("pretrain.target_accuracy", "0", "greater than 0"),
        ("pretrain.target_accuracy", "1.01", "less than or equal to 1"),
        ("pretrain.target_accuracy", ".nan", "finite"),
        ("cluster.b1", "0.6", "b1 = 0.6 must be below b2 = 0.6"),
        ("cluster.b2", "1.5", "less than or equal to 1"),
        ("cluster.workers", "0", "greater than or equal to 1"),
        ("cluster.max_restarts", "99999999999999999999", "less than or equal to 1000"),
        ("cluster.workers", "1000000", "less than or equal to 1024"),
        ("cluster.device", "tpu", "'auto', 'cpu', 'cuda' or 'mps'"),
        ("cluster.update_mode", "both", "'auto', 'synchronous' or 'asynchronous'"),
        ("storage.nodes", "[a]", "must name"),
        ("storage.nodes", "[a, b, a/]", "must be distinct"),
        ("storage.nodes", "[a, 3]", "must be a folder or URL, or both of these: url, capacity"),
        ("storage.nodes", "[a, {url: b, capacity: much}]", '"64 MiB"'),
        ("storage.nodes", "[a, {capacity: 5}]", "storage.nodes.1.url: field required"),
        ("storage.nodes", "[a, {url: b, capcity: 5}]", "did you mean 'capacity'? allowed are capacity, url"),
        ("storage.nodes", "[a, {url: b}, 'b/']", "must be distinct"),
        ("storage.initial_nodes", "4", "must be at most the 3 nodes"),
        ("data.validation_share", "1", "less than 1"),
        ("seed", "-1", "greater than or equal to 0"),
        ("model.allowed_packages", "[os]", "parameter file only"),
    ],
)
def test_a_wrong_value_is_said_with_its_key_and_what_is_allowed(key: str, value: str, said: str) -> None:
    (line,) = faults((key, value))
    assert line.startswith(key.split(".")[0])
    assert said in line


def test_a_node_may_have_a_capacity_and_its_password_is_not_shown() -> None:
    nodes = "[a, {url: 'rclone+http://me:secret@host:5572/x', capacity: 2 GiB}, 'sftp://me:secret@host/x']"
    params = load_params(SHIPPED, [("storage.nodes", nodes)])
    assert [entry.capacity for entry in params.storage.entries] == [None, 2 << 30, None]
    shown = params.dotted()["storage.nodes"]
    assert shown == ["a", {"url": "rclone+http://me@host:5572/x", "capacity": 2 << 30}, "sftp://me@host/x"]
    kept = params.without_passwords
    assert "secret" not in kept.model_dump_json()
    assert kept.storage.with_passwords_of(params.storage) == params.storage


def test_a_schedule_ends_after_its_warm_up() -> None:
    given = [("optimizer.schedule", "linear"), ("optimizer.warmup_samples", "100")]
    assert load_params(SHIPPED, [*given, ("optimizer.horizon_samples", "101")]).optimizer.horizon_samples == 101
    (line,) = faults(*given, ("optimizer.horizon_samples", "100"))
    assert line.startswith("optimizer: horizon_samples = 100 must be a number above warmup_samples = 100")


def test_all_faults_are_said_at_once() -> None:
    assert len(faults(("pretrain.duration", "abc"), ("batch.size", "0"), ("cluster.workers", "0"))) == 3


def test_a_section_that_is_a_value_is_refused() -> None:
    assert faults(("pretrain", "5"))[0].startswith("pretrain")
    assert "not a section" in faults(("seed.deep", "5"))[0]


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text", "a: [1,\n", "a: 1\na: 2\n"])
def test_a_file_that_holds_no_sections_is_refused(text: str, tmp_path: Path) -> None:
    assert len(faults(text=text, tmp_path=tmp_path)) == 1


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no such file"):
        load_params(tmp_path / "none.yaml")


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("")
    assert load_params(tmp_path / "params.yaml") == Params()


def test_parameters_that_are_given_go_over_the_file_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("pretrain: {duration: 7, target_accuracy: 0.5}\nseed: 11\n")
    merged = over_file(Params.model_validate({"pretrain": {"duration": "2 min"}, "cluster": {"b2": 0.9}}), file)
    assert merged.pretrain.duration == 120
    assert merged.pretrain.target_accuracy == 0.5
    assert (merged.cluster.b1, merged.cluster.b2) == (Params().cluster.b1, 0.9)
    assert merged.seed == 11
    assert over_file(Params(), file).pretrain.duration == 7


def test_rules_between_keys_hold_for_what_is_given_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("cluster: {b1: 0.5, b2: 0.9}\n")
    with pytest.raises(ParameterError, match=r"b1 = 0\.5 must be below b2 = 0\.45"):
        over_file(Params.model_validate({"cluster": {"b2": 0.45}}), file)


def test_a_flow_parameter_cannot_allow_packages_that_the_file_does_not() -> None:
    over_file(Params(), SHIPPED)
    over_file(Params.model_validate({"model": {"allowed_packages": []}}), SHIPPED)
    with pytest.raises(ParameterError, match=r"model\.allowed_packages: os must be allowed in params\.yaml itself"):
        over_file(Params.model_validate({"model": {"allowed_packages": ["examples", "os"]}}), SHIPPED)


def test_a_time_zone_that_does_not_exist_is_refused() -> None:
    (line,) = faults(("schedule.timezone", "Mars/Olympus"))
    assert "must be a name such as UTC" in line


def test_the_model_is_called_like_its_data_set_unless_it_is_named() -> None:
    assert load_params(SHIPPED).model_name == "digits"
    assert load_params(SHIPPED, [("data.path", "data/own.parquet")]).model_name == "own"
    assert load_params(SHIPPED, [("registry.model", "mine")]).model_name == "mine"
    # MLflow's registry refuses these characters, and says so only when a model is registered.
    assert load_params(SHIPPED, [("data.path", "data/my.sets' 5%:\".v2")]).model_name == "my-sets- 5---"


@pytest.mark.parametrize("name", ["a.b", "50%", "it's", 'so "called"', "a/b", "a:b", "x" * 257])
def test_a_name_that_the_registry_would_refuse_is_refused_at_once(name: str) -> None:
    (line,) = faults(("registry.model", name))
    assert line.startswith("registry.model: ")


@pytest.mark.parametrize("text", ["abc", "5 parsecs", "-1 s", "", "s"])
def test_a_server_that_knows_the_schema_alone_refuses_a_duration_of(text: str) -> None:
    form = Params.model_json_schema()["$defs"]["Pretrain"]["properties"]["duration"]
    (pattern,) = [part["pattern"] for part in form["anyOf"] if part["type"] == "string"]
    assert re.search(pattern, text) is None
    assert all(re.search(pattern, good) for good in ("90", "90 s", "1.5 H", "10min", ".5 d", "1e-3 s"))


def test_shares_that_leave_nothing_to_train_on_are_refused() -> None:
    (line,) = faults(("data.test_path", "null"), ("data.test_share", "0.5"), ("data.validation_share", "0.5"))
    assert "must be below 1" in line
