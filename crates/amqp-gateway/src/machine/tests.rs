use super::*;
use crate::convert::topic_config;
use crate::testing::{OtherTopics, Topics, World};
use polylogue_amqp_model::{ApplyTo, PolicySpec};
use polylogue_api::Now;
use serde_json::json;

/// Clients could see a non-durable queue for a moment after a start.
#[test]
fn the_start_is_complete_once_non_durable_objects_are_removed() {
    let mut world = World::new();
    assert!(world.directory.has_begun());
    let transient = polylogue_amqp_model::DeclareQueue {
        vhost: world.vhost,
        name: "brief".into(),
        ..polylogue_amqp_model::DeclareQueue::default()
    };
    world.act(Command::DeclareQueue(transient));
    // The same records in a machine of another process.
    let mut again = AmqpMachine::new(Limits::default());
    world.machine.change_all_chunks();
    for (id, chunk) in world.machine.take_changed_chunks() {
        again.load_chunk(&id, chunk.expect("it exists")).expect("it is read");
    }
    again.on_ready(&Context { random: 9, ..crate::testing::context() });
    let directory = again.directory();
    let mut effects = Effects::default();
    again.on_deadline(&crate::testing::context(), &mut effects);
    assert!(!effects.proposals.is_empty() && !directory.has_begun());
    for proposal in effects.proposals {
        again.apply(&proposal.record, 0).expect("it can be read");
    }
    assert!(directory.has_begun());
    assert_eq!(again.model().metadata().queues().len(), 0);
}

/// When the writer was lost twice, the second time was mistaken for a start: transient queues of connected clients were deleted.
#[test]
fn repeated_loss_of_the_writer_keeps_queues_of_connected_clients() {
    let mut world = World::new();
    let declare = |name: &str, exclusive| polylogue_amqp_model::DeclareQueue {
        vhost: world.vhost,
        name: name.into(),
        exclusive,
        ..polylogue_amqp_model::DeclareQueue::default()
    };
    let [brief, left_behind] = [declare("brief", false), declare("left behind", true)];
    world.act(Command::DeclareQueue(brief));
    world.act_as(ModelCaller { owner: owner(9), ..ModelCaller::broker() }, Command::DeclareQueue(left_behind));
    let context = Context { now: Now { monotonic_ms: START_RETRY_MS, ..Now::default() }, ..crate::testing::context() };
    for _ in 0..3 {
        let mut effects = Effects::default();
        world.machine.on_writer_lost(&crate::testing::context(), &mut effects);
        world.machine.on_deadline(&context, &mut effects);
        assert_eq!(effects.proposals.len(), 1, "the queue of the closed connection; the proposal is lost again");
    }
    let mut effects = Effects::default();
    world.machine.on_writer_lost(&crate::testing::context(), &mut effects);
    world.machine.on_deadline(&context, &mut effects);
    for proposal in effects.proposals {
        world.machine.apply(&proposal.record, 0).expect("it can be read");
    }
    let left: Vec<_> = world.machine.model().metadata().queues().map(|queue| queue.name.to_string()).collect();
    assert_eq!(left, ["brief"]);
}

/// Existing queues did not get later policies, and a policy that was set and cleared quickly was never undone.
#[test]
fn a_policy_applies_to_existing_queues() {
    let mut world = World::new();
    let [mine, other] = ["mine", "other"].map(|name| world.queue(name, json!({"x-max-length": 10})));
    assert_eq!(world.machine.take_topic_changes(&Topics).len(), 0);
    let serde_json::Value::Object(definition) =
        json!({"max-length": 5, "overflow": "reject-publish", "dead-letter-exchange": "dlx"})
    else {
        panic!("no definition")
    };
    let policy = PolicySpec {
        name: "p".into(),
        pattern: "^mine$".into(),
        apply_to: ApplyTo::Queues,
        priority: 0,
        operator: false,
        definition,
    };
    world.act(Command::SetPolicy("/".into(), policy));
    world.visit_queues();
    let changes = world.machine.take_topic_changes(&Topics);
    let [TopicChange { config: Some(change), .. }] = &changes[..] else { panic!("{changes:?}") };
    let queue = change.config.queue.as_ref().expect("a queue");
    assert_eq!((queue.length_max, queue.overflow), (Some(5), polylogue_api::Overflow::Reject));
    assert!(queue.dead_letters);
    assert_eq!(world.machine.take_topic_changes(&Topics).len(), 0, "requested once");
    assert_ne!(mine, other);
    // The change is still in progress when the policy is cleared.
    world.act(Command::ClearPolicy("/".into(), false, "p".into()));
    world.visit_queues();
    assert_eq!(world.machine.take_topic_changes(&Topics).len(), 0, "one after the other");
    let id = world.directory.router().load().queue(world.vhost, b"mine").expect("declared");
    let declared = world.directory.queue(id).expect("declared");
    let before = topic_config(&declared.queue, &declared.settings);
    let changes = world.machine.take_topic_changes(&OtherTopics(Some(change.config.clone())));
    let [TopicChange { config: Some(change), .. }] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(change.config, before, "it kept the policy's settings forever");
    let mut effects = Effects::default();
    world.machine.on_writer_lost(&crate::testing::context(), &mut effects);
    assert_eq!(world.machine.take_topic_changes(&Topics).len(), 2, "requests may have been lost");
}

