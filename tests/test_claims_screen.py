"""The first screen of claims: one declared line each, the gate, verdicts that say why, and a figure to scale."""

import html
import json
import math
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from PIL import Image, ImageColor

from complearn.analysis.claims.declared import BOTTLENECK, CONFIRMATORY, STAGES
from complearn.analysis.claims.definitions import (
    CAUSAL_LENS,
    COMPOSER_CLAIMS,
    GROUNDING_CLAIMS,
    ITERATED_LEARNING,
    MULTISTAGE,
)
from complearn.analysis.claims.judging import WORDS, Claim, Side, judge
from complearn.analysis.claims.screen import (
    HEADLINES,
    VERDICTS,
    claim_cards,
    claims_screen,
    declared_line,
    gate,
    overlap_line,
    screen_figure,
    study_commands,
    what_it_takes,
)
from complearn.analysis.claims.tables import SINCE, StudyResults, claims_table, join_studies, read_studies
from complearn.command import find_notebook
from complearn.core.results import Result, row
from complearn.evaluation.statistics import holm, paired_power
from complearn.training.methods.iterated import ablation_rows

MEASURED = ROOT / "data" / "measured"
SWAPS = ("swap_att", "swap_obj")
NUMBERS = ("number", "difference", "low", "high", "margin", "n", "detectable", "claimed", "power", "least")
NUMBERS += ("power_least", "p_t", "p_holm", "p_sign", "p_floor", "steps")
CLAIMS = [*ITERATED_LEARNING, *GROUNDING_CLAIMS, *CAUSAL_LENS, *COMPOSER_CLAIMS, *MULTISTAGE]


@pytest.fixture(scope="module")
def studies():
    return read_studies([MEASURED])


@pytest.fixture(scope="module")
def table(smoke, studies):
    """The log that the notebook of claims wrote, with the lines of claims 2 and 16."""
    run = smoke("experiments/claims")
    assert run.good
    log = pd.read_csv(run.folder / "claims.csv", keep_default_na=False, na_values={name: [""] for name in NUMBERS})
    primary = [
        claims_table(fixed.primary, [one for one in studies if one.name in fixed.files]).assign(number=fixed.number)
        for fixed in (CONFIRMATORY, BOTTLENECK, STAGES)
    ]
    return pd.concat([log, *primary, pd.DataFrame([overlap_line(studies)])], ignore_index=True)


def binding(values, rival, blind=0.5):
    rows = [
        row(name, seed, "end", 4, "average", "BIND", "accuracy", value)
        for name, several in (("a", values), ("b", rival))
        for seed, value in enumerate(several)
    ]
    rows.append(row("chance", None, None, None, "average", "BIND", "accuracy", blind))
    return pd.DataFrame(rows)


CLAIM = Claim("a binds better than b", "", Side("a"), Side("b"), (("average", "BIND", "accuracy"),))


@pytest.mark.parametrize(
    "values, rival, word, why",
    [
        ([0.81, 0.82, 0.83], [0.71, 0.73, 0.72], "holds", ""),
        ([0.71, 0.73, 0.72], [0.81, 0.82, 0.83], "opposite", ""),
        ([0.801, 0.800, 0.802], [0.800, 0.801, 0.801], "smaller than matters", ""),
        ([0.80, 0.72, 0.86], [0.78, 0.80, 0.75], "open", ""),
        ([0.75, 0.8125, 0.875], [0.625, 0.6875, 0.75], "open", "no spread"),
        ([0.80], [0.70], "open", "one seed"),
        ([0.50, 0.51, 0.49], [0.49, 0.50, 0.51], "at chance", ""),
        ([0.996, 0.999, 0.990], [0.997, 0.992, 0.998], "ceiling", ""),
    ],
)
def test_a_verdict_says_whether_the_test_could_have_failed(values, rival, word, why):
    told = judge(CLAIM, binding(values, rival))
    assert (told["verdict"], told["why"]) == (word, why) and word in WORDS
    assert told["least"] == 0.005, "the smallest effect of interest that the confirmatory study fixed"


def test_power_is_of_the_smallest_effect_of_interest():
    values, rival = np.array([0.81, 0.84, 0.80, 0.83]), np.array([0.80, 0.81, 0.81, 0.80])
    told = judge(CLAIM, binding(values, rival))
    drawn = np.random.default_rng(0).normal(0.005, (values - rival).std(ddof=1), (40_000, 4))
    t = drawn.mean(1) / (drawn.std(1, ddof=1) / 2)
    assert told["power_least"] == pytest.approx((np.abs(t) > 3.182446).mean(), abs=0.01)


