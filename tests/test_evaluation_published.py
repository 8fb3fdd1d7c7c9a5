"""Published results: each row complete and sourced, vl_compo's columns under our names, and beside our answers."""

import json

import pandas as pd
import pytest

from complearn.core.files import BadData
from complearn.core.results import Result, row
from complearn.evaluation.bench.judging import answers_table
from complearn.evaluation.bench.published import PUBLISHED, Published, read_published, read_vl_compo, with_published
from complearn.evaluation.bench.suites import SUITES

ASKED = (
    "sugarcrepe sugarcrepe_pp aro_relation aro_attribution coco_order valse winoground mmvp cola crepe_atom "
    "crepe_compound crepe_replace crepe_swap crepe_negate vsr whats_up"
).split()


def test_published_rows_are_complete_and_of_registered_benchmarks():
    rows = read_published()
    assert {one.benchmark for one in rows} <= set(SUITES.names())
    assert set(ASKED) <= {one.benchmark for one in rows}
    keys = [(one.model, one.benchmark, one.split, one.metric, one.source, one.table, one.setting) for one in rows]
    assert len(set(keys)) == len(keys), "a number stands twice"
    for source in (
        "Zheng et al. 2024",
        "Zhang et al. 2021 (EMNLP)",
        "Zhang et al. 2024",
        "Zhang et al. 2021 (NeurIPS)",
    ):
        assert any(one.source.startswith(source) and one.table.lower().find("table") >= 0 for one in rows)
    assert '"value"' in PUBLISHED.read_text().splitlines()[4], "one row a line"


def test_published_numbers_are_those_of_the_papers():
    def find(**wanted):
        return [one.value for one in read_published() if all(getattr(one, key) == wanted[key] for key in wanted)]

    paper = {"source": "Zheng et al. 2024, iterated learning"}
    assert find(model="il_clip", benchmark="cola", table="Table 1", **paper) == [20.0, 20.2]
    assert find(model="negclip", benchmark="winoground", table="Table 9", **paper) == [11.0]
    assert find(model="codebook_clip", benchmark="imagenet_sketch", table="Table 2", **paper) == [8.2, 26.9]
    mmvp = {"benchmark": "mmvp", "split": "mean", "table": "Table 3"}
    assert find(model="ViT-L-14:openai", **mmvp) == [20.0] and find(model="ViT-L-14 MCL", **mmvp) == [32.6]
    assert find(model="composer", benchmark="flickr30k", split="text_to_image", metric="r@1") == [54.02, 34.29]
    assert find(model="ViLT", benchmark="vsr") == [69.3, 63.0]


def row_of(**changes):
    values = {"model": "a", "benchmark": "mmvp", "split": "Texts", "metric": "image_score", "value": 3.5}
    return values | {"source": "a paper", "table": "Table 1", "setting": "zero-shot"} | changes


@pytest.mark.parametrize(
    ["values", "message"],
    [
        (row_of(source=" "), "row 1: source is ' '; say it in a few words"),
        (row_of(value=135.0), "row 1: value is 135.0; it is a number of per cent"),
        (row_of(value=True), "row 1: value is True"),
        (row_of(year=2024), "row 1 has .*year; a row has model, benchmark"),
        ({"model": "a"}, "row 1 has model; a row has"),
        ("a", "row 1 has 'a'; a row has"),
    ],
)
def test_a_row_that_is_not_complete_is_refused(tmp_path, values, message):
    (tmp_path / "published.json").write_text(json.dumps({"format": 1, "rows": [values]}))
    with pytest.raises(BadData, match=message):
        read_published(tmp_path / "published.json")


def test_a_file_of_another_form_is_refused(tmp_path):
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(BadData, match="no file of published results"):
        read_published(tmp_path / "other.json")


# --- the columns of vl_compo

COLUMNS = {
    "aro::VG_Relation": ("aro_relation", "mean", "accuracy"),
    "aro::COCO_Order": ("coco_order", "coco_order", "accuracy"),
    "colorswap::group": ("colorswap", "colorswap", "group_score"),
    "crepe::atom": ("crepe_replace", "mean", "accuracy"),
    "mmvp_vlm::Orientation and Direction::image": ("mmvp", "Orientation and Direction", "image_score"),
    "sugarcrepe::swap_att": ("sugarcrepe", "swap_att", "accuracy"),
    "svo_probes::verb_neg": ("svo_probes", "verb", "image_accuracy"),
    "valse::counting-small-quant": ("valse", "counting-small-quant", "accuracy"),
    "whatsup::VG_QA_TWO": ("whats_up", "vg_two", "accuracy"),
    "winoground::text": ("winoground", "winoground", "text_score"),
    "coco_karpathy::i2t/R@1": ("coco_karpathy", "image_to_text", "r@1"),
    "flickr30k::t2i/R@10": ("flickr30k", "text_to_image", "r@10"),
}
LEFT_OUT = ["elevator::mnist", "eqben::eqbensd::text", "vl_checklist::Attribute_color", "imagecode::static"]


