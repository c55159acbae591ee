#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What run.sh and test.sh begin with: installs the packages that this machine lacks (Debian 12, Ubuntu 24.04), configures, builds; prints the build folder.
#   scripts/setup.sh [--no-install] [--build DIR] PRESET [TARGET...]
# --no-install   packages are managed by you: nothing is installed, what is lacking is said
# --build DIR    an already configured build folder, instead of build/PRESET
# SMLA_CUDA_ARCHS, if set, replaces the preset's list. Exit 3: something is lacking, and which.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)

# Names of Debian 12. Ubuntu 24.04 has the same ones (in `universe`).
packages=(cmake ninja-build g++ git python3 catch2 libbenchmark-dev libcli11-dev libeigen3-dev libfccp-dev libfmt-dev libtomlplusplus-dev nlohmann-json3-dev)

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 3; }

install=yes build=
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) install=no; shift ;;
    --build) build=${2?--build needs a folder}; shift 2 ;;
    -h|--help) sed -n '3,/^[^#]/s/^# //p' "$0"; exit 0 ;;
    -*) die "unknown flag $1 (known: --no-install, --build DIR, --help)" ;;
    *) break ;;
  esac
done
preset=${1?setup.sh needs a preset}; shift

require_tools() {
  local tool lacking=
  for tool in cmake ninja g++ git python3; do command -v "$tool" >/dev/null || lacking+=" $tool"; done
  [ -z "$lacking" ] || die "not found:$lacking"
}

lacking_packages() {
  local package
  for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
  done
}

install_packages() {
  local lacking as_root=
  lacking=$(lacking_packages)
  [ -n "$lacking" ] || return 0
  if [ $install = no ]; then
    say "not installed as packages: $lacking"
    return 0
  fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "neither root nor sudo. Have an administrator run: apt-get install $lacking  (or pass --no-install if you have them in another form)"
    as_root=sudo
  fi
  . /etc/os-release
  case "${ID-}-${VERSION_ID-}" in
    debian-12|ubuntu-24.04) ;;
    *) say "${PRETTY_NAME-this system} is neither Debian 12 nor Ubuntu 24.04: trying their package names" ;;
  esac
  say "installing $lacking"
  # shellcheck disable=SC2086  # lists of words
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $lacking >&2 ||
    die "apt-get could not install: $lacking"
}

if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
  install_packages
else
  say "no apt on this system: what these Debian packages hold must be here: ${packages[*]}"
fi
require_tools

command -v nvcc >/dev/null || [ ! -x /usr/local/cuda/bin/nvcc ] || PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || say "no nvcc (CUDA 13 is built in CI): the CUDA kernels are left out"
if [ -z "$build" ]; then
  build=$top/build/$preset
  options=()
  [ -n "${CI-}" ] || options+=(-DSMLA_WERROR=OFF)   # another compiler than CI's may warn of more
  [ -z "${SMLA_CUDA_ARCHS-}" ] || options+=("-DSMLA_CUDA_ARCHS=$SMLA_CUDA_ARCHS")
  (cd "$top" && cmake --preset "$preset" "${options[@]}") >&2 || die "could not configure: see above"
fi
cmake --build "$build" ${1:+--target "$@"} >&2 || die "could not build: see above"
printf '%s\n' "$build"
