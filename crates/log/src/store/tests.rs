//! Tests of the store over the simulated disk.

mod cases;
mod crash;
mod damage;
mod format;
mod model;
mod rig;
mod room;
mod threads;
