use super::*;
use serde_json::json;

fn least() -> Value {
    json!({"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"})
}

/// A minimal shovel with these fields; `null` removes one.
fn with(more: &Value) -> Value {
    let mut value = least();
    for (name, field) in more.as_object().into_iter().flatten() {
        let map = value.as_object_mut().expect("an object");
        match field {
            Value::Null => drop(map.remove(name)),
            field => drop(map.insert(name.clone(), field.clone())),
        }
    }
    value
}

fn refused(more: &Value) -> String {
    let why = Shovel::parse("s", &with(more)).expect_err("refused");
    let text = why.text().strip_prefix("Validation failed\n\n").and_then(|text| text.strip_suffix('\n'));
    text.expect("RabbitMQ's frame").to_owned()
}

#[test]
fn defaults_are_those_of_rabbitmq() {
    let shovel = Shovel::parse("s", &least()).expect("a shovel");
    assert_eq!((shovel.ack_mode, shovel.reconnect_delay_ms), (AckMode::OnConfirm, Some(5_000)));
    assert_eq!((shovel.source.prefetch, shovel.source.delete_after), (1_000, DeleteAfter::Never));
    assert_eq!(shovel.source.of, SourceOf::Queue("a".into()));
    let to = &shovel.destination;
    assert_eq!((to.queue.as_deref(), to.exchange.as_deref(), to.key.as_deref()), (Some("b"), None, None));
    assert!(!to.add_forward_headers && !to.add_timestamp_header && !to.predeclared && !shovel.source.predeclared);
}

#[test]
fn older_field_names_are_fallbacks() {
    let old = json!({
        "prefetch-count": 7, "delete-after": "queue-length", "add-forward-headers": true, "add-timestamp-header": true,
        "publish-properties": {"delivery_mode": 2}, "reconnect-delay": 0.5, "ack-mode": "on-publish",
    });
    let shovel = Shovel::parse("s", &with(&old)).expect("a shovel");
    assert_eq!((shovel.source.prefetch, shovel.source.delete_after), (7, DeleteAfter::QueueLength));
    assert!(shovel.destination.add_forward_headers && shovel.destination.add_timestamp_header);
    assert_eq!(shovel.destination.properties, [("delivery_mode".into(), json!(2))]);
    assert_eq!((shovel.reconnect_delay_ms, shovel.ack_mode), (Some(500), AckMode::OnPublish));
    let both = with(&json!({"prefetch-count": 7, "src-prefetch-count": 8, "delete-after": 1, "src-delete-after": 2}));
    let shovel = Shovel::parse("s", &both).expect("a shovel");
    assert_eq!((shovel.source.prefetch, shovel.source.delete_after), (8, DeleteAfter::Messages(2)));
    let never = Shovel::parse("s", &with(&json!({"reconnect-delay": 0}))).expect("a shovel");
    assert_eq!(never.reconnect_delay_ms, None, "as in RabbitMQ: it is not restarted");
}

#[test]
fn mistakes_are_reported_with_rabbitmqs_texts() {
    for (more, text) in [
        (json!({"src-queue": null}), "Must specify 'src-exchange' or 'src-queue'"),
        (json!({"src-exchange": "x"}), "Cannot specify 'src-exchange' and 'src-queue'"),
        (json!({"dest-exchange": "x"}), "Cannot specify 'dest-exchange' and 'dest-queue'"),
        (json!({"ack-mode": "no-ack", "delete-after": 1}), "Cannot specify 'no-ack' and numerical 'delete-after'"),
        (json!({"src-uri": null}), "Key \"src-uri\" not found in s"),
        (json!({"a": 1}), "Unrecognised terms [{<<\"a\">>,1}] in s"),
        (json!({"src-address": "a"}), "Unrecognised terms [{<<\"src-address\">>,<<\"a\">>}] in s"),
        (json!({"src-prefetch-count": "a"}), "src-prefetch-count should be a number, actually was <<\"a\">>"),
        (json!({"src-queue": 1}), "src-queue should be binary, actually was 1"),
        (json!({"dest-add-forward-headers": 1}), "dest-add-forward-headers should be boolean, actually was 1"),
        (
            json!({"ack-mode": "x"}),
            "ack-mode should be one of [<<\"no-ack\">>,<<\"on-publish\">>,<<\"on-confirm\">>], actually was <<\"x\">>",
        ),
        (
            json!({"src-delete-after": "x"}),
            "src-delete-after should be a number greater than or equal to 0, \"never\" or \"queue-length\", actually was <<\"x\">>",
        ),
        (json!({"dest-publish-properties": {"a": 1}}), "Unrecognised terms [{<<\"a\">>,1}] in dest-publish-properties"),
        (json!({"dest-publish-properties": {"priority": "1"}}), "priority should be a number, actually was <<\"1\">>"),
        (json!({"src-uri": 1}), "src-uri should be list, actually was 1"),
        (
            json!({"src-uri": "http://u:secret@h"}),
            "\"http://h\" not a valid URI: {{unexpected_uri_scheme,\"http\"},\"http://h\"}",
        ),
        (json!({"dest-queue": "q".repeat(256)}), "dest-queue should be less than 255 bytes, actually was 256"),
    ] {
        assert_eq!(refused(&more), text, "{more}");
    }
    assert_eq!(
        refused(&json!({"src-uri": null, "dest-uri": null, "src-queue": null})),
        "Must specify 'src-exchange' or 'src-queue'\nKey \"dest-uri\" not found in s\nKey \"src-uri\" not found in s"
    );
    for value in [json!(1), json!("x"), json!([1])] {
        assert!(Shovel::parse("s", &value).is_err());
    }
}

#[test]
fn unsupported_values_are_distinguished_from_invalid_ones() {
    for more in [
        json!({"src-protocol": "amqp10", "src-queue": null, "src-address": "a"}),
        json!({"dest-protocol": "amqp10", "dest-address": "a", "dest-queue": null}),
        json!({"src-uri": "amqps://h?verify=verify_none"}),
        json!({"dest-uri": ["amqp://h", "amqps://h?verify=verify_none"]}),
        json!({"src-uri": "amqp://h?auth_mechanism=external"}),
    ] {
        let refused = Shovel::parse("s", &with(&more));
        assert!(matches!(refused, Err(LinkError::Unsupported(_))), "{more}: {refused:?}");
    }
    assert!(refused(&json!({"src-protocol": "amqp10"})).contains("AMQP 0-9-1 only"));
    let unverified = json!({"src-uri": "amqps://u:secret@h?verify=verify_none"});
    assert!(refused(&unverified).contains("cacertfile") && !refused(&unverified).contains("secret"));
}

#[test]
fn passwords_are_not_shown() {
    let value =
        with(&json!({"src-uri": ["amqp://u:secret@a", "amqp://u:secret@b/v"], "dest-uri": "amqp://u:secret@c"}));
    let shown = shown_shovel(&value);
    assert_eq!(shown["src-uri"], json!(["amqp://a", "amqp://b/v"]));
    assert_eq!((&shown["dest-uri"], &shown["dest-queue"]), (&json!("amqp://c"), &json!("b")));
    let printed = format!("{:?}", Shovel::parse("s", &value).expect("a shovel"));
    assert!(!printed.contains("secret"), "{printed}");
}
