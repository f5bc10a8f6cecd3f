//! Taking a step's result in.

use crate::error::{Error, Result};
use crate::event::{Event, EventKind, FinishReason, TokenLogprobs};
use crate::frame::{FrameLayout, StepResult, header, row_status};
use crate::ids::Token;
use crate::limits::EngineLimits;
use crate::sched::{Row, Scheduler, Sequence, Step, stops};

/// The result's columns, if it is the result of `step`.
pub fn open<'a>(layout: &FrameLayout, step: &Step, result: &'a [u8]) -> Result<StepResult<'a>> {
    let columns = StepResult::new(layout, result)?;
    let found = (columns.header[header::STEP], columns.header[header::ROWS]);
    let expected = (step.number as i32, step.rows.len() as i32);
    if found != expected {
        return Err(Error::internal(format!(
            "the result is of step {} with {} rows, but step {} with {} rows is next",
            found.0, found.1, expected.0, expected.1
        )));
    }
    Ok(columns)
}

/// Applies every row and reports what came of it.
pub fn apply(
    scheduler: &mut Scheduler,
    limits: &EngineLimits,
    step: &Step,
    result: &StepResult<'_>,
    events: &mut Vec<Event>,
) {
    scheduler.commit_copies(step);
    let micros = |index: usize| u64::try_from(result.header[index]).unwrap_or(0);
    scheduler.counters.host_save_us += micros(header::SAVE_US);
    scheduler.counters.host_load_us += micros(header::LOAD_US);
    let mut query_start = 0;
    for (place, row) in step.rows.iter().enumerate() {
        let at = At { place, query_start, limits, result };
        query_start += row.len;
        apply_row(scheduler, row, at, events);
    }
    scheduler.committed(step.number);
    scheduler.counters.steps += 1;
}

/// Where a row's results lie.
#[derive(Clone, Copy)]
struct At<'a> {
    place: usize,
    query_start: usize,
    limits: &'a EngineLimits,
    result: &'a StepResult<'a>,
}

fn apply_row(scheduler: &mut Scheduler, row: &Row, at: At<'_>, events: &mut Vec<Event>) {
    let failed = at.result.status[at.place] != row_status::GOOD;
    let context_len = scheduler.context_len();
    let Some(sequence) = scheduler.row_sequence(row) else {
        if failed {
            // Which blocks it filled is no longer known.
            scheduler.forget_all();
        }
        return;
    };
    let request = sequence.id;
    let mut tell = |kind| events.push(Event { request, kind });
    if !sequence.started {
        sequence.started = true;
        tell(EventKind::Started { cached: sequence.cached });
    }
    let token = at.result.token[at.place];
    if failed || (row.samples && !(0..at.limits.vocab_size as i32).contains(&token)) {
        tell(EventKind::Finished { reason: FinishReason::Error });
        scheduler.forget(row.sequence);
        scheduler.finish(row.sequence, FinishReason::Error);
        return;
    }
    if row.prompt_logprobs
        && let Some(kind) = prompt_logprobs(sequence, row, at)
    {
        tell(kind);
    }
    let computed = sequence.prompt_len.saturating_sub(row.start).min(row.len);
    if row.samples {
        let token = token as Token;
        sequence.unread -= 1;
        sequence.tokens.push(token);
        let finish = stops(sequence, context_len);
        let logprobs = sequence.sampling.logprobs.map(|count| Box::new(sampled_logprobs(token, count, at)));
        tell(EventKind::Token { token, logprobs, finish });
        scheduler.counters.generated_tokens += 1;
        match finish {
            Some(reason) => scheduler.finish(row.sequence, reason),
            None => scheduler.cache_full(row.sequence),
        }
    }
    scheduler.counters.prompt_tokens_computed += computed as u64;
}

fn sampled_logprobs(token: Token, count: u32, at: At<'_>) -> TokenLogprobs {
    let width = at.limits.max_logprobs as usize;
    let top = at.place * width..at.place * width + count as usize;
    TokenLogprobs {
        token,
        logprob: at.result.logprob[at.place],
        rank: at.result.rank[at.place] as u32,
        top: pairs(&at.result.top_id[top.clone()], &at.result.top_logprob[top]),
    }
}

/// Log-probabilities of the prompt tokens that follow the row's query tokens,
/// less those that an earlier run has reported.
fn prompt_logprobs(sequence: &mut Sequence, row: &Row, at: At<'_>) -> Option<EventKind> {
    let count = sequence.sampling.prompt_logprobs? as usize;
    let width = at.limits.max_logprobs as usize;
    let start = sequence.prompt_reported.max(row.start + 1);
    let end = (row.start + row.len + 1).min(sequence.prompt_len);
    if start >= end {
        return None;
    }
    let entries = (start..end)
        .map(|position| {
            let query = at.query_start + position - 1 - row.start;
            let top = query * width..query * width + count;
            TokenLogprobs {
                token: sequence.tokens[position],
                logprob: at.result.prompt_logprob[query],
                rank: at.result.prompt_rank[query] as u32,
                top: pairs(&at.result.prompt_top_id[top.clone()], &at.result.prompt_top_logprob[top]),
            }
        })
        .collect();
    sequence.prompt_reported = end;
    Some(EventKind::PromptLogprobs { start: start as u32, entries })
}

fn pairs(ids: &[i32], logprobs: &[f32]) -> Vec<(Token, f32)> {
    ids.iter().zip(logprobs).map(|(&id, &logprob)| (id as Token, logprob)).collect()
}