def test_the_gate_names_what_was_not_measured():
    rows = binding([0.81, 0.82, 0.83], [0.71, 0.73, 0.72])
    study = StudyResults("one", {}, rows)
    levels = gate(CLAIM, study)
    assert levels["chance"] == "0.5" and levels["side a"] == "0.82" and levels["side b"] == "0.72"
    assert {levels[name] for name in ("blind", "untrained", "oracle")} == {"not measured"}
    more = [
        row(name, None, None, None, "average", "BIND", "accuracy", value)
        for name, value in (("blind_length", 0.55), ("b, untrained", 0.51), ("best possible", 0.97))
    ]
    levels = gate(CLAIM, StudyResults("one", {}, pd.concat([rows, pd.DataFrame(more)])))
    assert [levels[name] for name in ("blind", "untrained", "oracle")] == ["0.55", "0.51", "0.97"]


def test_the_untrained_level_is_the_mean_of_what_the_seeds_models_got_before_their_first_step():
    rows = binding([0.81, 0.82, 0.83], [0.71, 0.73, 0.72])
    facts = {seed: [["average", "BIND", "accuracy", level]] for seed, level in enumerate((0.5, 0.48, 0.55))}
    runs = {f"b-s{seed}": {"method": "b", "seed": seed, "facts": {"untrained": cells}} for seed, cells in facts.items()}
    runs |= {f"a-s{seed}": {"method": "a", "seed": seed, "facts": {}} for seed in facts}
    assert gate(CLAIM, StudyResults("one", {"runs": runs}, rows))["untrained"] == "0.51"


def test_blind_levels_of_an_average_are_averaged_over_its_cells():
    [study] = read_studies([MEASURED / "confirmatory.results.json"])
    binding = next(claim for claim in ITERATED_LEARNING if claim.headline == "a shared codebook helps binding")
    levels = gate(binding, study)
    rows = study.rows[study.rows.method.str.startswith("blind")]
    cells = [(f"generated/{name}", split) for name in ("sugarcrepe", "winoground", "cola") for split in SWAPS]
    cells.append(("generated/crepe_productivity", "swap/5"))
    metric = {"generated/winoground": "image_score", "generated/cola": "image_accuracy"}
    means = rows.groupby(["method", "data", "split", "metric"]).value.mean()
    best = max(
        np.mean([means[name, data, split, metric.get(data, "accuracy")] for data, split in cells])
        for name in ("blind_length", "blind_ngram")
    )
    before = [run["facts"]["untrained"] for run in study.setting["runs"].values() if "untrained" in run["facts"]]
    of_seeds = [{(data, split, name): value for data, split, name, value in cells_of} for cells_of in before]
    wanted = [(data, split, metric.get(data, "accuracy")) for data, split in cells]
    start = np.mean([[found[cell] for cell in wanted] for found in of_seeds])
    assert levels["blind"] == f"{best:.3g}" and levels["untrained"] == f"{start:.3g}" and len(before) == 20
    assert levels["oracle"] == "1 by construction", "questions of a generated world"
    [photos] = read_studies([MEASURED / "flickr8k_scratch.results.json"])
    assert gate(binding, photos)["oracle"] == "not measured"


def test_a_gate_has_all_four_sides_of_an_interaction():
    [study] = read_studies([MEASURED / "composer.results.json"])
    widens = next(claim for claim in COMPOSER_CLAIMS if claim.number == 19)
    levels = gate(widens, study)
    values = study.rows[(study.rows.metric == "r@1") & (study.rows.split == "sentence_to_image")]
    means = values.pivot_table(index="seed", columns=["method", "data"], values="value")[
        [(side, data) for data in ("mcd", "in_domain") for side in ("composer", "vse, sentences alone")]
    ].dropna()
    assert [levels[f"side {letter}"] for letter in "abcd"] == [f"{mean:.3g}" for mean in means.mean()]
    assert levels["oracle"] == "0.952" and levels["chance"] == "0.01"


def test_every_claim_has_its_declared_line_in_the_measured_studies(table):
    assert [headline.number for headline in HEADLINES] == list(range(1, 25))
    screen = claims_screen(table)
    assert set(screen.verdict) <= set(WORDS) == set(VERDICTS)
    assert max(len(reason.split()) for reason in screen.why) <= 12 and all(screen.why)
    assert screen.why[4].startswith("opposite, and so does the control: ")
    assert screen.why[19] == "over VSE the paper's own lead narrows from 8.2 to 7.4, exploratory"
    for headline in HEADLINES:
        line = declared_line(table, headline)
        assert line is not None, headline
        assert line.n == table[(table.headline == line.headline) & (table.variant == "")].n.max(), "most seeds"


