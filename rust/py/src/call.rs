//! Kernel calls as values: made from what Python passes, run at once, or kept in a [`crate::program::Program`].

use std::fmt;
use std::slice;
use std::sync::Arc;

use octavo_cpu::attention::{Attention, attend};
use octavo_cpu::elementwise::{
    Ints, VecRef, embedding, gelu_and_mul, rms_norm_parts, scale_rows, silu_and_mul,
};
use octavo_cpu::linear::{PackedWeight, linear, packed_rows};
use octavo_cpu::quant::{Int8Weight, QuantizedWeight, int8_linear, quantized_linear, quantized_rows};
use octavo_cpu::rope::{CacheMut, Rotation, rotary, write_kv};
use octavo_cpu::{CacheType, Cpu, DType, MatMut, MatRef};

/// How a call names what differs from step to step.
pub(crate) trait Form {
    /// A matrix of activations.
    type Matrix: fmt::Debug + Send + Sync;
    /// Integers, one for each token.
    type Ids: fmt::Debug + Send + Sync;
    /// The sequences of a step.
    type Sequences: fmt::Debug + Send + Sync;
}

/// Addresses in memory.
#[derive(Debug)]
pub(crate) struct Live;

impl Form for Live {
    type Matrix = Matrix;
    type Ids = usize;
    type Sequences = Sequences;
}

/// A matrix: rows `stride` elements apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub data: usize,
    pub dtype: DType,
    pub rows: usize,
    pub stride: usize,
}

impl Matrix {
    fn view(self) -> MatRef {
        MatRef { data: self.data as *const u8, dtype: self.dtype, rows: self.rows, stride: self.stride }
    }

    fn view_mut(self) -> MatMut {
        MatMut { data: self.data as *mut u8, dtype: self.dtype, rows: self.rows, stride: self.stride }
    }
}

/// Sequences: addresses of int32 query starts `[count + 1]`, lengths `[count]` and block tables
/// `[count, table_stride]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequences {
    pub count: usize,
    pub starts: usize,
    pub lens: usize,
    pub tables: usize,
    pub table_stride: usize,
}

/// A vector of a model's weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector {
    pub data: usize,
    pub dtype: DType,
    pub len: usize,
}

/// A layer's KV cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cache {
    pub data: usize,
    pub kind: CacheType,
    pub num_blocks: usize,
    pub kv_heads: usize,
    pub block_size: usize,
    pub head_dim: usize,
}

/// A table of cosines and sines: float32 `[rows, rotary_dim]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CosSin {
    pub data: usize,
    pub rows: usize,
    pub rotary_dim: usize,
    pub interleaved: bool,
}

/// What a product multiplies with.
#[derive(Clone, Debug)]
pub(crate) enum Weight {
    Dense(Arc<PackedWeight>),
    Blocks(Arc<QuantizedWeight>),
    Int8(Arc<Int8Weight>),
}

/// A kernel and what it works on. What is the same in every step is held as it is.
#[derive(Debug)]
pub(crate) enum Call<F: Form> {
    /// Rows hold `parts` vectors, each of which is normalised.
    RmsNorm {
        x: F::Matrix,
        residual: Option<F::Matrix>,
        parts: usize,
        weight: Vector,
        eps: f32,
        out: F::Matrix,
    },
    GateAndMul {
        gelu: bool,
        x: F::Matrix,
        n: usize,
        out: F::Matrix,
    },
    Scale {
        x: F::Matrix,
        n: usize,
        factor: f32,
    },
    Embedding {
        table: Matrix,
        n: usize,
        ids: F::Ids,
        wide: bool,
        out: F::Matrix,
    },
    /// Rows of a weight by id, without its bias.
    WeightRows {
        weight: Weight,
        ids: F::Ids,
        wide: bool,
        out: F::Matrix,
    },
    Rotary {
        positions: F::Ids,
        q: F::Matrix,
        q_heads: usize,
        k: F::Matrix,
        k_heads: usize,
        head_dim: usize,
        table: CosSin,
    },
    WriteKv {
        k: F::Matrix,
        v: F::Matrix,
        cache: Cache,
        slots: F::Ids,
    },
    Attention {
        q: F::Matrix,
        heads: usize,
        cache: Cache,
        sequences: F::Sequences,
        scale: f32,
        window: Option<usize>,
        softcap: Option<f32>,
        out: F::Matrix,
    },
    Linear {
        weight: Weight,
        x: F::Matrix,
        out: F::Matrix,
    },
}

/// Turns the names of one form into those of another.
pub(crate) trait Rename<F: Form, G: Form> {
    fn matrix(&mut self, matrix: &F::Matrix) -> Result<G::Matrix, String>;
    fn ids(&mut self, ids: &F::Ids) -> Result<G::Ids, String>;
    fn sequences(&mut self, sequences: &F::Sequences) -> Result<G::Sequences, String>;
}

