//! Kafka's error codes.

/// `ErrorCode` from a table of code, name, retriable and message, separated by tabs.
pub(super) fn error_codes(table: &str) -> Result<String, String> {
    let mut variants = String::new();
    let mut all = String::new();
    let mut rows = String::new();
    for (at, line) in table.lines().enumerate() {
        let mut cells = line.splitn(4, '\t');
        let (Some(code), Some(name), Some(retriable), Some(message)) =
            (cells.next(), cells.next(), cells.next(), cells.next())
        else {
            return Err(format!("kafka-errors.tsv, line {}: four cells expected", at + 1));
        };
        // so that a code is a place in the list
        if code.parse::<i64>().ok() != i64::try_from(at).ok().map(|at| at - 1) {
            return Err(format!("kafka-errors.tsv, line {}: code {code} out of order", at + 1));
        }
        let variant = camel_case(name);
        variants += &format!("/// {message}\n{variant} = {code},\n");
        all += &format!("ErrorCode::{variant},\n");
        rows += &format!("ErrorCode::{variant} => row({name:?}, {retriable}, {message:?}),\n");
    }
    Ok(ERROR_CODES.replace("@variants", &variants).replace("@all", &all).replace("@rows", &rows))
}

fn camel_case(name: &str) -> String {
    name.split('_').map(|word| word.get(..1).unwrap_or_default().to_owned() + &word.to_lowercase()[1..]).collect()
}

/// The fixed part around the rows.
const ERROR_CODES: &str = r#"//! What a response says about what went wrong.

use std::fmt;

/// Kafka's error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
pub enum ErrorCode {
    @variants
}

/// The facts of one code.
struct Row {
    name: &'static str,
    retriable: bool,
    message: &'static str,
}

const fn row(name: &'static str, retriable: bool, message: &'static str) -> Row {
    Row { name, retriable, message }
}

impl ErrorCode {
    /// All of them, by rising code, without a gap.
    pub const ALL: &'static [ErrorCode] = &[
        @all
    ];

    const fn row(self) -> Row {
        match self {
            @rows
        }
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The code's meaning; `None` for one that this release of Kafka does not know.
    #[must_use]
    pub fn from_code(code: i16) -> Option<ErrorCode> {
        let first = ErrorCode::UnknownServerError.code();
        let place = usize::try_from(i32::from(code) - i32::from(first)).ok()?;
        ErrorCode::ALL.get(place).copied()
    }

    /// Kafka's name, in capitals.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Kafka's own text for it.
    #[must_use]
    pub const fn message(self) -> &'static str {
        self.row().message
    }

    /// Whether Kafka's clients try again after it.
    #[must_use]
    pub const fn retriable(self) -> bool {
        self.row().retriable
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
"#;
