# Everything runs inside .venv, which the targets make themselves from Python and pip alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIMES := .runtimes
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-runtimes lint types imports check clean
