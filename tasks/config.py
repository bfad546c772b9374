"""params.yaml as typed, frozen models.

Unknown keys are refused. The defaults of the models equal the shipped file (a test holds them together), so that a part
of the parameters given to a deployment means the same as the same part set on the command line. `tasks.parameter_file`
reads the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from tasks.quantities import Bytes, BytesOrAuto, CountOrAuto, Seconds, SecondsOrAuto

Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Closed = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Steps = Annotated[int, Field(ge=1)]
# On a CPU any number of processes can be workers; more than this on one machine is a slip.
MOST_WORKERS = 1024


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Data(Section):
    """The data set: a path that DVC tracks, the revision to read it at, and how its rows are split."""

    path: str = "data/digits"
    rev: str | None = None
    remote: str | None = None
    label: str = "label"
    test_path: str | None = "data/digits_test"
    test_share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.15
    validation_share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.2

    @model_validator(mode="after")
    def _leaves_samples_to_train_on(self) -> Self:
        if self.test_path is None and self.test_share + self.validation_share >= 1:
            raise ValueError("test_share + validation_share must be below 1, so that samples are left to train on")
        return self


class StorageNode(Section):
    """A storage node whose `capacity` bounds the bytes that are placed on it."""

    url: Annotated[str, Field(min_length=1)]
    capacity: Bytes | None = None


def _form_of_node(entry: Any) -> str | None:
    if isinstance(entry, str):
        return "url"
    return "node" if isinstance(entry, dict | StorageNode) else None


NodeEntry = Annotated[
    Annotated[str, Field(min_length=1), Tag("url")] | Annotated[StorageNode, Tag("node")],
    Discriminator(
        _form_of_node,
        custom_error_type="node",
        custom_error_message="must be a folder or URL, or both of these: url, capacity",
    ),
]
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/]*@")


def without_password(url: str) -> str:
    """A node's URL as it may be shown and kept: the user stays, the password goes."""
    return _PASSWORD.sub(r"\1@", url)


class Storage(Section):
    """Where the training data lives while training runs."""

    capacity_limit: BytesOrAuto = "auto"
    nodes: Annotated[tuple[NodeEntry, ...], Field(strict=False)] = (
        ".storage/node-1",
        ".storage/node-2",
        ".storage/node-3",
    )
    initial_nodes: Annotated[int, Field(ge=2)] = 2
    look_ahead: Steps = 8
    wait: bool = False

    @property
    def entries(self) -> tuple[StorageNode, ...]:
        """The nodes, all in one form."""
        return tuple(StorageNode(url=node) if isinstance(node, str) else node for node in self.nodes)

    @property
    def without_passwords(self) -> Self:
        """As it may be kept: URLs of nodes without passwords."""
        return self._with_urls({node.url: without_password(node.url) for node in self.entries})

    def with_passwords_of(self, other: Storage) -> Self:
        """With the passwords that the same nodes have in `other`."""
        return self._with_urls({without_password(node.url): node.url for node in other.entries})

    def _with_urls(self, urls: Mapping[str, str]) -> Self:
        nodes = tuple(
            urls.get(node, node)
            if isinstance(node, str)
            else node.model_copy(update={"url": urls.get(node.url, node.url)})
            for node in self.nodes
        )
        return self.model_copy(update={"nodes": nodes})

    @model_validator(mode="after")
    def _has_nodes_to_spare(self) -> Self:
        distinct = {without_password(node.url).rstrip("/") for node in self.entries}
        if len(distinct) < len(self.nodes):
            raise ValueError(f"nodes must be distinct, but {len(self.nodes)} name {len(distinct)} different ones")
        if len(self.nodes) < 2:
            raise ValueError(
                f"nodes must name at least 2 storage nodes (re-staging may need them), not {len(self.nodes)}"
            )
        if self.initial_nodes > len(self.nodes):
            raise ValueError(f"initial_nodes = {self.initial_nodes} must be at most the {len(self.nodes)} nodes")
        return self


class Model(Section):
    """The model: a known name or `module:callable`, and what it is built and judged with."""

    factory: str = "default"
    loss: str = "cross_entropy"
    metric: str = "accuracy"
    arguments: dict[str, Any] = {"channels": [32, 64], "hidden": 128}
    allowed_packages: Annotated[tuple[str, ...], Field(strict=False)] = ("examples",)


