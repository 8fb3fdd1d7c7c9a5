"Curves and figures: from real run folders, against hand-made truth, and drawn by a browser where there is one."

import io
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import stats

from complearn.analysis.codes.figures import (
    code_grid,
    code_label,
    image_codes,
    log_ticks,
    overlay,
    picture_uri,
    support_figure,
    usage_figure,
)
from complearn.analysis.codes.tables import CodeTable
from complearn.analysis.pictures.galleries import arrays_table, table_arrays
from complearn.analysis.runs.curves import (
    alignment,
    alignment_rows,
    alignment_table,
    bands,
    comparison_table,
    evaluations,
    phase_spans,
    support_warnings,
)
from complearn.analysis.runs.divergence import gap_figure, recall_figure
from complearn.analysis.runs.figures import (
    _running_mean,
    accuracy_curves,
    alignment_figure,
    comparison_figure,
    difference_figure,
    loss_curve,
    support_and_loss,
    with_coin,
)
from complearn.core.figures import PALETTE, save_figure
from complearn.core.results import Result, row, rows_table
from complearn.core.runs import Run

PHASES = [("warmup", 40), ("distil-01", 10), ("interact-01", 30), ("distil-02", 10), ("interact-02", 50)]


@pytest.fixture
def log(tmp_path):
    "The log of a run as the trainer writes it: phase events, steps, evaluations, a warning, and a torn last line."
    run = Run.create(tmp_path / "run", {"method": "made up"})
    step = 0
    generation = 0
    for index, (name, steps) in enumerate(PHASES):
        generation += name.startswith("distil")
        where = {"phase": name, "phase_index": index}
        run.log({"kind": "phase", "event": "start", "step": step, **where})
        for done in range(steps):
            step += 1
            loss = 4.0 / (1 + generation) if done < steps // 2 else 1.0 - 0.3 * generation
            run.log(
                {
                    "kind": "step",
                    "step": step,
                    "loss": loss + 1,
                    "contrastive_loss": loss,
                    "support_image": 30.0,
                    "support_text": 9.0,
                    **where,
                }
            )
        rows = [
            row("il_clip", 0, None, None, "generated", split, "accuracy", 0.5 + 0.1 * index, 0.4, 0.9, 100, 0.0)
            for split in ("swap_att", "mean")
        ]
        run.log({"kind": "evaluate", "name": "world", "rows": rows, "step": step, **where})
        run.log({"kind": "phase", "event": "end", "step": step, **where})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "step", "step": 141, "lo')
    return Run.open(run.path).metrics()


def test_a_method_with_losses_of_its_own_is_drawn_by_their_sum(log):
    other = log.drop(columns="contrastive_loss")
    figure = loss_curve({"il_clip": log, "mine": other})
    assert {trace.name for trace in figure.data} >= {"il_clip", "mine"}
    assert "own losses: mine" in figure.layout.title.text
    assert np.allclose(alignment(other).loss, alignment(log).loss + 1)


def test_phases_and_generations_of_a_run(log):
    spans = phase_spans(log)
    assert spans.phase.tolist() == [name for name, _ in PHASES] and spans["last"].tolist() == [40, 50, 80, 90, 140]
    assert spans.kind.tolist() == ["warmup", "distil", "interact", "distil", "interact"]
    assert spans.generation.tolist() == [0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="the log has no phases yet"):
        phase_spans(pd.DataFrame({"step": [], "phase": []}))


@pytest.mark.parametrize(
    "name, kind", [("distil-12", "distil"), ("03-distil_2", "distil"), ("interact 1", "interact"), ("final", "final")]
)
def test_kinds_of_phases(name, kind):
    assert phase_spans(pd.DataFrame({"step": [1], "phase": [name]})).kind.tolist() == [kind]


def test_alignment_is_measured_at_each_generations_end(log):
    told = alignment(log, last=10)
    assert told.generation.tolist() == [0, 1, 2] and told.step.tolist() == [40, 80, 140] and told.n.tolist() == [10] * 3
    assert np.allclose(told.loss, [1.0, 0.7, 0.4]) and np.allclose(told.deviation, 0)
    assert alignment(log, "loss", last=5).loss.iloc[0] == pytest.approx(2.0)
    plain = log.assign(phase="contrastive")  # no generations: read where those of the other run end
    rows = rows_table(alignment_rows(alignment_table({("il_clip", 0): log, ("clip", 0): plain}, last=10)))
    assert rows.step.tolist() == [40, 80, 140] * 2 and np.allclose(rows.value, [1.0, 0.7, 0.4] * 2)
    restarts = log.assign(
        phase=log.phase.replace({name: name.replace("distil", "interact") for name in log.phase.dropna().unique()})
    )
    # several phases and no generation
    assert np.allclose(alignment(restarts, last=10, ends=[40, 80, 140]).loss, [1.0, 0.7, 0.4])
    figure = alignment_figure(alignment_table({("il_clip", 0): log, ("clip", 0): plain}))
    assert [list(trace.x) for trace in figure.data] == [[40, 80, 140]] * 2


