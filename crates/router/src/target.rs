//! Destinations of bindings in the indexes of exchanges, and positions in these.

use crate::ids::{BindingId, Destination};
use crate::list::Item;

/// The destination of a binding.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Target {
    pub(crate) binding: BindingId,
    pub(crate) to: Destination,
}

impl Item for Target {
    fn order(&self) -> u64 {
        self.binding.0
    }
}

/// The position of a walk through the bindings of an exchange.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Position {
    /// How many keys, or parts of the lookup, are done.
    pub(crate) part: usize,
    /// The binding that the next part continues with.
    pub(crate) from: u64,
}
