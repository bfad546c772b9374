"""The tabular example is what it says that it is, and its model can be used as one's own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from examples.tabular.make_data import GROUPS, tumours
from examples.tabular.model import WideAndDeep
from tasks.config import Model, Params
from tasks.training.check_model import try_model
from tests.support.schemas import images, mixed


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return tumours()


def test_what_is_not_blanked_is_as_in_the_original(rows: pd.DataFrame) -> None:
    source = load_breast_cancer(as_frame=True)
    original = source.data.loc[rows.index]
    kept = rows[source.feature_names]
    assert ((kept == original) | kept.isna()).all(axis=None)
    assert kept.isna().mean().mean() == pytest.approx(0.04, abs=0.005)
    assert (rows["diagnosis"] == np.where(source.target.loc[rows.index] == 1, "benign", "malignant")).all()


def test_the_text_says_no_more_than_the_area_does(rows: pd.DataFrame) -> None:
    area = load_breast_cancer(as_frame=True).data["mean area"]
    assert rows["size_group"].isna().mean() == pytest.approx(0.1, abs=0.03)
    smallest = 0.0
    for group, largest in GROUPS.items():
        own = area[rows.index[rows["size_group"] == group]]
        assert len(own) > 5
        assert own.between(smallest, largest, inclusive="right").all()
        smallest = largest


def test_the_own_model_takes_tables_and_images_as_a_factory_by_name() -> None:
    for schema in (mixed(), images()):
        try_model(Params(model=Model(factory="examples.tabular.model:WideAndDeep", arguments={"hidden": [8]})), schema)


def test_the_own_model_learns_what_its_linear_part_alone_can_not() -> None:
    torch.manual_seed(0)
    features = torch.randn(400, 2)
    labels = (features[:, 0] * features[:, 1] > 0).long()
    model = WideAndDeep((2,), 2, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(features), labels))
        optimizer.step()
    assert (model(features).argmax(dim=1) == labels).float().mean() > 0.9
    assert (model.wide(features).argmax(dim=1) == labels).float().mean() < 0.8
