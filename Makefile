# demo   train CLIP, Codebook-CLIP and IL-CLIP on generated scenes and write a report (minutes, no GPU)
# test   style, export and clean agreement, the notebooks (but the benchmarks), the quick tests: what to run before every commit
# test-all  the same and the slow tests: kills, real data, wide grids
# lab    JupyterLab with everything installed
# docs   the documentation as a web site, in _docs, without a network
# reports  the measured studies drawn into their notebooks
# bench  the benchmark notebooks: speed and memory on this machine
# gpu    the tests that need a CUDA device, then the benchmarks on it at the papers' sizes
# gpu-study  studies that are made for a GPU: the main study again, and iterated learning near the paper's sizes
#
# All share one .venv, made with the system's python3 and brought up to date only when constraints.txt or settings.ini change.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# pip --quiet leaves out why an installation failed, and a failed rule says so; WANTED is what its target installs
INSTALL = $(PIP) install --quiet -c constraints.txt -e $(WANTED) || \
	{ echo "the installation failed; this says why: $(BIN)/python -m pip install -c constraints.txt -e $(WANTED)" >&2; exit 1; }
STAMP := $(shell date +%Y%m%d-%H%M%S)
OUT ?= $(CURDIR)/reports/demo-$(STAMP)
PRESET ?= full
BENCHMARKS ?= $(basename $(notdir $(wildcard nbs/benchmarks/*.ipynb)))
# those in which a GPU has a part
ON_GPU := contrastive decoding evaluation matchmap readout recursion rendering search simclr step
GPU_PRESET ?= paper
# of iterated learning near the paper's sizes, which has 90,000; and the processes that draw its pictures
STEPS ?= 9000
DRAWERS ?= $(shell nproc 2>/dev/null || echo 2)
STUDY_OUT ?= $(CURDIR)/reports/gpu-study
# parameters of the confirmatory study, which gpu-study repeats
CONFIRMATORY := -p preset full -p steps 2000 -p data_args '{"shapes": 8, "colours": 8, "relations": ["left of", "above"], "n_train": 30000}' -p switches '{"train": {"captions_too": true, "every": 200, "checkpoint_every": 400, "keep": 6}}' -p sweep '["clip", "codebook_clip", "codebook_restarts"]' -p seeds "[12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31]"
WORKERS ?= 2
# one thread each: two workers, and what they start, share two cores
RUN_TESTS := COMPLEARN_TYPECHECK=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
BIOME := @biomejs/biome@2.6.8
AXE := axe-core@4.14.1
SITE ?= $(CURDIR)/_docs
BENCH_OUT ?= $(CURDIR)/reports/bench-$(STAMP)
# notebook:study, of data/measured
REPORTS := lipschitz:lipschitz purity:purity iterated_learning:iterated learnability:learnability classification:classification identifiability:identifiability structural_worlds:structural_worlds hard_negatives:hard_negatives overlap:overlap concept_graph:concept_graph composer:composer caption_edits:caption_edits multistage:multistage multistage_clip:multistage_clip semantic_space:semantic_space grounding:relation_losses masked_language_model:masked_language_model grounded_words:grounding search:search holistic_language:holistic_language hue_names:hue_names slider_control:slider_control stages_control:stages_control tree_control:tree_control steps_to_binding:steps_to_binding benchmarks:judged/scenes
EXPERIMENT := nbs/experiments/iterated_learning.ipynb
export JUPYTER_PREFER_ENV_PATH := 1

.PHONY: help demo test test-all lab docs reports bench gpu gpu-study readme constraints say-demo say-test say-test-all say-lab say-docs say-reports say-bench say-gpu say-gpu-study has-gpu release faults

help:
	@sed -n '1,11s/^# \{0,1\}//p' Makefile

# --- the environment: each stamp is newer than constraints.txt and settings.ini once its extras are installed
.venv/.base: WANTED := .
.venv/.base: constraints.txt settings.ini
	@echo "installing the base into .venv (once; some minutes, most of it torch)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(INSTALL)
	@touch $@

.venv/.dev: WANTED := '.[dev,towers,readers,offline,parsers]'
.venv/.dev: .venv/.base
	@echo "installing the extras dev, towers, readers, offline and parsers into .venv"
	@$(INSTALL)
	@if command -v npm >/dev/null && npm install --silent --no-save --fetch-retries 0 --prefix .venv $(BIOME) $(AXE) >/dev/null 2>&1; \
	then true; else echo "no npm, or it cannot install $(BIOME) and $(AXE): style of JavaScript and CSS and accessibility are not checked"; fi
	@touch $@

.venv/.lab: WANTED := '.[lab]'
.venv/.lab: .venv/.dev
	@echo "installing the extra lab into .venv"
	@$(INSTALL)
	@touch $@

# --- what a user runs: each first says what it will do
# The kernel of nbs/kernels writes errors alone. The renderer puts plotly's script into the report, so that its figures open in a browser without a network.
demo: say-demo .venv/.base
	@mkdir -p "$(OUT)"
	@JUPYTER_PATH="$(CURDIR)/nbs" PLOTLY_RENDERER=plotly_mimetype+notebook $(BIN)/python -m papermill $(EXPERIMENT) "$(OUT)/report.ipynb" -k python3 -p preset demo -p out_dir "$(OUT)"
	@$(BIN)/python -c 'import sys; from complearn.analysis.runs.notebook_page import write_notebook_page; write_notebook_page(sys.argv[1])' "$(OUT)/report.ipynb"
	@echo
	@$(BIN)/python -m complearn report "$(OUT)" --title "Iterated learning, demo" | sed 's/^the report: /the report:  /'
	@echo "in full:     $(OUT)/report.html  (as a notebook: report.ipynb)"
	@echo "the numbers: $(OUT)/results.json"
	@echo "the figures: $(OUT)/figures/"
	@sed -n 's/.*figures are saved as HTML only: \([^"\\]*\).*/left out:    figures as PNG: \1/p' "$(OUT)/report.ipynb" 2>/dev/null | sed -n 1p || true

say-demo:
	@echo "make demo: trains CLIP, Codebook-CLIP and IL-CLIP on generated scenes (preset demo: minutes on two cores, no GPU),"
	@echo "judges them on compositional hard negatives, and writes a report with its figures to"
	@echo "  $(OUT)"
	@echo "Stopped half way, it goes on with: make demo OUT=$(OUT)"

test: say-test .venv/.dev
	@$(RUN_TESTS) -m "not slow" $(PYTEST)

say-test:
	@echo "make test: style, export and clean agreement, the notebooks, then the quick tests; the last line says how it went"

test-all: say-test-all .venv/.dev
	@$(RUN_TESTS) $(PYTEST)

say-test-all:
	@echo "make test-all: what make test runs, and the slow tests: kills, real data, wide grids; the last line says how it went"

lab: say-lab .venv/.lab
	@$(BIN)/python -m jupyter lab nbs

say-lab:
	@echo "make lab: opens JupyterLab on nbs/"

docs: say-docs .venv/.base
	@$(BIN)/python docs/build.py "$(SITE)"

say-docs:
	@echo "make docs: builds guides, API and notebooks as a web site (no network) in"
	@echo "  $(SITE)"

reports: say-reports .venv/.dev
	@for pair in $(REPORTS); do \
	  $(BIN)/python -m complearn.analysis.claims.reports "nbs/experiments/$${pair%%:*}.ipynb" "data/measured/$${pair##*:}.results.json"; \
	done
	@$(BIN)/python -m complearn.analysis.claims.reports nbs/experiments/claims.ipynb --figure claims-light nbs/images/claims-light.png --figure claims-dark nbs/images/claims-dark.png
	@$(BIN)/python -m complearn.analysis.claims.reports nbs/experiments/ablations.ipynb data/measured/iterated.results.json --figure differences nbs/images/iterated.png
	@$(BIN)/python -m complearn.analysis.claims.reports nbs/index.ipynb
	@$(BIN)/nbdev_clean
	@$(BIN)/python docs/build.py --readme

say-reports:
	@echo "make reports: draws each measured study of data/measured into its notebook, the table of claims and README, without training"

bench: say-bench .venv/.dev
	@mkdir -p "$(BENCH_OUT)"
	@for name in $(BENCHMARKS); do \
	  mkdir -p "$(BENCH_OUT)/$$name"; \
	  $(BIN)/python -m papermill "nbs/benchmarks/$$name.ipynb" "$(BENCH_OUT)/$$name/report.ipynb" -k python3 -p preset $(PRESET) -p out_dir "$(BENCH_OUT)/$$name"; \
	done
	@echo "the reports: $(BENCH_OUT)"

say-bench:
	@echo "make bench: runs the benchmark notebooks on this machine (PRESET=smoke for a quick look) and writes them to"
	@echo "  $(BENCH_OUT)"

gpu: say-gpu .venv/.dev has-gpu
	@COMPLEARN_TYPECHECK=1 $(BIN)/python -m pytest -m gpu $(PYTEST)
	@$(MAKE) --no-print-directory bench PRESET=$(GPU_PRESET) BENCHMARKS="$(ON_GPU)" BENCH_OUT="$(BENCH_OUT)"
	@$(MAKE) --no-print-directory bench PRESET=full BENCHMARKS=step BENCH_OUT="$(BENCH_OUT)/small"

say-gpu:
	@echo "make gpu: the tests that need a CUDA device, then the benchmarks on it at the papers' sizes, and a step of small"
	@echo "towers, alone and of several seeds at once"

# a stopped one goes on: run directories, results files and lessons resume
gpu-study: say-gpu-study .venv/.dev has-gpu
	@mkdir -p "$(STUDY_OUT)"
	@$(BIN)/python -m papermill nbs/experiments/ablations.ipynb "$(STUDY_OUT)/again.ipynb" -k python3 $(CONFIRMATORY) -p stacked 20 -p out_dir "$(STUDY_OUT)/again"
	@$(BIN)/python -m papermill nbs/experiments/learnability.ipynb "$(STUDY_OUT)/newcomers.ipynb" -k python3 -p preset full -p runs "$(STUDY_OUT)/again" -p teachers last -p text_seeds "[0,1]" -p lesson_steps 800 -p out_dir "$(STUDY_OUT)/newcomers"
	@$(BIN)/python -m papermill $(EXPERIMENT) "$(STUDY_OUT)/near-paper.ipynb" -k python3 -p preset paper -p methods '["il_clip"]' -p steps $(STEPS) -p switches '{"train": {"workers": $(DRAWERS)}}' -p out_dir "$(STUDY_OUT)/near-paper-$(STEPS)"
	@$(BIN)/python -m papermill nbs/experiments/lipschitz.ipynb "$(STUDY_OUT)/near-paper-lipschitz.ipynb" -k python3 -p preset paper -p runs "$(STUDY_OUT)/near-paper-$(STEPS)" -p out_dir "$(STUDY_OUT)/near-paper-$(STEPS)-lipschitz"
	@$(BIN)/python -m papermill nbs/experiments/learnability.ipynb "$(STUDY_OUT)/near-paper-learnability.ipynb" -k python3 -p preset paper -p runs "$(STUDY_OUT)/near-paper-$(STEPS)" -p teachers last -p text_seeds "[0]" -p lesson_steps 800 -p out_dir "$(STUDY_OUT)/near-paper-$(STEPS)-learnability"
	@echo "the reports: $(STUDY_OUT)"

say-gpu-study:
	@echo "make gpu-study: on a GPU, the runs of the confirmatory study again (20 worlds at once), with newcomers; then iterated"
	@echo "learning on 3 million captions at 224 pixels with 16,384 codes (STEPS=$(STEPS); DRAWERS=$(DRAWERS) processes draw pictures),"
	@echo "its Lipschitz bounds and newcomers, to"
	@echo "  $(STUDY_OUT)"
	@echo "Stopped half way, it goes on with the same STEPS and DRAWERS."

has-gpu:
	@$(BIN)/python -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'there is no usable CUDA device here')"

# --- for who works on the project
readme: .venv/.dev
	@$(BIN)/python docs/build.py --readme

# the counts of docs/faults.md: kills, damage, broken input, two at once, served apps, older versions, half an hour of work
faults: export COMPLEARN_FAULTS := $(CURDIR)/data/measured/faults.json
faults: .venv/.dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_damage.py tests/test_core_journals.py tests/test_core_checksums.py tests/test_old_runs.py
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/slow/test_killed_writers.py tests/slow/test_killed_children.py tests/slow/test_killed_runs.py tests/slow/test_fuzz_readers.py tests/slow/test_served_apps.py
	@OMP_NUM_THREADS=1 COMPLEARN_SOAK_MINUTES=30 COMPLEARN_SOAK_PAGES=200 $(BIN)/python -m pytest -q -o faulthandler_timeout=10800 tests/slow/test_soak.py
	@$(BIN)/python docs/faults.py

# wheel, sdist, documentation, bill of materials and checksums in dist; known faults of what is pinned, by pip-audit
release: .venv/.dev
	@$(BIN)/python docs/release.py --audit
	@$(BIN)/python docs/release.py dist

# in a .venv that holds nothing but what the Makefile installs
constraints: .venv/.dev
	@$(PIP) freeze --exclude-editable > constraints.txt
