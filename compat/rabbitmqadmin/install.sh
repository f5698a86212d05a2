# Sourced with `build` and `need`: rabbitmqadmin, version 2, from its crate, as $build/bin/rabbitmqadmin.
need cargo "a Rust toolchain"

version=2.35.0
if [ "$("$build/bin/rabbitmqadmin" --version 2>/dev/null)" != "rabbitmqadmin $version" ]; then
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo install --quiet --locked --force --version "$version" \
        --root "$build" --target-dir "$build/target" rabbitmqadmin >&2
    rm -rf "$build/target"
fi
