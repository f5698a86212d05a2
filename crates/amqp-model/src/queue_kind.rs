//! Types of queues.

/// The type of a queue. All types use the same engine; they differ in the supported arguments and settings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QueueKind {
    /// `classic`
    Classic,
    /// `quorum`
    Quorum,
    /// `stream`
    Stream,
}

impl QueueKind {
    /// The name in `x-queue-type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QueueKind::Classic => "classic",
            QueueKind::Quorum => "quorum",
            QueueKind::Stream => "stream",
        }
    }

    /// Parses the name in `x-queue-type`, or the name of RabbitMQ's module.
    #[must_use]
    pub fn named(name: &str) -> Option<QueueKind> {
        let all = [QueueKind::Classic, QueueKind::Quorum, QueueKind::Stream];
        all.into_iter().find(|kind| kind.name() == name || kind.module() == name)
    }

    /// The name of RabbitMQ's module, which its texts contain.
    #[must_use]
    pub fn module(self) -> &'static str {
        match self {
            QueueKind::Classic => "rabbit_classic_queue",
            QueueKind::Quorum => "rabbit_quorum_queue",
            QueueKind::Stream => "rabbit_stream_queue",
        }
    }

    /// Whether a queue of this type can have these properties.
    #[must_use]
    pub fn is_compatible(self, durable: bool, exclusive: bool, auto_delete: bool) -> bool {
        self == QueueKind::Classic || (durable && !exclusive && !auto_delete)
    }
}
