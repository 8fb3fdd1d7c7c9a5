"""What the project writes and reads back: for each kind, what makes it in a folder, and what reads it.

`OPENERS` is walked by `test_damage` (nothing that was changed is taken for what was written) and by `slow/test_fuzz`
(nothing ends in another library's error). A new kind of file goes here.
"""

import importlib.util
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from safetensors.torch import save_file
from training_runs import MODEL, TRAIN

from complearn.analysis.codes.store import CodeStore, _build_store
from complearn.analysis.stages.groupings import _read_embeddings, write_embeddings
from complearn.apps.edits.exports import write_negatives
from complearn.apps.runs.memory import Memory, Note
from complearn.core import hashes
from complearn.core.checksums import LIST, SEAL, SUM, document_sum, read_document, write_checksums
from complearn.core.files import parsing
from complearn.core.journals import parts_file
from complearn.core.results import Result, row
from complearn.core.runs import Run
from complearn.data.divergence.measure import DivergenceSplit, read_split, write_split
from complearn.data.pair_table import _open_table, _write_table
from complearn.data.pairs import Pair
from complearn.data.readers.edits import (
    Decision,
    EditedCaption,
    append_decision,
    read_decisions,
    read_edits,
    write_reviewed,
)
from complearn.data.readers.files import read_rows
from complearn.data.readers.held_out import write_source
from complearn.data.readers.registry import read
from complearn.data.reports import PartReader, Report
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.edits import DrawPlaces
from complearn.evaluation.search.approximate import build_faiss, open_faiss, search_gallery
from complearn.evaluation.search.gallery import Gallery, _write_gallery
from complearn.language.concepts.graph import build_graph, read_graph, write_graph
from complearn.language.parsing.registry import (
    ParseCache,
    parse,
    read_corrections,
    read_parses,
    write_correction,
    write_parses,
)
from complearn.models.export import export_model
from complearn.models.features import cached_tensors
from complearn.models.generators import _kept_answer
from complearn.models.registry import build, load_model, save_model
from complearn.models.towers.checkpoints import read_weights
from complearn.models.towers.factory import text_tower as build_text_tower
from complearn.models.towers.libraries import save_hf_text
from complearn.models.towers.openclip import load_open_clip
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot

CAPTIONS = ["A red dog.", "A blue cat near a dog.", "Two horses in the snow."]


@dataclass(frozen=True)
class Opener:
    "A kind of file or folder."

    write: Callable[[Path], Any]  # into an empty folder
    read: Callable[[Path], Any]  # from it; two values that are equal are the same content
    absent: Any = None  # what is read where there is nothing, if that is no error


VARIANT = []  # a text: what is written is of other captions and numbers, see `other_content`


def other_content():
    """From now on, in this process, other content is written."""
    VARIANT.append("other")
    CAPTIONS[:] = [text.replace("d", "b").replace("t", "p") for text in CAPTIONS]


def tensors():
    return {"a": torch.arange(40, dtype=torch.float32).reshape(4, 10) / 7 + len(VARIANT), "b": torch.arange(3)}


def plain(values):
    return {name: (part.dtype, part.tolist()) for name, part in values.items()}


def parses():
    return parse(CAPTIONS, "rules", cache=False, progress=False)


def edited(folder):
    records = [
        EditedCaption(str(k), str(k), text, [text.replace("A", "No")], [{"caption": text.replace("A", "No")}])
        for k, text in enumerate(CAPTIONS)
    ]
    return write_reviewed(folder / "negatives.jsonl", records, {})


def pictures():
    generator = np.random.default_rng(0)
    return [
        Pair(generator.integers(0, 256, (12, 12, 3), np.uint8), text, str(k), str(k)) for k, text in enumerate(CAPTIONS)
    ]


def tiny(codes=0):
    torch.manual_seed(0)
    codebook = {"codebook": {"codes": codes}} if codes else {}
    model = build({"vision": MODEL["vision"], "text": MODEL["text"], **codebook}, WordTokenizer.fit(CAPTIONS)).eval()
    with torch.no_grad():
        for part in model.parameters():
            part.add_(len(VARIANT) / 8)
    return model


def codes(folder):
    model = tiny(24)
    model.calibrate(model.collate(pictures()))
    _build_store(model, pictures(), folder / "store", 2, thumb=8)


def store(folder):
    opened = CodeStore.open(folder / "store")
    parts = [opened.vectors, opened.messages, opened.pixels, opened.heats, opened.by_item.toarray()]
    parts += [value for value in vars(opened.images).values() if isinstance(value, np.ndarray)]
    parts += [value for value in vars(opened.words).values() if isinstance(value, np.ndarray)]
    return [np.asarray(part).tolist() for part in parts], opened.about