def test_a_claim_says_where_another_study_that_was_fixed_beforehand_has_the_contrary_answer(table):
    fixed = [study.primary[0].headline for study in (CONFIRMATORY, BOTTLENECK)]
    ours = table.headline.isin(fixed) & (table.n > 0)
    reasons = []
    for words in (("holds", "opposite"), ("holds", "holds"), ("opposite", "open")):
        answers = table.verdict.mask(ours, table.headline.map(dict(zip(fixed, words))))
        reasons.append(claims_screen(table.assign(verdict=answers)).why[2])
    assert reasons[0] == "perhaps too small to matter; opposite in bottleneck, fixed too"
    assert reasons[1].startswith("the interval is ") and reasons[2].startswith("the interval is ")
    alone = table[table.headline != fixed[1]]
    assert claims_screen(alone).why[2].startswith("the interval is ")
    assert claims_screen(table).why[2] == reasons[0], "as measured"


def test_the_screen_says_what_the_rows_say(table):
    rows = pd.DataFrame(Result.read(MEASURED / "confirmatory.results.json").rows)
    part = rows[(rows.data == "average") & (rows.split == "CLS")].pivot(index="seed", columns="method", values="value")
    difference = (part["il_clip"] - part["codebook_clip"]).dropna()
    screen = claims_screen(table)
    assert screen.effect[3].startswith(f"{100 * difference.mean():+.1f} [") and screen.n[3] == str(len(difference))
    [counted] = [
        line
        for line in Result.read(MEASURED / "overlap.results.json").rows
        if (line["data"], line["method"], line["split"]) == ("sugarcrepe", "words of their class there", "other words")
        and line["metric"] == "exact, own minus random"
    ]
    assert screen.effect[16].startswith(f"{100 * counted['value']:+.1f} [{100 * counted['low']:+.1f}")
    assert (screen.verdict[16], screen.verdict[18]) == ("holds", "not testable here")


def test_the_figure_is_to_scale(table):
    figure = screen_figure(table)
    bars = {
        name.split()[0]: (trace.name, x, trace.error_x.array[k], trace.error_x.arrayminus[k])
        for trace in figure.data
        if trace.name in VERDICTS
        for k, (x, name) in enumerate(zip(trace.x, trace.y))
    }
    dark = screen_figure(table, dark=True)
    for shown in (figure, dark):
        bands = {trace.name: trace for trace in shown.data if trace.type == "bar"}
        small = bands["too small to matter"]
        ends = [math.sinh(end) * 2 for end in (small.base, small.base + small.x[0])]
        assert ends == pytest.approx([-1, 1]) and len(small.y) == 24 and small.width == 1
        margin = {name.split()[0]: math.sinh(end) * 2 for name, end in zip(bands["no harm"].y, bands["no harm"].base)}
        assert margin == pytest.approx({"3": -2, "14": -1, "22": -2}), "a margin of no harm, in smallest effects"
    assert figure.data[0].marker.color != dark.data[0].marker.color
    narrow = screen_figure(table, narrow=True)
    assert [trace.x for trace in narrow.data] == [trace.x for trace in figure.data], "the same at another width"
    margin, texts = narrow.layout.margin, [note.text for note in narrow.layout.annotations]
    assert narrow.layout.width <= 420 and margin.l + margin.r <= 20 and len(texts) == 24
    assert all(f"{claim}<br>" in text for claim, text in zip(claims_screen(table).claim, texts))
    assert [trace.x for trace in dark.data] == [trace.x for trace in figure.data]
    assert (figure.layout.paper_bgcolor, dark.layout.paper_bgcolor) == ("white", "#0D1117")
    screen = claims_screen(table)
    for number, headline in enumerate(HEADLINES, 1):
        line = declared_line(table, headline)
        word, x, above, below = bars[str(number)]
        assert word == screen.verdict[number]
        ends = [math.sinh(end) * 2 * line.least for end in (x - below, x, x + above)]
        assert ends == pytest.approx([line.low, line.difference, line.high], abs=1e-9)


def test_holm_corrects_the_measures_of_one_claim_in_one_study(table):
    part = table[(table.number == 3) & (table.study == "confirmatory") & (table.variant == "")]
    assert len(part) == 2
    assert part.p_holm.tolist() == pytest.approx(holm(part.p_t.tolist()))
    controls = table[table.headline.str.endswith(": the spawns, not the restarts")]
    assert len(controls) and controls.p_holm.isna().all()


