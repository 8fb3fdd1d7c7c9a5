"What a result's page says first: the right model, the right numbers, and what cannot be said."

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from browser import open_chromium
from scipy import stats

from complearn.analysis.runs.figures import comparison_figure
from complearn.analysis.runs.result_page import _measure_rows, _result_page, print_result_page, write_result_page
from complearn.analysis.runs.verdicts import describe_differences, measured_scores, model_title, write_verdict
from complearn.core.config import RequestError
from complearn.core.results import Result, is_blind, row
from complearn.evaluation.bench.judging import answers_table, with_intervals
from complearn.evaluation.statistics import paired_test

SPLITS = ("swap_att", "swap_obj")


def rows_of(values, n=400, chance=0.5, data="generated/sugarcrepe"):
    "Rows of models: method -> a value per seed, in both splits that exchange words."
    rows = [
        row(method, seed, "end", 100, data, split, "accuracy", value, n=n)
        for method, by_seed in values.items()
        for seed, value in enumerate(by_seed)
        for split in SPLITS
    ]
    return rows + [row("chance", None, None, None, data, split, "accuracy", chance, n=n) for split in SPLITS]


def test_a_difference_over_seeds_is_told_with_its_t_interval():
    clip, mine = (0.60, 0.62, 0.61, 0.59), (0.66, 0.69, 0.66, 0.67)
    verdict = write_verdict(Result({}, rows_of({"clip": clip, "negclip": mine})))
    differences = np.subtract(mine, clip)
    half = stats.t.ppf(0.975, 3) * stats.sem(differences)
    low, high = 100 * (differences.mean() - half), 100 * (differences.mean() + half)
    expected = (
        f"In binding, NegCLIP is {100 * differences.mean():.1f} points better than CLIP: 67.0 against 60.5 % "
        f"(95 % interval {low:+.1f} to {high:+.1f}, 4 seeds)."
    )
    assert verdict.sentences == [expected] and verdict.limits == []


@pytest.mark.parametrize(("shift", "word"), [(0.05, "better"), (-0.05, "worse")])
def test_the_order_of_rows_does_not_turn_the_sign(shift, word):
    values = {"negclip": [0.7 + shift + noise for noise in (0.002, -0.002, 0.001, -0.001)], "clip": [0.7] * 4}
    for order in (values, dict(reversed(values.items()))):
        (sentence,) = write_verdict(Result({}, rows_of(order))).sentences
        assert f"NegCLIP is 5.0 points {word} than CLIP" in sentence


def test_without_a_difference_the_least_that_would_be_seen_is_said():
    values = {"clip": (0.60, 0.70, 0.65, 0.62), "negclip": (0.64, 0.66, 0.66, 0.63)}
    verdict = write_verdict(Result({}, rows_of(values)))
    assert "NegCLIP shows no difference from CLIP" in verdict.sentences[0]
    assert "would be missed in one of five studies of this size" in verdict.limits[0]


@pytest.mark.parametrize(
    ("values", "lead"),
    [
        (
            {"clip": (0.60, 0.62, 0.61, 0.59), "negclip": (0.66, 0.69, 0.66, 0.67)},
            "NegCLIP is ahead of CLIP in binding (4 seeds each, 800 questions to each model).",
        ),
        (
            {"clip": (0.6, 0.62), "il_clip": (0.61, 0.6), "negclip": (0.9, 0.91)},
            "NegCLIP is ahead of the other 2 models in binding (2 seeds each, 800 questions to each model).",
        ),
        (
            {"clip": (0.60, 0.70, 0.65, 0.62), "negclip": (0.64, 0.66, 0.66, 0.63)},
            "No model is shown to be ahead in binding (4 seeds each, 800 questions to each model): the best, NegCLIP, "
            "is not shown to differ from CLIP.",
        ),
        (
            {"clip": (0.6,), "negclip": (0.9,)},
            "No model is shown to be ahead in binding (1 seed each, 800 questions to each model): that takes several "
            "seeds of each.",
        ),
        (
            {"clip": (0.40, 0.41), "negclip": (0.49, 0.51)},
            "No model is shown to be ahead in binding (2 seeds each, 800 questions to each model): the best, NegCLIP, "
            "is at chance.",
        ),
    ],
)
def test_a_verdict_says_first_who_is_ahead_and_what_guessing_gets(values, lead):
    result = Result({}, rows_of(values))
    guessing = "Guessing gets 50.0 % in binding."
    verdict = write_verdict(result)
    assert verdict.lead == f"{lead} {guessing}".strip()
    assert verdict.told[0] == verdict.lead and repr(verdict).startswith(verdict.lead)
    assert f"<section class='verdict'><p>{verdict.lead}" in _result_page(result, "Mine")
    of_study = write_verdict(Result({"rows": {}}, rows_of(values)))
    assert of_study.lead == verdict.lead.replace("No model", "No method").replace("2 models", "2 methods")


