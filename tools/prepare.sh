# Sourced by ./demo and ./test: installs missing Debian packages after consent, and builds with output to a log.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
mkdir -p build
slm_log="build/${0##*/}.log"
: >"$slm_log"

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# Runs a command with output to the log. Shows the end of the log if it fails.
quietly() {
  printf '\n$ %s\n' "$*" >>"$slm_log"
  "$@" >>"$slm_log" 2>&1 && return 0
  tail -n 40 "$slm_log" >&2
  fail "failed: $* (the whole log: $slm_log)"
}

has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() { printf '#include <%s>\n' "$1" | c++ -std=c++20 -x c++ -E - >/dev/null 2>&1; }
has_pip() { python3 -m pip --version >/dev/null 2>&1; }
has_venv() { python3 -m ensurepip --version >/dev/null 2>&1; }
has_module() { python3 -c "import $1" || /usr/bin/python3 -c "import $1"; } >/dev/null 2>&1
has_fuzzer() { printf 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }\n' |
  clang++ -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null >/dev/null 2>&1; }

# need PACKAGE CHECK ARGUMENT: records the Debian package if the check fails.
missing=()
need() {
  local package=$1
  shift
  "$@" || missing+=("$package")
}

need_build_tools() {
  need g++ has_command c++
  need cmake has_command cmake
  need ninja-build has_command ninja
  if has_command c++; then
    need nlohmann-json3-dev has_header nlohmann/json.hpp
    need libcli11-dev has_header CLI/CLI.hpp
    need zlib1g-dev has_header zlib.h
    need libboost1.81-dev has_header boost/beast/version.hpp
  else
    missing+=(nlohmann-json3-dev libcli11-dev zlib1g-dev libboost1.81-dev)
  fi
}

yes=no  # whether --yes was given

# agree SENTENCE: prints the action and asks for consent, given by --yes, by a CI machine or by the user at the terminal.
agree() {
  say "$1"
  [ $yes = yes ] || [ -n "${CI-}" ] && return
  if ! [ -t 0 ] || ! [ -t 2 ]; then
    say "no terminal to ask for consent. Run $0 --yes"
    return 1
  fi
  local answer
  read -r -p "Go on? [Y/n] " answer && [[ $answer =~ ^([yY].*)?$ ]]
}

install_missing() {
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    has_command sudo && as_root=(sudo)
    [ ${#as_root[@]} -gt 0 ] || fail "missing: ${missing[*]}. Install them, or run this as root"
  fi
  has_command apt-get || fail "missing: ${missing[*]} (names of Debian packages). Install them and run this again"
  agree "to be installed with apt-get: ${missing[*]}" || fail "nothing was installed"
  quietly "${as_root[@]}" apt-get update
  quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
  missing=()
}

jobs=$( (nproc || echo 2) 2>/dev/null)
