//! The tensor table.

use std::io::Read;

use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;
/// Longest tensor name in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Declares [`GgmlType`] from one table: name, code in files, elements a block, bytes a block.
macro_rules! ggml_types {
    ($($variant:ident $name:literal $code:literal $block:literal $bytes:literal),* $(,)?) => {
        /// How a tensor's elements are stored: in blocks of [`block_size`](Self::block_size)
        /// elements that take [`type_size`](Self::type_size) bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, non_camel_case_types)]
        #[repr(u32)]
        pub enum GgmlType { $($variant = $code),* }

        impl GgmlType {
            /// Every type, in the order of the codes.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The type with this code in files.
            pub fn from_code(code: u32) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }

            /// ggml's name, such as `Q4_K`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Elements a block.
            pub fn block_size(self) -> u64 {
                match self { $(Self::$variant => $block),* }
            }

            /// Bytes a block.
            pub fn type_size(self) -> u64 {
                match self { $(Self::$variant => $bytes),* }
            }
        }
    };
}

ggml_types! {
    F32 "F32" 0 1 4,
    F16 "F16" 1 1 2,
    Q4_0 "Q4_0" 2 32 18,
    Q4_1 "Q4_1" 3 32 20,
    Q5_0 "Q5_0" 6 32 22,
    Q5_1 "Q5_1" 7 32 24,
    Q8_0 "Q8_0" 8 32 34,
    Q8_1 "Q8_1" 9 32 36,
    Q2_K "Q2_K" 10 256 84,
    Q3_K "Q3_K" 11 256 110,
    Q4_K "Q4_K" 12 256 144,
    Q5_K "Q5_K" 13 256 176,
    Q6_K "Q6_K" 14 256 210,
    Q8_K "Q8_K" 15 256 292,
    IQ2_XXS "IQ2_XXS" 16 256 66,
    IQ2_XS "IQ2_XS" 17 256 74,
    IQ3_XXS "IQ3_XXS" 18 256 98,
    IQ1_S "IQ1_S" 19 256 50,
    IQ4_NL "IQ4_NL" 20 32 18,
    IQ3_S "IQ3_S" 21 256 110,
    IQ2_S "IQ2_S" 22 256 82,
    IQ4_XS "IQ4_XS" 23 256 136,
    I8 "I8" 24 1 1,
    I16 "I16" 25 1 2,
    I32 "I32" 26 1 4,
    I64 "I64" 27 1 8,
    F64 "F64" 28 1 8,
    IQ1_M "IQ1_M" 29 256 56,
    BF16 "BF16" 30 1 2,
    TQ1_0 "TQ1_0" 34 256 54,
    TQ2_0 "TQ2_0" 35 256 66,
    MXFP4 "MXFP4" 39 32 17,
    NVFP4 "NVFP4" 40 64 36,
    Q1_0 "Q1_0" 41 128 18,
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Such as `blk.0.attn_q.weight`.
    pub name: String,
    /// How the elements are stored.
    pub ggml_type: GgmlType,
    /// Sizes, outermost first as torch has them; rows of the last one are contiguous.
    pub shape: Vec<u64>,
    /// Where the tensor's bytes begin, from the start of the file.
    pub offset: u64,
    /// Bytes that the tensor takes.
    pub byte_len: u64,
}

impl Tensor {
    /// Reads a table entry; its offset still counts from the start of the tensor data.
    pub(crate) fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
        let start = cursor.position();
        let name = cursor.string("a tensor's name")?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Error::at(
                cursor.path(),
                start,
                format!("a tensor's name is {} bytes long; it may have 1 to {MAX_NAME_BYTES}", name.len()),
            ));
        }
        let dims = cursor.u32(&name)?;
        if dims > MAX_DIMS {
            return Err(
                cursor.error(format!("tensor {name} has {dims} dimensions; at most {MAX_DIMS} are allowed"))
            );
        }
        let mut shape = (0..dims).map(|_| cursor.u64(&name)).collect::<Result<Vec<_>>>()?;
        shape.reverse();
        let code = cursor.u32(&name)?;
        let offset = cursor.u64(&name)?;
        let fail = |message: String| Error::at(cursor.path(), start, message);
        let ggml_type = GgmlType::from_code(code)
            .ok_or_else(|| fail(format!("tensor {name} has the unknown ggml type {code}")))?;
        let byte_len = byte_len(&shape, ggml_type)
            .ok_or_else(|| fail(format!("tensor {name} of shape {shape:?} is too large to address")))?;
        let row = shape.last().copied().unwrap_or(1);
        if row % ggml_type.block_size() != 0 {
            return Err(fail(format!(
                "tensor {name} has rows of {row} elements, not a multiple of {}'s blocks of {}",
                ggml_type.name(),
                ggml_type.block_size()
            )));
        }
        Ok(Self { name, ggml_type, shape, offset, byte_len })
    }
}

fn byte_len(shape: &[u64], ggml_type: GgmlType) -> Option<u64> {
    let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
    elements.div_ceil(ggml_type.block_size()).checked_mul(ggml_type.type_size())
}
