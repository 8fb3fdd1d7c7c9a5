"From a real iterated-learning run to its curves and its codebook, and the rendering benchmark as a user calls it."

import math

import pytest

from complearn.analysis.codes.figures import code_grid
from complearn.analysis.codes.readings import code_table, code_views
from complearn.analysis.runs.curves import alignment, evaluations, phase_spans
from complearn.analysis.runs.figures import accuracy_curves, loss_curve, support_and_loss
from complearn.core.results import Result, row, rows_table
from complearn.core.runs import Run
from complearn.data.loading import Loader
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.world import world_from
from complearn.models.dual import build_model
from complearn.training.engine.phases import TrainSettings
from complearn.training.engine.processes import start_processes
from complearn.training.engine.trainer import Trainer
from complearn.training.methods.iterated import iterated


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    "A run of 26 steps with a warm-up and two generations, its model and its data."
    pairs = world_from({"n_train": 128, "size": 16}).train
    tower = {"tower": "tiny", "width": 32, "depth": 1, "heads": 2}
    model = build_model(
        {"vision": {**tower, "size": 16, "patch": 4}, "text": tower, "codebook": {"codes": 32}},
        WordTokenizer.fit([pair.caption for pair in pairs]),
    )
    run = Run.create(tmp_path_factory.mktemp("runs") / "il_clip-s0", {"method": "il_clip"})
    looks = iter(range(100))

    def look(model):
        return [
            row("il_clip", 0, None, None, "generated", "swap_att", "accuracy", 0.5 + next(looks) / 100, 0.4, 0.6, 10)
        ]

    phases = iterated(model, warmup=8, distil=3, interact=5, generations=2, final=2, ramp=2)
    loader = Loader(pairs, model.collate, 16, seed=0)
    Trainer(
        run,
        model,
        phases,
        loader,
        TrainSettings(lr=1e-3, every=13, checkpoint_every=0, log_every=1),
        processes=start_processes("cpu"),
        evaluations={"look": look},
        progress=False,
    ).fit()
    return Run.open(run.path), model.cpu(), pairs


def test_curves_of_a_real_run(trained):
    log = trained[0].metrics()
    spans = phase_spans(log)
    assert spans.kind.tolist() == ["warmup", "distil", "interact", "distil", "interact"]
    assert spans["last"].tolist() == [8, 11, 16, 19, 26]
    told = alignment(log, last=3)
    assert told.generation.tolist() == [0, 1, 2]
    assert told.n.tolist() == [3, 3, 3]
    assert told.loss.between(0, 4 * math.log(16)).all()
    figure = loss_curve({"il_clip": log}, batch=16)
    assert [(shape.x0, shape.x1) for shape in figure.layout.shapes if shape.type == "rect"] == [(8, 11), (16, 19)]
    assert [line.name for line in support_and_loss(log, 32).data] == [
        "support image",
        "support text",
        "contrastive loss",
    ]
    assert list(told.step) == [8, 16, 26]
    flat = evaluations(log)
    assert set(flat.step) == {8, 11, 13, 16, 19, 26} and flat.value.is_monotonic_increasing
    assert list(accuracy_curves(flat).data[1].x) == [8, 11, 13, 16, 19, 26]


def test_codebook_of_a_real_run(trained):
    _, model, pairs = trained
    images = code_table(model, pairs)
    texts = code_table(model, pairs, "text")
    assert images.grid == (4, 4) and len(images.support) == 128 and (images.support > 0).all()
    assert images.mass.sum() == pytest.approx(128, rel=1e-4)
    assert texts.mass.sum() == pytest.approx(len(texts.support), rel=1e-4)
    words = set(texts.word_table.word)
    assert words and words <= {*model.tokenizer.words, "[end]"}
    codes = images.by_usage()[:2]
    figure = code_grid(images, codes, *code_views(model, images, pairs, codes, k=3), texts)
    assert len(figure.layout.images) == 6


def test_rendering_benchmark_writes_its_rows(tmp_path, experiment):
    small = {"sizes": "[32]", "objects": "[1, 5]", "towers": "[tiny@32]", "seconds": 0.01, "steps": 20, "batch_size": 8}
    assert experiment("benchmarks/rendering", tmp_path, **small).good
    results = Result.read(tmp_path)
    table = rows_table(results.rows)
    ratio = table[table.metric == "rendered_over_consumed"].set_index("split")
    assert (
        list(ratio.index) == ["tiny@32, 1 object", "tiny@32, 5 objects"]
        and (ratio.low <= ratio.value).all()
        and (ratio.value <= ratio.high).all()
    )
    rendered = table[table.metric == "images_rendered_per_second"].set_index("split").value
    consumed = table[(table.metric == "images_consumed_per_second") & (table.method == "kept in memory")].value.item()
    assert ratio.value["tiny@32, 5 objects"] == pytest.approx(rendered["32 px, 5 objects"] / consumed)
    shares = table[table.metric.isin(["data_share", "log_share"])].value
    assert len(shares) == 4 and shares.between(0, 1).all()
    assert results.methods["tiny@32"]["rendered_over_consumed"] == pytest.approx(ratio.value.min())
    assert (tmp_path / "figures" / "rendering.html").exists()
