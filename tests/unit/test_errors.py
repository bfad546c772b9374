from __future__ import annotations

import pickle

from tasks.errors import ParameterError


def test_wrong_parameters_are_the_same_after_a_way_between_processes() -> None:
    error = ParameterError(["seed: 'x' must be a number", "batch.size: 0 must be positive"])
    again = pickle.loads(pickle.dumps(error))
    assert again.faults == error.faults
    assert str(again) == str(error) == "seed: 'x' must be a number\nbatch.size: 0 must be positive"
