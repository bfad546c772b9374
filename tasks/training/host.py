"""The ranks that run on this machine, so that what they all need of the data is in its memory once."""

from __future__ import annotations

import os

import torch.distributed as dist

from tasks.storage.host_rows import ALONE, Host


def this_host() -> Host:
    """This rank's place on its machine, by the environment that torch's launcher gives it."""
    ranks = int(os.environ["LOCAL_WORLD_SIZE"])
    if ranks == 1:
        return ALONE
    machine, rank = os.environ["GROUP_RANK"], int(os.environ["LOCAL_RANK"])

    def agree(said: str) -> str:
        heard: list[tuple[str, int, str] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(heard, (machine, rank, said))
        return next(each[2] for each in heard if each is not None and each[:2] == (machine, 0))

    return Host(rank, ranks, agree)
