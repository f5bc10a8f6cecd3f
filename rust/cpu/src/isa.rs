//! Which instruction sets this machine has, and which one to use.

use std::fmt;

/// A set of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Portable code: the reference for the others.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// The same with AVX-VNNI, which is found where AVX-512 is not.
    Avx2Vnni,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
    /// AArch64 with NEON, which all have.
    Neon,
    /// The same with products of bytes (FEAT_DotProd, all but the first cores of Armv8).
    NeonDot,
}

impl Isa {
    /// Every instruction set that this machine can run, the best one last.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "elsewhere there is nothing to add")]
        let mut all = vec![Self::Scalar];
        #[cfg(target_arch = "aarch64")]
        {
            all.push(Self::Neon);
            if std::arch::is_aarch64_feature_detected!("dotprod") {
                all.push(Self::NeonDot);
            }
        }
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if avx2 {
                all.push(Self::Avx2);
            }
            if avx2 && is_x86_feature_detected!("avxvnni") {
                all.push(Self::Avx2Vnni);
            }
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                all.push(Self::Avx512);
            }
        }
        all
    }

    /// The one that `OCTAVO_CPU_ISA` names (`scalar`, `avx2`, `avx2vnni`, `avx512`, `neon` or `neondot`), or the best one
    /// where it is not set.
    ///
    /// # Errors
    /// The name is unknown, or this machine lacks the instructions.
    pub fn from_env() -> Result<Self, String> {
        let available = Self::available();
        let Some(name) = std::env::var_os("OCTAVO_CPU_ISA") else {
            return Ok(available.last().copied().unwrap_or(Self::Scalar));
        };
        let names = || available.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        available.iter().copied().find(|isa| name.to_str() == Some(&isa.to_string())).ok_or_else(|| {
            format!(
                "OCTAVO_CPU_ISA={} is not available on this machine; choose one of: {}",
                name.display(),
                names()
            )
        })
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx2Vnni => "avx2vnni",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
            Self::NeonDot => "neondot",
        })
    }
}