def test_the_chance_of_each_measure_is_said_once_for_equal_ones():
    rows = rows_of({"clip": (0.6,)})
    for split, metric, chance in (("replace_obj", "accuracy", 0.5), ("text_to_image", "r@1", 0.02)):
        data = "held out/retrieval" if metric == "r@1" else "generated/sugarcrepe"
        rows += [row("clip", 0, "end", 100, data, split, metric, 0.3, n=50)]
        rows += [row("chance", None, None, None, data, split, metric, chance, n=50)]
    verdict = write_verdict(Result({}, rows))
    assert verdict.told[-1] == "Guessing gets 50.0 % in binding and nouns; 2.0 % in pictures for captions."
    assert verdict.told[1] == "Elsewhere, per cent: nouns 30.0; pictures for captions 30.0."


@pytest.mark.parametrize(("value", "where"), [(0.53, "not shown to differ from"), (0.7, "above"), (0.3, "below")])
def test_one_model_alone_is_told_against_guessing_first(value, where):
    verdict = write_verdict(Result({"models": ["clip"]}, rows_of({"clip": (value,)}, n=400)))
    assert verdict.lead == "" and verdict.told[0].startswith(f"In binding: CLIP {100 * value:.1f} % [")
    assert verdict.told[0].endswith(f"(95 % interval over 800 questions), {where} guessing (50.0 %).")
    assert any(text.startswith("One model alone") for text in verdict.limits)
    assert "All questions are about generated scenes: nothing is said about photographs." in verdict.limits


def test_the_table_of_a_page_has_chance_and_the_numbers_of_questions_and_seeds():
    page = _result_page(Result({}, rows_of({"clip": (0.6, 0.62), "negclip": (0.9, 0.91)}, n=437)), "Mine")
    table = page.partition("<table")[2].partition("</table>")[0]
    heads = re.findall("<th>(.*?)</th>", table)
    cells = [re.findall("<td>(.*?)</td>", line) for line in table.split("<tr>")[1:]]
    lines = [dict(zip(heads, line)) for line in cells]
    assert [line["n: questions to a model"] for line in lines] == ["437", "437"]
    assert [line["seeds"] for line in lines] == ["2", "2"] and [line["chance"] for line in lines] == ["50.0", "50.0"]


def test_models_that_are_equal_in_all_seeds_are_called_so():
    (sentence,) = write_verdict(Result({}, rows_of({"clip": (0.7, 0.8), "negclip": (0.7, 0.8)}))).sentences
    assert "NegCLIP is the same in all seeds" in sentence


def test_one_seed_is_no_comparison_of_methods():
    verdict = write_verdict(Result({}, rows_of({"clip": (0.6,), "negclip": (0.7,)})))
    assert verdict.sentences[0].startswith("In binding: CLIP 60.0 % [") and "NegCLIP 70.0 % [" in verdict.sentences[0]
    assert "800 questions" in verdict.sentences[0]
    assert verdict.limits == [
        "One model of each: another seed may turn the order; train several seeds to compare methods."
    ]


def test_the_stated_reference_is_the_one_that_the_others_stand_beside():
    rows = rows_of({"clip": (0.6, 0.61, 0.62), "negclip": (0.7, 0.72, 0.71)})
    (sentence,) = write_verdict(Result({"reference": "negclip"}, rows)).sentences
    assert "CLIP is 10.0 points worse than NegCLIP" in sentence


@pytest.mark.parametrize("seeds", [1, 4])
def test_models_at_chance_are_named(seeds):
    near = [0.5 + 0.01 * (-1) ** seed for seed in range(seeds)] if seeds > 1 else [0.51]
    verdict = write_verdict(Result({}, rows_of({"clip": near, "negclip": [0.9 + 0.01 * k for k in range(seeds)]})))
    limit = next(text for text in verdict.limits if text.startswith("At chance"))
    assert limit.startswith("At chance in binding: CLIP;") and "NegCLIP" not in limit
    assert limit.endswith("Chance is what guessing gets, 50.0 %: one of two answers is right.")


