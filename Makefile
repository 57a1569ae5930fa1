# Everything a newcomer needs is `make demo` and `make test`; see CONTRIBUTING.md for the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
