//! Tests of the store over the simulated disk.

mod cases;
mod damage;
mod model;
mod rig;
mod room;
