//! The half of `hot_paths` that counts allocations: prints one case per line, as JSON. A separate program, because the counting allocator wraps the
//! real one, and its instructions would be counted.

#[path = "../hot_paths/cases.rs"]
mod cases;
#[path = "../hot_paths/node.rs"]
mod node;
#[path = "../hot_paths/queue.rs"]
mod queue;

use allocation_counter::{AllocationInfo, measure};
use cases::{Case, Meter};
use std::error::Error;

#[derive(Default)]
struct Heap(AllocationInfo);

impl Meter for Heap {
    fn count(&mut self, work: &mut dyn FnMut()) {
        self.0 += measure(work);
    }

    fn end(&mut self, case: Case) -> node::Result<()> {
        let AllocationInfo { count_total: allocations, bytes_total: allocated_bytes, .. } = std::mem::take(&mut self.0);
        println!("{}", serde_json::to_string(&Case { allocations, allocated_bytes, ..case })?);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    cases::run(&mut Heap::default(), std::env::args().nth(1).as_deref())
}
