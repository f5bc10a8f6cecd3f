//! What arrives when: drawn at random or read from a file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use octavo_core::{EngineRequest, StopRules, Token};
use rand::Rng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use super::args::TraceArgs;
use super::request::{request, tokens};
use crate::arrivals::Arrivals;
use crate::error::{Error, Result};
use crate::random::{Purpose, stream};

/// Most lines of a recorded trace.
const MOST_LINES: usize = 10_000_000;

/// A request and its time.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Virtual time.
    pub at: Duration,
    /// What is asked; ids count from 0.
    pub request: EngineRequest,
    /// When it is aborted, unless it has ended.
    pub abort_at: Option<Duration>,
}

/// One request of a trace before its tokens are drawn.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    arrival_s: f64,
    prompt: Option<Vec<Token>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_len: Option<u32>,
    output_len: u32,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    tenant: u64,
    #[serde(default)]
    stop_token_ids: Vec<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    abort_after_s: Option<f64>,
    #[serde(default, skip_serializing)]
    prefix_group: u64,
    #[serde(default, skip_serializing)]
    prefix_len: u32,
}

/// The arrivals of a trace in the order of their times.
///
/// # Errors
/// Flags out of range, or a file that is no trace.
pub fn arrivals(args: &TraceArgs, vocab_size: u32) -> Result<Box<dyn Iterator<Item = Arrival>>> {
    let seed = args.seed;
    let lines: Box<dyn Iterator<Item = Line>> = match &args.trace {
        Some(path) => Box::new(read(path, vocab_size)?.into_iter()),
        None => Box::new(random(args)?),
    };
    Ok(Box::new((0..).zip(lines).map(move |(id, line)| arrival(id, line, seed, vocab_size))))
}

/// Writes arrivals as a trace that gives them again, whatever the seed.
///
/// # Errors
/// A file that cannot be written.
pub fn record(path: &Path, arrivals: impl Iterator<Item = Arrival>) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for arrival in arrivals {
            serde_json::to_writer(&mut file, &line(&arrival))?;
            file.write_all(b"\n")?;
        }
        file.flush()
    };
    write().map_err(|error| Error::invalid(format!("--record {}: {error}", path.display())))
}

fn line(Arrival { at, request, abort_at }: &Arrival) -> Line {
    Line {
        arrival_s: at.as_secs_f64(),
        prompt: Some(request.prompt.to_vec()),
        input_len: None,
        output_len: request.stop.max_tokens,
        priority: request.priority,
        tenant: request.tenant,
        stop_token_ids: request.stop.stop_token_ids.clone(),
        abort_after_s: abort_at.map(|abort_at| abort_at.saturating_sub(*at).as_secs_f64()),
        prefix_group: 0,
        prefix_len: 0,
    }
}

fn arrival(id: u64, line: Line, seed: u64, vocab_size: u32) -> Arrival {
    let random = || {
        let mut prefix = stream(seed, Purpose::Prefix, line.prefix_group);
        let mut own = stream(seed, Purpose::Request, id);
        let shared = tokens(&mut prefix, line.prefix_len, vocab_size);
        shared.chain(tokens(&mut own, line.input_len.unwrap_or(1), vocab_size)).collect()
    };
    let prompt = line.prompt.map_or_else(random, Arc::from);
    let seconds = |s: f64| Duration::try_from_secs_f64(s).unwrap_or_default();
    let at = seconds(line.arrival_s);
    let request = request(id, prompt, line.output_len);
    Arrival {
        at,
        request: EngineRequest {
            priority: line.priority,
            tenant: line.tenant,
            stop: StopRules { stop_token_ids: line.stop_token_ids, ..request.stop },
            ..request
        },
        abort_at: line.abort_after_s.map(|after| at + seconds(after)),
    }
}