def bert(folder):
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    torch.manual_seed(len(VARIANT))
    tower = build_text_tower({"tower": "minilm", "weights": False, "config": sizes})
    save_hf_text(tower, tower.tokenizer, folder / "tower")


def text_tower(folder):
    loaded = build_text_tower(f"hf:{folder / 'tower'}")
    return plain(loaded.state_dict()), loaded.tokenizer(CAPTIONS).ids.tolist()


def index(folder):
    gallery = Gallery.open(folder / "index")
    return gallery.vectors.tolist(), gallery.thumbs.tolist(), gallery.about


def cells_vectors():
    return torch.nn.functional.normalize(torch.randn(80, 4, generator=torch.manual_seed(len(VARIANT))), dim=1).numpy()


def cells(folder):
    opened = open_faiss(folder / "faiss.index")
    with parsing(folder):
        return [part.tolist() for part in opened.search(cells_vectors()[:8], 3)]


def searched_cells(folder):
    vectors = cells_vectors()
    gallery = Gallery(folder, {}, vectors, np.zeros(0, np.uint8), np.zeros(len(vectors), int))
    return search_gallery(gallery, torch.from_numpy(vectors[3]), k=3, exact_to=10).items.tolist()


def source(folder):
    pairs = []
    for k, pair in enumerate(pictures()):
        Image.fromarray(pair.image).save(folder / f"{k}.png")
        pairs.append(Pair(folder / f"{k}.png", pair.caption, str(k), str(k)))
    write_source(pairs, folder)


def parts_of_pairs():
    yield [Pair(bytes([k]) * 20, text, str(k), str(k), labels={"number": k}) for k, text in enumerate(CAPTIONS)]
    return Report("captions", len(CAPTIONS))


def table_of_pairs(folder):
    table = _open_table(folder / "table.arrow")
    if table is None:
        return []
    rows = [(pair.id, pair.caption, pair.labels, pair.image.read_bytes()) for pair in table]
    return rows, table.fingerprint(), vars(table.report)


@contextmanager
def caches_in(folder):
    """The folder for caches is this one."""
    before = os.environ.get("COMPLEARN_CACHE")
    os.environ["COMPLEARN_CACHE"] = str(folder)
    hashes._KNOWN.clear()
    try:
        yield
    finally:
        hashes._KNOWN.clear()
        del os.environ["COMPLEARN_CACHE"]
        if before is not None:
            os.environ["COMPLEARN_CACHE"] = before


SETTLED = sorted(Path(json.__file__).parent.glob("*.py"))  # files that nobody changes while the tests run


def hashes_of_files(folder):
    with caches_in(folder):
        hashes.hash_files(SETTLED[len(VARIANT) :])
        return [hashes.file_hash(path) for path in SETTLED]


def decide(folder):
    for k, verdict in enumerate(("accepted", "rejected", "accepted")):
        append_decision(folder / "decisions.jsonl", Decision(str(k), CAPTIONS[k], f"no {CAPTIONS[k]}", verdict))


def decisions(folder):
    found, report = read_decisions(folder / "decisions.jsonl")
    if report.n_skipped:  # the page shows it
        warnings.warn(str(report), stacklevel=2)
    return found


def correct(folder):
    for each in parses():
        write_correction(folder / "corrections.jsonl", each, str(each.tree))


def result(folder):
    curves = {"steps": pd.DataFrame({"step": [1, 2], "loss": [0.5, 0.25 + len(VARIANT)]})}
    rows = [
        row("clip", seed, "train", 10, "generated", "test", "accuracy", 0.5 + seed / (9 + len(VARIANT)))
        for seed in range(3)
    ]
    Result({"steps": 10}, rows, {"clip": {"accuracy": 0.6}}, curves).write(folder)


def read_result(folder):
    found = Result.read(folder)
    return found.rows, found.setting, found.methods, {name: frame.to_csv() for name, frame in found.curves.items()}


def graph(folder):
    found = read_graph(folder / "graph")
    return {name: getattr(found, name).to_csv() for name in ("captions", "concepts", "predicates", "parts")}


def remember(folder):
    Memory(folder).set_notes(
        {"clip-s0": Note(tags=("good",), text=f"the one of the paper {VARIANT}"), "clip-s1": Note(hidden=True)}
    )


def notes(folder):
    memory = Memory(folder)
    return {} if memory.remark else memory.notes  # the page shows the remark


