//! The offline door: many requests in, batches of updates out, no thread a request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use octavo_server::client::GenerateRequest;
use octavo_server::{Client, SamplingOptions};
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use crate::client::EngineClient;
use crate::engine::duration;
use crate::enter::{Failure, enter, run};
use crate::options::Options;
use crate::prompt::PromptSource;
use crate::text::TextSide;
use crate::update::Update;

/// Threads that tokenize and detokenize, shared by all sessions of an engine.
#[pyclass(frozen, module = "octavo._core")]
#[derive(Debug)]
pub struct Door {
    client: Client,
    text: Arc<TextSide>,
    runtime: Arc<Runtime>,
}

#[pymethods]
impl Door {
    /// A door to the engine of `client`.
    #[new]
    fn new(py: Python<'_>, client: &EngineClient, threads: usize) -> PyResult<Self> {
        let runtime = enter(py, || {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(threads.max(1))
                .thread_name("octavo-door")
                .enable_time()
                .build()
                .map_err(|error| {
                    Failure::Internal(format!("the door's threads could not be started: {error}"))
                })
        })?;
        Ok(Self { client: client.client.clone(), text: Arc::clone(&client.text), runtime: Arc::new(runtime) })
    }

    /// A place to submit requests and to read their updates.
    fn session(&self) -> Session {
        Session {
            client: self.client.clone(),
            text: Arc::clone(&self.text),
            runtime: Arc::clone(&self.runtime),
            queue: Arc::default(),
            next_id: AtomicU64::new(0),
            tasks: Mutex::default(),
        }
    }
}

/// Requests of one caller and their updates. Dropping it aborts what is unfinished.
#[pyclass(frozen, module = "octavo._core")]
#[derive(Debug)]
pub struct Session {
    client: Client,
    text: Arc<TextSide>,
    runtime: Arc<Runtime>,
    queue: Arc<Queue>,
    next_id: AtomicU64,
    tasks: Mutex<HashMap<u64, AbortHandle>>,
}

#[pymethods]
impl Session {
    /// Start requests; tokenizing happens elsewhere, in parallel. With `whole`, a choice is reported once it
    /// has ended, else as its text comes. Returns an id for each; its errors come as its last update.
    fn submit(
        &self,
        py: Python<'_>,
        requests: Vec<(PromptSource, Options)>,
        whole: bool,
    ) -> PyResult<Vec<u64>> {
        enter(py, || {
            let start =
                |(source, options): (PromptSource, Options)| self.start(source, options.into(), whole);
            Ok::<_, Failure>(requests.into_iter().map(start).collect())
        })
    }

    /// All updates since the last call, waiting up to `timeout_s` seconds for the first.
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Vec<Update>> {
        let timeout = duration(timeout_s)?;
        let updates = run(py, || self.queue.take(timeout))?;
        if updates.iter().any(Update::is_last) {
            let mut tasks = self.tasks.lock();
            updates
                .iter()
                .filter(|update| update.is_last())
                .for_each(|update| drop(tasks.remove(&update.id())));
        }
        Ok(updates)
    }

    /// Abort requests; nothing more is reported of them.
    fn abort(&self, ids: Vec<u64>) {
        let mut tasks = self.tasks.lock();
        ids.iter().filter_map(|id| tasks.remove(id)).for_each(|task| task.abort());
    }

    /// Abort all requests.
    fn close(&self) {
        self.tasks.lock().drain().for_each(|(_, task)| task.abort());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

impl Session {
    fn start(&self, source: PromptSource, options: SamplingOptions, whole: bool) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (client, text, queue) = (self.client.clone(), Arc::clone(&self.text), Arc::clone(&self.queue));
        let task = self.runtime.spawn(async move {
            if let Err(error) = follow(id, &client, &text, source, options, whole, &queue).await {
                queue.push(Update::failed(id, error));
            }
        });
        self.tasks.lock().insert(id, task.abort_handle());
        id
    }
}

async fn follow(
    id: u64,
    client: &Client,
    text: &TextSide,
    source: PromptSource,
    options: SamplingOptions,
    whole: bool,
    queue: &Queue,
) -> Result<(), Failure> {
    let (prompt, rendered) = source.resolve(text)?;
    let request = GenerateRequest { prompts: vec![prompt], options };
    let mut stream = client.generate(request).await?;
    queue.push(Update::started(id, rendered, stream.prompts()[0].token_ids.to_vec()));
    if whole {
        stream.wait_for_ends();
    }
    let mut held: HashMap<u32, Update> = HashMap::new();
    while let Some(delta) = stream.next().await {
        let delta = delta?;
        let index = delta.index;
        let mut update = held.remove(&index).unwrap_or_else(|| Update::of_choice(id, index));
        update.append(delta, stream.tokenizer());
        if whole && !update.ends_choice() {
            held.insert(index, update);
        } else {
            queue.push(update);
        }
    }
    let info = &stream.prompts()[0];
    queue.push(Update::finished(id, info.cached_tokens, &info.logprobs, stream.tokenizer()));
    Ok(())
}

#[derive(Debug, Default)]
struct Queue {
    updates: Mutex<Vec<Update>>,
    filled: Condvar,
}

impl Queue {
    fn push(&self, update: Update) {
        self.updates.lock().push(update);
        self.filled.notify_one();
    }

    fn take(&self, timeout: std::time::Duration) -> Vec<Update> {
        let mut updates = self.updates.lock();
        self.filled.wait_while_for(&mut updates, |updates| updates.is_empty(), timeout);
        std::mem::take(&mut *updates)
    }
}