def test_chance_of_several_kinds_of_questions_is_said_kind_by_kind():
    rows = rows_of({"clip": (0.3,)})
    rows += [
        row(method, seed, None, None, "winoground", "all", "image_score", value, n=40)
        for method, seed, value in (("clip", 0, 0.3), ("chance", None, 0.25))
    ]
    limit = next(text for text in write_verdict(Result({}, rows)).limits if text.startswith("At chance"))
    assert "guessing gets, 41.7 %: the mean over 3 kinds of questions, 50.0 % in 2 of them (one of two answers" in limit
    assert "25.0 % in 1 of them (two captions and two pictures have to be matched, and both" in limit


def test_chance_of_retrieval_names_the_size_of_the_gallery():
    rows = [
        row(method, None, None, None, "held out/retrieval", "text_to_image", "r@1", value, n=50)
        for method, value in {"start": 0.02, "chance": 0.02}.items()
    ]
    limit = next(text for text in write_verdict(Result({}, rows)).limits if text.startswith("At chance"))
    assert limit.endswith("Chance is what guessing gets, 2.0 %: the right one has to be the first of 50.")


def test_a_ceiling_and_a_blind_baseline_are_named():
    verdict = write_verdict(Result({}, rows_of({"clip": (0.99, 0.985), "negclip": (0.995, 0.99)})))
    assert any("ceiling in binding" in text for text in verdict.limits)
    blind = [
        row("blind_ngram", None, None, None, "generated/sugarcrepe", split, "accuracy", 0.8, n=400) for split in SPLITS
    ]
    verdict = write_verdict(Result({}, rows_of({"clip": (0.7, 0.72), "negclip": (0.9, 0.92)}) + blind))
    (limit,) = [text for text in verdict.limits if "never sees the image" in text]
    assert "80.0 % in binding, no less than CLIP." in limit


@pytest.mark.parametrize(("loss", "learned"), [(4.8, False), (2.0, True)])
def test_a_model_whose_loss_is_that_of_guessing_learned_nothing(loss, learned):
    steps = pd.DataFrame({"method": "clip", "seed": 0, "step": range(1, 21), "contrastive_loss": loss, "loss": loss})
    result = Result({"batch": 128}, rows_of({"clip": (0.6,)}), curves={"steps": steps})
    said = [text for text in write_verdict(result).limits if "learned hardly anything yet" in text]
    assert bool(said) != learned
    assert learned or f"after 20 steps its loss is {loss:.2f}, and guessing among 128 pairs has 4.85" in said[0]


def test_wrong_captions_and_near_pairs_are_guessed_among_too():
    steps = pd.DataFrame({"method": "negclip", "seed": 0, "step": range(1, 21), "contrastive_loss": 4.47, "loss": 4.47})
    result = Result({"batch": 128}, rows_of({"negclip": (0.6,)}), curves={"steps": steps})
    assert any("guessing among 128 pairs has 4.85" in text for text in write_verdict(result).limits)
    # ln(128 x 3) from a picture, ln(128 x 2) from a caption: (5.951 + 5.545) / 2
    more = steps.assign(with_negative=1.0, with_neighbour=1.0, contrastive_loss=5.3)
    limits = write_verdict(Result({"batch": 128}, result.rows, curves={"steps": more})).limits
    assert any("among 128 pairs, their wrong captions and pairs near them has 5.75" in text for text in limits)
    more = more.assign(contrastive_loss=4.47)
    limits = write_verdict(Result({"batch": 128}, result.rows, curves={"steps": more})).limits
    assert not any("learned hardly anything" in text for text in limits)


def test_of_many_models_the_ends_are_told_and_the_others_counted():
    values = {"clip": (0.6, 0.61, 0.62)} | {
        f"mine {k}": [0.6 + 0.03 * (k - 2) + s for s in (0, 0.011, 0.019)] for k in range(5)
    }
    verdict = write_verdict(Result({}, rows_of(values)))
    assert verdict.sentences[0].startswith("In binding, of 5 others 2 are better and 2 are worse than CLIP")
    assert (
        "mine 4 is 6.0 points better" in verdict.sentences[1] and "mine 0 is 6.0 points worse" in verdict.sentences[2]
    )
    assert "Of 5 comparisons about one in twenty" in " ".join(verdict.limits)


