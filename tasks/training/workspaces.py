"""What kernels take for themselves beside the tensors of a step, measured in real steps."""

from __future__ import annotations

from tasks.training.recording import Recording


class Unseen:
    """Bytes that were allocated in real steps and are in no tensor, by the samples of a pass."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.measured: list[tuple[int, int]] = []

    def note(self, recording: Recording, allocated: int) -> None:
        """`allocated` is the most that was allocated at one time while `recording` was made, beyond the parameters."""
        live = most = 0
        for event in (event for segment in recording.segments.values() for event in segment):
            number = event if event >= 0 else ~event
            if recording.kinds[number] != "parameters":
                live += recording.sizes[number] if event >= 0 else -recording.sizes[number]
                most = max(most, live)
        self.measured.append((recording.samples, max(0, allocated - most)))

    def bytes(self, samples: int, peak: int) -> int:
        """What is to be added to a peak of `peak` bytes: on the line through the two largest sizes, never less than
        was measured."""
        (small, few), (large, many) = self.measured[-2:]
        grown = few + (many - few) * (samples - small) // (large - small)
        return max(grown, many if samples >= large else 0, 0) + round(peak * (self.factor - 1.0))
