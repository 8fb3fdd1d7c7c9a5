"""Folders of strangers: whatever their configuration says, opening them runs nothing and requests nothing."""

import configparser
import functools
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
import training_runs
from conftest import ROOT
from PIL import Image
from safetensors.torch import save_file

from complearn.analysis.codes.store import code_sources
from complearn.apps.codes.controller import CodesController
from complearn.apps.edits.command import EditSettings, edit_captions
from complearn.apps.search.controller import SearchController
from complearn.apps.search.sources import search_sources
from complearn.core import figures
from complearn.core.checksums import write_listed
from complearn.core.config import RequestError
from complearn.core.files import BadData, temporary_path, write_bytes_atomic
from complearn.core.own_files import ForeignFile, Inside, check_own, follow_outside, open_own, own_path, write_own
from complearn.core.results import Result
from complearn.core.runs import Run, find
from complearn.core.trust import Untrusted, check_plain, offline
from complearn.data.fixtures.specimens import _write_captions, _write_edits
from complearn.data.readers.edits import CaptionRow, Decision, append_decision, journal_path, read_decisions
from complearn.data.readers.files import read_pictures
from complearn.data.readers.registry import read
from complearn.data.word_tokenizer import WordTokenizer
from complearn.evaluation.bench.suites import read_bench
from complearn.evaluation.search.gallery import Gallery
from complearn.language.concepts.graph import build_graph, read_graph, write_graph
from complearn.language.parsing.dependencies import load_model as load_spacy
from complearn.language.parsing.registry import ParseCache, parse, read_corrections, write_correction
from complearn.models.entailment import Entailment
from complearn.models.generators import CausalGenerator
from complearn.models.registry import build, load_model, save_model
from complearn.models.towers.factory import text_tower, vision_tower
from complearn.models.towers.openclip import load_open_clip
from complearn.training.runs.forks import Forks
from complearn.training.runs.launch import _hold_lock, launch, prepare
from complearn.training.runs.snapshots import Snapshot, run_data
from complearn.training.runs.sweep import command, start

VIT = {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
PREPROCESS = {"mean": [0.5] * 3, "std": [0.5] * 3}
CODE = "from pathlib import Path\nPath(__file__).with_name('executed').write_text('yes')\nclass Theirs: pass\n"


@pytest.fixture
def requests(monkeypatch):
    """Every connection that is made or looked up: a socket that raises, after Python's own audit event."""
    made = []

    def refuse(event, *arguments):
        sys.audit(event, *arguments)
        made.append(arguments)
        raise AssertionError(f"a request: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", lambda self, address: refuse("socket.connect", self, address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **options: refuse("socket.getaddrinfo", host, *rest))
    return made


def clip_folder(folder, vision=None, text=None, **top):
    """An open_clip folder with random weights; what differs is a stranger's."""
    import open_clip

    folder.mkdir(parents=True)
    config = {"embed_dim": 24, "vision_cfg": VIT | (vision or {}), "text_cfg": TEXT | (text or {}), **top}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": PREPROCESS}))
    (folder / "theirs.py").write_text(CODE)
    save_file(open_clip.CLIP(24, VIT, TEXT).state_dict(), folder / "open_clip_model.safetensors")
    return folder


def hf_folder(folder, config=None, tokenizer=None):
    """A transformers folder that names its own code, and what else a stranger adds."""
    folder.mkdir(parents=True)
    sizes = {
        "vocab_size": 15,
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    }
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"} | sizes | (config or {})))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | (tokenizer or {})))
    (folder / "theirs.py").write_text(CODE)
    return folder


OPEN_CLIP = {
    "tokenizer code": (
        {"text": {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"trust_remote_code": True}}},
        "trust_remote_code",
    ),
    "tokenizer options": (
        {"text": {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"use_fast": True}}},
        "tokenizer_kwargs.*'use_fast'",
    ),
    "text model on the hub": ({"text": {"hf_model_name": "hf-hub:owner/model"}}, "text_cfg.hf_model_name"),
    "text model elsewhere": ({"text": {"hf_model_name": "../elsewhere"}}, "text_cfg.hf_model_name"),
    "text model by one word": ({"text": {"hf_model_name": "theirs", "hf_tokenizer_name": "x"}}, "not on this machine"),
    "image model on the hub": ({"vision": {"timm_model_name": "hf-hub:owner/model"}}, "vision_cfg.timm_model_name"),
    "image model elsewhere": ({"vision": {"timm_model_name": "local-dir:/elsewhere"}}, "vision_cfg.timm_model_name"),
    "unknown key": ({"text": {"loader": "theirs"}}, "no key 'loader'"),
    "unknown part": ({"function": "timeit:timeit"}, "no key 'function'"),
    "part that is no mapping": ({"multimodal_cfg": ["theirs"]}, "should be a mapping"),
}


@pytest.mark.parametrize("name", OPEN_CLIP)
def test_an_open_clip_folder_is_refused(name, tmp_path, requests, monkeypatch):
    changes, message = OPEN_CLIP[name]
    folder = clip_folder(tmp_path / "clip", **changes)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Untrusted, match=message) as error:
        load_open_clip(str(folder))
    assert "clip" in str(error.value) and not list(tmp_path.rglob("executed")) and requests == []


def test_the_tokenizers_options_of_open_clips_own_models_are_allowed(tmp_path, requests):
    folder = clip_folder(tmp_path / "clip", text={"tokenizer_kwargs": {"clean": "canonicalize"}})
    assert load_open_clip(str(folder)).tokenizer.clean == "canonicalize" and requests == []


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_a_tokenizer_that_names_code_is_refused(file, tmp_path, requests):
    folder = clip_folder(tmp_path / "clip", text={"hf_tokenizer_name": "owner/model"})
    (folder / file).write_text(
        json.dumps({"auto_map": {"AutoConfig": "theirs.Theirs", "AutoTokenizer": ["theirs.Theirs", None]}})
    )
    with pytest.raises(Untrusted, match=f"{file}.*'auto_map'"):
        load_open_clip(str(folder))
    assert not list(tmp_path.rglob("executed")) and requests == []


