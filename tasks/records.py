"""The small frozen records that steps hand to each other: pointers and numbers, never tensors.

Standard library only. Sizes are in bytes, durations in seconds, shares between 0 and 1. How a record becomes a file is
the business of `tasks.record_files`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

StorageMode = Literal["local", "distributed"]
UpdateMode = Literal["synchronous", "asynchronous"]
Branch = Literal["pretrain", "continue"]
Outcome = Literal["target_reached", "target_missed", "diverged", "unchanged", "cancelled", "failed"]


@dataclass(frozen=True)
class Run:
    """Where a run lives: `root` is the project (and DVC repository), `folder` holds its journal and report.

    What steps hand to each other lies in `outputs`: the run's folder too, or `state` where DVC keeps it.
    """

    root: str
    folder: str
    state: str | None = None

    @property
    def id(self) -> str:
        return Path(self.folder).name

    @property
    def outputs(self) -> Path:
        return Path(self.state or self.folder)

    @property
    def journal(self) -> Path:
        return Path(self.folder) / "journal.jsonl"


@dataclass(frozen=True)
class Decision:
    """One decision of the method. `because` is a sentence with the numbers in it."""

    name: str
    chosen: str
    because: str
    inputs: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """A column of the data set. `length` is that of a list column (None for a scalar one), and of an image the numbers
    of its `shape`: channels, height, width.

    `categories` are the distinct texts of a column of the type "category" in the rows that are trained on, sorted; a
    text's place is its code. All other texts and missing ones have no code and share one slot after these.
    """

    name: str
    type: str
    length: int | None = None
    categories: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Numbers in a decoded sample: a category is one, its code."""
        return self.length or 1

    @property
    def input_width(self) -> int:
        """Numbers that a model sees: a category has a slot a code, and one for what has none."""
        return len(self.categories) + 1 if self.type == "category" else self.width


@dataclass(frozen=True)
class Shard:
    """One file of the data set. `url` is where the source store holds its bytes; None is unknown, never 0.

    `md5` is "" until the first read of a file of which DVC has no hash; what its source gives it (`etag`) stands in.
    """

    path: str
    md5: str
    url: str
    bytes: int | None
    rows: int | None
    decoded_bytes: int | None
    etag: str = ""


@dataclass(frozen=True)
class Manifest:
    """One version of a DVC-tracked data set.

    `version` is DVC's hash of the set; `revision` the commit that it was read at (None: the workspace). `bytes` is None
    when it can't be known, and `unknown_because` then says why. `shards` come in the order of their paths;
    `directory_url` is where the store holds the listing of the set (None for a single file). `notes` are sentences on
    what was found that a user should know; `recorded_in` the DVC files that say all this, below the project.
    """

    path: str
    version: str
    revision: str | None
    bytes: int | None
    files: int | None
    unknown_because: str | None
    directory_url: str | None
    shards: tuple[Shard, ...]
    notes: tuple[str, ...] = ()
    recorded_in: tuple[str, ...] = ()

    @property
    def rows(self) -> int | None:
        counts = [shard.rows for shard in self.shards]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def decoded_bytes(self) -> int | None:
        sizes = [shard.decoded_bytes for shard in self.shards]
        return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True)
class Capacity:
    """How large one version of a data set is, and how many files it has (None: unknown, and why the size is)."""

    version: str
    bytes: int | None
    files: int | None
    unknown_because: str | None


@dataclass(frozen=True)
class Schema:
    """What a row of the data set looks like to a model.

    `features` in the order in which they are laid side by side; `input_shape` is the shape of one sample as a model
    sees it (channels, height, width for a lone list column whose length is a square, else (numbers,)); `classes` the
    distinct values of the label, sorted, whose position is the class index. `dtype` is the numpy name of the decoded
    features.
    """

    label: str
    label_type: Literal["integer", "string", "boolean", "float"]
    features: tuple[Column, ...]
    input_shape: tuple[int, ...]
    classes: tuple[int | str | float | bool, ...]
    dtype: str

    @property
    def width(self) -> int:
        """Numbers in one decoded sample."""
        return sum(column.width for column in self.features)


@dataclass(frozen=True)
class Measurement:
    """What the first step found: the version to train on, what its rows look like, and the test set, if it has one."""

    manifest: Manifest
    schema: Schema
    test: Manifest | None


@dataclass(frozen=True)
class NodeSpec:
    """A storage node: an absolute folder or a URL, without its password, and the bytes that may be placed on it (None:
    as many as there are)."""

    url: str
    capacity_bytes: int | None = None


@dataclass(frozen=True)
class StoragePlan:
    """Where the training data lives: the nodes are empty in local mode (this node is the only one). `nodes_before` are
    those that hold it from before, after it has been staged again."""

    mode: StorageMode
    nodes: tuple[NodeSpec, ...]
    decision: Decision
    nodes_before: tuple[NodeSpec, ...] = ()


@dataclass(frozen=True)
class Peak:
    """The most bytes that a training step has at one time, what they are for (parameters, gradients, activations, ...),
    and what is at work then: a module of the model by its name, `loss` or `optimizer`."""

    bytes: int
    breakdown: dict[str, int]
    module: str


@dataclass(frozen=True)
class FirstBatch:
    """How the first batch is run so that it measures: a pass of `samples`, which warms up, one more of them and one of
    twice as many, then the rest in passes of at most `micro_batch`.

    Predicted are the bytes that the two measured passes add to what is there before them (`pass_bytes`), and the peak
    of a step with passes of twice the samples, and of `micro_batch`, all beside the gradients of an earlier pass.
    """

    samples: int
    pass_bytes: tuple[int, int]
    small_peak_bytes: int
    micro_batch: int
    peak_bytes: int


@dataclass(frozen=True)
class BatchPlan:
    """How one global batch goes through the device.

    `part` is the largest number of samples a worker gets of a global batch; a part is run in `passes` forward passes of
    at most `micro_batch` samples. `source` says where the predicted peak comes from. `first_batch` is None where the
    first batch is run like all others.
    """

    batch_size: int
    workers: int
    part: int
    micro_batch: int
    passes: int
    predicted_peak_bytes: int
    whole_part_peak_bytes: int
    budget_bytes: int
    source: str
    inexact_layers: tuple[str, ...] = ()
    first_batch: FirstBatch | None = None


@dataclass(frozen=True)
class PhaseResult:
    """What a phase of training left behind. `accuracy` is that of the last evaluation, on the validation samples.

    `stalled_by` shares out `stalled_seconds` by what was waited for: `store`, `node`, `decoding`.

    `noise_scale` is that of the gradients, in samples, by then (None: it can't be told). `weights` is the SHA-256 of
    the final parameters and buffers.
    """

    branch: Branch
    mode: StorageMode
    workers: int
    steps: int
    samples: int
    seconds: float
    accuracy: float | None
    stalled_seconds: float
    peak_memory_bytes: int | None
    ended_by: Literal["duration", "max_steps", "target", "diverged"]
    checkpoint: str
    b_ratio: float
    gradient_coefficient: float
    bytes_from_store: int
    bytes_from_nodes: int
    noise_scale: float | None = None
    stalled_by: dict[str, float] = field(default_factory=dict)
    weights: str = ""


@dataclass(frozen=True)
class ModelRecord:
    """The model that a run ended with. `version` is None when it could not be registered."""

    folder: str
    name: str
    version: str | None
    promoted: bool
    test_accuracy: float | None
    champion_version: str | None
    champion_accuracy: float | None
