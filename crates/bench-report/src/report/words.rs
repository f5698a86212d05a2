//! Texts for rows, the same in all reports.

use super::judge::{Advantage, ITSELF, Outcome, Profiles, Standing};
use super::scale::short;
use super::stats::{median, number};

/// Legend of the overview's marks.
pub const KEY: &str = "▲ ahead of the closest peer, ▼ behind the best peer, = level, ↔ compared with itself, · no verdict; \
     the number is the ratio: times better, after ▼ times worse";

/// Formats the ratio: "2.50× (2.10–2.90)".
#[must_use]
pub fn times(advantage: &Advantage) -> String {
    let (low, high) = (number(advantage.low), number(advantage.high));
    let spread = if low == high { String::new() } else { format!(" ({low}–{high})") };
    format!("{}×{spread}", number(advantage.times))
}

/// Formats the other side: "over kafka (its default profile), 5 pairs".
#[must_use]
pub fn over(advantage: &Advantage) -> String {
    let profiles = match advantage.profiles {
        None => "",
        Some(Profiles::Default) => " (its default profile)",
        Some(Profiles::Tuned) => " (its tuned profile)",
        Some(Profiles::Both) => " (the closer of its default and tuned profiles)",
    };
    let pairs = if advantage.pairs == 1 { "1 pair".to_owned() } else { format!("{} pairs", advantage.pairs) };
    format!("over {}{profiles}, {pairs}", advantage.over)
}

/// Formats the verdict briefly.
#[must_use]
pub fn verdict(outcome: &Outcome) -> String {
    match (&outcome.winner, &outcome.standing) {
        (Some(winner), _) => winner.clone(),
        (None, Standing::Behind(peers)) => format!("{} ahead of polylogue", peers.join(", ")),
        (None, Standing::Undecided(why)) => why.clone(),
        (None, Standing::Level | Standing::Ahead) => "level".to_owned(),
    }
}

/// Returns the overview's mark with the ratio or the reason.
#[must_use]
pub fn mark(outcome: &Outcome) -> (&'static str, String) {
    let ratio = |times: f64| format!("{}×", brief(times));
    match (&outcome.standing, &outcome.ours) {
        (Standing::Ahead, Some(ours)) => ("▲", ratio(ours.times)),
        (Standing::Behind(_), Some(ours)) => ("▼", ratio(1.0 / ours.times)),
        (Standing::Level, Some(ours)) => ("=", ratio(ours.times)),
        (Standing::Undecided(why), Some(ours)) if why == ITSELF => ("↔", ratio(ours.times)),
        (Standing::Undecided(why), _) => ("·", shortened(why).to_owned()),
        (_, None) => ("·", String::new()),
    }
}

/// Abbreviates a reason for the overview.
fn shortened(why: &str) -> &str {
    match why {
        "no peer to compare with" => "no peer",
        "no run of polylogue counts" => "no own run",
        "polylogue was not run" => "not run",
        "each at its own rate" => "own rates",
        "not sustained: readers fell behind" => "readers lag",
        other => other,
    }
}

fn brief(times: f64) -> String {
    if times.is_finite() && times < 10.0 { format!("{times:.1}") } else { number(times) }
}

/// Formats the outcome of a row as one sentence.
#[must_use]
pub fn sentence(outcome: &Outcome) -> String {
    let ratio = |reported: &Option<Advantage>| {
        reported.as_ref().map(|reported| format!("{}, {}", times(reported), over(reported)))
    };
    match (&outcome.standing, &outcome.winner) {
        (Standing::Ahead, _) => format!("polylogue ahead: {}", ratio(&outcome.ours).unwrap_or_default()),
        (Standing::Behind(peers), Some(winner)) => {
            format!(
                "{} ahead of polylogue; {winner} by {}",
                peers.join(", "),
                ratio(&outcome.advantage).unwrap_or_default()
            )
        }
        (Standing::Behind(peers), None) => {
            format!("{} ahead of polylogue, which has {}", peers.join(", "), ratio(&outcome.ours).unwrap_or_default())
        }
        (Standing::Level, _) => format!("level: polylogue {}", ratio(&outcome.ours).unwrap_or_default()),
        (Standing::Undecided(why), _) => match ratio(&outcome.advantage) {
            Some(reported) => format!("{why}: {reported}"),
            None => why.clone(),
        },
    }
}

