"""Runs that older versions of the code made: they open, go on and end, and say that two versions made them.

`old_runs` holds an ended run of six steps and one that was killed at the fifth, of three commits (`YYYY-MM-DD-COMMIT`).
"""

import tarfile
import warnings
from pathlib import Path

import pytest
import torch
from faults import note

from complearn.core.results import code_version
from complearn.core.runs import Run, find
from complearn.training.runs.launch import launch
from complearn.training.runs.snapshots import Snapshot

OLD = sorted((Path(__file__).parent / "old_runs").glob("*.tar.xz"))


@pytest.fixture(params=OLD, ids=[path.name.split(".")[0] for path in OLD])
def folder(request, tmp_path):
    with tarfile.open(request.param) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path


def test_there_are_three_versions():
    assert len(OLD) >= 3


def test_an_ended_run_opens_as_it_was(folder):
    run = Run.open(folder / "ended")
    assert run.done["step"] == 6 and run.code == run.provenance["code"] != code_version()
    assert run.metrics().query("kind == 'step'").step.tolist() == [1, 2, 3, 4, 5, 6]
    model = Snapshot(run).model()
    batch = model.collate(Snapshot(run).pairs()[:4])
    assert torch.isfinite(model.encode_images(batch).values).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch(run.path, progress=False).done == run.done, "nothing is left to do, and nothing is said"
    note("T8", f"ended run of {run.code}", opened=1)


def test_a_half_run_goes_on_ends_and_says_that_two_versions_made_it(folder):
    with pytest.warns(UserWarning, match="half goes on from step 4 with other versions than before"):
        run = launch(folder / "half", progress=False)
    begun = run.provenance["code"]
    assert run.done["step"] == 6 and run.code == f"{begun}, and {code_version()} from step 4"
    assert f"{begun}, and {code_version()} from step 4" in (folder / "half" / "model_card.md").read_text()
    assert [each.path.name for each in find(folder)] == ["ended", "half"]
    whole, resumed = Snapshot(folder / "ended").weights(), Snapshot(run).weights()
    assert whole.keys() == resumed.keys()
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name])
    note("T8", f"half run of {begun}", ended_equal=1)
