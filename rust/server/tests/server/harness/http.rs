//! A small HTTP client over real sockets.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// A whole reply.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub async fn read(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The error object, after checking its shape and code.
    pub fn error(&self) -> Value {
        let error = self.json()["error"].clone();
        assert_eq!(error["code"], self.status, "{}", self.text());
        assert!(error["message"].is_string() && error["type"].is_string(), "{}", self.text());
        error
    }

    /// The events of a stream: JSON chunks; the stream must end with `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        let text = self.text();
        let mut data: Vec<&str> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
        assert_eq!(data.pop(), Some("data: [DONE]"), "{text}");
        let parse = |event: &str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
        data.into_iter().filter(|event| !event.starts_with(':')).map(parse).collect()
    }
}

/// One connection.
type Connection = SendRequest<Full<Bytes>>;

pub async fn connect(port: u16) -> Connection {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A request with a JSON body, or none where it is null.
pub fn request(method: &str, path: &str, body: &Value) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(path).header("host", "test");
    if body.is_null() {
        return builder.body(Full::default()).unwrap();
    }
    let builder = builder.header("content-type", "application/json");
    builder.body(Full::new(Bytes::from(body.to_string()))).unwrap()
}

pub async fn send(port: u16, request: Request<Full<Bytes>>) -> Reply {
    let mut connection = connect(port).await;
    Reply::read(connection.send_request(request).await.unwrap()).await
}

pub async fn get(port: u16, path: &str) -> Reply {
    send(port, request("GET", path, &Value::Null)).await
}

pub async fn post(port: u16, path: &str, body: &Value) -> Reply {
    send(port, request("POST", path, body)).await
}
