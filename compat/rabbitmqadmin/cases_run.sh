# Sourced by run.sh with `program` set: runs its cases.sh.

case_() {
    local name=$1 arguments=() text= output
    shift
    while [ $# -gt 0 ] && [ "$1" != = ]; do
        arguments+=("$1")
        shift
    done
    [ $# -lt 2 ] || text=$2
    if output=$(timeout 30 "${program[@]}" "${arguments[@]}" 2>&1) && [[ $output == *"$text"* ]]; then
        echo "$name" >>"$work/passed"
    else
        echo "fails: $name: $output"
    fi
}

: >"$work/passed"
. "$here/cases.sh" >"$build/output.txt" 2>&1
grep '^fails: ' "$build/output.txt" || true
compare "$work/passed"
