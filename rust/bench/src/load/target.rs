//! The server under test: where it is, what it serves and how it is asked.

use std::time::{Duration, Instant};

use hyper::Uri;
use serde_json::{Map, Value, json};

use super::args::{LoadArgs, PromptFormat, ServerArgs};
use super::client::Client;
use super::dialogue::{Api, Template};
use super::workload::{Prompt, Turn};
use crate::error::{Error, Result};

/// A server that answers.
#[derive(Debug)]
pub struct Target {
    /// Connections to it.
    pub client: Client,
    /// Where requests go.
    pub uri: Uri,
    /// What every body has.
    pub template: Template,
    /// The model asked for.
    pub model: String,
}

impl Target {
    /// Waits for the server and asks for its model.
    ///
    /// # Errors
    /// Flags that make no request, or a server that does not answer.
    pub async fn find(args: &ServerArgs) -> Result<Self> {
        let base = args.base_url.clone().unwrap_or_else(|| format!("http://{}:{}", args.host, args.port));
        let base = base.trim_end_matches('/');
        let api = match args.endpoint.as_str() {
            path if path.ends_with("/chat/completions") => Api::Chat,
            path if path.ends_with("/completions") => Api::Completions,
            path => {
                return Err(Error::invalid(format!(
                    "--endpoint {path}: it must end in /completions or /chat/completions"
                )));
            }
        };
        let timeout = Duration::try_from_secs_f64(args.timeout)
            .map_err(|_| Error::invalid(format!("--timeout {}: not a time", args.timeout)))?;
        let uri = parse(&format!("{base}{}", args.endpoint))?;
        let client = Client::new(args.api_key.as_deref(), &args.header, timeout)?;
        let first =
            first_model(&client, &parse(&format!("{base}/v1/models"))?, args.ready_check_timeout_sec).await;
        let model = match &args.model {
            Some(model) => model.clone(),
            None => first?,
        };
        let template = Template { api, fields: fields(args, &model)? };
        Ok(Self { client, uri, template, model })
    }

    /// Whether random prompts are sent as token ids; asks the server if the
    /// flags leave it open.
    ///
    /// # Errors
    /// Flags that contradict each other, or a server that takes neither.
    pub async fn takes_ids(&self, args: &LoadArgs) -> Result<bool> {
        let workload = &args.workload;
        let fits = self.template.api == Api::Completions && workload.turns == 1;
        match workload.prompt_format {
            PromptFormat::Words => Ok(false),
            PromptFormat::Ids if fits => Ok(true),
            PromptFormat::Ids => Err(Error::invalid(
                "--prompt-format ids works with /v1/completions and a single turn only; say words",
            )),
            PromptFormat::Auto if !fits || workload.dataset_path.is_some() => Ok(false),
            PromptFormat::Auto => self.ask_with_ids(workload.id_range.ends()).await,
        }
    }

    /// One small request whose prompt is the range's two ends.
    async fn ask_with_ids(&self, ends: Vec<u32>) -> Result<bool> {
        let turn = Turn { prompt: Prompt::Ids(ends), output_len: 1 };
        match self.client.stream(&self.uri, self.template.body(&turn), Instant::now()).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.kind == "empty" => Ok(true),
            Err(failure) if failure.kind.starts_with("http_4") => {
                eprintln!(
                    "octavo-bench: prompts are words: the server refused ids ({})",
                    failure.detail.trim()
                );
                Ok(false)
            }
            Err(failure) => Err(Error::server(format!("{}: {}: {}", self.uri, failure.kind, failure.detail))),
        }
    }
}

fn parse(uri: &str) -> Result<Uri> {
    let parsed: Uri = uri.parse().map_err(|error| Error::invalid(format!("{uri}: {error}")))?;
    match parsed.scheme_str() {
        Some("http") => Ok(parsed),
        Some("https") if cfg!(feature = "rustls") => Ok(parsed),
        Some("https") => Err(Error::invalid(format!(
            "{uri}: this octavo-bench speaks no TLS; build it with --features rustls"
        ))),
        _ => Err(Error::invalid(format!("{uri}: write http://HOST:PORT"))),
    }
}

/// Asks for the models until there is an answer or the time is over.
async fn first_model(client: &Client, uri: &Uri, wait_s: f64) -> Result<String> {
    let start = Instant::now();
    loop {
        match client.get(uri).await {
            Ok(models) => {
                let first = models["data"][0]["id"].as_str().map(str::to_owned);
                return first.ok_or_else(|| Error::server(format!("{uri} lists no model; say --model NAME")));
            }
            Err(failure) if start.elapsed().as_secs_f64() >= wait_s => {
                return Err(Error::server(format!(
                    "{uri} does not answer: {}: {} (is the server up? --base-url says where it is)",
                    failure.kind, failure.detail
                )));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

fn fields(args: &ServerArgs, model: &str) -> Result<Map<String, Value>> {
    let mut fields = Map::new();
    fields.insert("model".into(), model.into());
    fields.insert("stream".into(), true.into());
    fields.insert("stream_options".into(), json!({"include_usage": true}));
    fields.insert("temperature".into(), args.temperature.into());
    if args.ignore_eos {
        fields.insert("ignore_eos".into(), true.into());
    }
    let extra: Map<String, Value> = serde_json::from_str(&args.extra_body)
        .map_err(|error| Error::invalid(format!("--extra-body is no JSON object: {error}")))?;
    fields.extend(extra);
    Ok(fields)
}
