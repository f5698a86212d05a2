//! Tests of the store on a simulated disk.

mod cases;
mod compact;
mod crash;
mod damage;
mod expect;
mod failing;
mod format;
mod hook;
mod leases;
mod lost;
mod model;
mod preload;
mod read_back;
mod rig;
mod room;
mod tail;
mod threads;
