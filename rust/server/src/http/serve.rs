//! Running the server: accepting, draining, stopping.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::Uri;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use octavo_core::{Error, Result};
use parking_lot::{Condvar, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt;

use super::config::ServerConfig;
use super::listen::BoundListener;
use super::router::router;
use super::state::{AppState, State};
use crate::client::Client;
use crate::engine::EngineHandle;
use crate::metrics::Reporter;

/// Longest time between a connection's start and its first request's headers,
/// and between requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
/// Most headers of a request.
const MAX_HEADERS: usize = 256;
/// Most bytes buffered a connection, and so the longest request head.
const MAX_BUFFER_BYTES: usize = 256 * 1024;
/// Time between two lines of statistics.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Time that replies get to leave once the engine has stopped.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How far the server has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    Draining,
    Stopping,
}

/// A running server. Dropping it stops the server at once.
#[derive(Debug)]
pub struct ServerHandle {
    address: String,
    port: u16,
    phase: watch::Sender<Phase>,
    done: Arc<Done>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Done {
    flag: Mutex<bool>,
    changed: Condvar,
}

/// Whatever way the server's thread ends, the engine stops and waiters know.
struct Finish {
    done: Arc<Done>,
    engine: EngineHandle,
}

impl Drop for Finish {
    fn drop(&mut self) {
        self.engine.stop();
        *self.done.flag.lock() = true;
        self.done.changed.notify_all();
    }
}

/// Serves `client` on `listener` from `threads` threads of its own. With
/// `handle_signals`, SIGTERM and SIGINT drain it and a second one stops it.
///
/// When it has drained or stopped, it stops the engine.
///
/// # Errors
/// Invalid options; the runtime cannot be started.
pub fn serve(
    listener: BoundListener,
    client: Client,
    config: ServerConfig,
    threads: usize,
    handle_signals: bool,
) -> Result<ServerHandle> {
    if config.served_model_names.is_empty() {
        return Err(Error::invalid("served_model_names", "served_model_names must have at least one name"));
    }
    let (address, port) = (listener.address(), listener.port());
    let engine = client.engine().clone();
    let state: AppState = Arc::new(State::new(client, config));
    let router = router(&state)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("octavo-http")
        .enable_all()
        .build()
        .map_err(|error| Error::internal(format!("the server's threads could not be started: {error}")))?;
    let (phase, phases) = watch::channel(Phase::Serving);
    let done = Arc::new(Done::default());
    let run = Run { state, router, phase: phase.clone(), phases };
    let finish = Finish { done: Arc::clone(&done), engine };
    let main = move || {
        let _finish = finish;
        if let Err(error) = runtime.block_on(run.run(listener, handle_signals)) {
            tracing::error!("the server has ended: {error}");
        }
        runtime.shutdown_timeout(LAST_WORDS);
    };
    let thread = std::thread::Builder::new()
        .name("octavo-server".to_owned())
        .spawn(main)
        .map_err(|error| Error::internal(format!("the server's thread could not be started: {error}")))?;
    Ok(ServerHandle { address, port, phase, done, thread: Some(thread) })
}

impl ServerHandle {
    /// `http://127.0.0.1:8000` or `unix:/path`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The port, 0 on a Unix socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Refuses new work, lets running requests end within the configured time,
    /// then stops. A second call stops at once.
    pub fn shutdown(&self) {
        advance(&self.phase);
    }

