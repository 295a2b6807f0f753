# Every target makes .venv and installs what it needs, once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: demo test test-heavy lint bench clean

.venv/bin/python:
	$(PYTHON) -m venv .venv

# One stamp a set of extras: made again when the project's needs change.
.venv/.installed-%: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@

demo: .venv/.installed-demo
	$(BIN)/adats demo --out out

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -q -n 2

# A browser for the tests of pages: the machine's, Playwright's own, or Debian's.
.venv/.browser: .venv/.installed-heavy
	-command -v chromium || $(BIN)/playwright install chromium || \
	(apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium)
	@touch $@

# What is heavy; and Hypothesis with a fresh seed, which repeats it: SEED=... make test-heavy
test-heavy: .venv/.installed-heavy .venv/.browser
	$(BIN)/pytest -q -m heavy
	@seed=$${SEED:-$$($(BIN)/python -c "import secrets; print(secrets.randbits(32))")}; \
	echo "Hypothesis seed: $$seed"; \
	ADATS_HYPOTHESIS=fresh $(BIN)/pytest -q -n 2 -m "hypothesis and not heavy" --hypothesis-seed=$$seed

bench: .venv/.installed-bench
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
