"""Trains on a peer's streaming data set, as benchmarks.staging.train does; runs in the peers' environment.

python -m benchmarks.staging.train_peer '{"peer", "remote": FOLDER, "local": FOLDER, "step_seconds", "epochs"}'
prints what benchmarks.staging.loop measures. Two loader processes, a look-ahead of 8 shards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.staging.loop import BATCH, Training
from benchmarks.staging.rows import ROWS
from benchmarks.staging.torchvision_stub import without_torchvision

WORKERS = 2
AHEAD_SHARDS = 8


def litdata_loader(remote: str, local: str) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    # The store here speaks plain HTTP, which litdata has no setting for.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"
    data = StreamingDataset(remote, cache_dir=local, shuffle=True, seed=7, max_pre_download=AHEAD_SHARDS)
    return StreamingDataLoader(data, batch_size=BATCH, num_workers=WORKERS)


def mosaicml_loader(remote: str, local: str) -> Any:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    data = StreamingDataset(
        remote=remote,
        local=local,
        shuffle=True,
        shuffle_seed=7,
        batch_size=BATCH,
        predownload=AHEAD_SHARDS * ROWS,
        num_canonical_nodes=1,
    )
    return DataLoader(data, batch_size=BATCH, num_workers=WORKERS)


def batches(loader: Any) -> Iterator[int]:
    for batch in loader:
        yield len(batch["label"])


def main() -> None:
    settings = json.loads(sys.argv[1])
    make = {"litdata": litdata_loader, "mosaicml": mosaicml_loader}[settings["peer"]]
    import torch.utils.data  # noqa: F401  # imports don't count

    if settings["peer"] == "mosaicml":
        without_torchvision()
        import streaming  # noqa: F401
    else:
        import litdata  # noqa: F401
    training = Training()
    loader = make(settings["remote"], settings["local"])
    for _ in range(settings["epochs"]):
        training.run(batches(loader), settings["step_seconds"])
    del loader
    print(json.dumps(training.found()))


if __name__ == "__main__":
    main()