fn random(args: &TraceArgs) -> Result<impl Iterator<Item = Line> + 'static> {
    let invalid = |flag: &str, rule: &str| Err(Error::invalid(format!("{flag} must be {rule}")));
    if args.input_len == 0 || args.output_len == 0 {
        return invalid("--input-len and --output-len", "at least 1");
    }
    if args.num_prefixes == 0 || args.num_priorities == 0 || args.num_tenants == 0 {
        return invalid("--num-prefixes, --num-priorities and --num-tenants", "at least 1");
    }
    if !(0.0..1.0).contains(&args.range_ratio) {
        return invalid("--range-ratio", "at least 0 and below 1");
    }
    if !(0.0..=1.0).contains(&args.abort_share) || !(0.0..=1e9).contains(&args.abort_within) {
        return invalid("--abort-share", "0 to 1, and --abort-within a number of seconds");
    }
    let times = Arrivals::new(args.request_rate, args.burstiness, None)?.times(args.seed);
    let args = args.clone();
    Ok((0..args.num_requests).zip(times.into_iter().flatten()).map(move |(id, at)| {
        // Not the stream that draws the request's tokens.
        let mut rng = stream(args.seed, Purpose::Shape, id);
        let aborted = rng.random_bool(args.abort_share);
        Line {
            arrival_s: at.as_secs_f64(),
            prompt: None,
            input_len: Some(length(&mut rng, args.input_len, args.range_ratio)),
            output_len: length(&mut rng, args.output_len, args.range_ratio),
            stop_token_ids: (0..args.num_stop_ids).collect(),
            priority: rng.random_range(0..args.num_priorities) as i32,
            abort_after_s: aborted.then(|| rng.random_range(0.0..=args.abort_within)),
            prefix_group: rng.random_range(0..u64::from(args.num_prefixes)),
            prefix_len: args.prefix_len,
            tenant: rng.random_range(0..u64::from(args.num_tenants)),
        }
    }))
}

fn length(rng: &mut StdRng, length: u32, ratio: f64) -> u32 {
    let spread = (f64::from(length) * ratio) as u32;
    rng.random_range(length - spread..=length + spread).max(1)
}

fn read(path: &Path, vocab_size: u32) -> Result<Vec<Line>> {
    let name = path.display();
    let bad = |what: String| Error::invalid(format!("--trace {name}: {what}"));
    let file = File::open(path).map_err(|error| bad(error.to_string()))?;
    let mut lines = Vec::new();
    for (index, text) in BufReader::new(file).lines().enumerate() {
        let text = text.map_err(|error| bad(error.to_string()))?;
        if !text.trim().is_empty() {
            lines
                .push(parse(&text, vocab_size).map_err(|error| bad(format!("line {}: {error}", index + 1)))?);
        }
        if lines.len() > MOST_LINES {
            return Err(bad(format!("it has more than {MOST_LINES} requests")));
        }
    }
    lines.sort_by(|a, b| a.arrival_s.total_cmp(&b.arrival_s));
    Ok(lines)
}

fn parse(text: &str, vocab_size: u32) -> std::result::Result<Line, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if line.prompt.is_some() == line.input_len.is_some() {
        return Err("give either `prompt` or `input_len`".into());
    }
    if let Some(token) =
        line.prompt.iter().flat_map(|prompt| prompt.iter()).find(|&&token| token >= vocab_size)
    {
        return Err(format!("`prompt` holds token id {token}; the vocabulary's are below {vocab_size}"));
    }
    let times = [Some(line.arrival_s), line.abort_after_s];
    if times.into_iter().flatten().any(|time| !(0.0..=1e9).contains(&time)) {
        return Err("times are seconds from 0 to 1e9".into());
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_requests_or_errors_that_say_why() {
        let line =
            parse(r#"{"arrival_s": 0.5, "input_len": 7, "output_len": 2, "prefix_len": 3}"#, 100).unwrap();
        let arrival = arrival(4, line, 0, 100);
        assert_eq!((arrival.at, arrival.request.prompt.len()), (Duration::from_millis(500), 10));
        for (text, why) in [
            (r#"{"arrival_s": 0, "output_len": 2}"#, "`prompt` or `input_len`"),
            (r#"{"arrival_s": 0, "prompt": [100], "output_len": 2}"#, "token id 100"),
            (r#"{"arrival_s": -1, "input_len": 1, "output_len": 2}"#, "seconds"),
            (r#"{"arrival_s": 0, "input_len": 1, "output_len": 2, "inputs": 1}"#, "inputs"),
        ] {
            assert!(parse(text, 100).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn requests_of_a_group_share_their_prefix() {
        let line = |prefix_group| Line {
            arrival_s: 0.0,
            prompt: None,
            input_len: Some(4),
            output_len: 1,
            priority: 0,
            tenant: 0,
            stop_token_ids: Vec::new(),
            abort_after_s: None,
            prefix_group,
            prefix_len: 8,
        };
        let prompt = |id, group| arrival(id, line(group), 9, 100).request.prompt;
        assert_eq!(prompt(0, 0)[..8], prompt(1, 0)[..8]);
        assert_ne!(prompt(0, 0)[8..], prompt(1, 0)[8..]);
        assert_ne!(prompt(0, 0)[..8], prompt(0, 1)[..8]);
    }
}
