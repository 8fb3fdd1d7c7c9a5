"Averages of the weights of two models: exact at the ends, refused for two architectures, judged and exported."

import json

import albums
import pandas as pd
import pytest
import torch
from browser import open_chromium
from safetensors.torch import load_file

import complearn
from complearn import command
from complearn.analysis.runs.interpolation import interpolation_curves, interpolation_table
from complearn.analysis.runs.result_page import _result_page
from complearn.core.config import RequestError
from complearn.core.results import Result, row
from complearn.data.word_tokenizer import WordTokenizer
from complearn.evaluation.bench.judging import read_alphas
from complearn.models.dual import build_model
from complearn.models.interpolation import interpolate
from complearn.models.scoring import encode_all

TINY = {"tower": "tiny", "width": 32, "depth": 1, "heads": 2}
OWN = {"vision": TINY | {"size": 32, "patch": 16}, "text": TINY}
CODES = OWN | {"codebook": {"codes": 8}}


def words(*more):
    return WordTokenizer.fit([*(albums.caption(number) for number in range(45)), *more], context=20)


def same(first, second):
    first, second = first.state_dict(), second.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    return albums.write_photos(tmp_path_factory.mktemp("album") / "photos")


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr("complearn.training.runs.study.run_all", albums.train_here)


@pytest.mark.parametrize("config", [OWN, CODES], ids=["clip", "codebook"])
def test_the_ends_are_the_models_bit_for_bit_and_the_middle_is_the_mean(config):
    start, end = (build_model(config, words(), seed) for seed in (0, 1))
    with torch.no_grad():
        end.logit_scale.fill_(4.0)
    kept = [{name: tensor.clone() for name, tensor in model.state_dict().items()} for model in (start, end)]
    assert same(interpolate(start, end, 0), start) and same(interpolate(start, end, 1), end)
    half = interpolate(start, end, 0.5)
    for name, tensor in half.state_dict().items():
        if tensor.is_floating_point():
            assert torch.equal(tensor, (kept[0][name] + kept[1][name]) / 2), name
        else:
            assert torch.equal(tensor, kept[0][name]), name
    quarter = interpolate(start, end, 0.25).state_dict()
    expected = {name: 0.75 * kept[0][name].double() + 0.25 * kept[1][name].double() for name in kept[0]}
    for name in (name for name in expected if kept[0][name].is_floating_point()):
        torch.testing.assert_close(quarter[name].double(), expected[name], rtol=1e-6, atol=1e-7)
    assert not half.training
    for model, before in zip((start, end), kept):  # neither is changed
        assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)


def test_the_temperature_of_the_middle_is_the_geometric_mean():
    start, end = (build_model(OWN | {"logit_scale": scale}, words()) for scale in (4.0, 25.0))
    assert interpolate(start, end, 0.5).logit_scale.exp().item() == pytest.approx(10)


def test_a_pretrained_clip_is_averaged_with_what_was_trained_from_it(tmp_path):
    "Whatever opened the two: open_clip's own class, or a dual encoder."
    pytest.importorskip("open_clip")
    folder = albums.write_open_clip(tmp_path / "clip")
    name = f"open_clip:{folder}"
    opened = complearn.load(folder)
    trained = build_model({"vision": name, "text": name})
    source = build_model({"vision": name, "text": name})
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter += 0.125
    half = interpolate(source, trained, 0.5)
    assert same(interpolate(opened, trained, 0.5), half)
    assert same(interpolate(opened, trained, 0), source) and same(interpolate(opened, trained, 1), trained)
    back = interpolate(trained, opened, 0.5)
    assert same(back, half)
    captions = [albums.caption(1), albums.caption(2)]
    both = interpolate(opened, complearn.load(complearn.export(trained, tmp_path / "as_open_clip")), 0.5)
    assert type(both) is type(opened)
    torch.testing.assert_close(encode_all(both, texts=captions).values, encode_all(half, texts=captions).values)


OTHERS = {
    "towers.text.heads: 2 in the first, 4 in the second": OWN | {"text": TINY | {"heads": 4}},
    "towers.vision.width: 32 in the first, 16 in the second": OWN | {"vision": OWN["vision"] | {"width": 16}},
    "model.codebook": CODES,
    "model.reading": OWN | {"reading": {"blind_to": "order"}},
    "transform.fit": OWN | {"fit": "pad"},
    "no tensor language.head.weight of the same shape": OWN | {"width": 16},
}