def test_arrays_come_back_from_a_table_as_they_were(tmp_path):
    arrays = {"codes": np.arange(6).reshape(2, 3), "caption": np.array("a red circle"), "none": np.zeros((0, 4), "f4")}
    Result({}, [], tables={"arrays": arrays_table(arrays)}).write(tmp_path)
    again = table_arrays(Result.read(tmp_path).tables["arrays"])
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        assert (
            again[name].dtype == array.dtype and np.array_equal(again[name], array) and again[name].shape == array.shape
        )
    with pytest.raises(ValueError, match="array 'words' holds Python objects; make it one of numbers or texts"):
        arrays_table({"words": np.array([["red"], []], dtype=object)})


def test_evaluations_are_laid_flat_with_their_place(log):
    flat = evaluations(log, seed=3)
    assert len(flat) == 10 and flat.step.tolist() == [40, 40, 50, 50, 80, 80, 90, 90, 140, 140]
    assert set(flat.seed) == {3} and flat.phase.iloc[-1] == "interact-02" and flat.value.iloc[-1] == pytest.approx(0.9)
    assert evaluations(log[log.kind == "step"].drop(columns="rows")).empty


def test_support_warnings():
    step = np.arange(1, 101)
    high = np.full(100, 4.0)
    falling = np.linspace(4, 0.1, 100)

    def make(loss, support):
        return pd.DataFrame({"step": step, "phase": "train", "contrastive_loss": loss, "support_text": support})

    assert support_warnings(make(falling, np.linspace(30, 1.0, 100))) == []  # thin only once learned
    assert support_warnings(make(high, np.full(100, 30.0))) == []  # dense
    said = support_warnings(make(high, np.where(step < 20, 30.0, 1.2)))
    assert len(said) == 1
    assert "support_text collapsed to 1.2 codes at step 20" in said[0]
    assert "scale before sparsemax" in said[0]
    assert support_warnings(make(high, np.where(step < 20, 30.0, 1.2)), floor=1) == []


@pytest.mark.parametrize("n", [2, 3, 5])
def test_bands_are_students_intervals_over_seeds(n):
    values = np.random.default_rng(n).normal(0.7, 0.1, n)
    told = bands(
        pd.DataFrame({"method": "clip", "step": 10, "seed": range(n), "value": values, "low": 0.0, "high": 1.0})
    ).iloc[0]
    low, high = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
    assert (told["mean"], told.low, told.high, told.n) == pytest.approx((values.mean(), low, high, n))


def test_one_seed_keeps_its_own_interval():
    told = bands(
        pd.DataFrame(
            {"method": "clip", "step": [1, 2], "seed": 0, "value": [0.5, 0.6], "low": [0.4, None], "high": [0.55, None]}
        )
    )
    assert told.low.tolist() == [0.4, 0.6] and told.high.tolist() == [0.55, 0.6] and told.n.tolist() == [1, 1]


def test_rows_without_a_seed_and_with_plain_python_values():
    rows = rows_table(
        [
            row("chance", None, None, None, "generated", "swap_att", "accuracy", 0.5),
            row("clip", 0, None, None, "generated", "swap_att", "accuracy", 0.7, 0.6, 0.8),
        ]
    )
    told = bands(rows.astype({"value": object}), ("method", "split"))
    assert told["mean"].tolist() == [0.5, 0.7] and told.low.tolist() == [0.5, 0.6] and told.n.tolist() == [1, 1]


def results(seeds=3):
    draw = np.random.default_rng(0)
    rows = []
    for method, level in {"clip": 0.6, "il_clip": 0.8, "chance": 0.5}.items():
        for seed in range(seeds):
            for split in ("mean", "swap_att", "replace_obj"):
                value = level + (0 if method == "chance" else draw.normal(0, 0.02))
                rows.append(
                    row(
                        method, seed, "end", 100, "generated", split, "accuracy", value, value - 0.05, value + 0.05, 100
                    )
                )
    return pd.DataFrame(rows)


