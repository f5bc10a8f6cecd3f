//! Every way to be told off.

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::harness::{Server, Setup, request, send};

async fn raw(server: &Server, content_type: &str, body: &str) -> crate::harness::Reply {
    let request =
        Request::post("/v1/completions").header("host", "test").header("content-type", content_type);
    send(server.port, request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()).await
}

/// Posts a body that must be refused; gives (type, param, message).
async fn refused(server: &Server, path: &str, body: &Value, status: u16) -> (String, Value, String) {
    let reply = server.post(path, body).await;
    assert_eq!(reply.status, status, "{body}: {}", reply.text());
    let error = reply.error();
    let text = |field: &str| error[field].as_str().unwrap().to_owned();
    (text("type"), error["param"].clone(), text("message"))
}

#[tokio::test]
async fn an_unknown_model_is_404_and_lists_the_served_ones() {
    let server = Setup::default().start();
    for path in ["/v1/completions", "/v1/chat/completions", "/tokenize"] {
        let body = json!({"model": "gpt", "prompt": "x", "messages": [{"role": "user", "content": "x"}]});
        let (kind, param, message) = refused(&server, path, &body, 404).await;
        assert_eq!((kind.as_str(), &param), ("NotFoundError", &json!("model")));
        assert!(message.contains("gpt") && message.contains("tiny, other"), "{message}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_fit_is_400_with_the_dotted_path() {
    let server = Setup::default().start();
    let bodies = [
        (r#"{"prompt": "x", "max_tokens": "many"}"#, "body.max_tokens"),
        (r#"{"prompt": "x", "temperature": []}"#, "body.temperature"),
        (r#"{"prompt": "x", "stream_options": {"include_usage": 3}}"#, "body.stream_options.include_usage"),
        (r#"{"prompt": ["x", 3]}"#, "body.prompt.1"),
        (r#"{"prompt": [[1, 2], ["x"]]}"#, "body.prompt.1.0"),
        (r#"{"prompt": "x", "stop": [1]}"#, "body.stop.0"),
        (r#"{"prompt": "x""#, "body"),
        (r#"{"max_tokens": 3}"#, "body.prompt"),
        ("", "body"),
        ("[]", "body"),
    ];
    for (body, path) in bodies {
        let reply = raw(&server, "application/json", body).await;
        assert_eq!(reply.status, 400, "{body}");
        let error = reply.error();
        assert_eq!(error["type"], "Bad Request", "{body}");
        assert_eq!(error["param"], path, "{body}: {error}");
    }
    let deep = format!("{{\"prompt\": {}", "[".repeat(100_000));
    assert_eq!(raw(&server, "application/json", &deep).await.status, 400);
    let user = json!({"role": "user", "content": "hi"});
    let chat = [
        (json!({}), "body.messages"),
        (json!({"messages": "hi"}), "body.messages"),
        (json!({"messages": [{"content": "hi"}]}), "body.messages.0.role"),
        (json!({"messages": [{"role": "user", "content": 5}]}), "body.messages.0.content"),
        (json!({"messages": [{"role": "user", "content": null}]}), "body.messages.0.content"),
        (json!({"messages": [{"role": "system"}]}), "body.messages.0.content"),
        (json!({"messages": [user, {"role": "assistant"}]}), "body.messages.1.content"),
        (json!({"messages": [user, {"role": "assistant", "content": null}]}), "body.messages.1.content"),
        (json!({"messages": [user, {"role": "assistant", "tool_calls": []}]}), "body.messages.1.content"),
    ];
    for (body, path) in chat {
        let (kind, param, _) = refused(&server, "/v1/chat/completions", &body, 400).await;
        assert_eq!((kind.as_str(), &param), ("Bad Request", &json!(path)), "{body}");
    }
    let call = json!({"type": "function", "id": "1", "function": {"name": "f", "arguments": "{}"}});
    let assistant = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let body = json!({"messages": [user, assistant, {"role": "tool", "content": "4"}], "max_tokens": 1});
    assert_eq!(server.post("/v1/chat/completions", &body).await.status, 200);
}

#[tokio::test]
async fn a_misfit_is_told_in_the_words_of_json() {
    let server = Setup::default().start();
    let bodies = [
        ("[]", "body: must be a JSON object"),
        ("\"x\"", "body: must be a JSON object"),
        (" 3", "body: must be a JSON object"),
        (
            r#"{"max_tokens": "many"}"#,
            "body.max_tokens: invalid type: string \"many\", expected a whole number at",
        ),
        (
            r#"{"max_tokens": 1.5}"#,
            "body.max_tokens: invalid type: floating point `1.5`, expected a whole number at",
        ),
        (r#"{"temperature": [1]}"#, "body.temperature: invalid type: list, expected a number at"),
        (r#"{"top_p": {}}"#, "body.top_p: invalid type: object, expected a number at"),
        (r#"{"stop_token_ids": 5}"#, "body.stop_token_ids: invalid type: integer `5`, expected a list at"),
        (r#"{"logit_bias": []}"#, "body.logit_bias: invalid type: list, expected an object at"),
        (r#"{"stream_options": 1}"#, "body.stream_options: invalid type: integer `1`, expected an object at"),
        (r#"{"stream_options": [true]}"#, "body.stream_options: invalid type: list, expected an object at"),
        (
            r#"{"stream_options": [true, false]}"#,
            "body.stream_options: invalid type: list, expected an object at",
        ),
    ];
    for (body, expected) in bodies {
        let reply = raw(&server, "application/json", body).await;
        assert_eq!(reply.status, 400, "{body}");
        let message = reply.error()["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[tokio::test]
async fn messages_quote_no_more_than_the_start_of_a_long_value() {
    let server = Setup::default().start();
    let long = "x".repeat(20_000);
    let (path, expected) = (format!("/{long}"), "x".repeat(199));
    for reply in [server.get(&path).await, server.post(&path, &json!({})).await] {
        assert_eq!(reply.error()["message"], format!("there is nothing at /{expected}..."));
    }
    for (field, value, status) in [
        ("model", json!(long), 404),
        ("max_tokens", json!(long), 400),
        ("truncation_side", json!(long), 400),
        ("logit_bias", json!({ &long: 1 }), 400),
        ("logit_bias", json!({ &long: "a" }), 400),
    ] {
        let mut body = json!({"prompt": "x"});
        body[field] = value;
        let (_, param, message) = refused(&server, "/v1/completions", &body, status).await;
        assert!(param.as_str().unwrap().contains(field) && param.as_str().unwrap().len() < 300, "{param}");
        assert!(message.contains("xxx...") && message.len() < 600, "{message}");
    }
}

#[tokio::test]
async fn only_json_of_a_bounded_size_is_read() {
    let mut setup = Setup::default();
    setup.server.max_body_bytes = 1000;
    let server = setup.start();
    let reply = raw(&server, "text/plain", r#"{"prompt": "x"}"#).await;
    assert_eq!(reply.status, 400);
    assert!(reply.error()["message"].as_str().unwrap().contains("Only 'application/json'"));
    let reply = raw(&server, "application/json", &json!({"prompt": "x".repeat(2000)}).to_string()).await;
    assert_eq!(reply.status, 413);
    assert!(reply.error()["message"].as_str().unwrap().contains("1000"));
    assert_eq!(raw(&server, "application/json; charset=utf-8", r#"{"prompt": "x"}"#).await.status, 200);
}

#[tokio::test]
async fn compressed_bodies_are_415() {
    let server = Setup::default().start();
    let call = |encoding: &str| {
        let mut request = request("POST", "/v1/completions", &json!({"prompt": "x", "logit_bias": {"0": 1}}));
        request.headers_mut().insert("content-encoding", encoding.parse().unwrap());
        send(server.port, request)
    };
    for encoding in ["gzip", "br", "identity, gzip"] {
        let reply = call(encoding).await;
        assert_eq!((reply.status, reply.error()["type"].as_str()), (415, Some("Unsupported Media Type")));
        let message = reply.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(encoding) && message.contains("Content-Encoding"), "{message}");
    }
    assert_eq!(call("Identity").await.status, 200);
}

#[tokio::test]
async fn long_bodies_give_their_room_back() {
    let mut setup = Setup::default();
    setup.server.max_body_bytes = 100 * 1024;
    let server = setup.start();
    let body = json!({"prompt": "x".repeat(90 * 1024)});
    for reply in futures_util::future::join_all((0..24).map(|_| server.post("/tokenize", &body))).await {
        assert_eq!(reply.status, 200);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_answer_with_the_error_object() {
    let server = Setup::default().start();
    let reply = server.get("/nothing").await;
    assert_eq!((reply.status, reply.error()["type"].as_str()), (404, Some("Not Found")));
    let reply = server.get("/v1/completions").await;
    assert_eq!((reply.status, reply.error()["type"].as_str()), (405, Some("Method Not Allowed")));
    assert_eq!(reply.header("allow"), Some("POST"));
}

#[tokio::test]
async fn values_out_of_range_name_their_field() {
    let server = Setup::default().start();
    let fields = [
        ("temperature", json!(3.0)),
        ("temperature", json!(-0.1)),
        ("top_p", json!(0.0)),
        ("top_p", json!(1.5)),
        ("top_k", json!(-2)),
        ("min_p", json!(2)),
        ("presence_penalty", json!(-3)),
        ("frequency_penalty", json!(2.5)),
        ("repetition_penalty", json!(0)),
        ("n", json!(0)),
        ("n", json!(65)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-1)),
        ("min_tokens", json!(17)),
        ("logprobs", json!(6)),
        ("prompt_logprobs", json!(-1)),
        ("stop", json!([""])),
        ("stop", json!(["a", "b", "c", "d", "e"])),
        ("stop_token_ids", json!([98])),
        ("stop_token_ids", json!([-1])),
        ("logit_bias", json!({"98": 1.0})),
        ("logit_bias", json!({"x": 1.0})),
        ("logit_bias", json!({"+1": 1.0})),
        ("logit_bias", json!({"01": 1.0})),
        ("logit_bias", json!({" 1": 1.0})),
        ("logit_bias", json!({"": 1.0})),
        ("logit_bias", json!({"99999999999999999999": 1.0})),
        ("priority", json!(1)),
        ("cache_salt", json!("")),
        ("cache_salt", json!("a/b")),
        ("truncate_prompt_tokens", json!(0)),
        ("timeout_s", json!(0)),
        ("queue_timeout_s", json!(-1.5)),
        ("truncation_side", json!("up")),
        ("stream_options", json!({"include_usage": true})),
    ];
    for (field, value) in fields {
        let mut body = json!({"prompt": "x"});
        body[field] = value;
        let (kind, param, message) = refused(&server, "/v1/completions", &body, 400).await;
        assert_eq!((kind.as_str(), &param), ("BadRequestError", &json!(field)), "{body}: {message}");
        assert!(message.contains(field), "{message}");
    }
    let greedy = json!({"prompt": "x", "temperature": 0, "n": 2});
    assert_eq!(refused(&server, "/v1/completions", &greedy, 400).await.1, "n");
    let many = json!({"prompt": vec!["x"; 17]});
    assert_eq!(refused(&server, "/v1/completions", &many, 400).await.1, "prompt");
    let hi = json!([{"role": "user", "content": "hi"}]);
    let top = json!({"messages": hi, "top_logprobs": 2});
    assert_eq!(refused(&server, "/v1/chat/completions", &top, 400).await.1, "top_logprobs");
}

#[tokio::test]
async fn what_is_not_supported_yet_is_refused_by_name() {
    let server = Setup::default().start();
    let fields = [
        ("use_beam_search", json!(true)),
        ("length_penalty", json!(2.0)),
        ("best_of", json!(3)),
        ("suffix", json!("end")),
        ("bad_words", json!(["no"])),
        ("allowed_token_ids", json!([1])),
        ("logprob_token_ids", json!([1])),
        ("structured_outputs", json!({"regex": "a"})),
        ("guided_json", json!({"type": "object"})),
        ("response_format", json!({"type": "json_object"})),
        ("thinking_token_budget", json!(10)),
        ("kv_transfer_params", json!({"a": 1})),
        ("repetition_detection", json!({"min_count": 2})),
        ("stream_interval", json!(4)),
        ("watermarking", json!(true)),
    ];
    for (field, value) in fields {
        let mut body = json!({"prompt": "x", "messages": [{"role": "user", "content": "x"}]});
        body[field] = value;
        for path in ["/v1/completions", "/v1/chat/completions"] {
            let (_, param, message) = refused(&server, path, &body, 400).await;
            assert_eq!(param, field);
            assert!(message.contains("not supported yet"), "{message}");
        }
    }
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for (field, body) in [
        ("tools", json!({"tools": tools})),
        ("tools", json!({"tools": []})),
        ("tools", json!({"tools": tools, "tool_choice": "auto"})),
        ("tool_choice", json!({"tool_choice": "required"})),
    ] {
        let mut body = body;
        body["messages"] = json!([{"role": "user", "content": "x"}]);
        assert_eq!(refused(&server, "/v1/chat/completions", &body, 400).await.1, field);
    }
    let neutral = json!({"prompt": "x", "best_of": 1, "suffix": null, "bad_words": [], "use_beam_search": false,
                         "length_penalty": 1.0, "response_format": {"type": "text"}, "user": "me",
                         "something_new": {"a": 1}});
    server.complete(&neutral).await;
}

#[tokio::test]
async fn a_prompt_over_the_limit_is_400_with_both_numbers() {
    let server = Setup::default().start();
    let tokens = server.post("/tokenize", &json!({"prompt": "x"})).await.json()["tokens"][0].clone();
    for (prompt, length) in [
        (json!("x".repeat(1234)), "1234"),
        (json!(vec![tokens; 1234]), "1234"),
        (json!("x".repeat(600_000)), "tokens"),
    ] {
        let body = json!({ "prompt": prompt });
        let (kind, param, message) = refused(&server, "/v1/completions", &body, 400).await;
        assert_eq!((kind.as_str(), &param), ("BadRequestError", &json!("input_tokens")));
        assert!(message.contains(length) && message.contains("1000"), "{message}");
    }
    let (_, param, _) = refused(&server, "/v1/completions", &json!({"prompt": ""}), 400).await;
    assert_eq!(param, "input_tokens");
    let (_, param, message) = refused(&server, "/v1/completions", &json!({"prompt": [5, 98]}), 400).await;
    assert_eq!(param, "input_tokens");
    assert!(message.contains("98"), "{message}");
}

#[tokio::test]
async fn texts_that_need_not_fit_the_context_are_bounded_too() {
    let server = Setup::default().start();
    let (most, text) = (1 << 17, "a b".repeat(200_000));
    for (path, body) in [
        ("/tokenize", json!({"prompt": text})),
        ("/tokenize", json!({"messages": [{"role": "user", "content": text}]})),
        ("/v1/completions", json!({"prompt": text, "truncate_prompt_tokens": 3})),
        ("/v1/completions", json!({"prompt": ["x", text], "truncate_prompt_tokens": -1})),
    ] {
        let (kind, param, message) = refused(&server, path, &body, 400).await;
        assert_eq!((kind.as_str(), &param), ("BadRequestError", &json!("input_tokens")));
        assert!(message.contains(&format!("at most {most} tokens are tokenized at once")), "{message}");
    }
    let (_, param, message) =
        refused(&server, "/detokenize", &json!({"tokens": vec![1; most + 1]}), 400).await;
    assert_eq!(param, "tokens");
    assert!(message.contains(&format!("at most {most} tokens")), "{message}");
    let reply = server.post("/tokenize", &json!({"prompt": "a".repeat(most)})).await;
    assert_eq!(reply.json()["count"], most);
    let body = json!({"prompt": "a".repeat(most), "truncate_prompt_tokens": 3});
    assert_eq!(server.complete(&body).await["usage"]["prompt_tokens"], 3);
}

#[tokio::test]
async fn the_templates_own_refusal_reaches_the_client() {
    let template = Some("{{ raise_exception('roles must alternate') }}");
    let server = Setup { template, ..Setup::default() }.start();
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    let (kind, param, message) = refused(&server, "/v1/chat/completions", &body, 400).await;
    assert_eq!((kind.as_str(), &param), ("BadRequestError", &json!("messages")));
    assert!(message.contains("roles must alternate"), "{message}");
}

#[tokio::test]
async fn values_that_are_not_finite_are_500_or_an_event() {
    // Token 5 is "$"; a prompt with it comes back as not finite.
    let server = Setup { poison: Some(5), ..Setup::default() }.start();
    let body = json!({"prompt": "a$b"});
    let reply = server.post("/v1/completions", &body).await;
    assert_eq!((reply.status, reply.error()["type"].as_str()), (500, Some("InternalServerError")));
    assert!(reply.header("x-request-id").is_some());
    let reply = server.post("/v1/completions", &json!({"prompt": "a$b", "stream": true})).await;
    assert_eq!(reply.status, 200);
    let events = reply.events();
    assert_eq!(events.last().unwrap()["error"]["code"], 500);
    server.wait_until_empty();
}