def test_questions_that_no_model_was_asked_are_named_and_take_no_line():
    rows = [row("clip", None, None, None, "sugarcrepe", "swap_obj", "accuracy", 0.6, low=0.5, high=0.7, n=50)]
    rows += [
        row("blind_length", None, None, None, data, split, "accuracy", 0.5, n=50)
        for data, split in (("sugarcrepe", "swap_obj"), ("valse", "plurals"))
    ]
    page = _result_page(Result({}, rows), "Mine")
    table = page[page.index("id='answers'") : page.index("</table>")]
    assert "questions of valse that no model was asked" in table and "plurals" not in table
    assert "60.0 [50, 70]" in table and "valse" not in table[table.index("<table") :]


def test_photos_without_hard_negatives_are_judged_by_retrieval():
    rows = [
        row(method, None, None, None, "held out/retrieval", "text_to_image", "r@1", value, n=50)
        for method, value in {"start": 0.2, "negclip": 0.5}.items()
    ]
    rows.append(row("chance", None, None, None, "held out/retrieval", "text_to_image", "r@1", 0.02, n=50))
    (scores,) = measured_scores(Result({}, rows))
    assert scores.title == "pictures for captions" and scores.chance == 0.02
    assert "start 20.0 % [" in write_verdict(Result({}, rows)).sentences[0]


def test_photos_with_exchanged_captions_are_judged_by_binding_first():
    rows = [
        row(method, None, None, None, f"held out/{data}", split, metric, value, n=50)
        for method in ("start", "negclip")
        for data, split, metric, value in (
            ("retrieval", "text_to_image", "r@1", 0.2),
            ("exchanges", "swap_phrase", "accuracy", 0.7),
        )
    ]
    assert [scores.title for scores in measured_scores(Result({}, rows))] == ["binding", "pictures for captions"]
    assert write_verdict(Result({}, rows)).sentences[0].startswith("In binding")


def test_the_interval_of_a_single_row_is_that_of_the_table():
    place = ("held out/retrieval", "text_to_image", "r@1")
    rows = [row("start", None, None, None, *place, 0.75, low=0.25, high=1.0, n=4)]
    (scores,) = measured_scores(Result({}, rows))
    assert scores.interval("start") == (0.25, 1.0)
    (scores,) = measured_scores(Result({}, [row("start", None, None, None, *place, 0.75, n=4)]))
    assert scores.interval("start") == pytest.approx((0.3006, 0.9544), abs=1e-4)


def test_a_mean_over_kinds_of_questions_has_the_interval_of_that_mean():
    """The few questions of one kind count as much as the many of another: not as one share of all questions."""
    place = ("held out/exchanges", "swap_obj", "accuracy")
    cells = [
        row("negclip", 0, None, 10, "held out/exchanges", split, "accuracy", value, low=low, high=high, n=n)
        for split, value, low, high, n in (("swap_att", 0.25, 0.0, 1.0, 3), ("swap_obj", 0.75, 0.45, 0.9, 47))
    ]
    own = row("negclip", 0, None, 10, "held out/exchanges", "mean", "accuracy", 0.5, low=0.2, high=0.9, n=50)
    (scores,) = measured_scores(Result({}, [*cells, own]))
    assert scores.mean("negclip") == 0.5 and scores.interval("negclip") == (0.2, 0.9)
    (scores,) = measured_scores(Result({}, cells))
    wide = (0.5 - np.hypot(0.25, 0.3) / 2, 0.5 + np.hypot(0.75, 0.15) / 2)
    assert scores.interval("negclip") == pytest.approx(wide)
    (scores,) = measured_scores(Result({}, [cells[0], row("negclip", 0, None, 10, *place, 0.75, n=47)]))
    assert scores.interval("negclip") == pytest.approx((0.366, 0.634), abs=1e-3), "Wilson's, where a cell has none"


@pytest.mark.parametrize("n, few", [(4, True), (29, True), (30, False), (0, False)])
def test_too_few_questions_are_counted(n, few):
    rows = [
        row(method, None, None, None, "sugarcrepe", "swap_obj", "accuracy", 0.7, n=n) for method in ("start", "negclip")
    ]
    limits = " ".join(write_verdict(Result({}, rows)).limits)
    assert (f"Only {n} questions were asked in binding: too few to tell models apart." in limits) == few


