"""Averages of exchanged words, nouns, relations and attributes beside COMP, in new runs and in files that were measured
before."""

import pytest
from conftest import ROOT

from complearn.analysis.runs.averages import BY_KIND, CELLS, averages, cell_kind, with_averages
from complearn.analysis.runs.summaries import compositional_names
from complearn.core.results import Result, row
from complearn.evaluation.bench.suites import SUITES
from complearn.evaluation.statistics import comparison

MEASURED = ROOT / "data" / "measured"
REVIEWED = [  # file, data, than, split, and il_clip minus it in points: mean, low, high
    ("iterated", "average", "codebook_clip", "BIND", (0.02, -0.70, 0.75)),
    ("iterated", "average", "codebook_restarts", "BIND", (-0.10, -0.83, 0.63)),
    ("iterated", "average", "codebook_clip", "NOUN", (-4.89, -6.42, -3.35)),
    ("iterated", "average", "codebook_restarts", "NOUN", (-4.03, -5.46, -2.60)),
    ("iterated", "average", "codebook_clip", "REL", (-0.32, -1.62, 0.98)),
    ("iterated", "average", "codebook_clip", "COMP", (-0.73, -1.12, -0.35)),
    ("learnability", "newcomers: average", "codebook_clip", "BIND", (1.43, 0.71, 2.16)),
    ("learnability", "newcomers: average", "codebook_restarts", "BIND", (0.92, -0.02, 1.86)),
    ("learnability", "newcomers: average", "codebook_clip", "NOUN", (-3.66, -4.63, -2.68)),
    ("learnability", "newcomers: average", "codebook_restarts", "NOUN", (-2.78, -3.95, -1.61)),
    ("learnability", "newcomer 0: average", "codebook_clip", "BIND", (1.43, 0.71, 2.16)),
]


@pytest.fixture(scope="module")
def measured_rows():
    return {
        name: with_averages(Result.read(MEASURED / f"{name}.results.json").rows)
        for name in ("iterated", "learnability")
    }


@pytest.mark.parametrize("file, data, than, split, points", REVIEWED)
def test_averages_by_kind_of_the_measured_studies(measured_rows, file, data, than, split, points):
    line = comparison(measured_rows[file], "il_clip", than, data=data).set_index("split").loc[split]
    assert [round(100 * line[name], 2) for name in ("mean", "low", "high")] == list(points) and line.n == 12


def test_bind_is_the_mean_of_the_seven_cells_that_exchange_words(measured_rows):
    """As data/README.md fixes it for the confirmatory study; computed here by a list of its own."""
    seven = [
        ("sugarcrepe", "swap_att", "accuracy"),
        ("sugarcrepe", "swap_obj", "accuracy"),
        ("crepe_productivity", "swap/5", "accuracy"),
    ]
    seven += [("winoground", split, "image_score") for split in ("swap_att", "swap_obj")]
    seven += [("cola", split, "image_accuracy") for split in ("swap_att", "swap_obj")]
    nouns = [("sugarcrepe", "replace_obj", "accuracy"), ("cola", "replace_obj", "image_accuracy")]
    for file, whose in (("iterated", ""), ("learnability", "newcomers: "), ("learnability", "newcomer 0: ")):
        rows = [line for line in measured_rows[file] if (line["method"], line["seed"]) == ("il_clip", 7)]
        value = {(line["data"], line["split"], line["metric"]): line["value"] for line in rows}
        for kind, cells in (("BIND", seven), ("NOUN", nouns)):
            mean = sum(value[f"{whose}generated/{name}", split, metric] for name, split, metric in cells) / len(cells)
            assert value[f"{whose}average", kind, "accuracy"] == pytest.approx(mean, abs=1e-12)


def test_averages_are_added_once_and_nothing_else_is_changed(measured_rows):
    for file in ("iterated", "learnability"):
        before = Result.read(MEASURED / f"{file}.results.json").rows
        after = measured_rows[file]
        added = [line for line in after if line not in before] if file == "iterated" else []
        assert all(line["split"] in BY_KIND for line in added)
        assert [line for line in after if not (line["data"].endswith("average") and line["split"] in BY_KIND)] == before
        assert with_averages(after) == after