FOLDERS = {
    "code for the model": ("hf", {"config": {"auto_map": {"AutoModel": "theirs.Theirs"}}}, "config.json.*'auto_map'"),
    "code for the tokenizer": (
        "hf",
        {"tokenizer": {"auto_map": ["theirs.Theirs", None]}},
        "tokenizer_config.json.*'auto_map'",
    ),
    "kernels from the hub": ("hf", {"config": {"attn_implementation": "owner/kernels"}}, "attn_implementation"),
    "a vocabulary elsewhere": ("hf", {"tokenizer": {"vocab_file": "/etc/passwd"}}, "vocab_file"),
    "a quantiser": ("hf", {"config": {"quantization_config": {"quant_method": "theirs"}}}, "quantization_config"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_transformers_folder_is_refused(name, tmp_path, requests):
    library, changes, message = FOLDERS[name]
    folder = hf_folder(tmp_path / "theirs", **changes)
    with pytest.raises(Untrusted, match=message):
        text_tower({"tower": f"{library}:{folder}", "weights": False})
    assert not list(tmp_path.rglob("executed")) and requests == []


def test_an_index_of_weights_leads_to_no_file_elsewhere(tmp_path, requests):
    folder = hf_folder(tmp_path / "theirs")
    for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": {"a": "../secret.bin"}}))
        with pytest.raises(Untrusted, match=f"{name} names '../secret.bin', a file elsewhere"):
            text_tower(f"hf:{folder}")
        (folder / name).unlink()


def test_an_adapter_folder_and_a_timm_folder_that_lead_elsewhere_are_refused(tmp_path, requests):
    folder = hf_folder(tmp_path / "theirs")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "owner/model"}))
    with pytest.raises(Untrusted, match="adapter_config.json"):
        text_tower(f"hf:{folder}")
    for architecture in ("hf-hub:owner/model", "local-dir:/elsewhere"):
        (tmp_path / "config.json").write_text(json.dumps({"architecture": architecture, "pretrained_cfg": {}}))
        for name in (f"timm:{tmp_path}", f"timm:local-dir:{tmp_path}"):
            with pytest.raises(Untrusted, match="architecture"):
                vision_tower(name)
    assert requests == []


@pytest.mark.parametrize("key", ["pretrained_cfg", "checkpoint_path", "cache_dir", "pretrained_cfg_overlay"])
def test_a_timm_tower_takes_no_argument_that_fetches_or_reads_a_file(key, tmp_path, monkeypatch, requests):
    """timm fetched data: and file: addresses, which need no socket, into a folder that a run's configuration named."""
    monkeypatch.chdir(tmp_path)
    url = "data:text/plain,raise%20SystemExit%23/einops_extra.py"
    value = {"url": url} if key.startswith("pretrained") else "."
    with pytest.raises(Untrusted, match=key):
        vision_tower({"tower": "timm:resnet10t", key: value})
    assert list(tmp_path.iterdir()) == [] and requests == []


def saved_model(folder):
    tower = {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 1, "heads": 1}
    from complearn.data.word_tokenizer import WordTokenizer

    text = {name: value for name, value in tower.items() if name not in ("size", "patch")}
    return save_model(build({"vision": tower, "text": text}, WordTokenizer.fit(["a red circle"])), folder)


ARCHITECTURES = {
    "timm on the hub": ({"kind": "timm_vision", "name": "hf-hub:owner/model", "transform": {}}, "vision.name"),
    "timm's weights": (
        {"kind": "timm_vision", "name": "resnet18", "transform": {}, "arguments": {"pretrained": True}},
        "no key 'pretrained'",
    ),
    "open_clip": ({"kind": "open_clip_vision", "config": {"vision_cfg": {"theirs": 1}}, "transform": {}}, "'theirs'"),
    "transformers": (
        {"kind": "hf_vision", "config": {"model_type": "vit", "auto_map": {"AutoModel": "a.B"}}, "transform": {}},
        "auto_map",
    ),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_saved_model_is_refused(name, tmp_path, requests):
    folder = saved_model(tmp_path / "model")
    architecture, message = ARCHITECTURES[name]
    description = json.loads((folder / "config.json").read_text())
    description["towers"]["vision"]["architecture"] = architecture
    write_listed(folder / "config.json", json.dumps(description).encode())
    with pytest.raises(Untrusted, match=message) as error:
        load_model(folder)
    assert "config.json" in str(error.value) and requests == []


def test_an_honest_saved_model_opens(tmp_path, requests):
    assert isinstance(load_model(saved_model(tmp_path / "model")), torch.nn.Module) and requests == []


def test_the_network_is_away_while_a_folder_is_opened_and_back_afterwards(requests):
    with pytest.raises(Untrusted, match="theirs.*not on this machine"), offline("theirs"):
        socket.create_connection(("192.0.2.1", 80))
    assert requests == []
    with pytest.raises(AssertionError, match="a request"):
        socket.create_connection(("192.0.2.1", 80))


CONNECT = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"


class Reaching:
    """A data set whose samples come from elsewhere."""

    def __getitem__(self, index):
        try:
            exec(CONNECT, {})
        except OSError as error:
            return type(error).__name__

    def __len__(self):
        return 1


def test_the_network_is_away_in_processes_that_are_started_meanwhile():
    """Workers of a loader are forked, ranks of torchrun and kernels are not."""
    before = {name: os.environ.get(name) for name in ("COMPLEARN_OFFLINE", "HF_HUB_OFFLINE")}
    with offline("theirs"), offline("within theirs"):
        child = subprocess.run(
            [sys.executable, "-c", f"import complearn; {CONNECT}"], capture_output=True, text=True, cwd=ROOT
        )
        assert "trust.Refused: no connection to '192.0.2.1'" in child.stderr
        [names] = torch.utils.data.DataLoader(Reaching(), num_workers=1)
        assert names == ["Refused"] and os.environ["HF_HUB_OFFLINE"] == "1"
    assert {name: os.environ.get(name) for name in before} == before


@pytest.mark.parametrize(
    "value", ["a:b", "a.b", "../a", "/a", "http://a", "a\\b", {"auto_map": "a"}, [["a.b"]], {"x": [{"y": "a.b"}]}]
)
def test_what_is_not_plain(value):
    with pytest.raises(Untrusted, match=r"file\.json"):
        check_plain({"key": value}, "file.json")
    check_plain({"key": ["quick_gelu", 1, None, True, {"a b": 0.5}], "auto_map": None}, "file.json")


# --- foreign runs


def foreign_run(folder, model, **config):
    """A run that has kept weights, with a stranger's configuration; nothing of it was checked."""
    config = {"method": {"name": "clip", "args": {"steps": 2}}, "model": model, "data": training_runs.DATA} | config
    run = Run.create(folder / "clip-s0", {"train": training_runs.TRAIN, "seed": 0} | config)
    (run.path / "phases").mkdir()
    save_file({"weight": torch.zeros(1)}, run.path / "phases" / "00-train.safetensors")
    run.finish({"step": 2})
    return run


def models(folder):
    """Towers that a stranger's configuration asks for."""
    code = {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"trust_remote_code": True}}
    clip = clip_folder(folder / "clip", text=code)
    (clip / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["theirs.Theirs", "theirs.Theirs"]}})
    )
    names = (f"open_clip:{clip}", "open_clip:hf-hub:owner/model", "hf:owner/model", "open_clip:RN50:yfcc15m")
    return [{"vision": name, "text": name, "codebook": {"codes": 8}} for name in names]


