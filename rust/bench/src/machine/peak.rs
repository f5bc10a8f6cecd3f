//! How fast each instruction set multiplies and adds.
//!
//! Written as assembly: what is asked is what the instruction can do, not what a compiler makes of it. Independent
//! accumulators hide the instruction's latency. Registers hold zeros; on x86 the rate does not depend on the data.

use std::sync::Barrier;
use std::time::Instant;

/// One instruction in a loop.
pub struct Kernel {
    /// Kind of the factors.
    pub number: &'static str,
    /// What multiplies them.
    pub instruction: &'static str,
    /// Multiplications and additions of a round.
    pub operations: f64,
    /// Whether this machine has it.
    pub available: fn() -> bool,
    /// Runs so many rounds, at least one.
    ///
    /// # Safety
    /// The machine has the instruction.
    run: unsafe fn(u64),
}

/// Seconds that a try takes, about.
const TRY: f64 = 0.02;

/// Operations a second at best, when so many threads run the kernel at once.
pub fn best(kernel: &Kernel, threads: usize, tries: usize) -> f64 {
    let rounds = calibrate(kernel);
    let barrier = Barrier::new(threads);
    let work = || {
        let mut shortest = f64::INFINITY;
        for _ in 0..tries {
            barrier.wait();
            let start = Instant::now();
            run(kernel, rounds);
            barrier.wait();
            shortest = shortest.min(start.elapsed().as_secs_f64());
        }
        shortest
    };
    let slowest = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let here = work();
        others.into_iter().filter_map(|other| other.join().ok()).fold(here, f64::max)
    });
    kernel.operations * rounds as f64 * threads as f64 / slowest
}

/// Rounds that take about the time of a try.
fn calibrate(kernel: &Kernel) -> u64 {
    let mut rounds = 1024;
    loop {
        let start = Instant::now();
        run(kernel, rounds);
        if start.elapsed().as_secs_f64() > TRY / 4.0 {
            return rounds * 4;
        }
        rounds *= 2;
    }
}

fn run(kernel: &Kernel, rounds: u64) {
    // SAFETY: the caller asks only for kernels that are available.
    unsafe { (kernel.run)(rounds.max(1)) }
}

/// All that are known for this architecture.
#[cfg(not(target_arch = "x86_64"))]
pub const KERNELS: [Kernel; 0] = [];

