//! The binary `polylogue`.

use std::process::ExitCode;

/// The system's allocator keeps what a burst took; this one gives it back, which is why an idle broker is small. How it is
/// tuned stands in `.cargo/config.toml`, where its build looks for it.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    polylogue_cli::main(polylogue_server::serve::run)
}
