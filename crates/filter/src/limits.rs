//! The bounds of a filter.

/// Default of [`Limits::selector_bytes`]: 16 KiB. RabbitMQ 4.2 has 4,096 characters, RocketMQ no bound.
pub const SELECTOR_BYTES_MAX: usize = 16 << 10;

/// Default of [`Limits::selector_nodes`]. RabbitMQ 4.2 has 200 tokens, RocketMQ no bound.
pub const SELECTOR_NODES_MAX: usize = 1_024;

/// Default of [`Limits::selector_depth`].
pub const SELECTOR_DEPTH_MAX: usize = 64;

/// Default of [`Limits::terms`]. TubeMQ has 500.
pub const TERMS_MAX: usize = 1_024;

/// Default of [`Limits::term_bytes`]. TubeMQ has 256 characters, which are at most 768 bytes.
pub const TERM_BYTES_MAX: usize = 1_024;

/// Default of [`Limits::spec_bytes`]: 512 KiB, so that 500 terms of 256 characters fit.
pub const SPEC_BYTES_MAX: usize = 512 << 10;

/// The most values that the evaluation of a selector holds at a time. A pending operator holds one value, a pending `BETWEEN` up to three.
pub const STACK_MAX: usize = 128;

/// Upper bounds of a filter. Checked when it is decoded and when it is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The length of a selector, in bytes.
    pub selector_bytes: usize,
    /// The instructions of a selector (about one for each property, literal and operator) and the items of its lists, together.
    pub selector_nodes: usize,
    /// The nesting of parentheses and unary operators. The parser recurses that deep; evaluation does not recurse.
    pub selector_depth: usize,
    /// The number of tags, filter values or conditions.
    pub terms: usize,
    /// The length of a tag, a filter value, or of the name or value of a condition, in bytes.
    pub term_bytes: usize,
    /// The length of the wire form, in bytes.
    pub spec_bytes: usize,
}

impl Limits {
    /// The defaults.
    pub const DEFAULT: Limits = Limits {
        selector_bytes: SELECTOR_BYTES_MAX,
        selector_nodes: SELECTOR_NODES_MAX,
        selector_depth: SELECTOR_DEPTH_MAX,
        terms: TERMS_MAX,
        term_bytes: TERM_BYTES_MAX,
        spec_bytes: SPEC_BYTES_MAX,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}
