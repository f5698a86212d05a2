//! Gauges that are evaluated at scrape time.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;

/// Encodes gauges (name, help, value).
pub fn encode_gauges<const N: usize>(
    mut encoder: DescriptorEncoder<'_>,
    gauges: [(&str, &str, u64); N],
) -> Result<(), std::fmt::Error> {
    for (name, help, count) in gauges {
        let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    Ok(())
}