OPENINGS = {
    "snapshot": lambda run: Snapshot(run).model(),
    "explorer": lambda run: code_sources(run)[0].store("train"),
    "search": lambda run: search_sources(runs=run)[0].scorer,
    "launch": lambda run: (run.path / "done.json").unlink() or launch(run.path, progress=False),
}


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("number", range(4))
def test_a_foreign_run_is_refused(opening, number, tmp_path, requests):
    run = foreign_run(tmp_path, models(tmp_path)[number])
    with pytest.raises(Untrusted, match="config.json"):
        OPENINGS[opening](run)
    assert not list(tmp_path.rglob("executed")) and requests == []


HUB = (
    "open_clip:hf-hub:owner/model",
    "timm:hf-hub:owner/model",
    "timm:hf_hub:owner/model",
    "open_clip:local-dir:elsewhere",
)


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("name", HUB)
def test_only_a_person_names_a_model_of_the_hub_even_where_the_cache_has_it(
    opening, name, tmp_path, requests, monkeypatch
):
    reached = []

    def reach(*arguments, **options):
        reached.append(arguments)
        raise InterruptedError

    open_clip = pytest.importorskip("open_clip")
    timm = pytest.importorskip("timm")
    monkeypatch.setattr(open_clip.factory, "_get_hf_config", reach)
    monkeypatch.setattr(timm, "create_model", reach)
    model = {"vision": {"tower": name}, "text": "tiny", "codebook": {"codes": 8}}
    run = foreign_run(tmp_path, model)
    with pytest.raises(Untrusted, match="config.json: model.vision.tower is '.*', neither .* own name of a model nor"):
        OPENINGS[opening](run)
    assert not reached and requests == []
    if "local-dir" not in name:
        run.prepared = True
        with pytest.raises(InterruptedError):
            Snapshot(run).model()


def test_a_foreign_runs_data_are_not_downloaded(tmp_path, requests):
    run = foreign_run(tmp_path, training_runs.MODEL, data={"name": "hf", "args": {"dataset": "owner/data"}})
    with pytest.raises(ValueError, match="data of clip-s0 cannot be read"):
        Snapshot(run).pairs()
    assert requests == []


SOURCE = {"connect": {}, "open_model": {"source": 0}}


def test_an_app_says_why_a_run_cannot_be_opened(tmp_path, requests):
    run = foreign_run(tmp_path, models(tmp_path)[0])
    for controller in (CodesController(code_sources(run)), SearchController(search_sources(runs=run))):
        messages = [
            content
            for action in ("connect", "open_model")
            for content, _ in controller.handle({"action": action} | SOURCE[action])
        ]
        assert any(message["type"] == "error" and "trust_remote_code" in message["text"] for message in messages)
    assert not list(tmp_path.rglob("executed")) and requests == []


