//! Keys, request ids, cross-origin calls and proxies' prefixes.

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::harness::{Reply, Server, Setup, request, send};

async fn with_header(
    server: &Server,
    mut request: Request<Full<Bytes>>,
    name: &'static str,
    value: &str,
) -> Reply {
    request.headers_mut().insert(name, value.parse().unwrap());
    send(server.port, request).await
}

#[tokio::test]
async fn guarded_paths_ask_for_a_key() {
    let mut setup = Setup::default();
    setup.server.api_keys = vec!["first".to_owned(), "second".to_owned()];
    let server = setup.start();
    let models = || request("GET", "/v1/models", &Value::Null);
    let reply = send(server.port, models()).await;
    assert_eq!((reply.status, reply.json()), (401, json!({"error": "Unauthorized"})));
    for (value, status) in [
        ("Bearer first", 200),
        ("bearer second", 200),
        ("Bearer third", 401),
        ("Bearer ", 401),
        ("Basic first", 401),
        ("first", 401),
    ] {
        assert_eq!(with_header(&server, models(), "authorization", value).await.status, status, "{value}");
    }
    assert_eq!(server.get("/v1/nothing").await.status, 401);
    assert_eq!(server.post("/reset_prefix_cache", &Value::Null).await.status, 401);
    for path in ["/health", "/version", "/metrics", "/load"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn request_ids_are_taken_made_and_echoed() {
    let mut setup = Setup::default();
    setup.server.enable_request_id_headers = true;
    let server = setup.start();
    let call = |body: Value| request("POST", "/v1/completions", &body);
    let body = json!({"prompt": "x", "request_id": "from-body"});
    let reply = with_header(&server, call(body.clone()), "x-request-id", "abc-1").await;
    assert_eq!(reply.header("x-request-id"), Some("abc-1"));
    assert_eq!(reply.json()["id"], "cmpl-abc-1");
    assert_eq!(send(server.port, call(body)).await.json()["id"], "cmpl-from-body");
    let reply = with_header(&server, call(json!({"prompt": "x"})), "x-request-id", &"y".repeat(500)).await;
    let id = reply.header("x-request-id").unwrap().to_owned();
    assert_eq!(id.len(), 32, "an id that is too long is replaced");
    assert_eq!(reply.json()["id"], format!("cmpl-{id}"));
}

#[tokio::test]
async fn other_origins_are_let_in_only_where_listed() {
    let server = Setup::default().start();
    let health = || request("GET", "/health", &Value::Null);
    let reply = with_header(&server, health(), "origin", "https://a.example").await;
    assert_eq!(reply.header("access-control-allow-origin"), None);
    let mut setup = Setup::default();
    setup.server.cors.allowed_origins = vec!["https://a.example".to_owned()];
    setup.server.api_keys = vec!["key".to_owned()];
    let server = setup.start();
    let reply = with_header(&server, health(), "origin", "https://a.example").await;
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://a.example"));
    let reply = with_header(&server, health(), "origin", "https://b.example").await;
    assert_eq!(reply.header("access-control-allow-origin"), None);
    let mut preflight = request("OPTIONS", "/v1/completions", &Value::Null);
    preflight.headers_mut().insert("access-control-request-method", "POST".parse().unwrap());
    let reply = with_header(&server, preflight, "origin", "https://a.example").await;
    assert_eq!(reply.status, 200, "a preflight needs no key");
}

#[tokio::test]
async fn a_proxys_prefix_is_taken_off() {
    let mut setup = Setup::default();
    setup.server.root_path = Some("/llm/".to_owned());
    setup.server.api_keys = vec!["key".to_owned()];
    let server = setup.start();
    assert_eq!(server.get("/llm/health").await.status, 200);
    assert_eq!(server.get("/health").await.status, 200);
    assert_eq!(server.get("/llm/v1/models").await.status, 401, "a prefix does not get around the key");
    let models = request("GET", "/llm/v1/models?x=1", &Value::Null);
    assert_eq!(with_header(&server, models, "authorization", "Bearer key").await.status, 200);
    assert_eq!(server.get("/llmhealth").await.status, 404);
}