def test_a_card_has_the_chain_of_controls_and_the_command(table, studies):
    seen = join_studies([study for study in studies if study.name not in SINCE])
    cards = claim_cards(table, CLAIMS, seen)
    [first] = [part for part in cards.split("<details>") if "<b>9</b>" in part]
    assert re.search(r"Controls: [^<]*than on shuffled pairs \(holds\); [^<]*by reading alone \(holds\)", first)
    assert "complearn study grounded_words.ipynb" in first and "Not measured: chance (it takes" in first
    assert "Smallest effect of interest of correlations: 0.05, half of" in first and "after the rows" in first
    [lead] = [part for part in cards.split("<details>") if "<b>19</b>" in part]
    assert all(f"side {letter} (" in lead for letter in "abcd"), "an interaction has four sides"
    assert "narrows from 8.2 to 7.4 points" in html.unescape(lead) and "oracle 0.952" in lead
    since = [study for study in studies if study.name in (*CONFIRMATORY.files, *STAGES.files)]
    every = claim_cards(table, [*CLAIMS, *CONFIRMATORY.primary, *STAGES.primary], [*seen, *since])
    assert all("Gate: " in part for part in every.split("<details>")[1:])
    [stages] = [html.unescape(part) for part in every.split("<details>") if "<b>21</b>" in part]
    rows = Result.read(MEASURED / "stages_trifeature.results.json").table
    ceiling = [
        rows[(rows.method == f"taught {name}") & (rows.split == name)].value.astype(float).mean()
        for name in ("shape", "texture")
    ]
    assert f"oracle {sum(ceiling) / 2:.3g}" in stages, "each attribute from the model that was taught it"
    assert "taught=" in stages and "groups by colour" in stages
    assert cards.count("<summary>") == 24 and "<script" not in cards


def a_study(values, rival, **setting):
    rows = binding(values, rival)
    return StudyResults("made up", setting, rows)


def a_claim(**more):
    cells = (("average", "BIND", "accuracy"),)
    return Claim("a is better", "", Side("a"), Side("b"), cells, **more)


def test_an_open_claim_says_how_many_seeds_and_how_much_processor_time_it_takes():
    gains = np.array([0.02, -0.01, 0.015, 0.0, 0.01])
    budgets = {"a": {"cpu_seconds": 100.0}, "b": {"cpu_seconds": 140.0}, "c": {"cpu_seconds": 9e9}}
    study = a_study(0.8 + gains, [0.8] * 5, budgets=budgets)
    told = what_it_takes(a_claim(least=0.005), study, "open")
    needed = int(re.match(r"(\d+) seeds instead of 5", told)[1])
    spread = gains.std(ddof=1)
    shown = [paired_power(0.005, spread, n) for n in (needed - 1, needed)]
    assert shown[0] < 0.8 <= shown[1] and needed > 30
    assert f"{(needed - 5) * 240 / 3600:.1f} hours of one processor" in told
    assert what_it_takes(a_claim(least=0.1), study, "open").startswith("another setting; its 5 seeds")
    without = a_study(0.8 + gains, [0.8] * 5)
    assert "not on record" in what_it_takes(a_claim(least=0.005), without, "open")
    no_harm = int(what_it_takes(a_claim(least=0.005, margin=0.001), study, "open").split()[0])
    assert paired_power(0.006, spread, no_harm - 1) < 0.8 <= paired_power(0.006, spread, no_harm)
    for word in ("holds", "opposite", "by construction"):
        assert what_it_takes(a_claim(), study, word) == ""
    for word in ("at chance", "ceiling"):
        assert "no number of seeds helps" in what_it_takes(a_claim(), study, word)
    alone = a_study([0.8], [0.7], budgets=budgets)
    assert what_it_takes(a_claim(), alone, "open") == "at least two seeds, and seeds that differ."


def test_a_control_that_is_open_takes_its_own_seeds():
    rival = pd.concat([binding([0.9, 0.91, 0.92], [0.8] * 3), binding([0.7, 0.9, 0.8], []).replace("a", "c")])
    study = StudyResults("made up", {}, rival)
    control = Claim("more than c", "", Side("c"), Side("b"), (("average", "BIND", "accuracy"),), least=0.05)
    assert what_it_takes(a_claim(least=0.05), study, "open").startswith("another setting"), "it is decided"
    told = what_it_takes(a_claim(least=0.05, control=control), study, "open")
    needed, spread = int(told.split()[0]), np.std([-0.1, 0.1, 0.0], ddof=1)
    assert paired_power(0.05, spread, needed - 1) < 0.8 <= paired_power(0.05, spread, needed)


