"""Runs with compiled towers, beside the same runs without."""

import pytest
import torch
import training_runs
from torch import nn
from torch._dynamo.utils import counters

from complearn.data.word_tokenizer import WordTokenizer
from complearn.models.dual import build_model
from complearn.models.towers.base import Tower, compile_towers
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot

LENGTHS = {"warmup": 3, "distil": 2, "interact": 2, "generations": 1, "final": 2, "ramp": 1, "temperature": 0.1}


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["clip", "il_clip"])
def test_compiled_towers_train_alike(name, tmp_path):
    method = (
        {"name": "il_clip", "args": LENGTHS} if name == "il_clip" else {"name": "clip", "args": {"steps": 6, "ramp": 1}}
    )
    model = training_runs.MODEL if name == "il_clip" else {key: training_runs.MODEL[key] for key in ("vision", "text")}
    runs = [
        prepare(tmp_path / str(on) / f"{name}-s0", training_runs.config(method, model, compile=on))
        for on in (False, True)
    ]
    graphs = []
    for run in runs:
        counters.clear()
        launch(run.path)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == 0 < graphs[1], "one run is compiled, the other is not"
    losses = [[record["loss"] for record in training_runs.records(run) if record["kind"] == "step"] for run in runs]
    assert len(losses[0]) > 5 and losses[1] == pytest.approx(losses[0], rel=1e-3)
    weights = [Snapshot(run).model("cpu").state_dict() for run in runs]
    assert weights[0].keys() == weights[1].keys(), "compiled in place: no name of a weight changes"
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, rtol=0.02, atol=1e-3)


def test_a_model_whose_towers_are_frozen_has_nothing_to_compile():
    model = build_model(training_runs.MODEL, WordTokenizer.fit(["a"]), seed=0)
    for tower in model.modules():
        if isinstance(tower, Tower):
            tower.frozen = True
    with pytest.raises(ValueError, match="nothing to compile"):
        compile_towers(model)
    with pytest.raises(ValueError, match="nothing to compile"):
        compile_towers(nn.Linear(2, 2))
