# `make demo` and `make test` do all set-up by themselves, inside this folder.
PYTHON ?= python3
DEMO := .venv
TEST := .venv-test
PIP := -m pip --disable-pip-version-check install --quiet

.PHONY: demo test test-quick test-long lint clean

demo: $(DEMO)/installed
	$(DEMO)/bin/pairton reconstruct

test: lint test-quick

lint: $(TEST)/installed
	$(TEST)/bin/ruff check .
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/mypy

test-quick: $(TEST)/installed
	$(TEST)/bin/python -m pytest -m "not long"

# what takes longer than the quick suite allows: trainings, simulations, a compiled C++ program, soaks
test-long: $(TEST)/installed $(TEST)/coffea
	$(TEST)/bin/python -m pytest -m long

# The environments are rebuilt when what they install changes; sources are not copied into the test one.
$(DEMO)/installed: pyproject.toml constraints.txt $(shell find src -type f -not -name '*.pyc')
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python $(PIP) -c constraints.txt .
	touch $@

$(TEST)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TEST)
	$(TEST)/bin/python $(PIP) -c constraints.txt -e ".[test]"
	touch $@

# only the example in docs/coffea.md needs it
$(TEST)/coffea: $(TEST)/installed
	$(TEST)/bin/python $(PIP) -c constraints.txt coffea
	touch $@

clean:
	rm -rf $(DEMO) $(TEST) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