/// A policy over 100,000 queues blocked all clients while each queue was visited, and its author got a reply after a record for each.
#[test]
fn a_policy_over_many_queues_is_applied_in_batches_before_the_reply() {
    let mut world = World::new();
    (0..1_000).for_each(|n| _ = world.queue(&format!("q{n}"), json!({})));
    let id = world.directory.router().load().queue(world.vhost, b"q0").expect("declared");
    let entry = world.directory.queue(id).expect("declared");
    let (before, settings) = (topic_config(&entry.queue, &entry.settings), entry.settings.clone());
    let after = topic_config(&entry.queue, &polylogue_amqp_model::QueueSettings { max_length: Some(5), ..settings });
    let serde_json::Value::Object(definition) = json!({"max-length": 5}) else { panic!("no definition") };
    let policy = PolicySpec {
        name: "p".into(),
        pattern: "^q".into(),
        apply_to: ApplyTo::Queues,
        priority: 0,
        operator: false,
        definition,
    };
    let ask = AmqpRequest::Do(ModelCaller::broker(), Box::new(Command::SetPolicy("/".into(), policy)));
    let mut effects = Effects::default();
    world.machine.handle(&crate::testing::context(), Caller(7), Box::new(ask), &mut effects);
    let mut replies: Vec<_> = effects.proposals.iter_mut().flat_map(|p| std::mem::take(&mut p.replies)).collect();
    replies.push((Caller(8), Box::new(())));
    world.commit(effects);
    assert_eq!(world.machine.due_replies(replies).iter().map(|(c, _)| c.0).collect::<Vec<_>>(), [8]);
    // A catalog that shows none of the changes, and one that shows all of them.
    let (old, new) = (OtherTopics(Some(before)), OtherTopics(Some(after)));
    let mut changed = 0;
    while changed < 1_000 {
        world.visit_queues();
        let changes = world.machine.take_topic_changes(&old).len();
        assert!((1..=256).contains(&changes), "batches are bounded");
        changed += changes;
        assert_eq!(world.machine.take_topic_changes(&old).len(), 0, "one batch at a time");
        assert!(world.machine.due_replies(Vec::new()).is_empty(), "some topics do not have it yet");
        assert!(world.machine.take_topic_changes(&new).is_empty());
    }
    let answered: Vec<_> = world.machine.due_replies(Vec::new()).iter().map(|(caller, _)| caller.0).collect();
    assert_eq!(answered, [7]);
    let settings = world.directory.queues().into_iter().map(|entry| entry.settings.max_length);
    assert_eq!(settings.collect::<Vec<_>>(), [Some(5); 1_000]);
    assert_eq!(world.machine.next_deadline_ms(), None);
}

/// A client got a reply based on a proposal that was lost with its writer: it saw a queue, or a refusal, that was never committed.
#[test]
fn replies_from_proposed_state_follow_its_commit() {
    let mut world = World::new();
    let vhost = world.vhost;
    let declare = |durable| polylogue_amqp_model::DeclareQueue {
        vhost,
        name: "q".into(),
        durable,
        ..polylogue_amqp_model::DeclareQueue::default()
    };
    let find = || AmqpRequest::Queue { who: ModelCaller::broker(), vhost, name: "q".into(), access: Access::Read };
    let enter = || AmqpRequest::OpenVhost { who: ModelCaller::broker(), vhost: "/".into() };
    let act = |declare| AmqpRequest::Do(ModelCaller::broker(), Box::new(Command::DeclareQueue(declare)));
    let asks = [act(declare(true)), find(), act(declare(false)), enter(), AmqpRequest::View];
    let mut effects = Effects::default();
    for (n, ask) in (1..).zip(asks) {
        world.machine.handle(&crate::testing::context(), Caller(n), Box::new(ask), &mut effects);
    }
    let at_once: Vec<_> = effects.replies.iter().map(|(caller, _)| caller.0).collect();
    assert_eq!(at_once, [5], "committed state is reported immediately");
    let behind: Vec<_> = effects.proposals.iter().flat_map(|p| p.replies.iter().map(|(c, _)| c.0)).collect();
    assert_eq!((behind, effects.proposals.len()), (vec![1, 2, 3, 4], 4));
    world.commit(Effects { replies: Vec::new(), ..effects });
    let mut effects = Effects::default();
    for ask in [find(), enter()] {
        world.machine.handle(&crate::testing::context(), Caller(6), Box::new(ask), &mut effects);
    }
    assert_eq!((effects.proposals.len(), effects.replies.len()), (0, 2));
}

