# Sourced by the tests that run a program in Java: `skip` and `jars`. Nothing is installed: where something is missing, build/skipped says
# what is left out and the test ends with 0, but with CI=true it ends with 1.
#
#   what="the comparison with ..."     what is left out when something is missing
#   . tests/java.sh                    in the root of the checkout; then `classpath` has the jars below

# skip WHY: names what is left out, and ends.
skip() {
  local line="skipped: $what: $1"
  echo "$line" >&2
  if [ "${CI:-}" = true ]; then
    exit 1
  fi
  mkdir -p build
  echo "$line" >>build/skipped
  exit 0
}

for tool in javac java timeout; do
  command -v "$tool" >/dev/null || skip "$tool is missing: a JDK, 17 or newer, is needed (Debian: openjdk-17-jdk-headless)"
done
[ "$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')" -ge 17 ] || skip "the JDK is older than 17"

# jars GROUP:NAME:VERSION...: puts them into `classpath`; Maven fetches each into build/jars once.
classpath=
jars() {
  local artifact name version jar
  for artifact; do
    IFS=: read -r _ name version <<<"$artifact"
    jar=build/jars/$name-$version.jar
    if [ ! -f "$jar" ]; then
      command -v mvn >/dev/null || skip "$jar is missing, and so is mvn, which would fetch it ($artifact)"
      mvn -q dependency:copy -Dartifact="$artifact" -DoutputDirectory=build/jars || skip "mvn could not fetch $artifact"
    fi
    classpath=$classpath$jar:
  done
}