impl<F: Form> Call<F> {
    /// The same call in another form. Inputs are renamed before outputs.
    pub fn rename<G: Form>(&self, to: &mut impl Rename<F, G>) -> Result<Call<G>, String> {
        Ok(match self {
            Self::RmsNorm { x, residual, parts, weight, eps, out } => Call::RmsNorm {
                x: to.matrix(x)?,
                residual: residual.as_ref().map(|r| to.matrix(r)).transpose()?,
                parts: *parts,
                weight: *weight,
                eps: *eps,
                out: to.matrix(out)?,
            },
            Self::GateAndMul { gelu, x, n, out } => {
                Call::GateAndMul { gelu: *gelu, x: to.matrix(x)?, n: *n, out: to.matrix(out)? }
            }
            Self::Scale { x, n, factor } => Call::Scale { x: to.matrix(x)?, n: *n, factor: *factor },
            Self::Embedding { table, n, ids, wide, out } => {
                Call::Embedding { table: *table, n: *n, ids: to.ids(ids)?, wide: *wide, out: to.matrix(out)? }
            }
            Self::WeightRows { weight, ids, wide, out } => Call::WeightRows {
                weight: weight.clone(),
                ids: to.ids(ids)?,
                wide: *wide,
                out: to.matrix(out)?,
            },
            Self::Rotary { positions, q, q_heads, k, k_heads, head_dim, table } => Call::Rotary {
                positions: to.ids(positions)?,
                q: to.matrix(q)?,
                q_heads: *q_heads,
                k: to.matrix(k)?,
                k_heads: *k_heads,
                head_dim: *head_dim,
                table: *table,
            },
            Self::WriteKv { k, v, cache, slots } => {
                Call::WriteKv { k: to.matrix(k)?, v: to.matrix(v)?, cache: *cache, slots: to.ids(slots)? }
            }
            Self::Attention { q, heads, cache, sequences, scale, window, softcap, out } => Call::Attention {
                q: to.matrix(q)?,
                heads: *heads,
                cache: *cache,
                sequences: to.sequences(sequences)?,
                scale: *scale,
                window: *window,
                softcap: *softcap,
                out: to.matrix(out)?,
            },
            Self::Linear { weight, x, out } => {
                Call::Linear { weight: weight.clone(), x: to.matrix(x)?, out: to.matrix(out)? }
            }
        })
    }
}

impl Call<Live> {
    /// Runs the kernel.
    ///
    /// # Errors
    /// What the kernel finds wrong: an id, slot, position or block out of range.
    ///
    /// # Safety
    /// The addresses are of live memory with the shapes that the call says, and nobody else writes there.
    pub unsafe fn run(&self, cpu: &Cpu) -> Result<(), String> {
        // SAFETY: the caller's; ids, slots, positions, lengths and blocks are checked by the kernels.
        unsafe {
            match self {
                Self::RmsNorm { x, residual, parts, weight, eps, out } => {
                    let weight =
                        VecRef { data: weight.data as *const u8, dtype: weight.dtype, len: weight.len };
                    let residual = residual.map(Matrix::view_mut);
                    rms_norm_parts(cpu, x.view(), residual, *parts, weight, *eps, out.view_mut());
                }
                Self::GateAndMul { gelu: true, x, n, out } => gelu_and_mul(cpu, x.view(), *n, out.view_mut()),
                Self::GateAndMul { gelu: false, x, n, out } => {
                    silu_and_mul(cpu, x.view(), *n, out.view_mut());
                }
                Self::Scale { x, n, factor } => scale_rows(cpu, x.view_mut(), *n, *factor),
                Self::Embedding { table, n, ids, wide, out } => {
                    embedding(cpu, table.view(), *n, ints(*ids, *wide), out.view_mut())?;
                }
                Self::WeightRows { weight, ids, wide, out } => {
                    let (ids, out) = (ints(*ids, *wide), out.view_mut());
                    match weight {
                        Weight::Dense(weight) => packed_rows(cpu, weight, ids, out)?,
                        Weight::Blocks(weight) => quantized_rows(cpu, weight, ids, out)?,
                        Weight::Int8(_) => return Err("rows of an int8 weight cannot be looked up".into()),
                    }
                }
                Self::Rotary { positions, q, q_heads, k, k_heads, head_dim, table } => {
                    let rotation = Rotation {
                        positions: ints(*positions, true),
                        cos_sin: table.data as *const f32,
                        max_position: table.rows,
                        rotary_dim: table.rotary_dim,
                        interleaved: table.interleaved,
                    };
                    rotary(cpu, rotation, q.view_mut(), *q_heads, *head_dim)?;
                    rotary(cpu, rotation, k.view_mut(), *k_heads, *head_dim)?;
                }
                Self::WriteKv { k, v, cache, slots } => {
                    let cache = CacheMut {
                        data: cache.data as *mut u8,
                        kind: cache.kind,
                        num_blocks: cache.num_blocks,
                        kv_heads: cache.kv_heads,
                        block_size: cache.block_size,
                        head_dim: cache.head_dim,
                    };
                    write_kv(cpu, k.view(), v.view(), cache, *slots as *const i64)?;
                }
                Self::Attention { q, heads, cache, sequences, scale, window, softcap, out } => {
                    let Sequences { count, starts, lens, tables, table_stride } = *sequences;
                    let call = Attention {
                        q: q.view(),
                        cache: cache.data as *const u8,
                        cache_type: cache.kind,
                        num_blocks: cache.num_blocks,
                        block_size: cache.block_size,
                        heads: *heads,
                        kv_heads: cache.kv_heads,
                        head_dim: cache.head_dim,
                        query_start: slice::from_raw_parts(starts as *const i32, count + 1),
                        seq_lens: slice::from_raw_parts(lens as *const i32, count),
                        block_tables: tables as *const i32,
                        table_stride,
                        scale: *scale,
                        window: *window,
                        softcap: *softcap,
                    };
                    attend(cpu, &call, out.view_mut())?;
                }
                Self::Linear { weight, x, out } => match weight {
                    Weight::Dense(weight) => linear(cpu, weight, x.view(), out.view_mut()),
                    Weight::Blocks(weight) => quantized_linear(cpu, weight, x.view(), out.view_mut()),
                    Weight::Int8(weight) => int8_linear(cpu, weight, x.view(), out.view_mut()),
                },
            }
        }
        Ok(())
    }
}

fn ints(data: usize, wide: bool) -> Ints {
    if wide { Ints::I64(data as *const i64) } else { Ints::I32(data as *const i32) }
}