def test_without_a_usual_measure_the_page_is_about_those_that_it_has():
    cells = [("mine", 0.25), ("other", 0.5), ("chance", 0.125)]
    rows = [row(name, 0, None, 1, "words", "nouns", "accuracy", value, n=400) for name, value in cells]
    verdict = write_verdict(Result({}, rows))
    assert verdict.sentences[0].startswith("In words: nouns") and "25.0" in verdict.sentences[0]
    page = _result_page(Result({}, rows), "Mine")
    assert page.count("<figure>") == 1 and "words: nouns" in page
    norms = [row("mine", 0, None, 1, "words", "nouns", "norm", 25.0)]
    assert "no measure between 0 and 1" in write_verdict(Result({}, norms)).sentences[0]
    assert "<figure>" not in _result_page(Result({}, norms), "Mine")


def test_twenty_methods_are_told_apart_and_fit():
    models = {f"model {k}": (0.5 + k / 50, 0.51 + k / 50) for k in range(20)}
    [scores] = [scores for scores in measured_scores(Result({}, rows_of(models))) if scores.title == "binding"]
    figure = comparison_figure(_measure_rows([scores, *[replace(scores, title=f"copy {k}") for k in range(6)]]))
    looks = [(trace.marker.color, trace.marker.symbol) for trace in figure.data if trace.name.startswith("model")]
    assert len(looks) == len(set(looks)) == 20
    assert figure.layout.height <= 1200


def test_a_page_leads_with_its_verdict_and_folds_the_rest(tmp_path):
    steps = pd.DataFrame({"method": "clip", "seed": 0, "phase": "train", "step": [1, 2], "loss": [3.0, 2.0]})
    rows = rows_of({"clip": (0.6, 0.61), "<b>": (0.7, 0.72)})
    Result({"rows": {"clip": {}}, "steps": 100, "batch": 32}, rows, curves={"steps": steps}).write(tmp_path)
    page = write_result_page(tmp_path, "Mine").read_text()
    assert page.index("In binding") < page.index("<figure>") < page.index("<details")
    assert page.count("<details") == 3 and "<b>" not in page and "&lt;b&gt;" in page
    assert "100 steps of 32 pairs" in page and "UTC" in page
    assert "<figcaption class='note'>95 % intervals" in page and page.count("aria-pressed='true'") == 3, (
        "two models, and chance"
    )
    averages = [row("clip", 0, "end", 9, "average", name, "accuracy", 0.8, n=4) for name in ("BIND", "COMP")]
    page = _result_page(Result({}, averages), "Mine")
    assert "<td>binding (BIND)</td>" in page and "<td>all compositional (COMP)</td>" in page
    assert page.count("plotly.js v") == 1 and "src=" not in page.partition("<body>")[0]


def test_titles_of_registered_methods_are_those_of_papers():
    names = {"clip": "CLIP", "il_clip": "IL-CLIP", "codebook_clip": "Codebook-CLIP", "negclip": "NegCLIP"}
    assert {name: model_title(name) for name in names} == names
    assert (
        model_title("codebook_restarts") == "Codebook-CLIP with restarts"
        and model_title("ViT-B-32:openai") == "ViT-B-32:openai"
    )


def test_a_pdf_without_a_browser_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("complearn.analysis.runs.result_page.find_browser", lambda: None)
    with pytest.raises(RequestError, match="install it, or set BROWSER_PATH"):
        print_result_page(tmp_path / "mine.report.html")


def test_a_page_is_named_after_its_file_or_the_folder_of_results(tmp_path):
    result = Result({}, rows_of({"clip": (0.6, 0.61)}))
    (tmp_path / "mine").mkdir()
    result.write(tmp_path / "mine")
    result.write(tmp_path / "hard_negatives.results.json")
    assert "<title>mine</title>" in write_result_page(tmp_path / "mine").read_text()
    page = write_result_page(tmp_path / "hard_negatives.results.json")
    assert page.name == "hard_negatives.report.html" and "<title>hard negatives</title>" in page.read_text()


PARTS = """() => {
  const parts = [".xaxislayer-above", ".g-xtitle", ".legend"].map((name) => document.querySelector(`figure ${name}`));
  return parts.flatMap((part) => [part.getBoundingClientRect().top, part.getBoundingClientRect().bottom]);
}"""


