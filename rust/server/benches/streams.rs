//! Chunks a second through the whole server with a device that costs next to
//! nothing: `cargo bench -p octavo-server --bench streams [STREAMS [TOKENS]]`.
//!
//! Budget: 256 streams of chat chunks at more than 10,000 chunks a second on
//! one core. The client only counts bytes, on a thread of its own.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench is a program for people")]

#[allow(dead_code, unused_imports, reason = "shared with the tests")]
#[path = "../tests/server/harness/mod.rs"]
mod harness;

use std::time::{Duration, Instant};

use harness::Setup;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

fn main() {
    let numbers: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let streams = numbers.first().copied().unwrap_or(256);
    let tokens = numbers.get(1).copied().unwrap_or(500);
    let mut setup = Setup { shallow: true, ..Setup::default() };
    setup.limits.max_num_seqs = streams;
    setup.limits.num_blocks = streams * 300;
    setup.limits.max_num_batched_tokens = 8 * streams;
    setup.server.access_log = false;
    let server = setup.start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, stream) in [("streamed", true), ("whole", false)] {
        let (cpu, begin) = (cpu_time(), Instant::now());
        let (chunks, bytes) = runtime.block_on(drive(server.port, streams, tokens, stream));
        let (cpu, wall) = (cpu_time().saturating_sub(cpu), begin.elapsed());
        let sampled = f64::from(streams * tokens);
        println!(
            "{name}: {streams} x {tokens} tokens in {:.2} s, {:.0} tokens/s, {chunks} chunks, {:.0} chunks/s, {:.2} \
             us of CPU a token (client and device included), {bytes} bytes",
            wall.as_secs_f64(),
            sampled / wall.as_secs_f64(),
            chunks as f64 / wall.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / sampled,
        );
    }
}

/// Runs all streams at once; gives (chunks, bytes).
async fn drive(port: u16, streams: u32, tokens: u32, stream: bool) -> (usize, usize) {
    let mut clients = JoinSet::new();
    for number in 0..streams {
        let body = json!({"messages": [{"role": "user", "content": format!("Hello {number}")}], "max_tokens": tokens,
                          "ignore_eos": true, "seed": number, "stream": stream})
        .to_string();
        clients.spawn(async move {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nconnection: \
                 close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            let (mut buffer, mut chunks, mut bytes) = (vec![0; 64 * 1024], 0, 0);
            loop {
                let read = socket.read(&mut buffer).await.unwrap();
                if read == 0 {
                    return (chunks, bytes);
                }
                bytes += read;
                chunks += buffer[..read].windows(5).filter(|window| *window == b"data:").count();
            }
        });
    }
    clients.join_all().await.into_iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// CPU time of this process so far.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}
