"""The peer accelerate on the device: the whole training is called again with fewer samples until it goes through.

python -m benchmarks.fitting.accelerate_search '{"model", "optimizer", "part", "budget_bytes"}'
in an environment with accelerate; prints {"found", "wasted_seconds", "failures"}
"""

from __future__ import annotations

import json
import sys

from accelerate.utils import find_executable_batch_size

from benchmarks.fitting.device import Device
from benchmarks.fitting.steps import processor_seconds, take_steps, warm_up
from benchmarks.fitting.zoo import ZOO


def main() -> None:
    settings = json.loads(sys.argv[1])
    subject, optimizer, part = ZOO[settings["model"]], settings["optimizer"], settings["part"]
    warm_up(subject, optimizer)
    device = Device()
    device.open(settings["budget_bytes"])
    began = useful = processor_seconds()

    @find_executable_batch_size(starting_batch_size=part)  # type: ignore[untyped-decorator]
    def train(batch_size: int) -> int:
        nonlocal useful
        useful = processor_seconds()
        # The batch stays as large as was asked for: what doesn't fit at once is accumulated.
        sizes = [batch_size] * (part // batch_size) + [part % batch_size] * (part % batch_size > 0)
        take_steps(subject, optimizer, part, sizes)
        return batch_size

    found = train()
    print(json.dumps({"found": found, "wasted_seconds": useful - began, "failures": device.refusals}))


if __name__ == "__main__":
    main()
