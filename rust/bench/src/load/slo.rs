//! Service level objectives, and which requests meet them.

use std::str::FromStr;
use std::time::Duration;

use super::record::Record;

/// What an objective bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Time to first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// End-to-end latency.
    E2el,
}

/// One objective: a measure and the most it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    measure: Measure,
    at_most: Duration,
}

impl Slo {
    /// True when the request meets the objective. A request of one token has no
    /// time per token and meets any.
    pub fn met_by(&self, record: &Record) -> bool {
        let found = match self.measure {
            Measure::Ttft => Some(record.ttft()),
            Measure::Tpot => record.tpot(),
            Measure::E2el => Some(record.e2e()),
        };
        found.is_none_or(|duration| duration <= self.at_most)
    }
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, ms) = text.split_once(':').ok_or("write KEY:MS, such as ttft:200")?;
        let measure = match key {
            "ttft" => Measure::Ttft,
            "tpot" => Measure::Tpot,
            "e2el" => Measure::E2el,
            _ => return Err(format!("`{key}` is none of ttft, tpot, e2el")),
        };
        let at_most = ms
            .parse()
            .ok()
            .and_then(|ms: f64| Duration::try_from_secs_f64(ms / 1e3).ok())
            .ok_or(format!("`{ms}` is not a number of milliseconds"))?;
        Ok(Self { measure, at_most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_parsed_or_explained() {
        assert_eq!(
            "tpot:12.5".parse(),
            Ok(Slo { measure: Measure::Tpot, at_most: Duration::from_micros(12_500) })
        );
        assert!("itl:3".parse::<Slo>().unwrap_err().contains("ttft, tpot, e2el"));
        assert!("ttft".parse::<Slo>().unwrap_err().contains("KEY:MS"));
        assert!("ttft:-1".parse::<Slo>().unwrap_err().contains("milliseconds"));
    }
}