def test_comparison_table_keeps_order_and_puts_the_mean_last():
    table = comparison_table(results())
    assert table.index.tolist() == ["swap_att", "replace_obj", "mean"]
    assert table.columns.tolist() == ["clip", "il_clip", "chance"]
    assert table.loc["mean", "chance"] == "50.0 [50.0, 50.0]"
    uneven = comparison_table(pd.concat([results(3), results(4)[lambda r: (r.method == "clip") & (r.seed == 3)]]))
    assert uneven.loc["mean", "clip"].endswith("n=4") and uneven.loc["mean", "il_clip"].endswith("n=3")


def test_running_mean_does_not_cross_phases_and_is_thinned():
    log = pd.DataFrame(
        {"step": range(10_000), "phase": ["a"] * 5_000 + ["b"] * 5_000, "loss": [0.0] * 5_000 + [1.0] * 5_000}
    )
    line = _running_mean(log, "loss", window=500)
    assert set(line.smooth) == {0.0, 1.0} and len(line) <= 2_001 and line.step.iloc[-1] == 9_999
    assert _running_mean(log.head(0), "loss").empty


# ---- figures


def book(seed=0, codes=12, items=25, k=4, grid=(4, 4)):
    draw = np.random.default_rng(seed)
    scores = draw.normal(size=(items, codes)).astype(np.float32)
    weights = np.maximum(scores - 1, 0)
    weights[:, -1] = 0
    weights /= np.maximum(weights.sum(1, keepdims=True), 1e-9)
    place = draw.integers(0, grid[0] * grid[1], (items, codes))
    top = np.argsort(-scores.T, axis=1)[:, :k]
    heavy = np.argsort(-weights, axis=1)[:, :6]
    at = np.arange(codes)[:, None]
    of = np.arange(items)[:, None]
    return CodeTable(top, scores[top, at], weights[top, at], place[top, at], (weights > 0).sum(0), weights.sum(0),
        (weights > 0).sum(1),
                     heavy, scores[of, heavy], weights[of, heavy], place[of, heavy], grid=grid)  # fmt: skip


def figures(log):
    table = book()
    draw = np.random.default_rng(0)
    pictures = draw.integers(0, 255, (12, 3, 16, 16, 3)).astype(np.uint8)
    heats = draw.normal(size=(12, 3, 4, 4))
    steps = pd.concat([results().assign(step=step)[lambda r: r.split == "swap_att"] for step in (50, 100)])
    lines = pd.DataFrame(
        [
            {"better": "il_clip", "than": "clip", "split": s, "mean": 0.1, "low": 0.05, "high": 0.15, "n": 3}
            for s in ("swap_att", "mean")
        ]
    )
    return {
        "code_grid": code_grid(table, [0, 5, 11], pictures[:3], heats[:3]),
        "image_codes": image_codes(table, int(table.support.argmax()), pictures[0, 0], caption="a red circle"),
        "usage": usage_figure({"clip": table, "il": book(1)}),
        "support": support_figure({"clip": table, "il": book(1)}),
        "loss": loss_curve({"il_clip": log, "clip": log.assign(phase="train")}, batch=64),
        "support_and_loss": support_and_loss(log, codes=256),
        "accuracy": accuracy_curves(steps, {"clip": [100, None, 50], "il_clip": [None] * 3}),
        "comparison": comparison_figure(results(), blind=("chance",)),
        "difference": difference_figure(lines),
        "differences": difference_figure(pd.concat([lines.assign(better=f"variant {k}") for k in range(4)])),
    }


def test_differences_of_other_measures_keep_their_unit():
    """A correlation is not told in points of accuracy, neither in one panel nor in several."""
    line = {"better": "a", "than": "b", "split": "photo_rho", "mean": 0.123, "low": 0.05, "high": 0.2, "n": 3}
    many = pd.DataFrame([line | {"better": f"variant {k}"} for k in range(4)])
    for lines in (pd.DataFrame([line]), many):
        figure = difference_figure(lines, scale=1, axis="difference in correlation")
        assert figure.data[0].x[0] == 0.123 and figure.layout.xaxis.title.text == "difference in correlation"
        assert "%{x:.3f}" in figure.data[0].hovertemplate
        figure = difference_figure(lines)
        assert figure.data[0].x[0] == pytest.approx(12.3) and "points" in figure.layout.xaxis.title.text
        assert "%{x:.1f}" in figure.data[0].hovertemplate


