//! Which calls are the injector's own, and how a fault leaves.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it is held, this thread's calls pass straight through: they are the injector's own.
pub(crate) struct Inside;

impl Inside {
    /// `None` when the thread is inside already.
    pub(crate) fn enter() -> Option<Inside> {
        if INSIDE.replace(true) { None } else { Some(Inside) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Ends the program, because a test whose injector does not do its work proves nothing.
pub(crate) fn die(why: &str) -> ! {
    eprintln!("faultfs: {why}");
    // SAFETY: `_exit` takes a number and never returns.
    unsafe { libc::_exit(99) }
}