def test_a_new_run_and_an_old_file_have_equal_averages():
    """What `averages` writes for a run today is what `with_averages` adds to rows that lack it."""
    before = Result.read(MEASURED / "iterated.results.json").rows
    rows = [
        line
        for line in before
        if line["method"] in ("clip", "il_clip") and line["seed"] in (0, 1) and line["data"] != "average"
    ]
    new = averages(
        rows, compositional_names(list(dict.fromkeys(line["data"] for line in rows if line["split"] == "mean")))
    )

    def key(line):
        return (line["method"], line["seed"], line["split"])

    by_kind = [line for line in new if line["split"] in BY_KIND]
    assert sorted(by_kind, key=key) == sorted(with_averages(rows)[len(rows) :], key=key) and len(by_kind) == 16
    of_file = [
        line
        for line in before
        if line["data"] == "average" and line["method"] in ("clip", "il_clip") and line["seed"] in (0, 1)
    ]
    assert sorted((line for line in new if line["split"] not in BY_KIND), key=key) == sorted(of_file, key=key)


@pytest.mark.parametrize(
    "data, split, metric, kind",
    [
        ("sugarcrepe", "swap_obj", "accuracy", "BIND"),
        ("foils:sugarcrepe", "swap_obj", "accuracy", "BIND"),
        ("sugarcrepe:mine", "swap_obj", "accuracy", "BIND"),
        ("newcomers: generated/sugarcrepe", "swap_obj", "accuracy", "BIND"),
        ("newcomer 12: generated/sugarcrepe", "swap_obj", "accuracy", "BIND"),
        ("generated/sugarcrepe, seen", "swap_obj", "accuracy", None),
        ("generated/patterns", "swap_obj", "image_score", None),
        ("generated/sugarcrepe", "swap_obj", "accuracy_coin", None),
        ("sugarcrepe_pp", "replace_rel", "accuracy", "REL"),
        ("crepe_swap", "complexity_7", "accuracy", "BIND"),
        ("crepe_replace", "complexity_7", "accuracy", None),
        ("crepe_compound", "seen_compounds", "accuracy", None),
        ("generated/crepe_systematicity", "compound/unseen", "accuracy", None),
        ("generated/crepe_productivity", "swap/4", "accuracy", "BIND"),
        ("generated/crepe_productivity", "replace/5", "accuracy", None),
        ("aro_relation", "to the left of", "accuracy", "BIND"),
        ("coco_order", "coco_order", "accuracy", None),
        ("winoground", "winoground", "image_score", "BIND"),
        ("winoground", "winoground", "text_score", None),
        ("winoground", "mean", "image_score", None),
        ("cola", "multi_objects", "image_score", "BIND"),
        ("foils:valse", "foil-it", "accuracy", "NOUN"),
        ("valse", "actant-swap", "accuracy", "BIND"),
        ("valse", "plurals", "accuracy", None),
        ("svo_probes", "verb", "image_accuracy", "REL"),
        ("vl_checklist", "Attribute/vg/color", "accuracy", "ATT"),
        ("vsr", "statements", "accuracy", None),
        ("swaps", "swap_phrase", "accuracy", "BIND"),
        ("held out/exchanges", "swap_phrase", "accuracy", "BIND"),
    ],
)
def test_each_cell_belongs_to_one_average_or_to_none(data, split, metric, kind):
    assert cell_kind(data, split, metric) == kind


def test_a_model_without_seed_phase_and_step_has_averages_too():
    rows = [
        row("mine", None, None, None, "sugarcrepe", split, "accuracy", 0.5, n=10) for split in ("swap_obj", "swap_att")
    ]
    *same, bind = with_averages(rows)
    assert same == rows
    assert bind == row("mine", None, None, None, "average", "BIND", "accuracy", 0.5, n=20)


def test_every_benchmark_of_the_table_can_be_asked():
    assert {form for _, form, _, _ in CELLS} <= {*SUITES, "crepe_productivity", "exchanges"}


def test_a_benchmark_with_one_split_belongs_to_comp():
    """Winoground of the published file and the shuffled captions have no mean over splits."""
    cells = [
        ("sugarcrepe", "mean", "accuracy", 0.8),
        ("sugarcrepe", "swap_obj", "accuracy", 0.6),
        ("winoground", "winoground", "text_score", 0.9),
        ("winoground", "winoground", "image_score", 0.2),
        ("coco_order", "coco_order", "accuracy", 0.5),
        ("objects", "zero_shot", "accuracy", 0.1),
    ]
    rows = [row("clip", 0, "end", 9, *cell, n=10) for cell in cells]
    named = compositional_names(["sugarcrepe", "winoground", "coco_order"])
    values = {line["split"]: (line["value"], line["n"]) for line in averages(rows, named)}
    assert values["COMP"] == (pytest.approx(0.5), 30)