def test_lines_over_different_numbers_of_seeds_are_told_so():
    line = {"better": "composer", "split": "window_1", "divergence": 0.1, "mean": 0.1, "low": 0.05, "high": 0.15}
    gaps = pd.DataFrame([line | {"than": "vse", "n": 8}, line | {"than": "clip", "n": 3}])
    assert "means over 3 to 8 paired seeds" in gap_figure(gaps).layout.title.text
    assert "means over 8 paired seeds" in gap_figure(gaps[:1]).layout.title.text


def test_every_figure_says_what_it_shows(log):
    greys = {"#555555", "#7F7F7F", "white", "black"}
    allowed = {code.lower() for code in PALETTE}
    rgb = {tuple(int(code[i : i + 2], 16) for i in (1, 3, 5)) for code in PALETTE}
    for name, figure in figures(log).items():
        layout = figure.layout
        assert re.match(r"[A-Z]", layout.title.text) and layout.width and layout.height, name
        for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
            # an axis that repeats another's has no title of its own
            shown = not (axis.matches and axis.showticklabels is False)
            assert not shown or (
                axis.title.text or axis.ticktext or name == "accuracy" and axis.anchor == "x2" or name == "image_codes"
            ), (
                name,
                axis,
            )
        for trace in figure.data:
            colour = (trace.line.color if hasattr(trace, "line") else None) or (
                trace.marker.color if hasattr(trace, "marker") else None
            )
            if colour:
                numbers = tuple(int(x) for x in re.findall(r"\d+", colour)[:3]) if colour.startswith("rgb") else None
                assert numbers in rgb if numbers else (colour in greys or colour.lower() in allowed), (name, colour)


def test_spawns_and_distillations_are_marked(log):
    figure = loss_curve({"clip": log.assign(phase="train"), "il_clip": log})
    spans = [(shape.x0, shape.x1) for shape in figure.layout.shapes if shape.type == "rect"]
    assert spans == [(40, 50), (80, 90)]
    assert [shape.x0 for shape in figure.layout.shapes if shape.type == "line"] == [40, 80]
    assert [note.text for note in figure.layout.annotations] == ["gen 0", "gen 1", "gen 2"]
    plain = loss_curve({"clip": log.assign(phase="train")})
    assert not plain.layout.shapes and "spawn" not in plain.layout.title.text


def test_chance_is_the_log_of_the_batch(log):
    figure = loss_curve({"il_clip": log}, batch=128)
    lines = [shape for shape in figure.layout.shapes if shape.type == "line" and shape.y0 == shape.y1]
    assert lines[0].y0 == pytest.approx(np.log(128))


def test_a_collapsed_support_is_said_in_the_figure(log):
    assert "warning" not in support_and_loss(log).layout.title.text
    assert "support_image collapsed" in support_and_loss(log.assign(support_image=1.0)).layout.title.text
    with pytest.raises(ValueError, match="only runs with a codebook"):
        support_and_loss(log.drop(columns=["support_image", "support_text"]))


def test_dots_and_bars_are_the_intervals():
    rows = results()
    points = bands(rows, ("method", "split")).set_index(["method", "split"])
    figure = comparison_figure(rows, blind=("chance",))
    il = next(trace for trace in figure.data if trace.name == "il_clip")
    assert list(figure.layout.yaxis.ticktext) == ["swap_att", "replace_obj", "mean"]
    for split, x, up, down in zip(figure.layout.yaxis.ticktext, il.x, il.error_x.array, il.error_x.arrayminus):
        point = points.loc[("il_clip", split)]
        assert (x, x + up, x - down) == pytest.approx((100 * point["mean"], 100 * point.high, 100 * point.low))
    assert [trace.name for trace in figure.data] == ["clip", "il_clip", "chance (blind)"]


def test_seeds_that_never_bind_are_counted():
    rows = results()[lambda r: r.split == "mean"]
    figure = accuracy_curves(rows, {"clip": [100, None, 50], "il_clip": [None, None, None]})
    marks = [trace for trace in figure.data if trace.mode == "markers"]
    assert list(marks[0].x) == [100, 50]
    assert set(marks[0].y) == {"clip: 2 of 3"}
    assert list(marks[1].y) == ["il_clip: 0 of 3"]


def test_the_outlined_patch_is_the_firing_one():
    table = book()
    k = 3
    pictures = np.zeros((2, k, 16, 16, 3), np.uint8)
    heats = np.zeros((2, k, 4, 4))
    figure = code_grid(table, [2, 11], pictures, heats)
    boxes = [shape for shape in figure.layout.shapes if shape.line.color == "white"]
    assert len(figure.layout.images) == 2 * k and len(boxes) == 2 * k
    for box, (y, x) in zip(boxes, [(y, x) for y in range(2) for x in range(k)]):
        line = table.top_items([2, 11][y]).iloc[x]
        assert (box.x0 - (x - 0.47)) / (0.94 / 4) == pytest.approx(line.column)
        assert (box.y0 - (y - 0.47)) / (0.94 / 4) == pytest.approx(line.row)
    assert code_label(table, 11) == "<b>code 11</b> · dead" and "%" in code_label(table, 2)
    # a dead code never fires
    assert figure.layout.title.text.endswith("outlined: the patch with the highest score</sup>")