/// Formats the median of the rounds, with minimum and maximum if they differ.
#[must_use]
pub fn value(values: &[f64]) -> Option<(String, Option<String>)> {
    let middle = median(values)?;
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let (low, high) = (brief_number(low), brief_number(high));
    Some((brief_number(middle), (low != high).then(|| format!("{low}–{high}"))))
}

fn brief_number(value: f64) -> String {
    match value {
        v if v.abs() >= 1e6 => short(v),
        v if v.fract() == 0.0 && (0.0..1e3).contains(&v) => format!("{v:.0}"),
        v => number(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(standing: Standing, winner: Option<&str>, times: f64) -> Outcome {
        let advantage = |over: &str, times| Advantage {
            over: over.to_owned(),
            profiles: Some(Profiles::Default),
            times,
            low: times,
            high: 2.0 * times,
            pairs: 5,
        };
        Outcome {
            winner: winner.map(str::to_owned),
            advantage: Some(advantage("kafka", times.max(1.0 / times))),
            ours: Some(advantage("kafka", times)),
            standing,
        }
    }

    #[test]
    fn outcomes_are_formatted() {
        let won = outcome(Standing::Ahead, Some("polylogue-sync"), 2.5);
        assert_eq!((verdict(&won).as_str(), mark(&won)), ("polylogue-sync", ("▲", "2.5×".to_owned())));
        assert_eq!(sentence(&won), "polylogue ahead: 2.50× (2.50–5.00), over kafka (its default profile), 5 pairs");
        let reported = |profiles| won.ours.clone().map(|ours| over(&Advantage { profiles, ..ours }));
        assert_eq!(reported(Some(Profiles::Tuned)).as_deref(), Some("over kafka (its tuned profile), 5 pairs"));
        let both = "over kafka (the closer of its default and tuned profiles), 5 pairs";
        assert_eq!(reported(Some(Profiles::Both)).as_deref(), Some(both));
        assert_eq!(reported(None).as_deref(), Some("over kafka, 5 pairs"));
        let lost = outcome(Standing::Behind(vec!["kafka".to_owned()]), Some("kafka"), 0.25);
        assert_eq!((verdict(&lost).as_str(), mark(&lost)), ("kafka", ("▼", "4.0×".to_owned())));
        assert!(sentence(&lost).starts_with("kafka ahead of polylogue; kafka by 4.00×"), "{}", sentence(&lost));
        let behind = outcome(Standing::Behind(vec!["kafka".to_owned(), "pulsar".to_owned()]), None, 0.5);
        assert_eq!(verdict(&behind), "kafka, pulsar ahead of polylogue", "without a winner among the two");
        let level = outcome(Standing::Level, None, 1.04);
        assert_eq!((verdict(&level).as_str(), mark(&level)), ("level", ("=", "1.0×".to_owned())));
        let bound = Outcome { advantage: None, ..outcome(Standing::Undecided("client-bound".to_owned()), None, 1.0) };
        assert_eq!((verdict(&bound), sentence(&bound)), ("client-bound".to_owned(), "client-bound".to_owned()));
    }

    #[test]
    fn values_have_their_spread() {
        assert_eq!(value(&[]), None);
        assert_eq!(value(&[1.5]), Some(("1.50".to_owned(), None)));
        assert_eq!(value(&[27.0, 27.0]), Some(("27".to_owned(), None)), "they do not differ");
        assert_eq!(value(&[1.5, 3.0, 2e9]), Some(("3".to_owned(), Some("1.50–2G".to_owned()))));
    }
}