@pytest.mark.parametrize("difference", list(OTHERS))
def test_models_of_two_architectures_are_refused_by_what_differs(difference):
    with pytest.raises(RequestError, match=f"the weights of before and after cannot be averaged: .*{difference}"):
        interpolate(build_model(OWN, words()), build_model(OTHERS[difference], words()), 0.5, ("before", "after"))


def test_other_words_other_marks_and_shares_beyond_the_ends_are_refused():
    start = build_model(CODES, words())
    with pytest.raises(RequestError, match="they read captions with different tokenizers"):
        interpolate(start, build_model(CODES, words("one more word")))
    marked = [build_model(OWN, words()) for _ in range(2)]
    for number, model in enumerate(marked):
        model.register_buffer("kept", torch.tensor([True, number == 0]))
    with pytest.raises(RequestError, match="kept holds whole numbers or marks, and they differ"):
        interpolate(*marked)
    assert torch.equal(interpolate(marked[0], marked[0]).kept, marked[0].kept)
    for alpha in (-0.1, 1.5):
        with pytest.raises(RequestError, match="a number from 0 to 1, and not"):
            interpolate(start, start, alpha)
    spectral = build_model(OWN | {"spectral": True}, words())
    with pytest.raises(RequestError, match="is normalised by its spectrum"):
        interpolate(spectral, spectral)


def test_alphas_are_read_from_text_and_numbers():
    assert read_alphas(None) == [] and read_alphas("0, 1,0.5") == read_alphas([1, 0.5, 0]) == [0, 0.5, 1]
    assert read_alphas("[0.5]") == read_alphas(0.5) == [0.5]
    for wrong in ("half", "0.5;1", [None]):
        with pytest.raises(RequestError, match="alphas are numbers from 0 to 1"):
            read_alphas(wrong)
    with pytest.raises(RequestError, match="and not 2"):
        read_alphas("2")


