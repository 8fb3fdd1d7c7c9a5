"""Folders of strangers: whatever their configuration says, opening them runs nothing and requests nothing."""

import configparser
import json
import os
import socket
import subprocess
import sys

import pytest
import torch
import training_runs
from conftest import ROOT
from safetensors.torch import save_file

from complearn.analysis.codes.sources import code_sources
from complearn.apps.codes.controller import CodesController
from complearn.apps.search.controller import SearchController
from complearn.apps.search.sources import search_sources
from complearn.core.checksums import write_listed
from complearn.core.files import BadData
from complearn.core.runs import Run
from complearn.core.trust import Untrusted, check_plain, offline
from complearn.models.registry import build
from complearn.models.saving import load_model, save_model
from complearn.models.towers.factory import text_tower, vision_tower
from complearn.models.towers.openclip import load_open_clip
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot
from complearn.training.runs.sweep import command

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
    sizes = {"vocab_size": 15, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"} | sizes | (config or {})))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | (tokenizer or {})))
    (folder / "theirs.py").write_text(CODE)
    return folder


OPEN_CLIP = {
    "tokenizer code": ({"text": {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"trust_remote_code": True}}}, "trust_remote_code"),
    "tokenizer options": ({"text": {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"use_fast": True}}}, "tokenizer_kwargs.*'use_fast'"),
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
    (folder / file).write_text(json.dumps({"auto_map": {"AutoConfig": "theirs.Theirs", "AutoTokenizer": ["theirs.Theirs", None]}}))
    with pytest.raises(Untrusted, match=f"{file}.*'auto_map'"):
        load_open_clip(str(folder))
    assert not list(tmp_path.rglob("executed")) and requests == []


FOLDERS = {
    "code for the model": ("hf", {"config": {"auto_map": {"AutoModel": "theirs.Theirs"}}}, "config.json.*'auto_map'"),
    "code for the tokenizer": ("hf", {"tokenizer": {"auto_map": ["theirs.Theirs", None]}}, "tokenizer_config.json.*'auto_map'"),
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
    "transformers": ({"kind": "hf_vision", "config": {"model_type": "vit", "auto_map": {"AutoModel": "a.B"}}, "transform": {}}, "auto_map"),
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
        child = subprocess.run([sys.executable, "-c", f"import complearn; {CONNECT}"], capture_output=True, text=True, cwd=ROOT)
        assert "trust.Refused: no connection to '192.0.2.1'" in child.stderr
        [names] = torch.utils.data.DataLoader(Reaching(), num_workers=1)
        assert names == ["Refused"] and os.environ["HF_HUB_OFFLINE"] == "1"
    assert {name: os.environ.get(name) for name in before} == before


@pytest.mark.parametrize("value", ["a:b", "a.b", "../a", "/a", "http://a", "a\\b", {"auto_map": "a"}, [["a.b"]], {"x": [{"y": "a.b"}]}])
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
    (clip / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["theirs.Theirs", "theirs.Theirs"]}}))
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


HUB = ("open_clip:hf-hub:owner/model", "timm:hf-hub:owner/model", "timm:hf_hub:owner/model", "open_clip:local-dir:elsewhere")


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("name", HUB)
def test_only_a_person_names_a_model_of_the_hub_even_where_the_cache_has_it(opening, name, tmp_path, requests, monkeypatch):
    reached = []

    def reach(*arguments, **options):
        reached.append(arguments)
        raise InterruptedError

    open_clip, timm = pytest.importorskip("open_clip"), pytest.importorskip("timm")
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
            content for action in ("connect", "open_model") for content, _ in controller.handle({"action": action} | SOURCE[action])
        ]
        assert any(message["type"] == "error" and "trust_remote_code" in message["text"] for message in messages)
    assert not list(tmp_path.rglob("executed")) and requests == []


@pytest.mark.parametrize(
    "entry, message",
    [
        ({"function": "timeit:timeit", "args": {"stmt": "open('executed', 'w')"}}, "function"),
        ({"name": "timeit:timeit", "args": {"stmt": "open('executed', 'w')"}}, "no evaluation 'timeit:timeit'"),
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
