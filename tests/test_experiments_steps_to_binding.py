"""The study of steps to binding: its cells, exchanges met, and what a report says of them."""

import pandas as pd
import pytest

from complearn.core.results import Result, row, rows_table

NAME = "experiments/steps_to_binding"


def test_cells_are_trained_and_watched(smoke):
    run = smoke(NAME)
    assert run.good, run.text
    result = Result.read(run.folder)
    looks = result.curves["monitors"]
    assert set(looks.method) == {"clip, 16 pairs", "exchange batches, 16 pairs"} and set(looks.step) == {2, 4, 6}
    table = rows_table(result.rows)
    met = table[table.split == "exchanges"].set_index("method").value
    # every pair of a batch of exchanges has one beside it, wherever its caption has any
    assert met["exchange batches, 16 pairs"] > 2 * met["clip, 16 pairs"] > 0
    assert "learned hardly anything yet" in (run.folder / "report.ipynb").read_text()


def test_every_method_trains_at_two_batch_sizes(experiment, tmp_path):
    methods = ["clip", "negclip", "triplet_clip", "codebook_clip", "il_clip", "composer"]
    methods.append("exchange batches with negclip and codebook")
    run = experiment(NAME, tmp_path, methods=methods, batches=[16, 32], seeds=[3])
    assert run.good, run.text
    table = rows_table(Result.read(tmp_path).rows)
    assert set(table.method) == {f"{name}, {batch} pairs" for name in methods for batch in (16, 32)}
    met = table[table.split == "exchanges"].set_index("method").value
    # most pairs have a wrong caption of the same words; of the others training may not read it
    assert 0.5 < met["negclip, 16 pairs"] - met["clip, 16 pairs"] <= 1


def write_study(folder, when, rate):
    "A results file of cells that bind at given steps, and meet given numbers of exchanges in a batch."
    rows, looks, runs = [], [], {}
    for method, steps in when.items():
        for seed, step in enumerate(steps):
            place = {"method": method, "seed": seed, "phase": "contrastive", "data": "generated/monitor"}
            for at in range(25, 1001, 25):
                high = 0.95 if at >= step else 0.5
                for split in ("swap_obj", "swap_att"):
                    value = {"metric": "accuracy", "value": high, "low": high - 0.04, "high": high + 0.04}
                    looks.append(place | {"step": at, "split": split, "n": 200, "ties": 0.0, "groups": None} | value)
            rows.append(row(method, seed, "contrastive", 1000, "training", "exchanges", "met", rate[method], n=1000))
            args = {"preset": "small", "shapes": 4, "colours": 4, "kinds": ["relation"], "n_train": 64, "seed": seed}
            configuration = {"train": {"batch_size": 128}, "data": {"name": "generated", "args": args}}
            runs[f"{method}-s{seed}"] = {"method": method, "seed": seed, "configuration": configuration}
    setting = {"preset": "full", "reference": next(iter(when)), "rows": {name: {} for name in when}, "every": 25}
    setting |= {"runs": runs, "seeds": list(range(8)), "steps": 1000}
    Result(setting, rows, curves={"monitors": pd.DataFrame(looks)}).write(folder / "study.results.json")
    return str(folder / "study.results.json")


LATE = [400, 425, 450, 450, 475, 500, 500, 525]


@pytest.mark.parametrize(
    "rate, said",
    [
        (2.0, "no cell is shown to differ from CLIP (128 pairs): not refuted"),  # half the steps at twice the rate
        (1.0, "1 of 1 cells differ from CLIP (128 pairs) (NegCLIP (128 pairs)): refuted"),
    ],
)
def test_one_curve_is_refuted_where_exchanges_do_not_explain_it(rate, said, experiment, tmp_path):
    cells = {"clip, 128 pairs": LATE, "negclip, 128 pairs": [step // 50 * 25 for step in LATE]}
    file = write_study(tmp_path, cells, {"clip, 128 pairs": 1.0, "negclip, 128 pairs": rate})
    run = experiment(NAME, tmp_path, report_from=file)
    assert run.good, run.text
    text = (tmp_path / "report.ipynb").read_text()
    assert f"One curve for all on the axis of exchanges met: {said}." in text
    assert "by step 450 with CLIP (128 pairs); of 1 other cells these differ: NegCLIP (128 pairs) by step 225" in text
    assert "2.00 times as fast" in text


def test_a_method_that_stays_at_chance_is_said_to(experiment, tmp_path):
    cells = {"clip, 128 pairs": LATE, "composer, 128 pairs": [5000] * 8}
    run = experiment(NAME, tmp_path, report_from=write_study(tmp_path, cells, dict.fromkeys(cells, 1.0)))
    assert run.good, run.text
    text = (tmp_path / "report.ipynb").read_text()
    assert "COMPOSER (128 pairs) in fewer than half of the worlds (p = " in text and "by step never" not in text
    assert "At chance to the end: COMPOSER (128 pairs). That says nothing about exchanges" in text


def test_nothing_is_decided_before_all_worlds_stand(experiment, tmp_path):
    cells = {"clip, 128 pairs": LATE[:5], "negclip, 128 pairs": [25 * (3 + k) for k in range(5)]}
    run = experiment(NAME, tmp_path, report_from=write_study(tmp_path, cells, dict.fromkeys(cells, 1.0)))
    assert run.good, run.text
    text = (tmp_path / "report.ipynb").read_text()
    assert "5 of 8 worlds: nothing is decided before all stand." in text and "these differ: NegCLIP" not in text
    assert "no differences yet, see above" in text and "p (Holm)</th>" not in text


@pytest.mark.parametrize(
    "steps, said", [([5000] * 8, "not testable here, train longer"), ([25] * 8, "at the ceiling, look more often")]
)
def test_the_gate_closes_where_nobody_binds_or_everybody_at_once(steps, said, experiment, tmp_path):
    cells = {"clip, 128 pairs": steps, "negclip, 128 pairs": steps}
    file = write_study(tmp_path, cells, dict.fromkeys(cells, 1.0))
    run = experiment(NAME, tmp_path, report_from=file)
    assert run.good, run.text
    text = (tmp_path / "report.ipynb").read_text()
    assert said in text and "One curve for all on the axis of exchanges met: no" not in text
