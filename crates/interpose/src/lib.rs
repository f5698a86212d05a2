//! For libraries that stand in for functions of the C library (`LD_PRELOAD`): the functions behind them, and `errno`. A tool for Linux with
//! glibc.
#![allow(
    unsafe_code,
    reason = "this crate calls functions of the C library by their addresses; each block says why it holds"
)]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Sets the calling thread's `errno`.
pub fn set_errno(number: c_int) {
    // SAFETY: the location is the calling thread's own and always valid.
    unsafe { *libc::__errno_location() = number }
}

/// The calling thread's `errno`.
#[must_use]
pub fn errno() -> c_int {
    // SAFETY: as in `set_errno`.
    unsafe { *libc::__errno_location() }
}

/// The address of the next definition of `name`, looked up once and kept in `slot`; for [`next!`]. Without one the program ends: one that
/// is not interposed as requested proves nothing, and must not go on.
pub fn address(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: `name` ends with a zero byte; RTLD_NEXT asks for the definition behind this library's own.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        eprintln!("the C library has no {}", name.to_string_lossy());
        // SAFETY: `_exit` takes a number and never returns.
        unsafe { libc::_exit(99) }
    }
    slot.store(found, Ordering::Relaxed);
    found
}

/// Calls the next definition of a C function: `next!(fsync(fd: c_int) -> c_int)`.
#[macro_export]
macro_rules! next {
    ($name:ident($($arg:ident: $type:ty),*) -> $ret:ty) => {{
        static SLOT: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
        // SAFETY: the symbol of that name in the C library has this signature; the arguments are the caller's.
        let function: unsafe extern "C" fn($($type),*) -> $ret =
            unsafe { std::mem::transmute($crate::address(&SLOT, NAME)) };
        // SAFETY: the caller promised what the C function asks for.
        unsafe { function($($arg),*) }
    }};
}
