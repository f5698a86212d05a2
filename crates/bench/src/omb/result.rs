//! Results in the format of the OpenMessaging Benchmark's result files. Latencies are milliseconds, rates messages per second.
//!
//! Lists have a value for each period of the window. Latencies by period require a client that reports the histograms of each second;
//! otherwise their lists have one value, that of the whole window. The delay before a message is handed over (`publishDelayLatency`) is
//! part of the publish latency here and not reported separately.

use super::Workload;
use crate::contract::{Done, Second};
use crate::error::Result;
use crate::latency::Latency;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Length of a period, as there. Seconds.
const PERIOD_S: usize = 10;
const MS_NS: f64 = 1e6;

/// The outcome of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Driven<'a> {
    /// The broker.
    pub driver: &'a str,
    /// Time from the start to the window. Seconds.
    pub warmup_s: u64,
    /// Length of the window. Seconds.
    pub window_s: u64,
    /// The reports of each second.
    pub seconds: &'a [Second],
    /// The final report.
    pub done: &'a Done,
}

macro_rules! result_file {
    ($(#[$about:meta])* pub struct $name:ident { $($head:ident: $head_type:ty,)* }
     lists { $($list:ident $list_key:literal,)* } single { $($single:ident $single_key:literal,)* }
     quantiles { $($map:ident $map_key:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        #[allow(missing_docs, reason = "they are the keys of the files")]
        pub struct $name {
            $(pub $head: $head_type,)*
            $(#[serde(rename = $list_key)] pub $list: Vec<f64>,)*
            $(#[serde(rename = $single_key)] pub $single: f64,)*
            $(#[serde(rename = $map_key)] pub $map: BTreeMap<String, f64>,)*
        }
    };
}

result_file! {
    /// A result file.
    pub struct OmbResult {
        workload: String,
        driver: String,
        message_size: u32,
        topics: u32,
        partitions: u32,
        producers_per_topic: u32,
        consumers_per_topic: u32,
        publish_rate: Vec<f64>,
        publish_error_rate: Vec<f64>,
        consume_rate: Vec<f64>,
        backlog: Vec<u64>,
    }
    lists {
        publish_avg "publishLatencyAvg",
        publish_50 "publishLatency50pct",
        publish_75 "publishLatency75pct",
        publish_95 "publishLatency95pct",
        publish_99 "publishLatency99pct",
        publish_999 "publishLatency999pct",
        publish_9999 "publishLatency9999pct",
        publish_99999 "publishLatency99999pct",
        publish_max "publishLatencyMax",
        end_avg "endToEndLatencyAvg",
        end_50 "endToEndLatency50pct",
        end_75 "endToEndLatency75pct",
        end_95 "endToEndLatency95pct",
        end_99 "endToEndLatency99pct",
        end_999 "endToEndLatency999pct",
        end_9999 "endToEndLatency9999pct",
        end_99999 "endToEndLatency99999pct",
        end_max "endToEndLatencyMax",
    }
    single {
        all_publish_avg "aggregatedPublishLatencyAvg",
        all_publish_50 "aggregatedPublishLatency50pct",
        all_publish_75 "aggregatedPublishLatency75pct",
        all_publish_95 "aggregatedPublishLatency95pct",
        all_publish_99 "aggregatedPublishLatency99pct",
        all_publish_999 "aggregatedPublishLatency999pct",
        all_publish_9999 "aggregatedPublishLatency9999pct",
        all_publish_99999 "aggregatedPublishLatency99999pct",
        all_publish_max "aggregatedPublishLatencyMax",
        all_end_avg "aggregatedEndToEndLatencyAvg",
        all_end_50 "aggregatedEndToEndLatency50pct",
        all_end_75 "aggregatedEndToEndLatency75pct",
        all_end_95 "aggregatedEndToEndLatency95pct",
        all_end_99 "aggregatedEndToEndLatency99pct",
        all_end_999 "aggregatedEndToEndLatency999pct",
        all_end_9999 "aggregatedEndToEndLatency9999pct",
        all_end_99999 "aggregatedEndToEndLatency99999pct",
        all_end_max "aggregatedEndToEndLatencyMax",
    }
    quantiles {
        publish_quantiles "aggregatedPublishLatencyQuantiles",
        end_quantiles "aggregatedEndToEndLatencyQuantiles",
    }
}

/// Returns the average, the percentiles of the files, and the maximum. The files have every percentile, however few samples are beyond it.
fn nine(latency: &Latency) -> [f64; 9] {
    let at = |percentile| latency.at(percentile) as f64 / MS_NS;
    [
        latency.mean().unwrap_or(0.0) / MS_NS,
        at(50.0),
        at(75.0),
        at(95.0),
        at(99.0),
        at(99.9),
        at(99.99),
        at(99.999),
        latency.max() as f64 / MS_NS,
    ]
}

fn quantiles(latency: &Latency) -> BTreeMap<String, f64> {
    latency.curve_all().into_iter().map(|(percentile, ns)| (format!("{percentile:.4}"), ns as f64 / MS_NS)).collect()
}

/// Returns the latencies of a period; `None` if one of its seconds with messages has none.
fn of_period(
    period: &[Second],
    text: fn(&Second) -> Option<&String>,
    longest: fn(&Second) -> u64,
) -> Result<Option<Latency>> {
    let mut sum = Latency::new();
    for second in period {
        match text(second) {
            Some(text) => sum.add(&Latency::from_text(text)?),
            None if longest(second) > 0 => return Ok(None),
            None => {}
        }
    }
    Ok(Some(sum))
}

fn periods(
    window: &[Second],
    text: fn(&Second) -> Option<&String>,
    longest: fn(&Second) -> u64,
    whole: [f64; 9],
) -> Result<Vec<[f64; 9]>> {
    let each = window.chunks(PERIOD_S).map(|period| of_period(period, text, longest)).collect::<Result<Vec<_>>>()?;
    let stated: Option<Vec<[f64; 9]>> = each.into_iter().map(|latency| latency.map(|latency| nine(&latency))).collect();
    Ok(stated.unwrap_or_else(|| vec![whole]))
}

impl OmbResult {
    /// Makes the result of a workload.
    ///
    /// # Errors
    /// An invalid histogram.
    pub fn of(workload: &Workload, driven: &Driven<'_>) -> Result<OmbResult> {
        let mut result = OmbResult {
            workload: workload.name.clone(),
            driver: driven.driver.to_owned(),
            message_size: workload.message_size,
            topics: workload.topics,
            partitions: workload.partitions_per_topic,
            producers_per_topic: workload.producers_per_topic,
            consumers_per_topic: workload.consumer_per_subscription,
            ..OmbResult::default()
        };
        let (from, to) = (driven.warmup_s, driven.warmup_s.saturating_add(driven.window_s));
        let window: Vec<Second> =
            driven.seconds.iter().filter(|second| (from..to).contains(&second.second)).cloned().collect();
        let before = driven.seconds.iter().filter(|second| second.second < from);
        let (mut sent, mut received) =
            before.fold((0, 0), |(sent, received), second| (sent + second.sent, received + second.received));
        for period in window.chunks(PERIOD_S) {
            let sum = |of: fn(&Second) -> u64| period.iter().map(of).sum::<u64>();
            let a_second = |messages: u64| messages as f64 / period.len() as f64;
            (sent, received) = (sent + sum(|second| second.sent), received + sum(|second| second.received));
            result.publish_rate.push(a_second(sum(|second| second.acked)));
            result.consume_rate.push(a_second(sum(|second| second.received)));
            result.backlog.push((sent * u64::from(workload.subscriptions_per_topic)).saturating_sub(received));
            // The time of refusals is not reported: all count at the end of the run.
            result.publish_error_rate.push(0.0);
        }
        if let Some(last) = result.publish_error_rate.last_mut() {
            *last = driven.done.errors as f64 / (window.len() % PERIOD_S).max(1) as f64;
        }
        let publish = Latency::from_text(&driven.done.publish)?;
        let end = Latency::from_text(&driven.done.end_to_end)?;
        result.set_publish(&publish, periods(&window, |s| s.publish.as_ref(), |s| s.publish_max_ns, nine(&publish))?);
        result.set_end(&end, periods(&window, |s| s.end_to_end.as_ref(), |s| s.end_to_end_max_ns, nine(&end))?);
        Ok(result)
    }

    fn set_publish(&mut self, all: &Latency, periods: Vec<[f64; 9]>) {
        for [avg, p50, p75, p95, p99, p999, p9999, p99999, max] in periods {
            self.publish_avg.push(avg);
            self.publish_50.push(p50);
            self.publish_75.push(p75);
            self.publish_95.push(p95);
            self.publish_99.push(p99);
            self.publish_999.push(p999);
            self.publish_9999.push(p9999);
            self.publish_99999.push(p99999);
            self.publish_max.push(max);
        }
        let [avg, p50, p75, p95, p99, p999, p9999, p99999, max] = nine(all);
        (self.all_publish_avg, self.all_publish_50, self.all_publish_75) = (avg, p50, p75);
        (self.all_publish_95, self.all_publish_99, self.all_publish_999) = (p95, p99, p999);
        (self.all_publish_9999, self.all_publish_99999, self.all_publish_max) = (p9999, p99999, max);
        self.publish_quantiles = quantiles(all);
    }

    fn set_end(&mut self, all: &Latency, periods: Vec<[f64; 9]>) {
        for [avg, p50, p75, p95, p99, p999, p9999, p99999, max] in periods {
            self.end_avg.push(avg);
            self.end_50.push(p50);
            self.end_75.push(p75);
            self.end_95.push(p95);
            self.end_99.push(p99);
            self.end_999.push(p999);
            self.end_9999.push(p9999);
            self.end_99999.push(p99999);
            self.end_max.push(max);
        }
        let [avg, p50, p75, p95, p99, p999, p9999, p99999, max] = nine(all);
        (self.all_end_avg, self.all_end_50, self.all_end_75) = (avg, p50, p75);
        (self.all_end_95, self.all_end_99, self.all_end_999) = (p95, p99, p999);
        (self.all_end_9999, self.all_end_99999, self.all_end_max) = (p9999, p99999, max);
        self.end_quantiles = quantiles(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        Workload::parse(
            "name: w\ntopics: 2\npartitionsPerTopic: 3\nmessageSize: 100\nsubscriptionsPerTopic: 2\nproducersPerTopic: 1\n\
             consumerPerSubscription: 1\nproducerRate: 100\ntestDurationMinutes: 1\n",
        )
        .expect("a workload")
    }

    fn text(ms: u64, count: u64) -> String {
        let mut latency = Latency::new();
        latency.record_many(ms * 1_000_000, count);
        latency.to_text().expect("a text")
    }

    fn seconds(stated: bool) -> Vec<Second> {
        let second = |second| Second {
            second,
            sent: 100,
            acked: 100,
            received: 190,
            publish_max_ns: 1,
            publish: stated.then(|| text(second, 100)),
            ..Second::default()
        };
        (0..25).map(second).collect()
    }

    fn result(stated: bool) -> OmbResult {
        let done = Done { publish: text(5, 100), end_to_end: text(7, 10), ..Done::default() };
        let seconds = seconds(stated);
        let driven = Driven { driver: "kafka", warmup_s: 5, window_s: 15, seconds: &seconds, done: &done };
        OmbResult::of(&workload(), &driven).expect("a result")
    }

    #[test]
    fn periods_are_ten_seconds_of_the_window() {
        let result = result(true);
        assert_eq!(
            (result.publish_rate.as_slice(), result.consume_rate.as_slice()),
            (&[100.0; 2][..], &[190.0; 2][..])
        );
        assert_eq!(result.backlog, [15 * 10, 20 * 10], "what the warm-up has left counts");
        assert_eq!((result.publish_max.len(), result.publish_max[0].round()), (2, 14.0), "the seconds from 5 to 14");
        assert_eq!(result.publish_max[1].round(), 19.0);
        assert_eq!(result.end_max, [0.0; 2], "no one read anything");
        assert_eq!((result.all_publish_50.round(), result.all_end_max.round()), (5.0, 7.0));
        assert!(!result.publish_quantiles.is_empty());
    }

    #[test]
    fn without_histograms_of_seconds_the_window_is_one_period() {
        let result = result(false);
        assert_eq!((result.publish_rate.len(), result.publish_50.len()), (2, 1));
        assert_eq!(result.publish_50[0].round(), 5.0);
    }

    #[test]
    fn the_keys_are_those_of_the_files() {
        let json = serde_json::to_value(result(true)).expect("JSON");
        let keys: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
        for key in
            ["workload", "driver", "messageSize", "topics", "partitions", "producersPerTopic", "consumersPerTopic"]
        {
            assert!(keys.contains(&key), "{key}");
        }
        for key in ["publishRate", "publishErrorRate", "consumeRate", "backlog"] {
            assert!(json[key].is_array(), "{key}");
        }
        for what in ["publishLatency", "endToEndLatency"] {
            let upper = format!("aggregated{}{}", what[..1].to_uppercase(), &what[1..]);
            for end in ["Avg", "50pct", "75pct", "95pct", "99pct", "999pct", "9999pct", "99999pct", "Max"] {
                assert!(json[format!("{what}{end}")].is_array(), "{what}{end}");
                assert!(json[format!("{upper}{end}")].is_number(), "{upper}{end}");
            }
            assert!(json[format!("{upper}Quantiles")].is_object(), "{upper}Quantiles");
        }
        let again: OmbResult = serde_json::from_value(json).expect("it is read again");
        assert_eq!(again, result(true));
    }
}