@pytest.mark.browser
@pytest.mark.parametrize("n", [2, 12])
def test_the_legend_lies_below_the_axis_on_a_narrow_page_and_hides_models(tmp_path, n):
    Result({}, rows_of({f"model number {k}": (0.6, 0.61) for k in range(n)})).write(tmp_path)
    with open_chromium() as browser:
        page = browser.new_page(viewport={"width": 420, "height": 900}, color_scheme="dark")
        page.goto(write_result_page(tmp_path, "Mine").as_uri())
        page.wait_for_selector(".points path")
        _, ticks_end, title, title_end, legend, _ = page.evaluate(PARTS)
        assert ticks_end <= title + 1 and title_end <= legend
        assert page.evaluate("document.documentElement.scrollWidth") == 420
        shown = "document.querySelectorAll('.scatterlayer .trace').length"
        before = page.evaluate(shown)
        page.locator(".legend button").first.click()
        page.wait_for_function(f"{shown} === {before - 1}")
        fills = "[...document.querySelectorAll('.points path')].map((mark) => getComputedStyle(mark).fill)"
        assert "rgb(0, 0, 0)" not in page.evaluate(fills), "nothing black on a dark page"


@pytest.mark.browser
def test_a_page_is_printed_with_all_its_parts(tmp_path):
    Result({}, rows_of({"clip": (0.6, 0.61), "negclip": (0.7, 0.72)})).write(tmp_path)
    pdf = print_result_page(write_result_page(tmp_path, "Mine"))
    assert pdf.name == "results.report.pdf" and pdf.read_bytes().startswith(b"%PDF") and pdf.stat().st_size > 20_000


def test_rows_without_a_number_of_questions_have_values_and_no_interval():
    rows = [row(name, 0, None, 20, "held out/retrieval", "text_to_image", "r@1", 0.5) for name in ("clip", "mine")]
    assert write_verdict(Result({}, rows)).sentences == ["In pictures for captions: CLIP 50.0 %, mine 50.0 %."]
    assert "<figure>" in _result_page(Result({}, rows), "Mine")


def test_differences_without_a_unit_have_no_room_for_one():
    test = paired_test([0.5, 0.6, 0.7], [0.1, 0.3, 0.2])
    other = paired_test([0.5, 0.6, 0.7], [0.5, 0.8, 0.5])
    said = describe_differences("the language", {"one": test, "other": other}, unit="", scale=1.0)
    assert "  " not in said and " )" not in said and "misses" in said


def test_models_below_chance_are_not_said_to_guess():
    low = [0.2 + 0.01 * (-1) ** seed for seed in range(4)]
    verdict = write_verdict(Result({}, rows_of({"clip": low, "negclip": [0.9 + 0.01 * k for k in range(4)]})))
    assert not any(text.startswith("At chance") for text in verdict.limits)
    (limit,) = [text for text in verdict.limits if text.startswith("Below chance")]
    assert limit.startswith("Below chance in binding: CLIP. That is no guessing")


def test_questions_to_newcomers_are_none_of_a_models_own():
    own = rows_of({"clip": (0.6, 0.61, 0.62), "negclip": (0.7, 0.72, 0.71)})
    taught = [line | {"data": f"newcomers: {line['data']}", "value": 0.1, "n": 2} for line in own]
    measured = [measured_scores(Result({}, rows)) for rows in (own, own + taught)]
    assert [(scores.title, scores.n, scores.by_seed.to_dict()) for scores in measured[0]] == [
        (scores.title, scores.n, scores.by_seed.to_dict()) for scores in measured[1]
    ]


def test_baselines_are_averaged_over_the_questions_that_models_were_asked():
    """Questions without their pictures are asked of the baselines alone, and are no part of a model's average."""
    rows = rows_of({"clip": (0.6,)})
    for name, chance in (("chance", 0.25), ("blind_length", 0.9)):
        rows += [row(name, None, None, None, "sugarcrepe", SPLITS[0], "accuracy", 0.5, n=9)]
        rows += [row(name, None, None, None, "winoground", "winoground", "image_score", chance, n=400)]
    rows.append(row("clip", 0, "end", 100, "sugarcrepe", SPLITS[0], "accuracy", 0.6, n=400))
    (scores,) = measured_scores(Result({}, rows))
    assert scores.chance == 0.5 and scores.blind == 0.5 and scores.guessing == "one of two answers is right"


