//! `polylogue group`.

use super::{NameArgs, NamesArgs, ServerArgs};
use clap::{Args, Subcommand};
use polylogue_admin::api::ResetTopic;

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List all groups
    List(ServerArgs),
    /// Show a group with its members, offsets and lag
    Describe(NameArgs),
    /// Reset the committed offsets of a group that has no members
    Reset(ResetArgs),
    /// Delete groups without members, with their committed offsets
    Delete(NamesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// Name of the group
    pub(crate) name: String,
    /// A topic, optionally with partitions; may be repeated
    #[arg(long, short, required = true, value_name = "TOPIC[:PARTITION[,...]]", value_parser = topic)]
    pub(crate) topic: Vec<ResetTopic>,
    #[command(flatten)]
    pub(crate) to: ResetTarget,
    /// Only show the new offsets (the default without --execute)
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
    /// Commit the offsets
    #[arg(long)]
    pub(crate) execute: bool,
    #[command(flatten)]
    pub(crate) at: ServerArgs,
}

/// Exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ResetTarget {
    /// To the log start offset
    #[arg(long)]
    pub(crate) to_earliest: bool,
    /// To the end of the log, so that only new messages are read
    #[arg(long)]
    pub(crate) to_latest: bool,
    /// To this offset, or the nearest one that exists
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true)]
    pub(crate) to_offset: Option<i64>,
    /// To the first message at or after this time: 2026-01-31T12:00:00Z, 2026-01-31T14:00:00+02:00, or @MILLISECONDS
    /// since 1970
    #[arg(long, value_name = "TIME")]
    pub(crate) to_time: Option<String>,
    /// By this number of messages from the committed offset; negative to go back
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) shift_by: Option<i64>,
}

/// Parses `TOPIC[:PARTITION,...]`; topic names contain no colon.
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
