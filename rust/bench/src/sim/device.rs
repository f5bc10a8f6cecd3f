//! The device of a simulation: what computes frames, and how long it takes.

use std::time::Duration;

use octavo_core::fake::FakeWorker;
use octavo_core::frame::{Frame, FrameLayout, header};

use super::args::DeviceArgs;
use crate::error::{Error, Result};

/// Computes frames in the order planned.
pub trait Device {
    /// Reads a frame and writes its result.
    ///
    /// # Errors
    /// A frame that breaks the protocol.
    fn run(&mut self, frame: &[u8], result: &mut [u8]) -> octavo_core::Result<()>;

    /// Loses its memory; the host's stays.
    fn die(&mut self);
}

impl Device for FakeWorker {
    fn run(&mut self, frame: &[u8], result: &mut [u8]) -> octavo_core::Result<()> {
        Self::run(self, frame, result)
    }

    fn die(&mut self) {
        Self::die(self);
    }
}

/// How long a step takes.
#[derive(Clone, Copy, Debug)]
pub struct StepTime {
    /// Microseconds of any step, of each token, of each token of KV read, and of each block copied.
    costs: [f64; 4],
}

impl StepTime {
    /// The times of the flags.
    ///
    /// # Errors
    /// A time that is negative or none.
    pub fn new(args: &DeviceArgs) -> Result<Self> {
        for (flag, us) in [
            ("--step-us", args.step_us),
            ("--token-us", args.token_us),
            ("--kv-token-us", args.kv_token_us),
            ("--copy-us", args.copy_us),
        ] {
            if !(0.0..=1e9).contains(&us) {
                return Err(Error::invalid(format!("{flag} is {us}; it must be 0 to 1e9")));
            }
        }
        Ok(Self { costs: [args.step_us, args.token_us, args.kv_token_us, args.copy_us] })
    }

    /// Time of one frame: a constant, its tokens, the KV that its rows read, and the blocks that go to and from the
    /// host.
    ///
    /// # Errors
    /// A frame that is none.
    pub fn of(&self, layout: &FrameLayout, frame: &[u8]) -> octavo_core::Result<Duration> {
        let frame = Frame::new(layout, frame)?;
        let rows = frame.header[header::ROWS] as usize;
        let tokens = f64::from(frame.header[header::TOKENS]);
        let computed = frame.row_computed[..rows].iter().map(|&tokens| f64::from(tokens)).sum::<f64>();
        let copies = f64::from(frame.header[header::SAVES] + frame.header[header::LOADS]);
        let [step_us, token_us, kv_token_us, copy_us] = self.costs;
        let us = step_us + token_us * tokens + kv_token_us * (computed + tokens) + copy_us * copies;
        Ok(Duration::from_nanos((us * 1e3) as u64))
    }
}
