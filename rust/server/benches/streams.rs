//! What a streamed token costs in the server, with a device that computes
//! nothing and takes 8 ms a step:
//! `cargo bench -p octavo-server --bench streams -- [STREAMS [TOKENS [STEP_MS]]]`.
//!
//! Budget: at 256 streams, less than 100 us of the server's threads a streamed token
//! (10,000 a second on one core) and less than 1 us of the step loop's
//! thread a token, waking the readers included.

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
    let number = |place: usize, default: u32| numbers.get(place).copied().unwrap_or(default);
    let (streams, tokens, step_ms) = (number(0, 256), number(1, 500), number(2, 8));
    let mut setup = Setup { pace: Some(Duration::from_millis(step_ms.into())), ..Setup::default() };
    setup.limits.max_num_seqs = streams;
    setup.limits.num_blocks = streams * 300;
    setup.limits.max_num_batched_tokens = 64 * streams;
    setup.server.access_log = false;
    let server = setup.start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, stream) in [("streamed", true), ("whole", false)] {
        let (http, device, begin) = (cpu_time("octavo-http"), cpu_time("device"), Instant::now());
        let chunks = runtime.block_on(drive(server.port, streams, tokens, stream));
        let wall = begin.elapsed().as_secs_f64();
        let sampled = f64::from(streams * tokens);
        let us_a_token =
            |before: Duration, name| cpu_time(name).saturating_sub(before).as_secs_f64() * 1e6 / sampled;
        println!(
            "{name}: {streams} x {tokens} tokens in {wall:.2} s, {:.0} tokens/s, {chunks} chunks; CPU time a token: \
             server {:.2} us, step loop {:.2} us",
            sampled / wall,
            us_a_token(http, "octavo-http"),
            us_a_token(device, "device"),
        );
    }
}

/// Runs all streams at once; gives the number of chunks.
async fn drive(port: u16, streams: u32, tokens: u32, stream: bool) -> usize {
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
            let (mut buffer, mut chunks) = (vec![0; 64 * 1024], 0);
            loop {
                let read = socket.read(&mut buffer).await.unwrap();
                if read == 0 {
                    return chunks;
                }
                chunks += buffer[..read].windows(5).filter(|window| *window == b"data:").count();
            }
        });
    }
    clients.join_all().await.into_iter().sum()
}

/// CPU time so far of the threads with this name.
fn cpu_time(name: &str) -> Duration {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
        let (head, rest) = stat.rsplit_once(')').unwrap();
        if head.ends_with(&format!("({name}")) {
            let fields: Vec<u64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
            ticks += fields[11] + fields[12];
        }
    }
    Duration::from_millis(10 * ticks)
}