@pytest.mark.parametrize(
    "entry, message",
    [
        ({"function": "timeit:timeit", "args": {"stmt": "open('executed', 'w')"}}, "function"),
        (
            {"name": "timeit:timeit", "args": {"stmt": "open('executed', 'w')"}},
            "no evaluation 'timeit' in timeit, which registers none",
        ),
        ({"name": "theirs.Theirs"}, "no evaluation 'theirs.Theirs'"),
    ],
)
def test_an_evaluation_is_a_registered_name(entry, message, tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run = foreign_run(tmp_path, training_runs.MODEL, evaluate={"theirs": entry})
    with pytest.raises(ValueError, match=message):
        OPENINGS["launch"](run)
    assert not list(tmp_path.rglob("executed"))


@pytest.mark.parametrize("changes", [{"method": {"name": "theirs:theirs"}}, {"plan": "theirs:theirs"}])
def test_a_method_elsewhere_is_not_imported_from_a_folder(changes, tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run = foreign_run(tmp_path, training_runs.MODEL, **changes)
    with pytest.raises(ValueError, match="--allow-code theirs:theirs" if "method" in changes else "'plan'"):
        OPENINGS["launch"](run)
    assert not list(tmp_path.rglob("executed"))


def test_only_a_run_of_this_process_may_download(tmp_path):
    config = training_runs.config({"name": "clip", "args": {"steps": 2}}, training_runs.MODEL | {"codebook": None})
    run = prepare(tmp_path / "run", config)
    assert "--online" in command(run) and "--online" not in command(Run.open(run.path))


@pytest.mark.slow
def test_the_benchmarks_refuse_foreign_folders(tmp_path, experiment):
    clip = models(tmp_path)[0]["vision"].removeprefix("open_clip:")
    run = foreign_run(tmp_path / "study", {"vision": f"open_clip:{clip}", "text": f"open_clip:{clip}"})
    for number, name in enumerate((clip, str(run.path.parent))):
        result = experiment("experiments/benchmarks", tmp_path / f"out{number}", models=[name], only=["sugarcrepe"])
        assert not result.result.good and "trust_remote_code" in result.text
    assert not list(tmp_path.rglob("executed"))


class Pickled:
    """What a pickle does when it is read without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("library, file", [("open_clip", "open_clip_pytorch_model.bin"), ("timm", "pytorch_model.bin")])
def test_a_pickle_is_not_run(library, file, tmp_path, requests):
    """The lowest versions in settings.ini refuse pickles in a folder of their own accord; older ones run them."""
    folder = clip_folder(tmp_path / "theirs")
    (folder / "open_clip_model.safetensors").unlink()
    if library == "timm":
        (folder / "config.json").write_text(json.dumps({"architecture": "test_vit", "pretrained_cfg": {}}))
    torch.save({"state_dict": Pickled(tmp_path / "executed")}, folder / file)
    with pytest.raises(BadData, match="run code"):
        vision_tower(f"{library}:{folder}")
    assert not list(tmp_path.rglob("executed")) and requests == []
    requirements = configparser.ConfigParser()
    requirements.read(ROOT / "settings.ini")
    assert {"open_clip_torch>=3.0", "timm>=1.0.26"} <= set(requirements["DEFAULT"]["towers_requirements"].split())


# --- links, named pipes and devices in a folder


def plant_link(path, victim):
    path.symlink_to(victim)


def plant_folder_link(path, victim):
    path.symlink_to(victim.parent)


def plant_pipe(path, victim):
    os.mkfifo(path)


def plant_device(path, victim):
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # as /dev/zero: it has no end
    except OSError:
        pytest.skip("only root makes devices")


PLANTS = {"link": plant_link, "folder link": plant_folder_link, "pipe": plant_pipe, "device": plant_device}
KINDS = {"link": "is a link to", "folder link": "is a link to", "pipe": "is a named pipe", "device": "is a device"}


@pytest.fixture
def victim(tmp_path):
    """A user's file outside; whatever happens, it stays as it was, and nothing comes to stand beside it."""
    path = tmp_path / "mine" / "thesis.tex"
    path.parent.mkdir()
    path.write_text("nineteen pages\n")
    yield path
    assert path.read_text() == "nineteen pages\n" and os.listdir(path.parent) == ["thesis.tex"]


def put(path, plant, victim):
    """Put something that is no file where a folder's file was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    PLANTS[plant](path, victim)


def listing(folder):
    """What a folder holds, with the content of its files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else os.lstat(path).st_mode
        for path in sorted(folder.rglob("*"))
    }


RUN_NAMES = (
    "config.json", "SHA256SUMS", "metrics.jsonl", "tokenizer.json", "data.json", "lock", "log.txt", "done.json",
    "model_card.md", "phases",
    "phases/00-train.safetensors", "phases/SHA256SUMS", "checkpoints", "checkpoints/step-00000002",
    "checkpoints/step-00000002/model.safetensors", "checkpoints/step-00000002/state.json", "failed", "evil.tmp",
    ".phases.1.old", "notes",
)  # fmt: skip


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "clip-s0"
    config = training_runs.config(
        {"name": "clip", "args": {"steps": 3}}, training_runs.MODEL | {"codebook": None}, checkpoint_every=2
    )
    prepare(folder, config)
    launch(folder, progress=False)
    return folder


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", RUN_NAMES)
def test_what_is_no_file_in_a_run_folder_is_refused_by_name_before_anything_is_written(
    name, plant, small_run, victim, tmp_path
):
    run = Path(shutil.copytree(small_run, tmp_path / "clip-s0"))
    (run / "done.json").unlink()
    put(run / name, plant, victim)
    before = listing(run)
    for opening in (
        Run.open,
        functools.partial(launch, progress=False),
        lambda path: Snapshot(Run.open(path)).weights(),
    ):
        with pytest.raises(ForeignFile, match=KINDS[plant]) as error:
            opening(run)
        assert str(run / name) in str(error.value)
    assert listing(run) == before
    if (name, plant) != ("config.json", "folder link"):  # else it is no run's folder for `find`
        [found] = find(tmp_path)
        assert KINDS[plant] in found.problem


@pytest.mark.parametrize("plant", ["link", "pipe"])
def test_a_link_that_came_after_the_run_was_opened_is_not_written_through(plant, small_run, victim, tmp_path):
    run = Run.open(shutil.copytree(small_run, tmp_path / "clip-s0"))
    for name in ("log.txt", "lock", "metrics.jsonl"):
        put(run.path / name, plant, victim)
    with pytest.raises(ForeignFile, match="lock"), _hold_lock(run):
        pass
    with pytest.raises(ForeignFile, match="log.txt"):
        start(run, [sys.executable, "-c", "print('alias ls=rm')"], dict(os.environ))
    forks = Forks([sys.executable, "-c", "import sys; sys.stdin.read()"])
    with pytest.raises(ForeignFile, match="log.txt"):
        forks.start([], run.path / "log.txt")
    forks.close()
    with pytest.raises(ForeignFile, match=r"metrics\.jsonl"):
        run.log({"step": 1})


def test_a_file_with_a_second_name_is_read_and_not_written_to(small_run, victim, tmp_path):
    run = Run.open(shutil.copytree(small_run, tmp_path / "clip-s0"))
    os.link(victim, run.path / "log.txt")
    assert Run.open(run.path).done is not None and open_own(run.path, "log.txt").read() == "nineteen pages\n"
    for mode in ("a", "w", "r+b"):
        with pytest.raises(ForeignFile, match=r"log\.txt has 2 names \(hard links\)"):
            open_own(run.path, "log.txt", mode)


def test_a_run_behind_a_link_as_a_whole_is_a_run_like_any_other(small_run, tmp_path):
    """A user's results on another disk: the folder of runs is a link, and so is a run."""
    (tmp_path / "disk").mkdir()
    shutil.copytree(small_run, tmp_path / "disk" / "clip-s0")
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "one").symlink_to(tmp_path / "runs" / "clip-s0")
    for path in (tmp_path / "runs" / "clip-s0", tmp_path / "one"):
        (path / "done.json").unlink()
        assert launch(path, progress=False).done["step"] == 3 and Snapshot(path).weights()
    assert [run.path.name for run in find(tmp_path / "runs")] == ["clip-s0"]