/// An exclusive queue was never deleted if the record of its connection's end was lost.
#[test]
fn a_new_writer_deletes_queues_of_closed_connections() {
    let mut world = World::new();
    let declare = polylogue_amqp_model::DeclareQueue {
        vhost: world.vhost,
        name: "mine".into(),
        exclusive: true,
        ..polylogue_amqp_model::DeclareQueue::default()
    };
    let who = ModelCaller { owner: owner(3), ..ModelCaller::broker() };
    let ask = || Box::new(AmqpRequest::Do(who.clone(), Box::new(Command::DeclareQueue(declare.clone()))));
    let mut effects = Effects::default();
    world.machine.handle(&crate::testing::context(), Caller(1), ask(), &mut effects);
    world.commit(effects);
    assert_eq!((world.directory.queues().len(), world.machine.next_deadline_ms()), (1, None));
    world.machine.on_writer_lost(&crate::testing::context(), &mut Effects::default());
    assert_eq!(world.machine.next_deadline_ms(), Some(0), "its topic is checked");
    assert_eq!(world.machine.take_topic_changes(&OtherTopics(None)).len(), 0);
    assert_eq!(world.machine.next_deadline_ms(), Some(START_RETRY_MS));
    let later = Context { now: Now { monotonic_ms: START_RETRY_MS, wall_ms: 0 }, ..crate::testing::context() };
    let mut effects = Effects::default();
    world.machine.on_deadline(&later, &mut effects);
    world.commit(effects);
    assert_eq!(world.directory.queues().len(), 0);
}

/// The start of any process deleted the transient queues of all processes; and a connection owned the exclusive queues of another process's
/// connection with the same number.
#[test]
fn non_durable_objects_are_removed_when_their_own_process_restarts() {
    let mut world = World::new();
    let vhost = world.vhost;
    let declare = |name: &str, exclusive| polylogue_amqp_model::DeclareQueue {
        vhost,
        name: name.into(),
        exclusive,
        ..polylogue_amqp_model::DeclareQueue::default()
    };
    let who = || ModelCaller { owner: owner(3), ..ModelCaller::broker() };
    world.act_as(who(), Command::DeclareQueue(declare("transient", false)));
    world.act_as(who(), Command::DeclareQueue(declare("mine", true)));
    let restarted = |node: u64, boot: u64, world: &mut World| {
        let home = Home { node, boot };
        let model = &mut world.machine.model;
        let caller = ModelCaller { owner: OwnerId { home, connection: 0 }, ..ModelCaller::broker() };
        let plan = model.plan(&caller, &Command::Restarted, [0; 16]).expect("it starts");
        plan.record.into_iter().for_each(|record| world.machine.apply(&record, 0).expect("it can be read"));
        world.machine.model().metadata().queues().len()
    };
    let home = world.machine.home;
    assert_ne!(home, Home::default());
    assert_eq!(restarted(home.node + 1, 5, &mut world), 2, "another node");
    assert_eq!(restarted(home.node, home.boot, &mut world), 2, "this very process");
    // The same connection number in another process is another owner.
    let mut find = |home| {
        world.machine.home = home;
        let ask = AmqpRequest::Queue { who: who(), vhost, name: "mine".into(), access: Access::Read };
        let mut effects = Effects::default();
        world.machine.handle(&crate::testing::context(), Caller(1), Box::new(ask), &mut effects);
        let (_, answer) = effects.replies.remove(0);
        matches!(answer.downcast_ref(), Some(AmqpAnswer::Queue(_)))
    };
    assert!(find(home) && !find(Home { node: home.node + 1, ..home }) && !find(Home { boot: 1, ..home }));
    assert_eq!(restarted(home.node, home.boot + 2, &mut world), 0, "the next process of its node");
}
