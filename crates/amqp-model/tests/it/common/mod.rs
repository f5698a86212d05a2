//! A model with its log, whose records are committed as soon as they are planned.

#![allow(dead_code, reason = "each test uses what it needs")]

use bytes::Bytes;
use bytestring::ByteString;
use polylogue_amqp_model::*;
use polylogue_router::{Argument, Value, VhostId};
use serde_json::json;

/// The virtual host `/` of a bootstrapped model.
pub(crate) const HOST: VhostId = VhostId(0);

pub(crate) fn argument(name: &str, tag: u8, value: Value) -> Argument {
    Argument { name: Bytes::copy_from_slice(name.as_bytes()), tag, value }
}

pub(crate) fn text(value: &str) -> Value {
    Value::Bytes(Bytes::copy_from_slice(value.as_bytes()))
}

/// Arguments from JSON: texts, 64 bits, bools.
pub(crate) fn arguments(json: serde_json::Value) -> Vec<Argument> {
    arguments_of_json(json.as_object().unwrap()).unwrap()
}

pub(crate) fn queue(name: &str) -> DeclareQueue {
    DeclareQueue { vhost: HOST, name: name.into(), durable: true, ..DeclareQueue::default() }
}

pub(crate) fn queue_with(name: &str, json: serde_json::Value) -> DeclareQueue {
    DeclareQueue { arguments: arguments(json), ..queue(name) }
}

pub(crate) fn exchange(name: &str, kind: &str) -> DeclareExchange {
    DeclareExchange { vhost: HOST, name: name.into(), kind: kind.into(), durable: true, ..DeclareExchange::default() }
}

pub(crate) fn bind(source: &str, to: BindDestination, key: &str) -> Bind {
    Bind { vhost: HOST, source: source.into(), to, key: key.into(), arguments: Vec::new() }
}

pub(crate) fn to_queue(source: &str, queue: &str, key: &str) -> Bind {
    bind(source, BindDestination::Queue(queue.into()), key)
}

pub(crate) fn delete(name: &str) -> DeleteQueue {
    DeleteQueue { vhost: HOST, name: name.into(), ..DeleteQueue::default() }
}

pub(crate) fn policy(name: &str, pattern: &str, definition: serde_json::Value) -> PolicySpec {
    PolicySpec {
        operator: false,
        name: name.into(),
        pattern: pattern.into(),
        apply_to: ApplyTo::All,
        priority: 0,
        definition: definition.as_object().unwrap().clone(),
    }
}

pub(crate) fn put_user(name: &str) -> PutUser {
    let password = PasswordHash::of(Hashing::Sha256, [1, 2, 3, 4], name.as_bytes());
    PutUser { name: name.into(), password: Some(password), scram: Vec::new(), tags: Some(Vec::new()) }
}

pub(crate) fn user(name: &str) -> Caller {
    Caller::user(name.into(), OwnerId::local(7))
}

pub(crate) fn connection(owner: u64) -> Caller {
    Caller { owner: OwnerId::local(owner), ..Caller::broker() }
}

pub(crate) struct Live {
    pub(crate) model: Model,
    pub(crate) log: Vec<Bytes>,
    pub(crate) events: Vec<Event>,
    /// The effective settings of queues, according to the events so far.
    known: std::collections::BTreeMap<polylogue_router::QueueId, Effective>,
    calls: u8,
}

impl Live {
    /// With the virtual host `/` and the administrator `guest`.
    pub(crate) fn new() -> Live {
        Live::within(Limits::default())
    }

    /// The same, with these limits.
    pub(crate) fn within(limits: Limits) -> Live {
        let mut live = Live { model: Model::new(limits), ..Live::empty() };
        live.model.on_ready();
        let guest = PutUser { tags: Some(vec!["administrator".into()]), ..put_user("guest") };
        live.run(Command::Bootstrap(guest)).unwrap();
        live.events.clear();
        live
    }

