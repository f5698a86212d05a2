//! `polylogue policy`

use super::queues::VhostArgs;
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List policies
    List(ListPoliciesArgs),
    /// Create or replace a policy
    Set(SetPolicyArgs),
    /// Delete policies
    Delete(DeletePoliciesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListPoliciesArgs {
    /// Operator policies instead
    #[arg(long)]
    pub(crate) operator: bool,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

/// What a policy applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApplyTo {
    All,
    Queues,
    #[value(name = "classic_queues")]
    ClassicQueues,
    #[value(name = "quorum_queues")]
    QuorumQueues,
    Streams,
    Exchanges,
}

impl ApplyTo {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ApplyTo::All => "all",
            ApplyTo::Queues => "queues",
            ApplyTo::ClassicQueues => "classic_queues",
            ApplyTo::QuorumQueues => "quorum_queues",
            ApplyTo::Streams => "streams",
            ApplyTo::Exchanges => "exchanges",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SetPolicyArgs {
    /// Name of the policy
    pub(crate) name: String,
    /// Regular expression for the names of queues and exchanges
    pub(crate) pattern: String,
    /// A key of the policy (max-length=1000), its value as JSON or a string; may be repeated
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub(crate) definition: Vec<String>,
    /// What the policy applies to
    #[arg(long, value_enum, default_value_t = ApplyTo::All)]
    pub(crate) apply_to: ApplyTo,
    /// Of several policies that match, the one with the highest priority holds
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_hyphen_values = true)]
    pub(crate) priority: i32,
    /// An operator policy
    #[arg(long)]
    pub(crate) operator: bool,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeletePoliciesArgs {
    /// Names of the policies
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Operator policies
    #[arg(long)]
    pub(crate) operator: bool,
    #[command(flatten)]
    pub(crate) within: VhostArgs,
}
