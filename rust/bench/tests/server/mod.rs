//! A tiny OpenAI-compatible server whose every stream is written by the test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What a request is answered with.
pub enum Answer {
    /// Server-sent events, each in a piece of its own; `[DONE]` is up to the test.
    Events(Vec<String>),
    /// A status line such as `503 Service Unavailable`, with a body.
    Status(&'static str, &'static str),
    /// The end of the connection.
    Close,
}

/// A server on a port of its own.
pub struct Server {
    /// Where it listens.
    pub base_url: String,
    /// Connections accepted.
    pub connections: Arc<AtomicUsize>,
    /// Bodies of the requests, in the order of their arrival.
    pub bodies: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    /// Starts a server on the current runtime. `answer` is given the number of the request and its body.
    pub async fn start<F, R>(answer: F) -> Self
    where
        F: Fn(usize, Value) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let server = Self { base_url, connections: Arc::clone(&connections), bodies: Arc::clone(&bodies) };
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&bodies)));
            }
        });
        server
    }

    /// Bodies of the requests so far.
    pub fn bodies(&self) -> Vec<Value> {
        self.bodies.lock().unwrap().clone()
    }
}

async fn serve<F, R>(stream: TcpStream, answer: Arc<F>, bodies: Arc<Mutex<Vec<Value>>>)
where
    F: Fn(usize, Value) -> R,
    R: Future<Output = Answer>,
{
    let mut stream = BufReader::new(stream);
    while let Some((path, body)) = request(&mut stream).await {
        let answer = if path == "/v1/models" {
            Answer::Status("200 OK", r#"{"data": [{"id": "tiny"}]}"#)
        } else {
            let body: Value = serde_json::from_slice(&body).unwrap();
            let number = {
                let mut bodies = bodies.lock().unwrap();
                bodies.push(body.clone());
                bodies.len() - 1
            };
            answer(number, body).await
        };
        if write(&mut stream, answer).await.is_err() {
            return;
        }
    }
}

/// Path and body of the next request; `None` at the end of the connection.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap();
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((path, body))
}

async fn write(stream: &mut BufReader<TcpStream>, answer: Answer) -> std::io::Result<()> {
    match answer {
        Answer::Close => Err(std::io::ErrorKind::ConnectionAborted.into()),
        Answer::Status(status, body) => {
            let length = body.len();
            let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.write_all(text.as_bytes()).await
        }
        Answer::Events(events) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
            for event in events {
                let event = format!("data: {event}\n\n");
                stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await?;
                tokio::task::yield_now().await;
            }
            stream.write_all(b"0\r\n\r\n").await
        }
    }
}

/// The events of a completion of as many tokens as `body` asks for, with usage.
pub fn completion(body: &Value) -> Answer {
    let tokens = body["max_tokens"].as_u64().unwrap();
    let prompt_tokens = body["prompt"].as_array().map_or(7, Vec::len);
    let mut events: Vec<String> =
        (0..tokens).map(|_| r#"{"choices": [{"text": " x", "finish_reason": null}]}"#.to_owned()).collect();
    events.push(r#"{"choices": [{"text": "", "finish_reason": "length"}]}"#.to_owned());
    events.push(format!(
        r#"{{"choices": [], "usage": {{"prompt_tokens": {prompt_tokens}, "completion_tokens": {tokens}}}}}"#
    ));
    events.push("[DONE]".to_owned());
    Answer::Events(events)
}