def test_a_claim_without_its_control_says_which_runs_it_takes():
    control = Claim("not the losses", "", Side("a, sentences alone"), Side("b"), (("average", "BIND", "accuracy"),))
    study = a_study([0.8] * 3, [0.7] * 3, budgets={"a": {"cpu_seconds": 600}, "b": {"cpu_seconds": 60}})
    told = what_it_takes(a_claim(control=control), study, "not testable here")
    assert told == "runs of a, sentences alone with 3 seeds; 30 minutes of one processor."


def test_cards_of_undecided_claims_say_what_they_take(table, studies):
    seen = join_studies([study for study in studies if study.name not in SINCE])
    parts = claim_cards(table, CLAIMS, seen).split("<details>")[1:]
    cards = {re.search(r"<b>(\d+)</b>", part)[1]: part for part in parts}
    screen = claims_screen(table)
    assert "What it would take: " not in "".join(cards[str(k)] for k in screen.index[screen.verdict == "holds"])
    undecided = [str(k) for k in screen.index[screen.verdict == "open"]]
    assert sum("What it would take: " in cards[k] for k in undecided) >= 0.9 * len(undecided)
    assert "runs of composer, sentences alone with" in cards["18"]


def test_the_committed_notebook_is_short():
    cells = json.loads((ROOT / "nbs/experiments/claims.ipynb").read_text(encoding="utf-8"))["cells"]
    words = sum(len("".join(cell["source"]).split()) for cell in cells if cell["cell_type"] == "markdown")
    assert words <= 600
    unfolded = [
        output
        for cell in cells
        for output in cell.get("outputs", [])
        if "<table" in "".join(output.get("data", {}).get("text/html", ""))
        and "<details>" not in "".join(output["data"]["text/html"])
    ]
    assert len(unfolded) <= 2


@pytest.mark.parametrize("headline", HEADLINES, ids=lambda headline: f"claim {headline.number}")
def test_a_card_names_commands_that_measure_its_claim(headline):
    """Notebook and parameters exist, world, steps and switches are those of the measured setting, and the rows of both
    sides are among those that are trained."""
    commands = study_commands(headline)
    if not commands:
        cells = json.loads(find_notebook(f"{headline.notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
        assert any("<summary>Commands</summary>" in "".join(cell["source"]) for cell in cells)
        assert headline.study in ("search_photos", "identifiability_flickr8k", "composer")
        return
    assert f" {headline.notebook}.ipynb " in commands[-1]
    [measured, *_] = [Result.read(MEASURED / f"{name}.results.json").setting for name in headline.study.split(" + ")]
    for command in commands:
        words = shlex.split(command)
        assert words[:2] == ["complearn", "study"] and words[3:5] == ["--preset", measured["preset"]]
        cells = json.loads(find_notebook(words[2]).read_text(encoding="utf-8"))["cells"]
        [parameters] = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
        given = dict(word.split("=", 1) for flag, word in zip(words[5:], words[6:]) if flag == "-p")
        assert all(f"\n{name}: " in "\n" + "".join(parameters["source"]) for name in given)
        if "steps" in given and "steps" in measured:
            assert int(given["steps"]) == measured["steps"]
        if "switches" in given and "switches" in measured:
            assert json.loads(given["switches"]) == measured["switches"]
        stated = json.loads(given.get("data_args", "{}"))
        there = {**measured.get("source", {}).get("args", {})}
        assert {name: str(value).removeprefix("DATA/") for name, value in stated.items()} == {
            name: str(there[name]) for name in stated
        }
    declared = [*CLAIMS, *CONFIRMATORY.primary]
    claim = next((claim for claim in declared if claim.headline == headline.headline), None)
    words = shlex.split(commands[0])
    if words[2] == "ablations.ipynb":
        given = dict(word.split("=", 1) for flag, word in zip(words, words[1:]) if flag == "-p")
        trained = ablation_rows(json.loads(given["sweep"]), given.get("reference", "il_clip"))
        sides = {side.method for one in (claim, *claim.controls) for side in one.sides if side.value is None}
        if headline.notebook == "identifiability":  # which reads the trained models once more, blind to something
            sides = {name.partition(", ")[0] for name in sides}
        assert sides <= {*trained}


def test_no_two_verdicts_have_one_colour_in_the_committed_pictures():
    for name in ("claims-light.png", "claims-dark.png"):
        picture = Image.open(ROOT / "nbs" / "images" / name).convert("RGB")
        there = {colour for _, colour in picture.getcolors(picture.width * picture.height)}
        inks = {ImageColor.getrgb(colour) for word, colour in VERDICTS.items() if word not in ("at chance", "ceiling")}
        assert inks <= there, name