def answer(folder):
    values = {"answer": "a blue dog chases a red cat"}
    (folder / "answer.json").write_text(json.dumps({**values, SEAL: document_sum(values)}))


def draw_places(folder):
    places = DrawPlaces(folder / "places.json")
    places.places = {"train-0": [2**100 + sum(map(ord, CAPTIONS[0])), 0, 0], "train-1": [7, 1, 12]}
    places.fresh = 1
    places.save()


def training_log(folder):
    run = Run.create(folder / "run", {"method": {"name": "clip"}})
    run.truncate_metrics(-1)
    for step in range(5):
        run.log({"kind": "step", "step": step, "loss": 1 / (step + 1)})


def export(ending):
    def write(folder):
        with tempfile.TemporaryDirectory() as place:
            lines = (
                {"id": str(k), "image_id": str(k), "caption": text, "negatives": [f"no {text}"]}
                for k, text in enumerate(CAPTIONS)
            )
            (Path(place) / "negatives.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            Image.fromarray(pictures()[0].image).save(Path(place) / "0.png")
            picture = Path(place) / "0.png" if ending == ".tar" else Path("0.png")
            write_negatives(Path(place) / "negatives.jsonl", folder / f"negatives{ending}", lambda record: picture)

    return write


def exported_rows(ending):
    return lambda folder: [(row.cells, row.fault) for row in read_rows(folder / f"negatives{ending}")]


def exported_clip(folder):
    if not (folder / "clip").exists():  # else the name might be one of open_clip's models
        raise FileNotFoundError(folder / "clip")
    return any_clip(folder)


def exported_shard(folder):
    pairs = read("webdataset", shards=str(folder / "negatives-00000.tar"))
    return [(pair.caption, pair.image.read_bytes()) for pair in pairs]


OPENERS = {
    "embeddings npz": Opener(
        lambda folder: write_embeddings(folder / "vectors.npz", ["a", "b", "c", "d"], {"stage-0": tensors()["a"]}),
        lambda folder: [*(found := _read_embeddings(folder / "vectors.npz"))][0] + [plain(found[1])],
    ),
    "embeddings parquet": Opener(
        lambda folder: write_embeddings(
            folder / "vectors.parquet", ["a", "b", "c", "d"], {"stage-0": tensors()["a"]}, {"colour": list("wxyz")}
        ),
        lambda folder: [*(found := _read_embeddings(folder / "vectors.parquet"))][0] + [plain(found[1])],
    ),
    "features": Opener(
        lambda folder: cached_tensors(folder / "a.safetensors", tensors),
        lambda folder: plain(cached_tensors(folder / "a.safetensors", tensors)),
    ),
    "places of pairs": Opener(draw_places, lambda folder: DrawPlaces(folder / "places.json").places, absent={}),
    "answers": Opener(answer, lambda folder: _kept_answer(folder / "answer.json"), absent=""),
    "corrections": Opener(correct, lambda folder: read_corrections(folder / "corrections.jsonl")),
    "decisions": Opener(decide, decisions),
    "edits": Opener(edited, lambda folder: list(map(asdict, read_edits(folder / "negatives.jsonl")))),
    "log": Opener(training_log, lambda folder: Run.open(folder / "run").records()),
    "exported csv": Opener(export(".csv"), exported_rows(".csv")),
    "exported tsv": Opener(export(".tsv"), exported_rows(".tsv")),
    "exported shard": Opener(export(".tar"), exported_shard),
    "exported weights": Opener(
        lambda folder: export_model(tiny(), folder / "weights.safetensors", force=True),
        lambda folder: plain(read_weights(folder / "weights.safetensors")),
    ),
    "exported open_clip": Opener(
        lambda folder: export_model(tiny(), folder / "clip", "open_clip", force=True), exported_clip
    ),
    "parses": Opener(
        lambda folder: write_parses(folder / "parses.jsonl", parses()),
        lambda folder: [each.values() for each in read_parses(folder / "parses.jsonl")],
    ),
    "pairs": Opener(
        source,
        lambda folder: [
            (Path(pair.image).name, pair.caption)
            for pair in read("folder", folder=str(folder), captions_file=str(folder / "pairs.jsonl"))
        ],
    ),
    "table of pairs": Opener(
        lambda folder: _write_table(folder / "table.arrow", reading := PartReader(parts_of_pairs()), reading),
        table_of_pairs,
        absent=[],
    ),
    "results": Opener(result, read_result),
    "split": Opener(
        lambda folder: write_split(
            folder / "split.json", DivergenceSplit({"test": ["7", "8", *VARIANT]}, {"test": 0.75})
        ),
        lambda folder: asdict(read_split(folder / "split.json")),
    ),
    "document": Opener(
        lambda folder: write_split(
            folder / "any.json", DivergenceSplit({"test": ["7", "8", *VARIANT]}, {"test": 0.75})
        ),
        lambda folder: read_document(folder / "any.json"),
    ),
    "graph": Opener(lambda folder: write_graph(folder / "graph", build_graph(parses())), graph),
    "gallery": Opener(lambda folder: _write_gallery(tiny(), pictures(), folder / "index"), index),
    "sorted vectors": Opener(lambda folder: build_faiss(cells_vectors(), folder / "faiss.index", cells=2), cells),
    "codes": Opener(codes, store),
    "text tower": Opener(bert, text_tower),
    "saved model": Opener(
        lambda folder: save_model(tiny(), folder / "model"), lambda folder: weights(folder / "model")
    ),
    "parse cache": Opener(
        lambda folder: ParseCache(folder).write([(bytes([k]), each) for k, each in enumerate(parses())]),
        lambda folder: {key: found.values() for key, found in ParseCache(folder).read([b"\0", b"\1", b"\2"]).items()},
        absent={},
    ),
    "hashes": Opener(hashes_of_files, hashes_of_files),
    "notes of runs": Opener(remember, notes, absent={}),
}
if not importlib.util.find_spec("faiss"):
    del OPENERS["sorted vectors"]


def weights(folder):
    loaded = load_model(folder)
    return plain(loaded.state_dict()), loaded.tokenizer.to_dict()


def small_run(folder):
    model = {"vision": MODEL["vision"], "text": MODEL["text"]}
    data = {"name": "generated", "args": {"n_train": 8, "size": 16}}
    method = {"name": "clip", "args": {"steps": 2}}
    train = TRAIN | {"batch_size": 4}
    launch(prepare(folder / "run", {"method": method, "model": model, "data": data, "train": train}).path, "cpu", False)


def snapshot(folder):
    found = Snapshot(folder / "run")
    return plain(found.model().state_dict()), len(found.pairs())


def transformers_clip(folder):
    """A CLIP in transformers' form, with random weights and open_clip's words."""
    from transformers import CLIPConfig, CLIPModel

    sides = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    vision = {**sides, "image_size": 16, "patch_size": 8}
    config = CLIPConfig(vision_config=vision, text_config={**sides, "max_position_embeddings": 16}, projection_dim=8)
    CLIPModel(config).save_pretrained(folder / "clip")


def open_clip_model(folder):
    import open_clip

    vision = {"layers": 1, "width": 16, "head_width": 8, "patch_size": 8, "image_size": 16}
    text = {"context_length": 8, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1}
    config = {"embed_dim": 8, "vision_cfg": vision, "text_cfg": text}
    torch.manual_seed(0)
    (folder / "clip").mkdir()
    (folder / "clip" / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    weights = {name: part.contiguous() for name, part in open_clip.CLIP(8, vision, text).state_dict().items()}
    save_file(weights, folder / "clip" / "open_clip_model.safetensors")


def any_clip(folder):
    return plain(load_open_clip(str(folder / "clip")).model.state_dict())


def read_numbers(folder):
    return plain(read_weights(folder / "weights.pt"))


def reseal(folder):
    """Make the checksums agree with what lies there now, as a stranger can."""
    for path in folder.rglob("*"):
        if path.suffix == SUM or path == parts_file(path.with_name(path.name.removesuffix(".parts.json"))):
            path.unlink()
        elif path.name == LIST:
            write_checksums(path.parent)
        elif path.suffix == ".json":
            try:
                values = json.loads(path.read_text())
            except (ValueError, RecursionError):
                continue
            if isinstance(values, dict) and SEAL in values:
                del values[SEAL]
                path.write_text(json.dumps(values))


STRANGERS = {  # what others send, with no checksum, or with one that agrees with whatever they wrote
    "run": Opener(small_run, snapshot),
    "text tower of others": Opener(bert, text_tower),
    "open_clip": Opener(open_clip_model, any_clip),
    "transformers' CLIP": Opener(transformers_clip, any_clip),
    "weights": Opener(lambda folder: torch.save(tensors(), folder / "weights.pt"), read_numbers),
    "parser's lines": OPENERS["parses"],
}
if "sorted vectors" in OPENERS:
    STRANGERS["sorted vectors of others"] = Opener(OPENERS["sorted vectors"].write, searched_cells)
