//! Nothing: the tests are in the package that Cargo.toml names.