class Optimizer(Section):
    """The optimizer, and how its learning rate goes with the samples that all workers have taken."""

    name: str = "sgd"
    learning_rate: Positive = 0.01
    arguments: dict[str, Any] = {}
    clip_norm: Positive | None = None
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_samples: Annotated[int, Field(ge=0)] = 0
    horizon_samples: Annotated[int, Field(ge=1)] | None = None
    final_factor: Closed = 0.0

    @model_validator(mode="after")
    def _has_a_horizon_if_it_ends_anywhere(self) -> Self:
        horizon, name = self.horizon_samples, self.schedule
        if name == "constant" and horizon is not None:
            raise ValueError(f"horizon_samples = {horizon} must be null with schedule = {name!r}, which has no end")
        if name != "constant" and (horizon is None or horizon <= self.warmup_samples):
            raise ValueError(
                f"horizon_samples = {horizon} must be a number above warmup_samples = {self.warmup_samples} "
                f"with schedule = {name!r}"
            )
        return self


class Batch(Section):
    """The global batch and the memory that one device has for it."""

    size: CountOrAuto = 256
    device_memory: BytesOrAuto = 6_000_000
    headroom: Share = 0.02
    strategy: Literal["largest", "fastest"] = "largest"


class Pretrain(Section):
    duration: Seconds = 1.0
    target_accuracy: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.93
    max_steps: Steps | None = None
    evaluate_every: Seconds = 2.0


class Continuation(Section):
    duration: Seconds = 90.0
    max_steps: Steps | None = None
    evaluate_every: Seconds = 2.0


class Cluster(Section):
    """The accelerators, and when their updates are synchronous."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = 2
    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 1
    update_mode: Literal["auto", "synchronous", "asynchronous"] = "auto"
    slow_step: SecondsOrAuto = "auto"
    b1: Closed = 0.4
    b2: Closed = 0.6
    sync_floor: Closed = 0.6
    rebalance: bool = False

    @model_validator(mode="after")
    def _has_ordered_thresholds(self) -> Self:
        if not self.b1 < self.b2:
            raise ValueError(f"b1 = {self.b1} must be below b2 = {self.b2}")
        return self


class Gradient(Section):
    """The coefficients that lower the step."""

    rho: Positive = 3.0
    lambda_b: Closed = 0.25
    power: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.25
    minimum: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.1


class Schedule(Section):
    """When the deployment `retraining/scheduled` runs, and what happens when its last run is still going on.

    `cron` is checked where the deployment is registered.
    """

    cron: Annotated[str, Field(min_length=1)] = "0 3 * * *"
    timezone: Annotated[str, Field(min_length=1)] = "UTC"
    on_collision: Literal["wait", "skip"] = "wait"

    @model_validator(mode="after")
    def _names_a_timezone(self) -> Self:
        try:
            ZoneInfo(self.timezone)
        except (ValueError, OSError, ZoneInfoNotFoundError):
            raise ValueError(f"timezone = {self.timezone!r} must be a name such as UTC or Europe/Berlin") from None
        return self


class Tracking(Section):
    uri: str = "sqlite:///mlflow.db"
    experiment: Annotated[str, Field(min_length=1)] = "adaptive-retraining"


class Registry(Section):
    model: Annotated[str, Field(pattern=r"^[^/:.%\"']+$", max_length=256)] | None = None
    replace_incompatible: bool = False


class Params(Section):
    """Everything that a run is told."""

    data: Data = Data()
    storage: Storage = Storage()
    model: Model = Model()
    optimizer: Optimizer = Optimizer()
    batch: Batch = Batch()
    pretrain: Pretrain = Pretrain()
    continuation: Continuation = Continuation()
    cluster: Cluster = Cluster()
    gradient: Gradient = Gradient()
    schedule: Schedule = Schedule()
    tracking: Tracking = Tracking()
    registry: Registry = Registry()
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 7

    @property
    def model_name(self) -> str:
        """The model's name in the registry: the data set's, where none is given, as far as a registry allows it."""
        return self.registry.model or re.sub(r"[:.%\"']", "-", PurePosixPath(self.data.path).stem)

    @property
    def without_passwords(self) -> Self:
        """As it may be kept and shown."""
        return self.model_copy(update={"storage": self.storage.without_passwords})

    def dotted(self) -> dict[str, Any]:
        """Every key with its path, as MLflow's parameters: `pretrain.duration`, ... Passwords are left out."""
        sections = self.without_passwords.model_dump(mode="json")
        flat: dict[str, Any] = {"seed": sections.pop("seed")}
        for section, keys in sections.items():
            flat.update({f"{section}.{key}": value for key, value in keys.items()})
        return flat
