# SPDX-License-Identifier: Apache-2.0
# make build       the program: build/release/bin/pentatron
# make cuda        the program with its CUDA library, fetching a compiler where there is none
# make test        builds and runs the default CPU tests
# make test-all    the slow ones: parity sweep, reference tests, fuzzers
# make test-models every model family against Hugging Face's transformers
# make quickstart  from nothing to a trained GPT that talks
# make docs        API pages of the public headers: build/api/html/index.html
# make checks      format, layers, sizes, licence lines, tidy
.PHONY: help packages deps configure build cuda test test-all test-models quickstart docs checks clean
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
CTEST_ARGS ?=
# For the configuration, e.g. -DPENTATRON_WERROR=ON
CMAKE_ARGS ?=

help:
	@sed -n '2,10p' Makefile | sed 's/^# //'

packages:
	@tools/setup/install_packages.sh

deps: packages
	@tools/setup/fetch_deps.sh

configure: deps
	@mkdir -p build && { cmake --preset $(PRESET) $(CMAKE_ARGS) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }; }

build: configure
	@cmake --build $(BUILD) --target pentatron_program -j $(JOBS)

cuda: deps
	@tools/setup/fetch_cuda.sh
	@mkdir -p build && { cmake --preset $(PRESET) -DPENTATRON_CUDA=ON >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }; }
	@cmake --build $(BUILD) --target pentatron_program pentatron_cuda -j $(JOBS)

test: configure
	@cmake --build $(BUILD) -j $(JOBS)
	@cd $(BUILD) && ctest -L cpu --output-on-failure --no-tests=error $(CTEST_ARGS)

test-all: configure
	@cmake --build $(BUILD) -j $(JOBS)
	@tools/setup/install_packages.sh tools/setup/packages_checks.txt
	@tools/reference/setup.sh
	@cd $(BUILD) && ctest -L 'reference|slow' --output-on-failure --no-tests=error $(CTEST_ARGS)

test-models: configure
	@cmake --build $(BUILD) -j $(JOBS) --target pentatron_program logits_tool
	@tools/reference/setup.sh
	@cd $(BUILD) && ctest -L models --output-on-failure --no-tests=error $(CTEST_ARGS)

quickstart: build
	@tools/quickstart/run.sh

docs:
	@tools/setup/install_packages.sh tools/setup/packages_checks.txt
	@tools/docs/api_pages.sh

checks:
	@tools/setup/install_packages.sh tools/setup/packages_checks.txt
	@tools/checks/run.sh

clean:
	@rm -rf build
