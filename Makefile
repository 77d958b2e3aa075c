# SPDX-License-Identifier: Apache-2.0
# The commands of weir, in front of meson and ninja. Needs GNU make.
#
#   make build         build/weir, build/weir-sim, build/libweir.so and .a
#   make check         installs what is missing, builds, runs every test
#   make check-verbs   the verbs device in a VM, or DEVICE=mlx5_0 on this machine; in check too
#   make check-packages  Debian's packages, built and tried on a system of their own; in check too
#   make bench         builds, measures this machine
#   make fuzz          fuzzes every parser for FUZZ_SECONDS each
#   make install       PREFIX (/usr/local), DESTDIR
#   make deb           Debian's packages of this tree, in build-deb
#   make site          the documentation as pages, build/site/index.html
#   make abi           notes the interface that later libraries are compared with: CONTRIBUTING.md
#   make format        rewrites the tree; format-check only complains
.PHONY: build check check-verbs check-packages deb site bench fuzz install abi format format-check clean

PREFIX = /usr/local
DESTDIR =
FUZZ_SECONDS = 600
BUILD = build

build:
	@sh scripts/deps.sh build
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD) --prefix=$(PREFIX)
	@ninja -C $(BUILD) --quiet

check:
	@bash scripts/check.sh

check-verbs:
	@sh scripts/deps.sh check
	@bash scripts/check-verbs.sh

check-packages:
	@bash scripts/check-packages.sh

deb:
	@sh scripts/deps.sh deb
	@sh packaging/deb.sh

site:
	@sh scripts/deps.sh site
	@/usr/bin/python3 docs/site/site.py . $(BUILD)/site
	@echo "$(abspath $(BUILD)/site/index.html)"

bench:
	@sh scripts/deps.sh bench
	@$(MAKE) build
	@sh bench/run.sh $(BUILD)

fuzz:
	@sh scripts/deps.sh check
	@sh scripts/fuzz.sh $(FUZZ_SECONDS)

install: build
	@meson configure $(BUILD) -Dprefix=$(PREFIX)
	@meson install -C $(BUILD) $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))
	@DESTDIR=$(DESTDIR) sh $(BUILD)/packaging/installed.sh

abi:
	@sh scripts/deps.sh check
	@$(MAKE) build
	@sh packaging/abi/dump.sh $(BUILD)/libweir.so

format:
	@git ls-files -co --exclude-standard '*.[ch]' | xargs clang-format -i

format-check:
	@sh tests/structure/format.sh .

clean:
	rm -rf --one-file-system build build-asan build-tsan build-fuzz build-deb