def _graph(folder):
    parses = parse(["A red dog."], "rules", cache=False, progress=False)
    return write_graph(folder, build_graph(parses))


def _edits(folder):
    folder.mkdir()
    (folder / "words.csv").write_text("relation,part,words\n")
    _write_edits(folder)


def _decide(folder):
    append_decision(journal_path(folder / "negatives.jsonl"), Decision("a", "A red dog.", "A blue dog.", "accepted"))


def _edit(folder):
    edit_captions(
        [CaptionRow("A red dog chases a blue cat.", "a", "a")], folder / "made.jsonl", EditSettings(), progress=False
    )


def _correct(folder):
    write_correction(folder / "corrections.jsonl", parse(["A red dog."], "rules", cache=False, progress=False)[0], "")


OTHERS = {  # kind of folder -> what fills it, its names, what is done with it
    "graph": (_graph, ("graph.json", "parts.parquet", "notes"), read_graph),
    "model": (
        lambda folder: saved_model(folder),
        ("config.json", "model.safetensors", "tokenizer.json", "SHA256SUMS", "notes"),
        load_model,
    ),
    "decisions": (_edits, ("negatives.jsonl.decisions.jsonl",), _decide),
    "decisions read": (
        _edits,
        ("negatives.jsonl.decisions.jsonl",),
        lambda folder: read_decisions(journal_path(folder / "negatives.jsonl")),
    ),
    "edits": (_edits, ("made.jsonl", "made.jsonl.settings.json"), _edit),
    "corrections": (Path.mkdir, ("corrections.jsonl",), _correct),
    "corrections read": (
        Path.mkdir,
        ("corrections.jsonl",),
        lambda folder: read_corrections(folder / "corrections.jsonl"),
    ),
    "parses": (
        Path.mkdir,
        ("parses.sqlite", "parses.sqlite-journal", "parses.sqlite-wal"),
        lambda folder: ParseCache(folder).read([b"a"]),
    ),
    "text tower": (
        hf_folder,
        ("config.json", "vocab.txt", "model.safetensors"),
        lambda folder: text_tower(f"hf:{folder}"),
    ),
    "clip": (
        clip_folder,
        ("open_clip_config.json", "open_clip_model.safetensors", "vocab.txt"),
        lambda folder: load_open_clip(str(folder)),
    ),
    "generator": (
        hf_folder,
        ("config.json", "generation_config.json", "model.safetensors"),
        lambda folder: CausalGenerator(folder),
    ),
    "entailment": (hf_folder, ("config.json", "model.safetensors"), lambda folder: Entailment(folder)),
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("kind, name", [(kind, name) for kind, (_, names, _) in OTHERS.items() for name in names])
def test_what_is_no_file_in_any_other_folder_is_refused_by_name(kind, name, plant, victim, tmp_path, requests):
    make, _, use = OTHERS[kind]
    folder = tmp_path / "theirs"
    make(folder)
    if kind in ("edits",) and name.endswith("settings.json"):
        _edit(folder)
    put(folder / name, plant, victim)
    with pytest.raises((ForeignFile, BadData), match=f"{name} {KINDS[plant]}"):
        use(folder)
    assert requests == []


@pytest.mark.parametrize("plant", ["link", "pipe"])
def test_a_gallerys_index_holds_no_links_and_opens_no_pictures_elsewhere(plant, victim, tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "about.json").write_text(
        json.dumps({"format": 2, "ids": ["a"], "captions": [[]], "marks": [[str(victim), 1, 1]]})
    )
    for name, array in (("vectors", np.ones((1, 2), np.float32)), ("ends", np.array([3]))):
        np.save(tmp_path / "index" / f"{name}.npy", array)
    (tmp_path / "index" / "thumbs.bin").write_bytes(b"abc")
    with pytest.raises(BadData, match="give the pairs again"):
        Gallery.open(tmp_path / "index").image(0)
    put(tmp_path / "index" / "thumbs.bin", plant, victim)
    with pytest.raises(ForeignFile, match=f"thumbs.bin {KINDS[plant]}"):
        Gallery.open(tmp_path / "index")


def test_a_temporary_name_that_is_a_link_is_not_written_through(victim, tmp_path):
    temporary_path(tmp_path / "a.json").symlink_to(victim)
    write_bytes_atomic(tmp_path / "a.json", b"{}")
    (tmp_path / "b.json").symlink_to(victim)
    write_bytes_atomic(tmp_path / "b.json", b"{}")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes() == b"{}"
    assert not (tmp_path / "b.json").is_symlink()


def test_a_model_of_the_hubs_cache_has_links_to_its_blobs(tmp_path, victim):
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1f"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "c0ffee").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/c0ffee")
    check_own(snapshot, links=True)
    (blobs / "beef").symlink_to(victim)
    (snapshot / "vocab.txt").symlink_to("../../blobs/beef")
    with pytest.raises(ForeignFile, match=r"vocab\.txt is a link"):
        check_own(snapshot, links=True)


# --- data folders stay in themselves


def picture(path, colour="red"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), colour).save(path)
    return path


def ways_out(folder, secret):
    """Names of a picture outside: a path above, a whole path, a link."""
    (folder / "link.png").symlink_to(secret)
    return {"above": f"../{secret.name}", "whole": str(secret), "link": "link.png"}


def _folder(folder, name):
    (folder / "captions.csv").write_text(f"image,caption\ngood.png,a\n{name},b\n")
    return {"name": "folder", "args": {"folder": str(folder)}}