    /// Waits for the end, at most `timeout`; true once the server has ended.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut done = self.done.flag.lock();
        self.done.changed.wait_while_for(&mut done, |done| !*done, timeout);
        *done
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Stopping);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Waits until the server is in `phase` or past it, or its handle is gone.
async fn reached(phases: &mut watch::Receiver<Phase>, phase: Phase) {
    let _ = phases.wait_for(|now| *now >= phase).await;
}

/// From serving to draining, from draining to stopping.
fn advance(phase: &watch::Sender<Phase>) {
    phase.send_modify(|phase| {
        *phase = if *phase == Phase::Serving { Phase::Draining } else { Phase::Stopping };
    });
}

struct Run {
    state: AppState,
    router: Router,
    phase: watch::Sender<Phase>,
    phases: watch::Receiver<Phase>,
}

impl Run {
    async fn run(self, listener: BoundListener, handle_signals: bool) -> std::io::Result<()> {
        if handle_signals {
            tokio::spawn(watch_signals(self.phase.clone())?);
        }
        if !self.state.config.disable_log_stats {
            tokio::spawn(report(self.state.client.clone()));
        }
        let connections = Arc::new(Semaphore::new(self.state.config.max_connections));
        let accepting = self.accept(listener, Arc::clone(&connections));
        let mut phases = self.phases.clone();
        tokio::select! {
            error = accepting => return Err(error),
            () = self.drained(&mut phases) => {}
        }
        // Ends what is still running; its replies then get a moment to leave.
        self.state.client.engine().stop();
        self.phase.send_replace(Phase::Stopping);
        let all = self.state.config.max_connections as u32;
        let _ = tokio::time::timeout(LAST_WORDS, connections.acquire_many(all)).await;
        Ok(())
    }

    /// Returns when the server may stop: no work left or no more time.
    async fn drained(&self, phases: &mut watch::Receiver<Phase>) {
        reached(phases, Phase::Draining).await;
        self.state.drain();
        let timeout_s = self.state.config.shutdown_timeout_s;
        tracing::info!("shutting down: requests in flight have {timeout_s} s to end");
        tokio::select! {
            () = self.state.idle() => {}
            () = tokio::time::sleep(Duration::from_secs(timeout_s)) => {}
            () = reached(phases, Phase::Stopping) => {}
        }
    }

    async fn accept(&self, listener: BoundListener, connections: Arc<Semaphore>) -> std::io::Error {
        match listener {
            BoundListener::Tcp(listener) => {
                let listener = match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => listener,
                    Err(error) => return error,
                };
                loop {
                    let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { unreachable!() };
                    match listener.accept().await {
                        Ok((stream, _peer)) => {
                            // Small chunks must leave at once; a socket that refuses is only slower.
                            let _ = stream.set_nodelay(true);
                            self.converse(stream, permit);
                        }
                        Err(error) => refused(&error).await,
                    }
                }
            }
            BoundListener::Unix(listener, path) => {
                let _file = SocketFile(path);
                let listener = match tokio::net::UnixListener::from_std(listener) {
                    Ok(listener) => listener,
                    Err(error) => return error,
                };
                loop {
                    let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { unreachable!() };
                    match listener.accept().await {
                        Ok((stream, _peer)) => self.converse(stream, permit),
                        Err(error) => refused(&error).await,
                    }
                }
            }
        }
    }

    /// Serves one connection in a task of its own.
    fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        permit: OwnedSemaphorePermit,
    ) {
        let router = self.router.clone();
        let root_path = self.state.config.root_path.clone();
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let request = strip_root(request.map(axum::body::Body::new), root_path.as_deref());
            let router = router.clone();
            async move {
                Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {}))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut phases = self.phases.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = reached(&mut phases, Phase::Stopping) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
    }
}

/// A connection that could not be accepted: the process is out of sockets, or
/// the client has gone already.
async fn refused(error: &std::io::Error) {
    tracing::warn!("a connection could not be accepted: {error}");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// Removes the socket's file at the end.
struct SocketFile(std::path::PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!("{} could not be removed: {error}", self.0.display());
        }
    }
}

/// Takes the prefix that a proxy keeps off the path.
fn strip_root(mut request: Request, root_path: Option<&str>) -> Request {
    let Some(root) = root_path.map(|root| root.trim_end_matches('/')).filter(|root| !root.is_empty()) else {
        return request;
    };
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    if let Some(rest) = target.strip_prefix(root)
        && rest.starts_with('/')
        && let Ok(uri) = rest.parse::<Uri>()
    {
        *request.uri_mut() = uri;
    }
    request
}

fn watch_signals(phase: watch::Sender<Phase>) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            advance(&phase);
        }
    })
}

async fn report(client: Client) {
    let engine = client.engine();
    let metrics = Arc::clone(engine.metrics());
    let mut reporter = Reporter::new(&metrics, &engine.stats());
    let mut ticks = tokio::time::interval(REPORT_INTERVAL);
    loop {
        ticks.tick().await;
        if let Some(line) = reporter.line(&metrics, &engine.stats()) {
            tracing::info!("{line}");
        }
    }
}