    pub(crate) fn empty() -> Live {
        let mut model = Model::new(Limits::default());
        model.on_ready();
        Live { model, log: Vec::new(), events: Vec::new(), known: Default::default(), calls: 0 }
    }

    /// The names of queues whose effective settings changed, according to the events since the last call.
    pub(crate) fn realigned(&mut self) -> Vec<String> {
        let mut changed = Vec::new();
        for event in self.events.drain(..) {
            match event {
                Event::QueueDeclared(queue, effective) => _ = self.known.insert(queue.id, *effective),
                Event::Realign(mut realign) => {
                    while let Some(found) = self.model.realign(&mut realign) {
                        for (queue, effective) in found {
                            if self.known.insert(queue.id, effective.clone()).is_none_or(|known| known != effective) {
                                changed.push(queue.name.to_string());
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        changed
    }

    pub(crate) fn run(&mut self, command: Command) -> Result<Reply, Refused> {
        self.run_as(&Caller::broker(), command)
    }

    pub(crate) fn run_as(&mut self, caller: &Caller, command: Command) -> Result<Reply, Refused> {
        self.calls += 1;
        let plan = self.model.plan(caller, &command, [self.calls; 16])?;
        if let Some(record) = plan.record {
            self.events.extend(self.model.apply(&record).unwrap());
            self.log.push(record);
        }
        self.model.publish();
        Ok(plan.reply)
    }

    /// Returns the text of a command's refusal.
    pub(crate) fn refusal(&mut self, caller: &Caller, command: Command) -> String {
        let before = (self.model.proposed().clone(), self.log.len());
        let refused = self.run_as(caller, command.clone());
        let Err(refused) = refused else { panic!("{command:?} was not refused") };
        assert!(*self.model.proposed() == before.0 && self.log.len() == before.1, "a refused command changes nothing");
        refused.to_string()
    }

    pub(crate) fn declare(&mut self, declare: DeclareQueue) -> std::sync::Arc<Queue> {
        self.declare_as(&Caller::broker(), declare).unwrap().0
    }

    pub(crate) fn declare_as(
        &mut self,
        caller: &Caller,
        declare: DeclareQueue,
    ) -> Result<(std::sync::Arc<Queue>, bool), Refused> {
        match self.run_as(caller, Command::DeclareQueue(declare))? {
            Reply::Queue { queue, created } => Ok((queue, created)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn settings(&self, name: &str) -> QueueSettings {
        let queue = self.model.queue(HOST, name).unwrap();
        self.model.metadata().effective(queue).settings
    }

    pub(crate) fn permit(&mut self, user: &str, patterns: [&str; 3]) {
        if self.model.metadata().user(user).is_none() {
            self.run(Command::PutUser(put_user(user))).unwrap();
        }
        let patterns = patterns.map(ByteString::from);
        self.run(Command::SetPermission(user.into(), "/".into(), patterns)).unwrap();
    }

    /// Another model that has applied the same log from its beginning.
    pub(crate) fn replayed(&self) -> Model {
        let mut model = Model::new(Limits::default());
        for record in &self.log {
            model.apply(record).unwrap();
        }
        model.on_ready();
        model
    }
}

/// Whether the committed state of two models is equal, as JSON and as state.
pub(crate) fn same(a: &Model, b: &Model) -> bool {
    let routes = |model: &Model| {
        let routes = model.routes();
        (routes.vhosts(), routes.exchanges(), routes.queues(), routes.bindings())
    };
    a.metadata() == b.metadata() && routes(a) == routes(b)
}

pub(crate) fn import(json: serde_json::Value) -> Command {
    Command::Import(Box::new(Definitions::parse(json.to_string().as_bytes(), None).unwrap()))
}

pub(crate) fn product() -> Product {
    Product { version: "4.2.0".to_owned(), cluster_name: "polylogue".to_owned() }
}

pub(crate) fn exported(live: &Live) -> serde_json::Value {
    export(live.model.metadata(), live.model.routes(), None, &product())
}

pub(crate) fn nothing() -> serde_json::Value {
    json!({})
}