def _coco(folder, name):
    photos = [{"id": 1, "file_name": "good.png"}, {"id": 2, "file_name": name}]
    captions = [{"id": k, "image_id": k, "caption": "a"} for k in (1, 2)]
    (folder / "captions.json").write_text(json.dumps({"images": photos, "annotations": captions}))
    return {"name": "coco", "args": {"images": str(folder), "annotations": str(folder / "captions.json")}}


def _karpathy(folder, name):
    photos = [
        {"filename": file, "split": "train", "sentences": [{"raw": "a", "sentid": k}]}
        for k, file in enumerate(("good.png", name))
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": photos}))
    return {"name": "karpathy", "args": {"images": str(folder), "annotations": str(folder / "dataset.json")}}


def _flickr(folder, name):
    (folder / "token.txt").write_text(f"good.png#0\ta\n{name}#0\tb\n")
    return {"name": "flickr", "args": {"images": str(folder), "token_file": str(folder / "token.txt")}}


def _parquet(folder, name):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"image": ["good.png", name], "text": ["a", "b"]}), folder / "pairs.parquet")
    return {"name": "parquet", "args": {"path": str(folder)}}


def _hf(folder, name):
    datasets = pytest.importorskip("datasets")
    rows = {"image": [{"bytes": None, "path": path} for path in (str(folder / "good.png"), name)], "text": ["a", "b"]}
    datasets.Dataset.from_dict(rows).save_to_disk(folder / "set")
    (folder / "set" / "good.png").write_bytes((folder / "good.png").read_bytes())
    table = datasets.Dataset.from_dict(rows | {"image": [{"bytes": None, "path": path} for path in ("good.png", name)]})
    shutil.rmtree(folder / "set")
    table.save_to_disk(folder)
    return {"name": "hf", "args": {"dataset": str(folder)}}


def _labels(folder, name):
    (folder / "dog").mkdir()
    (folder / "dog" / "good.png").write_bytes((folder / "good.png").read_bytes())
    (folder / "dog" / "bad.png").symlink_to((folder / name).resolve())
    return {"name": "labels", "args": {"folder": str(folder)}}


TABLES = {
    "folder": _folder,
    "coco": _coco,
    "karpathy": _karpathy,
    "flickr": _flickr,
    "parquet": _parquet,
    "hf": _hf,
    "labels": _labels,
}


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("way", ["above", "whole", "link"])
@pytest.mark.parametrize("reader", TABLES)
def test_a_table_leads_to_no_picture_outside_its_folder(reader, way, tmp_path):
    folder = tmp_path / "theirs"
    secret = picture(tmp_path / "secret.png", "blue")
    picture(folder / "good.png")
    source = TABLES[reader](folder, ways_out(folder, secret)[way])
    with pytest.raises(BadData, match="leads out of"):
        read(source["name"], **source["args"])
    pairs = read(source["name"], **source["args"], max_bad=1.0)
    assert len(pairs) == 1 and "leads out of" in str(pairs.report)
    everything = read(source["name"], **source["args"], allow_outside=True)
    assert len(everything) == 2


