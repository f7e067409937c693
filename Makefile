# `make demo` and `make test` do all set-up by themselves, inside this folder.
PYTHON ?= python3
DEMO := .venv
TEST := .venv-test
PIP := -m pip --disable-pip-version-check install --quiet

.PHONY: demo test test-quick test-long lint docs clean

demo: $(DEMO)/installed
	$(DEMO)/bin/pairton reconstruct

test: lint docs test-quick

lint: $(TEST)/installed
	$(TEST)/bin/ruff check .
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/mypy

# the pages of docs/ as a site in site/; a broken link or reference is an error. To look at it: python -m http.server -d site
docs: $(TEST)/installed
	NO_MKDOCS_2_WARNING=1 $(TEST)/bin/mkdocs build --strict

test-quick: $(TEST)/installed
	$(TEST)/bin/python -m pytest -m "not long" -n 2 $(PYTEST)

# what takes longer than the quick suite allows: trainings, simulations, a compiled C++ program, soaks
test-long: $(TEST)/installed $(TEST)/coffea $(TEST)/atheris $(TEST)/old-runtime/installed $(TEST)/floor-runtime $(TEST)/headers
	PAIRTON_OLD_RUNTIME=$(CURDIR)/$(TEST)/old-runtime/bin/python \
	PAIRTON_FLOOR_RUNTIME=$(CURDIR)/$(TEST)/floor-runtime \
	ONNXRUNTIME_INCLUDE=$${ONNXRUNTIME_INCLUDE:-$(CURDIR)/$(TEST)/headers/usr/include/onnxruntime} \
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

# the fuzzer, where there is a build of it (Linux); elsewhere its tests are skipped
$(TEST)/atheris: $(TEST)/installed
	-$(TEST)/bin/python $(PIP) atheris
	touch $@

# the oldest ONNX Runtime that must load what we export
$(TEST)/old-runtime/installed: $(TEST)/installed
	$(PYTHON) -m venv $(TEST)/old-runtime
	$(TEST)/old-runtime/bin/python $(PIP) "onnxruntime==1.17.*" "numpy<2"
	touch $@

# the oldest ONNX Runtime that pyproject.toml allows: models must not reach other files with it either
$(TEST)/floor-runtime: $(TEST)/installed
	$(TEST)/bin/python $(PIP) --no-deps --target $@ "onnxruntime==1.24.3"

# headers for the C++ program, from Debian 13 or newer; elsewhere ONNXRUNTIME_INCLUDE names them, or its test is skipped
$(TEST)/headers: $(TEST)/installed
	mkdir -p $@.deb
	cd $@.deb && { apt-get download -qq libonnxruntime-dev && dpkg -x libonnxruntime-dev_*.deb . ; } >/dev/null 2>&1 || true
	mv $@.deb $@

clean:
	rm -rf $(DEMO) $(TEST) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
