//! What is computed next.
//!
//! There is no prefill phase and no decode phase. Each running sequence has a
//! number of tokens to compute: its known tokens, and those sampled on the
//! device but not read back, less those already scheduled. A step fills one
//! token budget from them: first every sequence that needs a single token, then
//! chunks of longer ones and new admissions in the policy's order.

mod admit;
mod budget;
mod chunk;
mod deadline;
mod fair;
mod lpm;
mod plan;
mod preempt;
mod queue;
mod ranked;
mod retain;
mod running;
mod scheduler;
mod sequence;
mod step;
mod stop;

pub use lpm::PATIENCE as LPM_PATIENCE;
pub use scheduler::Scheduler;
pub use sequence::Sequence;
pub use step::{Row, Step};
pub use stop::stops;
