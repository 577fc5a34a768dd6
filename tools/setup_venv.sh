#!/usr/bin/env bash
# Makes the virtual environment and installs the project into it: tools/setup_venv.sh VENV [EXTRA]. PYTHON= names the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
extra=${2:-}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  echo "CairnMQ needs Python 3.11 or newer; found ${PYTHON:-python3} $("${PYTHON:-python3}" -V 2>&1 || true)." >&2
  echo "Install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2
  return 1
}

# Debian ships python3 without ensurepip; its own package brings it.
make_venv() {
  local python=$1
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    local package
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      tools/install_package.sh "$package"
    else
      echo "$python cannot make virtual environments: install the package $package, then run this again." >&2
      return 1
    fi
  fi
  "$python" -m venv "$venv"
}

if ! { [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
  python=$(find_python)
  rm -rf "$venv"
  echo "making $venv with $("$python" -V)" >&2
  make_venv "$python"
fi

kernels=$(find src -name '_*.pyx' | wc -l)
echo "installing CairnMQ into $venv${extra:+ with everything for \"$extra\"}: about a minute the first time" >&2

# A line for each step: pip shows none when asked to be quiet, and all of a compiler's when not.
steps='
  /Installing build dependencies.*started/ { print "  getting Cython and setuptools"; fflush() }
  /^Collecting / { print "  downloading " $2; fflush() }
  /Building editable.*started/ { print "  compiling " kernels " C extensions"; fflush() }
  /^Installing collected packages/ { print "  installing"; fflush() }'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! PYTHONUNBUFFERED=1 "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
  --editable ".${extra:+[$extra]}" 2>&1 | tee "$log" | awk -v kernels="$kernels" "$steps" >&2; then
  cat "$log" >&2
  exit 1
fi

# pip hides what a build prints, so the fallback to pure Python is said here.
built=$(find src -name '_*.so' | wc -l)
if [ "$kernels" -gt 0 ] && [ "$built" -lt "$kernels" ]; then
  echo "kernels: $built of $kernels compiled, the rest runs in pure Python (CAIRNMQ_PURE set, or no C compiler)" >&2
fi