#[cfg(target_arch = "x86_64")]
pub use x86::KERNELS;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;

    use super::Kernel;

    /// A loop of these lines; all vector registers are clobbered.
    macro_rules! looped {
        ($name:ident, $($line:expr),+ $(,)?) => {
            unsafe fn $name(rounds: u64) {
                // SAFETY: touches no memory and only clobbered registers; the caller checked the instruction set.
                unsafe {
                    asm!(
                        "2:",
                        $($line,)+
                        "dec {rounds}",
                        "jnz 2b",
                        "vzeroupper",
                        rounds = inout(reg) rounds => _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                        out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                        out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                        out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                        options(nomem, nostack),
                    );
                }
            }
        };
    }

    /// Twelve accumulators of one three-operand instruction.
    macro_rules! twelve {
        ($name:ident, $instruction:literal, $register:literal) => {
            looped!(
                $name,
                twelve!(@ $instruction, $register, "0"), twelve!(@ $instruction, $register, "1"),
                twelve!(@ $instruction, $register, "2"), twelve!(@ $instruction, $register, "3"),
                twelve!(@ $instruction, $register, "4"), twelve!(@ $instruction, $register, "5"),
                twelve!(@ $instruction, $register, "6"), twelve!(@ $instruction, $register, "7"),
                twelve!(@ $instruction, $register, "8"), twelve!(@ $instruction, $register, "9"),
                twelve!(@ $instruction, $register, "10"), twelve!(@ $instruction, $register, "11"),
            );
        };
        (@ $instruction:literal, $register:literal, $number:literal) => {
            concat!($instruction, " ", $register, $number, ", ", $register, "12, ", $register, "13")
        };
    }

    twelve!(fma_256, "vfmadd231ps", "ymm");
    twelve!(fma_512, "vfmadd231ps", "zmm");
    twelve!(bf16_512, "vdpbf16ps", "zmm");
    twelve!(vnni_256, "{{vex}} vpdpbusd", "ymm");
    twelve!(vnni_512, "vpdpbusd", "zmm");

    /// Bytes without VNNI: to 16 bits, to 32 bits, add.
    macro_rules! maddubs {
        ($temporary:literal, $accumulator:literal) => {
            concat!(
                "vpmaddubsw ",
                $temporary,
                ", ymm12, ymm13\n",
                "vpmaddwd ",
                $temporary,
                ", ",
                $temporary,
                ", ymm14\n",
                "vpaddd ",
                $accumulator,
                ", ",
                $accumulator,
                ", ",
                $temporary,
            )
        };
    }
    looped!(
        maddubs_256,
        maddubs!("ymm6", "ymm0"),
        maddubs!("ymm7", "ymm1"),
        maddubs!("ymm8", "ymm2"),
        maddubs!("ymm9", "ymm3"),
        maddubs!("ymm10", "ymm4"),
        maddubs!("ymm11", "ymm5"),
    );

    /// What a tile is: 16 rows of 64 bytes each, eight of them (`LDTILECFG` in Intel's manual).
    #[repr(C, align(64))]
    struct TileConfig {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    static TILES: TileConfig = TileConfig {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
        rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
    };

    /// Four accumulators, two tiles of each factor: as a matrix product would use the eight tiles.
    macro_rules! tiles {
        ($name:ident, $instruction:literal) => {
            unsafe fn $name(rounds: u64) {
                let config = &raw const TILES;
                // SAFETY: reads the configuration; uses tiles, which nothing else here does, and gives them back.
                unsafe {
                    asm!(
                        "ldtilecfg [{config}]",
                        "2:",
                        concat!($instruction, " tmm0, tmm4, tmm6"),
                        concat!($instruction, " tmm1, tmm4, tmm7"),
                        concat!($instruction, " tmm2, tmm5, tmm6"),
                        concat!($instruction, " tmm3, tmm5, tmm7"),
                        "dec {rounds}",
                        "jnz 2b",
                        "tilerelease",
                        config = in(reg) config,
                        rounds = inout(reg) rounds => _,
                        options(nostack, readonly),
                    );
                }
            }
        };
    }

    tiles!(tile_bf16, "tdpbf16ps");
    tiles!(tile_int8, "tdpbssd");

    fn avx2() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    /// Whether the processor has the tiles and the kernel lets this process use them.
    fn tiles(bit: u32) -> bool {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        const AMX_TILE: u32 = 1 << 24;
        if !is_x86_feature_detected!("avx512f") || __cpuid(0).eax < 7 {
            return false;
        }
        let features = __cpuid_count(7, 0).edx;
        features & AMX_TILE != 0 && features & (1 << bit) != 0 && permitted()
    }

    /// Asks Linux for tiles: their state is large, so it is given on request only.
    #[cfg(target_os = "linux")]
    fn permitted() -> bool {
        const ARCH_PRCTL: u64 = 158;
        const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
        const XTILEDATA: u64 = 18;
        let answer: i64;
        // SAFETY: a system call that reads and writes no memory of ours.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => answer,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XTILEDATA,
                out("rcx") _,
                out("r11") _,
                options(nostack),
            );
        }
        answer == 0
    }

    #[cfg(not(target_os = "linux"))]
    fn permitted() -> bool {
        false
    }

    pub const KERNELS: [Kernel; 8] = [
        Kernel {
            number: "f32",
            instruction: "AVX2 FMA",
            operations: 12.0 * 16.0,
            available: avx2,
            run: fma_256,
        },
        Kernel {
            number: "f32",
            instruction: "AVX-512 FMA",
            operations: 12.0 * 32.0,
            available: || is_x86_feature_detected!("avx512f"),
            run: fma_512,
        },
        Kernel {
            number: "bf16",
            instruction: "AVX-512 BF16",
            operations: 12.0 * 64.0,
            available: || is_x86_feature_detected!("avx512bf16"),
            run: bf16_512,
        },
        Kernel {
            number: "bf16",
            instruction: "AMX",
            operations: 4.0 * 16.0 * 16.0 * 32.0 * 2.0,
            available: || tiles(22),
            run: tile_bf16,
        },
        Kernel {
            number: "int8",
            instruction: "AVX2 maddubs",
            operations: 6.0 * 64.0,
            available: avx2,
            run: maddubs_256,
        },
        Kernel {
            number: "int8",
            instruction: "AVX VNNI",
            operations: 12.0 * 64.0,
            available: || is_x86_feature_detected!("avxvnni"),
            run: vnni_256,
        },
        Kernel {
            number: "int8",
            instruction: "AVX-512 VNNI",
            operations: 12.0 * 128.0,
            available: || is_x86_feature_detected!("avx512vnni"),
            run: vnni_512,
        },
        Kernel {
            number: "int8",
            instruction: "AMX",
            operations: 4.0 * 16.0 * 16.0 * 64.0 * 2.0,
            available: || tiles(25),
            run: tile_int8,
        },
    ];
}