def sample(folder, cells=None):
    "A file in the form of vl_compo, with numbers that nobody measured."
    names = ["arch", "pretrained", "family", *COLUMNS, *LEFT_OUT]
    lines = [["ViT-B-32", "openai", "OpenCLIP"], ["NegCLIP", "coco-ft", "StructuredCLIP"]]
    numbers = [str(10.5 + k) for k in range(len(names) - 3)] if cells is None else cells
    text = "\n".join(",".join(line) for line in [names, *([*line, *numbers] for line in lines)])
    (folder / "individual_results.csv").write_text(text + "\n")
    return folder / "individual_results.csv"


def test_the_columns_of_vl_compo_are_read_under_our_names(tmp_path):
    rows = read_vl_compo(sample(tmp_path))
    assert len(rows) == 2 * len(COLUMNS)
    read = [(one.benchmark, one.split, one.metric) for one in rows]
    assert read == [*COLUMNS.values()] * 2 and {name for name, *_ in read} <= set(SUITES.names())
    assert [rows[0].model, rows[-1].model] == ["ViT-B-32:openai", "NegCLIP:coco-ft"]
    assert [one.value for one in rows[:3]] == [10.5, 11.5, 12.5]


def test_a_file_that_is_not_of_vl_compo_is_refused(tmp_path):
    (tmp_path / "other.csv").write_text("arch,accuracy\nViT-B-32,50\n")
    with pytest.raises(BadData, match="no columns arch and pretrained with columns such as sugarcrepe::swap_obj"):
        read_vl_compo(tmp_path / "other.csv")
    with pytest.raises(BadData, match="line 2: aro::VG_Relation is 'none', and a number was expected"):
        read_vl_compo(sample(tmp_path, ["none"] * (len(COLUMNS) + len(LEFT_OUT))))
    with pytest.raises(BadData, match="line 2, aro::VG_Relation: value is 300.0"):
        read_vl_compo(sample(tmp_path, ["300"] * (len(COLUMNS) + len(LEFT_OUT))))


# --- beside our answers


def judged(*names):
    lines = [
        row(name, None, None, None, *key, 0.5, n=10)
        for name in (*names, "chance")
        for key in (("sugarcrepe", "swap_obj", "accuracy"), ("mmvp", "Texts", "image_score"), ("vsr", "all", "auc"))
    ]
    models = [{"method": name, "seed": None, "name": given} for name, given in names_given(names)]
    return Result({"models": models}, lines)


def names_given(names):
    return [(name, {"mine": "mine=ViT-B-32-quickgelu:openai"}.get(name, name)) for name in names]


KNOWN = [
    Published("ViT-B-32:openai", "sugarcrepe", "swap_obj", "accuracy", 61.5, "A", "Table 1", "zero-shot"),
    Published("ViT-B-32:openai", "sugarcrepe", "swap_obj", "accuracy", 62.0, "B", "Table 2", "another prompt"),
    Published("ViT-B-32:openai", "vsr", "all", "accuracy", 54.5, "C", "Table 3", "zero-shot"),
    Published("ViT-B-32:openai", "valse", "plurals", "accuracy", 56.0, "D", "Table 4", "zero-shot"),
    Published("NegCLIP", "mmvp", "Texts", "image_score", 20.0, "E", "Table 5", "tuned on COCO"),
]


def test_published_numbers_stand_beside_the_model_of_their_name():
    result = judged("mine", "other")
    table, notes = with_published(answers_table(result), result, KNOWN)
    assert list(table) == ["mine", "published", "other", "chance"]
    assert table.published.tolist() == ["61.5 [1], 62.0 [2]", "", "54.5 [3]"]
    assert notes[1] == "[2] ViT-B-32:openai, B, Table 2: another prompt"
    assert notes[2] == "[3] ViT-B-32:openai, C, Table 3: zero-shot; it is accuracy, and ours is auc"


def test_several_models_have_a_column_each_and_unknown_ones_none():
    result = judged("mine", "negclip")
    table, notes = with_published(answers_table(result), result, KNOWN)
    assert list(table) == ["mine", "published mine", "negclip", "published negclip", "chance"] and len(notes) == 4
    alone = judged("other")
    table, notes = with_published(answers_table(alone), alone, KNOWN)
    assert notes == [] and pd.testing.assert_frame_equal(table, answers_table(alone)) is None


def test_the_command_prints_them_faintly_in_a_terminal(monkeypatch, capsys):
    from complearn import command
    from complearn.evaluation.bench import published

    monkeypatch.setattr(published, "read_published", lambda: KNOWN)
    command._print_answers(judged("mine"))
    plain = capsys.readouterr().out
    assert (
        "61.5 [1], 62.0 [2]" in plain and "[1] ViT-B-32:openai, A, Table 1: zero-shot" in plain and "\033" not in plain
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    command._print_answers(judged("mine"))
    assert "\033[2m61.5 [1], 62.0 [2]\033[0m" in capsys.readouterr().out
