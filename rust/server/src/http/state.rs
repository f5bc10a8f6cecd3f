//! What every route sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::bodies::Bodies;
use super::config::ServerConfig;
use super::error::{ApiError, ApiResult};
use crate::client::Client;

/// What every route sees. Clones share it.
pub type AppState = Arc<State>;

/// The client, the options and what the server knows of itself.
#[derive(Debug)]
pub struct State {
    /// The way to the engine.
    pub client: Client,
    /// Resolved options.
    pub config: ServerConfig,
    /// `octavo-VERSION-HASH`: changes with the version and the served model.
    pub fingerprint: String,
    /// Unix time of the start, seconds.
    pub started: u64,
    /// Room for long request bodies.
    pub bodies: Bodies,
    /// Generation calls in flight.
    load: watch::Sender<usize>,
    draining: AtomicBool,
}

impl State {
    /// The state of a server that has just started.
    pub fn new(client: Client, config: ServerConfig) -> Self {
        let limits = client.engine().limits();
        let facts = format!("{}\n{}\n{limits:?}", config.model_root, config.served_model_names.join("\n"));
        let hash = Sha256::digest(facts.as_bytes());
        let fingerprint =
            format!("octavo-{}-{:02x}{:02x}{:02x}{:02x}", config.version, hash[0], hash[1], hash[2], hash[3]);
        Self {
            client,
            bodies: Bodies::new(config.max_body_bytes),
            config,
            fingerprint,
            started: unix_time(),
            load: watch::Sender::new(0),
            draining: AtomicBool::new(false),
        }
    }

    /// The served name to answer with.
    ///
    /// # Errors
    /// 404 for a name that is not served.
    pub fn model(&self, asked: Option<&str>) -> ApiResult<&str> {
        let served = &self.config.served_model_names;
        match asked {
            None | Some("") => Ok(&served[0]),
            Some(name) => match served.iter().find(|known| *known == name) {
                Some(known) => Ok(known),
                None => Err(ApiError::unknown_model(name, served)),
            },
        }
    }

    /// Refuses new work from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// True once the server refuses new work.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Counts a generation call until the ticket is dropped.
    ///
    /// # Errors
    /// 503 while draining.
    pub fn enter(&self) -> ApiResult<LoadTicket> {
        if self.is_draining() {
            return Err(ApiError::unavailable("the server is shutting down; retry elsewhere"));
        }
        self.load.send_modify(|load| *load += 1);
        Ok(LoadTicket(self.load.clone()))
    }

    /// Generation calls in flight.
    pub fn load(&self) -> usize {
        *self.load.borrow()
    }

    /// Waits until no generation call is in flight.
    pub async fn idle(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.load.subscribe().wait_for(|load| *load == 0).await;
    }
}

/// One generation call in flight.
#[derive(Debug)]
pub struct LoadTicket(watch::Sender<usize>);

impl Drop for LoadTicket {
    fn drop(&mut self) {
        self.0.send_modify(|load| *load -= 1);
    }
}

/// Seconds since 1970.
pub fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