def test_tables_and_shards_that_are_links_to_elsewhere_are_refused(tmp_path):
    folder = tmp_path / "theirs"
    picture(folder / "good.png")
    (tmp_path / "secret.csv").write_text("image,caption\ngood.png,my password\n")
    (folder / "captions.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(ForeignFile, match=r"captions\.csv' leads out"):
        read("folder", folder=str(folder))
    assert len(read("folder", folder=str(folder), allow_outside=True)) == 1
    assert len(read("folder", folder=str(folder), captions_file=str(tmp_path / "secret.csv"))) == 1  # a person named it
    (folder / "a.tar").symlink_to(tmp_path / "b.tar")
    (tmp_path / "b.tar").write_bytes(b"")
    for shards in (str(folder), str(folder / "*.tar")):
        with pytest.raises(ForeignFile, match=r"a\.tar' leads out"):
            read("webdataset", shards=shards)


def test_a_folder_of_pictures_behind_a_link_as_a_whole_is_read(tmp_path):
    _write_captions(tmp_path / "disk")
    (tmp_path / "photos").symlink_to(tmp_path / "disk")
    assert len(read("folder", folder=str(tmp_path / "photos"))) == len(read("folder", folder=str(tmp_path / "disk")))
    assert len(read_pictures(tmp_path / "photos")) == len(read_pictures(tmp_path / "disk"))


def test_a_runs_configuration_cannot_say_that_it_may_read_outside(tmp_path):
    folder = tmp_path / "theirs"
    secret = picture(tmp_path / "secret.png")
    picture(folder / "good.png")
    source = _folder(folder, str(secret))
    source["args"] |= {"allow_outside": True}
    run = foreign_run(tmp_path / "runs", training_runs.MODEL, data=source)
    with pytest.raises(Untrusted, match=r"config\.json: data says allow_outside, which only a person may say"):
        run_data(run)
    assert len(read(source["name"], **source["args"])) == 2


README = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: {path}
---
"""
AWAY = ("hf://datasets/owner/data/a.csv", "https://example.org/a.csv", "http://192.0.2.1/a.csv", "s3://bucket/a.csv")


@pytest.mark.parametrize("path", [*AWAY, "outside", "above", "link"])
def test_a_data_folders_readme_makes_no_request_and_reads_nothing_elsewhere(path, tmp_path, requests, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "secret.csv").write_text("image,text\na.png,my password\n")
    names = {"outside": str(tmp_path / "secret.csv"), "above": "../secret.csv", "link": "data.csv"}
    if path == "link":
        (folder / "data.csv").symlink_to(tmp_path / "secret.csv")
    (folder / "README.md").write_text(README.format(path=names.get(path, path)))
    with pytest.raises(BadData):
        read("hf", dataset=str(folder))
    assert requests == []


def test_an_honest_folder_of_tables_is_read(tmp_path, requests, monkeypatch):
    pytest.importorskip("datasets")
    folder = tmp_path / "ours"
    picture(folder / "a.png")
    (folder / "train.csv").write_text("image,text\na.png,a red square\n")
    (folder / "README.md").write_text(README.format(path="train.csv"))
    [pair] = read("hf", dataset=str(folder))
    assert pair.caption == "a red square" and requests == []


# --- parsers and generators


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    pytest.importorskip("spacy", reason="spacy is not installed")
    folder = tmp_path_factory.mktemp("pipeline") / "model"
    load_spacy().to_disk(folder)
    return folder


CONFIGS = {
    "a file elsewhere": (
        "before_creation = null",
        "",
        '[nlp.before_creation]\n@readers = "srsly.read_json.v1"\npath = "SECRET"\n',
        "readers",
    ),
    "labels elsewhere": (
        "before_creation = null",
        "",
        '[nlp.before_creation]\n@readers = "spacy.read_labels.v1"\npath = "SECRET"\n',
        "readers",
    ),
    "another package": ("[components.tagger]\n", '[components.tagger]\nsource = "evil"\n', "", "source is 'evil'"),
    "a package's component": ('factory = "tagger"', 'factory = "evil"', "", "factory is 'evil'"),
    "a package's architecture": ("spacy.Tagger.v2", "evil.Tagger.v2", "", "architectures is 'evil.Tagger.v2'"),
    "a callback": (
        "after_creation = null",
        "",
        '[nlp.after_creation]\n@callbacks = "evil.v1"\n',
        "callbacks is 'evil.v1'",
    ),
    "what another section says": (
        "before_creation = null",
        "before_creation = ${initialize.evil}",
        '[initialize.evil]\n@readers = "spacy.read_labels.v1"\npath = "SECRET"\n',
        "readers",
    ),
    "a language elsewhere": ('lang = "en"', 'lang = "evil"', "", "lang is 'evil'"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_spacy_folder_is_refused(name, pipeline, tmp_path, requests, monkeypatch):
    old, new, more, message = CONFIGS[name]
    folder = Path(shutil.copytree(pipeline, tmp_path / "theirs"))
    opened = []
    text = (folder / "config.cfg").read_text()
    assert old in text
    (folder / "config.cfg").write_text(
        text.replace(old, new, 1) + "\n" + more.replace("SECRET", str(tmp_path / "secret.json"))
    )
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "evil.py").write_text(CODE)
    (tmp_path / "evil-1.0.dist-info").mkdir()
    (tmp_path / "evil-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (tmp_path / "evil-1.0.dist-info" / "entry_points.txt").write_text("[spacy_factories]\nevil = evil:Theirs\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event == "open" else None)
    with pytest.raises(Untrusted, match=message):
        load_spacy(str(folder))
    assert not list(tmp_path.rglob("executed"))
    assert requests == []
    assert str(tmp_path / "secret.json") not in map(str, opened)


def test_a_package_of_the_working_directory_is_no_parser_model(tmp_path, monkeypatch):
    pytest.importorskip("spacy", reason="spacy is not installed")
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "__init__.py").write_text(CODE)
    (tmp_path / "evil-1.0.dist-info").mkdir()
    (tmp_path / "evil-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((RequestError, BadData)):
        load_spacy("evil")
    assert not list(tmp_path.rglob("executed"))


def test_an_honest_spacy_folder_opens_also_behind_a_link(pipeline, tmp_path, requests):
    (tmp_path / "mine").symlink_to(pipeline)
    assert load_spacy(str(tmp_path / "mine"))("A dog runs.")[1].tag_ == "NN" and requests == []


GENERATORS = {
    "an adapter of a model elsewhere": (
        {"adapter_config.json": {"base_model_name_or_path": "owner/model"}},
        Untrusted,
        "adapter_config",
    ),
    "code for the model": (
        {"config.json": {"model_type": "gpt2", "auto_map": {"AutoModelForCausalLM": "theirs.Theirs"}}},
        Untrusted,
        "auto_map",
    ),
    "code for the tokenizer": (
        {"config.json": {"model_type": "gpt2"}, "tokenizer_config.json": {"auto_map": ["theirs.Theirs", None]}},
        Untrusted,
        "auto_map",
    ),
    "an unknown kind": ({"config.json": {"model_type": "theirs"}}, BadData, "cannot be opened"),
    "nothing": ({}, BadData, "cannot be opened"),
    "a quantiser": (
        {"config.json": {"model_type": "gpt2", "quantization_config": {"quant_method": "theirs"}}},
        Untrusted,
        "quantization",
    ),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generators_folder_is_refused(name, tmp_path, requests):
    files, error, message = GENERATORS[name]
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "theirs.py").write_text(CODE)
    for file, values in files.items():
        (folder / file).write_text(json.dumps(values))
    with pytest.raises(error, match=message):
        CausalGenerator(folder)
    assert not list(tmp_path.rglob("executed")) and requests == []


def test_a_generators_pickle_is_not_run(tmp_path, requests):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 9})
    )
    torch.save({"wte.weight": Pickled(tmp_path / "executed")}, folder / "pytorch_model.bin")
    with pytest.raises(BadData):
        CausalGenerator(folder)
    assert not list(tmp_path.rglob("executed")) and requests == []


# --- checksums that are left out


def test_a_configuration_without_its_line_is_not_taken(small_run, tmp_path):
    run = Path(shutil.copytree(small_run, tmp_path / "clip-s0"))
    lines = (run / "SHA256SUMS").read_text().splitlines()
    (run / "SHA256SUMS").write_text("".join(f"{line}\n" for line in lines if not line.endswith("  config.json")))
    with pytest.raises(BadData, match=r"config\.json is not in SHA256SUMS.*--accept-config"):
        Run.open(run)


def test_a_run_whose_end_was_not_listed_is_ended_by_the_next_launch(small_run, tmp_path):
    """As a kill leaves it between done.json and its entry; and before the first entry of all."""
    run = Path(shutil.copytree(small_run, tmp_path / "clip-s0"))
    before = listing(run)
    lines = (run / "SHA256SUMS").read_text().splitlines()
    (run / "SHA256SUMS").write_text("".join(f"{line}\n" for line in lines if not line.endswith("  done.json")))
    assert Run.open(run).done is None
    launch(run, progress=False)
    now = listing(run)
    grows = ("lock", "model_card.md", "metrics.jsonl", "metrics.jsonl.parts.json")
    same = [name for name in before if name not in grows]
    assert {name: now[name] for name in same} == {name: before[name] for name in same}
    assert Run.open(run).done["step"] == 3
    fresh = prepare(tmp_path / "fresh", training_runs.config({"name": "clip", "args": {"steps": 3}}))
    (fresh.path / "SHA256SUMS").unlink()
    prepare(fresh.path, training_runs.config({"name": "clip", "args": {"steps": 3}}))
    assert "config.json" in (fresh.path / "SHA256SUMS").read_text()


def test_a_name_with_a_null_character_is_named(tmp_path):
    with pytest.raises(ForeignFile, match=r"holds a null character"):
        Inside(tmp_path)("a\0b.png")
    with pytest.raises(ForeignFile, match="leads out of"):
        own_path(tmp_path, "a\0b.png")


def test_a_person_may_follow_names_that_lead_outside_through_any_reader(tmp_path):
    "The notebook of benchmarks names `allow_outside`, and not all of its readers take it."
    for part in ("data", "elsewhere"):
        (tmp_path / part).mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "data" / "a.png").symlink_to(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "data" / "captions.csv").write_text("image,caption\na.png,a square\n")
    asked = {"retrieval": {"name": "folder", "args": {"folder": str(tmp_path / "data")}}}
    for follow in (False, True, False):
        with follow_outside(follow):
            if follow:
                assert len(read_bench(asked)["retrieval"].items()) == 1
                with offline("a run"), pytest.raises(ValueError, match="leads out of"):
                    read_bench(asked)
                with follow_outside(False):
                    assert len(read_bench(asked)["retrieval"].items()) == 1
            else:
                with pytest.raises(ValueError, match="leads out of .* say allow_outside=True if you trust the data"):
                    read_bench(asked)


# --- results are not written through links


FIGURE = go.Figure(go.Bar(y=[1, 2]), layout={"width": 300, "height": 200})
WRITTEN = ["loss.html", "plotly.min.js"]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_figure_is_not_written_through_a_link(name, tmp_path, victim, monkeypatch):
    monkeypatch.setattr(figures, "start_browser", lambda: "")
    monkeypatch.setattr(figures, "draw_png", lambda figure: b"picture")
    (tmp_path / "out" / "figures").mkdir(parents=True)
    (tmp_path / "out" / "figures" / name).symlink_to(victim)
    with pytest.raises(ForeignFile, match=f"{name} is a link to"):
        figures.save_figure(FIGURE, tmp_path / "out" / "figures", "loss")
    (tmp_path / "out" / "figures" / name).unlink()
    (tmp_path / "out" / "figures" / name).symlink_to(victim.parent / "new.tex")  # leads nowhere yet
    with pytest.raises(ForeignFile, match=f"{name} is a link to"):
        figures.save_figure(FIGURE, tmp_path / "out" / "figures", "loss")


def test_a_picture_of_a_figure_is_not_written_through_a_link(tmp_path, victim, monkeypatch):
    monkeypatch.setattr(figures, "start_browser", lambda: "")
    monkeypatch.setattr(figures, "draw_png", lambda figure: b"picture")
    (tmp_path / "loss.png").symlink_to(victim)
    with pytest.raises(ForeignFile, match="loss.png is a link to"):
        figures.save_figure(FIGURE, tmp_path, "loss")
    (tmp_path / "loss.png").unlink()
    assert figures.save_figure(FIGURE, tmp_path, "loss")[1].read_bytes() == b"picture"


def test_a_folder_of_figures_that_is_a_link_is_refused(tmp_path, victim):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "figures").symlink_to(victim.parent)
    with pytest.raises(ForeignFile, match="figures is a link to"):
        figures.save_figure(FIGURE, tmp_path / "out" / "figures", "loss")
    (tmp_path / "mine-too").symlink_to(tmp_path / "out")  # a person's own results on another disk
    (tmp_path / "out" / "figures").unlink()
    assert figures.save_figure(FIGURE, tmp_path / "mine-too" / "figures", "loss")[0].is_file()


def test_tokenizers_results_and_own_files_are_not_written_through_a_link(tmp_path, victim):
    tokenizer = WordTokenizer.fit(["a red circle"])
    (tmp_path / "tokenizer.json").symlink_to(victim)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert WordTokenizer.load(tmp_path / "tokenizer.json").words == tokenizer.words
    (tmp_path / "results.json").symlink_to(victim)
    Result({}, []).write(tmp_path)
    assert not (tmp_path / "results.json").is_symlink()
    (tmp_path / "sample.csv").symlink_to(victim)
    with pytest.raises(ForeignFile, match="sample.csv is a link to"):
        write_own(tmp_path, "sample.csv", b"a,b")


# --- patterns of a data folder's description


PATTERNS = {
    "an archive outside": "zip://SECRET.csv::{outside}/x.zip",
    "an archive above": "zip://SECRET.csv::../outside/x.zip",
    "a scheme": "file://{outside}/x.zip",
    "an archive": "{outside}/x.zip",
    "above": "../outside/x.zip",
    "a link": "inner.zip",
}


@pytest.mark.parametrize("form", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize("name", PATTERNS)
def test_an_archive_outside_is_not_opened(name, form, tmp_path, requests, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    with zipfile.ZipFile(tmp_path / "outside" / "x.zip", "w") as archive:
        archive.writestr("SECRET.csv", "image,text\na.png,my password\n")
    if name == "a link":
        (folder / "inner.zip").symlink_to(tmp_path / "outside" / "x.zip")
    text = README.format(path=PATTERNS[name].format(outside=tmp_path / "outside"))
    (folder / form).write_text(text if form == "README.md" else text.strip().strip("-"))
    opened = []
    is_on = [True]
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" and is_on[0] else None)
    with pytest.raises(ForeignFile, match="leads out of"):
        read("hf", dataset=str(folder))
    is_on[0] = False
    assert not [path for path in opened if path.endswith("x.zip")] and requests == []
