//! Upper bounds of histogram buckets.

/// Seconds to the first token.
pub(super) const FIRST_TOKEN_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];

/// Seconds between tokens.
pub(super) const TOKEN_SECONDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];

/// Seconds of a whole request or one of its phases.
pub(super) const REQUEST_SECONDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];

/// Choices a request.
pub(super) const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];

/// Tokens a step.
pub(super) const STEP_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

/// 1, 2, 5, 10, 20, 50, ... up to `most`.
pub(super) fn one_two_five(most: u32) -> Vec<f64> {
    let decades = (0..10).map(|exponent| 10_u64.pow(exponent));
    let series = decades.flat_map(|decade| [decade, 2 * decade, 5 * decade]);
    series.take_while(|bound| *bound <= u64::from(most)).map(|bound| bound as f64).collect()
}

/// Preemptions of a sequence.
pub(super) const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];

/// Seconds of an HTTP request, of each route.
pub(super) const HTTP_SECONDS: &[f64] = &[0.1, 0.5, 1.0];

/// Seconds of an HTTP request.
pub(super) const HTTP_SECONDS_FINE: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0,
    30.0, 60.0,
];

/// Bytes of an HTTP body: 256 B to 16 MiB.
pub(super) const BODY_BYTES: &[f64] =
    &[256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];
