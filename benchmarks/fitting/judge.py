"""How many samples a pass can really have on the device: each size is tried, in a process of its own.

python -m benchmarks.fitting.judge '{"model", "optimizer", "part", "budget_bytes", "guess"}'
prints {"largest", "tried"}
"""

from __future__ import annotations

import json
import sys

from benchmarks.fitting.device import Device
from benchmarks.fitting.forked import in_fork
from benchmarks.fitting.searching import largest_that
from benchmarks.fitting.steps import take_steps, warm_up
from benchmarks.fitting.zoo import OPTIMIZERS, ZOO


def main() -> None:
    settings = json.loads(sys.argv[1])
    subject, part = ZOO[settings["model"]], settings["part"]
    OPTIMIZERS[settings["optimizer"]](subject.model().parameters())  # imports for seconds what all trials need
    device = Device()
    tried: dict[int, bool] = {}

    def fits(samples: int) -> bool:
        def trial() -> bool:
            warm_up(subject, settings["optimizer"])
            device.open(settings["budget_bytes"])
            # Two passes: in the second one the gradients of the first are there.
            sizes = (samples, min(samples, part - samples)) if samples < part else (part,)
            try:
                take_steps(subject, settings["optimizer"], part, sizes)
            except RuntimeError:
                if not device.refusals:
                    raise
            return device.refusals == 0

        tried[samples] = in_fork(trial)
        return tried[samples]

    print(json.dumps({"largest": largest_that(fits, part, settings["guess"]), "tried": tried}))


if __name__ == "__main__":
    main()