def test_how_many_questions_a_model_has_met_is_no_measure():
    place = ("vsr", "statements", "accuracy")
    rows = [
        row("clip", 0, None, None, "vsr", "all", f"train_overlap_{side}", 0, n=9) for side in ("images", "captions")
    ]
    rows.append(row("clip", 0, None, None, *place, 0.7, low=0.6, high=0.8, n=90))
    (scores,) = measured_scores(Result({}, rows))
    assert scores.title.startswith("vsr") and scores.mean("clip") == 0.7


def test_scorers_that_see_no_picture_are_no_models():
    """The baselines of pointing and of relations are called "centre" and "blind"."""
    blind = ["chance", "majority", "blind", "centre", "blind_length", "blind_ngram"]
    rows = rows_of({"clip": (0.6, 0.61), "negclip": (0.7, 0.72)})
    place = ("generated/pointing", "phrases", "accuracy")
    rows += [row(name, None, None, None, *place, 0.5, low=0.4, high=0.6, n=9) for name in ("centre", "blind")]
    rows.append(row("clip", 0, None, 100, *place, 0.4, low=0.3, high=0.5, n=9))
    assert all(map(is_blind, blind)) and not is_blind("clip, blind to order")
    assert list(measured_scores(Result({}, rows))[0].by_seed) == ["clip", "negclip"]
    table = answers_table(Result({}, rows))
    assert list(table) == ["clip", "negclip", "chance", "centre", "blind"]
    texts = with_intervals(table, Result({}, rows)).loc[place]
    assert texts["clip"] == "40.0 [30, 50]" and texts["centre"] == texts["blind"] == 50


def test_chance_of_several_seeds_is_said_once_for_each_kind_of_questions():
    rows = [line for line in rows_of({"clip": (0.3, 0.31, 0.29)}) if line["method"] != "chance"]
    for seed in range(3):
        rows += [row("chance", seed, None, None, "generated/sugarcrepe", split, "accuracy", 0.5) for split in SPLITS]
        for name, value in (("clip", 0.3), ("chance", 0.25)):
            rows += [row(name, seed, None, None, "generated/winoground", SPLITS[0], "image_score", value, n=40)]
    (scores,) = measured_scores(Result({}, rows))
    assert scores.guessing.startswith("the mean over 3 kinds of questions, 50.0 % in 2 of them (one of two")


def test_one_method_of_several_seeds_has_an_interval_over_them():
    """It was said to be over the questions of one model."""
    values = (0.6, 0.63, 0.66)
    verdict = write_verdict(Result({}, rows_of({"clip": values})))
    half = 100 * stats.t.ppf(0.975, 2) * stats.sem(values)
    bounds = f"[{63 - half:.1f}, {63 + half:.1f}] (95 % interval over 3 seeds, 800 questions in each)"
    assert verdict.told[0].startswith(f"In binding: CLIP 63.0 % {bounds}")
    assert verdict.limits[0].startswith("One method alone: what it adds is not shown")


def test_methods_without_a_seed_in_common_are_not_called_one_model_each():
    rows = rows_of({"clip": (0.6, 0.63), "negclip": (0.7, 0.72)})
    rows = [line | {"seed": line["seed"] + 2} if line["method"] == "negclip" else line for line in rows]
    verdict = write_verdict(Result({}, rows))
    assert "(95 % intervals over 2 seeds, 800 questions in each)" in verdict.sentences[0]
    assert verdict.limits[0].startswith("Fewer than two seeds that all of these have")
    mixed = [line for line in rows if line["seed"] != 3]
    said = write_verdict(Result({}, mixed)).sentences[0]
    assert "(95 % intervals over the seeds of a model, or over the questions where it has one)" in said


def test_a_table_of_answers_shows_finished_models():
    """Rows of earlier steps were averaged with those of the last one."""
    place = ("generated/sugarcrepe", "swap_obj", "accuracy")
    rows = [row("il_clip", 0, f"interact-{k}", k, *place, k / 10, low=0.1, high=0.9, n=9) for k in (4, 8)]
    table = answers_table(Result({}, rows))
    assert table.loc[place, "il_clip"] == 80
    assert with_intervals(table, Result({}, rows)).loc[place, "il_clip"] == "80.0 [10, 90]"