def test_the_title_of_an_image_says_whose_codes_it_shows():
    shown = [
        image_codes(book(), 0, np.zeros((16, 16, 3), np.uint8), **more)
        for more in ({}, {"title": "The codes of il_clip"})
    ]
    assert [figure.layout.title.text.partition("<br>")[0] for figure in shown] == [
        "The codes of image 0",
        "The codes of il_clip",
    ]


def test_overlay_dims_cold_patches_only():
    image = np.random.default_rng(0).integers(100, 255, (30, 30, 3)).astype(np.uint8)
    heat = np.zeros((4, 4))
    heat[0, 3] = 1
    shown = overlay(image, heat)
    assert np.array_equal(shown[:7, 23:], image[:7, 23:]) and (shown[8:] < image[8:]).mean() > 0.99
    assert np.array_equal(overlay(image, np.ones((1, 1))), image)


def test_pictures_are_blown_up_without_blur():
    import base64

    image = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    large = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture_uri(image).split(",")[1]))))
    assert large.shape == (160, 160, 3) and np.array_equal(large[::5, ::5], image)


@pytest.mark.parametrize("low, high, first", [(1, 90, "1"), (0.003, 2, "0.001"), (1e-6, 10, "1e-06")])
def test_log_ticks_enclose_the_values(low, high, first):
    ticks = log_ticks(low, high)
    assert ticks["tickvals"][0] <= low and ticks["tickvals"][-1] >= high and ticks["ticktext"][0] == first


@pytest.mark.browser
def test_every_figure_is_drawn(log, tmp_path):
    for name, figure in figures(log).items():
        written = save_figure(figure, tmp_path, name)
        assert [path.suffix for path in written] == [".html", ".png"], name
        pixels = np.asarray(Image.open(written[1]).convert("L"))
        assert (pixels < 128).mean() > 0.002, f"{name} is blank"


def test_a_blind_baseline_with_many_ties_stands_there_with_a_coin_too():
    columns = ("method", "metric", "split", "value", "ties")
    strict = [
        ("clip", "accuracy", "swap", 0.6, 0.0),
        ("blind_length", "accuracy", "swap", 0.0, 1.0),
        ("blind_ngram", "accuracy", "swap", 0.5, 0.1),
    ]
    coin = [("blind_length", "accuracy_coin", "swap", 0.5, 1.0), ("blind_ngram", "accuracy_coin", "swap", 0.5, 0.1)]
    cells = with_coin(pd.DataFrame([*strict, *coin], columns=columns).assign(seed=None))
    assert list(cells.method) == ["clip", "blind_length", "blind_length, coin", "blind_ngram"]
    assert set(cells.metric) == {"accuracy"}
    figure = comparison_figure(cells, blind=("chance", "blind_length", "blind_ngram"))
    assert [trace.name for trace in figure.data] == [
        "clip",
        "blind_length (blind)",
        "blind_length, coin (blind)",
        "blind_ngram (blind)",
    ]
    assert figure.data[2].x[0] == 50


def test_no_two_lines_of_a_divergence_figure_look_the_same_and_the_legend_fits():
    methods = ["composer", "clip", "vse", *(f"composer, variant {number}" for number in range(20))]
    lines = []
    for method in methods:
        for number, level in enumerate((0.1, 0.2)):
            place = (method, 0, None, None, f"window_{number}")
            lines.append(row(*place, "all", "divergence", level))
            lines.append(row(*place, "sentence_to_image", "r@1", 0.5))
    figure = recall_figure(lines)
    named = [trace for trace in figure.data if trace.showlegend]
    assert len(named) == len(methods)
    assert len({(trace.line.color, trace.line.dash) for trace in named}) == len(methods)
    assert figure.layout.height - 140 >= 20 * len(named) and figure.layout.legend.tracegroupgap == 0
    assert [trace.visible for trace in named] == [True] * 8 + ["legendonly"] * 15
    few = recall_figure([line for line in lines if line["method"] in methods[:3]])
    assert all(trace.visible is True for trace in few.data) and "click" not in few.layout.title.text
    assert "click on a grey name" in figure.layout.title.text
