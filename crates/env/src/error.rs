//! Errors of disk operations: the operation and the path, followed by the system's message.

use std::error::Error;
use std::fmt;
use std::io;

/// The inside of an [`io::Error`] made by this crate: the operation, the path and the system's message.
///
/// The outer error keeps the system's [`io::ErrorKind`] (a used-up quota counts as `StorageFull`, because the answer
/// to both is the same); [`raw_os_error`] finds the number again.
#[derive(Debug)]
pub struct DiskError {
    what: String,
    system: io::Error,
}

impl DiskError {
    /// The system's error number, if there is one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        raw_os_error(&self.system)
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.system)
    }
}

impl Error for DiskError {}

/// The system's error number inside `error`, whether bare or wrapped by this crate.
#[must_use]
pub fn raw_os_error(error: &io::Error) -> Option<i32> {
    let wrapped = error.get_ref().and_then(|inner| inner.downcast_ref::<DiskError>());
    error.raw_os_error().or_else(|| wrapped.and_then(DiskError::raw_os_error))
}

/// Prefixes the system's message with `what` ("cannot open /data/x").
pub(crate) fn annotate(system: io::Error, what: String) -> io::Error {
    let kind = match system.kind() {
        io::ErrorKind::QuotaExceeded => io::ErrorKind::StorageFull,
        kind => kind,
    };
    io::Error::new(kind, DiskError { what, system })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_kind_and_number_are_kept() {
        let e = annotate(io::Error::from_raw_os_error(libc::EACCES), "cannot open /x/y".into());
        assert_eq!(e.to_string(), "cannot open /x/y: Permission denied (os error 13)");
        assert_eq!(e.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(raw_os_error(&e), Some(13));
        assert_eq!(raw_os_error(&io::Error::from_raw_os_error(5)), Some(5));
        assert_eq!(raw_os_error(&io::Error::other("x")), None);
    }

    #[test]
    fn no_space_and_no_quota_are_both_a_full_disk() {
        for number in [libc::ENOSPC, libc::EDQUOT] {
            let e = annotate(io::Error::from_raw_os_error(number), String::new());
            assert_eq!(e.kind(), io::ErrorKind::StorageFull);
            assert_eq!(raw_os_error(&e), Some(number));
        }
    }
}
