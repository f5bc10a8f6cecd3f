//! GGUF block formats, taken apart: integers from 0, a scale, and an offset or a minimum for each few of them.

use half::f16;

/// A block format. A weight is `scale * (q - zero) + min`; formats with a `zero` have no `min` and the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 32 of 4 bits.
    Q4_0,
    /// 32 of 4 bits with a minimum.
    Q4_1,
    /// 32 of 5 bits.
    Q5_0,
    /// 32 of 5 bits with a minimum.
    Q5_1,
    /// 32 of 8 bits.
    Q8_0,
    /// 256 of 4 bits, scales and minima of 6 bits for each 32.
    Q4K,
    /// 256 of 5 bits, scales and minima of 6 bits for each 32.
    Q5K,
    /// 256 of 6 bits, scales of 8 bits for each 16.
    Q6K,
}

/// One block: integers, and scale and minimum for each run of `Format::run` of them.
#[derive(Clone, Debug)]
pub struct Block {
    /// The integers; the first `Format::weights` count.
    pub q: [u8; 256],
    /// Scales by run.
    pub scale: [f32; 16],
    /// Minima by run.
    pub min: [f32; 16],
}

impl Default for Block {
    /// Zeros, for [`Format::decode`]; to be used with one format.
    fn default() -> Self {
        Self { q: [0; 256], scale: [0.0; 16], min: [0.0; 16] }
    }
}

impl Format {
    /// The format of a GGUF tensor type, where it is one of ours.
    pub fn from_ggml(kind: u32) -> Option<Self> {
        Some(match kind {
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            _ => return None,
        })
    }

    /// Weights of a block.
    pub const fn weights(self) -> usize {
        match self {
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
            _ => 32,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Weights that share a scale.
    pub const fn run(self) -> usize {
        match self {
            Self::Q6K => 16,
            _ => 32,
        }
    }

    /// The integer that stands for 0 in formats without a minimum.
    pub const fn zero(self) -> i32 {
        match self {
            Self::Q4_0 => 8,
            Self::Q5_0 => 16,
            Self::Q8_0 => 128,
            Self::Q6K => 32,
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => 0,
        }
    }

    /// Whether weights have a minimum.
    pub const fn has_min(self) -> bool {
        self.zero() == 0
    }

    /// Whether integers are below 16.
    pub const fn is_nibble(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q4_1 | Self::Q4K)
    }

    /// Takes a block of `self.bytes()` apart, into as much of `block` as there is.
    pub fn decode(self, bytes: &[u8], block: &mut Block) {
        match self {
            Self::Q4_0 => decode_32(block, bytes, false, false),
            Self::Q4_1 => decode_32(block, bytes, true, false),
            Self::Q5_0 => decode_32(block, bytes, false, true),
            Self::Q5_1 => decode_32(block, bytes, true, true),
            Self::Q8_0 => {
                block.scale[0] = float(bytes, 0);
                for (q, &b) in block.q.iter_mut().zip(&bytes[2..34]) {
                    *q = b ^ 0x80;
                }
            }
            Self::Q4K => decode_k(block, bytes, None),
            Self::Q5K => decode_k(block, bytes, Some(&bytes[16..48])),
            Self::Q6K => decode_6k(block, bytes),
        }
    }
}

fn float(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Scale, minimum where there is one, high bits where there are, then nibbles: low ones first.
fn decode_32(block: &mut Block, bytes: &[u8], min: bool, high: bool) {
    block.scale[0] = float(bytes, 0);
    let mut at = 2;
    if min {
        block.min[0] = float(bytes, 2);
        at += 2;
    }
    let mut bits = 0;
    if high {
        bits = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        at += 4;
    }
    for (i, &b) in bytes[at..at + 16].iter().enumerate() {
        block.q[i] = (b & 15) | ((bits >> i & 1) << 4) as u8;
        block.q[i + 16] = (b >> 4) | ((bits >> (i + 16) & 1) << 4) as u8;
    }
}

/// Scales and minima of 6 bits in 12 bytes; nibbles of two runs in 32 bytes; high bits of run `r` in bit `r`.
fn decode_k(block: &mut Block, bytes: &[u8], high: Option<&[u8]>) {
    let (d, least) = (float(bytes, 0), float(bytes, 2));
    let packed = &bytes[4..16];
    let nibbles = &bytes[if high.is_some() { 48 } else { 16 }..];
    for run in 0..8 {
        let (scale, min) = if run < 4 {
            (packed[run] & 63, packed[run + 4] & 63)
        } else {
            let both = packed[run + 4];
            ((both & 15) | (packed[run - 4] >> 6) << 4, (both >> 4) | (packed[run] >> 6) << 4)
        };
        block.scale[run] = d * f32::from(scale);
        block.min[run] = -least * f32::from(min);
        for i in 0..32 {
            let nibble = nibbles[run / 2 * 32 + i] >> (run % 2 * 4) & 15;
            let bit = high.map_or(0, |high| high[i] >> run & 1);
            block.q[run * 32 + i] = nibble | bit << 4;
        }
    }
}

/// Two halves of 128; in each, byte `i` of the high bits serves weights `i`, `i + 32`, `i + 64` and `i + 96`.
fn decode_6k(block: &mut Block, bytes: &[u8]) {
    let (low, high, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
    let d = float(bytes, 208);
    for (run, &scale) in scales.iter().enumerate() {
        block.scale[run] = d * f32::from(scale.cast_signed());
    }
    for half in 0..2 {
        for quarter in 0..4 {
            for i in 0..32 {
                let nibble = low[half * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
                let bits = high[half * 32 + i] >> (2 * quarter) & 3;
                block.q[half * 128 + quarter * 32 + i] = nibble | bits << 4;
            }
        }
    }
}