@pytest.mark.slow
def test_training_with_an_average_is_judged_with_start_and_end(album, tmp_path, here, capsys):
    pytest.importorskip("open_clip")
    folder = albums.write_open_clip(tmp_path / "clip")
    words = ["train", "clip", str(album), "--start", str(folder), "--steps", "2", "--lr", "0.01", "--average", "0.5"]
    assert command.main([*words, "--device", "cpu", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert f"the average of the weights (alpha 0.5) is saved in {tmp_path / 'out' / 'averaged'}" in out
    header = next(line for line in out.splitlines() if "chance" in line)
    assert header.split()[:5] == ["start", "clip", "average", "0.5", "chance"]
    run = tmp_path / "out" / "runs" / "clip-s0"
    half = interpolate(complearn.load(folder), complearn.load(run), 0.5)
    assert same(complearn.load(tmp_path / "out" / "averaged"), half)
    assert same(complearn.load(complearn.export(run, tmp_path / "half", form="complearn", start=folder)), half)
    written = load_file(complearn.export(half, tmp_path / "mine") / "open_clip_model.safetensors")
    ends = [load_file(folder / "open_clip_model.safetensors")]
    ends.append(load_file(complearn.export(run, tmp_path / "end") / "open_clip_model.safetensors"))
    for name, tensor in written.items():
        assert torch.equal(tensor, (ends[0][name] + ends[1][name]) / 2)
    alphas = ["judge", str(folder), str(run), "--alphas", "0,0.25,0.5,1", "--device", "cpu"]
    assert command.main([*alphas, "--out", str(tmp_path / "judged")]) == 0
    out = capsys.readouterr().out
    assert "alpha 0.25" in out and f"the report:  {tmp_path / 'judged' / 'results.report.html'}" in out
    result = Result.read(tmp_path / "judged")
    between = {f"{tmp_path.name}/clip": 0.0, "alpha 0.25": 0.25, "alpha 0.5": 0.5, "clip": 1.0}
    assert result.setting["interpolation"] == between and interpolation_table(result).alpha.nunique() == 4
    own = complearn.judge({"a": half, "b": complearn.load(run)}, album, overlap="keep", device="cpu").table
    between = complearn.judge([folder, run], album, alphas=[0.5], overlap="keep", device="cpu").table
    expected = own[own.method == "a"].value.tolist()
    assert between[between.method == "alpha 0.5"].value.tolist() == expected and len(expected) > 5


def test_an_average_without_a_start_or_of_a_changed_model_is_refused_before_training(album, tmp_path, capsys):
    pytest.importorskip("open_clip")
    folder = albums.write_open_clip(tmp_path / "clip")
    asked = ["--device", "cpu", "--out", str(tmp_path / "out"), "--average"]
    assert command.main(["train", "clip", str(album), *asked, "0.5"]) == 2
    assert "there is no start; name one" in capsys.readouterr().err
    assert command.main(["train", "clip", str(album), "--start", str(folder), *asked, "5"]) == 2
    assert "it is a number from 0 to 1, and not 5" in capsys.readouterr().err
    assert command.main(["train", "codebook_clip", str(album), "--start", str(folder), *asked, "0.5"]) == 2
    assert "codebook_clip changes the model that it starts from (codebook)" in capsys.readouterr().err
    assert not (tmp_path / "out" / "runs").exists()
    assert command.main(["judge", str(folder), "--alphas", "0.5", "--device", "cpu", "--pairs", str(album)]) == 2
    assert "alphas are shares of the second of two models, and there are 1" in capsys.readouterr().err


def test_the_curves_of_an_average_are_drawn(tmp_path):

    shares = {"before": 0.0, "alpha 0.5": 0.5, "after": 1.0}
    rows = []
    for k, name in enumerate(shares):
        rows.append(row(name, None, None, None, "held out/exchanges", "all", "accuracy", 0.5 + k / 10, 0.4, 0.6))
        for metric in ("r@1", "r@5"):
            rows.append(row(name, None, None, None, "held out/retrieval", "image_to_text", metric, 0.2 + k / 10))
        for split in ("swap", "add", "mean"):
            rows.append(row(name, None, None, None, "sugarcrepe", split, "accuracy", 0.6))
    rows.append(row("chance", None, None, None, "held out/exchanges", "all", "accuracy", 0.5))
    result = Result({"interpolation": shares}, rows)
    table = interpolation_table(result)
    assert set(zip(table.data, table.split, table.metric)) == {
        ("held out/exchanges", "all", "accuracy"),
        ("held out/retrieval", "image_to_text", "r@1"),
        ("sugarcrepe", "mean", "accuracy"),
    }
    figure = interpolation_curves(result)
    drawn = {trace.name: (list(trace.x), [round(y) for y in trace.y]) for trace in figure.data}
    assert drawn["held out/exchanges, all, accuracy"] == ([0, 0.5, 1], [50, 60, 70])
    assert "From before (0) to after (1)" in json.dumps(figure.to_plotly_json()["layout"]["title"])
    assert "Between the weights of two models" in _result_page(result, "Mine")
    with pytest.raises(ValueError, match="this result has no averages of weights"):
        interpolation_table(Result({}, rows))


def test_the_report_page_has_plain_words_and_intervals_and_folds_its_setting():
    rows = [
        row("clip", 0, "contrastive", 4, "held out/exchanges", "swap_obj", "accuracy", 0.25, low=0.0, high=0.75, n=4),
        row("chance", None, None, None, "held out/exchanges", "swap_obj", "accuracy", 0.5),
        row("blind_length", None, None, None, "held out/exchanges", "swap_obj", "accuracy", 0.5),
    ]
    page = _result_page(Result({"questions": {"held out/exchanges": 4}, "device": {"cpu": "<b>"}}, rows), "Mine")
    for text in (
        "25.0 [0, 75]",
        "exchange objects",
        "blind length",
        "scorers that see no image",
        "prefers-color-scheme: dark",
    ):
        assert text in page, text
    assert "swap_obj" not in page and "{&#x27;" not in page and "<b>" not in page
    assert "<li>held out/exchanges: 4</li>" in page


@pytest.mark.browser
def test_the_report_page_is_as_wide_as_a_phone(tmp_path):
    steps = pd.DataFrame({"method": "clip", "seed": 0, "phase": "contrastive", "step": range(20), "loss": range(20)})
    rows = [row("clip", 0, None, None, "held out/exchanges", "swap_obj", "accuracy", 0.25)]
    path = tmp_path / "page.html"
    path.write_text(_result_page(Result({}, rows, curves={"steps": steps}), "Mine"), encoding="utf-8")
    with open_chromium() as browser:
        page = browser.new_page(viewport={"width": 420, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector(".main-svg", state="attached")
        assert page.evaluate("document.documentElement.scrollWidth") == 420
