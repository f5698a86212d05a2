//! Records and chunks of the AMQP metadata from a damaged disk: nothing panics, and what was taken makes a checkpoint that
//! is the same state again.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use polylogue_amqp_model::{Deaths, Limits, Model, Product, decode_table, export, json_of_arguments};

fuzz_target!(|input: &[u8]| {
    let Some((&how, bytes)) = input.split_first() else { return };
    let mut model = Model::new(Limits::default());
    match how % 4 {
        0 => _ = model.apply(bytes),
        1 => {
            // Several records, each with a length before it.
            let mut left = bytes;
            while let Some((&len, rest)) = left.split_first() {
                let (record, rest) = rest.split_at(usize::from(len).min(rest.len()));
                _ = model.apply(record);
                left = rest;
            }
        }
        2 => {
            let (id, chunk) = bytes.split_at(bytes.len().min(usize::from(how >> 2)));
            _ = model.load_chunk(id, chunk);
        }
        _ => {
            if let Ok(deaths) = Deaths::decode(bytes) {
                assert_eq!(Deaths::decode(&deaths.encode()), Ok(deaths));
            }
            if let Ok(fields) = decode_table(bytes) {
                _ = json_of_arguments(&fields);
            }
            return;
        }
    }
    model.on_ready();
    let product = Product { version: "4.2.0".to_owned(), cluster_name: "fuzz".to_owned() };
    _ = export(model.metadata(), model.routes(), None, &product);
    model.change_all_chunks();
    let chunks: Vec<(Bytes, Option<Bytes>)> = model.take_changed_chunks();
    let mut restored = Model::new(Limits::default());
    for (id, chunk) in chunks {
        if let Some(chunk) = chunk {
            restored.load_chunk(&id, &chunk).expect("what was written is read");
        }
    }
    restored.on_ready();
});
