# What quickstart and run_tests share. Sourced with the root of the source tree as the current
# folder, under `set -euo pipefail`.
# shellcheck shell=bash
# shellcheck disable=SC2034  # the lists of packages are for those who source this

# What the program itself is built with.
BUILD_PACKAGES=(g++ cmake ninja-build libprotobuf-dev protobuf-compiler libboost-graph-dev
                nlohmann-json3-dev libcli11-dev libfmt-dev libopenblas-dev libeigen3-dev
                coinor-libcbc-dev)

# What else the tests and benchmarks need; python3 sums up test results and is the benchmarks'
# plain loop to compare with. With MPI the runtime's ranks may be on several hosts, which the program
# by itself has no need of.
TEST_PACKAGES=(libgtest-dev libgmock-dev libbenchmark-dev libopenmpi-dev openmpi-bin python3)
# The report's page is tested in a real browser, which Debian has as a package (some 80 MB to fetch).
# Ubuntu's is an empty one; there the test runs where a Chromium was installed by hand.
if grep -qx 'ID=debian' /etc/os-release 2>/dev/null; then TEST_PACKAGES+=(chromium); fi

# The sanitizers' builds are clang's: it sees what g++ does not warn of, and takes two thirds of
# g++'s time for them.
SANITIZER_PACKAGES=(clang libclang-rt-dev)

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$1" >&2
  shift
  [[ $# -eq 0 ]] || printf '    %s\n' "$@" >&2
  exit 1
}

is_installed() {
  local status
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) || return 1
  [[ $status == installed ]]
}

# Mirrors have hiccups, and a fresh machine may still be installing its own updates.
apt_get() {
  local as_root=() try
  [[ $(id -u) -eq 0 ]] || as_root=(sudo)
  for try in 1 2 3; do
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get --quiet --yes -o DPkg::Lock::Timeout=300 "$@" </dev/null && return 0
    [[ $try -eq 3 ]] || { say "apt-get $1 failed; trying again"; sleep $((5 * try)); }
  done
  return 1
}

# require_packages NAME...: installs those that are missing, and says so before it does.
require_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "This is no Debian or Ubuntu: taking it that what these packages hold is here: $*"
    return
  fi
  local missing=() package
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
    die "these packages are missing, and neither root nor sudo is here to install them" \
      "ask somebody who may to run: apt-get install ${missing[*]}"
  fi
  say "Will install with apt-get, and what they depend on: ${missing[*]}"
  apt_get update || die "apt-get update failed three times" "is the network up?"
  apt_get install --no-install-recommends "${missing[@]}" ||
    die "apt-get install failed three times" "what it said stands above"
}

# Debian 12 has CMake 3.25, Ubuntu 24.04 has 3.28.
require_cmake() {
  command -v cmake >/dev/null || die "cmake is not here" "install CMake 3.25 or newer"
  local version
  version=$(cmake --version | sed -n '1s/.* \([0-9][0-9.]*\).*/\1/p')
  [[ $(printf '%s\n' 3.25 "$version" | sort --version-sort | head -n 1) == 3.25 ]] ||
    die "CMake $version is too old: 3.25 or newer is needed" \
      "Debian 12, Ubuntu 24.04 and later ones have it"
}

# configure PRESET [CMAKE-FLAG...]: starts afresh where the build folder was made for a source tree
# at another place, which CMake would refuse.
configure() {
  local preset=$1 fresh=() cache="build/$1/CMakeCache.txt"
  shift
  if [[ -f $cache ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" "$cache"; then
    fresh=(--fresh)
  fi
  cmake --preset "$preset" "${fresh[@]}" "$@" || die "cannot configure the preset $preset"
}

# build PRESET [NINJA-FLAG...]
build() {
  local preset=$1
  shift
  say "Building the preset $preset with $(nproc) jobs"
  cmake --build --preset "$preset" --parallel "$(nproc)" "$@" ||
    die "cannot build the preset $preset"
}
