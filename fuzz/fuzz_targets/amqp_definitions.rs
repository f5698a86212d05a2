//! Definitions as anybody may send them to the management API: nothing panics, what is refused changes nothing, and what
//! comes in goes out and comes in again as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use polylogue_amqp_model::{Caller, Command, Definitions, Limits, Model, PasswordHash, Product, PutUser, export};

/// Applies a command at once, and says whether it was done and wrote something.
fn run(model: &mut Model, command: &Command) -> Option<bool> {
    let plan = model.plan(&Caller::broker(), command, [7; 16]).ok()?;
    if let Some(record) = &plan.record {
        model.apply(record).expect("what was planned can be applied");
    }
    Some(plan.record.is_some())
}

fn fresh() -> Model {
    let mut model = Model::new(Limits::default());
    model.on_ready();
    let guest = PutUser {
        name: "guest".into(),
        password: Some(PasswordHash::none()),
        scram: Vec::new(),
        tags: Some(Vec::new()),
    };
    assert_eq!(run(&mut model, &Command::Bootstrap(guest)), Some(true));
    model
}

fuzz_target!(|input: &[u8]| {
    let Some((&how, json)) = input.split_first() else { return };
    let vhost = (how & 1 == 1).then(|| "/".into());
    let Ok(definitions) = Definitions::parse(json, vhost) else { return };
    let import = Command::Import(Box::new(definitions));
    let mut model = fresh();
    let before = model.proposed().clone();
    if run(&mut model, &import).is_none() {
        assert!(*model.proposed() == before, "what is refused changes nothing");
        return;
    }
    assert!(model.metadata() == model.proposed());
    assert_eq!(run(&mut model, &import), Some(false), "a second import does nothing");
    let product = Product { version: "4.2.0".to_owned(), cluster_name: "fuzz".to_owned() };
    let out = export(model.metadata(), model.routes(), None, &product);
    let again = Definitions::parse(out.to_string().as_bytes(), None).expect("what goes out is read");
    let mut other = fresh();
    assert!(run(&mut other, &Command::Import(Box::new(again))).is_some(), "what goes out comes in");
    let names = |model: &Model| model.metadata().queues().map(|queue| queue.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&model), names(&other));
});
