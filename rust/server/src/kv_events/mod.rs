//! Telling routers what the prefix cache holds, over ZeroMQ.
//!
//! Batches are numbered when the core tells of them, encoded and sent on a thread
//! of their own, so that a step never waits for a subscriber: what does not fit
//! the queue is dropped, and its number is missing on the wire. The messages are
//! those of vLLM: `[topic, number, payload]`; see [`encode`].

mod encode;
mod msgpack;
mod replay;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use octavo_core::{Error, KvEvents, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use zeromq::{PubSocket, RouterSocket, Socket, SocketSend, ZmqMessage};

/// Resolved options of a publisher. No defaults: `python/octavo/config` has them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvEventsConfig {
    /// `tcp://address:port` to bind; `*` is every address, port 0 a free one.
    pub endpoint: String,
    /// The same for replays.
    pub replay_endpoint: Option<String>,
    /// Batches kept for replays.
    pub buffer_steps: usize,
    /// Batches that wait to be sent.
    pub max_queue_size: usize,
    /// First frame of each message.
    pub topic: String,
    /// How events are written.
    pub event_format: EventFormat,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventFormat {
    /// Fields by name, as vLLM does since 0.2x.
    Map,
    /// Fields by place, as vLLM did before.
    Array,
}

/// Where batches come from, for `GET /kv_event_sources`.
#[derive(Clone, Debug, Serialize)]
pub struct KvEventSource {
    /// Always 0: there is one engine.
    pub data_parallel_rank: u32,
    /// What to subscribe to.
    pub endpoint: String,
    /// Where to ask for batches again.
    pub replay_endpoint: Option<String>,
    /// First frame of each message.
    pub topic: String,
}

/// The last batches, oldest first.
type History = Mutex<VecDeque<(u64, Bytes)>>;

#[derive(Debug)]
struct Batch {
    number: u64,
    /// Unix time, seconds.
    time_s: f64,
    events: KvEvents,
}

/// Publishes batches until it is dropped.
#[derive(Debug)]
pub struct KvPublisher {
    batches: Option<mpsc::Sender<Batch>>,
    next: AtomicU64,
    source: KvEventSource,
    block_size: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl KvPublisher {
    /// Binds the endpoints and starts.
    ///
    /// # Errors
    /// Invalid, naming the endpoint that cannot be bound.
    pub fn start(config: KvEventsConfig) -> Result<Self> {
        let (listener, endpoint) = bind("endpoint", &config.endpoint)?;
        let replay = config.replay_endpoint.as_deref().map(|at| bind("replay_endpoint", at)).transpose()?;
        let (replay, replay_endpoint) = replay.unzip();
        let source =
            KvEventSource { data_parallel_rank: 0, endpoint, replay_endpoint, topic: config.topic.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        let (sender, receiver) = mpsc::channel(config.max_queue_size);
        let block_size = Arc::new(AtomicU64::new(0));
        let run = run(config, listener, replay, receiver, Arc::clone(&block_size));
        let work = move || {
            if let Err(error) = runtime.block_on(run) {
                tracing::error!("KV events are no longer published: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("octavo-kv-events".to_owned()).spawn(work);
        let thread = Some(thread.map_err(|error| failed(&error))?);
        Ok(Self { batches: Some(sender), next: AtomicU64::new(0), source, block_size, thread })
    }

    /// Where its batches come from.
    pub fn source(&self) -> &KvEventSource {
        &self.source
    }

    /// Tokens in a block, before anything is published.
    pub(crate) fn set_block_size(&self, tokens: u32) {
        self.block_size.store(u64::from(tokens), Ordering::Relaxed);
    }

    /// Puts events in the queue, as one batch. False if some are lost: a number
    /// is then missing on the wire.
    pub(crate) fn publish(&self, events: KvEvents) -> bool {
        let lost = events.lost;
        // A number of its own for those that were lost before these.
        let number = self.next.fetch_add(1 + u64::from(lost), Ordering::Relaxed) + u64::from(lost);
        let time_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let batch = Batch { number, time_s, events };
        let sent = self.batches.as_ref().is_some_and(|batches| batches.try_send(batch).is_ok());
        sent && !lost
    }
}

impl Drop for KvPublisher {
    fn drop(&mut self) {
        drop(self.batches.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn failed(error: &std::io::Error) -> Error {
    Error::internal(format!("the publisher of KV events could not be started: {error}"))
}

/// The listener, and the endpoint with the port that it got.
fn bind(name: &str, endpoint: &str) -> Result<(TcpListener, String)> {
    let refused = |what: &str| {
        Error::invalid("kv_events_config", format!("kv_events_config: {name} {endpoint}: {what}"))
    };
    let form = "it must be tcp://ADDRESS:PORT with an address of this machine (such as 127.0.0.1) or * for all; \
                subscribers connect to it";
    let address = endpoint.strip_prefix("tcp://").ok_or_else(|| refused(form))?;
    let (host, port) = address.rsplit_once(':').ok_or_else(|| refused(form))?;
    let numeric = match host {
        "*" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let at: SocketAddr = format!("{numeric}:{port}").parse().map_err(|_| refused(form))?;
    let listener = TcpListener::bind(at).map_err(|error| refused(&error.to_string()))?;
    let port = listener.local_addr().map_err(|error| failed(&error))?.port();
    Ok((listener, format!("tcp://{host}:{port}")))
}

/// Sends batches until there are no more.
async fn run(
    config: KvEventsConfig,
    listener: TcpListener,
    replay: Option<TcpListener>,
    mut batches: mpsc::Receiver<Batch>,
    block_size: Arc<AtomicU64>,
) -> zeromq::ZmqResult<()> {
    let mut socket = PubSocket::new();
    socket.bind_listener(listener).await?;
    let history = Arc::new(History::default());
    if let Some(listener) = replay {
        let mut socket = RouterSocket::new();
        socket.bind_listener(listener).await?;
        tokio::spawn(replay::serve(socket, Arc::clone(&history)));
    }
    let topic = Bytes::from(config.topic);
    while let Some(Batch { number, time_s, events }) = batches.recv().await {
        let block_size = block_size.load(Ordering::Relaxed);
        let payload = Bytes::from(encode::batch(time_s, &events.events, block_size, config.event_format));
        {
            let mut history = history.lock();
            if history.len() >= config.buffer_steps {
                history.pop_front();
            }
            if config.buffer_steps > 0 {
                history.push_back((number, payload.clone()));
            }
        }
        let mut message = ZmqMessage::from(topic.clone());
        message.push_back(Bytes::copy_from_slice(&number.to_be_bytes()));
        message.push_back(payload);
        socket.send(message).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use octavo_core::KvEvent;
    use tokio::time::timeout;
    use zeromq::{SocketRecv, SubSocket};

    use super::*;

    fn config(endpoint: &str) -> KvEventsConfig {
        KvEventsConfig {
            endpoint: endpoint.to_owned(),
            replay_endpoint: None,
            buffer_steps: 0,
            max_queue_size: 100,
            topic: "kv".to_owned(),
            event_format: EventFormat::Map,
        }
    }

    fn cleared(lost: bool) -> KvEvents {
        KvEvents { events: vec![KvEvent::Cleared], lost }
    }

    async fn number(socket: &mut SubSocket) -> u64 {
        let frames = socket.recv().await.unwrap().into_vec();
        assert_eq!((frames.len(), frames[0].as_ref()), (3, b"kv".as_slice()));
        u64::from_be_bytes(frames[1].as_ref().try_into().unwrap())
    }

    #[tokio::test]
    async fn what_is_lost_leaves_a_gap() {
        let publisher = KvPublisher::start(config("tcp://127.0.0.1:0")).unwrap();
        let mut socket = SubSocket::new();
        socket.connect(&publisher.source().endpoint).await.unwrap();
        socket.subscribe("kv").await.unwrap();
        let wait = Duration::from_millis(50);
        while timeout(wait, number(&mut socket)).await.is_err() {
            assert!(publisher.publish(cleared(false)));
        }
        while timeout(wait, number(&mut socket)).await.is_ok() {}
        let next = publisher.next.load(Ordering::Relaxed);
        assert!(publisher.publish(cleared(false)));
        assert!(!publisher.publish(cleared(true)));
        assert!(publisher.publish(cleared(false)));
        let mut got = Vec::new();
        for _ in 0..3 {
            got.push(number(&mut socket).await - next);
        }
        assert_eq!(got, [0, 2, 3]);
    }

    #[test]
    fn an_endpoint_is_an_address_of_this_machine() {
        let held = KvPublisher::start(config("tcp://*:0")).unwrap();
        let taken = held.source().endpoint.clone();
        assert!(taken.starts_with("tcp://*:") && !taken.ends_with(":0"), "{taken}");
        for endpoint in [taken.as_str(), "tcp://router:5557", "ipc:///tmp/kv", "127.0.0.1:5557", "tcp://::1"]
        {
            let error = KvPublisher::start(config(endpoint)).unwrap_err();
            assert!(error.message().contains(&format!("endpoint {endpoint}: ")), "{error}");
        }
        drop(held);
        assert!(KvPublisher::start(config(&taken)).is_ok(), "the port is free again");
    }
}
