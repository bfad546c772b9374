"""F6: the gradient of a batch in uneven passes against that of the whole batch, in float64; peers in the detail."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.figures import Figure, Measure, begin, report, say
from benchmarks.fitting.programs import PEERS, run_program
from benchmarks.peers import PeerError, peer_python
from benchmarks.runs import RunError

ERROR = Measure("F6", "gradient error of an uneven split in float64, worst of the models", "relative", "<= 1e-14")
# Samples, and samples a pass: the last pass is far smaller than the others.
SPLITS = {"perceptron": (512, 97), "convolutional": (512, 97), "transformer": (64, 13), "lstm": (64, 13)}
THEIRS = {"lightning": "lightning_gradients", "accelerate": "accelerate_gradients"}

# The error of a way to accumulate, by the model, the samples and the samples a pass.
Way = Callable[[str, int, int], float]


def figure(ways: Mapping[str, Way], no_peers: str | None = None) -> Figure:
    """Our worst error; those of peers, or why they have none, stand in the detail."""
    errors: dict[str, dict[str, float | str]] = {}
    for name, way in ways.items():
        errors[name] = {}
        for model, (samples, micro_batch) in SPLITS.items():
            try:
                errors[name][model] = way(model, samples, micro_batch)
            except RunError as error:
                errors[name][model] = str(error)
        say(f"{name}: {errors[name]}")
    ours = [error for error in errors["ours"].values() if isinstance(error, float)]
    detail = {"errors": errors, "splits": SPLITS} | ({"no_peers": no_peers} if no_peers else {})
    if len(ours) < len(SPLITS):
        failed = next(error for error in errors["ours"].values() if isinstance(error, str))
        return ERROR.missing(failed, **detail)
    return ERROR.figure(max(ours), **detail)


def main() -> None:
    begin(ERROR)
    ways: dict[str, Way] = {"ours": lambda *split: run_program("our_gradients", _settings(*split))}
    no_peers = None
    try:
        python = peer_python(PEERS)
    except PeerError as error:
        no_peers = str(error)
    else:
        for name, module in THEIRS.items():
            ways[name] = lambda *split, module=module: run_program(module, _settings(*split), python=python)
    report(figure(ways, no_peers))


def _settings(model: str, samples: int, micro_batch: int) -> dict[str, str | int]:
    return {"model": model, "samples": samples, "micro_batch": micro_batch}


if __name__ == "__main__":
    main()
