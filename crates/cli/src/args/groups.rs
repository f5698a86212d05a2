//! What `polylogue group` looks like.

use super::{NameArgs, NamesArgs, ServerArgs};
use clap::{Args, Subcommand};
use polylogue_admin::api::ResetTopic;

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List all groups
    List(ServerArgs),
    /// Show a group with its members, offsets and lag
    Describe(NameArgs),
    /// Move the committed offsets of a group that has no members
    Reset(ResetArgs),
    /// Delete groups without members, with their committed offsets
    Delete(NamesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// Its name
    pub(crate) name: String,
    /// A topic, and which of its partitions: all without; may be repeated
    #[arg(long, short, required = true, value_name = "TOPIC[:PARTITION[,...]]", value_parser = topic)]
    pub(crate) topic: Vec<ResetTopic>,
    #[command(flatten)]
    pub(crate) to: ResetTarget,
    /// Only show what would be committed, which is what happens without --execute
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
    /// Commit the offsets
    #[arg(long)]
    pub(crate) execute: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

/// Exactly one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ResetTarget {
    /// To the first message there is
    #[arg(long)]
    pub(crate) to_earliest: bool,
    /// To the end, so that only new messages are read
    #[arg(long)]
    pub(crate) to_latest: bool,
    /// To this offset, or the nearest there is
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true)]
    pub(crate) to_offset: Option<i64>,
    /// To the first message at or after this time: 2026-01-31T12:00:00Z, 2026-01-31T14:00:00+02:00, or @MILLISECONDS
    /// since 1970
    #[arg(long, value_name = "TIME")]
    pub(crate) to_time: Option<String>,
    /// By so many messages from the committed offset, back when negative
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) shift_by: Option<i64>,
}

/// No topic has a colon in its name.
fn topic(text: &str) -> Result<ResetTopic, String> {
    let Some((name, numbers)) = text.split_once(':') else {
        return Ok(ResetTopic { topic: text.to_owned(), partitions: None });
    };
    let number = |text: &str| text.trim().parse::<i32>().ok().filter(|number| *number >= 0);
    let numbers: Option<Vec<i32>> = numbers.split(',').map(number).collect();
    match numbers {
        Some(numbers) => Ok(ResetTopic { topic: name.to_owned(), partitions: Some(numbers) }),
        None => Err("expected TOPIC, or TOPIC:PARTITION, or TOPIC:PARTITION,PARTITION,...".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_with_and_without_partitions() {
        let of = |topic: &str, partitions: Option<&[i32]>| ResetTopic {
            topic: topic.to_owned(),
            partitions: partitions.map(<[i32]>::to_vec),
        };
        assert_eq!(topic("orders"), Ok(of("orders", None)));
        assert_eq!(topic("orders:7"), Ok(of("orders", Some(&[7]))));
        assert_eq!(topic("a.b:0, 2,1"), Ok(of("a.b", Some(&[0, 2, 1]))));
        for wrong in ["orders:", "orders:x", "orders:-1", "orders:1,,2", "orders:1:2"] {
            assert!(topic(wrong).is_err(), "{wrong}");
        }
    }
}
